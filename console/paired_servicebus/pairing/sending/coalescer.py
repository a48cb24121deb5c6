"""Many callers' messages on one shared link: messages that wait for the current send go together in the next one.

An SDK sender carries one send at a time, so a link at 10 ms would carry 100 messages a second for all its callers.
Rules: callers' messages keep their order within each PendingSend, and each has its own outcome. A caller that leaves
withdraws its own unsent messages only. A refused batch is retried in parts, so that only the faulty message fails. A
queue that refuses mixed batches gets single messages afterwards.

Senders decide which messages may share a batch (`sdk_messages.batch_key`). In a backlog queue all may: their sessions
are in the envelope.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import MessageSizeExceededError

from paired_servicebus.core.errors import PairingClosedError
from paired_servicebus.core.model.verdict import FailureKind, kind_of
from paired_servicebus.pairing.runtime.deadlines import GRACE, TaskOwner
from paired_servicebus.pairing.sending.amqp_link import BacklogLink
from paired_servicebus.pairing.sending.sdk_messages import Carried, EncodedBatch
from paired_servicebus.pairing.sending.sender_link import SdkSenderLink

_MESSAGES_FAULT: Final = frozenset({FailureKind.TOO_LARGE, FailureKind.ARGUMENT})
"""Failures of a batch that one message, or the mix of messages, may cause."""
_MIN_SECONDS: Final = 0.001
"""The minimum timeout of a send in seconds: the SDK refuses zero."""


class PendingSend:
    """One caller's messages on their way, in their order.

    Args:
        messages: each fits the queue by itself.
        on_accepted: called with the messages that the namespace accepted, even after the caller has left.
    """

    __slots__ = ("accepted", "ends", "messages", "on_accepted", "outcome")

    def __init__(self, messages: Sequence[Carried], on_accepted: Callable[[Sequence[Carried]], object]) -> None:
        self.messages = messages
        self.on_accepted = on_accepted
        self.accepted = 0
        """The number of accepted messages, from the first; the next one failed."""
        self.ends = 0.0
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()


Load = list[tuple[PendingSend, Carried]]
BatchKey = Callable[[Any], object]


class Coalescer:
    """The shared sends of one link.

    Args:
        link: used by this coalescer only.
        tasks: own the sending task, which runs while messages wait.
        say: called with a sentence when the queue refuses mixed batches.
        batch_key: returns the key of messages that may share a batch; order is then kept only for single messages.
    """

    def __init__(
        self,
        link: SdkSenderLink | BacklogLink,
        tasks: TaskOwner,
        say: Callable[[str], object],
        *,
        batch_key: BatchKey = lambda _: None,
    ) -> None:
        self.link = link
        self.under_way = False
        """Whether it sends, or is between two sends."""
        self.one_by_one = False
        """Whether the queue refuses mixed batches."""
        self._tasks = tasks
        self._say = say
        self._batch_key = batch_key
        self._waiting: dict[object, deque[tuple[PendingSend, Carried]]] = {}
        """By batch_key, in the order of their turns."""
        self._underway: Load = []
        self._sending: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a send is under way or waits."""
        return self._sending is not None and not self._sending.done()

    async def send(self, pending: PendingSend, timeout: float) -> None:
        """Send all messages; `pending.accepted` has the progress when this raises.

        Raises:
            TimeoutError: after `timeout` seconds and GRACE.
            PairingClosedError: the pairing ends.
            ServiceBusError: the failure of the message after the accepted ones.
        """
        if not self.is_busy:
            self._sending = self._tasks.start(self._run(), name=f"the sends to {self.link.path}")
            if self._sending is None:
                raise PairingClosedError(f"the pairing is closed: nothing can be sent to {self.link.path}")
        pending.ends = asyncio.get_running_loop().time() + timeout
        for message in pending.messages:
            self._waiting.setdefault(self._batch_key(message), deque()).append((pending, message))
        async with asyncio.timeout(timeout + GRACE):
            await pending.outcome

    async def _run(self) -> None:
        self.under_way = True
        try:
            while True:
                payload = self._next()
                if not self._underway:
                    return
                await self._send(self._underway, payload)
                self._underway = []
                await asyncio.sleep(0)  # callers with an answer may send again, in the same batch
        finally:
            self.under_way = False
            self._fail_waiting()

    # -- what goes next ---------------------------------------------------------------------------------------

    def _next(self) -> EncodedBatch | None:
        """Take the messages of the next send; return their batch, or None for a single message."""
        while self._waiting:
            batch_key, queue = next(iter(self._waiting.items()))
            del self._waiting[batch_key]
            batch = self._take_batch(queue)
            if queue:
                self._waiting[batch_key] = queue  # behind the others
            if self._underway:
                return batch
        return None

    def _take_batch(self, queue: deque[tuple[PendingSend, Carried]]) -> EncodedBatch | None:
        if _first(queue) is None:
            return None
        if len(queue) > 1 and not self.one_by_one:
            batch = self.link.batch()
            while _first(queue) is not None and self._add_first(batch, queue):
                pass
            if len(self._underway) > 1:
                return batch
        if not self._underway and _first(queue) is not None:  # a single message may exceed a batch
            self._underway.append(queue.popleft())
        return None

    def _add_first(self, batch: EncodedBatch, queue: deque[tuple[PendingSend, Carried]]) -> bool:
        """Add the first message to the batch; return False if it does not fit."""
        pending, message = queue[0]
        try:
            batch.append(message)
        except MessageSizeExceededError:
            return False
        except Exception as error:  # noqa: BLE001 - an encoding error fails its own caller only
            if self._underway and self._underway[-1][0] is pending:
                return False  # the messages before it are sent first, so that its caller knows the progress
            _failed([(pending, message)], error)
        else:
            self._underway.append(queue.popleft())
        return True

    # -- sending ----------------------------------------------------------------------------------------------

    async def _send(self, load: Load, batch: ServiceBusMessageBatch | None = None) -> None:
        """Send within the longest remaining time of its callers, and report the outcome to each."""
        try:
            left = max(pending.ends for pending, _ in load) - asyncio.get_running_loop().time()
            payload = batch if batch is not None else [message for _, message in load]
            await self.link.send(payload, max(left, _MIN_SECONDS))
        except Exception as error:  # noqa: BLE001 - any error is the outcome of the callers in the batch
            kind = kind_of(error)
            if len(load) == 1 or kind not in _MESSAGES_FAULT or isinstance(error, PairingClosedError):
                _failed(load, error)
            else:
                await self._in_parts(load, kind)
        else:
            _accepted(load)

    async def _in_parts(self, load: Load, kind: FailureKind) -> None:
        """Retry a refused batch: in halves if it is too large, else message by message."""
        if kind is FailureKind.TOO_LARGE:
            half = len(load) // 2
            for part in (load[:half], load[half:]):
                if live := _live(part):
                    await self._send(live)
            return
        for one in load:
            if live := _live([one]):
                await self._send(live)
        if not any(_refused(pending) for pending, _ in load):
            self.one_by_one = True
            self._say(f"{self.link.path} refuses batches of unlike messages ({kind}): it gets them one by one")

    def _fail_waiting(self) -> None:
        """Fail everything that waits: the sending task has ended."""
        path = self.link.path
        _failed(self._underway, PairingClosedError(f"the pairing was closed during a send to {path}", in_doubt=True))
        waiting = [one for queue in self._waiting.values() for one in queue]
        _failed(waiting, PairingClosedError(f"the pairing is closed: nothing can be sent to {path}"))
        self._waiting.clear()


def _first(queue: deque[tuple[PendingSend, Carried]]) -> tuple[PendingSend, Carried] | None:
    """Return the first message whose caller still waits."""
    while queue and queue[0][0].outcome.done():
        queue.popleft()
    return queue[0] if queue else None


def _accepted(load: Load) -> None:
    """Report the accepted messages to each caller, in order."""
    start = 0
    for index, (pending, _) in enumerate(load):
        if index + 1 < len(load) and load[index + 1][0] is pending:
            continue
        messages = [message for _, message in load[start : index + 1]]
        start = index + 1
        pending.accepted += len(messages)
        pending.on_accepted(messages)
        if pending.accepted == len(pending.messages) and not pending.outcome.done():
            pending.outcome.set_result(None)


def _failed(load: Load, error: BaseException) -> None:
    for pending, _ in load:
        if not pending.outcome.done():
            pending.outcome.set_exception(error)


def _live(load: Load) -> Load:
    """Return the messages whose callers still wait."""
    return [one for one in load if not one[0].outcome.done()]


def _refused(pending: PendingSend) -> bool:
    """Return whether one of its messages was refused; False if its caller has left."""
    done = pending.outcome.done() and not pending.outcome.cancelled()
    return done and pending.outcome.exception() is not None
