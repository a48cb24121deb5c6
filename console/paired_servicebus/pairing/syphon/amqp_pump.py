"""The syphon's worker for one backlog queue (SPEC.md section 8), on our own AMQP: fast, and bit for bit.

Messages come with peek-lock as long as there is room in hand, by number and by bytes; each is taken out of its
envelope (envelope_codec.py) and given to the courier. What its destination accepted gets its receipt, then it is completed.
What cannot go now is set aside by deferring it, never by abandoning it, since a queue may have a delivery limit; it is
received again by number, in large portions, when its destination takes messages again.

Unlike the SDK's kind of pump this one carries every AMQP type. `Settlement` (settlement.py) knows how outcomes reach the
queue, `MessageLocks` until when messages are held, `AmqpDelivery` knows destinations, `Aside` what is set aside, `DeferredScan` finds
it and `DeferredReceiver` brings it back; this file knows what is in hand.
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
from paired_servicebus.pairing.amqp_client.backoff import HEALTHY
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon import outcomes
from paired_servicebus.pairing.syphon.amqp_delivery import AmqpDelivery
from paired_servicebus.pairing.syphon.backlog_message import BacklogMessage
from paired_servicebus.pairing.syphon.deferred_messages import DeferredMessage
from paired_servicebus.pairing.syphon.deferred_receiver import DeferredReceiver
from paired_servicebus.pairing.syphon.deferred_scan import DeferredScan
from paired_servicebus.pairing.syphon.envelope_codec import OpenedEnvelope, held_of, id_of, opened, original
from paired_servicebus.pairing.syphon.intake_limit import IntakeLimit, UnlimitedIntake
from paired_servicebus.pairing.syphon.message_locks import MessageLocks, lock_ends
from paired_servicebus.pairing.syphon.outcomes import PumpProgress, Remake, leave_gone
from paired_servicebus.pairing.syphon.settlement import DEFERRED, Settlement
from servicebus_amqp.encoding.delivery_states import RELEASED
from servicebus_amqp.protocol.link_sender import Payload
from servicebus_amqp.protocol.protocol_events import DeliveryReceived

WINDOW: Final = 5000
"""Messages in hand: received and not settled."""
CREDIT: Final = 2500
"""Messages that may be under way from the queue."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""Of messages in hand and under way from the queue, as far as their size can be foreseen."""
FIRST_SIZE: Final = 256 * 1024
"""What a message may have as long as none has been seen."""
REMEMBERED: Final = 100_000
"""Messages that were moved and whose completion is not confirmed, remembered so as not to send them again."""
TICK: Final = 1.0
RATIONED_TICK: Final = 0.1
"""Seconds between two looks whether a ration has grown."""
CLOSING_IN: Final = 2.0
"""Seconds that messages under way have to be answered when the pump closes."""


