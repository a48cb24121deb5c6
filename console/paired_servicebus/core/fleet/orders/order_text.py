"""The signed bytes of an order: canonical JSON. An engine verifies the bytes, then decodes them.

Canonical: keys sorted, no spaces, ASCII. A reader does not need this form, but refuses a key that appears twice,
because two readers could choose different values. It ignores unknown keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import isfinite
from typing import Any, Final

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.fleet.fleet_documents import MAX_SIGNED_BYTES, VERSION, OrderText
from paired_servicebus.core.text.number_format import plural

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
