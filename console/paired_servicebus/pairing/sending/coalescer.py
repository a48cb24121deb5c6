"""Many callers' messages on one shared link: what waits while a send is under way goes together in the next one.

An SDK sender carries one send at a time, so a link at 10 ms would carry 100 messages a second for all who share it.
Rules: callers' messages keep their order within each parcel; each parcel has its own outcome; a caller that leaves
takes along what was not sent yet and nothing of anybody else's; a batch that is refused is tried in parts, so that
only the message at fault fails; a queue that refuses batches of unlike messages gets them one by one from then on.

Not here: which messages may travel together (`messages.likeness`). In a backlog queue all of them may; their sessions
are in the envelope.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import MessageSizeExceededError

from paired_servicebus.core.errors import PairingClosedError
from paired_servicebus.core.model.verdict import FailureKind, kind_of
from paired_servicebus.pairing.runtime.deadlines import GRACE
from paired_servicebus.pairing.runtime.task_owner import TaskOwner
from paired_servicebus.pairing.sending.encoded_batch import EncodedBatch
from paired_servicebus.pairing.sending.sdk_messages import Sendable
from paired_servicebus.pairing.sending.sender_link import SenderLink

_MESSAGES_FAULT: Final = frozenset({FailureKind.TOO_LARGE, FailureKind.ARGUMENT})
"""A batch may be refused so for one message in it, or for being mixed."""
_LEAST: Final = 0.001
"""Seconds a send gets at least: the SDK refuses a timeout of zero."""


class PendingSend:
    """One caller's messages on their way, in their order.

    Args:
        messages: each fits the queue on its own.
        on_accepted: told what the namespace accepted, also when the caller has left in the meantime.
    """

    __slots__ = ("accepted", "ends", "messages", "on_accepted", "outcome")

    def __init__(self, messages: Sequence[Sendable], on_accepted: Callable[[Sequence[Sendable]], object]) -> None:
        self.messages = messages
        self.on_accepted = on_accepted
        self.accepted = 0
        """How many were accepted, counted from the first; the one after them is the one that failed."""
        self.ends = 0.0
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()


Load = list[tuple[PendingSend, Sendable]]
Likeness = Callable[[Sendable], object]


def _all_alike(_: Sendable) -> object:
    return None


class Coalescer:
    """What senders share of one link.

    Args:
        link: nobody else sends over it.
        tasks: own the sending, which begins with a parcel and ends when none is left.
        say: told in a sentence when the queue turns out to refuse mixed batches.
        likeness: messages travel together where this is equal; then only parcels of one message keep their order.
    """

    def __init__(
        self, link: SenderLink, tasks: TaskOwner, say: Callable[[str], object], *, likeness: Likeness = _all_alike
    ) -> None:
        self.link = link
        self.under_way = False
        """Whether it sends, or is between two sends."""
        self.one_by_one = False
        """Whether the queue refuses batches of unlike messages."""
        self._tasks = tasks
        self._say = say
        self._likeness = likeness
        self._waiting: dict[object, deque[tuple[PendingSend, Sendable]]] = {}
        """By likeness, in the order of their turns."""
        self._underway: Load = []
        self._sending: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether something is under way here, or waits to be."""
        return self._sending is not None and not self._sending.done()

    async def send(self, parcel: PendingSend, timeout: float) -> None:
        """Return when all of the parcel is accepted; `parcel.accepted` tells how far it came when this raises.

        Raises:
            TimeoutError: after `timeout` seconds and our grace.
            PairingClosedError: the pairing ends.
            ServiceBusError: what the send of the message after the accepted ones ended with.
        """
        if not self.is_busy:
            self._sending = self._tasks.start(self._run(), name=f"the sends to {self.link.path}")
            if self._sending is None:
                raise PairingClosedError(f"the pairing is closed: nothing can be sent to {self.link.path}")
        parcel.ends = asyncio.get_running_loop().time() + timeout
        for message in parcel.messages:
            self._waiting.setdefault(self._likeness(message), deque()).append((parcel, message))
        async with asyncio.timeout(timeout + GRACE):
            await parcel.outcome

    async def _run(self) -> None:
        self.under_way = True
        try:
            while True:
                payload = self._next()
                if not self._underway:
                    return
                await self._send(self._underway, payload)
                self._underway = []
                await asyncio.sleep(0)  # who was answered may have more, and that goes together
        finally:
            self.under_way = False
            self._give_back()

    # -- what goes next ---------------------------------------------------------------------------------------

    def _next(self) -> EncodedBatch | None:
        """Take as many messages as fit into one send; the batch they make, None for a single one."""
        while self._waiting:
            likeness, queue = next(iter(self._waiting.items()))
            del self._waiting[likeness]
            batch = self._taken(queue)
            if queue:
                self._waiting[likeness] = queue  # behind the others
            if self._underway:
                return batch
        return None

    def _taken(self, queue: deque[tuple[PendingSend, Sendable]]) -> EncodedBatch | None:
        if _first(queue) is None:
            return None
        if len(queue) > 1 and not self.one_by_one:
            batch = self.link.batch()
            while _first(queue) is not None and self._joins(batch, queue):
                pass
            if len(self._underway) > 1:
                return batch
        if not self._underway and _first(queue) is not None:  # one alone may be larger than a batch
            self._underway.append(queue.popleft())
        return None

    def _joins(self, batch: EncodedBatch, queue: deque[tuple[PendingSend, Sendable]]) -> bool:
        """Add the first message to the batch; False when it has no more room."""
        parcel, message = queue[0]
        try:
            batch.add_message(message)
        except MessageSizeExceededError:
            return False
        except Exception as error:  # noqa: BLE001 - what cannot be encoded fails its own parcel and no other
            if self._underway and self._underway[-1][0] is parcel:
                return False  # what goes before it is answered first: its caller has to know how far it came
            _failed([(parcel, message)], error)
        else:
            self._underway.append(queue.popleft())
        return True

    # -- sending ----------------------------------------------------------------------------------------------

    async def _send(self, load: Load, batch: ServiceBusMessageBatch | None = None) -> None:
        try:
            await self._attempt(load, batch)
        except Exception as error:  # noqa: BLE001 - whatever was raised, it is the outcome of those who are in it
            kind = kind_of(error)
            if len(load) == 1 or kind not in _MESSAGES_FAULT or isinstance(error, PairingClosedError):
                _failed(load, error)
            else:
                await self._in_parts(load, kind)
        else:
            _accepted(load)

    async def _attempt(self, load: Load, batch: ServiceBusMessageBatch | None) -> None:
        """One send, with the time of the one who waits longest: nobody's end is another's."""
        left = max(parcel.ends for parcel, _ in load) - asyncio.get_running_loop().time()
        await self.link.send(batch if batch is not None else [message for _, message in load], max(left, _LEAST))

    async def _in_parts(self, load: Load, kind: FailureKind) -> None:
        """A batch that was refused for what is in it: halves of one that is too large, else each on its own."""
        if kind is FailureKind.TOO_LARGE:
            half = len(load) // 2
            for part in (load[:half], load[half:]):
                if live := _live(part):
                    await self._send(live)
            return
        for one in load:
            if live := _live([one]):
                await self._send(live)
        if not any(_refused(parcel) for parcel, _ in load):
            self.one_by_one = True
            self._say(f"{self.link.path} refuses batches of unlike messages ({kind}): it gets them one by one")

    def _give_back(self) -> None:
        """The sending has ended: nobody is left waiting for it."""
        path = self.link.path
        _failed(self._underway, PairingClosedError(f"the pairing was closed during a send to {path}", in_doubt=True))
        waiting = [one for queue in self._waiting.values() for one in queue]
        _failed(waiting, PairingClosedError(f"the pairing is closed: nothing can be sent to {path}"))
        self._waiting.clear()


