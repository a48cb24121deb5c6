"""Documents of the fleet as messages, and back (FLEET.md section 3).

A message has one data section of JSON in UTF-8; an application property marks a deflated one. Fields are added, never
renamed. Everything on a board is foreign: `read_post` raises nothing, inflates a bounded amount, and returns an
unreadable message as a `Posted` without a document, with the reason.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any, Final, get_args

import msgspec

from paired_servicebus.core.errors import FleetBoardError, NewerVersionError, UnreadableError
from paired_servicebus.core.fleet.fleet_documents import (
    MAX_BYTES,
    MAX_REPORT_BYTES,
    VERSION,
    Author,
    Board,
    Document,
    DocumentKind,
    Order,
    Posted,
    Presence,
    Report,
    decode_order_text,
)
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pairing.envelope_codec import broker_properties
from servicebus_amqp.encoding.message_sections import (
    DATA,
    Header,
    Properties,
    Sections,
    body_parts,
    read_header,
    read_map,
    read_properties,
    split,
    write_application_properties,
    write_data,
    write_header,
    write_properties,
)

CONTENT_TYPE: Final = "application/vnd.paired-fleet+json"
ENCODING: Final = "content-encoding"
DEFLATE: Final = "deflate"
DEFLATE_FROM_BYTES: Final = 2048
"""Bytes of JSON from which it is deflated; reports always are."""
MAX_ENVELOPE_BYTES: Final = 8 * 1024
"""Bytes of a message around its body."""
INFLATED_MOST: Final = {MAX_BYTES: 256 * 1024, MAX_REPORT_BYTES: 3 * 1024 * 1024}
"""Bytes of JSON by the limit of the body: a bomb ends here. Idle entities deflate to a hundredth."""
MAX_TTL_SECONDS: Final = 73 * 3600.0
"""The longest life of a document: an order stands for 72 hours at most."""
FOREIGN_SECONDS: Final = 600.0
"""Seconds after which a foreign or broken message is over, whatever its time to live."""


def max_bytes(kind: DocumentKind) -> int:
    """Return the bytes that the body of a document may have."""
    return MAX_REPORT_BYTES if kind is DocumentKind.REPORT else MAX_BYTES


# -- writing ---------------------------------------------------------------------------------------------------------


def write_post(document: Document, *, ttl: float, posted_by: Author) -> bytes:
    """Return the encoded message of a document.

    A presence with too many long entity names has fewer of them, then fewer orders; a report has fewer entities.

    Raises:
        FleetBoardError: the document is too large, or has a value that JSON has not.
    """
    kind = document.kind
    body, is_deflated = _fitting_body(document, kind)
    names = {"v": str(VERSION), "pairing": posted_by.pairing, "engine": posted_by.engine, "boot": posted_by.boot}
    return Sections(
        header=write_header(Header(durable=True, ttl=round(1000 * min(max(ttl, 1.0), MAX_TTL_SECONDS)))),
        properties=write_properties(
            Properties(message_id=document.id, subject=kind.value, content_type=CONTENT_TYPE),
        ),
        application_properties=write_application_properties(names | ({ENCODING: DEFLATE} if is_deflated else {})),
        body=write_data(body),
    ).join()


def write_body(document: Document) -> tuple[bytes, bool]:
    """Return the body of a document, and whether it is deflated. Raises FleetBoardError."""
    kind = document.kind
    try:
        encoded = b'{"v":%d,' % VERSION + msgspec.json.encode(document)[1:]
    except (TypeError, ValueError, RecursionError) as error:
        raise FleetBoardError(f"a document of the kind {kind.value} cannot be written: {error}") from error
    _check_size(kind, len(encoded), INFLATED_MOST[max_bytes(kind)])
    if kind is DocumentKind.REPORT or len(encoded) >= DEFLATE_FROM_BYTES:
        return zlib.compress(encoded, 6), True
    return encoded, False


def _check_size(kind: DocumentKind, size: int, most: int) -> None:
    if size > most:
        raise FleetBoardError(f"a document of the kind {kind.value} has {size:,} bytes; a board takes {most:,}")


def _fitting_body(document: Document, kind: DocumentKind) -> tuple[bytes, bool]:
    body, is_deflated = write_body(document)
    most = max_bytes(kind)
    while len(body) > most and (shorter := _shorten(document)) is not None:
        document = shorter
        body, is_deflated = write_body(document)
    _check_size(kind, len(body), most)
    return body, is_deflated


def _shorten(document: Document) -> Document | None:
    """Return the document with less; None: it has nothing to spare."""
    match document:
        case Presence(not_well=entities) if entities:
            return replace(document, not_well=entities[: len(entities) // 2])
        case Presence(carried=carried) if carried:
            return replace(document, carried=carried[:-1])
        case Report(snapshot=snapshot) if snapshot.entities:
            half = snapshot.entities[: len(snapshot.entities) // 2]
            return replace(document, snapshot=replace(snapshot, entities=half))
    return None


# -- reading ---------------------------------------------------------------------------------------------------------


_DECODERS: Final[dict[DocumentKind, msgspec.json.Decoder[Any]]] = {
    type_.kind: msgspec.json.Decoder(type_) for type_ in get_args(Document)
}


def read_post(data: bytes, board: Board) -> Posted:
    """Read a message of a board. Never raises: an unusable message has no document, and the reason."""
    held = broker_properties(data)
    enqueued_at = held.enqueued_ms / 1000
    found = Posted(
        number=held.sequence_number, enqueued_at=enqueued_at, ends_at=enqueued_at + FOREIGN_SECONDS, document=None
    )
    try:
        return _read(found, data, board)
    except Exception as error:  # noqa: BLE001 - from an unknown sender: any error is its own
        return replace(found, trouble=_reason(error))


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, UnreadableError) else f"cannot be read ({type(error).__name__})"


def _read(found: Posted, data: bytes, board: Board) -> Posted:
    if len(data) > MAX_REPORT_BYTES + MAX_ENVELOPE_BYTES:
        return replace(found, trouble=f"has {len(data):,} bytes; a board takes {MAX_REPORT_BYTES:,}")
    sections = split(data)
    properties = read_properties(sections.properties)
    found = replace(found, copies=_text(properties.message_id), kind=_known(properties.subject))
    if properties.content_type != CONTENT_TYPE:
        return replace(found, trouble="is no document of the fleet")
    try:
        mine = read_map(sections.application_properties)
        ttl = read_header(sections.header).ttl
        document = _read_document(sections.body, mine, found, board, len(data))
    except NewerVersionError as error:
        return replace(found, trouble=str(error), is_newer=True, ends_at=_end(found, ttl))
    if ttl is None:
        raise UnreadableError("has no time to live")
    return replace(found, document=document, ends_at=_end(found, ttl))


def _end(found: Posted, ttl: int | None) -> float:
    seconds = MAX_TTL_SECONDS if ttl is None else min(ttl / 1000, MAX_TTL_SECONDS)
    return found.enqueued_at + seconds


def _read_document(body: bytes, mine: dict[Any, Any], found: Posted, board: Board, size: int) -> Document:
    _check_version(mine.get("v"))
    if not found.kind:
        raise UnreadableError("is of an unknown kind")
    kind = DocumentKind(found.kind)
    if kind.board is not board:
        raise UnreadableError(f"is of the kind {kind.value}, which has no place on the board {board.value}")
    most = max_bytes(kind)
    if size > most + MAX_ENVELOPE_BYTES:
        raise UnreadableError(f"has {size:,} bytes; a {kind.value} has at most {most:,}")
    parts = list(body_parts(body))
    if len(parts) != 1 or parts[0][0] != DATA:
        raise UnreadableError("has no body of one data section")
    encoded = _plain(parts[0][1], mine.get(ENCODING), most)
    document = read_body(kind, encoded)
    if document.id != found.copies:
        raise UnreadableError("has another message id than its document")
    return document


def _check_version(given: object) -> None:
    if not (isinstance(given, str) and given.isascii() and given.isdecimal() and len(given) <= 9 and int(given)):
        raise UnreadableError("has no version")
    if int(given) > VERSION:
        raise NewerVersionError(f"has version {given}: this engine is older")


def _plain(content: bytes, encoding: object, most: int) -> bytes:
    """Return the JSON of a body; a deflated one is inflated as far as its limit."""
    if len(content) > most:
        raise UnreadableError(f"has a body of {len(content):,} bytes; a board takes {most:,}")
    if encoding is None:
        return content
    if encoding != DEFLATE:
        raise UnreadableError("has an unknown encoding")
    limit = INFLATED_MOST[most]
    inflater = zlib.decompressobj()
    plain = inflater.decompress(content, limit)
    if not inflater.eof:
        raise UnreadableError(f"is cut short, or inflates to more than {limit:,} bytes")
    return plain


def read_body(kind: DocumentKind, encoded: bytes) -> Document:
    """Read the JSON of a document. Raises UnreadableError, among others; `read_post` handles all."""
    document: Document = read_json(_DECODERS[kind], encoded)
    if isinstance(document, Order):
        decode_order_text(document.signed.encode())
    return document


def _known(subject: object) -> str:
    return str(subject) if subject in DocumentKind.__members__.values() else ""


def _text(message_id: object) -> str:
    return message_id if isinstance(message_id, str) else ""
