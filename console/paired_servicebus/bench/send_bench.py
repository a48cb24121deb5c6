"""`paired bench send`: what a healthy send costs under a pairing, beside the plain SDK in the same run.

Three things: what our code adds to one send, with the SDK replaced by a stub that does nothing; one caller after the
other's answer, beside two plain senders whose ratio is the band; and many callers on one paired sender, beside as many
plain senders.
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
from paired_servicebus.pairing.sending.open_limiter import OpenLimiter
from paired_servicebus.pairing.sending.paired_sender import PairedSender
from paired_servicebus.pairing.sending.primary_links import PrimaryLinks

ENTITY: Final = "bench-entity"
PLAIN: Final = "bench-plain"
CALLERS: Final = 16
ALONE: Final = ("paired", "plain", "again")
TOGETHER: Final = ("paired callers", "plain callers")
TURNS: Final = 3
"""How often each of these has its turn in a round."""
STUBBED: Final = 2000
"""Sends of a round with the stub."""
STUB_ROUNDS: Final = 15
ADDED_TARGET_US: Final = 15.0
CALLERS_TARGET: Final = 1.5

Send = Callable[[ServiceBusMessage], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFigures:
    """added_us: microseconds. ratio_…: how many times faster ours is. aa_…: between what two plain senders lay."""

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
        """added_us should be so much at most, the ratios so much at least."""
        return {
            "added_us": (ADDED_TARGET_US, self.added_us <= ADDED_TARGET_US),
            "ratio_vs_sdk": (self.aa_low, self.ratio_vs_sdk >= self.aa_low),
            "ratio_callers": (CALLERS_TARGET, self.ratio_callers >= CALLERS_TARGET),
        }

    @property
    def reached(self) -> bool:
        """Whether every target was."""
        return all(reached for _, reached in self.targets.values())


async def measure_send(plan: SendPlan, config: PairingConfig | None = None) -> SendFigures:
    """All figures. config: whose namespaces; None: sandboxes. Raises BenchError."""
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
    """Each way by what its callers send with."""
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
    """`count` messages, the same number by each caller, one after the other."""
    each = max(1, count // len(sends))
    messages = [[_message(size, f"{caller}-{number}") for number in range(each)] for caller in range(len(sends))]
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(_one_by_one(send, own) for send, own in zip(sends, messages, strict=True)))
    return Lap(messages=each * len(sends), seconds=time.perf_counter() - began, cpu_seconds=time.process_time() - cpu)


async def _send_about(ways: Mapping[str, Send], size: int, count: int) -> dict[str, Lap]:
    """Each way sends one message, then the next way does: a busy moment meets all of them. Each goes as often behind
    each other one, whose code and data the processor still has. By the median send."""
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


# -- what our code adds ----------------------------------------------------------------------------------------------


class _StubSender:
    """An SDK sender that is open and accepts at once."""

    async def __aenter__(self) -> _StubSender:
        return self

    async def send_messages(self, message: object, *, timeout: float | None = None) -> None:
        """Accepted."""

    async def create_message_batch(self) -> Any:
        """What a link asks for when it has opened."""
        from azure.servicebus import ServiceBusMessageBatch

        return ServiceBusMessageBatch(max_size_in_bytes=256 * 1024)

    async def close(self) -> None:
        """Nothing is open."""


class _StubClient:
    fully_qualified_namespace = "stub"

    def get_queue_sender(self, path: str) -> _StubSender:
        """One for each caller."""
        return _StubSender()


async def measure_added(size: int) -> float:
    """Microseconds that the pairing adds to a healthy send: the median of rounds, each beside the stub alone."""
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
