"""Delivers all AMQP pumps' messages: one shared link for each destination, in limited number.

A destination starts with one message in flight and gains one with each acceptance, so that a failed one costs one try
and not a full window. Waiting messages of a silent destination return to be deferred; those in flight stay until their
answer or `send_timeout`. Everything but opening links and a check each second runs inside socket reads.

The pumps' machines decide what follows from each outcome, and whether a destination may be tried.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

from paired_servicebus.core.errors import WireError, WireOutcomeError, WireTimeoutError, WireUnavailableError
from paired_servicebus.core.pump.dead_letter_rules import is_messages_fault
from paired_servicebus.core.pump.pump_events import DeliveryFailed, DeliveryWithheld, MessagesAccepted
from paired_servicebus.pairing.amqp_client import ReconnectingConnection, WireSender, failure_of
from paired_servicebus.pairing.amqp_client.endpoint import serves_clients
from paired_servicebus.pairing.runtime import tracing
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.runtime.tracing import DetachedSpan
from paired_servicebus.pairing.syphon.settlement import BacklogMessage, DeliveryOwner, context_in
from servicebus_amqp import ACCEPTED
from servicebus_amqp.protocol.protocol_events import DispositionReceived

MAX_LINKS: Final = 1000
"""Links to destinations at a time; idle ones make way for waiting ones. The service's limit is 5,000."""
MAX_IN_FLIGHT: Final = 5000
"""Messages in flight to one destination."""
STALLED_SECONDS: Final = 1.0
"""Seconds without an answer after which a destination's waiting messages are deferred, to let others pass."""
OPENING_SECONDS: Final = 5.0
"""The same while a link opens: connecting, a token and an attach need many round trips."""
PORTION: Final = 64
"""Accepted messages that are settled in one turn of a loop that serves clients: half a millisecond."""
IDLE_SECONDS: Final = 60.0
"""Seconds after which an unused link is closed."""


