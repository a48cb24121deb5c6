"""Backlog messages as bytes, put into a queue of the sandbox at once; and what arrives, looked at without receiving."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from paired_servicebus.core.model.envelope import PATH, SESSION_ID, TIME_TO_LIVE
from servicebus_amqp.encoding.codec import Described, Symbol
from servicebus_amqp.encoding.message_sections import (
    Properties,
    Sections,
    read_map,
    read_properties,
    write_application_properties,
    write_data,
    write_properties,
)
from servicebus_sandbox.amqp_server.message_codec import read_message
from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.broker.message import StoredMessage

from .conftest import World

_UNNAMED = object()
"""Keeps the namespace from naming a message, which has no id on the wire then."""


SETTINGS = QueueSettings(
    max_size_mb=5120,
    max_delivery_count=2147483647,
    default_ttl=None,
    auto_delete_on_idle=None,
    lock_duration=timedelta(minutes=1),
    dead_letter_on_expiration=True,
    enable_batched_operations=True,
)
"""Of a backlog queue, by the specification."""


def queue_path(index: int = 0) -> str:
    return f"primary/x-servicebus-transfer/{index}"


def parked(
    path: str,
    name: str | None,
    *,
    session: str | None = None,
    ttl: float | None = None,
    properties: dict[str, Any] | None = None,
    body: bytes = b"x",
) -> bytes:
    """A message in its envelope. name: its id; None: it has none. ttl: seconds."""
    envelope: dict[str, Any] = {**(properties or {}), PATH: path}
    if session is not None:
        envelope[SESSION_ID] = session
    if ttl is not None:
        envelope[TIME_TO_LIVE] = Described(Symbol("com.microsoft:timespan"), int(ttl * 10_000_000))
    return Sections(
        properties=write_properties(Properties(message_id=name)),
        application_properties=write_application_properties(envelope),
        body=write_data(body),
    ).join()


def put(world: World, messages: list[bytes], *, path: str = queue_path(), namespace: str = "secondary") -> None:
    """Messages into a queue, in order, as if they had been sent there; those without an id are given none."""
    node = world.sandbox[namespace].node
    read = [read_message(data) for data in messages]
    for message in read:
        message.message_id = message.message_id or _UNNAMED
    node.namespace.send_target(path).intake.send(read)
    node.wake()


def lying_in(world: World, path: str, *, namespace: str = "primary") -> list[StoredMessage]:
    """What lies in a queue, in order, whatever its state."""
    return world.sandbox[namespace].node.namespace.message_queue(path).peek(0, 1_000_000)


def sections(stored: StoredMessage) -> Sections:
    found = stored.message.payload
    assert isinstance(found, Sections)
    return found


def bodies_in(world: World, path: str) -> list[bytes]:
    """The bodies of the messages in a queue of the primary, each one data section of less than 256 bytes, in order."""
    return [sections(stored).body[5:] for stored in lying_in(world, path)]


def session_of(stored: StoredMessage) -> str | None:
    return read_properties(sections(stored).properties).group_id


def reason_of(stored: StoredMessage) -> str:
    """Why a dead letter is one."""
    told = stored.added or read_map(sections(stored).application_properties)
    return str(told["DeadLetterErrorDescription"])
