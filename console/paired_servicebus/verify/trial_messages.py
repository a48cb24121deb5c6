"""Encoded messages of the experiments."""

from __future__ import annotations

from servicebus_amqp.encoding.message_sections import (
    Header,
    Properties,
    Sections,
    read_properties,
    split,
    write_data,
    write_header,
    write_properties,
)


def letter(message_id: str, *, ttl_ms: int | None = None, content_type: str | None = None, body: bytes = b"x") -> bytes:
    """Return an encoded message."""
    return Sections(
        header=write_header(Header(ttl=ttl_ms)) if ttl_ms is not None else None,
        properties=write_properties(Properties(message_id=message_id, content_type=content_type)),
        body=write_data(body),
    ).join()


def id_of(payload: bytes) -> str:
    """Return a message's id as text."""
    return str(read_properties(split(payload).properties).message_id)
