"""The syphon's worker for one backlog queue (SPEC.md section 8), on our own AMQP: fast, and bit for bit.

Messages arrive with peek-lock while there is room in hand, by number and by bytes. Each is taken out of its envelope
(envelope_codec.py) and delivered; after the acceptance its receipt is announced, then it is completed. Other messages
are deferred, never abandoned, since a queue may have a delivery limit, and received again by number in large portions.

This module knows the messages in hand. `Settlement` settles them, `MessageLocks` renews their locks, `AmqpDelivery`
knows destinations. `DeferredByDestination` lists deferred messages, `DeferredScan` finds them and `DeferredReceiver`
receives them again.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from math import inf
from typing import Final
from uuid import UUID

from paired_servicebus.core.errors import EnvelopeError, WireError, WireUnavailableError
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.pairing.amqp_client import Backoff, ReconnectingConnection, WireReceiver, is_idle_detach
from paired_servicebus.pairing.amqp_client.reconnecting import HEALTHY
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon import outcomes
from paired_servicebus.pairing.syphon.amqp_delivery import AmqpDelivery
from paired_servicebus.pairing.syphon.backlog_message import BacklogMessage
from paired_servicebus.pairing.syphon.deferred_messages import DeferredByDestination
from paired_servicebus.pairing.syphon.deferred_receiver import DeferredReceiver
from paired_servicebus.pairing.syphon.deferred_scan import DeferredScan
from paired_servicebus.pairing.syphon.envelope_codec import (
    OpenedEnvelope,
    broker_properties,
    open_envelope,
    read_message_id,
    restore_message,
)
from paired_servicebus.pairing.syphon.intake_limit import IntakeLimit, UnlimitedIntake
from paired_servicebus.pairing.syphon.message_locks import MessageLocks, lock_ends
from paired_servicebus.pairing.syphon.outcomes import PumpProgress, Remake, leave_gone
from paired_servicebus.pairing.syphon.settlement import DEFERRED, Settlement
from servicebus_amqp.encoding.messaging_types import RELEASED
from servicebus_amqp.protocol.link_sender import Payload
from servicebus_amqp.protocol.protocol_events import DeliveryReceived

WINDOW: Final = 5000
"""Messages in hand: received and not settled."""
CREDIT: Final = 2500
"""Messages in flight from the queue, at most."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of messages in hand and in flight from the queue, by their foreseen size."""
FIRST_SIZE: Final = 256 * 1024
"""Assumed bytes of a message before the first."""
MAX_REMEMBERED: Final = 100_000
"""Moved messages without confirmed completion, remembered against repeated sends."""
TICK: Final = 1.0
RATIONED_TICK: Final = 0.1
"""Seconds between two checks of a limited intake."""
CLOSING_SECONDS: Final = 2.0
"""Seconds for answers to messages in flight when the pump closes."""


