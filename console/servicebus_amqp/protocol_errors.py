"""Errors on an AMQP connection, and AMQP's names for them.

    AmqpError
    ├── ProtocolError      the peer broke the protocol; carries the condition for the close frame
    │   ├── FramingError   the bytes are no frames
    │   ├── DecodeError    the bytes are frames, but their values are malformed
    │   └── SessionError   ends one session; the connection continues
    ├── EncodeError        a local value cannot be written
    └── StateError         a local action is invalid in the present state

`Connection.receive_data` never raises a ProtocolError: it returns an event instead.
"""

from __future__ import annotations

from enum import StrEnum


class Condition(StrEnum):
    """Error conditions of AMQP 1.0 that this package raises or understands."""

    INTERNAL_ERROR = "amqp:internal-error"
    NOT_FOUND = "amqp:not-found"
    UNAUTHORIZED_ACCESS = "amqp:unauthorized-access"
    DECODE_ERROR = "amqp:decode-error"
    RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
    NOT_ALLOWED = "amqp:not-allowed"
    INVALID_FIELD = "amqp:invalid-field"
    NOT_IMPLEMENTED = "amqp:not-implemented"
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
    """Base class of this package's errors."""


class ProtocolError(AmqpError):
    """The peer broke the protocol; the connection cannot continue."""

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
    """Ends one session with this condition; the connection continues."""


class EncodeError(AmqpError):
    """A local value has no AMQP form."""


class StateError(AmqpError):
    """The connection, session or link is in no state for this action."""
