"""Refusals of the broker, one class for each reason that clients distinguish.

Every error names its object. The layers above map these classes to AMQP conditions and HTTP codes.
"""

from __future__ import annotations


class BrokerError(Exception):
    """A refused operation; the message names the cause, the place and the remedy."""


class EntityNotFound(BrokerError):
    """A missing entity. The words are the service's; the JavaScript and Java clients search for them."""

    def __init__(self, path: str) -> None:
        super().__init__(f"The messaging entity '{path}' could not be found in this namespace")
        self.path = path


class EntityExists(BrokerError):
    """A path that is taken; queues and topics share one name space."""

    def __init__(self, path: str) -> None:
        super().__init__(f"an entity '{path}' already exists in this namespace")
        self.path = path


class EntityDisabled(BrokerError):
    """An operation that the entity's status forbids."""

    def __init__(self, path: str, status: str, operation: str) -> None:
        super().__init__(f"entity '{path}' is {status}, so it takes no {operation}; set its status to Active")
        self.path = path


class InvalidSettings(BrokerError):
    """A setting that is out of range or fixed at creation.

    `field` names the setting, and `value` is the refused value, where management repeats both.
    """

    def __init__(self, sentence: str, field: str = "", value: object = None) -> None:
        super().__init__(sentence)
        self.field, self.value = field, value


class InvalidOperation(BrokerError):
    """An operation that does not fit the entity, such as a message without session id on a session queue."""


class MessageTooLarge(BrokerError):
    """A message above the entity's size limit."""

    def __init__(self, path: str, size: int, limit: int) -> None:
        super().__init__(f"the message has {size} bytes; '{path}' takes at most {limit}")
        self.size, self.limit = size, limit


class Unprocessable(BrokerError):
    """A message that the service can never accept, and answers as if it had failed itself. Clients see no cause."""

    def __init__(self) -> None:
        super().__init__("The service was unable to process the request; please retry the operation.")


class QuotaExceeded(BrokerError):
    """A full entity."""

    def __init__(self, path: str, limit_bytes: int) -> None:
        super().__init__(f"'{path}' has reached its size of {limit_bytes} bytes; receive messages and send again")


class Throttled(BrokerError):
    """An operation beyond the namespace's credits. The words are the service's; clients search for the code."""

    def __init__(self) -> None:
        super().__init__(
            "The request was terminated because the namespace is being throttled. Error code: 50009. "
            "Please wait 2 seconds and try again."
        )


class MessageNotFound(BrokerError):
    """A sequence number without a deferred or scheduled message, or with a locked one."""

    def __init__(self, path: str, sequence_number: int) -> None:
        super().__init__(f"'{path}' has no such message with sequence number {sequence_number}")
        self.sequence_number = sequence_number


class MessageLockLost(BrokerError):
    """An unknown lock token: settled already, or expired."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the lock on this message of '{path}' has expired, or the message is settled already")


class SessionLockLost(BrokerError):
    """An act on a session that its caller does not hold."""

    def __init__(self, path: str, session_id: str | None) -> None:
        name = f"'{session_id}'" if session_id is not None else "of this message"
        super().__init__(f"the lock on the session {name} of '{path}' has expired; accept the session again")
        self.session_id = session_id


class SessionCannotBeLocked(BrokerError):
    """A session that another receiver holds."""

    def __init__(self, path: str, session_id: str) -> None:
        super().__init__(f"the session '{session_id}' of '{path}' is held by another receiver")
        self.session_id = session_id


class FilterSyntaxError(BrokerError):
    """An invalid filter or action; the message names the place and the expected text."""


class EvaluationError(BrokerError):
    """A filter or action that fails on a message: a wrong type or an unknown system property."""
