"""Links of a line as their owners see them: a sender into an entity, a receiver out of one.

A link lives once. It ends with one call of `on_lost`, or with none where its owner detached it, and is dead then;
another one is asked for. Bookkeeping of what is outstanding is the owner's: a message whose link was lost may have
been accepted or not. Callbacks run inside the socket's read and must neither block nor raise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from paired_servicebus.core.errors import WireError
from paired_servicebus.pairing.runtime.deadlines import CLOSING
from servicebus_amqp.encoding.delivery_states import DeliveryState
from servicebus_amqp.encoding.message_sections import BATCH_FORMAT
from servicebus_amqp.protocol.link_receiver import ReceiverLink
from servicebus_amqp.protocol.link_sender import Payload, SenderLink
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived, LinkEnd

__all__ = ["BATCH_FORMAT", "WireReceiver", "WireSender"]

MIB: Final = 1024 * 1024
STANDARD_BATCH: Final = 256 * 1024
_BATCH_SIZE: Final = "com.microsoft:max-message-batch-size"

OnOutcome = Callable[[DispositionReceived], None]
OnDelivery = Callable[[DeliveryReceived], None]
OnLost = Callable[[WireError], None]
OnRoom = Callable[[], None]


def _ignore(error: WireError) -> None:
    """Whoever detaches a link needs no word that it is gone."""


class LinkConnection(Protocol):
    """The connection of a link, a `ClientConnection`."""

    will_write: bool
    is_writable: bool

    def touch(self) -> None: ...
    def collect(self, size: int) -> None: ...
    def forget(self, link: LinkEnd) -> None: ...


class _WireLink:
    """What both ends have in common. Made by a line, never directly."""

    __slots__ = ("_answered", "_ended", "_on_lost", "failure", "is_established", "line", "link", "path")
    link: SenderLink | ReceiverLink

    def __init__(self, line: LinkConnection, path: str, on_lost: OnLost) -> None:
        self.line = line
        self.path = path
        self.failure: WireError | None = None
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
        """As the namespace knows it."""
        return self.link.name

    def drop(self, error: WireError) -> None:
        """Give the link up now: it is detached without waiting, and `on_lost` is told `error`."""
        if self.failure is None and self._ended is None:
            self.link.detach()
            self.line.touch()
            self.line.forget(self.link)
            self.end(error)

    async def detach(self, timeout: float = CLOSING) -> None:
        """Detach in order, within `timeout` seconds; never raises, and `on_lost` is not told."""
        if self.failure is not None or self._ended is not None:
            return
        self._ended = asyncio.get_running_loop().create_future()
        self.link.detach()
        self.line.touch()
        await asyncio.wait((self._ended,), timeout=timeout)
        self.line.forget(self.link)

    # what the line calls

    async def established(self) -> None:
        """Once the peer has answered the attach. Raises WireError for a no."""
        await self._answered
        if self.failure is not None:
            raise self.failure
        self.is_established = True

    def answer(self) -> None:
        """The attach was accepted."""
        if not self._answered.done():
            self._answered.set_result(None)

    def end(self, error: WireError) -> None:
        """The link is gone; tells whoever is concerned, once."""
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

    @property
    def max_message_size(self) -> int:
        """Bytes of one message that the entity takes, as it said when the link was attached."""
        return self.link.max_message_size or MIB

    @property
    def max_batch_size(self) -> int:
        """Bytes of a whole batch that the entity takes; by the rule of the SDK where it does not say."""
        remote = self.link.remote
        given = (remote.properties or {}).get(_BATCH_SIZE) if remote is not None else None
        if isinstance(given, int) and given > 0:
            return given
        return MIB if self.max_message_size >= MIB else STANDARD_BATCH

    @property
    def room(self) -> int:
        """How many messages would leave at once if they were sent now."""
        is_open = self.failure is None and self._ended is None and self.line.is_writable
        return self.link.credit if is_open else 0  # a link that is not attached has none

    def send(self, payload: Payload, tag: bytes, *, message_format: int = 0) -> None:
        """Send one encoded message, whole or in pieces; beyond `room` it waits in memory, in its order.

        tag: at most 32 bytes, unique among what is outstanding. message_format: BATCH_FORMAT for a batch.

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
    def credit(self) -> int:
        """How many messages the namespace may still send."""
        return self.link.credit

    def grant(self, credit: int) -> None:
        """Let the namespace send so many more messages from now on; what is under way comes all the same."""
        self._granted = True
        self.link.flow(credit)
        self.line.touch()

    async def detach(self, timeout: float = CLOSING) -> None:
        """Take the credit back, wait for the messages under way, then detach; each step within `timeout` seconds.

        `on_delivery` has each of them while it can still release it: a message that reaches a detached link stays
        locked until its lock expires. Never raises, and `on_lost` is not told.
        """
        self._on_lost = _ignore
        if self.is_up and self._granted:
            self._drained = asyncio.get_running_loop().create_future()
            self.link.flow(0, drain=True)
            self.line.touch()
            await asyncio.wait((self._drained,), timeout=timeout)
        await super().detach(timeout)

    def settle(self, deliveries: int | range, state: DeliveryState, *, settled: bool = True) -> None:
        """Say what became of deliveries, by their ids; neighbours of equal state leave as one frame.

        settled: said and done. Otherwise the namespace answers each with its own outcome, through `on_settled`.

        Raises:
            EncodeError: the state does not fit a frame.
        """
        self.link.settle(deliveries, state, settled=settled)
        line = self.line
        if not line.will_write:
            line.touch()

    # what the line calls

    def on_drained(self) -> None:
        """The namespace answered a drain."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def end(self, error: WireError) -> None:
        super().end(error)
        self.on_drained()