@dataclass(slots=True, eq=False)
class DestinationLink:
    """One destination's link, its messages in flight by tag, and its waiting messages.

    allowed: messages that may be in flight. budget: messages that may be sent before the next check. largest: bytes of
    a message that it accepts. failed_at: its latest failure. answered_at: its last answer or first need. Times are
    seconds since 1970.
    """

    path: str
    key: str
    link: WireSender | None = None
    is_opening: bool = False
    is_stalled: bool = False
    under_way: dict[bytes, BacklogMessage] = field(default_factory=dict)
    waiting: deque[BacklogMessage] = field(default_factory=deque)
    allowed: int = 1
    budget: int = 0
    largest: int = 0
    failed_at: float = 0.0
    answered_at: float = 0.0
    changed: asyncio.Future[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it has work to do."""
        return bool(self.waiting or self.under_way or self.is_stalled)


class AmqpDelivery:
    """Delivers to the primary namespace. unusable: the reason why our own AMQP cannot work at all, or None."""

    def __init__(self, steering: PairingRuntime, wire: ReconnectingConnection) -> None:
        self.unusable: WireUnavailableError | None = None
        self._steering = steering
        self._wire = wire
        self._known: dict[str, DestinationLink] = {}
        self._touched: dict[DestinationLink, None] = {}
        self._held: dict[DestinationLink, None] = {}
        """Those with messages to send while the connection accepts none."""
        self._accepted: list[BacklogMessage] = []
        self._has_rest = False
        """Whether accepted messages wait for the next turn."""
        self._for_a_link: deque[DestinationLink] = deque()
        self._links = 0
        self._tag = 0
        self._is_traced = tracing.is_on()
        self._spans: dict[bytes, DetachedSpan] = {}
        """Of the messages in flight, by tag."""
        self._is_closed = False
        wire.after_read.append(self._after_read)

    # -- used by pumps ------------------------------------------------------------------------------------------------

    def room(self, key: str) -> int:
        """Return how many more messages the destination may get; 1 if it is unknown."""
        found = self._known.get(key)
        return 1 if found is None else found.allowed - len(found.under_way) - len(found.waiting)

    def give(self, message: BacklogMessage, now: float) -> None:
        """Send a message as soon as its destination is ready, after the ones given before."""
        found = self._known.get(message.key)
        if found is None:
            found = self._known[message.key] = DestinationLink(message.path, message.key)
            found.answered_at = now
        if not found.waiting:
            found.budget = found.budget or _budget(found)
            if found.budget and self._wire.is_writable:
                found.budget -= 1
                self._send(found, message, now)
                return
            if not found.under_way:
                found.answered_at = now
        found.waiting.append(message)
        if len(found.waiting) == 1:
            self._send_waiting(found, now)

    async def wait_for_change(self, key: str, seconds: float) -> None:
        """Wait for a change at the destination, at most `seconds`."""
        found = self._known.get(key)
        if found is None:  # it signals no change
            await asyncio.sleep(seconds)
            return
        if found.changed is None:
            found.changed = asyncio.get_running_loop().create_future()
        await asyncio.wait((found.changed,), timeout=seconds)

    def withdraw(self, pump: DeliveryOwner) -> list[BacklogMessage]:
        """Remove a pump's unsent messages, in order, and return them."""
        found: list[BacklogMessage] = []
        for destination in self._known.values():
            found += [message for message in destination.waiting if message.pump is pump]
            destination.waiting = deque(message for message in destination.waiting if message.pump is not pump)
        return found

    def under_way(self, pump: DeliveryOwner) -> int:
        """Return the number of a pump's messages in flight, or accepted and not settled yet."""
        in_flight = chain.from_iterable(destination.under_way.values() for destination in self._known.values())
        return sum(message.pump is pump for message in chain(in_flight, self._accepted))

    # -- sending ------------------------------------------------------------------------------------------------------

    def _send(self, found: DestinationLink, message: BacklogMessage, now: float) -> None:
        link = found.link
        assert link is not None, "a destination without a link has no budget"
        if message.size > found.largest:
            text = f"the message has {message.size} bytes, the destination takes {found.largest}"
            self._fail(found, WireOutcomeError(text, "amqp:link:message-size-exceeded"), [message])
            return
        self._tag += 1
        tag = self._tag.to_bytes(8, "big")
        if not found.under_way:
            found.answered_at = now
        found.under_way[tag] = message
        message.sent_at = now
        self._steering.meter.moves += 1
        self._steering.meter.moved_bytes += message.size
        if self._is_traced:
            host = self._wire.endpoint.hostname
            self._spans[tag] = DetachedSpan(tracing.send_span(host, found.path, [context_in(message.payload)]))
        link.send(message.payload, tag)

    def _advance(self, found: DestinationLink, now: float) -> None:
        """Handle a change: send waiting messages, or return them if the destination is closed."""
        if found.changed is not None:
            found.changed.set_result(None)
            found.changed = None
        if found.waiting and not self._steering.machine.may_deliver(found.path, at=now):
            self._withhold(found, now)
        self._send_waiting(found, now)

    def _send_waiting(self, found: DestinationLink, now: float) -> None:
        """Send waiting messages within the destination's budget."""
        budget, wire = _budget(found), self._wire
        while budget and found.waiting and wire.is_writable:
            budget -= 1
            self._send(found, found.waiting.popleft(), now)
        found.budget = budget
        if found.waiting:
            if found.link is None or not found.link.is_up:
                self._request_link(found)
            elif not wire.is_writable:
                self._held[found] = None
        if (self._for_a_link or found.link is None) and not found.is_busy:
            self._drop_unused(found)

    def _drop_unused(self, found: DestinationLink) -> None:
        """Drop a destination without work if others wait for links, or it has none."""
        if found.link is not None:
            self._close_idle(found)
        elif not found.is_opening:
            self._known.pop(found.key, None)

    def _withhold(self, found: DestinationLink, now: float) -> None:
        """Return the waiting messages to their pumps."""
        for pump, messages in _by_pump(_drain(found)).items():
            pump.apply(DeliveryWithheld(messages, now))

    def _set_stalled(self, found: DestinationLink, is_stalled: bool) -> None:
        found.is_stalled = is_stalled
        stalled = self._steering.machine.destinations.stalled
        if is_stalled:
            stalled.add(found.key)
        else:
            stalled.discard(found.key)

    # -- links --------------------------------------------------------------------------------------------------------

    def _request_link(self, found: DestinationLink) -> None:
        if found.is_opening or self._is_closed:
            return
        found.is_opening = True
        if self._links >= MAX_LINKS:
            self._for_a_link.append(found)
            idle = next((one for one in self._known.values() if one.link is not None and not one.is_busy), None)
            if idle is not None:
                self._close_idle(idle)
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
        except Exception as error:  # noqa: BLE001 - any error means that the destination is unreachable
            self._not_opened(found, error)
        else:
            found.is_opening = False
            self._set_stalled(found, False)
            found.allowed, found.largest = 1, found.link.max_message_size
            found.answered_at = now = self._steering.clock()
            self._advance(found, now)

    def _not_opened(self, found: DestinationLink, error: Exception) -> None:
        found.is_opening = False
        self._set_stalled(found, False)
        self._links -= 1
        is_ours = isinstance(error, WireUnavailableError)
        failure = WireError(str(error)) if is_ours else error
        waiting = _drain(found)
        if is_messages_fault(self._steering.judge(failure).kind, alone=True):
            for message in waiting:  # a name that is refused is refused for each of them
                self._fail(found, failure, [message])
        else:
            self._fail(found, failure, waiting)
        self._advance(found, self._steering.clock())
        self._next_link()

    def _close_idle(self, found: DestinationLink) -> None:
        """Detach an idle link in the background, and open the next requested one."""
        link, found.link, found.budget = found.link, None, 0
        self._known.pop(found.key, None)
        self._links -= 1
        if link is not None:
            self._steering.tasks.start(link.detach(), name=f"close the idle link to {found.path}")
        self._next_link()

    def _next_link(self) -> None:
        while self._for_a_link and self._links < MAX_LINKS:
            following = self._for_a_link.popleft()
            following.is_opening = False
            self._set_stalled(following, False)
            if following.waiting:
                self._request_link(following)

    # -- called by the wire  ------------------------------------------------------------------------------------------

    def _on_outcome(self, found: DestinationLink, event: DispositionReceived) -> None:
        message = found.under_way.pop(event.tag, None)
        if message is None:
            return
        self._touched[found] = None
        is_accepted = event.state is ACCEPTED or event.state == ACCEPTED
        failure = None if is_accepted else failure_of(event.state, found.path)
        if self._spans:
            self._end_spans([event.tag], failure)
        if is_accepted:
            if message.sent_at > found.failed_at and found.allowed < MAX_IN_FLIGHT:
                found.allowed += 1
            self._accepted.append(message)
            return
        assert failure is not None, "only an accepted message has none"
        self._fail(found, failure, [message])

    def _on_room(self, found: DestinationLink) -> None:
        self._touched[found] = None

    def _on_lost(self, found: DestinationLink, error: WireError) -> None:
        """Handle a lost link: its messages in flight are in doubt. A single one may be its cause."""
        found.link, found.budget = None, 0
        self._links -= 1
        self._end_spans(found.under_way, error)
        under_way, found.under_way = list(found.under_way.values()), {}
        self._touched[found] = None
        if under_way:
            self._fail(found, error, under_way, in_doubt=True)
        self._next_link()
        asyncio.get_running_loop().call_soon(self._after_read)

    def _after_read(self) -> None:
        """Announce and settle once after each read from the primary, then send within the new budgets."""
        if not self._has_rest:
            self._settle_accepted()
        if self._held and self._wire.is_writable:
            self._touched.update(self._held)
            self._held.clear()
        if self._touched:
            touched, self._touched = self._touched, {}
            now = self._steering.clock()
            for found in touched:
                found.answered_at = now
                if found.is_stalled:
                    self._set_stalled(found, False)
                if found.waiting or found.changed is not None or self._for_a_link or found.link is None:
                    self._advance(found, now)
                else:
                    found.budget = 0  # its link is checked before the next send

    def _settle_accepted(self) -> None:
        """Settle the accepted messages; beside clients a portion in each turn of the event loop."""
        accepted, self._accepted = self._accepted, []
        if len(accepted) > PORTION and serves_clients():
            accepted, self._accepted = accepted[:PORTION], accepted[PORTION:]
            asyncio.get_running_loop().call_soon(self._settle_accepted)
        self._has_rest = bool(self._accepted)
        now = self._steering.clock()
        for pump, messages in _by_pump(accepted).items():
            pump.apply(MessagesAccepted(messages, now))

    # -- failures -----------------------------------------------------------------------------------------------------

    def _fail(
        self, found: DestinationLink, failure: Exception, tried: list[BacklogMessage], *, in_doubt: bool = False
    ) -> None:
        """Report the failure of these messages; unless it is the fault of a lone one, return the waiting ones too."""
        judgement, now = self._steering.judge(failure), self._steering.clock()
        alone = len(tried) == 1
        is_its_own = is_messages_fault(judgement.kind, alone=alone)
        if not is_its_own:
            found.failed_at, found.allowed, found.budget = now, 1, 0
        for pump, messages in _by_pump(tried).items():
            pump.apply(DeliveryFailed(found.path, messages, judgement, now, in_doubt, alone))
        if not is_its_own:
            self._withhold(found, now)

    def _end_spans(self, tags: Iterable[bytes], failure: WireError | None) -> None:
        for tag in tags:
            span = self._spans.pop(tag, None)
            if span is not None:
                span.end(failure)

    def watch(self, now: float) -> None:
        """Check destinations without answers and unused links, once a second."""
        self._is_traced = tracing.is_on()
        for found in list(self._known.values()):
            if found.is_busy:
                self._check(found, now)
            elif self._for_a_link or found.link is None or now - found.answered_at >= IDLE_SECONDS:
                self._drop_unused(found)

    def _check(self, found: DestinationLink, now: float) -> None:
        """Check whether a busy destination answers."""
        timeout, quiet = self._steering.policy.send_timeout, now - found.answered_at
        if quiet >= timeout and found.link is not None:
            error = WireTimeoutError(f"{found.path} did not answer within {timeout:g} s")
            if not found.under_way:  # it never gave credit
                self._fail(found, error, _drain(found))
            found.link.drop(error)
        elif quiet >= (OPENING_SECONDS if found.is_opening else STALLED_SECONDS):
            self._advance(found, now)
            if found.waiting or found.under_way:
                self._set_stalled(found, True)
                self._withhold(found, now)

    def close(self) -> None:
        """Stop sending; the links end with their connection."""
        self._is_closed = True
        self._end_spans(tuple(self._spans), None)
        if self._after_read in self._wire.after_read:
            self._wire.after_read.remove(self._after_read)


def _budget(found: DestinationLink) -> int:
    """Return how many messages may be sent to it now."""
    link = found.link
    return 0 if link is None else max(0, min(found.allowed - len(found.under_way), link.room))


def _drain(found: DestinationLink) -> list[BacklogMessage]:
    """Remove and return the waiting messages."""
    waiting, found.waiting = found.waiting, deque()
    return list(waiting)


def _by_pump(messages: Iterable[BacklogMessage]) -> dict[DeliveryOwner, list[BacklogMessage]]:
    found: dict[DeliveryOwner, list[BacklogMessage]] = {}
    for message in messages:
        found.setdefault(message.pump, []).append(message)
    return found
