"""A gateway in a child process, over a pairing of two namespaces, until its standard input ends.

It has a process of its own so that its CPU time and memory are the gateway's alone.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import msgspec
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing, new_key
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from paired_servicebus.engine.service.main import tune_collector
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pairing import SendAvailabilityPairedNamespaceOptions, pair_namespaces
from tests.bench.child_process import child
from tests.bench.process_usage import allow_connections

SEND_TIMEOUT: Final = 10.0
"""A gateway's default, as is holding sends until the failover."""
BY: Final = "bench"
_DRAIN: Final = b"drain\n"


class GatewayOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The namespaces of a gateway, by connection strings.

    connections: of clients, at most. syphon: whether its pairing has one, which waits for `GatewayProcess.drain`.
    """

    primary: str
    secondary: str
    ca_file: str
    primary_name: str
    connections: int
    syphon: bool


class _Announced(msgspec.Struct, frozen=True):
    connection_string: str


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """A running gateway, by its first line."""

    connection_string: str
    pid: int
    orders: asyncio.StreamWriter

    def drain(self) -> None:
        """Let the syphon begin."""
        self.orders.write(_DRAIN)

    def client(self) -> ServiceBusClient:
        """Return a client of the gateway, without retries of its own."""
        return ServiceBusClient.from_connection_string(self.connection_string, retry_total=0)


_ANNOUNCED: Final = msgspec.json.Decoder(_Announced)


@asynccontextmanager
async def gateway_process(order: GatewayOrder) -> AsyncIterator[GatewayProcess]:
    """Yield a running gateway and end it. Raises BenchError if it does not start."""
    async with child(__name__, order=msgspec.json.encode(order) + b"\n") as gateway:
        try:
            announced = read_json(_ANNOUNCED, gateway.first)
        except UnreadableError as error:
            raise BenchError("the measured gateway did not start; its reason is above") from error
        yield GatewayProcess(announced.connection_string, gateway.process.pid, gateway.orders)


async def _serve(order: GatewayOrder, stop: asyncio.StreamReader) -> None:
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=ServiceBusAdministrationClient.from_connection_string(
            order.secondary, connection_verify=order.ca_file
        ),
        secondary_client=ServiceBusClient.from_connection_string(order.secondary, retry_total=0),
        primary_name=order.primary_name,
        backlog_queue_count=1,
        send_timeout=SEND_TIMEOUT,
        hold_until_failover=True,
        enable_syphon=order.syphon,
    )
    primary = ServiceBusClient.from_connection_string(order.primary, retry_total=0)
    async with await pair_namespaces(primary, options) as paired:
        if order.syphon:
            paired.pause_syphon(by=BY)
        key = new_key("bench", [GatewayRight.SEND, GatewayRight.LISTEN])
        gateway = Gateway(paired, KeyRing([key]))
        await gateway.listen(0)
        tune_collector()
        sys.stdout.buffer.write(msgspec.json.encode(_Announced(gateway.connection_string(key))) + b"\n")
        sys.stdout.buffer.flush()
        while await stop.readline():
            paired.resume_syphon(by=BY)
        await gateway.close(1.0)


async def _main() -> None:
    stop = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stop), sys.stdin)
    order = msgspec.json.decode(await stop.readline(), type=GatewayOrder)
    allow_connections(order.connections)
    await _serve(order, stop)


if __name__ == "__main__":
    asyncio.run(_main())
