"""The messages of all plays: everything in one follows from its id, so that whoever receives it sees any change."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage

from tests.stage.course import SESSIONS

SESSION_IDS: Final = ("amsterdam", "bergen", "cork")
LIFE: Final = timedelta(days=1)
REPEATED: Final = 20
LARGE: Final = "large-"
"""The beginning of the ids of large messages."""
LARGE_BYTES: Final = 200_000


def letter(entity: str, name: str, number: int) -> ServiceBusMessage:
    """Message `number` of a stream to an entity."""
    return ServiceBusMessage(
        _body(name),
        message_id=name,
        session_id=session_of(entity, number),
        subject=name,
        correlation_id=entity,
        content_type="text/plain",
        time_to_live=LIFE,
        application_properties={"number": number},
    )


def session_of(entity: str, number: int) -> str | None:
    """The session of a message, where its entity has sessions; a batch has one."""
    return SESSION_IDS[number % len(SESSION_IDS)] if entity == SESSIONS else None


def changes(entity: str, message: ServiceBusReceivedMessage) -> str:
    """What is not as it was sent; empty if all is."""
    name, properties = str(message.message_id), dict(message.application_properties or {})
    number = properties.get(b"number", -1)
    is_: dict[str, Any] = {
        "body": b"".join(message.body),
        "session": message.session_id,
        "subject": message.subject,
        "correlation id": message.correlation_id,
        "content type": message.content_type,
        "time to live": message.time_to_live,
        "properties": set(properties),
    }
    was = {
        "body": _body(name),
        "session": session_of(entity, int(number)),
        "subject": name,
        "correlation id": entity,
        "content type": "text/plain",
        "time to live": LIFE,
        "properties": {b"number"},
    }
    return "; ".join(f"{what} is {is_[what]!r}, was {was[what]!r}" for what in was if is_[what] != was[what])


def _body(name: str) -> bytes:
    text = name.encode()
    return text * (LARGE_BYTES // len(text) if name.startswith(LARGE) else REPEATED)
