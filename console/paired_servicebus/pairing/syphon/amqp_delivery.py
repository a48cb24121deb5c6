"""The way from all AMQP pumps of a syphon to their destinations: a link for each, shared, a bounded number of them.

A destination starts with one message under way and may have one more with each that it accepts, so that one which is
down costs one try and not a window full. What waits behind a destination that does not answer is given back to be set
aside; what is under way there stays until it is answered or `send_timeout` has passed. Everything happens inside of
socket reads, but for opening links and a look at the clock once a second.

Whether a destination may be tried is the core's circuit to say. Locks and settlements belong to the pumps.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Final

from paired_servicebus.core.errors import WireError, WireOutcomeError, WireTimeoutError, WireUnavailableError
from paired_servicebus.core.pump.destination_circuits import FATES, Fate
from paired_servicebus.pairing.amqp_client import ReconnectingConnection, WireSender, failure_of
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon import outcomes
from paired_servicebus.pairing.syphon.backlog_message import BacklogMessage, DeliveryOwner
from paired_servicebus.pairing.syphon.outcomes import Ruling
from servicebus_amqp import ACCEPTED
from servicebus_amqp.protocol.protocol_events import DispositionReceived

MOST_LINKS: Final = 1000
"""Links to destinations at a time; idle ones are put away for those that wait. The service gives a connection 5,000."""
MOST_UNDER_WAY: Final = 5000
"""Messages sent to one destination and not answered."""
STALLED_AFTER: Final = 1.0
"""Seconds without any answer after which what waits for a destination is set aside, so that others can go on."""
PATIENCE: Final = 5.0
"""The same while there is no link: connecting, a token and an attach take many round trips; others may be first."""
IDLE: Final = 60.0
"""Seconds after which an unused link is put away."""


class DestinationLink:
    """One destination's link, what is under way to it by tag, and what waits.

    allowed: how many may be under way. budget: how many may be sent before anybody has to look again. largest: bytes of
    a message that it takes. round: its failures so far. answered_at: when it was last heard or needed, since 1970.
    """

    __slots__ = (
        "allowed",
        "answered_at",
        "budget",
        "is_opening",
        "is_proven",
        "is_stalled",
        "key",
        "largest",
        "link",
        "path",
        "round",
        "turn",
        "under_way",
        "waiting",
    )

    def __init__(self, path: str, key: str) -> None:
        self.path = path
        self.key = key
        self.link: WireSender | None = None
        self.is_opening = False
        self.is_stalled = False
        self.is_proven = False
        self.under_way: dict[bytes, BacklogMessage] = {}
        self.waiting: deque[BacklogMessage] = deque()
        self.allowed = 1
        self.budget = 0
        self.largest = 0
        self.round = 0
        self.answered_at = 0.0
        self.turn: asyncio.Future[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether something is to be done for it."""
        return bool(self.waiting or self.under_way or self.is_stalled)


