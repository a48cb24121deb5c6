"""`python -m tests.bench gateway`: the same client at the namespace and behind a gateway, in turn.

Sandbox, gateway and flooding client have a process each; the client of single sends is this process. Both ways take
turns, so that other load of the machine affects both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from time import perf_counter
from typing import Final

from paired_servicebus.bench.amqp_loads import SampleMessages, copy, flooding, open_wire
from paired_servicebus.bench.bench_namespaces import PRIMARY, SECONDARY, open_sandbox
from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.core.errors import WireError
from paired_servicebus.pairing.amqp_client import ReconnectingConnection, WireSender
from paired_servicebus.sandbox_process import SandboxProcess
from servicebus_amqp.encoding.performatives import ACCEPTED
from servicebus_amqp.protocol.links import DispositionReceived
from tests.bench.developer_plans import GatewayPlan
from tests.bench.gateway.flood_process import flooder
from tests.bench.gateway.gateway_figures import (
    DrainTimes,
    FloodLap,
    FloodRate,
    GatewayFigures,
    IdleClients,
    SendTimes,
)
from tests.bench.gateway.gateway_process import GatewayOrder, GatewayProcess, gateway_process
from tests.bench.process_usage import allow_connections, cpu_seconds, resident_bytes

QUEUE: Final = "bench-sends"
FLOODED: Final = "bench-flooded"
TAKEN: Final = "bench-taken"
DRAINED: Final = "bench-drained"
NAME: Final = "bench"
"""The primary's name in the paths of the backlog queues."""
BACKLOG: Final = f"{NAME}/x-servicebus-transfer/0"
CONNECTING: Final = 50
"""Connections opened at the same time."""
ANSWER: Final = 30.0
"""Seconds for one answer on a busy machine."""
WARM: Final = 50
"""Sends before the measured ones."""
TURN: Final = 20
"""Sends of one way before it is the other's turn."""


async def measure_gateway(plan: GatewayPlan) -> GatewayFigures:
    """Return all figures. Raises BenchError."""
    allow_connections(plan.connections)
    async with open_sandbox((QUEUE, FLOODED, TAKEN, DRAINED), (BACKLOG,)) as sandbox:
        async with gateway_process(_order(sandbox, plan, syphon=False)) as gateway:
            direct, through = await _sequential(sandbox, gateway, plan)
            floods = await _floods(sandbox, gateway, plan)
            takes = await _takes(sandbox, gateway, plan)
            idle = await _idle(gateway, plan)
        drain = await _drain(sandbox, plan)
    rates, taken = ([FloodRate.of([pair[way] for pair in laps]) for way in (0, 1)] for laps in (floods, takes))
    at, by = SendTimes.of(direct), SendTimes.of(through)
    return GatewayFigures(
        size=plan.size,
        rounds=plan.rounds,
        direct=at,
        through=by,
        added_ms=round(by.p50_ms - at.p50_ms, 3),
        added_p99_ms=round(by.p99_ms - at.p99_ms, 3),
        flood_direct=rates[0],
        flood=rates[1],
        flood_ratio=round(rates[1].per_second / rates[0].per_second, 3),
        taken_direct=taken[0],
        taken=taken[1],
        taken_ratio=round(taken[1].per_second / taken[0].per_second, 3),
        idle=idle,
        drain=drain,
    )


def _order(sandbox: SandboxProcess, plan: GatewayPlan, *, syphon: bool) -> GatewayOrder:
    return GatewayOrder(
        primary=sandbox.connection_string(PRIMARY),
        secondary=sandbox.connection_string(SECONDARY),
        ca_file=sandbox.ca_file,
        primary_name=NAME,
        connections=plan.connections,
        syphon=syphon,
    )


class _OneByOne:
    """A client that sends, each message after the answer to the one before."""

    def __init__(self, size: int) -> None:
        self._letters = SampleMessages(size)
        self._answers: asyncio.Queue[object] = asyncio.Queue()
        self._link: WireSender
        self._sent = 0

    async def open(self, wire: ReconnectingConnection) -> None:
        self._link = await wire.sender(QUEUE, on_outcome=self._answer, on_lost=self._answers.put_nowait)
        await self.send(WARM)

    async def send(self, count: int) -> list[float]:
        """Return the milliseconds of each send. Raises BenchError."""
        took = []
        for _ in range(count):
            self._sent += 1
            began = perf_counter()
            self._link.send(self._letters.next(), self._sent.to_bytes(4, "big"))
            async with asyncio.timeout(ANSWER):
                state = await self._answers.get()
            took.append(1000 * (perf_counter() - began))
            if state != ACCEPTED:
                raise BenchError(f"a message was not accepted: {state}")
        return took

    def _answer(self, event: DispositionReceived) -> None:
        self._answers.put_nowait(event.state)


@asynccontextmanager
async def _in_turn(
    sandbox: SandboxProcess, *gateways: GatewayProcess, size: int
) -> AsyncIterator[list[tuple[_OneByOne, list[float]]]]:
    """Yield open clients, directly and through each gateway, with a list for the times of each."""
    ways: list[tuple[_OneByOne, list[float]]] = []
    async with AsyncExitStack() as stack:
        for client in (sandbox.client(PRIMARY), *(gateway.client() for gateway in gateways)):
            sender = _OneByOne(size)
            await sender.open(await stack.enter_async_context(open_wire(client)))
            ways.append((sender, []))
        yield ways


