"""The pump of one backlog queue on the SDK: the fallback, until a namespace of Azure has run ours (SPEC.md section 8).

An adapter of the machine that decides (paired_servicebus.core.pump.pump_machine), one step after another: a cycle moves
deferred messages of available destinations first, then new ones.

`SdkDelivery` sends, with one link and one try for each destination. It gets messages of one destination, in order, and
yields what happened to each run of them; the machine decides what follows, and whether the destination may be tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, Final

from azure.servicebus import ServiceBusMessageState, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import MessageLockLostError, MessageNotFoundError

from paired_servicebus.core.errors import EnvelopeError
from paired_servicebus.core.model.envelope import EnvelopeProperties
from paired_servicebus.core.model.verdict import Judgement
from paired_servicebus.core.pump import pump_events
from paired_servicebus.core.pump.dead_letter_rules import is_messages_fault, time_left
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.runtime import tracing
from paired_servicebus.pairing.runtime.deadlines import CLOSING, GRACE, bounded
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.sdk_messages import (
    Sendable,
    body_bytes,
    context_of,
    destination_of,
    packed,
    text,
    unpark,
)
from paired_servicebus.pairing.sending.sender_link import BROKEN, SdkSenderLink, close_link
from paired_servicebus.pairing.syphon.amqp_delivery import MANAGED
from paired_servicebus.pairing.syphon.amqp_pump import STOPPING_SECONDS, Pump


class SdkBacklogMessage(pump_events.PumpMessage):
    """A backlog message with its envelope's content; None: it is unreadable."""

    __slots__ = ("enclosed", "received")

    def __init__(
        self,
        received: ServiceBusReceivedMessage,
        enclosed: EnvelopeProperties | None,
        *,
        is_recalled: bool,
    ) -> None:
        path = enclosed.path if enclosed is not None else ""
        message_id = text(received.message_id) if received.message_id is not None else ""
        number = received.sequence_number or -id(received)
        super().__init__(path, path.casefold(), number, message_id, 0, 0.0, is_recalled=is_recalled)
        self.received = received
        self.enclosed = enclosed


class SdkDelivery:
    """Delivers to the primary namespace for all pumps of one syphon."""

    def __init__(self, steering: PairingRuntime, primary: ServiceBusClient) -> None:
        self._steering = steering
        self._primary = primary
        self._links: dict[str, SdkSenderLink] = {}

    async def deliver(
        self, path: str, load: Sequence[SdkBacklogMessage]
    ) -> AsyncIterator[pump_events.PumpEvent[SdkBacklogMessage]]:
        """Send the messages in order, in as few batches as possible, until the destination fails."""
        link = self._link(path)
        messages: list[Sendable] = [
            unpark(one.received.raw_amqp_message, one.enclosed) for one in load if one.enclosed is not None
        ]
        done = 0
        for pack in packed(messages, link.limit()):
            async for event in self._deliver_pack(link, path, pack, load[done : done + len(pack)]):
                yield event
                if isinstance(event, pump_events.DeliveryWithheld):  # the rest of the load waits with it
                    yield pump_events.DeliveryWithheld(load[done + len(pack) :], self._steering.clock())
                    return
            done += len(pack)

    async def _deliver_pack(
        self, link: SdkSenderLink, path: str, pack: list[Sendable], part: Sequence[SdkBacklogMessage]
    ) -> AsyncIterator[pump_events.PumpEvent[SdkBacklogMessage]]:
        """Send one batch. One that is refused for one message, or for its mixture, is sent message by message."""
        tries = [(pack, part)]
        while tries:
            messages, tried = tries.pop(0)
            waiting = [*tried, *(one for _, later in tries for one in later)]
            if not self._steering.machine.may_deliver(path, at=self._steering.clock()):  # another pump failed there
                yield pump_events.DeliveryWithheld(waiting, self._steering.clock())
                return
            failure = await self._try(link, messages, tried)
            now, alone = self._steering.clock(), len(tried) == 1
            if failure is None:
                yield pump_events.MessagesAccepted(tried, now)
            elif is_messages_fault(failure.kind, alone=True) and not alone:
                tries = [([message], [one]) for message, one in zip(messages, tried, strict=True)]
            else:
                yield pump_events.DeliveryFailed(path, tried, failure, now, alone=alone)
                if not is_messages_fault(failure.kind, alone=alone):
                    yield pump_events.DeliveryWithheld(waiting[len(tried) :], now)
                    return

    async def close(self) -> None:
        """Close every link."""
        for link in self._links.values():
            await link.close()

    async def _try(
        self, link: SdkSenderLink, pack: list[Sendable], tried: Sequence[SdkBacklogMessage]
    ) -> Judgement | None:
        self._steering.meter.moves += len(pack)
        size = sum(map(body_bytes, pack))
        self._steering.meter.moved_bytes += size
        self._steering.meter.received_bytes += size
        for one in tried:
            one.sent_at = self._steering.clock()
        try:
            with tracing.send_span(link.host, link.path, map(context_of, pack)):
                await link.send(pack, self._steering.policy.send_timeout)
        except Exception as error:  # noqa: BLE001 - after any error nothing is completed
            return self._steering.judge(error)
        return None

    def _link(self, path: str) -> SdkSenderLink:
        key = path.casefold()
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = SdkSenderLink(self._primary, path, self._steering.tasks, retry=False)
        return link


