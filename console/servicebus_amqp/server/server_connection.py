"""The server's side of one AMQP connection, for whatever serves its links: a broker, or a pairing.

The connection has the protocol, what its client has proven, the time-outs, the limits of strangers and the budget of
its key. A `Backend` judges keys and answers attaches with links; a `ServedLink` gets transfers, outcomes, flows and the
end. Faults wrap a backend's links or the socket. Sockets and writes belong to the backend.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from servicebus_amqp.access import Grants, ProvenAccess
from servicebus_amqp.encoding.performatives import TransactionalState
from servicebus_amqp.nodes.coordination import EntityScope
from servicebus_amqp.nodes.request_ends import (
    AmqpRefusal,
    StrangerLimits,
    StrangerUse,
    error_of,
    rejected,
    revoked,
    too_many_tokens,
    unknown_state,
)
from servicebus_amqp.protocol import links as e
from servicebus_amqp.protocol.connection import Connection
from servicebus_amqp.protocol.connection_settings import ConnectionRole, ConnectionSettings, SaslCode
from servicebus_amqp.server.admission import Stay, return_free_memory

# The budget of one key: its connections, links, bytes in hand and sends a second, so that it cannot use up a server.
#
# What exceeds it is slowed by reading its clients later, or refused with a sentence; clients of other keys do not
# notice. Bytes of a message count from its first frame. Incomplete messages cannot be waited for by reading none of
# them: above the limit, the connections that hold some are read one after the other.

MAX_BYTES: Final = 64 * 1024 * 1024
"""Of a whole server's sends in hand. Credit counts messages and not bytes, so it cannot bound them."""
KEY_BYTES: Final = 32 * 1024 * 1024
UNFINISHED_SECONDS: Final = 5.0
"""The time for a connection to complete its messages while others of its key wait for it."""


LARGE_BYTES: Final = 4 * 1024 * 1024
"""Incomplete messages of one connection, after whose end free memory goes back to the system."""


class PausableReader(Protocol):
    """A connection whose reading may pause for several reasons."""

    def pause(self, reason: str) -> None: ...
    def resume(self, reason: str) -> None: ...
    def end_beyond(self, refusal: AmqpRefusal) -> None:
        """Close the connection, which uses more than it may."""


class BytesInHand:
    """Bytes of sends under way. most: from which readers pause; they resume below its half. sends: their number."""

    def __init__(self, most: int = MAX_BYTES, reason: str = "bytes in hand") -> None:
        self._most = most
        self._reason = reason
        self._paused: dict[PausableReader, None] = {}
        self._emptied: asyncio.Event | None = None
        self.size = 0
        self.sends = 0
        self.held = 0
        """Of the size, what open transactions hold."""

    @property
    def most(self) -> int:
        return self._most

    @property
    def room_to_hold(self) -> int:
        """Bytes that transactions may hold still: below a half, at which the reading goes on."""
        return self._most // 2 - self.held - 1

    @property
    def paused(self) -> tuple[PausableReader, ...]:
        """Return the connections that are not read now."""
        return tuple(self._paused)

    def add(self, size: int, reader: PausableReader) -> None:
        """Count a send of `reader`, which pauses if there are too many."""
        self.size += size
        self.sends += 1
        if self.size >= self._most and reader not in self._paused:
            self._paused[reader] = None
            reader.pause(self._reason)

    def remove(self, size: int) -> None:
        """Count the end of a send; resume the readers if there is room again."""
        self.sends -= 1
        self._free(size)

    def hold(self, size: int) -> None:
        """Count bytes that a transaction holds; a negative size frees them again."""
        self.held += size
        self._free(-size)

    def _free(self, size: int) -> None:
        self.size -= size
        if self._paused and 2 * self.size < self._most:
            paused, self._paused = self._paused, {}
            for reader in paused:
                reader.resume(self._reason)
        if self._emptied is not None and not self.size:
            self._emptied.set()

    async def wait_empty(self) -> None:
        """Return when no send is in hand."""
        while self.size:
            self._emptied = asyncio.Event()
            await self._emptied.wait()

    def forget(self, reader: PausableReader) -> None:
        """Forget a connection that has ended."""
        self._paused.pop(reader, None)


