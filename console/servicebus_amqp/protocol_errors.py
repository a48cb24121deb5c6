"""What can go wrong on an AMQP connection, and the names AMQP has for it.

    AmqpError
    ├── ProtocolError      the peer broke the protocol; carries the condition that the close frame will name
    │   ├── FramingError   the bytes are no frames
    │   ├── DecodeError    the bytes are frames, but their values are malformed
    │   └── SessionError   breaks one session only: it is ended, the connection goes on
    ├── EncodeError        a value of ours cannot be written
    └── StateError         an action of ours that the connection, session or link is in no state for

A ProtocolError never leaves `Connection.receive_data`; it becomes an event. What it does to sessions and
links does not belong here.
"""

from __future__ import annotations

from enum import StrEnum


class Condition(StrEnum):
    """Error conditions that AMQP 1.0 itself defines and this package raises or understands."""

    INTERNAL_ERROR = "amqp:internal-error"
    NOT_FOUND = "amqp:not-found"
    UNAUTHORIZED_ACCESS = "amqp:unauthorized-access"
    DECODE_ERROR = "amqp:decode-error"
    RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
    NOT_ALLOWED = "amqp:not-allowed"
    INVALID_FIELD = "amqp:invalid-field"
    NOT_IMPLEMENTED = "amqp:not-implemented"
    RESOURCE_LOCKED = "amqp:resource-locked"
    CONNECTION_FORCED = "amqp:connection:forced"
    FRAMING_ERROR = "amqp:connection:framing-error"
    WINDOW_VIOLATION = "amqp:session:window-violation"
    ERRANT_LINK = "amqp:session:errant-link"
    HANDLE_IN_USE = "amqp:session:handle-in-use"
    UNATTACHED_HANDLE = "amqp:session:unattached-handle"
    DETACH_FORCED = "amqp:link:detach-forced"
    TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded"
    MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"


class AmqpError(Exception):
    """Anything this package raises."""


class ProtocolError(AmqpError):
    """The peer broke the protocol; the connection cannot go on."""

    def __init__(self, description: str, condition: str = Condition.NOT_ALLOWED) -> None:
        super().__init__(description)
        self.description = description
        self.condition = condition


class FramingError(ProtocolError):
    def __init__(self, description: str) -> None:
        super().__init__(description, Condition.FRAMING_ERROR)


class DecodeError(ProtocolError):
    def __init__(self, description: str) -> None:
        super().__init__(description, Condition.DECODE_ERROR)


class SessionError(ProtocolError):
    """Breaks one session: it is ended with this condition, the connection goes on."""


class EncodeError(AmqpError):
    """A value of ours has no AMQP form; says which and why."""


class StateError(AmqpError):
    """An action that the connection, session or link is in no state for."""