def _first(queue: deque[tuple[PendingSend, Sendable]]) -> tuple[PendingSend, Sendable] | None:
    """The first that somebody still waits for."""
    while queue and queue[0][0].outcome.done():
        queue.popleft()
    return queue[0] if queue else None


def _accepted(load: Load) -> None:
    """Tell each parcel, in order, what of it was accepted."""
    start = 0
    for index, (parcel, _) in enumerate(load):
        if index + 1 < len(load) and load[index + 1][0] is parcel:
            continue
        messages = [message for _, message in load[start : index + 1]]
        start = index + 1
        parcel.accepted += len(messages)
        parcel.on_accepted(messages)
        if parcel.accepted == len(parcel.messages) and not parcel.outcome.done():
            parcel.outcome.set_result(None)


def _failed(load: Load, error: BaseException) -> None:
    for parcel, _ in load:
        if not parcel.outcome.done():
            parcel.outcome.set_exception(error)


def _live(load: Load) -> Load:
    """Those that somebody waits for."""
    return [one for one in load if not one[0].outcome.done()]


def _refused(parcel: PendingSend) -> bool:
    """Whether a message of its own was the reason; one whose caller has left is not asked."""
    done = parcel.outcome.done() and not parcel.outcome.cancelled()
    return done and parcel.outcome.exception() is not None
