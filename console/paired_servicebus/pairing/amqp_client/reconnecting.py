"""A namespace's connection: opened with the first link, opened again after a loss, shared by all links.

Each wait here has its own deadline. After a failed connect the next try waits for a pause, and callers get the failure
immediately meanwhile. An unanswered request ends the connection if nothing else was received either, since the peer may
be gone unnoticed. A connection that sends share is replaced instead: what is in flight on it keeps its own time.

At the end are typed requests to an entity's `$management`. The service limits their size.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeVar, Unpack
from uuid import UUID

from paired_servicebus.core.errors import WireConnectionError, WireError, WireRequestError, WireTimeoutError
from paired_servicebus.pairing.amqp_client.client_connection import (
    IDLE_TIMEOUT,
    MANAGEMENT,
    AfterRead,
    ClientConnection,
    ReceiverOptions,
    RequestChannel,
    SenderOptions,
    WireReceiver,
    WireSender,
    reply_of,
)
from paired_servicebus.pairing.amqp_client.endpoint import SOCKET_ERROR, Endpoint, is_idle_detach
from paired_servicebus.pairing.runtime.deadlines import CLOSING, GRACE, bounded, end_all
from servicebus_amqp.encoding.codec import Array, Int, UInt
from servicebus_amqp.encoding.performatives import DeliveryState
from servicebus_amqp.nodes.request_ends import NodeReply, write_request

FIRST_PAUSE: Final = 1.0
MAX_PAUSE: Final = 30.0
HEALTHY: Final = 30.0
"""Seconds of life after which a link or a connection counts as a success."""


class Backoff:
    """Pauses in seconds that double from `first` to `most`, each shortened by a random share up to a half.

    draw: returns a number from 0 up to, not including, 1.
    """

    def __init__(
        self, draw: Callable[[], float] = random.random, *, first: float = FIRST_PAUSE, most: float = MAX_PAUSE
    ) -> None:
        self._draw = draw
        self._first = first
        self._most = most
        self._next = first

    def next(self) -> float:
        pause = self._next * (1.0 - self._draw() / 2)
        self._next = min(self._most, 2 * self._next)
        return pause

    def reset(self) -> None:
        """Start again with the first pause."""
        self._next = self._first


CONNECTING: Final = 15.0
ATTACHING: Final = 30.0
REQUESTING: Final = 30.0
"""Seconds for a connection, for a link, and for a request."""
SILENCE: Final = 5.0
"""Seconds of a wait without an answer after which a shared connection counts as silent; `connecting` if that is less.
A wait may be shorter by a tenth, which its caller spent before."""

T = TypeVar("T")


class ReconnectingConnection:
    """One namespace. It connects with the first link.

    Args:
        endpoint: the namespace's address and our credential.
        name: the beginning of our container's name, for the namespace's diagnostics.
        clock: seconds since 1970, for the expiry of tokens.
        idle_timeout: seconds within which the namespace must send something.
        backoff: pauses between tries; None: the usual ones.
        connecting: seconds for one try to connect.
        shared: whether sends of many callers share it. They wait for the pause after a loss (never after a failed
            connect), and a silent connection is replaced.

    after_read: called after a read's callbacks and before its bytes leave, when delayed messages have room again, and
    once when the connection is lost. failure: the reason of a missing connection; None while connected, and before the
    first try. connections: number of connections so far.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        name: str = "console",
        clock: Callable[[], float] = time.time,
        idle_timeout: float = IDLE_TIMEOUT,
        backoff: Backoff | None = None,
        connecting: float = CONNECTING,
        shared: bool = False,
    ) -> None:
        self.endpoint = endpoint
        self.after_read: list[AfterRead] = []
        self.failure: WireError | None = None
        self.connections = 0
        self._name = name
        self._clock = clock
        self._idle_timeout = idle_timeout
        self._backoff = backoff or Backoff()
        self._seconds = connecting
        self._is_shared = shared
        self._was_lost = False
        """Whether the pause follows a loss, and not a failed connect."""
        self._not_before = 0.0
        self._line: ClientConnection | None = None
        self._replaced: set[ClientConnection] = set()
        """Silent connections with sends in flight."""
        self._connecting: asyncio.Task[ClientConnection] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<ReconnectingConnection to {self.endpoint}, {'up' if self.is_up else f'down: {self.failure}'}>"

    @property
    def is_up(self) -> bool:
        return self._line is not None and not self._line.lost.done()

    @property
    def is_writable(self) -> bool:
        """Whether messages sent now would leave soon."""
        return self._line is not None and self._line.is_writable

    @property
    def pause(self) -> float:
        """Seconds until it may connect again; 0 while it is up."""
        return 0.0 if self.is_up else max(0.0, self._not_before - asyncio.get_running_loop().time())

    @property
    def received(self) -> tuple[int, int]:
        """A mark of what was received so far, for `replace_if_silent`."""
        return self.connections, 0 if self._line is None else self._line.reads

    def carries(self, link: WireSender) -> bool:
        """Return whether a link is up, on the present connection."""
        return link.is_up and link.line is self._line

    def replace_if_silent(self, since: tuple[int, int], waited: float, failure: WireError) -> None:
        """Replace the connection if nothing was received for `waited` seconds, since the mark: the peer may be gone.

        A shorter wait is no silence. Later links use a new connection; the old one is cut when no send can be left.
        """
        line = self._line
        if line is None or not self.is_up or self.received != since:
            return
        if waited < 0.9 * min(SILENCE, self._seconds - GRACE):
            return
        self._line = None
        self._replaced.add(line)
        ending = asyncio.get_running_loop().call_later(self._seconds, line.drop, failure)

        def ended(_: object) -> None:
            ending.cancel()
            self._replaced.discard(line)

        line.lost.add_done_callback(ended)

    def hold(self) -> ClientConnection | None:
        """Collect writes until the returned connection's `flush`; None if there is nothing to hold back."""
        line = self._line
        if line is None or line.will_write or not self.is_up:
            return None
        line.will_write = True
        return line

    async def sender(self, path: str, *, timeout: float = ATTACHING, **options: Unpack[SenderOptions]) -> WireSender:
        """Attach a link to a queue or topic. Raises WireError."""
        return await self._attach_link(path, lambda line: line.attach_sender(path, **options), timeout)

    async def receiver(
        self, path: str, *, timeout: float = ATTACHING, **options: Unpack[ReceiverOptions]
    ) -> WireReceiver:
        """Attach a peek-lock link from a queue or subscription, without credit. Raises WireError."""
        return await self._attach_link(path, lambda line: line.attach_receiver(path, **options), timeout)

    async def _attach_link(self, path: str, attach: Callable[[ClientConnection], Awaitable[T]], timeout: float) -> T:
        async def act(line: ClientConnection) -> T:
            await line.authorizer.authorize(path)
            return await attach(line)

        return await self.run(act, timeout, f"attaching to {path}")

    async def request(
        self,
        path: str,
        operation: str,
        body: dict[str, Any],
        *,
        timeout: float = REQUESTING,
        state: DeliveryState | None = None,
    ) -> NodeReply:
        """Send a request to an entity's `$management`, such as `com.microsoft:peek-message`.

        body: values of servicebus_amqp.encoding.codec where Python's own types differ. state: of its transaction.

        Raises:
            WireRequestError: the answer is a failure.
            WireError: there was no answer.
        """
        properties: dict[str, Any] = {
            "operation": operation,
            "type": "entity-mgmt",
            "com.microsoft:server-timeout": UInt(round(1000 * timeout)),
        }

        request = partial(write_request, reply_to=path + MANAGEMENT, properties=properties, body=body)
        reply = reply_of(await self.exchange(path, operation, request, timeout=timeout, state=state))
        if not reply.is_success:
            text = f"{path} answered {operation} with {reply.status} {reply.description}"
            raise WireRequestError(text, reply.condition, status=reply.status)
        return reply

    async def exchange(
        self,
        path: str,
        operation: str,
        request: Callable[[str], bytes],
        *,
        timeout: float = REQUESTING,
        state: DeliveryState | None = None,
    ) -> bytes:
        """Send a request to an entity's `$management`; return the bytes of its reply. Raises WireError.

        request, state: as of `RequestChannel.exchange`.
        """

        async def ask(line: ClientConnection) -> bytes:
            return await (await self.management(line, path)).exchange(request, state)

        return await self.run(ask, timeout, f"{operation} on {path}")

    @staticmethod
    async def management(line: ClientConnection, path: str) -> RequestChannel:
        """Return the channel to an entity's `$management`; open it if necessary. Raises WireError."""
        await line.authorizer.authorize(path)
        return await line.requests(path + MANAGEMENT)

    async def close(self) -> None:
        """Close the connection cleanly, within seconds. Its links end, with a call of `on_lost` each."""
        self._is_closed = True
        if self._connecting is not None:
            await end_all((self._connecting,), CLOSING)
        for line in (self._line, *self._replaced):
            if line is not None:
                await line.close()

    async def run(self, act: Callable[[ClientConnection], Coroutine[Any, Any, T]], timeout: float, name: str) -> T:
        """Run a dialogue on the connection within `timeout` seconds; name: of it, for the error. Raises WireError."""
        began = asyncio.get_running_loop().time()
        line = await self._connected(timeout)
        asks, mark = line.asks, (self.connections, line.reads)
        left = max(0.0, began + timeout - asyncio.get_running_loop().time())
        try:
            return await bounded(act(line), left, name)
        except WireError:
            raise
        except TimeoutError as error:
            failure = WireTimeoutError(f"{name} was not answered within {timeout:g} s by {self.endpoint}")
            if self._is_shared:
                self.replace_if_silent(mark, left, failure)
            elif line.reads == mark[1] and line.asks > asks:
                line.drop(failure)
            raise failure from error

    async def _connected(self, timeout: float) -> ClientConnection:
        """Return the connection; open it if necessary. Raises WireError."""
        if self._is_closed:
            raise WireConnectionError(f"this connection to {self.endpoint} was closed", SOCKET_ERROR)
        if self._line is not None and not self._line.lost.done():
            return self._line
        if self._connecting is None:
            if not (self._is_shared and self._was_lost):
                self._check_pause()
            self._connecting = asyncio.create_task(self._connect(), name=f"connect {self.endpoint.hostname}")
            self._connecting.add_done_callback(_retrieve)
        connecting = self._connecting
        await asyncio.wait((connecting,), timeout=timeout)
        if not connecting.done():
            raise WireTimeoutError(f"{self.endpoint} was not connected within {timeout:g} s")
        if connecting.cancelled():
            raise WireConnectionError(f"this connection to {self.endpoint} was closed", SOCKET_ERROR)
        return connecting.result()

    def _check_pause(self) -> None:
        pause = self.pause
        if pause and self.failure is not None:
            text = f"{self.failure}; the next try is in {pause:.0f} s"
            raise type(self.failure)(text, self.failure.condition) from self.failure

    async def _connect(self) -> ClientConnection:
        loop = asyncio.get_running_loop()
        line = ClientConnection(
            self.endpoint,
            name=self._name,
            clock=self._clock,
            after_read=self.after_read,
            idle_timeout=self._idle_timeout,
        )
        try:
            if self._is_shared:
                await asyncio.sleep(self._not_before - loop.time())
            await bounded(line.open(), self._seconds, f"connecting {self.endpoint}")
        except (WireError, TimeoutError) as error:
            self._was_lost = False
            self._not_before = loop.time() + self._backoff.next()
            self.failure = error if isinstance(error, WireError) else WireTimeoutError(str(error))
            raise self.failure from error
        finally:
            self._connecting = None
        self._line, self.failure = line, None
        self.connections += 1
        began = loop.time()
        line.lost.add_done_callback(lambda lost: self._on_lost(line, lost.result(), loop.time() - began))
        return line

    def _on_lost(self, line: ClientConnection, error: WireError, lived: float) -> None:
        if line is not self._line:  # it was replaced
            return
        self.failure, self._was_lost = error, True
        if lived >= HEALTHY or is_idle_detach(error):
            self._backoff.reset()  # and the next caller may connect immediately
        else:
            self._not_before = asyncio.get_running_loop().time() + self._backoff.next()


