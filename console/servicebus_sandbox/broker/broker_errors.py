"""Refusals of the broker, one class for each reason that clients distinguish.

Every error names its object. The layers above map these classes to AMQP conditions and HTTP codes. Programs search the
service's sentences; where such words are known, they are here.
"""

from __future__ import annotations

from typing import ClassVar


class BrokerError(Exception):
    """A refused operation; the message names the cause, the place and the remedy."""


class PlaceError(BrokerError):
    """A refusal that is about one entity or namespace; `sentence` has its place."""

    sentence: ClassVar[str]

    def __init__(self, path: str) -> None:
        super().__init__(self.sentence.format(path))
        self.path = path


class EntityNotFound(PlaceError):
    """A missing entity."""

    sentence = (
        "The messaging entity '{}' could not be found. To know more visit https://aka.ms/sbResourceMgrExceptions."
    )


class EntityExists(PlaceError):
    """A path that is taken; queues and topics share one name space."""

    sentence = "an entity '{}' already exists in this namespace"


class EntityDisabled(BrokerError):
    """An operation that the entity's status forbids."""

    def __init__(self, path: str, status: str) -> None:
        disabled = f"'{path}' is currently disabled"
        disabled = f"{disabled} for Send operations" if status == "SendDisabled" else f"Messaging entity {disabled}"
        super().__init__(f"{disabled}. Its status is {status}; set it to Active.")


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


class BatchTooLong(MessageTooLarge):
    """A batch with more messages than the tier allows."""

    def __init__(self, path: str, count: int, limit: int) -> None:
        BrokerError.__init__(self, f"the batch has {count} messages; '{path}' takes at most {limit}")


class Unprocessable(BrokerError):
    """A message that the service can never accept, and answers as if it had failed itself. Clients see no cause."""

    def __init__(self) -> None:
        super().__init__("The service was unable to process the request; please retry the operation.")


class QuotaExceeded(BrokerError):
    """A full entity."""

    def __init__(self, path: str, limit_bytes: int, size: int | None = None) -> None:
        size = limit_bytes if size is None else size
        super().__init__(
            f"The maximum entity size has been reached or exceeded for '{path}'. Size of entity in bytes:{size}, "
            f"Max entity size in bytes: {limit_bytes}. QuotaType: EntitySize"
        )


class Throttled(PlaceError):
    """An operation beyond the namespace's credits, or beyond what it does at present."""

    sentence = (
        "The request was terminated because the namespace {} is being throttled. Error code : 50009. "
        "Please wait 2 seconds and try again. To know more visit https://aka.ms/sbResourceMgrExceptions."
    )


class MessageNotFound(BrokerError):
    """A sequence number without a deferred or scheduled message, or with a locked one."""

    def __init__(self, path: str, sequence_number: int) -> None:
        super().__init__(f"'{path}' has no such message with sequence number {sequence_number}")


class MessageLockLost(PlaceError):
    """An unknown lock token: settled already, or expired."""

    sentence = (
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the "
        "queue. Its entity is '{}'."
    )


class MessageHeld(MessageLockLost):
    """A message whose settling belongs to a transaction that has not ended."""

    sentence = "this message of '{}' is settled in a transaction; wait for its end"


class SessionLockLost(BrokerError):
    """An act on a session that its caller does not hold."""

    def __init__(self, path: str, session_id: str | None) -> None:
        name = f"'{session_id}'" if session_id is not None else "of this message"
        super().__init__(f"the lock on the session {name} of '{path}' has expired; accept the session again")


class SessionCannotBeLocked(BrokerError):
    """A session that another receiver holds."""

    def __init__(self, path: str, session_id: str) -> None:
        super().__init__(
            f"The requested session '{session_id}' cannot be accepted. It may be locked by another receiver. "
            f"Its entity is '{path}'."
        )


class SessionNeeded(PlaceError, InvalidOperation):
    """A receiver without a session, on an entity that requires one."""

    sentence = (
        "It is not possible for an entity that requires sessions to create a non-sessionful message receiver. "
        "Accept a session of '{}'."
    )


class TransactionRolledBack(BrokerError):
    """A commit that could not be done whole."""

    def __init__(self, cause: BrokerError) -> None:
        super().__init__(f"the transaction is rolled back: {cause}")


class TransactionLimit(BrokerError):
    """More messages or bytes in a transaction than are allowed."""


class FilterSyntaxError(BrokerError):
    """An invalid filter or action; the message names the place and the expected text."""


class EvaluationError(BrokerError):
    """A filter or action that fails on a message: a wrong type or an unknown system property."""
