"""The base of both pumps, and the pump of one backlog queue on our own AMQP: fast, bit for bit (SPEC.md section 8).

An adapter of the machine that decides (paired_servicebus.core.pump.pump_machine): messages arrive with peek-lock, are
taken out of their envelope (envelope_codec.py), and each effect goes to its executor. `AmqpDelivery` sends,
`Settlement` settles, `DeferredScan` searches for deferred messages, and `DeferredReceiver` receives them.

A search finds deferred messages by peeking: ours from before a crash, or another syphon's. It reads the whole queue, in
portions: each adds its findings at its end, and a failure ends the portion, not the search. A pump opens after the
first part, as far as other pumps can have passed beyond messages that they held locked; the rest follows while messages
move.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from typing import Any, Final, Generic, TypeVar, cast
from uuid import UUID

from paired_servicebus.core.errors import EnvelopeError, WireError, WireUnavailableError
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.core.pump.intake_limit import IntakeLimit
from paired_servicebus.core.pump.pump_events import (
    Complete,
    DeadLetter,
    Defer,
    DeferredFound,
    Deliver,
    LocksLost,
    M,
    MessageArrived,
    MessagesWithdrawn,
    Publish,
    PumpEvent,
    PumpFailed,
    PumpWorks,
    QueueCounted,
    Recall,
    RecallDue,
    RecallEnded,
    Release,
    Relock,
)
from paired_servicebus.core.pump.pump_machine import PumpMachine, PumpProgress
from paired_servicebus.core.text.number_format import join_names, plural
from paired_servicebus.pairing.amqp_client import Backoff, ReconnectingConnection, WireReceiver, is_idle_detach
from paired_servicebus.pairing.amqp_client.reconnecting import HEALTHY, peek
from paired_servicebus.pairing.envelope_codec import broker_properties, open_envelope, read_message_id, restore_message
from paired_servicebus.pairing.runtime.deadlines import end_all
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.amqp_delivery import (
    MANAGED,
    AmqpDelivery,
    BacklogMessage,
    Settlement,
    lock_ends,
    receive_again,
    renew_each,
)
from servicebus_amqp.encoding.performatives import RELEASED
from servicebus_amqp.protocol.deliveries import Payload
from servicebus_amqp.protocol.links import DeliveryReceived

RECENT: Final = 5.0
"""Seconds after a move in which the syphon counts as running while anything is parked."""
STOPPING_SECONDS: Final = 5.0
"""Seconds in which a stopped pump gets the answers that are due, and the same again to settle what it holds."""

T = TypeVar("T")


class PendingAnswers:
    """Requests that lock or settle messages: a stop cancels none of them, since their answers name the locks."""

    def __init__(self) -> None:
        self._requests: set[asyncio.Task[Any]] = set()

    async def wait_for(self, request: Coroutine[Any, Any, T]) -> T:
        """Return the request's answer; a cancellation ends this wait, and not the request."""
        task = asyncio.create_task(request)
        self._requests.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait for the answers that are due, at most STOPPING_SECONDS; then cancel the requests."""
        if self._requests:
            await asyncio.wait(tuple(self._requests), timeout=STOPPING_SECONDS)
            await end_all(tuple(self._requests), STOPPING_SECONDS)

    def _ended(self, request: asyncio.Task[Any]) -> None:
        self._requests.discard(request)
        if not request.cancelled():
            request.exception()  # after a stop nobody else retrieves it


class Pump(ABC, Generic[M]):
    """One backlog queue's pump: what both kinds do alike.

    Args:
        index, path: the backlog queue's.
        progress: shared with a pump of the other kind that replaces this one.
        intake: limits the messages that it takes.
        remake: makes a missing queue again; returns why it is still missing and the remedy, or "". None: it stays
            missing.
    """

    def __init__(
        self,
        steering: PairingRuntime,
        *,
        index: int,
        path: str,
        progress: PumpProgress | None = None,
        intake: IntakeLimit | None = None,
        remake: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        self.index = index
        self.path = path
        self.progress = progress or PumpProgress()
        self._steering = steering
        self._intake = intake
        self._remake = remake
        self.machine = self._new_machine()
        self._answers = PendingAnswers()
        self._window_ends = 0.0

    def _new_machine(self) -> PumpMachine[M]:
        return PumpMachine(self._steering.machine, self.index, progress=self.progress, intake=self._intake)

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether it has no unsettled message and no unconfirmed settlement."""

    @abstractmethod
    async def run(self) -> None:
        """Move messages until cancelled; a failure ends a link, not the pump."""

    @abstractmethod
    async def close(self) -> None:
        """Settle or release the messages in hand, within seconds; after `run` has ended."""

    def known(self) -> set[int]:
        """Return the numbers of messages in hand, requested, deferred, or about to be settled."""
        return self.machine.known()

    def holds(self, messages: int) -> None:
        """Search the queue if it contains more messages than known; the count was read while nothing moved."""
        self.machine.step(QueueCounted(messages, len(self.known()), self._steering.clock()))

    def report_failure(self, reason: str, *, retry_in: float, todo: str = "") -> None:
        """Report that the pump cannot use its queue. retry_in: seconds. todo: the operator's remedy."""
        for effect in self.machine.step(PumpFailed(reason, retry_in, self._steering.clock(), todo)):
            if isinstance(effect, Publish):
                self._steering.publish(effect.events)

    async def _while_paused(self) -> None:
        while not self._steering.machine.may_pump(self.index):
            self.progress.text = "paused"
            await self._steering.change(self._steering.clock() + 60.0)

    async def _pause_after(self, failure: Exception, pause: float = 0.0) -> None:
        """Report a failure, and wait: at least `pause` seconds, and longer for a busy namespace."""
        policy, judgement = self._steering.policy, self._steering.judge(failure)
        pause = max(pause, policy.syphon_retry_interval)
        if judgement.kind is FailureKind.BUSY:
            pause = max(pause, policy.throttle_wait)
        todo = ""
        if judgement.kind is FailureKind.NOT_FOUND and self._remake is not None:
            todo = await self._remake()
        self.report_failure(judgement.reason, retry_in=pause, todo=todo)
        await asyncio.sleep(pause)

    def _show_progress(self, *troubles: str) -> None:
        """Update the text of the progress. troubles: what does not work beside."""
        held = self.machine.deferred.counts()
        self.progress.set_aside, self.progress.set_aside_for = sum(held.values()), held
        text = f"holds {plural(sum(held.values()), 'message')} for {join_names(sorted(held))}" if held else "receiving"
        self.progress.text = "; ".join(part for part in (text, *troubles) if part)


