"""`paired bench send`: the cost of a healthy send under a pairing, beside the plain SDK in the same run.

Three measurements: the time that the pairing adds to one send on a stub of the SDK; one caller beside two plain
senders, whose ratio is the A/A band; and many callers on one paired sender beside the same number of plain senders.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import cycle, permutations
from statistics import median
from typing import Any, Final

from azure.servicebus import ServiceBusMessage

from paired_servicebus.bench.bench_namespaces import BenchNamespaces, open_namespaces
from paired_servicebus.bench.bench_plans import SendPlan
from paired_servicebus.bench.rounds import Band, Lap, Throughput, in_turn, ratio
from paired_servicebus.config import PairingConfig
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import judge
from paired_servicebus.pairing import PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions, pair_namespaces
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.runtime.task_owner import TaskOwner
from paired_servicebus.pairing.sending.link_gates import OpenLimiter
from paired_servicebus.pairing.sending.paired_sender import PairedSender
from paired_servicebus.pairing.sending.primary_links import PrimaryLinks

ENTITY: Final = "bench-entity"
PLAIN: Final = "bench-plain"
CALLERS: Final = 16
ALONE: Final = ("paired", "plain", "again")
TOGETHER: Final = ("paired callers", "plain callers")
TURNS: Final = 3
"""Turns of each of these in a round."""
STUBBED: Final = 2000
"""Sends of a round with the stub."""
STUB_ROUNDS: Final = 15
ADDED_TARGET_US: Final = 15.0
CALLERS_TARGET: Final = 1.5

Send = Callable[[ServiceBusMessage], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFigures:
    """added_us: microseconds. ratio_…: ours to theirs, in messages a second. aa_…: the band of two plain senders."""

    size: int
    latency_ms: float
    rounds: int
    callers: int
    added_us: float
    paired: Throughput
    plain: Throughput
    paired_callers: Throughput
    plain_callers: Throughput
    ratio_vs_sdk: float
    ratio_callers: float
    aa_low: float
    aa_high: float

    @property
    def targets(self) -> dict[str, tuple[float, bool]]:
        """Target of each figure: added_us at most, the ratios at least; and whether it is reached."""
        return {
            "added_us": (ADDED_TARGET_US, self.added_us <= ADDED_TARGET_US),
            "ratio_vs_sdk": (self.aa_low, self.ratio_vs_sdk >= self.aa_low),
            "ratio_callers": (CALLERS_TARGET, self.ratio_callers >= CALLERS_TARGET),
        }

    @property
    def reached(self) -> bool:
        """Whether every target is reached."""
        return all(reached for _, reached in self.targets.values())


async def measure_send(plan: SendPlan, config: PairingConfig | None = None) -> SendFigures:
    """Return all figures. config: the namespaces; None: sandboxes. Raises BenchError."""
    added = await measure_added(plan.size)
    laps: dict[str, list[Lap]] = {name: [] for name in (*ALONE, *TOGETHER)}
    async with AsyncExitStack() as stack:
        where = await stack.enter_async_context(
            open_namespaces(config, primary=(ENTITY, PLAIN), secondary=(), latency_ms=plan.latency_ms)
        )
        ways = await _ways(stack, where)
        for way in ways.values():
            await _lap(way, plan.size, CALLERS)  # every link is open then
        for number in range(plan.rounds):
            alone = {name: ways[name][0] for name in ALONE}
            for name, lap in (await _send_about(alone, plan.size, plan.messages)).items():
                laps[name].append(lap)
            for turn in range(TURNS * len(TOGETHER)):
                name = in_turn(TOGETHER, number)[turn % len(TOGETHER)]
                laps[name].append(await _lap(ways[name], plan.size, max(CALLERS, plan.messages)))
    band = Band.of(laps["plain"], laps["again"])
    return SendFigures(
        size=plan.size,
        latency_ms=plan.latency_ms,
        rounds=plan.rounds,
        callers=CALLERS,
        added_us=added,
        paired=Throughput.of(laps["paired"]),
        plain=Throughput.of(laps["plain"]),
        paired_callers=Throughput.of(laps["paired callers"]),
        plain_callers=Throughput.of(laps["plain callers"]),
        ratio_vs_sdk=ratio(laps["paired"], laps["plain"]),
        ratio_callers=ratio(laps["paired callers"], laps["plain callers"]),
        aa_low=band.low,
        aa_high=band.high,
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
        "paired callers": [ours.send_messages] * CALLERS,
        "plain callers": [sender.send_messages for sender in plain],
    }


async def _paired(where: BenchNamespaces) -> PairedServiceBusClient:
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=where.secondary_admin,
        secondary_client=where.secondary,
        primary_name="bench",
        backlog_queue_count=1,
    )
    return await pair_namespaces(where.primary, options)


async def _lap(sends: Sequence[Send], size: int, count: int) -> Lap:
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


# -- the time that the pairing adds -----------------------------------------------------------------------------------


class _StubSender:
    """An SDK sender that is open and accepts immediately."""

    async def __aenter__(self) -> _StubSender:
        return self

    async def send_messages(self, message: object, *, timeout: float | None = None) -> None:
        """Accept the message."""

    async def create_message_batch(self) -> Any:
        """Return an empty batch, as a link does after it opened."""
        from azure.servicebus import ServiceBusMessageBatch

        return ServiceBusMessageBatch(max_size_in_bytes=256 * 1024)

    async def close(self) -> None:
        """Do nothing."""


class _StubClient:
    fully_qualified_namespace = "stub"

    def get_queue_sender(self, path: str) -> _StubSender:
        """Return a new stub."""
        return _StubSender()


async def measure_added(size: int) -> float:
    """Return the microseconds that the pairing adds to a send on the stub: the median of rounds."""
    tasks = TaskOwner()
    await tasks.open()
    client: Any = _StubClient()
    steering = PairingRuntime(PairingMachine(Policy(), queues=(0,)), tasks, judge, None)
    ours = PairedSender(steering, PrimaryLinks(steering, client, OpenLimiter()), ENTITY, {})
    plain = client.get_queue_sender(ENTITY)
    added = []
    try:
        for _ in range(STUB_ROUNDS):
            paired, alone = (
                await _lap([ours.send_messages], size, STUBBED),
                await _lap([plain.send_messages], size, STUBBED),
            )
            added.append(paired.cpu_us - alone.cpu_us)
    finally:
        await ours.close()
        await tasks.close()
    return round(median(added), 2)
