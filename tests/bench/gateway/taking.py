"""A load on the pump's own AMQP that receives and completes the messages of a queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from paired_servicebus.bench.amqp_loads import WINDOW, Completing
from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.core.errors import WireError
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from servicebus_amqp.protocol.links import DeliveryReceived


class Taking(Completing):
    """Receives and completes messages."""

    def __init__(self, wire: ReconnectingConnection) -> None:
        super().__init__(wire, WINDOW)

    async def open(self, queue: str) -> None:
        """Attach the link."""
        self._receiver = await self._wire.receiver(
            queue, on_delivery=self._on_delivery, on_settled=self._on_settled, on_lost=self._end
        )
        self._links.append(self._receiver)
        self._wire.after_read.append(self._complete)

    async def run(self, count: int) -> None:
        """Take `count` messages. Raises WireError, TimeoutError."""
        await self._take(count)

    def _on_delivery(self, event: DeliveryReceived) -> None:
        self._to_complete.append(event.delivery_id)


@asynccontextmanager
async def taking(wire: ReconnectingConnection, queue: str) -> AsyncIterator[Taking]:
    """Yield a load whose link is open. Raises BenchError: the messages could not be taken."""
    load = Taking(wire)
    try:
        await load.open(queue)
        yield load
    except (WireError, TimeoutError) as error:
        raise BenchError(f"the messages of {queue} could not be taken: {error}") from error
    finally:
        await load.close()
