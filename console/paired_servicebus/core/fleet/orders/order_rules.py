"""An order of the fleet: the rules by which it counts, and its signed bytes (FLEET.md section 5).

An order counts by its signed bytes alone, whoever posts them and when: a copy, a repeated post and a presence that
carries them are the same order. So every engine with the same file of signers has the same verdict. Its time of issue
is a claim, so a key has to be valid then, and at the first time by which the namespace dates its bytes. Which order
stands, and what an engine does about it: engine_orders.py. Times are the namespace's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf, isfinite
from typing import Any, Final

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.fleet.fleet_documents import (
    MAX_NAMED_ENGINES,
    MAX_SIGNED_BYTES,
    VERSION,
    OrderText,
    Signer,
    Subject,
    Unverified,
)
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import day_and_clock
from paired_servicebus.core.text.untrusted_text import repeated

# The columns of an action that concern the fleet. The rows are in core/operator/actions.py, which builds FLEET_VERBS.
#
# The rules get that table as an argument, because the operator's package is above this one.


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

    @property
    def stands(self) -> bool:
        """Return whether it sets a state; otherwise it leaves the targets to the rules."""
        return not self.revokes


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
class ThisEngine:
    """The engine that judges."""

    name: str
    primary: str
    secondary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Void:
    """Why an order does not count."""

    rule: Rule
    text: str


def subjects_of(text: OrderText, verb: FleetVerb) -> frozenset[Subject]:
    """Return what an order is about, one subject for each target."""
    return frozenset((verb.stands_for, text.scope, target.casefold()) for target in text.targets or ("",))


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
    engine: ThisEngine
    first_at: float
    """When the namespace dated the first message with these bytes that was read here."""
    at: float


def _wrong_form(case: _Case) -> str:
    text, verb, engine = case.text, case.verb, case.engine
    if text.primary.casefold() != engine.primary.casefold() or text.secondary.casefold() != engine.secondary.casefold():
        return f"it is for another pairing ({repeated(text.primary)} and {repeated(text.secondary)})"
    if text.scope not in verb.scopes or (text.scope == verb.whole_scope) != (not text.targets):
        return f"{verb.label} has the wrong kind of target ({repeated(text.scope)})"
    if len(subjects_of(text, verb)) != max(1, len(text.targets)):
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
    engine: ThisEngine,
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


# The signed bytes of an order: canonical JSON. An engine verifies the bytes, then decodes them.
#
# Canonical: keys sorted, no spaces, ASCII. A reader does not need this form, but refuses a key that appears twice,
# because two readers could choose different values. It ignores unknown keys.

OLDER: Final = "refused: this engine is older"
"""The answer to an order of a newer version."""
MAX_NUMBER: Final = 2**63 - 1


def encode_order_text(text: OrderText) -> bytes:
    """Return the bytes to sign.

    Raises:
        UnreadableError: no engine would read them: too long, or a value of the wrong form.
    """
    signed = _canonical(text)
    decode_order_text(signed)
    return signed


def too_long(text: OrderText) -> str:
    """Return why an order has too many bytes, and the remedy; empty: it has not."""
    size = len(_canonical(text))
    if size <= MAX_SIGNED_BYTES:
        return ""
    engines = 0 if text.engines is None else len(text.engines)
    return (
        f"the order has {size:,} bytes with {plural(len(text.targets), 'target')} and {plural(engines, 'named engine')}"
        f", and {MAX_SIGNED_BYTES:,} are allowed: give it in parts, with fewer targets or fewer named engines each"
    )


def _canonical(text: OrderText) -> bytes:
    fields = {name: getattr(text, name) for name in OrderText.__dataclass_fields__}
    return json.dumps({"v": VERSION, **fields}, sort_keys=True, separators=(",", ":")).encode("ascii")


def decode_order_text(signed: bytes) -> OrderText:
    """Read signed bytes.

    Raises:
        UnreadableError: they contain no order of a version that this program knows; the text has the reason.
    """
    if len(signed) > MAX_SIGNED_BYTES:
        raise UnreadableError(f"the order has {len(signed):,} bytes; {MAX_SIGNED_BYTES:,} are allowed")
    found = _read(signed)
    version = found.get("v")
    if type(version) is not int or version < 1:
        raise UnreadableError("the order has no version")
    if version > VERSION:
        raise UnreadableError(f"{OLDER} (it reads version {VERSION}, the order has {min(version, MAX_NUMBER)})")
    values: dict[str, Any] = {}
    for name, (is_valid, convert) in _FIELDS.items():
        if name not in found or not is_valid(found[name]):
            raise UnreadableError(f"the order's field {name!r} is missing or has the wrong form")
        values[name] = convert(found[name])
    return OrderText(**values)


def _read(signed: bytes) -> dict[str, Any]:
    try:
        found = json.loads(signed.decode("utf-8"), object_pairs_hook=_once, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise UnreadableError("the order is nested too deeply") from error
    except UnreadableError:
        raise
    except ValueError as error:  # invalid JSON, invalid UTF-8, or a number with too many digits
        raise UnreadableError("the order is not JSON in UTF-8") from error
    if not isinstance(found, dict):
        raise UnreadableError("the order is not a JSON object")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise UnreadableError("the order has a key twice")
    return found


def _refuse_constant(_name: str) -> Any:
    raise UnreadableError("the order has a number that is not finite")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


def _is_name(value: object) -> bool:
    return _is_text(value) and bool(value)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(_is_text(one) for one in value)


def _is_engines(value: object) -> bool:
    return value is None or (isinstance(value, list) and bool(value) and all(_is_name(one) for one in value))


def _is_seconds(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= MAX_NUMBER and isfinite(value)


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_NUMBER


def _same(value: Any) -> Any:
    return value


def _optional_tuple(value: Any) -> tuple[str, ...] | None:
    return None if value is None else tuple(value)


_FIELDS: Final[dict[str, tuple[Callable[[object], bool], Callable[[Any], Any]]]] = {
    "primary": (_is_name, _same),
    "secondary": (_is_name, _same),
    "verb": (_is_name, _same),
    "scope": (_is_name, _same),
    "targets": (_is_texts, tuple),
    "engines": (_is_engines, _optional_tuple),
    "typed": (_is_text, _same),
    "reach": (_is_number, _same),
    "why": (_is_text, _same),
    "issued_at": (_is_seconds, float),
    "until": (_is_seconds, float),
    "seen": (_is_text, _same),
}
"""Each field's check and conversion."""