class AmqpPump:
    """Moves one backlog queue's messages to their destinations.

    Args:
        wire: to the secondary namespace.
        progress: shared with a pump of the other kind that replaces this one.
        ration: limits its intake.

    is_open: whether it takes messages. largest: bytes of its largest recent message.
    """

    def __init__(
        self,
        steering: PairingRuntime,
        wire: ReconnectingConnection,
        delivery: AmqpDelivery,
        *,
        index: int,
        path: str,
        progress: PumpProgress,
        ration: IntakeLimit | None = None,
        remake: Remake = leave_gone,
    ) -> None:
        self.index = index
        self.path = path
        self.progress = progress
        self.aside = DeferredByDestination()
        self._steering = steering
        self._wire = wire
        self._remake = remake
        self._delivery = delivery
        self._ration = ration or UnlimitedIntake()
        self._settlement = Settlement(steering, wire, path, self._settled, progress)
        self._receiver: WireReceiver | None = None
        self._in_hand: dict[int, BacklogMessage] = {}
        self._bytes = 0
        self.largest = float(FIRST_SIZE)
        self._moved: OrderedDict[int, str] = OrderedDict()
        """Ids of moved messages without confirmed completion, by number."""
        self._backoff = Backoff(random.random)
        self._scan = DeferredScan(steering, wire, path, self.aside, self._on_its_way)
        self.holds = self._scan.holds
        self._deferred_receiver = DeferredReceiver(
            steering, wire, delivery, self.aside, self, path=path, missed=self._scan.missed
        )
        self._window_ends = 0.0
        self.is_open = False
        self._locks = MessageLocks(steering, wire, path)
        self._elapsed = steering.policy.ttl_policy == "elapsed"

    @property
    def in_hand(self) -> int:
        """Messages received and not settled."""
        return len(self._in_hand)

    @property
    def room(self) -> int:
        """How many more messages it takes now."""
        in_hand = len(self._in_hand)
        return int(min(WINDOW - in_hand, self._ration.left(in_hand)))

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing in hand, with every settlement confirmed."""
        return not self._in_hand and not self._settlement.is_busy

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
            self._release_unsent()

    async def _while_paused(self) -> None:
        while not self._steering.machine.may_pump(self.index):
            self.progress.text = "paused"
            await self._steering.change(self._steering.clock() + 60.0)

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
        pause = max(self._backoff.next(), self._steering.policy.syphon_retry_interval)
        judgement = self._steering.judge(failure)
        if judgement.kind is FailureKind.BUSY:
            pause = max(pause, self._steering.policy.throttle_wait)
        todo = await self._remake() if judgement.kind is FailureKind.NOT_FOUND else ""
        outcomes.record_stop(self._steering, self.progress, self.index, judgement.reason, retry_in=pause, todo=todo)
        await asyncio.sleep(pause)

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
            is_rationed = self._ration.left(len(self._in_hand)) < inf
            await self._steering.change(self._steering.clock() + (RATIONED_TICK if is_rationed else TICK))
        return receiver.failure

    async def _do_upkeep(self) -> None:
        """Do the regular work: locks, deferred messages, searches, progress."""
        now = self._steering.clock()
        timeout = self._steering.policy.send_timeout
        if self._settlement.quiet(now) >= timeout:
            raise WireError(f"{self.path} confirmed no settlement within {timeout:g} s")
        self.progress.failing_since = None
        await self._renew()
        await self._scan.look_if_due(now)
        self._deferred_receiver.begin(now)
        self._replenish()  # the limit may have grown without a read
        if now >= self._window_ends:
            self._steering.meter.waited()  # billed: each message, and a window without any
            self._window_ends = now + self._steering.policy.syphon_receive_window
        self.progress.set_aside = self.aside.count()
        self.progress.text = self._text()

    def _text(self) -> str:
        text = outcomes.format_deferred(self.progress.set_aside, self.aside.paths()) if self.aside else "receiving"
        troubles = (self._deferred_receiver.trouble, self._locks.trouble, self._scan.trouble)
        return "; ".join(part for part in (text, *troubles) if part)

    async def close(self) -> None:
        """Wait briefly for messages in flight, settle them, and release the other locks."""
        end = self._steering.clock() + CLOSING_SECONDS
        while self._wire.is_up and (left := end - self._steering.clock()) > 0:
            await self._settlement.finish(left)
            if not self._delivery.under_way(self) and not self._settlement.is_busy:
                break
            await asyncio.sleep(0.02)
        for message in list(self._in_hand.values()):
            self._release(message)
        await self._settlement.finish(CLOSING_SECONDS)
        if self._receiver is not None:
            await self._receiver.detach()

    def _release_unsent(self) -> None:
        """Release unsent messages, so that the queue can deliver them elsewhere immediately."""
        self.is_open = False
        self._deferred_receiver.end()
        if self._receiver is not None and self._receiver.is_up:
            self._receiver.grant(0)
        for message in self._delivery.withdraw(self):
            self._release(message)

    def _release(self, message: BacklogMessage) -> None:
        """Release a message, or defer it again if it was deferred."""
        if message.was_aside:
            self.set_aside(message)
            return
        self._forget(message)
        receiver = message.receiver
        if receiver is not None and receiver.is_up:
            receiver.settle(message.delivery_id, RELEASED)

    # -- intake -------------------------------------------------------------------------------------------------------

    def _on_delivery(self, event: DeliveryReceived) -> None:
        receiver = self._receiver
        if receiver is None or event.link is not receiver.link:
            return
        if not self.is_open:  # in flight when the syphon was paused or the pump closed
            receiver.settle(event.delivery_id, RELEASED)
            return
        self._steering.meter.receives += 1
        size = len(event.payload)
        if size > self.largest:
            self.largest = float(size)
        self.take(event.payload, event.tag, receiver, event.delivery_id)

    def take(
        self,
        data: bytes,
        token: UUID | bytes,
        receiver: WireReceiver | None = None,
        delivery_id: int = 0,
        *,
        dead_reason: str = "",
    ) -> None:
        """Take a locked message, from the link or (without a receiver) by its number.

        dead_reason: why it must not be delivered.
        """
        self._ration.took()
        self._steering.meter.received_bytes += len(data)
        now = self._steering.clock()
        found = None
        try:
            found = open_envelope(data)
            payload = restore_message(found, now_ms=int(now * 1000), elapsed=self._elapsed)
        except EnvelopeError as error:
            path = found.enclosed.path if found is not None else ""
            number = broker_properties(data).sequence_number or -1 - delivery_id
            unreadable = BacklogMessage(
                self, path, path.casefold(), number, read_message_id(data), b"", token, 0.0, receiver, delivery_id
            )
            self.dead_letter(unreadable, str(error))
            return
        message = self._build_message(found, payload, token, receiver, delivery_id, now)
        number = message.number
        has_id = bool(message.message_id)  # from our senders always (SPEC.md section 7.3), from others perhaps
        if has_id and self._moved.get(number) == message.message_id:  # delivered; only its completion was lost
            self._forget(message)
            self._settlement.complete([message])
            return
        before = self._in_hand.get(number)
        if before is not None:
            if has_id and before.message_id == message.message_id:  # its lock ended in hand: use the new one
                before.relock(token, message.lock_ends, receiver, delivery_id)
                self._not_aside(message)
                return
            self._forget(before)  # a new queue whose numbers began again, or a message without an id
        self._in_hand[number] = message
        self._bytes += message.size
        dead_reason = dead_reason or self._steering.machine.refusal(message.path)
        if dead_reason:
            self.dead_letter(message, dead_reason)
        elif self._may_go(message, now):
            self._delivery.give(message, now)
        else:
            self._ration.gave_back()
            self.set_aside(message)

    def _may_go(self, message: BacklogMessage, now: float) -> bool:
        if self.aside and not message.was_aside and self.aside.has_older(message.key):
            return False
        return self._delivery.may_take(message.path, message.key, now)

    def _build_message(
        self,
        found: OpenedEnvelope,
        payload: Payload,
        token: UUID | bytes,
        receiver: WireReceiver | None,
        delivery_id: int,
        now: float,
    ) -> BacklogMessage:
        path, held = found.enclosed.path, found.held
        ends = lock_ends(held.locked_until_ms, now)
        number = held.sequence_number or -1 - delivery_id
        return BacklogMessage(
            self, path, path.casefold(), number, found.message_id, payload, token, ends, receiver, delivery_id
        )

    def _replenish(self) -> None:
        """Grant credit for the room in hand, after each read."""
        receiver = self._receiver
        if not self.is_open or receiver is None or not receiver.is_up:
            return
        foreseen = (MAX_BYTES - self._bytes) / self.largest
        wanted = int(min(CREDIT, self.room, foreseen))
        if wanted < receiver.credit and self._ration.left(len(self._in_hand)) < receiver.credit:
            receiver.grant(max(0, wanted))  # granted before the limit shrank
        elif wanted > 2 * receiver.credit:
            receiver.grant(wanted)
            self.largest = max(1024.0, self.largest / 2)  # the next portion shows their present size
            self._window_ends = self._steering.clock() + self._steering.policy.syphon_receive_window

    def _on_lost(self, error: WireError) -> None:
        """Switch to lock tokens: locks outlive the link, so messages in hand continue."""
        self._settlement.lost()
        self._steering.changed()

    # -- outcomes -----------------------------------------------------------------------------------------------------

    def moved(self, messages: list[BacklogMessage]) -> None:
        """Announce receipts, then complete the messages."""
        for message in messages:
            self._forget(message)
            self._moved[message.number] = message.message_id
        with self._steering.together():
            moved = [(message.path, message.message_id) for message in messages]
            outcomes.record_moves(self._steering, self.progress, self.index, moved)
        while len(self._moved) > MAX_REMEMBERED:
            self._moved.popitem(last=False)
        self._settlement.complete(messages)
        self._replenish()

    def set_aside(self, message: BacklogMessage) -> None:
        """Defer a message. A new one of a paused queue is released, since other engines may move it now."""
        if not message.was_aside and not self._steering.machine.may_pump(self.index):
            self._release(message)
            return
        self._forget(message)
        self.aside.of(message.path, message.key).deferring += 1
        self._settlement.defer(message)

    def dead_letter(self, message: BacklogMessage, reason: str) -> None:
        """Dead-letter a message with its reason."""
        self._forget(message)
        outcomes.record_dead_letter(self._steering, self.progress, message.path, self.index, message.message_id, reason)
        self._settlement.dead_letter(message, reason)

    def _forget(self, message: BacklogMessage) -> None:
        if self._in_hand.get(message.number) is message:
            del self._in_hand[message.number]
            self._bytes -= message.size
        self._not_aside(message)

    def _not_aside(self, message: BacklogMessage) -> None:
        """Stop counting a message as deferred and received again."""
        if message.was_aside:
            message.was_aside = False
            self.aside.of(message.path, message.key).in_hand -= 1

    def doubt(self, message: BacklogMessage) -> None:
        """Count a message with an unknown outcome: it is sent again, since it may not have arrived."""
        self.progress.repeated += 1

    def _settled(self, message: BacklogMessage, how: str, is_done: bool | None) -> None:
        """Handle the queue's answer to a settlement; None: there was neither confirmation nor refusal."""
        if how == DEFERRED:
            aside = self.aside.of(message.path, message.key)
            aside.deferring -= 1
            if is_done is not False or message.receiver is None:  # deferred before, and so in any case
                aside.add(message.number)
        elif self._moved.get(message.number) == message.message_id:
            if is_done:
                del self._moved[message.number]
            elif is_done is False:  # another engine may have it now; this pump will not send it again
                self.progress.repeated += 1

    def _on_its_way(self) -> set[int]:
        """Return the numbers of messages in hand, requested, or about to be settled."""
        return self._in_hand.keys() | self._deferred_receiver.asked | self._settlement.numbers()

    async def _renew(self) -> None:
        """Renew locks that end soon; drop waiting messages with lost locks, which come again by themselves."""
        lost = await self._locks.renew(self._in_hand.values(), self._steering.clock())
        if not lost:
            return
        now = self._steering.clock()
        for message in self._delivery.withdraw(self):
            if message.number not in lost:
                self._delivery.give(message, now)
            elif message.was_aside:
                self._forget(message)
                self.aside.of(message.path, message.key).add(message.number)
            else:
                self._forget(message)
