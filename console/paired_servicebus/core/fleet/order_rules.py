"""An order of the fleet: the rules by which it counts (FLEET.md section 5).

An order counts by its signed bytes alone, whoever posts them and when: a copy, a repeated post and a presence that
carries them are the same order. So every engine with the same file of signers has the same verdict. Its time of issue
is a claim, so a key has to be valid then, and at the first time by which the namespace dates its bytes. Which order
stands, and what an engine does about it: engine_orders.py. Times are the namespace's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from paired_servicebus.core.fleet.fleet_documents import (
    MAX_NAMED_ENGINES,
    Author,
    OrderText,
    Signer,
    Subject,
    Unverified,
)
from paired_servicebus.core.text.time_format import day_and_clock
from paired_servicebus.core.text.untrusted_text import repeated

WHOLE: Final = "all"
"""The scope without targets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetVerb:
    """What the rules need of an action; core/operator/actions.py has the rows, which get here as an argument."""

    id: str
    """Its name in the control protocol, the audit, standing.json and orders of the fleet; never changed."""
    label: str
    scopes: tuple[str, ...]
    stands_for: str = ""
    """The subject of an order that holds until revoked; the newest about a subject and target wins. Empty: none."""
    revokes: bool = False
    """Whether it ends the standing order about its subject and target."""
    dangerous: bool = False
    """Whether it is armed first, with a preview, then fired by typing the target's name within ARMED_SECONDS."""
    confirms: str = ""
    """A statement by the operator of a fact that no engine can check, besides the name; empty: none."""

    @property
    def stands(self) -> bool:
        """Return whether it sets a state; otherwise it leaves the targets to the rules."""
        return not self.revokes

    def subjects(self, scope: str, targets: Iterable[str]) -> tuple[Subject, ...]:
        """Return what an order with it is about, one subject for each target."""
        return tuple((self.stands_for, scope, one.casefold()) for one in targets) or ((self.stands_for, scope, ""),)


FleetVerbs = Mapping[str, FleetVerb]
"""The actions that can be ordered over the fleet, by id."""

MAX_SKEW_SECONDS: Final = 60.0
"""Seconds by which an operator's clock may be ahead of the namespace's."""
DEFAULT_STANDING_SECONDS: Final = 4 * 3600.0
MAX_STANDING_SECONDS: Final = 72 * 3600.0
ORDER_SECONDS: Final = MAX_STANDING_SECONDS + MAX_SKEW_SECONDS
"""Seconds after its issue for which an order decides: no older order of its subjects can stand after them."""


class Rule(StrEnum):
    """The rules in their order."""

    FORM = "form"
    SIGNATURE = "signature"
    KEY = "key"
    FUTURE = "future"
    OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Void:
    """Why an order does not count."""

    rule: Rule
    text: str


def to_type(text: OrderText, verb: FleetVerb) -> str:
    """Return the text that the author has to type: the number of several engines, or else the target."""
    if text.reach > 1:
        return str(text.reach)
    names = text.targets or tuple(text.engines or (text.primary,))
    typed = names[0] if len(names) == 1 else str(len(names))
    return f"{typed} {verb.confirms}".rstrip()


# -- the rules --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    text: OrderText
    verb: FleetVerb
    signer: Signer | Unverified
    engine: Author
    first_at: float
    """When the namespace dated the first message with these bytes that was read here."""
    at: float


def _wrong_form(case: _Case) -> str:
    text, verb, engine = case.text, case.verb, case.engine
    if text.primary.casefold() != engine.primary.casefold() or text.secondary.casefold() != engine.secondary.casefold():
        return f"it is for another pairing ({repeated(text.primary)} and {repeated(text.secondary)})"
    if text.scope not in verb.scopes or (text.scope == WHOLE) != (not text.targets):
        return f"{verb.label} has the wrong kind of target ({repeated(text.scope)})"
    if len(set(verb.subjects(text.scope, text.targets))) != max(1, len(text.targets)):
        return "it names a target twice"
    if text.engines is not None and len(text.engines) > MAX_NAMED_ENGINES:
        return f"it names {len(text.engines)} engines, and {MAX_NAMED_ENGINES} are allowed"
    return _wrong_end(text, verb) or _wrong_typing(text, verb)


def _wrong_end(text: OrderText, verb: FleetVerb) -> str:
    if text.until <= text.issued_at:
        return f"{verb.label} ends before it begins"
    return "" if text.until - text.issued_at <= MAX_STANDING_SECONDS else f"{verb.label} stands for 72 h at most"


def _wrong_typing(text: OrderText, verb: FleetVerb) -> str:
    wanted = to_type(text, verb)
    if not verb.dangerous or text.typed.strip().casefold() == wanted.casefold():
        return ""
    return f"its author typed {repeated(text.typed)!r}, not {repeated(wanted)!r}"


def _not_signed(case: _Case) -> str:
    return case.signer.why if isinstance(case.signer, Unverified) else ""


def _after_its_key(case: _Case) -> str:
    end = case.signer.valid_before if isinstance(case.signer, Signer) else inf
    return "" if case.first_at <= end else f"it is first seen after its key's end at {day_and_clock(end)}"


def _from_future(case: _Case) -> str:
    ahead = case.text.issued_at - case.first_at
    if ahead <= MAX_SKEW_SECONDS:
        return ""
    return f"it was issued {ahead:,.0f} s after it was posted, {MAX_SKEW_SECONDS:.0f} s are allowed: set the clock"


def _long_over(case: _Case) -> str:
    return "" if case.at < case.text.issued_at + ORDER_SECONDS else "it was over three days ago"


RULES: Final[tuple[tuple[Rule, Callable[[_Case], str]], ...]] = (
    (Rule.FORM, _wrong_form),
    (Rule.SIGNATURE, _not_signed),
    (Rule.KEY, _after_its_key),
    (Rule.FUTURE, _from_future),
    (Rule.OVER, _long_over),
)
"""Each returns why the order breaks it, or ""."""


def why_void(
    text: OrderText,
    signer: Signer | Unverified,
    *,
    engine: Author,
    verbs: FleetVerbs,
    first_at: float,
    at: float = -inf,
) -> Void | None:
    """Return the first rule that an order breaks; None: it counts.

    Args:
        first_at: when the namespace dated the message in which it was read first.
        at: now.
    """
    verb = verbs.get(text.verb)
    if verb is None:
        return Void(rule=Rule.FORM, text=f"this version knows no order {repeated(text.verb)!r} over the fleet")
    case = _Case(text=text, verb=verb, signer=signer, engine=engine, first_at=first_at, at=at)
    return next((Void(rule=rule, text=why) for rule, check in RULES if (why := check(case))), None)
