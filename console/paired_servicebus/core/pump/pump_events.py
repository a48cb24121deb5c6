"""The events of a pump's machine: what its adapter observed. Times (`at`) are seconds since 1970."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from paired_servicebus.core.model.pairing_events import Event
from paired_servicebus.core.model.verdict import Judgement
from paired_servicebus.core.pump.deferred_messages import DeferredMessages

# A backlog message as a pump's rules see it; an adapter's subclass adds its bytes and its lock.


class PumpMessage:
    """One message out of its envelope.

    number: in the backlog queue, or a negative placeholder. message_id: as text; "" without one. path: its destination;
    "" if it is unreadable. key: the path, casefolded. size: bytes. lock_ends, sent_at: seconds since 1970; sent_at is
    the start of the latest try. is_recalled: it is deferred in its queue, and was received by its number.
    deferred_as: the deferred messages of its destination, while it counts as one of them in hand.
    """

    __slots__ = ("deferred_as", "is_recalled", "key", "lock_ends", "message_id", "number", "path", "sent_at", "size")

    def __init__(
        self,
        path: str,
        key: str,
        number: int,
        message_id: str,
        size: int,
        lock_ends: float,
        *,
        is_recalled: bool = False,
    ) -> None:
        self.path = path
        self.key = key
        self.number = number
        self.message_id = message_id
        self.size = size
        self.lock_ends = lock_ends
        self.is_recalled = is_recalled
        self.deferred_as: DeferredMessages | None = None
        self.sent_at = 0.0


M = TypeVar("M", bound=PumpMessage)


# The effects of a pump's machine: what its adapter does next, in the order given.


class Outcome(StrEnum):
    """A settlement of a message in its backlog queue."""

    COMPLETED = "completed"
    DEFERRED = "deferred"
    DEAD_LETTERED = "dead-lettered"
    RELEASED = "released"


class Deliver(NamedTuple, Generic[M]):
    """Send the message to its destination, after the ones given before. at: seconds since 1970."""

    message: M
    at: float


class Complete(NamedTuple, Generic[M]):
    """Complete the messages."""

    messages: Sequence[M]


class Defer(NamedTuple, Generic[M]):
    """Defer the message in its queue."""

    message: M


class DeadLetter(NamedTuple, Generic[M]):
    """Dead-letter the message with this reason."""

    message: M
    reason: str


class Release(NamedTuple, Generic[M]):
    """Release the message's lock, so that another engine can receive it."""

    message: M


class Relock(NamedTuple, Generic[M]):
    """Settle `held` by the lock of `again`: the same message, whose first lock ended in hand."""

    held: M
    again: M


class Recall(NamedTuple):
    """Receive these deferred messages again, by number; answer with RecallEnded."""

    key: str
    path: str
    numbers: Sequence[int]


class AwaitRoom(NamedTuple):
    """Ask again when the destination, or the pump, has room."""

    key: str


class Publish(NamedTuple):
    """Publish these events together, before the following effects."""

    events: Sequence[Event]


PumpEffect = Deliver[M] | Complete[M] | Defer[M] | DeadLetter[M] | Release[M] | Relock[M] | Recall | AwaitRoom | Publish


class MessageArrived(NamedTuple, Generic[M]):
    """A locked message, from the queue or by its number. fault: why it cannot be delivered, from its reader; or ""."""

    message: M
    at: float
    fault: str = ""


class MessagesAccepted(NamedTuple, Generic[M]):
    """Their destinations accepted these messages."""

    messages: Sequence[M]
    at: float


class DeliveryFailed(NamedTuple, Generic[M]):
    """A try of these messages for one destination failed.

    messages: this pump's; others' may have been tried with them. in_doubt: whether they may have arrived. alone: one
    message was tried, so the failure may be its own fault.
    """

    path: str
    messages: Sequence[M]
    failure: Judgement
    at: float
    in_doubt: bool = False
    alone: bool = False


class DeliveryWithheld(NamedTuple, Generic[M]):
    """These messages were not sent: their destination failed meanwhile, or owes answers."""

    messages: Sequence[M]
    at: float


class MessagesSettled(NamedTuple, Generic[M]):
    """The queue's equal answers to settlements. is_done: None: neither confirmed nor refused."""

    messages: Sequence[M]
    outcome: Outcome
    is_done: bool | None


class LocksLost(NamedTuple, Generic[M]):
    """The locks of these unsent messages ended; they come again by themselves."""

    messages: Sequence[M]


class MessagesWithdrawn(NamedTuple, Generic[M]):
    """These messages were not sent, and the pump stops."""

    messages: Sequence[M]
    at: float


class DeferredFound(NamedTuple):
    """A search found deferred messages that are unknown here: path ("": unreadable), number."""

    messages: Sequence[tuple[str, int]]


class RecallDue(NamedTuple):
    """Deferred messages of a destination may be received again. room: how many more its delivery takes."""

    key: str
    room: int
    at: float


class RecallEnded(NamedTuple):
    """The answer to `Recall`. missing: the numbers that did not come. failed: the request failed."""

    key: str
    numbers: Sequence[int]
    missing: frozenset[int]
    failed: bool
    at: float


class QueueCounted(NamedTuple):
    """A count of the queue's messages, read while nothing moved. known: the pump's, with unconfirmed settlements."""

    messages: int
    known: int
    at: float


class PumpWorks(NamedTuple):
    """The pump is attached and does its regular work."""


class PumpFailed(NamedTuple):
    """The pump cannot use its queue. todo: the operator's remedy, or ""."""

    reason: str
    retry_in: float
    at: float
    todo: str = ""


PumpEvent = (
    MessageArrived[M]
    | MessagesAccepted[M]
    | DeliveryFailed[M]
    | DeliveryWithheld[M]
    | MessagesSettled[M]
    | LocksLost[M]
    | MessagesWithdrawn[M]
    | DeferredFound
    | RecallDue
    | RecallEnded
    | QueueCounted
    | PumpWorks
    | PumpFailed
)