class UnfinishedMessages:
    """Bytes of incomplete messages over the connections of one key. most: beyond which they are read in turn."""

    _REASON: Final = "unfinished messages"

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[PausableReader, int] = {}
        self._waiting: dict[PausableReader, None] = {}
        self._reading: PausableReader | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.size = 0

    @property
    def waiting(self) -> tuple[PausableReader, ...]:
        """Return the connections that are not read now."""
        return tuple(self._waiting)

    def count(self, reader: PausableReader, held: int, largest: int) -> None:
        """Note the bytes that a connection's incomplete messages hold. largest: bytes of one message that it may send.

        The connection may be ended by it.
        """
        self.size += held - self._held.pop(reader, 0)
        if held:
            self._held[reader] = held
        if held > max(self._most, largest):
            reader.end_beyond(_too_many_bytes(held))
        elif self.size <= self._most:
            self._release_all()
        elif reader is self._reading:
            if not held:
                self._pass_on()
        elif held and self._reading is None:
            self._read(reader)
        elif held:
            self._waiting[reader] = None
            reader.pause(self._REASON)

    def forget(self, reader: PausableReader) -> None:
        """Forget a connection that has ended."""
        self._waiting.pop(reader, None)
        self.size -= self._held.pop(reader, 0)
        if self.size <= self._most:
            self._release_all()
        elif reader is self._reading:
            self._pass_on()

    def _read(self, reader: PausableReader | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._reading = reader
        if reader is not None:
            self._timer = asyncio.get_running_loop().call_later(UNFINISHED_SECONDS, self._end_reading)

    def _pass_on(self) -> None:
        """Read the connection that has waited longest."""
        following = next(iter(self._waiting), None)
        self._read(following)
        if following is not None:
            del self._waiting[following]
            following.resume(self._REASON)

    def _release_all(self) -> None:
        self._read(None)
        waiting, self._waiting = self._waiting, {}
        for reader in waiting:
            reader.resume(self._REASON)

    def _end_reading(self) -> None:
        self._timer = None
        reader = self._reading
        if reader is not None:
            reader.end_beyond(_too_many_bytes(self._held.get(reader, 0)))


def _too_many_bytes(held: int) -> AmqpRefusal:
    text = f"messages that are not complete hold {held:,} bytes here: complete one before the next begins"
    return AmqpRefusal("amqp:resource-limit-exceeded", text, 403)


class Pace:
    """A number of sends a second, with one second's worth at once."""

    _REASON: Final = "sends a second"

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._left = per_second
        self._at = 0.0
        self._paused: set[PausableReader] = set()

    def count(self, reader: PausableReader) -> None:
        """Count a send; read nothing more of its connection until the next one is due."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._left = min(self._per_second, self._left + (now - self._at) * self._per_second) - 1
        self._at = now
        if self._left < 0 and reader not in self._paused:
            self._paused.add(reader)
            reader.pause(self._REASON)
            loop.call_later(-self._left / self._per_second, self._resume, reader)

    def _resume(self, reader: PausableReader) -> None:
        self._paused.discard(reader)
        reader.resume(self._REASON)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """The limits of one key. None: those of the whole server alone."""

    connections: int | None = None
    links: int | None = None
    bytes_in_hand: int = KEY_BYTES
    """Of sends under way, and once more of messages that are not complete yet."""
    sends_per_second: float | None = None


DEFAULT_LIMITS: Final = KeyLimits()


class KeyBudget:
    """What the connections of one key use. whole: the sends in hand of the server."""

    def __init__(self, name: str, limits: KeyLimits, whole: BytesInHand) -> None:
        self.name = name
        self.limits = limits
        self.in_hand = BytesInHand(limits.bytes_in_hand, "bytes in hand of its key")
        self.unfinished = UnfinishedMessages(limits.bytes_in_hand)
        self._whole = whole
        self._pace = None if limits.sends_per_second is None else Pace(limits.sends_per_second)
        self._connections: dict[PausableReader, Callable[[], int]] = {}

    def join(self, connection: PausableReader, links: Callable[[], int]) -> AmqpRefusal | None:
        """Count a connection; return a refusal if there are too many. links: the number of those that it has."""
        most = self.limits.connections
        if most is not None and len(self._connections) >= most:
            return _beyond(self.name, f"{most} connections")
        self._connections[connection] = links
        return None

    def leave(self, connection: PausableReader) -> None:
        """Forget a connection that has ended; its sends may go on."""
        self._connections.pop(connection, None)
        self.in_hand.forget(connection)
        self.unfinished.forget(connection)

    def check_links(self) -> None:
        """Raise AmqpRefusal if the key has as many links as it may."""
        most = self.limits.links
        if most is not None and sum(count() for count in self._connections.values()) >= most:
            raise _beyond(self.name, f"{most} links")

    def add(self, size: int, reader: PausableReader) -> None:
        """Count a send of `reader`, which is read later if there are too many."""
        self._whole.add(size, reader)
        self.in_hand.add(size, reader)
        if self._pace is not None:
            self._pace.count(reader)

    def remove(self, size: int) -> None:
        """Count the end of a send."""
        self._whole.remove(size)
        self.in_hand.remove(size)

    def hold(self, size: int) -> None:
        """Count bytes that a transaction holds; a negative size frees them again.

        Raises:
            AmqpRefusal: there would be no room for others.
        """
        if size > max(0, min(self._whole.room_to_hold, self.in_hand.room_to_hold)):
            raise _beyond(self.name, f"{self.in_hand.held:,} bytes in open transactions")
        self._whole.hold(size)
        self.in_hand.hold(size)


def _beyond(name: str, what: str) -> AmqpRefusal:
    return AmqpRefusal("amqp:resource-limit-exceeded", f"the key '{name}' has {what} and may have no more", 403)


class KeyBudgets:
    """The budgets of a server's keys, by name. most: bytes of sends in hand over all of them."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        self.whole = BytesInHand(most)
        self._budgets: dict[str, KeyBudget] = {}

    def budget_of(self, name: str, limits: KeyLimits) -> KeyBudget:
        """Return a key's budget; a new one if its limits have changed."""
        known = self._budgets.get(name)
        if known is None or known.limits != limits:
            known = self._budgets[name] = KeyBudget(name, limits, self.whole)
        return known

    def paused(self) -> Iterator[PausableReader]:
        """Yield the connections that are not read because of bytes in hand; one may come twice."""
        yield from self.whole.paused
        for budget in self._budgets.values():
            yield from budget.in_hand.paused
            yield from budget.unfinished.waiting


MAX_FRAME_SIZE: Final = 65536
"""The service's own; a half frame costs no more than this."""
INCOMING_WINDOW: Final = 5000
IDLE_TIMEOUT_MS: Final = 240_000
"""The service's own: clients send empty frames within it."""
MAX_SESSIONS: Final = 5000
MAX_LINKS: Final = 2500
MAX_SESSION_LINKS: Final = 256
"""The service's limits of a connection and of a session."""
HELD_SECONDS: Final = 1.0
"""Between two looks at a connection whose time-outs wait."""
STRANGER: Final = "closed the connection of a client without a token"
BROKEN: Final = "ended a client's connection"


class ServedLink:
    """A link in service, by a backend.

    resource: the path that a token has to cover; empty: none has to. right: that the token has to give; None: any.
    has_transactions: a message or an outcome may be in one. Otherwise it is refused, and not handled outside of it.
    """

    resource: str
    right: str | None = None
    has_transactions: ClassVar[bool] = False

    def on_delivery(self, event: e.DeliveryReceived) -> None:
        """Handle a message of the client."""

    def on_disposition(self, event: e.DispositionReceived) -> None:
        """Handle an outcome of the client."""

    def on_flow(self, event: e.FlowReceived) -> None:
        """Handle a flow of the client: credit, or a drain."""

    def on_too_large(self, event: e.DeliveryTooLarge) -> None:
        """Note a message above the link's limit, which is rejected already."""

    def on_end(self) -> None:
        """Handle the end of the link, by either side or with its connection."""


def knows_state(link: ServedLink, event: e.DeliveryReceived) -> bool:
    """Return whether the link knows the state of this message; otherwise reject the message."""
    if link.has_transactions and type(event.state) is TransactionalState:
        return True
    if not event.settled:
        event.link.answer(event.delivery_id, rejected(unknown_state(event.state)))
    return False


def knows_outcome(link: ServedLink, event: e.DispositionReceived) -> bool:
    """Return whether the link knows the kind of this outcome; otherwise refuse the outcome."""
    if link.has_transactions or type(event.state) is not TransactionalState:
        return True
    if not event.settled:
        event.link.settle(event.delivery_id, rejected(unknown_state(event.state)))
    return False


class Backend(ABC):
    """What serves the links of one connection."""

    @abstractmethod
    def now(self) -> float:
        """Return the time by which proven access ends, in epoch seconds."""

    @abstractmethod
    def judge_key(self, name: str, key: str) -> SaslCode | None:
        """Judge SASL PLAIN's name and key, and store what they prove. None: no answer at all."""

    @abstractmethod
    def attach(self, event: e.AttachRequested) -> None:
        """Answer an attach, now or later: with a link in `links`, with a refusal, or not at all."""

    @abstractmethod
    def on_opened(self, event: e.Opened) -> None:
        """Handle the client's open."""

    @abstractmethod
    def on_admitted(self, key: str) -> KeyBudget:
        """Return the budget of the key that the client has proven first. key: empty for another token."""

    @abstractmethod
    def report(self, kind: str, refusal: AmqpRefusal) -> None:
        """Tell the operator that the connection ends with a refusal. kind: one of a few."""

    @abstractmethod
    def touch(self) -> None:
        """Write soon."""

    @abstractmethod
    def finish(self) -> None:
        """Write the last output, and close the socket."""


Link = TypeVar("Link", bound=ServedLink)


class ServerConnection(Backend, Generic[Link]):
    """One connection. links: those in service. grants: what the client has proven."""

    def __init__(self, name: str, limits: StrangerLimits) -> None:
        self.grants = Grants()
        self.links: dict[e.Link, Link] = {}
        self.budget: KeyBudget | None = None
        """That of its key; None for a stranger."""
        self.largest = 0
        """Bytes of one message that the client may send."""
        self.sessions: dict[e.LinkSession, EntityScope] = {}
        settings = ConnectionSettings(
            container_id=name,
            max_frame_size=MAX_FRAME_SIZE,
            incoming_window=INCOMING_WINDOW,
            idle_timeout_ms=IDLE_TIMEOUT_MS,
            plain=self.judge_key,
            channel_max=MAX_SESSIONS - 1,
            handle_max=MAX_SESSION_LINKS - 1,
            first_outgoing_id=1,
        )
        self._amqp = Connection(role=ConnectionRole.SERVER, settings=settings)
        self._transport: asyncio.Transport | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._pauses: set[str] = set()
        self._stay: Stay | None = None
        self._probation: StrangerUse | None = StrangerUse(limits)
        self._unfinished = 0
        self._is_over = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            e.DeliveryReceived: self._on_delivery,
            e.DeliveryTooLarge: self._on_too_large,
            e.DispositionReceived: self._on_disposition,
            e.FlowReceived: self._on_flow,
            e.SessionBegun: self._on_begun,
            e.SessionEnded: self._on_ended,
            e.AttachRequested: self.attach,
            e.Detached: self._on_detached,
            e.Opened: self._on_opened,
            e.Closed: lambda _: self.end(),
            e.ConnectionFailed: self._on_failed,
        }

    @property
    def is_held(self) -> bool:
        """Return whether time-outs wait for now."""
        return False

    def count_links(self) -> int:
        """Return the number of links, those that wait for an answer included."""
        return len(self.links)

    # -- what comes in ------------------------------------------------------------------------------------------------

    def process(self, data: bytes) -> None:
        """Handle bytes of the client."""
        events = self._amqp.receive_data(data)
        if self._probation is not None and (excess := self._probation.count(len(data), events)) is not None:
            self.end_with(STRANGER, excess)
        handlers = self._handlers
        for event in events:
            if self._is_over:
                return
            handler = handlers.get(type(event))
            if handler is not None:
                handler(event)
        if self._amqp.unfinished != self._unfinished:
            self._unfinished = self._amqp.unfinished
            if self.budget is not None:
                self.budget.unfinished.count(self, self._unfinished, self.largest)

    def _on_delivery(self, event: e.DeliveryReceived) -> None:
        link = self.links.get(event.link)
        if link is not None and (event.state is None or knows_state(link, event)):
            link.on_delivery(event)

    def _on_too_large(self, event: e.DeliveryTooLarge) -> None:
        link = self.links.get(event.link)
        if link is not None:
            link.on_too_large(event)

    def _on_disposition(self, event: e.DispositionReceived) -> None:
        link = self.links.get(event.link)
        if link is not None and knows_outcome(link, event):
            link.on_disposition(event)

    def _on_flow(self, event: e.FlowReceived) -> None:
        link = self.links.get(event.link)
        if link is not None:
            link.on_flow(event)

    def _on_detached(self, event: e.Detached) -> None:
        link = self.links.pop(event.link, None)
        if link is not None:
            link.on_end()

    def _on_begun(self, event: e.SessionBegun) -> None:
        self.sessions[event.session] = EntityScope()

    def _on_ended(self, event: e.SessionEnded) -> None:
        self.sessions.pop(event.session, None)

    def _on_opened(self, event: e.Opened) -> None:
        self.on_opened(event)
        if self.grants:  # SASL PLAIN has proven them
            self._admit(next(iter(self.grants.key_names), ""))
        self._tick()

    def _on_failed(self, event: e.ConnectionFailed) -> None:
        self.report(BROKEN, AmqpRefusal(event.error.condition, event.error.description or "", 0))
        self.end()

    # -- access -------------------------------------------------------------------------------------------------------

    def grant(self, access: ProvenAccess) -> None:
        """Store proven access, and end links when it expires. Raises AmqpRefusal."""
        watched = self.grants.next_end
        if not self.grants.put(access):
            raise too_many_tokens()
        self._admit(access.key or "")
        if self.grants.next_end != watched:
            self._watch_tokens()

    def _admit(self, key: str) -> None:
        """End the client's time as a stranger, at its first proof."""
        if self._probation is None:
            return
        budget = self.on_admitted(key)
        excess = budget.join(self, self.count_links)
        if excess is not None:
            self.end_with(BROKEN, excess)
            return
        self.budget = budget
        self._leave_strangers()

    def _leave_strangers(self) -> None:
        self._probation = None
        if self._stay is not None:
            self._stay.leave()
        opening = self._timers.pop("opening", None)
        if opening is not None:
            opening.cancel()

    def end_expired_tokens(self) -> None:
        """Forget expired access, and detach the links that no token covers any more."""
        if self.grants.drop_expired(self.now()):
            self.end_uncovered()
        self._watch_tokens()

    def end_uncovered(self) -> None:
        """Detach the links that no token covers any more."""
        now = self.now()
        for end, link in list(self.links.items()):
            if link.resource and not self.grants.allow(link.resource, link.right, now):
                self.cut(end, link, revoked(end.name, link.resource, link.right))
        self.touch()

    def cut(self, end: e.Link, link: Link, refusal: AmqpRefusal) -> None:
        """Detach a link from our side."""
        end.detach(error=error_of(refusal))
        self.links.pop(end, None)
        link.on_end()

    def _watch_tokens(self) -> None:
        if self.grants.next_end is not None:
            self._call_later("tokens", max(0.0, self.grants.next_end - self.now()), self.end_expired_tokens)

    # -- reading, and the end -----------------------------------------------------------------------------------------

    def pause(self, reason: str) -> None:
        """Read nothing until each reason is over."""
        self._pauses.add(reason)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self, reason: str) -> None:
        self._pauses.discard(reason)
        if not self._pauses and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def end_beyond(self, refusal: AmqpRefusal) -> None:
        """Close the connection, which uses more than its key may."""
        self.end_with(BROKEN, refusal)

    def end_with(self, kind: str, refusal: AmqpRefusal) -> None:
        """Close the connection with an error. kind: for the operator."""
        self.report(kind, refusal)
        self._amqp.close(error_of(refusal))
        self.end()

    def end(self) -> None:
        """Write the last output, then close the socket."""
        self._is_over = True
        self.finish()

    def lose(self) -> None:
        """End everything of a connection that is lost."""
        self._transport = None
        self._leave_strangers()
        for timer in self._timers.values():
            timer.cancel()
        self.drop_links()
        self.sessions.clear()
        self._amqp.close()  # incomplete messages end now, and not with a collection
        if self.budget is not None:
            self.budget.leave(self)
        if self._unfinished >= LARGE_BYTES:
            asyncio.get_running_loop().call_soon(return_free_memory)

    def drop_links(self) -> None:
        """End all links silently."""
        for link in list(self.links.values()):
            link.on_end()
        self.links.clear()

    # -- time ---------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Prevent the client's idle time-out, and end the connection at ours."""
        if self.is_held:
            self._call_later("tick", HELD_SECONDS, self._tick)
            return
        now = asyncio.get_running_loop().time()
        deadline = self._amqp.tick(now)
        if self._amqp.is_finished:
            self.end()
        elif deadline is not None:
            self._call_later("tick", deadline - now, self._tick)
            self.touch()

    def _call_later(self, name: str, delay: float, act: Callable[[], None]) -> None:
        previous = self._timers.pop(name, None)
        if previous is not None:
            previous.cancel()
        self._timers[name] = asyncio.get_running_loop().call_later(delay, act)
