"""`paired bench send`: the cost of a healthy send under a pairing, beside the plain SDK in the same run.

Two measurements: one caller beside two plain senders, whose ratio is the A/A band; and many callers on one paired
sender beside the same number of plain senders.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import cycle, permutations
from statistics import median
from typing import Any, Final

from azure.servicebus import ServiceBusMessage

from paired_servicebus.bench.bench_namespaces import BenchNamespaces, open_namespaces
from paired_servicebus.bench.bench_plans import SendPlan
from paired_servicebus.bench.rounds import Band, Lap, RoundFigures, compare, in_turn
from paired_servicebus.config import PairingConfig
from paired_servicebus.pairing import PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions, pair_namespaces

ENTITY: Final = "bench-entity"
PLAIN: Final = "bench-plain"
CALLERS: Final = 16
ALONE: Final = ("paired", "plain", "again")
TOGETHER: Final = ("paired_callers", "plain_callers")
PAIRS: Final = {"ratio_vs_sdk": ("paired", "plain"), "ratio_callers": ("paired_callers", "plain_callers")}
TURNS: Final = 3
"""Turns of each of these in a round."""
CALLERS_TARGET: Final = 1.5

Send = Callable[[ServiceBusMessage], Awaitable[None]]


async def measure_send(plan: SendPlan, config: PairingConfig | None = None) -> RoundFigures:
    """Return all figures. config: the namespaces; None: sandboxes. Raises BenchError."""
    laps: dict[str, list[Lap]] = {name: [] for name in (*ALONE, *TOGETHER)}
    async with AsyncExitStack() as stack:
        where = await stack.enter_async_context(
            open_namespaces(config, primary=(ENTITY, PLAIN), secondary=(), latency_ms=plan.latency_ms)
        )
        ways = await _ways(stack, where)
        for way in ways.values():
            await run_lap(way, plan.size, CALLERS)  # every link is open then
        for number in range(plan.rounds):
            alone = {name: ways[name][0] for name in ALONE}
            for name, lap in (await _send_about(alone, plan.size, plan.messages)).items():
                laps[name].append(lap)
            for turn in range(TURNS * len(TOGETHER)):
                name = in_turn(TOGETHER, number)[turn % len(TOGETHER)]
                laps[name].append(await run_lap(ways[name], plan.size, max(CALLERS, plan.messages)))
    band = Band.of(laps["plain"], laps["again"])
    return compare(
        laps,
        PAIRS,
        ("plain", "again"),
        size=plan.size,
        latency_ms=plan.latency_ms,
        rounds=plan.rounds,
        wanted={"ratio_vs_sdk": band.low, "ratio_callers": CALLERS_TARGET},
    )


async def _ways(stack: AsyncExitStack, where: BenchNamespaces) -> dict[str, Sequence[Send]]:
    """Return each way's send functions, one for each caller."""
    paired = await stack.enter_async_context(await _paired(where))
    ours = await stack.enter_async_context(paired.get_queue_sender(ENTITY))
    plain = [await stack.enter_async_context(where.primary.get_queue_sender(PLAIN)) for _ in range(CALLERS)]
    return {
        "paired": [ours.send_messages],
        "plain": [plain[0].send_messages],
        "again": [plain[1].send_messages],
        "paired_callers": [ours.send_messages] * CALLERS,
        "plain_callers": [sender.send_messages for sender in plain],
    }


async def _paired(where: BenchNamespaces) -> PairedServiceBusClient:
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=where.secondary_admin,
        secondary_client=where.secondary,
        primary_name="bench",
        backlog_queue_count=1,
    )
    return await pair_namespaces(where.primary, options)


async def run_lap(sends: Sequence[Send], size: int, count: int) -> Lap:
    """Send `count` messages; each caller sends the same number, one after the other."""
    each = max(1, count // len(sends))
    messages = [[_message(size, f"{caller}-{number}") for number in range(each)] for caller in range(len(sends))]
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(_one_by_one(send, own) for send, own in zip(sends, messages, strict=True)))
    return Lap(messages=each * len(sends), seconds=time.perf_counter() - began, cpu_seconds=time.process_time() - cpu)


async def _send_about(ways: Mapping[str, Send], size: int, count: int) -> dict[str, Lap]:
    """Send one message by each way in turn, so that a busy moment affects all of them; return median laps.

    Each way follows each other one equally often, since the processor's caches still hold the other's code and data.
    """
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number, order in zip(range(count), cycle(permutations(ways.items())), strict=False):
        for name, send in order:
            message = _message(size, f"{number}")
            began, cpu = time.perf_counter(), time.process_time()
            await send(message)
            took[name].append((time.perf_counter() - began, time.process_time() - cpu))
    return {
        name: Lap(
            messages=count,
            seconds=count * median(seconds for seconds, _ in times),
            cpu_seconds=count * median(cpu for _, cpu in times),
        )
        for name, times in took.items()
    }


async def _one_by_one(send: Send, messages: Sequence[ServiceBusMessage]) -> None:
    for message in messages:
        await send(message)


def _message(size: int, name: str) -> ServiceBusMessage:
    properties: dict[str | bytes, Any] = {f"property-{number}": f"value {number}" for number in range(8)}
    return ServiceBusMessage(bytes(size), message_id=name, application_properties=properties)