RENEWAL_SECONDS: Final = 20.0
"""Seconds before its end at which a lock is renewed."""
EXPIRED_SECONDS: Final = 1.0
"""Seconds before its end at which a lock no longer counts."""
MESSAGES_PER_PEEK: Final = 250
"""Messages of one request, at most."""
ENOUGH: Final = 20_000
"""Active messages in a row after which a pump may open: as many as four dead pumps can have held."""
PORTION_SECONDS: Final = 0.2
"""Seconds after which a portion ends."""
_ACTIVE, _DEFERRED = 0, 1


class DeferredScan:
    """One pump's searches, one after the other; a search ignores the messages that the pump knows."""

    def __init__(self, steering: PairingRuntime, wire: ReconnectingConnection, pump: AmqpPump) -> None:
        self._steering = steering
        self._wire = wire
        self._path = pump.path
        self._pump = pump
        self._schedule = pump.machine.search
        self.trouble = ""
        """The reason why the search failed, or ""."""
        self._next = 1
        self._in_a_row = 0
        self._took = 0.0
        self._stays_known = False

    @property
    def is_far_enough(self) -> bool:
        """Whether it is complete, or has passed the reach of other pumps."""
        return self._next == 1 or self._in_a_row >= ENOUGH

    async def begin(self) -> None:
        """Start again after an attach, since unknown messages may have been deferred."""
        if not self._stays_known:
            self._next, self._in_a_row, self._took = 1, 0, 0.0
            self._schedule.due_at = 0.0
        self._stays_known = False
        await self.look_if_due(self._steering.clock())

    def stays_known(self) -> None:
        """Skip the next search: the link ended only because it was idle."""
        self._stays_known = True

    async def look_if_due(self, now: float) -> None:
        """Continue the search if one is due."""
        if now >= self._schedule.due_at:
            await self.look()

    async def look(self) -> None:
        """Continue the search after the last portion; a failure only sets `trouble`."""
        try:
            await self._portion()
        except WireError as error:
            self.trouble = f"cannot search for deferred messages: {self._steering.judge(error).reason}"
            self._schedule.failed(self._steering.clock())
        else:
            self.trouble = ""

    async def _portion(self) -> None:
        began = self._steering.clock()
        if self._next == 1:
            self._schedule.began()
        before = self._pump.known()
        seen: list[tuple[str, int]] = []
        try:
            while await self._page(before, seen) and self._steering.clock() - began < PORTION_SECONDS:
                pass
        finally:
            after = self._pump.known()
            self._pump.apply(DeferredFound([one for one in seen if one[1] not in after]))
            self._took += self._steering.clock() - began
        if self._next == 1:
            self._schedule.ended(self._steering.clock(), took=self._took)
            self._took = 0.0

    async def _page(self, before: set[int], seen: list[tuple[str, int]]) -> bool:
        """Peek once; return False at the queue's end."""
        peeked = await peek(self._wire, self._path, from_number=self._next, count=MESSAGES_PER_PEEK, timeout=MANAGED)
        self._steering.meter.searched()
        last = self._next
        for data in peeked:
            held = broker_properties(data)
            self._next = max(self._next, held.sequence_number + 1)
            if held.state == _DEFERRED:
                self._in_a_row = 0
                if held.sequence_number not in before:
                    seen.append((_destination(data), held.sequence_number))
            elif held.state == _ACTIVE:
                self._in_a_row += 1
        if self._next == last:  # nothing, or nothing with a number
            self._next, self._in_a_row = 1, 0
        return self._next != 1


