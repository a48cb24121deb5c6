"""Messages made to do harm, as their sections; each kind once, by its name.

They are made by hand, since neither an SDK nor the project's own codec writes them.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from typing import Any, Final

from paired_servicebus.core.model.envelope import PATH, SCHEDULED, SESSION_ID, TIME_TO_LIVE
from servicebus_amqp.encoding.codec import NULL, described, encode, encode_list, encode_map
from servicebus_amqp.encoding.message_sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    VALUE,
    Sections,
)

KEYS: Final = 14_000
"""Colliding keys: some 250 kB, as large as a message may be."""
MODULUS: Final = 2**61 - 1
"""Python's hash of an integer is its remainder by this number, and a UUID's hash is that of its integer."""
NOT_UTF8: Final = b"\xff\xfe\xc3\x28"
_STRING, _SYMBOL = 0xA1, 0xA3


def raw_string(data: bytes, code: int = _STRING) -> bytes:
    """A string or symbol of any bytes."""
    return bytes((code, len(data))) + data


def nested(levels: int) -> bytes:
    """A described value whose descriptor is one, and so on."""
    return b"\x00" * levels + b"\x43" * (levels + 1)


def colliding() -> bytes:
    """A map whose keys are UUIDs of one hash."""
    keys = (struct.pack(">BQQ", 0x98, *divmod(number * MODULUS, 2**64)) for number in range(KEYS))
    return encode_map(2 * KEYS, b"".join(key + b"\x41" for key in keys))


def envelope(path: bytes = encode("orders"), *more: bytes) -> bytes:
    """Application properties with a path as encoded, and further encoded keys and values."""
    pairs = [encode(PATH), path, *more]
    return described(APPLICATION_PROPERTIES, encode_map(len(pairs), b"".join(pairs)))


def properties(*items: bytes) -> bytes:
    return described(PROPERTIES, encode_list(items))


def poison(name: str, **sections: bytes | None) -> Sections:
    """A message for `orders` that is good but for these sections."""
    good = Sections(properties=properties(encode(name)), application_properties=envelope(), body=_BODY)
    return good._replace(**sections)


def whole(data: bytes) -> Sections:
    """A message that is all these bytes, behind what a namespace puts before them."""
    return Sections(body=data)


_BODY: Final = described(DATA, encode(b"x"))
_LIST: Final = encode_list([encode(1)])


def _nested_ids() -> Iterable[tuple[str, Sections]]:
    for levels in (65, 400, 100_000):
        yield f"message-id nested {levels} levels", poison("", properties=properties(nested(levels)))
    deep = described(VALUE, nested(100_000))
    yield "body nested 100000 levels", poison("body nested 100000 levels", body=deep)


def _collisions() -> Iterable[tuple[str, Sections]]:
    keys = colliding()
    for place, section in (
        ("message annotations", {"message_annotations": described(MESSAGE_ANNOTATIONS, keys)}),
        ("delivery annotations", {"delivery_annotations": described(DELIVERY_ANNOTATIONS, keys)}),
        ("application properties", {"application_properties": _among(keys)}),
        ("message-id", {"properties": properties(keys)}),
        ("path", {"application_properties": envelope(keys)}),
        ("body", {"body": described(VALUE, keys)}),
        ("footer", {"footer": described(FOOTER, keys)}),
    ):
        yield f"colliding keys in {place}", poison(f"colliding keys in {place}", **section)


def _among(keys: bytes) -> bytes:
    """Application properties with colliding keys beside the path."""
    pairs = keys[9:] + encode(PATH) + encode("orders")
    return described(APPLICATION_PROPERTIES, encode_map(2 * KEYS + 2, pairs))


_STRANGE_PATHS: Final = {
    "of 70000 characters": "x" * 70_000,
    "to $management": "$management",
    "to $cbs": "$cbs",
    "to an entity's $management": "orders/$management",
    "with slashes around it": "/orders/",
    "with a scheme": "amqps://evil.example/orders",
    "with control characters": "orders\x1b]52;c;eA==\x07\x1b[2J\n# heading",
    "with a query": "orders?x=y",
    "with an empty segment": "orders//x",
}


def _paths() -> Iterable[tuple[str, Sections]]:
    for what, path in _STRANGE_PATHS.items():
        yield f"path {what}", poison(f"path {what}", application_properties=envelope(encode(path)))


def _shapes() -> Iterable[tuple[str, Sections]]:
    head, mine, ids = described(HEADER, encode_list([b"\x41"])), envelope(), properties(encode("id"))
    yield "sections twice", whole(ids + ids + mine + mine + _BODY)
    yield "sections out of order", whole(_BODY + mine + ids + head)
    yield "path twice", poison("path twice", application_properties=envelope(encode("orders"), *_pair(PATH, "audit")))
    for cut in (1, 5, len(ids) + 3, len(ids + mine) - 1):
        yield f"cut short after {cut} bytes", whole((ids + mine + _BODY)[:cut])
    yield "size beyond the end", whole(ids + mine + b"\x00\x53\x75\xb0\x7f\xff\xff\xff" + b"x")
    yield "unknown section", whole(ids + mine + described(0x79, _LIST) + _BODY)
    for code, name in ((PROPERTIES, "properties"), (HEADER, "header")):
        yield f"{name} as a map", whole(described(code, encode_map(2, encode("a") + encode(1))) + mine + _BODY)
    for code, name in ((APPLICATION_PROPERTIES, "application properties"), (MESSAGE_ANNOTATIONS, "annotations")):
        yield f"{name} as a list", whole(described(code, _LIST) + _BODY)
    for name in (PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED):
        typed = envelope(encode("orders"), *_pair(name, [1])) if name != PATH else envelope(encode([1]))
        yield f"{name} as a list", poison(f"{name} as a list", application_properties=typed)


def _pair(name: str, value: Any) -> tuple[bytes, bytes]:
    return encode(name), encode(value)


def _not_utf8() -> Iterable[tuple[str, Sections]]:
    fields = ("message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "encoding")
    for place, field in enumerate((*fields, "expiry", "creation", "group-id", "sequence", "reply-to-group-id")):
        code = _SYMBOL if field in ("content-type", "encoding") else _STRING
        items = [encode(f"not UTF-8 in {field}"), *[NULL] * place][: place + 1]
        items[place] = raw_string(NOT_UTF8, code)
        yield f"not UTF-8 in {field}", poison("", properties=properties(*items))
    bad = raw_string(NOT_UTF8)
    for name in (PATH, SESSION_ID):
        typed = envelope(bad) if name == PATH else envelope(encode("orders"), encode(name), bad)
        yield f"not UTF-8 in {name}", poison(f"not UTF-8 in {name}", application_properties=typed)
    for what, more in (("key", (bad, encode(1))), ("value", (encode("name"), bad))):
        with_it = envelope(encode("orders"), *more)
        yield f"not UTF-8 in a property's {what}", poison(f"not UTF-8 in a {what}", application_properties=with_it)
    symbol = described(MESSAGE_ANNOTATIONS, encode_map(2, raw_string(NOT_UTF8, _SYMBOL) + encode(1)))
    yield "not UTF-8 in an annotation's key", poison("not UTF-8 in an annotation", message_annotations=symbol)


def kinds() -> dict[str, Sections]:
    """Every kind, by its name."""
    made: dict[str, Sections] = {}
    for make in (_nested_ids, _collisions, _paths, _shapes, _not_utf8):
        made.update(make())
    return made


# -- at random -------------------------------------------------------------------------------------------------------


MOST_BYTES: Final = 250_000
"""A namespace takes no larger message."""
_FIELDS: Final = ("properties", "application_properties", "body", "footer")


def damage(draw: random.Random, known: list[Sections]) -> Sections:
    """One of the kinds with bytes of its sections changed, cut, repeated or exchanged; never twice the same.

    A namespace writes header and annotations itself, so those are left alone, unless all of it is damaged as one.
    """
    chosen = draw.choice(known)
    if draw.random() < 0.2:
        return whole(_damaged(draw, chosen.join(), known))
    fields = draw.sample(_FIELDS, draw.randint(1, 2))
    found = chosen._replace(**{name: _damaged(draw, getattr(chosen, name) or b"", known) for name in fields})
    return found if found.size <= MOST_BYTES else whole(found.join()[:MOST_BYTES])


def _damaged(draw: random.Random, section: bytes, known: list[Sections]) -> bytes:
    data = bytearray(section)
    for _ in range(draw.randint(1, 4)):
        draw.choice(_ACTS)(draw, data, known)
    return bytes(data[:MOST_BYTES])


def _change(draw: random.Random, data: bytearray, _: list[Sections]) -> None:
    for _ in range(draw.randint(1, 8)):
        if data:
            data[draw.randrange(min(len(data), 400))] = draw.randrange(256)


def _cut(draw: random.Random, data: bytearray, _: list[Sections]) -> None:
    start = draw.randrange(len(data) + 1)
    del data[start : start + draw.randint(1, 40)]


def _repeat(draw: random.Random, data: bytearray, _: list[Sections]) -> None:
    start = draw.randrange(len(data) + 1)
    piece = data[start : start + draw.randint(1, 200)]
    data[start:start] = piece * draw.randint(1, 50)


def _mix(draw: random.Random, data: bytearray, known: list[Sections]) -> None:
    sections = [section for section in draw.choice(known) if section]
    start = draw.randrange(len(data) + 1)
    data[start:start] = draw.choice(sections)


_ACTS: Final = (_change, _change, _cut, _repeat, _mix)
