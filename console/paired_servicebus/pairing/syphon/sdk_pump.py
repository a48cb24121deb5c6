"""The syphon's worker for one backlog queue (SPEC.md section 8), on the SDK.

A cycle: what was set aside for a destination that is available again goes first, in its order; then what the queue
gives. A message is completed only after its destination accepted it, with the receipt announced in between. What
cannot go now is set aside by deferring it: not abandoned, since a queue may have a delivery limit. No list of it has
to survive: peeking finds deferred messages again.

`SdkDelivery` (sdk_delivery.py) knows destinations; this file knows the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from azure.servicebus import ServiceBusMessageState, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import MessageLockLostError, MessageNotFoundError, ServiceBusError

from paired_servicebus.core.errors import EnvelopeError
from paired_servicebus.core.model.envelope import EnvelopeProperties, remaining
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.pairing.runtime.deadlines import CLOSING, GRACE, bounded
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.sdk_messages import destination_of, text
from paired_servicebus.pairing.syphon import outcomes
from paired_servicebus.pairing.syphon.outcomes import (
    PumpProgress,
    Remake,
    Rescan,
    buried,
    holding,
    leave_gone,
    moved,
    stopped,
)
from paired_servicebus.pairing.syphon.sdk_delivery import DeliveryOutcome, Load, SdkDelivery

BATCH: Final = 100
RATIONED: Final = 0.1
"""Seconds until a pump looks again that may move nothing just now."""
SLICE: Final = 1.0
"""Seconds one receive call waits, so that a pause or a healed destination is noticed; the link stays."""
BRINGING_BACK: Final = 10.0
"""Seconds in which what was set aside for one destination is moved; then the queue has its turn."""
IN_VAIN: Final = 100
"""Messages in a row that others hold, after which the rest is taken to be theirs as well."""
LOST_IN_THE_SDK: Final = {
    **dict.fromkeys(("ubyte", "ushort", "uint", "ulong", "byte", "short", "long"), "becomes int"),
    "float": "becomes double",
    "symbol": "becomes string",
    "binary": "becomes string",
    "timespan": "loses its descriptor",
    "described": "loses its descriptor",
    "timestamp": "makes the send raise",
    "char": "cannot be read: the queue waits behind it",
    "decimal32": "cannot be read: the queue waits behind it",
    "decimal64": "cannot be read: the queue waits behind it",
    "decimal128": "cannot be read: the queue waits behind it",
}
"""What becomes of application properties of these types in a message that the SDK receives and sends again. The pump on
our own AMQP (amqp_pump.py) carries all of them; a queue that waits says so on its why-line."""


class SdkPump:
    """Moves what lies in one backlog queue to where it belongs."""

    def __init__(
        self,
        steering: PairingRuntime,
        client: ServiceBusClient,
        courier: SdkDelivery,
        *,
        index: int,
        path: str,
        progress: PumpProgress | None = None,
        remake: Remake = leave_gone,
    ) -> None:
        self.index = index
        self.path = path
        self.progress = progress or PumpProgress()
        self.progress.unconfirmed = lambda: self._leaving
        self._leaving = 0
        """Messages that were moved and are not completed yet."""
        self._steering = steering
        self._client = client
        self._remake = remake
        self._courier = courier
        self._in_hand: dict[int | None, ServiceBusReceivedMessage] = {}
        """Messages whose locks are ours, by sequence number."""
        self._left: ServiceBusReceiver | None = None
        self._spellings: dict[str, str] = {}
        self._aside: dict[str, list[int]] = {}
        """Sequence numbers of deferred messages, by destination."""
        self._rescan = Rescan()
        self._window_ends = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing in hand."""
        return not self._in_hand

    def holds(self, messages: int) -> None:
        """As Worker says."""
        if messages > sum(map(len, self._aside.values())) + len(self._in_hand):
            self._rescan.unseen(self._steering.clock())

    async def run(self) -> None:
        """Cycle until cancelled; a failure ends a cycle, not the pump."""
        while True:
            await self._while_paused()
            await self._cycles(self._client.get_queue_receiver(self.path))

    async def _cycles(self, receiver: ServiceBusReceiver) -> None:
        try:
            await bounded(receiver.__aenter__(), self._steering.policy.send_timeout + CLOSING, "opening")
            self._steering.meter.attached()
            self._rescan = Rescan()
            while self._steering.machine.may_pump(self.index):
                await self._cycle(receiver)
        except asyncio.CancelledError:
            self._left = receiver  # what ends a pump is impatient; `close` has time
            raise
        except Exception as error:  # noqa: BLE001 - whatever the SDK raised, the pump starts again and says why
            failure: Exception | None = error
        else:
            failure = None
        self._in_hand.clear()
        self._leaving = 0
        await _close(receiver)
        if failure is not None:
            await self._failed(failure)

    async def close(self) -> None:
        """After `run` was ended: let go of what it held, and of the queue."""
        receiver, self._left = self._left, None
        if receiver is not None:
            await self._let_go(receiver)
            await _close(receiver)

    async def _while_paused(self) -> None:
        while not self._steering.machine.may_pump(self.index):
            self.progress.text = "paused"
            await self._steering.change(self._steering.clock() + 60.0)

    async def _failed(self, error: BaseException) -> None:
        steering = self._steering
        pause = steering.policy.syphon_retry_interval
        judgement = steering.judge(error)
        todo = await self._remake() if judgement.kind is FailureKind.NOT_FOUND else ""
        stopped(steering, self.progress, self.index, judgement.reason, retry_in=pause, todo=todo)
        await asyncio.sleep(pause)

    async def _cycle(self, receiver: ServiceBusReceiver) -> None:
        now = self._steering.clock()
        if now >= self._rescan.due_at:
            self._rescan.began()
            await self._find_set_aside(receiver)
            self._rescan.ended(self._steering.clock(), took=self._steering.clock() - now)
        for path in [path for path in self._aside if self._steering.machine.may_deliver(path, at=now)]:
            await self._move_set_aside(receiver, path)
        room = int(min(BATCH, self._steering.machine.pace.left(self._steering.clock())))
        if room < 1:
            await asyncio.sleep(RATIONED)
            return
        received = await bounded(
            receiver.receive_messages(room, max_wait_time=SLICE),
            SLICE + outcomes.MANAGED,
            f"receiving from {self.path}",
        )
        self.progress.failing_since = None
        if received or now >= self._window_ends:
            self._window_ends = now + self._steering.policy.syphon_receive_window
            if not received:  # what is billed: each message, and a window without any
                self._steering.meter.waited()
        if received:
            self._steering.meter.receives += len(received)
            self._take(received)
            self._steering.machine.pace.took(len(received))
            await self._move(receiver, received)
        self.progress.set_aside = sum(map(len, self._aside.values()))
        self.progress.text = self._said()

    # -- moving -----------------------------------------------------------------------------------------------

    async def _move(self, receiver: ServiceBusReceiver, received: Sequence[ServiceBusReceivedMessage]) -> None:
        """Each destination's messages in their order, one destination after the other."""
        for path, load in (await self._sorted(receiver, received)).items():
            # What was set aside goes before newer messages of its destination.
            if path in self._aside or not self._steering.machine.may_deliver(path, at=self._steering.clock()):
                self._steering.machine.pace.gave_back(len(load))
                await self._set_aside(receiver, path, load)
            else:
                await self._deliver(receiver, path, load)

    def _spelled(self, path: str) -> str:
        """A destination's path as it was first met: "Orders" and "orders" are one."""
        return self._spellings.setdefault(path.casefold(), path)

    async def _sorted(
        self, receiver: ServiceBusReceiver, received: Sequence[ServiceBusReceivedMessage]
    ) -> dict[str, list[Load]]:
        """Messages by destination; those without a readable one, or used up, are dead-lettered with the reason."""
        loads: dict[str, list[Load]] = {}
        for message in received:
            try:
                enclosed = self._opened(message)
            except EnvelopeError as error:
                await self._dead_letter(receiver, message, "", str(error))
            else:
                loads.setdefault(self._spelled(enclosed.path), []).append(Load(message, enclosed))
        return loads

    def _opened(self, message: ServiceBusReceivedMessage) -> EnvelopeProperties:
        """The envelope's contents, the time to live as the policy has it: in full, or what the backlog left of it.

        Raises:
            EnvelopeError: it cannot be read, or nothing is left.
        """
        enclosed = destination_of(message.raw_amqp_message)
        refusal = self._steering.machine.refusal(enclosed.path)
        if refusal:
            raise EnvelopeError(refusal)
        parked_at = message.enqueued_time_utc
        if self._steering.policy.ttl_policy == "restart" or enclosed.time_to_live is None or parked_at is None:
            return enclosed
        left = remaining(enclosed.time_to_live, parked_for=self._steering.clock() - parked_at.timestamp())
        if left is None:
            raise EnvelopeError(f"expired: its time to live of {enclosed.time_to_live} passed in the backlog")
        return replace(enclosed, time_to_live=left)

    async def _deliver(self, receiver: ServiceBusReceiver, path: str, load: Sequence[Load]) -> None:
        """Give a load to its destination; what it does not take now is set aside."""
        async for outcome in self._courier.deliver(path, load):
            await self._settle(receiver, path, outcome)

    async def _settle(self, receiver: ServiceBusReceiver, path: str, outcome: DeliveryOutcome) -> None:
        if outcome.accepted:
            with self._steering.together():
                moved(self._steering, self.progress, self.index, [(path, _id(one.message)) for one in outcome.load])
            self._leaving = len(outcome.load)
            for one in outcome.load:
                if not await self._settled(receiver.complete_message(one.message), one.message):
                    self.progress.repeated += 1
                self._leaving -= 1
        elif outcome.undeliverable:
            for one in outcome.load:
                await self._dead_letter(receiver, one.message, path, outcome.reason)
        else:
            await self._set_aside(receiver, path, outcome.load)

    async def _dead_letter(
        self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage, path: str, reason: str
    ) -> None:
        buried(self._steering, self.progress, path, self.index, _id(message), reason)
        await self._settled(
            receiver.dead_letter_message(message, reason="Undeliverable", error_description=reason), message
        )

    async def _settled(self, settlement: object, message: ServiceBusReceivedMessage) -> bool:
        """One settlement; False for a lock that is lost: the message comes again, which a stable id makes harmless."""
        self._steering.meter.settlements += 1
        try:
            await bounded(settlement, outcomes.MANAGED, f"settling message {_id(message)}")  # type: ignore[arg-type]
        except MessageLockLostError:
            return False
        finally:
            self._in_hand.pop(message.sequence_number, None)
        return True

    def _take(self, received: Sequence[ServiceBusReceivedMessage]) -> None:
        self._in_hand.update((message.sequence_number, message) for message in received)

    async def _let_go(self, receiver: ServiceBusReceiver) -> None:
        """The pairing ends: locks in hand are released, not left to end. Never otherwise: a foreign queue may have a
        delivery limit, and each release counts as a delivery."""
        try:
            async with asyncio.timeout(CLOSING):
                for message in list(self._in_hand.values()):
                    await receiver.abandon_message(message)
        except (ServiceBusError, OSError, TimeoutError, ValueError, AttributeError):
            return  # the locks end by themselves

    # -- set aside --------------------------------------------------------------------------------------------

    async def _set_aside(self, receiver: ServiceBusReceiver, path: str, load: Sequence[Load]) -> None:
        for one in load:
            number = one.message.sequence_number
            await self._settled(receiver.defer_message(one.message), one.message)
            if number is not None:
                self._aside.setdefault(path, []).append(number)

    async def _move_set_aside(self, receiver: ServiceBusReceiver, path: str) -> None:
        """Deliver what was set aside for a destination, oldest first, as long as it takes them, and for some seconds.

        All of a portion are received, or none: one that is gone or locked makes the next be asked for one by one, and
        then by ever more at once.
        """
        waiting = sorted(self._aside.pop(path))
        portion, in_vain = BATCH, 0
        end = self._steering.clock() + BRINGING_BACK
        try:
            while waiting and path not in self._aside and self._steering.clock() < end:
                room = int(min(portion, self._steering.machine.pace.left(self._steering.clock())))
                if room < 1:
                    return
                portion = room
                received = await self._received_again(receiver, waiting[:portion])
                if received:
                    del waiting[:portion]
                    portion, in_vain = min(BATCH, 2 * portion), 0
                    await self._move_again(receiver, received)
                elif min(portion, len(waiting)) > 1:
                    portion = 1
                else:  # another syphon has it, living or dead: the next search tells
                    in_vain += 1
                    del waiting[: len(waiting) if in_vain == IN_VAIN else 1]
                    self._rescan.missed(self._steering.clock())
        finally:
            if waiting:  # also where it failed again: everything later waits behind it
                self._aside.setdefault(path, []).extend(waiting)

    async def _move_again(self, receiver: ServiceBusReceiver, received: Sequence[ServiceBusReceivedMessage]) -> None:
        self._take(received)
        self._steering.machine.pace.took(len(received))
        for path, load in (await self._sorted(receiver, received)).items():
            await self._deliver(receiver, path, load)

    async def _received_again(
        self, receiver: ServiceBusReceiver, numbers: list[int]
    ) -> list[ServiceBusReceivedMessage]:
        """Deferred messages by number; none where one of them is gone, or locked by somebody else."""
        self._steering.meter.receives += 1
        asking = receiver.receive_deferred_messages(numbers, timeout=outcomes.MANAGED)
        try:
            found = await bounded(asking, outcomes.MANAGED + GRACE, "receiving deferred messages")
        except MessageNotFoundError:
            return []
        self._steering.meter.receives += len(found) - 1
        return found

    async def _find_set_aside(self, receiver: ServiceBusReceiver) -> None:
        """Peek through the queue for deferred messages, ours from before a crash or another syphon's."""
        known: dict[str, list[int]] = {}
        number = 1
        while True:
            peeked = await bounded(
                receiver.peek_messages(BATCH, sequence_number=number), outcomes.MANAGED, f"peeking into {self.path}"
            )
            self._steering.meter.searched()
            for message in peeked:
                number = max(number, (message.sequence_number or 0) + 1)
                if message.state is ServiceBusMessageState.DEFERRED and message.sequence_number is not None:
                    known.setdefault(self._spelled(_path(message)), []).append(message.sequence_number)
            if not peeked:  # fewer than asked for are no end: a reply has a size
                break
        self._aside = known

    def _said(self) -> str:
        return holding(self.progress.set_aside, self._aside) if self._aside else "receiving"


def _path(message: ServiceBusReceivedMessage) -> str:
    """A deferred message's destination; "" where it has none that can be read."""
    try:
        return destination_of(message.raw_amqp_message).path
    except EnvelopeError:
        return ""


def _id(message: ServiceBusReceivedMessage) -> str:
    return text(message.message_id) if message.message_id is not None else ""


async def _close(receiver: ServiceBusReceiver) -> None:
    try:
        await bounded(receiver.close(), CLOSING, "closing a receiver")
    except (ServiceBusError, OSError, TimeoutError, ValueError, AttributeError):
        return  # the SDK fails to close what is broken already; its locks end by themselves
