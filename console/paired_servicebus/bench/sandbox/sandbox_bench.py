"""`paired bench sandbox`: ingest, moves, memory, idle links and round trips of the sandbox in a child process.

One measurement runs at a time, in the order in which the messages left by one disturb the next least.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from paired_servicebus.bench.bench_plans import SandboxPlan
from paired_servicebus.bench.sample_messages import SampleMessages
from paired_servicebus.bench.sandbox.client_loads import Flood, Move, RoundTrips
from paired_servicebus.bench.sandbox.flood_process import flooder
from paired_servicebus.bench.sandbox.loopback_client import LoopbackClient
from paired_servicebus.bench.sandbox.sandbox_figures import (
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
from paired_servicebus.bench.sandbox_process import SandboxProcess, allow_connections, sandbox_process

SOURCE: Final = "bench-source"
TARGET: Final = "bench-target"
HOLD: Final = "bench-hold"
BESIDE: Final = "bench-beside"
CONNECTING: Final = 50
"""Connections opened at the same time."""


async def measure_sandbox(plan: SandboxPlan) -> SandboxFigures:
    """Return all figures. Raises BenchError."""
    allow_connections(plan.links)
    with tempfile.TemporaryDirectory(prefix="paired-bench-") as folder:
        log = Path(folder, "sandbox.log")
        async with sandbox_process((SOURCE, TARGET, HOLD, BESIDE), log) as sandbox:
            idle = await _idle(sandbox, plan)
            ingest, move = await _ingest_and_move(sandbox, plan)
            round_trip = await _round_trip(sandbox, plan)
        async with sandbox_process((HOLD,), log) as sandbox:
            held = await _held(sandbox, plan)
    return SandboxFigures(size=plan.size, ingest=ingest, move=move, held=held, idle=idle, round_trip=round_trip)


async def _ingest_and_move(sandbox: SandboxProcess, plan: SandboxPlan) -> tuple[LoadRate, LoadRate]:
    """Measure both in turn: each round of moves takes the messages of the ingest before it."""
    letters = SampleMessages(plan.size)
    taken, moved = [], []
    for _ in range(plan.rounds):
        taken.append(await _ingest(sandbox, SOURCE, letters, plan.messages_per_round))
        moved.append(await _move(sandbox, letters.size, plan.messages_per_round))
    return LoadRate.of(taken, INGEST_TARGET), LoadRate.of(moved, MOVE_TARGET)


async def _ingest(sandbox: SandboxProcess, queue: str, letters: SampleMessages, count: int) -> LoadRound:
    client = await LoopbackClient.connect(sandbox.namespace, "ingest")
    try:
        flood = Flood(client, await client.sender(queue), letters, count)
        return await _timed(sandbox, count, flood.run)
    finally:
        client.close()


async def _move(sandbox: SandboxProcess, size: int, count: int) -> LoadRound:
    client = await LoopbackClient.connect(sandbox.namespace, "move")
    try:
        source, target = await client.receiver(SOURCE), await client.sender(TARGET)
        move = Move(client, source, target, count=count, size=size)
        return await _timed(sandbox, count, move.run)
    finally:
        client.close()


async def _timed(sandbox: SandboxProcess, count: int, run: Callable[[], Awaitable[None]]) -> LoadRound:
    server, client, wall = sandbox.cpu_seconds(), time.process_time(), time.perf_counter()
    await run()
    return LoadRound(
        messages=count,
        seconds=time.perf_counter() - wall,
        server_seconds=sandbox.cpu_seconds() - server,
        client_seconds=time.process_time() - client,
    )


async def _held(sandbox: SandboxProcess, plan: SandboxPlan) -> MemoryHeld:
    empty = sandbox.resident_bytes()
    await _ingest(sandbox, HOLD, SampleMessages(plan.size), plan.messages)
    return MemoryHeld.of(plan.messages, empty=empty, full=sandbox.resident_bytes())


async def _idle(sandbox: SandboxProcess, plan: SandboxPlan) -> IdleLinks:
    clients: list[LoopbackClient] = []
    try:
        while len(clients) < plan.links:
            some = range(min(CONNECTING, plan.links - len(clients)))
            clients += await asyncio.gather(*(_idle_client(sandbox, plan.idle_timeout) for _ in some))
        server, wall = sandbox.cpu_seconds(), time.perf_counter()
        await asyncio.sleep(plan.idle_seconds)
        share = (sandbox.cpu_seconds() - server) / (time.perf_counter() - wall)
        for client in clients:
            client.check()
    finally:
        for client in clients:
            client.close()
    return IdleLinks(
        links=plan.links,
        seconds=plan.idle_seconds,
        idle_timeout=plan.idle_timeout,
        cpu_share=round(share, 5),
        target=IDLE_TARGET,
        reached=share < IDLE_TARGET,
    )


async def _idle_client(sandbox: SandboxProcess, idle_timeout: float) -> LoopbackClient:
    client = await LoopbackClient.connect(sandbox.namespace, "idle", idle_timeout=idle_timeout)
    (await client.receiver(BESIDE)).flow(10)
    client.flush()
    return client


async def _round_trip(sandbox: SandboxProcess, plan: SandboxPlan) -> RoundTrip:
    async with flooder(sandbox.namespace, HOLD, plan.size) as flood:
        client = await LoopbackClient.connect(sandbox.namespace, "beside")
        try:
            trips = RoundTrips(client, await client.sender(BESIDE), SampleMessages(plan.size))
            took = await trips.run(plan.round_trip_seconds, least=plan.round_trips)
        finally:
            client.close()
        flooded = await flood.stop()
    return RoundTrip.of(took, flooded.messages / flooded.seconds)
