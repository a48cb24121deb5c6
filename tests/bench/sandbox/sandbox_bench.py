"""`python -m tests.bench sandbox`: ingest, moves, memory, idle links and round trips of the sandbox in a child process.

One measurement runs at a time, in the order in which the messages left by one disturb the next least.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from time import perf_counter
from typing import Final

from paired_servicebus.bench.amqp_loads import copying, flooding, open_wire
from paired_servicebus.bench.bench_namespaces import PRIMARY, open_sandbox
from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.bench.sample_messages import SampleMessages
from paired_servicebus.core.errors import WireError
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.sandbox_process import SandboxProcess
from servicebus_amqp.encoding.messaging_types import ACCEPTED
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived
from tests.bench.developer_plans import SandboxPlan
from tests.bench.process_usage import allow_connections, cpu_seconds, resident_bytes
from tests.bench.sandbox.flood_process import flooder
from tests.bench.sandbox.sandbox_figures import (
    IDLE_TARGET,
    INGEST_TARGET,
    MOVE_TARGET,
    IdleLinks,
    LoadRate,
    LoadRound,
    MemoryHeld,
    RoundTrip,
    SandboxFigures,
)
from tests.bench.sandbox.throttled_bench import measure_throttled

SOURCE: Final = "bench-source"
TARGET: Final = "bench-target"
HOLD: Final = "bench-hold"
BESIDE: Final = "bench-beside"
CONNECTING: Final = 50
"""Connections opened at the same time."""
MOST_MESSAGES: Final = 1000
MOST_BYTES: Final = 8 * 1024 * 1024
"""Messages and bytes in flight of a move, at most."""
ANSWER: Final = 30.0
"""Seconds for one answer of the namespace on a busy machine."""


async def measure_sandbox(plan: SandboxPlan) -> SandboxFigures:
    """Return all figures. Raises BenchError."""
    allow_connections(plan.links)
    async with open_sandbox((SOURCE, TARGET, HOLD, BESIDE)) as sandbox:
        idle = await _idle(sandbox, plan)
        ingest, move = await _ingest_and_move(sandbox, plan)
        round_trip = await _round_trip(sandbox, plan)
    async with open_sandbox((HOLD,)) as sandbox:
        held = await _held(sandbox, plan)
    return SandboxFigures(
        size=plan.size,
        ingest=ingest,
        move=move,
        held=held,
        idle=idle,
        round_trip=round_trip,
        throttled=await measure_throttled(plan),
    )


async def _ingest_and_move(sandbox: SandboxProcess, plan: SandboxPlan) -> tuple[LoadRate, LoadRate]:
    """Measure both in turn: each round of moves takes the messages of the ingest before it."""
    letters = SampleMessages(plan.size)
    taken, moved = [], []
    for _ in range(plan.rounds):
        taken.append(await _ingest(sandbox, SOURCE, letters, plan.messages_per_round))
        moved.append(await _move(sandbox, letters.size, plan.messages_per_round))
    return LoadRate.of(taken, INGEST_TARGET), LoadRate.of(moved, MOVE_TARGET)


async def _ingest(sandbox: SandboxProcess, queue: str, letters: SampleMessages, count: int) -> LoadRound:
    async with open_wire(sandbox.client(PRIMARY)) as wire, flooding(wire, queue, letters) as flood:
        return await _timed(sandbox, count, lambda: flood.run(count))


async def _move(sandbox: SandboxProcess, size: int, count: int) -> LoadRound:
    window = min(MOST_MESSAGES, count, max(1, MOST_BYTES // size))
    async with (
        open_wire(sandbox.client(PRIMARY)) as wire,
        copying(wire, SOURCE, wire, TARGET, count=count, window=window) as move,
    ):
        return await _timed(sandbox, count, move.run)


async def _timed(sandbox: SandboxProcess, count: int, run: Callable[[], Awaitable[None]]) -> LoadRound:
    server, client, wall = cpu_seconds(sandbox.pid), time.process_time(), perf_counter()
    await run()
    return LoadRound(
        messages=count,
        seconds=perf_counter() - wall,
        server_seconds=cpu_seconds(sandbox.pid) - server,
        client_seconds=time.process_time() - client,
    )


async def _held(sandbox: SandboxProcess, plan: SandboxPlan) -> MemoryHeld:
    empty = resident_bytes(sandbox.pid)
    await _ingest(sandbox, HOLD, SampleMessages(plan.size), plan.messages)
    return MemoryHeld.of(plan.messages, empty=empty, full=resident_bytes(sandbox.pid))


async def _idle(sandbox: SandboxProcess, plan: SandboxPlan) -> IdleLinks:
    async with AsyncExitStack() as stack:
        wires = [
            await stack.enter_async_context(open_wire(sandbox.client(PRIMARY), idle_timeout=plan.idle_timeout))
            for _ in range(plan.links)
        ]
        for first in range(0, plan.links, CONNECTING):
            await asyncio.gather(*(_attach_idle(wire) for wire in wires[first : first + CONNECTING]))
        server, wall = cpu_seconds(sandbox.pid), perf_counter()
        await asyncio.sleep(plan.idle_seconds)
        share = (cpu_seconds(sandbox.pid) - server) / (perf_counter() - wall)
        if lost := next((wire for wire in wires if not wire.is_up), None):
            raise BenchError(f"an idle link was lost: {lost.failure}")
    return IdleLinks(
        links=plan.links,
        seconds=plan.idle_seconds,
        idle_timeout=plan.idle_timeout,
        cpu_share=round(share, 5),
        target=IDLE_TARGET,
        reached=share < IDLE_TARGET,
    )


async def _attach_idle(wire: ReconnectingConnection) -> None:
    def ignore(_: DeliveryReceived | WireError) -> None:
        """Ignore: no message arrives, and a lost link is found by its connection."""

    (await wire.receiver(BESIDE, on_delivery=ignore, on_lost=ignore)).grant(10)


async def _round_trip(sandbox: SandboxProcess, plan: SandboxPlan) -> RoundTrip:
    connection_string = sandbox.connection_string(PRIMARY)
    async with flooder(connection_string, HOLD, plan.size) as flood, open_wire(sandbox.client(PRIMARY)) as wire:
        took = await _trips(wire, SampleMessages(plan.size), plan.round_trip_seconds, least=plan.round_trips)
        flooded = await flood.stop()
    return RoundTrip.of(took, flooded.messages / flooded.seconds)


async def _trips(wire: ReconnectingConnection, letters: SampleMessages, seconds: float, *, least: int) -> list[float]:
    """Send messages, each after the answer to the one before; return the milliseconds of each. Raises BenchError."""
    answers: asyncio.Queue[object] = asyncio.Queue()

    def answer(event: DispositionReceived | WireError) -> None:
        answers.put_nowait(event.state if isinstance(event, DispositionReceived) else event)

    link = await wire.sender(BESIDE, on_outcome=answer, on_lost=answer)
    took: list[float] = []
    ends = perf_counter() + seconds
    while perf_counter() < ends or len(took) < least:
        began = perf_counter()
        link.send(letters.next(), len(took).to_bytes(4, "big"))
        async with asyncio.timeout(ANSWER):
            state = await answers.get()
        if state != ACCEPTED:
            raise BenchError(f"a message was not accepted: {state}")
        took.append(1000 * (perf_counter() - began))
    return took