class AmqpDelivery:
    """Delivers to the primary namespace. `unusable`: why this kind of courier cannot work at all, if that is so."""

    def __init__(self, steering: PairingRuntime, wire: ReconnectingConnection) -> None:
        self.unusable: WireUnavailableError | None = None
        self._steering = steering
        self._wire = wire
        self._known: dict[str, DestinationLink] = {}
        self._touched: dict[DestinationLink, None] = {}
        self._held: dict[DestinationLink, None] = {}
        """Those with something to send while nothing more would leave."""
        self._accepted: list[BacklogMessage] = []
        self._for_a_link: deque[DestinationLink] = deque()
        self._links = 0
        self._tag = 0
        self._is_closed = False
        wire.after_read.append(self._after_read)

    # -- what pumps ask -----------------------------------------------------------------------------------------------

    def may_take(self, path: str, key: str, now: float) -> bool:
        """Whether messages may be given for this destination now."""
        found = self._known.get(key)
        if found is not None and found.is_stalled:
            return False
        return self._steering.machine.may_deliver(path, at=now)

    def room(self, key: str) -> int:
        """How many more messages the destination is ready for; one, as long as nothing is known of it."""
        found = self._known.get(key)
        return 1 if found is None else found.allowed - len(found.under_way) - len(found.waiting)

    def give(self, parcel: BacklogMessage, now: float) -> None:
        """Send it as soon as its destination is ready for it, behind what was given before."""
        found = self._known.get(parcel.key)
        if found is None:
            found = self._known[parcel.key] = DestinationLink(parcel.path, parcel.key)
            found.answered_at = now
        if not found.waiting:
            found.budget = found.budget or _budget(found)
            if found.budget and self._wire.is_writable:
                found.budget -= 1
                self._send(found, parcel, now)
                return
            if not found.under_way:
                found.answered_at = now
        found.waiting.append(parcel)
        if len(found.waiting) == 1:
            self._ship(found, now)

    async def turn(self, key: str, seconds: float) -> None:
        """Wait until something has changed at the destination, `seconds` at most."""
        found = self._known.get(key)
        if found is None:  # nothing tells of a change there
            await asyncio.sleep(seconds)
            return
        if found.turn is None:
            found.turn = asyncio.get_running_loop().create_future()
        await asyncio.wait((found.turn,), timeout=seconds)

    def withdraw(self, pump: DeliveryOwner) -> list[BacklogMessage]:
        """Take back what of a pump's is not sent yet, in order."""
        found: list[BacklogMessage] = []
        for destination in self._known.values():
            found += [parcel for parcel in destination.waiting if parcel.pump is pump]
            destination.waiting = deque(parcel for parcel in destination.waiting if parcel.pump is not pump)
        return found

    def under_way(self, pump: DeliveryOwner) -> int:
        """How many of a pump's messages are sent and not answered."""
        return sum(
            parcel.pump is pump for destination in self._known.values() for parcel in destination.under_way.values()
        )

    # -- sending ------------------------------------------------------------------------------------------------------

    def _send(self, found: DestinationLink, parcel: BacklogMessage, now: float) -> None:
        link = found.link
        assert link is not None, "a destination without a link has no budget"
        if parcel.size > found.largest:
            text = f"the message has {parcel.size} bytes, the destination takes {found.largest}"
            self._judge(found, parcel, WireOutcomeError(text, "amqp:link:message-size-exceeded"))
            return
        self._tag += 1
        tag = self._tag.to_bytes(8, "big")
        if not found.under_way:
            found.answered_at = now
        found.under_way[tag] = parcel
        parcel.round = found.round
        self._steering.meter.moves += 1
        self._steering.meter.moved_bytes += parcel.size
        link.send(parcel.payload, tag)

    def _advance(self, found: DestinationLink, now: float) -> None:
        """Something has changed: send what waits, as far as the destination is ready; give back what may not be sent
        any more."""
        if found.turn is not None:
            found.turn.set_result(None)
            found.turn = None
        if found.waiting and not self._steering.machine.may_deliver(found.path, at=now):
            self._give_back(found, outcomes.waiting(self._steering, found.path))
        self._ship(found, now)

    def _ship(self, found: DestinationLink, now: float) -> None:
        """Send what waits, as far as the destination is ready."""
        budget, wire = _budget(found), self._wire
        while budget and found.waiting and wire.is_writable:
            budget -= 1
            self._send(found, found.waiting.popleft(), now)
        found.budget = budget
        if found.waiting:
            if found.link is None or not found.link.is_up:
                self._want_link(found)
            elif not wire.is_writable:
                self._held[found] = None
        if (self._for_a_link or found.link is None) and not found.is_busy:
            self._rest(found)

    def _rest(self, found: DestinationLink) -> None:
        """Nothing is to be done for it, and others wait for links, or it has none."""
        if found.link is not None:
            self._put_away(found)
        elif not found.is_opening:
            self._known.pop(found.key, None)

    def _give_back(self, found: DestinationLink, ruling: Ruling) -> None:
        waiting, found.waiting = found.waiting, deque()
        for parcel in waiting:
            _return(parcel, ruling)

    # -- links --------------------------------------------------------------------------------------------------------

    def _want_link(self, found: DestinationLink) -> None:
        if found.is_opening or self._is_closed:
            return
        found.is_opening = True
        if self._links >= MOST_LINKS:
            self._for_a_link.append(found)
            idle = next((one for one in self._known.values() if one.link is not None and not one.is_busy), None)
            if idle is not None:
                self._put_away(idle)
            return
        self._links += 1
        if self._steering.tasks.start(self._open(found), name=f"open the link to {found.path}") is None:
            self._links -= 1
            found.is_opening = False

    async def _open(self, found: DestinationLink) -> None:
        found.answered_at = self._steering.clock()
        try:
            found.link = await self._wire.sender(
                found.path,
                on_outcome=partial(self._on_outcome, found),
                on_lost=partial(self._on_lost, found),
                on_room=partial(self._on_room, found),
                timeout=self._steering.policy.send_timeout,
            )
        except WireUnavailableError as error:
            self.unusable = error
            self._steering.changed()
            self._not_opened(found, error)
        except Exception as error:  # noqa: BLE001 - whatever was raised, there is no way to the destination
            self._not_opened(found, error)
        else:
            found.is_opening = found.is_stalled = False
            found.allowed, found.largest = 1, found.link.max_message_size
            found.answered_at = now = self._steering.clock()
            self._advance(found, now)

    def _not_opened(self, found: DestinationLink, error: Exception) -> None:
        found.is_opening = found.is_stalled = False
        self._links -= 1
        judgement = self._steering.judge(error)
        is_barred = isinstance(error, WireUnavailableError)  # we are, and no message is to blame
        if FATES[judgement.kind] is Fate.DEAD_LETTERED and not is_barred:  # no such destination can be
            self._give_back(found, outcomes.refused(self._steering, found.path, judgement))
        else:
            self._fail(found, error)
        self._advance(found, self._steering.clock())
        self._next_link()

    def _put_away(self, found: DestinationLink) -> None:
        """Detach an idle link, in the background; whoever waits for one is next."""
        link, found.link, found.budget = found.link, None, 0
        self._known.pop(found.key, None)
        self._links -= 1
        if link is not None:
            self._steering.tasks.start(link.detach(), name=f"put away the link to {found.path}")
        self._next_link()

    def _next_link(self) -> None:
        while self._for_a_link and self._links < MOST_LINKS:
            following = self._for_a_link.popleft()
            following.is_opening = following.is_stalled = False
            if following.waiting:
                self._want_link(following)

    # -- what the wire tells ------------------------------------------------------------------------------------------

    def _on_outcome(self, found: DestinationLink, event: DispositionReceived) -> None:
        parcel = found.under_way.pop(event.tag, None)
        if parcel is None:
            return
        self._touched[found] = None
        if event.state is ACCEPTED or event.state == ACCEPTED:
            if parcel.round == found.round:
                found.is_proven = True
                if found.allowed < MOST_UNDER_WAY:
                    found.allowed += 1
            self._accepted.append(parcel)
            return
        failure = failure_of(event.state, found.path)
        assert failure is not None, "only an accepted message has none"
        self._judge(found, parcel, failure)

    def _on_room(self, found: DestinationLink) -> None:
        self._touched[found] = None

    def _on_lost(self, found: DestinationLink, error: WireError) -> None:
        """What was under way is in doubt. The one that a link was lost for may be known only when it is alone."""
        found.link, found.budget = None, 0
        self._links -= 1
        under_way, found.under_way = list(found.under_way.values()), {}
        self._touched[found] = None
        if under_way:
            for parcel in under_way:
                parcel.pump.doubt(parcel)
            is_its_own = FATES[self._steering.judge(error).kind] is Fate.DEAD_LETTERED
            if is_its_own and len(under_way) == 1:
                self._judge(found, under_way[0], error)
            else:
                self._fail(found, error, under_way)
        self._next_link()
        asyncio.get_running_loop().call_soon(self._after_read)

    def _after_read(self) -> None:
        """Once after each read from the primary: receipts and settlements, then what the destinations are ready for."""
        if self._accepted:
            accepted, self._accepted = self._accepted, []
            by_pump: dict[DeliveryOwner, list[BacklogMessage]] = {}
            for parcel in accepted:
                by_pump.setdefault(parcel.pump, []).append(parcel)
            for pump, parcels in by_pump.items():
                pump.moved(parcels)
        if self._held and self._wire.is_writable:
            self._touched.update(self._held)
            self._held.clear()
        if self._touched:
            touched, self._touched = self._touched, {}
            now = self._steering.clock()
            for found in touched:
                found.answered_at = now
                found.is_stalled = False
                if found.is_proven:
                    found.is_proven = False
                    outcomes.took(self._steering, found.path, now)
                if found.waiting or found.turn is not None or self._for_a_link or found.link is None:
                    self._advance(found, now)
                else:
                    found.budget = 0  # its link is looked at when there is something to send

    # -- failures -----------------------------------------------------------------------------------------------------

    def _judge(self, found: DestinationLink, parcel: BacklogMessage, failure: WireError) -> None:
        """One message was not taken: its own fault, or the destination's."""
        judgement = self._steering.judge(failure)
        if FATES[judgement.kind] is Fate.DEAD_LETTERED:
            _return(parcel, outcomes.refused(self._steering, found.path, judgement))
        else:
            self._fail(found, failure, [parcel])

    def _fail(self, found: DestinationLink, failure: Exception, parcels: list[BacklogMessage] | None = None) -> None:
        """The destination takes nothing now: these, and what waits behind them, are given back."""
        judgement = self._steering.judge(failure)
        if FATES[judgement.kind] is Fate.DEAD_LETTERED:  # of whichever message it was, the others are blameless
            judgement = self._steering.judge(WireError(str(failure)))
        ruling = outcomes.refused(self._steering, found.path, judgement)
        found.round += 1
        found.allowed, found.budget = 1, 0
        for parcel in parcels or ():
            _return(parcel, ruling)
        self._give_back(found, ruling)

    def watch(self, now: float) -> None:
        """Once a second: destinations that do not answer, links that nobody needs."""
        for found in list(self._known.values()):
            if found.is_busy:
                self._look_at(found, now)
            elif self._for_a_link or found.link is None or now - found.answered_at >= IDLE:
                self._rest(found)

    def _look_at(self, found: DestinationLink, now: float) -> None:
        """Something is to be done for it: does it answer?"""
        timeout, quiet = self._steering.policy.send_timeout, now - found.answered_at
        if quiet >= timeout and found.link is not None:
            error = WireTimeoutError(f"{found.path} did not answer within {timeout:g} s")
            if not found.under_way:  # it never gave credit
                self._fail(found, error)
            found.link.drop(error)
        elif quiet >= (PATIENCE if found.is_opening else STALLED_AFTER):
            self._advance(found, now)
            if found.waiting or found.under_way:
                found.is_stalled = True
                self._give_back(found, outcomes.waiting(self._steering, found.path))

    def close(self) -> None:
        """Nothing is sent any more; the links end with their connection."""
        self._is_closed = True
        if self._after_read in self._wire.after_read:
            self._wire.after_read.remove(self._after_read)


def _budget(found: DestinationLink) -> int:
    """How many may be sent to it now."""
    link = found.link
    return 0 if link is None else max(0, min(found.allowed - len(found.under_way), link.room))


def _return(parcel: BacklogMessage, ruling: Ruling) -> None:
    if ruling.undeliverable:
        parcel.pump.bury(parcel, ruling.reason)
    else:
        parcel.pump.set_aside(parcel)
