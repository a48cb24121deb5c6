"""The syphon's worker for one backlog queue (SPEC.md section 8), on the SDK.

A cycle moves deferred messages of available destinations first, in order, then new ones. A message is completed after
its destination accepted it, with the receipt announced in between. Other messages are deferred, never abandoned,
since a queue may have a delivery limit. The list need not survive: peeking finds deferred messages again.

`SdkDelivery` (sdk_delivery.py) knows destinations; this module knows the queue.
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
    format_deferred,
    leave_gone,
    record_dead_letter,
    record_moves,
    record_stop,
)
from paired_servicebus.pairing.syphon.sdk_delivery import DeliveryOutcome, Load, SdkDelivery

BATCH: Final = 100
RATIONED: Final = 0.1
"""Seconds between two checks of a rate limit that allows no message."""
SLICE: Final = 1.0
"""Seconds of one receive call, so that a pause or a healed destination is noticed; the link stays."""
BRINGING_BACK: Final = 10.0
"""Seconds for one destination's deferred messages before the queue has its turn."""
IN_VAIN: Final = 100
"""Messages in a row that other engines hold, after which the rest counts as theirs."""
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
"""Fate of application properties of these types in a message that the SDK receives and sends again. The
pump on our own AMQP (amqp_pump.py) preserves them all; a waiting queue reports it on its why-line."""


class SdkPump:
    """Moves one backlog queue's messages to their destinations."""

    def __init__(
        self,
        steering: PairingRuntime,
        client: ServiceBusClient,
        delivery: SdkDelivery,
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
        """Messages that were moved and are not completed."""
        self._steering = steering
        self._client = client
        self._remake = remake
        self._delivery = delivery
        self._in_hand: dict[int | None, ServiceBusReceivedMessage] = {}
        """Messages locked by this pump, by sequence number."""
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
        """Search the queue if it contains more messages than known."""
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
            self._left = receiver  # a cancelled pump has no time; `close` has
            raise
        except Exception as error:  # noqa: BLE001 - after any error the pump starts again and reports it
            failure: Exception | None = error
        else:
            failure = None
        self._in_hand.clear()
        self._leaving = 0
        await _close(receiver)
        if failure is not None:
            await self._failed(failure)

    async def close(self) -> None:
        """Release its messages and its link, after `run` has ended."""
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
        record_stop(steering, self.progress, self.index, judgement.reason, retry_in=pause, todo=todo)
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
            if not received:  # billed: each message, and a window without any
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
        """Deliver each destination's messages in order, one destination after the other."""
        for path, load in (await self._sorted(receiver, received)).items():
            # Deferred messages precede newer ones of their destination.
            if path in self._aside or not self._steering.machine.may_deliver(path, at=self._steering.clock()):
                self._steering.machine.pace.gave_back(len(load))
                await self._set_aside(receiver, path, load)
            else:
                await self._deliver(receiver, path, load)

    def _spelled(self, path: str) -> str:
        """Return a destination's first spelling: "Orders" and "orders" are one."""
        return self._spellings.setdefault(path.casefold(), path)

    async def _sorted(
        self, receiver: ServiceBusReceiver, received: Sequence[ServiceBusReceivedMessage]
    ) -> dict[str, list[Load]]:
        """Group messages by destination; unreadable and expired ones are dead-lettered with the reason."""
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
        """Return the envelope's content, with the time to live by the policy: in full, or less the backlog's time.

        Raises:
            EnvelopeError: it is unreadable, or nothing is left.
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
        """Deliver messages to their destination; defer the ones that it does not accept now."""
        async for outcome in self._delivery.deliver(path, load):
            await self._settle(receiver, path, outcome)

    async def _settle(self, receiver: ServiceBusReceiver, path: str, outcome: DeliveryOutcome) -> None:
        if outcome.accepted:
            with self._steering.together():
                record_moves(
                    self._steering, self.progress, self.index, [(path, _id(one.message)) for one in outcome.load]
                )
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
        record_dead_letter(self._steering, self.progress, path, self.index, _id(message), reason)
        await self._settled(
            receiver.dead_letter_message(message, reason="Undeliverable", error_description=reason), message
        )

    async def _settled(self, settlement: object, message: ServiceBusReceivedMessage) -> bool:
        """Settle one message. False for a lost lock: it comes again, which a stable id makes harmless."""
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
        """Release the locks in hand when the pairing ends, and only then.

        A foreign queue may have a delivery limit, and each release counts as a delivery.
        """
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
        """Deliver a destination's deferred messages, oldest first, for some seconds while it accepts them.

        A portion is received completely or not at all: after a missing or locked one, messages are requested one by
        one, then in growing portions.
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
                else:  # another syphon has it, alive or dead: the next search finds out
                    in_vain += 1
                    del waiting[: len(waiting) if in_vain == IN_VAIN else 1]
                    self._rescan.missed(self._steering.clock())
        finally:
            if waiting:  # also after another failure: all later ones wait behind it
                self._aside.setdefault(path, []).extend(waiting)

    async def _move_again(self, receiver: ServiceBusReceiver, received: Sequence[ServiceBusReceivedMessage]) -> None:
        self._take(received)
        self._steering.machine.pace.took(len(received))
        for path, load in (await self._sorted(receiver, received)).items():
            await self._deliver(receiver, path, load)

    async def _received_again(
        self, receiver: ServiceBusReceiver, numbers: list[int]
    ) -> list[ServiceBusReceivedMessage]:
        """Receive deferred messages by number; [] if one is missing, or locked by another engine."""
        self._steering.meter.receives += 1
        asking = receiver.receive_deferred_messages(numbers, timeout=outcomes.MANAGED)
        try:
            found = await bounded(asking, outcomes.MANAGED + GRACE, "receiving deferred messages")
        except MessageNotFoundError:
            return []
        self._steering.meter.receives += len(found) - 1
        return found

    async def _find_set_aside(self, receiver: ServiceBusReceiver) -> None:
        """Peek through the queue for deferred messages: ours from before a crash, or another syphon's."""
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
            if not peeked:  # a shorter reply is not the end: its size is limited
                break
        self._aside = known

    def _said(self) -> str:
        return format_deferred(self.progress.set_aside, self._aside) if self._aside else "receiving"


def _path(message: ServiceBusReceivedMessage) -> str:
    """Return a deferred message's destination; "" if it is unreadable."""
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
        return  # the SDK fails to close a broken link; its locks end by themselves
