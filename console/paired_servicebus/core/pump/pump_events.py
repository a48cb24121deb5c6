"""The events of a pump's machine: what its adapter observed. Times (`at`) are seconds since 1970."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from paired_servicebus.core.model.verdict import Judgement
from paired_servicebus.core.pump.pump_effects import Outcome
from paired_servicebus.core.pump.pump_message import PumpMessage

M = TypeVar("M", bound=PumpMessage)


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
