"""The rules by which an order counts: FLEET.md section 5, as a table of seven named rules.

Rules 1 to 5 depend only on the board and the signers, so every engine has the same verdict at any time. Rule 6 is the
time, rule 7 is the engine. The namespace's numbers and times decide; every time here is the namespace's.

An order that revokes (release, resume) acts within `act_within`, but ends what stood for as long as anything can
stand. Otherwise an engine that was cut off would take up an order that was revoked meanwhile. For the same reason every
order stays on the board for ORDER_SECONDS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.fleet.fleet_documents import (
    ONE_SHOT_SECONDS,
    Order,
    OrderText,
    Posted,
    Signer,
    Subject,
    Unverified,
)
from paired_servicebus.core.fleet.orders.order_text import decode_order_text
from paired_servicebus.core.text.time_format import day_and_clock
from paired_servicebus.core.text.untrusted_text import repeated

# The columns of an action that concern the fleet. The rows are in core/operator/actions.py, which builds FLEET_VERBS.
#
# The rules get that table as an argument, because the operator's package is above this one.


class EnginesPerOrder(StrEnum):
    """How many engines one order of the fleet may address."""

    NONE = "none"
    ONE = "one"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetVerb:
    """What the rules need of an action."""

    id: str
    label: str
    scopes: tuple[str, ...]
    whole_scope: str
    """The scope without targets."""
    stands_for: str
    revokes: bool
    dangerous: bool
    confirms: str
    over: EnginesPerOrder

    @property
    def stands(self) -> bool:
        """Return whether the order holds until its end."""
        return bool(self.stands_for) and not self.revokes


FleetVerbs = Mapping[str, FleetVerb]


MAX_SKEW_SECONDS: Final = 60.0
"""Seconds between issue and arrival after which an order is void."""
DEFAULT_STANDING_SECONDS: Final = 4 * 3600.0
MAX_STANDING_SECONDS: Final = 72 * 3600.0
ORDER_SECONDS: Final = MAX_STANDING_SECONDS
"""Time to live of every order's message; cleaning before it would change the verdicts of engines that start later."""