class AmqpPump:
    """Moves what lies in one backlog queue to where it belongs.

    Args:
        wire: to the secondary namespace.
        progress: shared with a pump of another kind that takes over.
        ration: bounds what it takes in.
    """

    def __init__(
        self,
        steering: PairingRuntime,
        wire: ReconnectingConnection,
        courier: AmqpDelivery,
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
        self.aside = DeferredMessage()
        self._steering = steering
        self._wire = wire
        self._remake = remake
        self._courier = courier
        self._ration = ration or UnlimitedIntake()
        self._settling = Settlement(steering, wire, path, self._settled, progress)
        self._receiver: WireReceiver | None = None
        self._in_hand: dict[int, BacklogMessage] = {}
        self._bytes = 0
        self._largest = float(FIRST_SIZE)
        self._moved: OrderedDict[int, str] = OrderedDict()
        """Messages that were moved and whose completion is not confirmed, by number: their ids."""
        self._backoff = Backoff(random.random)
        self._searching = DeferredScan(steering, wire, path, self.aside, self._on_its_way)
        self.holds = self._searching.holds
        self._recall = DeferredReceiver(
            steering, wire, courier, self.aside, self, path=path, missed=self._searching.missed
        )
        self._window_ends = 0.0
        self._is_open = False
        self._locks = MessageLocks(steering, wire, path)
        self._elapsed = steering.policy.ttl_policy == "elapsed"

    @property
    def in_hand(self) -> int:
        """Messages received and not settled."""
        return len(self._in_hand)

    @property
    def is_open(self) -> bool:
        """Whether it takes messages."""
        return self._is_open

    @property
    def room(self) -> int:
        """How many more messages it takes now."""
        in_hand = len(self._in_hand)
        return int(min(WINDOW - in_hand, self._ration.left(in_hand)))

    @property
    def largest(self) -> float:
        """Bytes that a message may have, by those that came."""
        return self._largest

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing in hand, every settlement confirmed."""
        return not self._in_hand and not self._settling.is_busy

    # -- its life -----------------------------------------------------------------------------------------------------

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
            self._let_go()

    async def _while_paused(self) -> None:
        while not self._steering.machine.may_pump(self.index):
            self.progress.text = "paused"
            await self._steering.change(self._steering.clock() + 60.0)

    async def _once(self) -> None:
        """One link's life, and the pause after a failure."""
        began = self._steering.clock()
        failure: Exception | None
        try:
            failure = await self._attached()
        except WireUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever was raised, the pump starts again and says why
            failure = error
        receiver, self._receiver, self._is_open = self._receiver, None, False
        if receiver is not None and receiver.is_up:
            receiver.drop(WireError(str(failure)))
        if failure is None:
            return
        lived = self._steering.clock() - began
        if lived >= HEALTHY:
            self._backoff.reset()
        if is_idle_detach(failure) and lived >= HEALTHY:
            self._searching.stays_known()
            return
        pause = max(self._backoff.next(), self._steering.policy.syphon_retry_interval)
        judgement = self._steering.judge(failure)
        if judgement.kind is FailureKind.BUSY:
            pause = max(pause, self._steering.policy.throttle_wait)
        todo = await self._remake() if judgement.kind is FailureKind.NOT_FOUND else ""
        outcomes.stopped(self._steering, self.progress, self.index, judgement.reason, retry_in=pause, todo=todo)
        await asyncio.sleep(pause)

    async def _attached(self) -> WireError | None:
        """Attach, and work until the link is lost (the reason) or the syphon is paused (None)."""
        receiver = await self._wire.receiver(
            self.path,
            on_delivery=self._on_delivery,
            on_lost=self._on_lost,
            on_settled=self._settling.on_settled,
            timeout=self._steering.policy.send_timeout,
        )
        self._steering.meter.attached()
        self._receiver = receiver
        await self._searching.begin()
        while not self._searching.is_far_enough and not self._searching.trouble and receiver.is_up:
            await self._renew()
            await self._searching.look()
        self._is_open = True
        self._replenish()
        while receiver.is_up:
            if self._courier.unusable is not None:
                raise self._courier.unusable
            if not self._steering.machine.may_pump(self.index):
                self._let_go()
                await receiver.detach()
                self._settling.lost()  # what the queue has not confirmed by now
                return None
            await self._tend()
            is_rationed = self._ration.left(len(self._in_hand)) < inf
            await self._steering.change(self._steering.clock() + (RATIONED_TICK if is_rationed else TICK))
        return receiver.failure

    async def _tend(self) -> None:
        """What is not done by messages themselves: locks, portions of what was set aside, searches, what to say."""
        now = self._steering.clock()
        timeout = self._steering.policy.send_timeout
        if self._settling.quiet(now) >= timeout:
            raise WireError(f"{self.path} confirmed no settlement within {timeout:g} s")
        self.progress.failing_since = None
        await self._renew()
        await self._searching.look_if_due(now)
        self._recall.begin(now)
        self._replenish()  # a ration may have grown, and no read says so
        if now >= self._window_ends:
            self._steering.meter.waited()  # what is billed: each message, and a window without any
            self._window_ends = now + self._steering.policy.syphon_receive_window
        self.progress.set_aside = self.aside.count()
        self.progress.text = self._said()

    def _said(self) -> str:
        said = outcomes.holding(self.progress.set_aside, self.aside.paths()) if self.aside else "receiving"
        troubles = (self._recall.trouble, self._locks.trouble, self._searching.trouble)
        return "; ".join(text for text in (said, *troubles) if text)

    async def close(self) -> None:
        """What is under way has a moment to be accepted and completed; the locks of the rest are released."""
        end = self._steering.clock() + CLOSING_IN
        while self._wire.is_up and (left := end - self._steering.clock()) > 0:
            await self._settling.finish(left)
            if not self._courier.under_way(self) and not self._settling.is_busy:
                break
            await asyncio.sleep(0.02)
        for parcel in list(self._in_hand.values()):
            self._give_up(parcel)
        await self._settling.finish(CLOSING_IN)
        if self._receiver is not None:
            await self._receiver.detach()

    def _let_go(self) -> None:
        """Give back what was not sent: the queue can hand it to others at once."""
        self._is_open = False
        self._recall.end()
        if self._receiver is not None and self._receiver.is_up:
            self._receiver.grant(0)
        for parcel in self._courier.withdraw(self):
            self._give_up(parcel)

    def _give_up(self, parcel: BacklogMessage) -> None:
        """Back into the queue, unseen; what was deferred is so again."""
        if parcel.was_aside:
            self.set_aside(parcel)
            return
        self._forget(parcel)
        receiver = parcel.receiver
        if receiver is not None and receiver.is_up:
            receiver.settle(parcel.delivery_id, RELEASED)

    # -- what comes ---------------------------------------------------------------------------------------------------

    def _on_delivery(self, event: DeliveryReceived) -> None:
        receiver = self._receiver
        if receiver is None or event.link is not receiver.link:
            return
        if not self._is_open:  # it was under way when the syphon was paused, or the pump closed
            receiver.settle(event.delivery_id, RELEASED)
            return
        self._steering.meter.receives += 1
        size = len(event.payload)
        if size > self._largest:
            self._largest = float(size)
        self.take(event.payload, event.tag, receiver, event.delivery_id)

    def take(
        self,
        data: bytes,
        token: UUID | bytes,
        receiver: WireReceiver | None = None,
        delivery_id: int = 0,
        *,
        doom: str = "",
    ) -> None:
        """A locked message: from the link, or by its number where there is no receiver. doom: why it is undeliverable
        anyway."""
        self._ration.took()
        self._steering.meter.received_bytes += len(data)
        now = self._steering.clock()
        found = None
        try:
            found = opened(data)
            payload = original(found, now_ms=int(now * 1000), elapsed=self._elapsed)
        except EnvelopeError as error:
            path = found.enclosed.path if found is not None else ""
            number = held_of(data).sequence_number or -1 - delivery_id
            unreadable = BacklogMessage(
                self, path, path.casefold(), number, id_of(data), b"", token, 0.0, receiver, delivery_id
            )
            self.bury(unreadable, str(error))
            return
        parcel = self._parcel(found, payload, token, receiver, delivery_id, now)
        number = parcel.number
        has_id = bool(parcel.message_id)  # senders of ours give each one (SPEC.md section 7.3), others need not
        if has_id and self._moved.get(number) == parcel.message_id:  # it was delivered; only its completion was lost
            self._forget(parcel)
            self._settling.complete([parcel])
            return
        before = self._in_hand.get(number)
        if before is not None:
            if has_id and before.message_id == parcel.message_id:  # its lock ended in hand: go on with the new one
                before.relocked(token, parcel.lock_ends, receiver, delivery_id)
                self._not_aside(parcel)
                return
            self._forget(before)  # the queue was made anew, and its numbers began again; for all we know without an id
        self._in_hand[number] = parcel
        self._bytes += parcel.size
        doom = doom or self._steering.machine.refusal(parcel.path)
        if doom:
            self.bury(parcel, doom)
        elif self._may_go(parcel, now):
            self._courier.give(parcel, now)
        else:
            self._ration.gave_back()
            self.set_aside(parcel)

    def _may_go(self, parcel: BacklogMessage, now: float) -> bool:
        if self.aside and not parcel.was_aside and self.aside.has_older(parcel.key):
            return False
        return self._courier.may_take(parcel.path, parcel.key, now)

    def _parcel(
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
        """After each read: as much credit as there is room in hand."""
        receiver = self._receiver
        if not self._is_open or receiver is None or not receiver.is_up:
            return
        foreseen = (MOST_BYTES - self._bytes) / self._largest
        wanted = int(min(CREDIT, self.room, foreseen))
        if wanted < receiver.credit and self._ration.left(len(self._in_hand)) < receiver.credit:
            receiver.grant(max(0, wanted))  # it was granted before there was so little left
        elif wanted > 2 * receiver.credit:
            receiver.grant(wanted)
            self._largest = max(1024.0, self._largest / 2)  # the next portion shows whether messages are still as large
            self._window_ends = self._steering.clock() + self._steering.policy.syphon_receive_window

    def _on_lost(self, error: WireError) -> None:
        """Locks go on without the link, so what is in hand goes on its way and is settled by lock token."""
        self._settling.lost()
        self._steering.changed()

    # -- what becomes of it -------------------------------------------------------------------------------------------

    def moved(self, parcels: list[BacklogMessage]) -> None:
        """Receipts first, then completion."""
        for parcel in parcels:
            self._forget(parcel)
            self._moved[parcel.number] = parcel.message_id
        with self._steering.together():
            moved = [(parcel.path, parcel.message_id) for parcel in parcels]
            outcomes.moved(self._steering, self.progress, self.index, moved)
        while len(self._moved) > REMEMBERED:
            self._moved.popitem(last=False)
        self._settling.complete(parcels)
        self._replenish()

    def set_aside(self, parcel: BacklogMessage) -> None:
        """Defer it; it is known by its number then. A paused queue's is released: other engines may move it now."""
        if not parcel.was_aside and not self._steering.machine.may_pump(self.index):
            self._give_up(parcel)
            return
        self._forget(parcel)
        self.aside.of(parcel.path, parcel.key).deferring += 1
        self._settling.defer(parcel)

    def bury(self, parcel: BacklogMessage, reason: str) -> None:
        """Dead-letter it with its reason."""
        self._forget(parcel)
        outcomes.buried(self._steering, self.progress, parcel.path, self.index, parcel.message_id, reason)
        self._settling.bury(parcel, reason)

    def _forget(self, parcel: BacklogMessage) -> None:
        if self._in_hand.get(parcel.number) is parcel:
            del self._in_hand[parcel.number]
            self._bytes -= parcel.size
        self._not_aside(parcel)

    def _not_aside(self, parcel: BacklogMessage) -> None:
        """It is no longer one that was set aside and received again."""
        if parcel.was_aside:
            parcel.was_aside = False
            self.aside.of(parcel.path, parcel.key).in_hand -= 1

    def doubt(self, parcel: BacklogMessage) -> None:
        """It was sent, and nobody knows whether it arrived: it is sent again, since it may not have."""
        self.progress.repeated += 1

    def _settled(self, parcel: BacklogMessage, how: str, is_done: bool | None) -> None:
        """The queue has confirmed, or refused, what was said of a message; None: neither."""
        if how == DEFERRED:
            aside = self.aside.of(parcel.path, parcel.key)
            aside.deferring -= 1
            if is_done is not False or parcel.receiver is None:  # what was deferred before is so in any case
                aside.add(parcel.number)
        elif self._moved.get(parcel.number) == parcel.message_id:
            if is_done:
                del self._moved[parcel.number]
            elif is_done is False:  # somebody else may have it by now; we would not send it again
                self.progress.repeated += 1

    # -- set aside ----------------------------------------------------------------------------------------------------

    def _on_its_way(self) -> set[int]:
        """Messages that are in hand, asked for, or about to be settled."""
        return self._in_hand.keys() | self._recall.asked | self._settling.numbers()

    # -- locks --------------------------------------------------------------------------------------------------------

    async def _renew(self) -> None:
        """Renew the locks that end soon; what waits without one is let go, and comes again by itself."""
        lost = await self._locks.renew(self._in_hand.values(), self._steering.clock())
        if not lost:
            return
        now = self._steering.clock()
        for parcel in self._courier.withdraw(self):
            if parcel.number not in lost:
                self._courier.give(parcel, now)
            elif parcel.was_aside:
                self._forget(parcel)
                self.aside.of(parcel.path, parcel.key).add(parcel.number)
            else:
                self._forget(parcel)