def _retrieve(connecting: asyncio.Task[ClientConnection]) -> None:
    """Retrieve the exception, which the waiting callers have, so that asyncio does not log it."""
    if not connecting.cancelled():
        connecting.exception()


# -- requests to an entity --------------------------------------------------------------------------------------------


_PEEK_LOCK: Final = UInt(1)
Status = Literal["completed", "abandoned", "defered", "suspended"]
"""The service's own spelling; suspended means dead-lettered."""


@dataclass(frozen=True, slots=True)
class DeferredState:
    """A deferred message, received again and locked."""

    lock_token: UUID
    payload: bytes


async def peek(
    wire: ReconnectingConnection, path: str, *, from_number: int, count: int, timeout: float = REQUESTING
) -> list[bytes]:
    """Return at most `count` encoded messages from a sequence number on, unlocked; [] at the end. Raises WireError."""
    body = {"from-sequence-number": from_number, "message-count": Int(count)}
    reply = await wire.request(path, "com.microsoft:peek-message", body, timeout=timeout)
    return [_field(entry, "message", bytes, path) for entry in _listed(reply.body, "messages", path)]


async def receive_deferred(
    wire: ReconnectingConnection, path: str, numbers: Sequence[int], *, timeout: float = REQUESTING
) -> list[DeferredState]:
    """Receive and lock deferred messages by number, all or none: a missing or locked one fails the request.

    Raises:
        WireRequestError: com.microsoft:message-not-found, among others.
    """
    body = {"sequence-numbers": Array.of(int, numbers), "receiver-settle-mode": _PEEK_LOCK}
    reply = await wire.request(path, "com.microsoft:receive-by-sequence-number", body, timeout=timeout)
    return [
        DeferredState(_field(entry, "lock-token", UUID, path), _field(entry, "message", bytes, path))
        for entry in _listed(reply.body, "messages", path)
    ]


