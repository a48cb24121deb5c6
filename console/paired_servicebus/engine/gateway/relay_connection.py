"""The primary's side of one client's connection: opened with its first relayed link, and again after a loss.

Everything relayed goes to the primary, whether an entity has failed over or not. While the primary is away, an attach
is tried again for 50 seconds before it is refused, or as long as its client waits if that is less. Older clients loop
tightly on fast refusals; JavaScript waits 30 seconds after each, and would be back long after the primary. Nothing is
read from the primary while the client has no room for it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from typing import Any, Final, TypeVar

from paired_servicebus.core.errors import WireConnectionError, WireError, WireLinkError
from paired_servicebus.core.model.verdict import FailureKind, kind_of
from paired_servicebus.engine.gateway.send_refusals import refusal_of_send
from paired_servicebus.pairing.amqp_client.endpoint import Endpoint
from paired_servicebus.pairing.amqp_client.reconnecting import Backoff, ReconnectingConnection
from paired_servicebus.pairing.runtime.deadlines import CLOSING, end_all
from servicebus_amqp.encoding.performatives import Error
from servicebus_amqp.nodes.request_ends import AmqpRefusal, error_of
from servicebus_amqp.protocol.links import SenderLink
from servicebus_amqp.protocol_errors import Condition

IDLE_SECONDS: Final = 20.0
"""Seconds within which the primary must send something; a silent one holds receivers no longer."""
CONNECTING_SECONDS: Final = 5.0
ATTACHING_SECONDS: Final = 10.0
HOLDING_SECONDS: Final = 50.0
"""Seconds for which an attach waits for a primary that is away; Java and JavaScript wait 60 themselves."""
LAST_TRY_SECONDS: Final = 1.0
"""Seconds that a try has at least, so that an attach ends so long after its time at most."""
MAX_WAITING_BYTES: Final = 1024 * 1024
"""Bytes that wait for the client of one link before nothing more is read from the primary."""
_RETRY_SECONDS: Final = 0.25
"""Seconds between tries of one attach; the connection's own pauses are longer after a while."""
_MAX_PAUSE: Final = 2.0
_ANSWERS: Final = (FailureKind.NOT_FOUND, FailureKind.UNAUTHENTICATED, FailureKind.UNAUTHORIZED)
"""Failures that a primary answers with, besides the refusal of a link."""

T = TypeVar("T")


class RelayConnection(ReconnectingConnection):
    """One client's connection to the primary, with the engine's own credential. Its tasks end with it."""

    def __init__(self, endpoint: Endpoint, *, holding: float = HOLDING_SECONDS) -> None:
        super().__init__(
            endpoint,
            name="paired-gateway",
            idle_timeout=IDLE_SECONDS,
            backoff=Backoff(random.random, first=_RETRY_SECONDS, most=_MAX_PAUSE),
            connecting=CONNECTING_SECONDS,
        )
        self._holding = holding
        self._work: set[asyncio.Task[None]] = set()
        self._full: set[Callable[[], bool]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task of a link."""
        task = asyncio.get_running_loop().create_task(work, name=f"relay to {self.endpoint.hostname}")
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    async def close(self) -> None:
        await end_all(tuple(self._work), CLOSING)
        await super().close()

    def replace_if_silent(self, since: tuple[int, int], waited: float, failure: WireError) -> None:
        """Do nothing: receivers stay, and a silent primary ends them by its idle time."""

    async def persist(
        self, attempt: Callable[[float], Awaitable[T]], timeout: float = ATTACHING_SECONDS, patience: float = inf
    ) -> T:
        """Make an attempt; a primary that is away is tried again for a while. Raises WireError.

        An attach for the next session may be answered later than that: the primary waits for a message.

        attempt: gets its seconds, at most `timeout`. patience: seconds for which the client waits.
        """
        loop = asyncio.get_running_loop()
        last = loop.time() + min(self._holding, patience)
        ends = last if timeout <= ATTACHING_SECONDS else max(last, loop.time() + timeout)
        seconds = timeout
        while True:
            try:
                return await attempt(seconds)
            except WireError as error:
                left = last - loop.time()
                if left <= 0 or is_answer(error):
                    raise
                await asyncio.sleep(min(left, _RETRY_SECONDS))
            seconds = min(timeout, max(LAST_TRY_SECONDS, ends - loop.time()))

    # -- room of the client -----------------------------------------------------------------------------------

    def hold_back(self, is_full: Callable[[], bool]) -> None:
        """Read nothing more until `is_full` is no longer so, as `relieve` finds."""
        self._full.add(is_full)
        self._hold_reading(True)

    def relieve(self) -> None:
        """Read again if there is room for it."""
        if self._full:
            self._full = {is_full for is_full in self._full if is_full()}
            self._hold_reading(bool(self._full))

    def _hold_reading(self, held: bool) -> None:
        if self._line is not None:
            self._line.hold_reading(held)


class WaitingMessages:
    """Messages of the primary that wait for a client's credit or window; if many bytes do, no more are read.

    relay: returns the connection to the primary, which there may be none of before.
    """

    def __init__(self, link: SenderLink, relay: Callable[[], RelayConnection]) -> None:
        self._link = link
        self._relay = relay
        self._size = 0

    def count(self, size: int) -> None:
        """Count a message of `size` bytes that was sent on the link, if it waits there."""
        if self._link.waiting:
            self._size = size if self._link.waiting == 1 else self._size + size
            if self._size > MAX_WAITING_BYTES:
                self._relay().hold_back(self.is_full)

    def is_full(self) -> bool:
        return self._link.is_attached and self._link.waiting > 0


def is_answer(error: WireError) -> bool:
    """Return whether the primary answered with this error; otherwise it is away."""
    return isinstance(error, WireLinkError) or kind_of(error) in _ANSWERS


def refusal_of_relay(error: WireError) -> AmqpRefusal:
    """Return the refusal of a link or a request that the primary did not serve."""
    refusal = refusal_of_send(error)
    if kind_of(error) is FailureKind.NOT_FOUND:
        return AmqpRefusal(Condition.NOT_FOUND, refusal.description, 404)
    return refusal


def error_of_refusal(error: WireError) -> Error:
    """Return the error of a refused attach: the primary's own, or one that every client retries."""
    return _peers_error(error) or error_of(refusal_of_relay(error))


def error_of_end(error: WireError) -> Error | None:
    """Return the error of a detach: the primary's own; `detach-forced` if its connection was lost."""
    if isinstance(error, WireLinkError):
        return _peers_error(error)
    return Error(condition=Condition.DETACH_FORCED, description=refusal_of_send(error).description)


def _peers_error(error: WireError) -> Error | None:
    """Return the primary's error; a forced close of the connection would end the client's own."""
    found = error.peers_error if isinstance(error, WireLinkError) else None
    if not isinstance(found, Error):
        return None
    if found.condition == Condition.CONNECTION_FORCED:
        return Error(condition=Condition.DETACH_FORCED, description=found.description, info=found.info)
    return found


def closed_by_client(path: str) -> WireError:
    """Return the reason of a link that ends because the client's has."""
    return WireConnectionError(f"the client's link to {path} ended")
