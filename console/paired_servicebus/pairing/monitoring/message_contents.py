"""Encoded backlog messages as rows and contents for a screen. Pure; an unreadable message is a row with the reason.

Texts are cut and made harmless here, so that nothing after this has to trust them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from paired_servicebus.core.errors import EnvelopeError
from paired_servicebus.core.model.message_view import MAX_BODY_BYTES, MAX_PROPERTIES, MessageContent, MessageRow
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pairing.syphon.envelope_codec import broker_properties, open_envelope, read_message_id
from servicebus_amqp.encoding.amqp_types import Described, Timestamp
from servicebus_amqp.encoding.codec import NULL, decode
from servicebus_amqp.encoding.message_sections import DATA, VALUE, Sections, list_items, map_values, split

LONGEST_NAME: Final = 260
"""Characters of a path, which is as long as an entity's may be."""
LONGEST_ID: Final = 128
LONGEST_VALUE: Final = 300
DECODED_BYTES: Final = 4096
"""A property's value with more bytes is not decoded: a sender can make it expensive to read."""
OURS: Final = "Undeliverable"
"""The reason of the pumps' dead letters; their description has the cause."""
_REASON, _DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"
_STATES: Final = {1: "deferred", 2: "scheduled"}
_DELIVERY_COUNT: Final = 4
_NAMES: Final = (
    "message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding",
    "expires", "created", "session", "group-sequence", "reply-to-group-id",
)  # fmt: skip
_TIMES: Final = ("expires", "created")
_BINARY: Final = {0xA0: (1, 2), 0xB0: (4, 5)}
"""Format codes of binaries: bytes of the size, and of what stands before the content."""
_STRING: Final = {0xA1: (1, 2), 0xB1: (4, 5)}


def row_of(data: bytes) -> MessageRow:
    """Return an encoded message's row; never raises."""
    held = broker_properties(data)
    dead = _dead_letter(data)
    destination, session, fault = "", "", ""
    try:
        opened = open_envelope(data)
    except EnvelopeError as error:
        fault, message_id = str(error), read_message_id(data)
    else:
        destination, session, message_id = opened.enclosed.path, opened.enclosed.session_id or "", opened.message_id
    return MessageRow(
        number=held.sequence_number,
        destination=one_line(destination, most=LONGEST_NAME),
        message_id=one_line(message_id, most=LONGEST_ID),
        enqueued_at=held.enqueued_ms / 1000 if held.enqueued_ms > 0 else None,
        size=len(data),
        deliveries=_deliveries(data),
        session=one_line(session, most=LONGEST_ID),
        reason=one_line(dead or fault, most=LONGEST_VALUE),
        state=_STATES.get(held.state, ""),
    )


def has_id(data: bytes, wanted: str) -> bool:
    """Return whether the message's id contains the wanted text, without case."""
    return wanted.casefold() in read_message_id(data).casefold()


def content_of(data: bytes, *, read_at: float) -> MessageContent:
    """Return an encoded message's properties and the start of its body; never raises."""
    row = row_of(data)
    try:
        sections = split(data)
    except Exception as error:  # noqa: BLE001 - any sender may have written it; the screen shows the reason
        note = f"the message cannot be read ({type(error).__name__}); these are its encoded bytes"
        return MessageContent(row=row, body=data[:MAX_BODY_BYTES], body_size=len(data), body_note=note, read_at=read_at)
    body, size, note = _body(sections.body)
    properties = tuple(_some(_properties(sections), MAX_PROPERTIES))
    return MessageContent(row=row, properties=properties, body=body, body_size=size, body_note=note, read_at=read_at)


# -- properties ------------------------------------------------------------------------------------------------------


def _some(pairs: Iterator[tuple[str, str]], most: int) -> Iterator[tuple[str, str]]:
    """Yield the first pairs, and a remark if there are more."""
    for place, (name, value) in enumerate(pairs):
        if place == most:
            yield "…", f"more than {most} properties; the others are not shown"
            return
        yield one_line(name, most=LONGEST_ID), value