async def _sequential(
    sandbox: SandboxProcess, gateway: GatewayProcess, plan: GatewayPlan
) -> tuple[list[float], list[float]]:
    """Return the milliseconds of sends directly and through the gateway, which take short turns."""
    async with _in_turn(sandbox, gateway, size=plan.size) as ways:
        turn = min(TURN, plan.messages)
        for _ in range(0, plan.messages * plan.rounds, turn):
            for sender, took in ways:
                took += await sender.send(turn)
    return ways[0][1], ways[1][1]


async def _floods(
    sandbox: SandboxProcess, gateway: GatewayProcess, plan: GatewayPlan
) -> list[tuple[FloodLap, FloodLap]]:
    """Return the laps directly and through the gateway, in turn."""
    strings = (sandbox.connection_string(PRIMARY), gateway.connection_string)
    return [(await _flood(strings[0], plan, None), await _flood(strings[1], plan, gateway)) for _ in range(plan.rounds)]


async def _flood(connection_string: str, plan: GatewayPlan, gateway: GatewayProcess | None) -> FloodLap:
    """Flood from another process. The gateway's CPU includes the first messages, which start the flood's clock."""
    before = 0.0 if gateway is None else cpu_seconds(gateway.pid)
    async with flooder(connection_string, FLOODED, plan.size) as flood:
        await asyncio.sleep(plan.flood_seconds)
        done = await flood.stop()
    used = 0.0 if gateway is None else cpu_seconds(gateway.pid) - before
    return FloodLap(messages=done.messages, seconds=done.seconds, gateway_seconds=used)


async def _takes(
    sandbox: SandboxProcess, gateway: GatewayProcess, plan: GatewayPlan
) -> list[tuple[FloodLap, FloodLap]]:
    """Receive and complete in turn what is filled in before."""
    async with (
        open_wire(sandbox.client(PRIMARY)) as direct,
        open_wire(gateway.client()) as through,
        flooding(direct, TAKEN, SampleMessages(plan.size)) as flood,
    ):
        laps = []
        for _ in range(plan.rounds):
            await flood.run(2 * plan.taken)
            laps.append((await _take(direct, plan, None), await _take(through, plan, gateway)))
        return laps


async def _take(wire: ReconnectingConnection, plan: GatewayPlan, gateway: GatewayProcess | None) -> FloodLap:
    before = 0.0 if gateway is None else cpu_seconds(gateway.pid)
    lap = await copy(wire, TAKEN, count=plan.taken)
    used = 0.0 if gateway is None else cpu_seconds(gateway.pid) - before
    return FloodLap(messages=lap.messages, seconds=lap.seconds, gateway_seconds=used)


async def _idle(gateway: GatewayProcess, plan: GatewayPlan) -> IdleClients:
    async with AsyncExitStack() as stack:
        before = resident_bytes(gateway.pid)
        wires = [
            await stack.enter_async_context(open_wire(gateway.client(), idle_timeout=plan.idle_timeout))
            for _ in range(plan.connections)
        ]
        for first in range(0, plan.connections, CONNECTING):
            await asyncio.gather(*(_attach_idle(wire) for wire in wires[first : first + CONNECTING]))
        used, wall = cpu_seconds(gateway.pid), perf_counter()
        await asyncio.sleep(plan.idle_seconds)
        used, wall = cpu_seconds(gateway.pid) - used, perf_counter() - wall
        after = resident_bytes(gateway.pid)
        if lost := next((wire for wire in wires if not wire.is_up), None):
            raise BenchError(f"an idle client was lost: {lost.failure}")
    return IdleClients.of(
        plan.connections,
        seconds=wall,
        idle_timeout=plan.idle_timeout,
        before=before,
        after=after,
        cpu_seconds=used,
    )


async def _attach_idle(wire: ReconnectingConnection) -> None:
    def ignore(_: DispositionReceived | WireError) -> None:
        """Ignore: nothing is sent, and a lost link is found by its connection."""

    await wire.sender(QUEUE, on_outcome=ignore, on_lost=ignore)


async def _drain(sandbox: SandboxProcess, plan: GatewayPlan) -> DrainTimes:
    """Measure sends while the syphon beside the gateway drains a filled backlog."""
    parked = SampleMessages(plan.size, DRAINED)
    async with open_wire(sandbox.client(SECONDARY)) as wire, flooding(wire, BACKLOG, parked) as flood:
        await flood.run(plan.backlog)
    async with (
        sandbox.admin(PRIMARY) as admin,
        gateway_process(_order(sandbox, plan, syphon=True)) as gateway,
        gateway_process(_order(sandbox, plan, syphon=False)) as apart,
        _in_turn(sandbox, gateway, apart, size=plan.size) as ways,
    ):

        async def drained() -> int:
            return int((await admin.get_queue_runtime_properties(DRAINED)).total_message_count or 0)

        gateway.drain()
        first, began = await drained(), perf_counter()
        while (now := await drained()) < plan.backlog:
            for sender, took in ways:
                took += await sender.send(min(TURN, plan.messages))
        seconds = perf_counter() - began
    if not ways[0][1]:
        raise BenchError("the backlog was drained before the first send beside it: ask for more --backlog")
    direct, through, alone = (SendTimes.of(took) for _, took in ways)
    rate = round((now - first) / seconds, 1)
    return DrainTimes(direct=direct, through=through, apart=alone, drained=now - first, drained_per_second=rate)
