"""The server's side of one AMQP connection, for whatever serves its links: a broker, or a pairing.

The connection has the protocol, what its client has proven, the time-outs, the limits of strangers and the budget of
its key. A `Backend` judges keys and answers attaches with links; a `ServedLink` gets transfers, outcomes, flows and the
end. Faults wrap a backend's links or the socket. Sockets and writes belong to the backend.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from servicebus_amqp.access.grants import Grants, ProvenAccess
from servicebus_amqp.nodes.request_ends import (
    AmqpRefusal,
    StrangerLimits,
    StrangerUse,
    error_of,
    too_many_tokens,
    unauthorized,
)
from servicebus_amqp.protocol import protocol_events as e
from servicebus_amqp.protocol.connection import Connection
from servicebus_amqp.protocol.connection_settings import ConnectionRole, ConnectionSettings, SaslCode
from servicebus_amqp.server.admission import Stay
from servicebus_amqp.server.key_budgets import LARGE_BYTES, KeyBudget, return_free_memory

MAX_FRAME_SIZE: Final = 65536
"""The service's own; a half frame costs no more than this."""
INCOMING_WINDOW: Final = 5000
IDLE_TIMEOUT_MS: Final = 240_000
"""The service's own: clients send empty frames within it."""
MAX_LINKS: Final = 5000
"""Links of a connection, and its sessions: the service's limit of links to one entity."""
HELD_SECONDS: Final = 1.0
"""Between two looks at a connection whose time-outs wait."""
STRANGER: Final = "closed the connection of a client without a token"
BROKEN: Final = "ended a client's connection"


class ServedLink(Protocol):
    """A link in service, by a backend. resource: the path that a token has to cover; empty: none has to."""

    resource: str

    @property
    def right(self) -> str | None:
        """Return the right that the token has to give; None: any."""

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
        self.links: dict[e.LinkEnd, Link] = {}
        self.budget: KeyBudget | None = None
        """That of its key; None for a stranger."""
        self.largest = 0
        """Bytes of one message that the client may send."""
        settings = ConnectionSettings(
            container_id=name,
            max_frame_size=MAX_FRAME_SIZE,
            incoming_window=INCOMING_WINDOW,
            idle_timeout_ms=IDLE_TIMEOUT_MS,
            plain=self.judge_key,
            channel_max=MAX_LINKS - 1,
            handle_max=MAX_LINKS - 1,
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
        if link is not None:
            link.on_delivery(event)

    def _on_too_large(self, event: e.DeliveryTooLarge) -> None:
        link = self.links.get(event.link)
        if link is not None:
            link.on_too_large(event)

    def _on_disposition(self, event: e.DispositionReceived) -> None:
        link = self.links.get(event.link)
        if link is not None:
            link.on_disposition(event)

    def _on_flow(self, event: e.FlowReceived) -> None:
        link = self.links.get(event.link)
        if link is not None:
            link.on_flow(event)

    def _on_detached(self, event: e.Detached) -> None:
        link = self.links.pop(event.link, None)
        if link is not None:
            link.on_end()

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
                self.cut(end, link, unauthorized(link.resource, link.right))
        self.touch()

    def cut(self, end: e.LinkEnd, link: Link, refusal: AmqpRefusal) -> None:
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
