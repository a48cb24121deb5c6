"""A sender link of our own AMQP to one entity of the primary, with many sends in flight.

A send in flight is an entry with a callback: a task, a future and a timer for each would be most of its cost. One timer
serves the deadlines of all.

The senders of a gateway's clients share it. It attaches with its first send, again after a loss, and again after its
connection was replaced for its silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final

from paired_servicebus.core.errors import (
    PairingClosedError,
    WireConnectionError,
    WireError,
    WireOutcomeError,
    WireTimeoutError,
)
from paired_servicebus.pairing.amqp_client import ReconnectingConnection, WireSender, failure_of
from paired_servicebus.pairing.sending.shared_link import ConnectionCutError
from servicebus_amqp.protocol.protocol_events import DispositionReceived
from servicebus_amqp.protocol_errors import Condition, StateError

_TAG_BYTES: Final = 8

OnEnd = Callable[[WireError | None], None]
"""Gets the end of a send, inside the socket's read: None, or why it was not accepted. Must not raise."""


class _InFlight:
    """A send without an outcome. ends: in the loop's time. mark: what was received before it."""

    __slots__ = ("ends", "mark", "on_end", "timeout")

    def __init__(self, on_end: OnEnd, ends: float, timeout: float, mark: tuple[int, int]) -> None:
        self.on_end = on_end
        self.ends = ends
        self.timeout = timeout
        self.mark = mark