async def update_disposition(
    wire: ReconnectingConnection,
    path: str,
    tokens: Sequence[UUID],
    status: Status,
    *,
    reason: str = "",
    description: str = "",
    timeout: float = REQUESTING,
) -> None:
    """Settle locked messages by lock token; reason and description are for dead letters. Raises WireError."""
    body: dict[str, Any] = {"disposition-status": status, "lock-tokens": Array.of(UUID, tokens)}
    if status == "suspended":
        body |= {"deadletter-reason": reason, "deadletter-description": description}
    await wire.request(path, "com.microsoft:update-disposition", body, timeout=timeout)


async def renew_locks(
    wire: ReconnectingConnection, path: str, tokens: Sequence[UUID], *, timeout: float = REQUESTING
) -> list[int]:
    """Renew locks; return their ends in milliseconds since 1970, in the order of the tokens. Raises WireError."""
    body = {"lock-tokens": Array.of(UUID, tokens)}
    reply = await wire.request(path, "com.microsoft:renew-lock", body, timeout=timeout)
    return [int(until) for until in _listed(reply.body, "expirations", path)]


def _listed(body: Any, name: str, path: str) -> list[Any]:
    """Return a list or array of a reply; [] without a body."""
    if body is None:
        return []
    found = body.get(name) if isinstance(body, dict) else None
    if isinstance(found, Array):
        return list(found.values)
    if not isinstance(found, list):
        raise WireError(f"{path} answered without the list '{name}'")
    return found


def _field(entry: Any, name: str, kind: type, path: str) -> Any:
    found = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(found, kind):
        raise WireError(f"{path} answered with an entry whose '{name}' is a {type(found).__name__}")
    return found
