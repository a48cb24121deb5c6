"""What rules see of a message: its system and user properties, under names without regard to case.

The broker never opens a payload, so reading and writing properties is done by a `PropertyCodec` that whoever makes the
namespace hands in. System properties are a fixed list; anything else under `sys.` is an error when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeGuard
from uuid import UUID

from servicebus_sandbox.broker.broker_errors import EvaluationError
from servicebus_sandbox.broker.message import Message

Value = bool | int | float | str | bytes | datetime | timedelta | UUID | None
"""What a property or an expression may hold; None is null as well as unknown. Times are in UTC."""

TEXTS = ("contenttype", "correlationid", "label", "messageid", "replyto", "replytosessionid", "sessionid", "to")
_SETTABLE: Mapping[str, type] = {
    **dict.fromkeys((*TEXTS, "partitionkey"), str),
    "timetolive": timedelta,
    "scheduledenqueuetimeutc": datetime,
}
_READ_ONLY = frozenset(
    (
        *("deadlettersource", "deliverycount", "enqueuedsequencenumber", "enqueuedtimeutc", "expiresatutc"),
        *("lockeduntilutc", "locktoken", "sequencenumber", "size", "state", "viapartitionkey"),
    )
)
_ALIASES = {"subject": "label"}


def system_name(name: str) -> str:
    """The name under which a system property is kept. Raises EvaluationError for one that does not exist."""
    lower = name.lower()
    lower = _ALIASES.get(lower, lower)
    if lower not in _SETTABLE and lower not in _READ_ONLY:
        raise EvaluationError(f"there is no system property 'sys.{name}'; user properties stand without 'sys.'")
    return lower


@dataclass(slots=True)
class MessageProperties:
    """The properties of one message; a `copy` may be changed, the original is shared.

    `system` has names as `system_name` gives them, `user` names as the sender wrote them.
    """

    system: dict[str, Value]
    user: dict[str, Value]

    def copy(self) -> MessageProperties:
        return MessageProperties(dict(self.system), dict(self.user))

    def get_system(self, name: str) -> Value:
        """None if the message does not have it; EvaluationError if no message can."""
        return self.system.get(system_name(name))

    def get_user(self, name: str) -> Value:
        if name in self.user:
            return self.user[name]
        return self.user.get(self._spelling(name))

    def has_user(self, name: str) -> bool:
        return self._spelling(name) in self.user

    def set_system(self, name: str, value: Value) -> None:
        """Raises EvaluationError for what is read-only or cannot hold this value."""
        key = system_name(name)
        if key not in _SETTABLE:
            raise EvaluationError(f"sys.{name} is set by the service alone; set a user property instead")
        kind = _SETTABLE[key]
        if value is not None and kind is str:
            value = as_text(value)
        if value is not None and not isinstance(value, kind):
            raise EvaluationError(f"sys.{name} cannot be set to {as_text(value)!r}; it takes a {kind.__name__}")
        self.system[key] = value

    def set_user(self, name: str, value: Value) -> None:
        """Set a property, converted to the type it has already where that is possible."""
        spelling = self._spelling(name)
        self.user[spelling] = converted(value, self.user.get(spelling))

    def remove_user(self, name: str) -> None:
        self.user.pop(self._spelling(name), None)

    def _spelling(self, name: str) -> str:
        if name in self.user:
            return name
        lower = name.lower()
        return next((known for known in self.user if known.lower() == lower), name)


class PropertyCodec(Protocol):
    """How properties are got out of a message and put into one."""

    def read(self, message: Message) -> MessageProperties:
        """Raises EvaluationError if the message cannot be read."""

    def write(self, message: Message, properties: MessageProperties) -> Message:
        """A message that differs from `message` in its properties alone."""

    def identify(self, message: Message, message_id: str) -> Message:
        """A message that differs from `message`, which has no id, in having this one."""


class SystemFieldCodec:
    """A codec for payloads that nobody can read: what the message's own fields tell, and no user properties."""

    def read(self, message: Message) -> MessageProperties:
        return MessageProperties(system_fields(message), {})

    def write(self, message: Message, properties: MessageProperties) -> Message:
        return with_fields(message, properties)

    def identify(self, message: Message, message_id: str) -> Message:
        return replace(message, message_id=message_id)


def system_fields(message: Message) -> dict[str, Value]:
    """The system properties that the fields of a message hold."""
    scheduled = message.scheduled_at
    return {
        "messageid": as_text(message.message_id) if isinstance(message.message_id, str | int | bytes | UUID) else None,
        "sessionid": message.session_id,
        "partitionkey": message.partition_key,
        "contenttype": message.content_type,
        "timetolive": None if message.ttl is None else timedelta(seconds=message.ttl),
        "scheduledenqueuetimeutc": None if scheduled is None else datetime.fromtimestamp(scheduled, UTC),
        "size": message.size,
    }


def with_fields(message: Message, properties: MessageProperties) -> Message:
    """`message` with the fields that the system properties tell; a changed schedule comes too late and is ignored."""
    system, ttl = properties.system, properties.system.get("timetolive")
    changed = replace(
        message,
        session_id=_text(system.get("sessionid")),
        partition_key=_text(system.get("partitionkey")),
        content_type=_text(system.get("contenttype")),
        ttl=ttl.total_seconds() if isinstance(ttl, timedelta) else None,
    )
    if system.get("messageid") != system_fields(message)["messageid"]:  # else the id keeps the type it came in
        changed.message_id = _text(system.get("messageid"))
    return changed


def _text(value: Value) -> str | None:
    return None if value is None else as_text(value)


def as_text(value: Value) -> str:
    """A value as text: what concatenation and conversion make of it."""
    match value:
        case None:
            return ""
        case bool():
            return "True" if value else "False"
        case datetime():
            return value.isoformat()
        case bytes():
            return value.hex()
        case _:
            return str(value)


def is_number(value: Value) -> TypeGuard[int | float]:
    """Truth values are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def converted(value: Value, present: Value) -> Value:
    """`value` in the type of `present` where a conversion exists, else as it is."""
    if value is None or present is None or type(value) is type(present):
        return value
    try:
        match present:
            case bool():
                return value
            case str():
                return as_text(value)
            case int() if isinstance(value, str | float) and not isinstance(value, bool):
                return int(value)
            case float() if isinstance(value, str | int) and not isinstance(value, bool):
                return float(value)
    except (ValueError, OverflowError):
        return value
    return value