class Rule(StrEnum):
    """The seven rules in their order."""

    FORM = "form"
    SIGNATURE = "signature"
    FRESH = "fresh"
    FIRST = "first"
    OVERTAKEN = "overtaken"
    OVER = "over"
    MEANT = "meant"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOrder:
    """A post of the orders board and the result of its verification."""

    post: Posted
    signer: Signer | Unverified


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisEngine:
    """The engine that judges."""

    name: str
    primary: str
    secondary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The order counts. acts: it may still be carried out; otherwise it only ends what stood."""

    by: str
    fingerprint: str
    ends_at: float
    acts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Void:
    """The order does not count."""

    rule: Rule
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardOrder:
    """An order after rules 1 to 5. void: the first of them that it breaks; text and verb: None if it has no form."""

    number: int
    enqueued_at: float
    text: OrderText | None
    verb: FleetVerb | None
    signer: Signer | Unverified
    void: Void | None

    @property
    def claims_id(self) -> bool:
        """Return whether its id is taken: forged and late copies never block an order."""
        return self.void is None or self.void.rule in (Rule.FIRST, Rule.OVERTAKEN)

    @property
    def subjects(self) -> frozenset[Subject]:
        return frozenset() if self.text is None or self.verb is None else subjects_of(self.text, self.verb)

    @property
    def by(self) -> str:
        return self.signer.by if isinstance(self.signer, Signer) else ""


def subjects_of(text: OrderText, verb: FleetVerb) -> frozenset[Subject]:
    """Return what an order is about, one subject for each target."""
    about = verb.stands_for or verb.id
    return frozenset((about, text.scope, target.casefold()) for target in text.targets or ("",))


def act_end(text: OrderText, enqueued_at: float) -> float:
    """Return the time until which an order that does not stand is carried out."""
    return min(text.issued_at + text.act_within, enqueued_at + ONE_SHOT_SECONDS)


def order_end(text: OrderText, verb: FleetVerb, enqueued_at: float) -> float:
    """Return the time until which an order has an effect on what stands or is done."""
    if verb.stands:
        return enqueued_at + min(text.stands_for or 0.0, MAX_STANDING_SECONDS)
    return enqueued_at + MAX_STANDING_SECONDS if verb.revokes else act_end(text, enqueued_at)


def addressed_count(text: OrderText) -> int:
    """Return the number of engines that the author addressed: by name, or all that he saw."""
    return len(set(text.seen)) if text.engines is None else len({name.casefold() for name in text.engines})


def to_type(text: OrderText, verb: FleetVerb) -> str:
    """Return the text that the author has to type: the target of one engine, or the number of several engines."""
    count = addressed_count(text)
    if count != 1:
        return str(count)
    names = text.targets or tuple(text.engines or (name for name, _ in text.seen))
    typed = names[0] if len(names) == 1 else str(len(names))
    return f"{typed} {verb.confirms}".rstrip()


# -- rules 1 to 5: the board ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    read: ReadOrder
    text: OrderText
    verb: FleetVerb
    engine: ThisEngine
    earlier: Sequence[BoardOrder]
    """Orders with a lower number, by number."""


def _wrong_form(case: _Case) -> str:
    text, verb, engine = case.text, case.verb, case.engine
    if text.primary.casefold() != engine.primary.casefold() or text.secondary.casefold() != engine.secondary.casefold():
        return f"it is for another pairing ({repeated(text.primary)} and {repeated(text.secondary)})"
    if text.scope not in verb.scopes or (text.scope == verb.whole_scope) != (not text.targets):
        return f"{verb.label} has the wrong kind of target ({repeated(text.scope)})"
    if len(subjects_of(text, verb)) != max(1, len(text.targets)):
        return "it names a target twice"
    return _wrong_reach(text, verb) or _wrong_end(text, verb) or _wrong_typing(text, verb)


def _wrong_reach(text: OrderText, verb: FleetVerb) -> str:
    if verb.over is EnginesPerOrder.NONE:
        return f"{verb.label} is not allowed over the fleet"
    if verb.over is EnginesPerOrder.ONE and (text.engines is None or addressed_count(text) != 1):
        return f"{verb.label} is for exactly one named engine"
    return ""


def _wrong_end(text: OrderText, verb: FleetVerb) -> str:
    if not verb.stands:
        return "" if text.stands_for is None else f"{verb.label} does not stand, but has an end"
    if text.stands_for is None or text.stands_for <= 0:
        return f"{verb.label} has no end; 4 h are usual, 72 h at most"
    return "" if text.stands_for <= MAX_STANDING_SECONDS else f"{verb.label} stands for 72 h at most"


def _wrong_typing(text: OrderText, verb: FleetVerb) -> str:
    wanted = to_type(text, verb)
    if not verb.dangerous or text.typed.strip().casefold() == wanted.casefold():
        return ""
    return f"its author typed {repeated(text.typed)!r}, not {repeated(wanted)!r}"


def _not_signed(case: _Case) -> str:
    return case.read.signer.why if isinstance(case.read.signer, Unverified) else ""


def _not_fresh(case: _Case) -> str:
    apart = case.read.post.enqueued_at - case.text.issued_at
    if abs(apart) <= MAX_SKEW_SECONDS:
        return ""
    how = "after" if apart > 0 else "before"
    return f"it was posted {abs(apart):,.0f} s {how} it was issued, {MAX_SKEW_SECONDS:.0f} s are allowed: a copy"


def _not_first(case: _Case) -> str:
    first = next((one for one in case.earlier if one.claims_id and one.text and one.text.id == case.text.id), None)
    return "" if first is None else f"it is already on the board as number {first.number}"


def _overtaken(case: _Case) -> str:
    enqueued_at = case.read.post.enqueued_at
    mine = subjects_of(case.text, case.verb)
    for other in reversed(case.earlier):
        if other.number <= case.text.on_top_of:
            break
        if other.void is not None or other.text is None or other.verb is None or mine.isdisjoint(other.subjects):
            continue
        is_effective = order_end(other.text, other.verb, other.enqueued_at) > enqueued_at
        if is_effective and _share_engine(other.text, case.text):
            return f"overtaken by {other.by}'s order {other.number}"
    return ""


def _share_engine(one: OrderText, other: OrderText) -> bool:
    if one.engines is None or other.engines is None:
        return True
    return not {name.casefold() for name in one.engines}.isdisjoint(name.casefold() for name in other.engines)


BOARD_RULES: Final[tuple[tuple[Rule, Callable[[_Case], str]], ...]] = (
    (Rule.FORM, _wrong_form),
    (Rule.SIGNATURE, _not_signed),
    (Rule.FRESH, _not_fresh),
    (Rule.FIRST, _not_first),
    (Rule.OVERTAKEN, _overtaken),
)
"""Rules 1 to 5. Each returns why the order breaks it, or ""."""


def judge_board(read: ReadOrder, *, engine: ThisEngine, verbs: FleetVerbs, earlier: Sequence[BoardOrder]) -> BoardOrder:
    """Apply rules 1 to 5. earlier: the orders with a lower number, by number; others are ignored."""
    post = read.post
    text, verb, void = _decode(read, verbs)
    if text is not None and verb is not None:
        before = [one for one in earlier if one.number < post.number]
        case = _Case(read=read, text=text, verb=verb, engine=engine, earlier=before)
        void = next((Void(rule=rule, text=why) for rule, check in BOARD_RULES if (why := check(case))), None)
    return BoardOrder(
        number=post.number, enqueued_at=post.enqueued_at, text=text, verb=verb, signer=read.signer, void=void
    )


def _decode(read: ReadOrder, verbs: FleetVerbs) -> tuple[OrderText | None, FleetVerb | None, Void | None]:
    document = read.post.document
    if not isinstance(document, Order):
        return None, None, Void(rule=Rule.FORM, text=repeated(read.post.trouble) or "it is not an order")
    try:
        text = decode_order_text(document.signed)
    except UnreadableError as error:
        return None, None, Void(rule=Rule.FORM, text=str(error))
    verb = verbs.get(text.verb)
    if verb is None:
        return text, None, Void(rule=Rule.FORM, text=f"this version knows no order {repeated(text.verb)!r}")
    return text, verb, None


# -- rules 6 and 7: now and here --------------------------------------------------------------------------------------


def is_meant(text: OrderText, name: str) -> bool:
    """Return whether an order addresses the engine."""
    return text.engines is None or name.casefold() in {one.casefold() for one in text.engines}


def verdict(order: BoardOrder, *, engine: ThisEngine, at: float) -> Counts | Void:
    """Apply all seven rules. at: the namespace's time."""
    if order.void is not None:
        return order.void
    if order.text is None or order.verb is None or not isinstance(order.signer, Signer):  # rules 1 and 2 exclude it
        return Void(rule=Rule.FORM, text="it is not an order")
    ends_at = order_end(order.text, order.verb, order.enqueued_at)
    if at >= ends_at:
        return Void(rule=Rule.OVER, text=f"its time was over at {day_and_clock(ends_at)}")
    if not is_meant(order.text, engine.name):
        return Void(rule=Rule.MEANT, text=f"it is for {repeated(', '.join(order.text.engines or ()))}")
    acts = order.verb.stands or at < act_end(order.text, order.enqueued_at)
    return Counts(by=order.signer.by, fingerprint=order.signer.fingerprint, ends_at=ends_at, acts=acts)
