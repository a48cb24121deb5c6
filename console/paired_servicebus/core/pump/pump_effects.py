"""The effects of a pump's machine: what its adapter does next, in the order given."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from paired_servicebus.core.model.pairing_events import Event
from paired_servicebus.core.pump.pump_message import PumpMessage

M = TypeVar("M", bound=PumpMessage)


class Outcome(StrEnum):
    """A settlement of a message in its backlog queue."""

    COMPLETED = "completed"
    DEFERRED = "deferred"
    DEAD_LETTERED = "dead-lettered"


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