def _destination(data: bytes) -> str:
    """Return a deferred message's destination; "" if it is unreadable."""
    try:
        return open_envelope(data).enclosed.path
    except EnvelopeError:
        return ""


PAUSE: Final = 1.0
"""Seconds between two checks of a destination, or a pump, without room."""


class DeferredReceiver:
    """Receives one pump's deferred messages again.

    trouble: the reason why none can be received, or "".
    """

    def __init__(
        self,
        steering: PairingRuntime,
        wire: ReconnectingConnection,
        delivery: AmqpDelivery,
        pump: AmqpPump,
        answers: PendingAnswers,
    ) -> None:
        self.trouble = ""
        self._steering = steering
        self._wire = wire
        self._delivery = delivery
        self._pump = pump
        self._path = pump.path
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._answers = answers

    def begin(self, now: float) -> None:
        """Start runs for destinations that accept messages and have deferred ones."""
        for key in self._pump.machine.recallable(now):
            if key not in self._runs:
                name = f"deferred messages of {self._path} for {key}"
                task = self._steering.tasks.start(self._run(key), name=name)
                if task is not None:
                    self._runs[key] = task

    def end(self) -> None:
        """Cancel all runs; messages that were requested still arrive."""
        for task in self._runs.values():
            task.cancel()
        self._runs.clear()

    async def _run(self, key: str) -> None:
        """Receive the deferred messages of a destination, oldest first, while it accepts them."""
        machine = self._pump.machine
        try:
            while self._pump.is_open:
                due = RecallDue(key, self._delivery.room(key), self._steering.clock())
                effects = machine.step(due)
                if not effects:
                    break
                for effect in effects:
                    if isinstance(effect, Recall):
                        await self._answers.wait_for(self._receive(effect))
                    else:
                        await self._delivery.wait_for_change(key, PAUSE)
        except WireError as error:
            self.trouble = f"cannot receive deferred messages: {self._steering.judge(error).reason}"
        else:
            self.trouble = ""
        finally:
            if self._runs.get(key) is asyncio.current_task():
                del self._runs[key]

    async def _receive(self, recall: Recall) -> None:
        missing, failed = set(recall.numbers), True
        self._steering.meter.receives += 1
        try:
            async for data, token in receive_again(self._wire, self._path, recall.numbers):
                missing.discard(broker_properties(data).sequence_number)
                self._pump.apply(self._pump.arrival(data, token))
            failed = False
        finally:
            now = self._steering.clock()
            self._pump.apply(RecallEnded(recall.key, recall.numbers, frozenset(missing), failed, now))
        self._steering.meter.receives += max(0, len(recall.numbers) - len(missing) - 1)


TICK: Final = 1.0
RATIONED_TICK: Final = 0.1
"""Seconds between two checks of a limited intake."""
CLOSING_SECONDS: Final = 2.0
"""Seconds for answers to messages in flight when the pump closes."""

_new: Final[Any] = tuple.__new__
"""Makes an event of the usual way at half the price."""