def _properties(sections: Sections) -> Iterator[tuple[str, str]]:
    """Yield the names and values of properties, annotations and application properties."""
    yield from _guarded(lambda: _own(sections.properties), "properties")
    yield from _guarded(lambda: _map(sections.application_properties, "app: "), "application properties")
    yield from _guarded(lambda: _map(sections.message_annotations, "annotation: "), "annotations")


def _guarded(read: Callable[[], Iterator[tuple[str, str]]], what: str) -> Iterator[tuple[str, str]]:
    try:
        yield from read()
    except Exception as error:  # noqa: BLE001 - as above
        yield what, f"cannot be read ({type(error).__name__})"


def _own(section: bytes | None) -> Iterator[tuple[str, str]]:
    for name, item in zip(_NAMES, list_items(section, 0) if section else (), strict=False):
        if item != NULL:
            yield name, _time(item) if name in _TIMES else _value(item)


def _map(section: bytes | None, before: str) -> Iterator[tuple[str, str]]:
    for name, item in map_values(section) if section else ():
        yield before + name.decode("utf-8", "replace"), _value(item)


def _time(item: bytes) -> str:
    value = decode(item)[0]
    return _moment(int(value)) if isinstance(value, int) else "unknown"


def _moment(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return f"{milliseconds} ms, which is no time"


def _value(item: bytes) -> str:
    """Return an encoded value as one harmless line."""
    if len(item) > DECODED_BYTES:
        code = item[0]
        head = item[5 : 5 + 4 * LONGEST_VALUE] if code == 0xB1 else b""
        text = one_line(head.decode("utf-8", "replace"), most=LONGEST_VALUE) if head else ""
        return f"{text} ({len(item):,} bytes)" if text else f"{len(item):,} bytes, not shown"
    value = decode(item)[0]
    if isinstance(value, Described):
        value = value.value
    if isinstance(value, Timestamp):
        return _moment(int(value))
    if isinstance(value, bytes):
        return f"bytes {value[:32].hex(' ')}{' …' if len(value) > 32 else ''}"
    return one_line(str(value), most=LONGEST_VALUE)


def _dead_letter(data: bytes) -> str:
    """Return the reason of a dead letter: the description of ours, the reason of others'."""
    try:
        section = split(data).application_properties
        found = dict(map_values(section)) if section else {}
        reason = _value(found[_REASON.encode()]) if _REASON.encode() in found else ""
        description = _value(found[_DESCRIPTION.encode()]) if _DESCRIPTION.encode() in found else ""
    except Exception:  # noqa: BLE001 - as above; the row tells the fault of the envelope
        return ""
    return (description or reason) if reason == OURS else (reason or description)


def _deliveries(data: bytes) -> int | None:
    try:
        header = split(data).header
        if header is None:
            return 0
        value = decode(list_items(header, _DELIVERY_COUNT + 1)[_DELIVERY_COUNT])[0]
    except Exception:  # noqa: BLE001 - as above
        return None
    return 0 if value is None else int(value) if isinstance(value, int) else None


# -- the body --------------------------------------------------------------------------------------------------------


def _body(body: bytes) -> tuple[bytes, int, str]:
    """Return the first bytes of a body, its size, and a note if it is neither bytes nor text."""
    if not body:
        return b"", 0, "no body"
    if body[:2] == b"\x00\x53" and len(body) > 4 and body[2] in (DATA, VALUE):
        known = (_BINARY if body[2] == DATA else _BINARY | _STRING).get(body[3])
        if known is not None:
            width, before = known
            size = int.from_bytes(body[4 : 4 + width], "big")
            start = 3 + before
            if start + size == len(body):
                return bytes(body[start : start + min(size, MAX_BODY_BYTES)]), size, ""
    return bytes(body[:MAX_BODY_BYTES]), len(body), "an AMQP body of several parts or another type, as encoded"
