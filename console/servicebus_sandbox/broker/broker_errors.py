"""What the broker refuses, one class for each reason a client can be told.

Every error names the thing it is about. The broker knows nothing of AMQP conditions or HTTP codes: the layers above
map these classes by table.
"""

from __future__ import annotations


class BrokerError(Exception):
    """The broker refuses an operation; the message says what, where and what would be right."""


class EntityNotFound(BrokerError):
    """No entity at this path. The service words it so, and the JavaScript client looks for these words."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the messaging entity '{path}' could not be found in this namespace")
        self.path = path


class EntityExists(BrokerError):
    """An entity with this path is there already; queues and topics share one space of names."""

    def __init__(self, path: str) -> None:
        super().__init__(f"an entity '{path}' already exists in this namespace")
        self.path = path


class EntityDisabled(BrokerError):
    """The entity's status forbids this operation."""

    def __init__(self, path: str, status: str, operation: str) -> None:
        super().__init__(f"entity '{path}' is {status}, so it takes no {operation}; set its status to Active")
        self.path = path


class InvalidSettings(BrokerError):
    """A setting is out of range, or cannot be changed any more."""


class InvalidOperation(BrokerError):
    """The operation does not fit the entity, for instance a message without session id on a session queue."""


class MessageTooLarge(BrokerError):
    """The message is larger than the entity takes."""

    def __init__(self, path: str, size: int, limit: int) -> None:
        super().__init__(f"the message has {size} bytes; '{path}' takes at most {limit}")
        self.size, self.limit = size, limit


class QuotaExceeded(BrokerError):
    """The entity is full."""

    def __init__(self, path: str, limit_bytes: int) -> None:
        super().__init__(f"'{path}' has reached its size of {limit_bytes} bytes; receive messages and send again")


class MessageNotFound(BrokerError):
    """No deferred or scheduled message with this sequence number, or it is locked."""

    def __init__(self, path: str, sequence_number: int) -> None:
        super().__init__(f"'{path}' has no such message with sequence number {sequence_number}")
        self.sequence_number = sequence_number


class MessageLockLost(BrokerError):
    """The lock token is unknown: settled already, or expired."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the lock on this message of '{path}' has expired, or the message is settled already")


class SessionLockLost(BrokerError):
    """The session is not held, or no longer held, by the one who acts on it."""

    def __init__(self, path: str, session_id: str | None) -> None:
        name = f"'{session_id}'" if session_id is not None else "of this message"
        super().__init__(f"the lock on the session {name} of '{path}' has expired; accept the session again")
        self.session_id = session_id


class SessionCannotBeLocked(BrokerError):
    """Another receiver holds the session."""

    def __init__(self, path: str, session_id: str) -> None:
        super().__init__(f"the session '{session_id}' of '{path}' is held by another receiver")
        self.session_id = session_id


class FilterSyntaxError(BrokerError):
    """A filter or an action cannot be read; the message says where and what was expected."""


class EvaluationError(BrokerError):
    """A filter or an action cannot be applied to a message: a type does not fit, a system property does not exist."""
