"""The links of a connection for their owners: a sender to an entity, a receiver from one.

A link lives once and ends with one call of `on_lost`, or with none after the owner's detach. The owner tracks unsettled
messages: a message of a lost link may have been accepted or not. Callbacks run inside the socket's read and must
neither block nor raise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from paired_servicebus.core.errors import WireError
from paired_servicebus.pairing.runtime.deadlines import CLOSING
from servicebus_amqp.encoding.message_sections import BATCH_FORMAT
from servicebus_amqp.encoding.messaging_types import DeliveryState, Source, Target
from servicebus_amqp.protocol.link_receiver import ReceiverLink
from servicebus_amqp.protocol.link_sender import Payload, SenderLink
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived, FlowReceived, LinkEnd

__all__ = ["BATCH_FORMAT", "WireReceiver", "WireSender"]

MIB: Final = 1024 * 1024
STANDARD_BATCH: Final = 256 * 1024
_BATCH_SIZE: Final = "com.microsoft:max-message-batch-size"

OnOutcome = Callable[[DispositionReceived], None]
OnDelivery = Callable[[DeliveryReceived], None]
OnLost = Callable[[WireError], None]
OnRoom = Callable[[], None]
OnFlow = Callable[[FlowReceived], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachFields:
    """An attach that is passed on from another connection; a field left out is ours.

    passed_on: as of `Session.attach_sender`, such as settle_modes, properties and desired_capabilities.
    """

    name: str | None = None
    source: Source | None = None
    target: Target | None = None
    passed_on: dict[str, Any] = field(default_factory=dict)


OURS: Final = AttachFields()


def _ignore(error: WireError) -> None:
    """Ignore the end of a link that its owner detached."""


class LinkConnection(Protocol):
    """The connection of a link, a `ClientConnection`."""

    will_write: bool
    is_writable: bool

    def touch(self) -> None: ...
    def collect(self, size: int) -> None: ...
    def forget(self, link: LinkEnd) -> None: ...


class _WireLink:
    """The common part of both ends, made only by a connection."""

    __slots__ = ("_answered", "_ended", "_on_lost", "failure", "is_established", "line", "link", "passes_flow", "path")
    link: SenderLink | ReceiverLink

    def __init__(self, line: LinkConnection, path: str, on_lost: OnLost) -> None:
        self.line = line
        self.path = path
        self.failure: WireError | None = None
        self.passes_flow: OnFlow | None = None
        """Gets the peer's flows, for an owner that passes them on."""
        self._on_lost = on_lost
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_established = False
        self._ended: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}, {'up' if self.is_up else 'down'}>"

    @property
    def is_up(self) -> bool:
        return self.failure is None and self._ended is None and self.link.is_attached

    @property
    def link_name(self) -> str:
        """The name of the link in the namespace."""
        return self.link.name

    def drop(self, error: WireError) -> None:
        """Detach immediately, without a wait, and call `on_lost` with `error`."""
        if self.failure is None and self._ended is None:
            self.link.detach()
            self.line.touch()
            self.line.forget(self.link)
            self.end(error)

    async def detach(self, timeout: float = CLOSING) -> None:
        """Detach cleanly, within `timeout` seconds; never raises and never calls `on_lost`."""
        if self.failure is not None or self._ended is not None:
            return
        self._ended = asyncio.get_running_loop().create_future()
        self.link.detach()
        self.line.touch()
        await asyncio.wait((self._ended,), timeout=timeout)
        self.line.forget(self.link)

    # called by the connection

    async def established(self) -> None:
        """Wait for the peer's answer to the attach. Raises WireError for a refusal."""
        await self._answered
        if self.failure is not None:
            raise self.failure
        self.is_established = True

    def answer(self) -> None:
        """Handle an accepted attach."""
        if not self._answered.done():
            self._answered.set_result(None)

    def on_flow(self, event: FlowReceived) -> None:
        """Handle a flow of the peer."""
        if self.passes_flow is not None:
            self.passes_flow(event)

    def end(self, error: WireError) -> None:
        """Handle the end of the link; call `on_lost`, once."""
        if self._ended is not None:
            if not self._ended.done():
                self._ended.set_result(None)
        elif self.failure is None:
            self.failure = error
            self.answer()
            if self.is_established:
                self._on_lost(error)


