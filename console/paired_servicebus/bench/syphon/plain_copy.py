"""The plain copy: the cost of copying messages from queue to queue on the pump's own AMQP, unchanged.

The loop receives, sends the same bytes and completes accepted messages. It opens no envelope and writes no receipt.
A pump is measured beside it in the same run, since its rate is the limit of the machine at that time.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from paired_servicebus.bench.sandbox_process import BenchError
from paired_servicebus.core.errors import WireError
from paired_servicebus.pairing.amqp_client import ReconnectingConnection, WireReceiver, WireSender, failure_of
from servicebus_amqp.encoding.messaging_types import ACCEPTED
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived

WINDOW: Final = 2500
"""Messages in flight; with fewer, the window would be the limit at 10 ms of latency."""
LONGEST: Final = 300.0
"""Seconds after which a copy counts as stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """A finished copy. cpu_seconds: of this whole process."""

    messages: int
    seconds: float
    cpu_seconds: float

    @property
    def cpu_us(self) -> float:
        """Return microseconds of CPU a message."""
        return 1e6 * self.cpu_seconds / self.messages


async def copy(
    source: ReconnectingConnection,
    source_path: str,
    target: ReconnectingConnection,
    target_path: str,
    *,
    count: int,
    window: int = WINDOW,
) -> CopyResult:
    """Copy `count` messages and complete them, confirmed by the source. Opening the links is not timed.

    Raises:
        BenchError: a message was not accepted, or a link was lost.
    """
    loop = _Loop(count, window)
    try:
        await loop.open(source, source_path, target, target_path)
        wall, cpu = time.perf_counter(), time.process_time()
        await loop.run()
        return CopyResult(messages=count, seconds=time.perf_counter() - wall, cpu_seconds=time.process_time() - cpu)
    except (WireError, TimeoutError) as error:
        raise BenchError(f"{source_path} was not copied to {target_path}: {error}") from error
    finally:
        await loop.close()
        if loop.settle_what_was_sent in target.after_read:
            target.after_read.remove(loop.settle_what_was_sent)


class _Loop:
    """Grants credit as messages are settled, so that at most a window of them is in flight."""

    _receiver: WireReceiver
    _sender: WireSender

    def __init__(self, count: int, window: int) -> None:
        self._links: list[WireReceiver | WireSender] = []
        self._unsettled = count
        self._ungranted = count
        self._window = window
        self._to_grant = 0
        self._deliveries: dict[bytes, int] = {}
        self._accepted: list[int] = []
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(
        self, source: ReconnectingConnection, source_path: str, target: ReconnectingConnection, target_path: str
    ) -> None:
        self._sender = await target.sender(target_path, on_outcome=self._on_outcome, on_lost=self._fail)
        self._links.append(self._sender)
        self._receiver = await source.receiver(
            source_path, on_delivery=self._on_delivery, on_settled=self._on_settled, on_lost=self._fail
        )
        self._links.append(self._receiver)
        target.after_read.append(self.settle_what_was_sent)

    async def run(self) -> None:
        self._grant(self._window)
        async with asyncio.timeout(LONGEST):
            await self._done

    async def close(self) -> None:
        for link in self._links:
            await link.detach()

    def _on_delivery(self, event: DeliveryReceived) -> None:
        self._deliveries[event.tag] = event.delivery_id
        self._sender.send(event.payload, event.tag)

    def _on_outcome(self, event: DispositionReceived) -> None:
        if event.state is not ACCEPTED and (failure := failure_of(event.state, self._sender.path)) is not None:
            self._fail(failure)
            return
        self._accepted.append(self._deliveries.pop(event.tag))

    def settle_what_was_sent(self) -> None:
        """Settle accepted messages after each read from the target."""
        if self._accepted:
            settle = self._receiver.settle
            for delivery_id in self._accepted:
                settle(delivery_id, ACCEPTED, settled=False)
            self._accepted.clear()

    def _on_settled(self, event: DispositionReceived) -> None:
        self._unsettled -= 1
        self._to_grant += 1
        if not self._unsettled and not self._done.done():
            self._done.set_result(None)
        elif 4 * self._to_grant >= self._window:
            self._grant(self._to_grant)

    def _grant(self, more: int) -> None:
        more = min(more, self._ungranted)
        self._to_grant = 0
        if more:
            self._ungranted -= more
            self._receiver.grant(self._receiver.credit + more)

    def _fail(self, error: WireError) -> None:
        if not self._done.done():
            self._done.set_exception(error)