BATCH: Final = 100
RATIONED: Final = 0.1
"""Seconds between two checks of a rate limit that allows no message."""
SLICE: Final = 1.0
"""Seconds of one receive call, so that a pause or a healed destination is noticed; the link stays."""
BRINGING_BACK: Final = 10.0
"""Seconds for one destination's deferred messages before the queue has its turn."""


class SdkPump(Pump[SdkBacklogMessage]):
    """Moves one backlog queue's messages to their destinations. options: as of `Pump`."""

    def __init__(
        self, steering: PairingRuntime, client: ServiceBusClient, delivery: SdkDelivery, **options: Any
    ) -> None:
        super().__init__(steering, **options)
        self.progress.unconfirmed = lambda: self._leaving
        self._leaving = 0
        """Messages that were moved and are not completed."""
        self._client = client
        self._delivery = delivery
        self._left: ServiceBusReceiver | None = None
        """The receiver of a stopped pump, whose cycle may not have ended."""

    @property
    def is_idle(self) -> bool:
        return not self.machine.in_hand and not self._leaving

    async def run(self) -> None:
        """Cycle until cancelled; a failure ends a cycle, not the pump."""
        while True:
            await self._while_paused()
            receiver = self._client.get_queue_receiver(self.path)
            sdk_internals.raise_at_once(receiver, MessageNotFoundError)  # an answer, which a retry would not change
            await self._cycles(receiver)

    async def _cycles(self, receiver: ServiceBusReceiver) -> None:
        self.machine = self._new_machine()  # a search finds what the last link left behind
        try:
            await bounded(receiver.__aenter__(), self._steering.policy.send_timeout + CLOSING, "opening")
            self._steering.meter.attached()
            while self._steering.machine.may_pump(self.index):
                await self._answers.wait_for(self._cycle(receiver))
        except asyncio.CancelledError:
            self._left = receiver  # a cancelled pump has no time; `close` has
            raise
        except Exception as error:  # noqa: BLE001 - after any error the pump starts again and reports it
            failure: Exception | None = error
        else:
            failure = None
        self._leaving = 0
        await close_link(receiver)
        if failure is not None:
            await self._pause_after(failure)

    async def close(self) -> None:
        """Release its messages and its link, after `run` has ended."""
        receiver = self._left
        if receiver is not None:
            await self._answers.finish()
            await self._let_go()
            await close_link(receiver)

    async def _cycle(self, receiver: ServiceBusReceiver) -> None:
        machine, now = self.machine, self._steering.clock()
        if now >= machine.search.due_at:
            machine.search.began()
            await self._search(receiver)
            machine.search.ended(self._steering.clock(), took=self._steering.clock() - now)
        for key in machine.recallable(now):
            await self._recall(receiver, key)
        room = min(BATCH, machine.room(self._steering.clock()))
        if room < 1:
            await asyncio.sleep(RATIONED)
            return
        received = await bounded(
            receiver.receive_messages(room, max_wait_time=SLICE), SLICE + MANAGED, f"receiving from {self.path}"
        )
        machine.step(pump_events.PumpWorks())
        if received or now >= self._window_ends:
            self._window_ends = now + self._steering.policy.syphon_receive_window
            if not received:  # billed: each message, and a window without any
                self._steering.meter.waited()
        self._steering.meter.receives += len(received)
        await self._take(receiver, received)
        self._show_progress()

    # -- moving -----------------------------------------------------------------------------------------------

    async def _take(
        self, receiver: ServiceBusReceiver, received: Sequence[ServiceBusReceivedMessage], *, is_recalled: bool = False
    ) -> None:
        """Pass messages to the machine, then deliver each destination's in order, one destination after the other."""
        loads: dict[str, list[SdkBacklogMessage]] = {}
        for message in received:
            for effect in self.machine.step(self._arrival(message, is_recalled=is_recalled)):
                if isinstance(effect, pump_events.Deliver):
                    loads.setdefault(effect.message.key, []).append(effect.message)
                else:
                    await self._perform(receiver, effect)
        for load in loads.values():
            if self._left is not None:  # `close` releases what was requested before the stop
                return
            async for event in self._delivery.deliver(load[0].path, load):
                for effect in self.machine.step(event):
                    await self._perform(receiver, effect)

    def _arrival(
        self, received: ServiceBusReceivedMessage, *, is_recalled: bool
    ) -> pump_events.MessageArrived[SdkBacklogMessage]:
        fault, enclosed = "", None
        try:
            enclosed = destination_of(received.raw_amqp_message)
            if received.enqueued_time_utc is not None:  # the time to live goes by the policy
                at, now = received.enqueued_time_utc.timestamp(), self._steering.clock()
                elapsed = self._steering.policy.ttl_policy == "elapsed"
                enclosed = replace(enclosed, time_to_live=time_left(enclosed, parked_at=at, now=now, elapsed=elapsed))
        except EnvelopeError as error:
            fault = str(error)
        message = SdkBacklogMessage(received, enclosed, is_recalled=is_recalled)
        return pump_events.MessageArrived(message, self._steering.clock(), fault)

    async def _perform(self, receiver: ServiceBusReceiver, effect: pump_events.PumpEffect[SdkBacklogMessage]) -> None:
        match effect:
            case pump_events.Publish(events):
                self._steering.publish(events)
            case pump_events.Complete(messages):
                self._leaving = len(messages)
                for message in messages:
                    await self._settle(
                        message, pump_events.Outcome.COMPLETED, receiver.complete_message(message.received)
                    )
                    self._leaving -= 1
            case pump_events.Defer(message):
                await self._settle(message, pump_events.Outcome.DEFERRED, receiver.defer_message(message.received))
            case pump_events.DeadLetter(message, reason):
                settlement = receiver.dead_letter_message(
                    message.received, reason="Undeliverable", error_description=reason
                )
                await self._settle(message, pump_events.Outcome.DEAD_LETTERED, settlement)
            case pump_events.Release(message):
                await self._settle(message, pump_events.Outcome.RELEASED, receiver.abandon_message(message.received))

    async def _settle(self, message: SdkBacklogMessage, outcome: pump_events.Outcome, settlement: object) -> None:
        """Settle one message. One with a lost lock comes again, which a stable id makes harmless."""
        self._steering.meter.settlements += 1
        try:
            await bounded(settlement, MANAGED, f"settling message {message.message_id}")  # type: ignore[arg-type]
            is_done = True
        except MessageLockLostError:
            is_done = False
        self.machine.step(pump_events.MessagesSettled([message], outcome, is_done))

    async def _let_go(self) -> None:
        """Release the messages in hand when the pump ends, and only then; those that were deferred are deferred again.

        A foreign queue may have a delivery limit, and each release counts as a delivery. A link of its own settles them
        by lock token, since the link that they came on may be lost.
        """
        effects = self.machine.step(
            pump_events.MessagesWithdrawn(list(self.machine.messages()), self._steering.clock())
        )
        if not effects:
            return
        link = self._client.get_queue_receiver(self.path)
        try:
            async with asyncio.timeout(STOPPING_SECONDS):
                for kind, status in ((pump_events.Release, "abandoned"), (pump_events.Defer, "defered")):
                    tokens = [one.message.received.lock_token for one in effects if isinstance(one, kind)]
                    await _settle_by_token(link, status, tokens)
        except BROKEN:
            return  # the locks end by themselves
        finally:
            await close_link(link)

    # -- deferred messages ------------------------------------------------------------------------------------

    async def _recall(self, receiver: ServiceBusReceiver, key: str) -> None:
        """Deliver a destination's deferred messages, oldest first, for some seconds while it accepts them.

        A portion is received completely or not at all: after a missing or locked one, messages are requested one by
        one, then in growing portions.
        """
        portion, end = BATCH, self._steering.clock() + BRINGING_BACK
        while self._steering.clock() < end and self._left is None:
            effects = self.machine.step(pump_events.RecallDue(key, portion, self._steering.clock()))
            recall = next((effect for effect in effects if isinstance(effect, pump_events.Recall)), None)
            if recall is None:
                return
            received = await self._receive_again(receiver, recall.numbers)
            portion = min(BATCH, 2 * len(recall.numbers)) if received else 1
            missing = frozenset[int]() if received else frozenset(recall.numbers)
            is_unclear = not received and len(recall.numbers) > 1
            await self._take(receiver, received, is_recalled=True)
            self.machine.step(pump_events.RecallEnded(key, recall.numbers, missing, is_unclear, self._steering.clock()))

    async def _receive_again(
        self, receiver: ServiceBusReceiver, numbers: Sequence[int]
    ) -> list[ServiceBusReceivedMessage]:
        """Receive deferred messages by number; [] if one is missing, or locked by another engine."""
        self._steering.meter.receives += 1
        asking = receiver.receive_deferred_messages(list(numbers), timeout=MANAGED)
        try:
            found = await bounded(asking, MANAGED + GRACE, "receiving deferred messages")
        except MessageNotFoundError:
            return []
        self._steering.meter.receives += len(found) - 1
        return found

    async def _search(self, receiver: ServiceBusReceiver) -> None:
        """Peek through the queue for deferred messages: ours from before a crash, or another syphon's."""
        before, found, number = self.machine.known(), list[tuple[str, int]](), 1
        while True:
            peeked = await bounded(
                receiver.peek_messages(BATCH, sequence_number=number), MANAGED, f"peeking into {self.path}"
            )
            self._steering.meter.searched()
            for message in peeked:
                number = max(number, (message.sequence_number or 0) + 1)
                is_new = message.sequence_number is not None and message.sequence_number not in before
                if is_new and message.state is ServiceBusMessageState.DEFERRED:
                    found.append((_path(message), message.sequence_number or 0))
            if not peeked:  # a shorter reply is not the end: its size is limited
                break
        self.machine.step(pump_events.DeferredFound(found))


def _path(message: ServiceBusReceivedMessage) -> str:
    """Return a deferred message's destination; "" if it is unreadable."""
    try:
        return destination_of(message.raw_amqp_message).path
    except EnvelopeError:
        return ""


async def _settle_by_token(link: ServiceBusReceiver, status: str, tokens: list[Any]) -> None:
    """Settle messages together, or one by one if a lock among them has ended."""
    try:
        if tokens:
            await sdk_internals.settle_by_token(link, status, tokens)
    except MessageLockLostError:
        half = len(tokens) // 2
        for part in (tokens[:half], tokens[half:]) if half else ():
            await _settle_by_token(link, status, part)
