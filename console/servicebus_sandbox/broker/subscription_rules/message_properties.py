"""The system and user properties of a message for rules, by name without regard to case.

The broker never reads a payload, so the namespace gets a `PropertyCodec` for it. System properties are a fixed list;
any other name under `sys.` is an error when it is used.
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
"""A value of a property or an expression; None is null and unknown. Times are in UTC."""

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
    """Return the stored name of a system property. Raises EvaluationError for an unknown one."""
    lower = name.lower()
    lower = _ALIASES.get(lower, lower)
    if lower not in _SETTABLE and lower not in _READ_ONLY:
        raise EvaluationError(f"there is no system property 'sys.{name}'; user properties stand without 'sys.'")
    return lower


@dataclass(slots=True)
class MessageProperties:
    """The properties of one message; change only a `copy`, the original is shared.

    `system` has the names of `system_name`, `user` those of the sender.
    """

    system: dict[str, Value]
    user: dict[str, Value]

    def copy(self) -> MessageProperties:
        return MessageProperties(dict(self.system), dict(self.user))

    def get_system(self, name: str) -> Value:
        """Return a system property, None if the message lacks it. Raises EvaluationError for an unknown name."""
        return self.system.get(system_name(name))

    def get_user(self, name: str) -> Value:
        if name in self.user:
            return self.user[name]
        return self.user.get(self._spelling(name))

    def has_user(self, name: str) -> bool:
        return self._spelling(name) in self.user

    def set_system(self, name: str, value: Value) -> None:
        """Set a system property. Raises EvaluationError if it is read-only or cannot hold this value."""
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
        """Set a property, converted to its present type if possible."""
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
    """The reader and writer of a message's properties."""

    def read(self, message: Message) -> MessageProperties:
        """Return the properties. Raises EvaluationError if the message cannot be read."""

    def write(self, message: Message, properties: MessageProperties) -> Message:
        """Return a copy of `message` with these properties."""

    def identify(self, message: Message, message_id: str) -> Message:
        """Return a copy of `message`, which has no id, with this one."""


class SystemFieldCodec:
    """A codec for opaque payloads: the message's own fields, no user properties."""

    def read(self, message: Message) -> MessageProperties:
        return MessageProperties(system_fields(message), {})

    def write(self, message: Message, properties: MessageProperties) -> Message:
        return with_fields(message, properties)

    def identify(self, message: Message, message_id: str) -> Message:
        return replace(message, message_id=message_id)


def system_fields(message: Message) -> dict[str, Value]:
    """Return the system properties from the fields of a message."""
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
    """Return `message` with the fields of the system properties; a changed schedule comes too late and is ignored."""
    system, ttl = properties.system, properties.system.get("timetolive")
    changed = replace(
        message,
        session_id=_text(system.get("sessionid")),
        partition_key=_text(system.get("partitionkey")),
        content_type=_text(system.get("contenttype")),
        ttl=ttl.total_seconds() if isinstance(ttl, timedelta) else None,
    )
    if system.get("messageid") != system_fields(message)["messageid"]:  # else the id keeps its type
        changed.message_id = _text(system.get("messageid"))
    return changed


def _text(value: Value) -> str | None:
    return None if value is None else as_text(value)


def as_text(value: Value) -> str:
    """Return a value as text for concatenation and conversion."""
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
    """Return whether a value is a number; Booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def converted(value: Value, present: Value) -> Value:
    """Return `value` in the type of `present` if a conversion exists, else unchanged."""
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
