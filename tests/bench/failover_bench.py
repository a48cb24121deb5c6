"""`python -m tests.bench failover`: the wait of a send at a failover and at the failback, on sandboxes in this process.

The failover is measured from the verdict on the failure until a backlog queue accepts the same call (failover_interval
0). The time until the failure is known belongs to the namespace and the SDK, and is not counted. The failback is
measured from the accepted ping until the primary accepts the next send. Several senders share the entity, so that
links have to be opened. Namespaces of a pairing.toml cannot be broken on purpose, so they are not measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Final, Self

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.bench.rounds import Figures, Targets
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import Event, PingAccepted, StateChanged
from paired_servicebus.core.model.verdict import Judgement, judge
from paired_servicebus.core.operator.why_line import percentile
from paired_servicebus.pairing import (
    PairedSender,
    PairedServiceBusClient,
    SendAvailabilityPairedNamespaceOptions,
    pair_namespaces,
)
from servicebus_sandbox import Sandbox
from servicebus_sandbox.faults import Direction, FaultTerms

SENDERS: Final = 4
PATIENCE: Final = 30.0
TARGET_MS: Final = 20.0
"""Added to the round trip."""
ENTITY: Final = "orders"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverFigures(Figures):
    """Milliseconds.

    over_ms, back_ms: of each round, over to the backlog and back to the primary; p50_ms and p99_ms: of over_ms.
    """

    size: int
    latency_ms: float
    senders: int
    over_ms: tuple[float, ...]
    back_ms: tuple[float, ...]
    p50_ms: float
    p99_ms: float
    back_p50_ms: float
    back_p99_ms: float

    @classmethod
    def of(cls, over: Sequence[float], back: Sequence[float], *, size: int, latency_ms: float, senders: int) -> Self:
        """Compute the figures from the times of all rounds."""
        return cls(
            size=size,
            latency_ms=latency_ms,
            senders=senders,
            over_ms=tuple(round(one, 2) for one in over),
            back_ms=tuple(round(one, 2) for one in back),
            p50_ms=round(median(over), 2),
            p99_ms=_p99(over),
            back_p50_ms=round(median(back), 2),
            back_p99_ms=_p99(back),
        )

    @property
    def targets(self) -> Targets:
        """Target of p99_ms, at most: a round trip and TARGET_MS."""
        target = self.latency_ms + TARGET_MS
        return {"p99_ms": (target, self.p99_ms <= target)}


@dataclass(slots=True)
class _Marks:
    """Times of the latest verdict and of the latest accepted ping; `back` is set by a failback."""

    judged_at: float = 0.0
    ping_at: float = 0.0
    back: asyncio.Event = field(default_factory=asyncio.Event)

    def judge(self, error: BaseException) -> Judgement:
        """Return the verdict and note its time."""
        self.judged_at = perf_counter()
        return judge(error)

    def on_event(self, event: Event) -> None:
        """Note pings and failbacks."""
        if isinstance(event, PingAccepted):
            self.ping_at = perf_counter()
        elif isinstance(event, StateChanged) and event.was == State.FAILED_OVER:
            self.back.set()


async def measure_failover(
    *, rounds: int = 100, senders: int = SENDERS, size: int = 1024, latency_ms: float = 0.0
) -> FailoverFigures:
    """Break the entity and send; mend it and send again; `rounds` times."""
    marks = _Marks()
    async with Sandbox.start() as sandbox, await _paired(sandbox, marks) as paired:
        if latency_ms:
            for namespace in sandbox.namespaces:
                namespace.node.faults.add(
                    "latency", terms=FaultTerms(direction=Direction.OUT, delay_s=latency_ms / 1000)
                )
        several = [paired.get_queue_sender(ENTITY) for _ in range(senders)]
        over, back = [], []
        for _ in range(rounds):
            for sender in several:
                await sender.send_messages(_message(size))
            over.append(await _over(sandbox, several, marks, size))
            back.append(await _back(several, marks, size))
        return FailoverFigures.of(over, back, size=size, latency_ms=latency_ms, senders=senders)


async def _paired(sandbox: Sandbox, marks: _Marks) -> PairedServiceBusClient:
    primary, secondary = sandbox["primary"].connection_string, sandbox["secondary"].connection_string
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=ServiceBusAdministrationClient.from_connection_string(
            secondary, connection_verify=str(sandbox.ca_file)
        ),
        secondary_client=ServiceBusClient.from_connection_string(secondary, retry_total=0),
        primary_name="primary",
        failover_interval=0,
        ping_primary_interval=1,
    )
    client = ServiceBusClient.from_connection_string(primary, retry_total=0)
    paired = await pair_namespaces(client, options, on_event=marks.on_event, judge=marks.judge)
    async with asyncio.timeout(PATIENCE):
        await paired.stands_ready()
    return paired


async def _over(sandbox: Sandbox, senders: list[PairedSender], marks: _Marks, size: int) -> float:
    """Return the milliseconds of one call that fails over; mend the entity after all senders have sent."""
    faults = sandbox["primary"].node.faults
    fault = faults.add("refused", entity=ENTITY)
    await senders[0].send_messages(_message(size))
    took = perf_counter() - marks.judged_at
    for sender in senders[1:]:
        await sender.send_messages(_message(size))
    marks.back.clear()
    faults.remove(fault.id)
    return took * 1000


async def _back(senders: list[PairedSender], marks: _Marks, size: int) -> float:
    """Return the milliseconds of the slowest next call; all senders begin together after the accepted ping."""
    async with asyncio.timeout(PATIENCE):
        await marks.back.wait()
        await asyncio.gather(*(sender.send_messages(_message(size)) for sender in senders))
    return (perf_counter() - marks.ping_at) * 1000


def _message(size: int) -> ServiceBusMessage:
    return ServiceBusMessage(bytes(size))


def _p99(took: Sequence[float]) -> float:
    slow = percentile(sorted(took), 0.99)
    assert slow is not None, "there was a round"
    return round(slow, 2)