class _Attachment:
    """One life of the link, and its sends without an outcome.

    on_late: gets each send whose time is over, when it is no longer pending.
    """

    __slots__ = ("_due", "_on_late", "_timer", "link", "path", "pending")

    def __init__(self, path: str, on_late: Callable[[_Attachment, _InFlight], None]) -> None:
        self.path = path
        self.link: WireSender | None = None
        self.pending: dict[bytes, _InFlight] = {}
        self._on_late = on_late
        self._timer: asyncio.TimerHandle | None = None
        self._due = inf

    def add(self, tag: bytes, send: _InFlight) -> None:
        self.pending[tag] = send
        if send.ends < self._due:
            self._set(send.ends)

    def on_outcome(self, event: DispositionReceived) -> None:
        send = self.pending.pop(event.tag, None)
        if send is not None:
            send.on_end(failure_of(event.state, self.path))

    def on_lost(self, error: WireError) -> None:
        pending, self.pending = self.pending, {}
        if self._timer is not None:
            self._timer.cancel()
        for send in pending.values():
            send.on_end(error)

    def _set(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due = asyncio.get_running_loop().call_at(when, self._look), when

    def _look(self) -> None:
        """End the sends whose time is over; the timer of one that ended in time finds the others'."""
        self._timer, self._due = None, inf
        now = asyncio.get_running_loop().time()
        for tag, send in [(tag, send) for tag, send in self.pending.items() if send.ends <= now]:
            if self.pending.pop(tag, None) is not None:  # else the end of another one has ended it
                self._on_late(self, send)
        if self.pending:
            self._set(min(send.ends for send in self.pending.values()))


class EncodedLink:
    """The link; its callers need not take turns.

    Args:
        wire: the primary's connection; not closed here.
        path: the entity's path, a queue or a topic.
    """

    def __init__(self, wire: ReconnectingConnection, path: str) -> None:
        self.path = path
        self._wire = wire
        self._attachment: _Attachment | None = None
        self._attaching = asyncio.Lock()
        self._sent = 0
        self._closed = False

    @property
    def is_open(self) -> bool:
        attachment = self._attachment
        return attachment is not None and attachment.link is not None and self._wire.carries(attachment.link)

    @property
    def limits(self) -> tuple[int, int] | None:
        """Bytes of the largest message and of the largest batch, by the latest attach; None before the first."""
        link = None if self._attachment is None else self._attachment.link
        return None if link is None else (link.max_message_size, link.max_batch_size)

    async def open(self, timeout: float) -> None:
        """Attach unless it is attached. Raises WireError, PairingClosedError."""
        await self._attached(timeout)

    async def send(self, data: bytes, message_format: int, timeout: float) -> None:
        """Send one encoded message, or a batch, within `timeout` seconds; on return it is accepted.

        Raises:
            WireOutcomeError: the entity refused it, or it is larger than the link admits.
            WireTimeoutError: no outcome in time.
            ConnectionCutError: the connection ended during the send.
            WireError: the link or the connection failed.
            PairingClosedError: the pairing ends.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout
        attachment = await self._attached(timeout)
        assert attachment.link is not None, "attached above"
        largest = attachment.link.max_message_size
        if len(data) > largest:
            text = f"the message has {len(data)} bytes, {self.path} accepts {largest}"
            raise WireOutcomeError(text, Condition.MESSAGE_SIZE_EXCEEDED)
        outcome: asyncio.Future[WireError | None] = loop.create_future()
        try:
            send = _InFlight(partial(_resolve, outcome), ends, timeout, self._wire.received)
            tag = self._put(attachment, data, message_format, send)
        except StateError as error:
            raise WireConnectionError(f"{self.path}: {error}") from error
        try:
            failure = await outcome
        finally:
            attachment.pending.pop(tag, None)
        if failure is not None:
            raise self.error_of(failure)

    def put(self, data: bytes, message_format: int, timeout: float, on_end: OnEnd, *, began: float) -> bool:
        """Send as `send`, without a wait; return False, with nothing done, if the link is not ready for it.

        on_end: called once, later. began: the loop's present time.
        """
        attachment = self._attachment
        if attachment is None or attachment.link is None or self._closed or not self._wire.carries(attachment.link):
            return False
        if len(data) > attachment.link.max_message_size:
            return False
        self._put(attachment, data, message_format, _InFlight(on_end, began + timeout, timeout, self._wire.received))
        return True

    def error_of(self, failure: WireError) -> Exception:
        """Return the error that `send` raises for this end of a send."""
        if self._closed:
            return self._closed_error(in_doubt=True)
        if not isinstance(failure, WireConnectionError):
            return failure
        cut = ConnectionCutError(message=str(failure))
        cut.__cause__ = failure
        return cut

    def retire(self) -> None:
        """Let the next send attach again; sends under way may finish on the present link, which is then detached."""
        attachment = self._attachment
        if attachment is not None and not attachment.pending:
            self.discard()

    def discard(self) -> None:
        """Detach; the next send attaches again. Sends under way get an error."""
        attachment, self._attachment = self._attachment, None
        if attachment is not None and attachment.link is not None:
            attachment.link.drop(WireError(f"the link to {self.path} was discarded"))

    def cut(self) -> None:
        """End the sends under way, which raise; later ones raise too."""
        self._closed = True
        if self._attachment is not None:
            closed = WireError(f"the link to {self.path} was closed during a send")
            self._attachment.on_lost(closed)

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _attached(self, timeout: float) -> _Attachment:
        self._refuse_when_closed()
        found = self._attachment
        if found is not None and self.is_open:
            return found
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout
        try:
            async with asyncio.timeout(timeout), self._attaching:
                if self._attachment is not None and self.is_open:
                    return self._attachment
                fresh = _Attachment(self.path, self._give_up)
                fresh.link = await self._wire.sender(
                    self.path, on_outcome=fresh.on_outcome, on_lost=fresh.on_lost, timeout=ends - loop.time()
                )
                self._refuse_when_closed()
                self._attachment = fresh
                return fresh
        except TimeoutError as error:
            if isinstance(error, WireError):
                raise
            raise WireTimeoutError(f"{self.path} was not attached within {timeout:g} s") from error

    def _put(self, attachment: _Attachment, data: bytes, message_format: int, send: _InFlight) -> bytes:
        """Return the tag of a send that is in flight now. Raises StateError."""
        assert attachment.link is not None, "the caller has seen it"
        self._sent += 1
        tag = self._sent.to_bytes(_TAG_BYTES, "big")
        attachment.link.send(data, tag, message_format=message_format)
        attachment.add(tag, send)
        return tag

    def _give_up(self, attachment: _Attachment, send: _InFlight) -> None:
        """End a late send; replace a silent connection, and drop a link whose waiting messages must not leave later."""
        link = attachment.link
        late = WireTimeoutError(f"{self.path} did not answer a send within {send.timeout:g} s")
        self._wire.replace_if_silent(send.mark, send.timeout, late)
        if link is not None and link.is_up and link.link.waiting:
            link.drop(WireError(f"the link to {self.path} was discarded"))
        send.on_end(late)

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise self._closed_error()

    def _closed_error(self, *, in_doubt: bool = False) -> PairingClosedError:
        return PairingClosedError(f"the pairing was closed: nothing is sent to {self.path}", in_doubt=in_doubt)


def _resolve(outcome: asyncio.Future[WireError | None], failure: WireError | None) -> None:
    if not outcome.done():
        outcome.set_result(failure)