class AmqpPump(Pump[BacklogMessage]):
    """Moves one backlog queue's messages to their destinations.

    Args:
        wire: to the secondary namespace.
        options: as of `Pump`.

    is_open: whether it takes messages.
    """

    def __init__(
        self, steering: PairingRuntime, wire: ReconnectingConnection, delivery: AmqpDelivery, **options: Any
    ) -> None:
        super().__init__(steering, **options)
        self.is_open = False
        self._wire = wire
        self._delivery = delivery
        self._settlement = Settlement(steering, wire, self.path, self.machine.step)
        self.progress.unconfirmed = self._settlement.leaving
        self._scan = DeferredScan(steering, wire, self)
        self._deferred_receiver = DeferredReceiver(steering, wire, delivery, self, self._answers)
        self._locks_trouble = ""
        """The reason why locks cannot be renewed, or ""."""
        self._receiver: WireReceiver | None = None
        self._backoff = Backoff()
        self._elapsed = steering.policy.ttl_policy == "elapsed"
        self._executors: dict[type, Callable[[Any], None]] = {
            Complete: lambda effect: self._settlement.complete(effect.messages),
            Defer: lambda effect: self._settlement.defer(effect.message),
            DeadLetter: lambda effect: self._settlement.dead_letter(effect.message, effect.reason),
            Release: lambda effect: self._settlement.release(effect.message),
            Relock: lambda effect: effect.held.relock(effect.again),
            Publish: lambda effect: steering.publish(effect.events),
        }

    def apply(self, event: PumpEvent[BacklogMessage]) -> None:
        """Step the machine and perform its effects."""
        for effect in self.machine.step(event):
            if effect.__class__ is Deliver:  # most are
                if self.is_open:
                    self._delivery.give(*effect)
                else:  # requested before the stop
                    self.apply(MessagesWithdrawn([effect[0]], self._steering.clock()))
            else:
                self._executors[effect.__class__](effect)

    @property
    def is_idle(self) -> bool:
        return not self.machine.in_hand and not self._settlement.is_busy

    def known(self) -> set[int]:
        return self.machine.known() | self._settlement.numbers()

    # -- life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Move messages until cancelled; a failure ends a link, not the pump.

        Raises:
            WireUnavailableError: this kind of pump cannot work with these namespaces.
        """
        self._wire.after_read.append(self._replenish)
        try:
            while True:
                await self._while_paused()
                await self._once()
        finally:
            self._wire.after_read.remove(self._replenish)
            self._settlement.tell()
            self._release_unsent()

    async def _once(self) -> None:
        """Run one link's life, and the pause after a failure."""
        began = self._steering.clock()
        failure: Exception | None
        try:
            failure = await self._attached()
        except WireUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - after any error the pump starts again and reports it
            failure = error
        receiver, self._receiver, self.is_open = self._receiver, None, False
        if receiver is not None and receiver.is_up:
            receiver.drop(WireError(str(failure)))
        if failure is None:
            return
        lived = self._steering.clock() - began
        if lived >= HEALTHY:
            self._backoff.reset()
        if is_idle_detach(failure) and lived >= HEALTHY:
            self._scan.stays_known()
            return
        await self._pause_after(failure, self._backoff.next())

    async def _attached(self) -> WireError | None:
        """Attach, and work until the link is lost (the reason) or the syphon is paused (None)."""
        receiver = await self._wire.receiver(
            self.path,
            on_delivery=self._on_delivery,
            on_lost=self._on_lost,
            on_settled=self._settlement.on_settled,
            timeout=self._steering.policy.send_timeout,
        )
        self._steering.meter.attached()
        self._receiver = receiver
        await self._scan.begin()
        while not self._scan.is_far_enough and not self._scan.trouble and receiver.is_up:
            await self._renew()
            await self._scan.look()
        self.is_open = True
        self._replenish()
        while receiver.is_up:
            if self._delivery.unusable is not None:
                raise self._delivery.unusable
            if not self._steering.machine.may_pump(self.index):
                self._release_unsent()
                await receiver.detach()
                self._settlement.lost()  # unconfirmed settlements
                return None
            await self._do_upkeep()
            now = self._steering.clock()
            await self._steering.change(now + (RATIONED_TICK if self.machine.intake_left(now) < inf else TICK))
        return receiver.failure

    async def _do_upkeep(self) -> None:
        """Do the regular work: locks, deferred messages, searches, progress."""
        now = self._steering.clock()
        timeout = self._steering.policy.send_timeout
        if self._settlement.quiet(now) >= timeout:
            raise WireError(f"{self.path} confirmed no settlement within {timeout:g} s")
        self.apply(PumpWorks())
        await self._renew()
        await self._scan.look_if_due(now)
        self._deferred_receiver.begin(now)
        self._replenish()  # the limit may have grown without a read
        if now >= self._window_ends:
            self._steering.meter.waited()  # billed: each message, and a window without any
            self._window_ends = now + self._steering.policy.syphon_receive_window
        self._show_progress(self._deferred_receiver.trouble, self._locks_trouble, self._scan.trouble)

    async def close(self) -> None:
        """Wait briefly for what was requested and is in flight, settle it, and release the other locks."""
        await self._answers.finish()
        end = self._steering.clock() + CLOSING_SECONDS
        while self._wire.is_up and (left := end - self._steering.clock()) > 0:
            await self._settlement.finish(left)
            if not self._delivery.under_way(self) and not self._settlement.is_busy:
                break
            await asyncio.sleep(0.02)
        self.apply(MessagesWithdrawn(list(self.machine.messages()), self._steering.clock()))
        if self._receiver is not None:
            await self._receiver.detach()
        self._settlement.lost()  # unconfirmed settlements
        await self._settlement.finish(STOPPING_SECONDS)

    def _release_unsent(self) -> None:
        """Release unsent messages, so that the queue can deliver them elsewhere immediately."""
        self.is_open = False
        self._deferred_receiver.end()
        if self._receiver is not None and self._receiver.is_up:
            self._receiver.grant(0)
        self.apply(MessagesWithdrawn(self._delivery.withdraw(self), self._steering.clock()))

    # -- intake -------------------------------------------------------------------------------------------------------

    def _on_delivery(self, event: DeliveryReceived) -> None:
        receiver = self._receiver
        if receiver is None or event.link is not receiver.link:
            return
        if not self.is_open:  # in flight when the syphon was paused or the pump closed
            receiver.settle(event.delivery_id, RELEASED)
            return
        self._steering.meter.receives += 1
        self.apply(self.arrival(event.payload, event.tag, receiver, event.delivery_id))

    def arrival(
        self, data: bytes, token: UUID | bytes, receiver: WireReceiver | None = None, delivery_id: int = 0
    ) -> MessageArrived[BacklogMessage]:
        """Take a message out of its envelope; of an unreadable one only its number and id are known, and the fault.

        receiver, delivery_id: of a delivery; without them it was received by its number.
        """
        self._steering.meter.received_bytes += len(data)
        now = self._steering.clock()
        path, fault, payload = "", "", cast(Payload, b"")
        try:
            found = open_envelope(data)
            path, held, message_id = found.enclosed.path, found.held, found.message_id
            payload = restore_message(found, now_ms=int(now * 1000), elapsed=self._elapsed)
        except EnvelopeError as error:
            held, message_id, fault = broker_properties(data), read_message_id(data), str(error)
        number, until = held.sequence_number or -1 - delivery_id, held.locked_until_ms
        message = BacklogMessage(self, path, number, message_id, payload, token, until, now, receiver, delivery_id)
        arrived: MessageArrived[BacklogMessage] = _new(MessageArrived, (message, now, fault))
        return arrived

    def _replenish(self) -> None:
        """Tell of completions, and grant credit for the room in hand: after each read."""
        self._settlement.tell()
        receiver = self._receiver
        if not self.is_open or receiver is None or not receiver.is_up:
            return
        now = self._steering.clock()
        credit = self.machine.credit(receiver.credit, now)
        if credit is not None:
            if credit > receiver.credit:
                self._window_ends = now + self._steering.policy.syphon_receive_window
            receiver.grant(credit)

    def _on_lost(self, error: WireError) -> None:
        """Switch to lock tokens: locks outlive the link, so messages in hand continue."""
        self._settlement.lost()
        self._steering.changed()

    async def _renew(self) -> None:
        """Renew locks that end soon; drop unsent messages with lost locks, which come again by themselves."""
        now = self._steering.clock()
        ending = [message for message in self.machine.messages() if message.lock_ends - now < RENEWAL_SECONDS]
        if not ending:
            return
        try:
            async for message, until_ms in renew_each(self._wire, self.path, ending):
                message.lock_ends = lock_ends(until_ms, now)
        except WireError as error:
            self._locks_trouble = f"cannot renew locks: {self._steering.judge(error).reason}"
        else:
            self._locks_trouble = ""
        now = self._steering.clock()
        lost = {message.number for message in ending if message.lock_ends - now < EXPIRED_SECONDS}
        if not lost:
            return
        unsent = self._delivery.withdraw(self)
        self.apply(LocksLost([message for message in unsent if message.number in lost]))
        for message in unsent:
            if message.number not in lost:
                self._delivery.give(message, now)