class WireSender(_WireLink):
    """Sends encoded messages to one entity; each gets one outcome, by its tag."""

    __slots__ = ("on_room",)
    link: SenderLink

    def __init__(self, line: LinkConnection, path: str, on_lost: OnLost, on_room: OnRoom | None) -> None:
        super().__init__(line, path, on_lost)
        self.on_room = on_room

    def on_flow(self, event: FlowReceived) -> None:
        super().on_flow(event)
        if self.on_room is not None and event.credit:
            self.on_room()

    @property
    def max_message_size(self) -> int:
        """Bytes of one message, by the entity's attach."""
        return self.link.max_message_size or MIB

    @property
    def max_batch_size(self) -> int:
        """Bytes of a whole batch; by the SDK's rule if the entity's attach gives none."""
        remote = self.link.remote
        given = (remote.properties or {}).get(_BATCH_SIZE) if remote is not None else None
        if isinstance(given, int) and given > 0:
            return given
        return MIB if self.max_message_size >= MIB else STANDARD_BATCH

    @property
    def room(self) -> int:
        """Messages that would leave immediately."""
        is_open = self.failure is None and self._ended is None and self.line.is_writable
        return self.link.credit if is_open else 0  # 0 on a detached link

    def send(self, payload: Payload, tag: bytes, *, message_format: int = 0) -> None:
        """Send one encoded message, whole or in pieces; beyond `room` it waits in memory, in order.

        tag: at most 32 bytes, unique among unsettled messages. message_format: BATCH_FORMAT for a batch.

        Raises:
            StateError: the link is gone.
            EncodeError: the tag is too long.
        """
        self.link.send(payload, tag=tag, message_format=message_format)
        line = self.line
        line.collect(len(payload) if isinstance(payload, bytes) else sum(map(len, payload)))
        if not line.will_write:
            line.touch()


class WireReceiver(_WireLink):
    """Receives from one entity with peek-lock; the tag of a delivery is its lock token, little-endian bytes."""

    __slots__ = ("_drained", "_granted")
    link: ReceiverLink

    def __init__(self, line: LinkConnection, path: str, on_lost: OnLost) -> None:
        super().__init__(line, path, on_lost)
        self._granted = False
        self._drained: asyncio.Future[None] | None = None

    @property
    def is_drained(self) -> bool:
        """Whether the namespace has answered the drain of `detach`: no message is on its way."""
        return self._drained is not None and self._drained.done() and self.failure is None

    @property
    def credit(self) -> int:
        """Messages that the namespace may still send."""
        return self.link.credit

    def grant(self, credit: int, *, drain: bool = False, properties: dict[Any, Any] | None = None) -> None:
        """Let the namespace send `credit` more messages; messages in flight arrive as well.

        drain: it sends what it has and returns the rest of the credit; the flow with its answer has `drain` too.
        """
        self._granted = True
        self.link.flow(credit, drain=drain, properties=properties)
        self.line.touch()

    async def detach(self, timeout: float = CLOSING) -> None:
        """Withdraw the credit, wait for messages in flight, then detach; each step within `timeout` seconds.

        `on_delivery` gets these messages while it can still release them: a message on a detached link stays locked
        until its lock expires. Never raises and never calls `on_lost`.
        """
        self._on_lost = _ignore
        if self.is_up and self._granted:
            self._drained = asyncio.get_running_loop().create_future()
            self.link.flow(0, drain=True)
            self.line.touch()
            await asyncio.wait((self._drained,), timeout=timeout)
        await super().detach(timeout)

    def settle(self, deliveries: int | range, state: DeliveryState, *, settled: bool = True) -> None:
        """Settle deliveries by their ids; neighbours with equal states share a frame.

        settled: final. Otherwise the namespace answers each with its own outcome, through `on_settled`.

        Raises:
            EncodeError: the state does not fit a frame.
        """
        self.link.settle(deliveries, state, settled=settled)
        line = self.line
        if not line.will_write:
            line.touch()

    # called by the connection

    def on_flow(self, event: FlowReceived) -> None:
        super().on_flow(event)
        if event.drain:
            self._end_drain()

    def _end_drain(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def end(self, error: WireError) -> None:
        super().end(error)
        self._end_drain()
