"""Thousands of entities that failed over at once: do pings keep their interval, and what do they cost?

With `stub` the SDK's clients are replaced by ones that refuse every send after a moment, so that what is measured is
ours: the state machine, the timers, the tasks, the gate. With `sdk` they are real, on a sandbox in the same process
that refuses connections, so CPU and memory are those of both.

    python -m tests.bench.many_entities stub 10000
    python -m tests.bench.many_entities sdk 500
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, Final

from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.model.pairing_events import Event, PingFailed
from paired_servicebus.pairing import (
    PairedServiceBusClient,
    SendAvailabilityPairedNamespaceOptions,
    pair_namespaces,
    tls_context,
)
from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox
from tests.bench.sdk_stubs import StubClient, StubManagement

INTERVAL: Final = 60.0
ROUNDS: Final = 3


@dataclass(frozen=True, slots=True)
class EntityFigures:
    """`worst` is the largest deviation of an entity's ping interval from what was asked for, as a share of it."""

    entities: int
    kind: str
    interval: float
    median_interval: float
    worst: float
    cpu_share: float
    longest_stall: float
    """Seconds for which the event loop did nothing else, at most."""
    million_bytes: float


@dataclass(slots=True)
class _Pings:
    """When each entity's pings began."""

    began: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _awaited: int = 0
    _all: asyncio.Event = field(default_factory=asyncio.Event)

    def on_event(self, event: Event) -> None:
        """Note the pings."""
        if isinstance(event, PingFailed):
            self.began[event.entity].append(event.at - event.took)
            if len(self.began) == self._awaited:
                self._all.set()

    async def of_all(self, entities: int) -> None:
        """Wait until each has pinged once."""
        self._awaited = entities
        await self._all.wait()

    def gaps(self) -> list[float]:
        """Seconds between an entity's pings, of all entities."""
        return [later - earlier for at in self.began.values() for earlier, later in pairwise(at)]


async def measure_entities(kind: str, entities: int, interval: float = INTERVAL) -> EntityFigures:
    """Fail all of them over in one instant, and watch `ROUNDS` intervals of pings after the first."""
    pings = _Pings()
    names = [f"entity-{number}" for number in range(entities)]
    async with _WORLDS[kind](pings, names, interval) as paired:
        for name in names:
            paired.watch(name)
        for name in names:
            paired.force(name, by="bench")
        stalls = asyncio.create_task(_stalls())
        await asyncio.sleep(interval)
        await pings.of_all(entities)
        began, cpu = time.monotonic(), time.process_time()
        await asyncio.sleep(ROUNDS * interval)
        share = (time.process_time() - cpu) / (time.monotonic() - began)
        stalls.cancel()
        longest = await stalls
    gaps = pings.gaps()
    return EntityFigures(
        entities=entities,
        kind=kind,
        interval=interval,
        median_interval=median(gaps),
        worst=max(abs(gap - interval) for gap in gaps) / interval,
        cpu_share=share,
        longest_stall=longest,
        million_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
    )


async def _stalls() -> float:
    """Until cancelled: the longest that a short sleep was late."""
    longest = 0.0
    try:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.005)
            longest = max(longest, time.monotonic() - began - 0.005)
    except asyncio.CancelledError:
        return longest


def _options(admin: Any, client: Any, interval: float) -> SendAvailabilityPairedNamespaceOptions:
    return SendAvailabilityPairedNamespaceOptions(
        secondary_admin=admin, secondary_client=client, primary_name="primary", ping_primary_interval=interval
    )


# -- with the SDK ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _sdk(pings: _Pings, names: list[str], interval: float) -> AsyncIterator[PairedServiceBusClient]:
    specs = [NamespaceSpec("primary", queues=[QueueSpec(name) for name in names]), NamespaceSpec("secondary")]
    async with Sandbox.start(specs) as sandbox:
        primary, secondary = sandbox["primary"].connection_string, sandbox["secondary"].connection_string
        admin = ServiceBusAdministrationClient.from_connection_string(secondary, connection_verify=str(sandbox.ca_file))
        shared: dict[str, Any] = {"retry_total": 0, "ssl_context": tls_context()}
        options = _options(admin, ServiceBusClient.from_connection_string(secondary, **shared), interval)
        client = ServiceBusClient.from_connection_string(primary, **shared)
        async with await pair_namespaces(client, options, on_event=pings.on_event) as paired:
            senders = [paired.get_queue_sender(name) for name in names]
            await asyncio.gather(*(sender.__aenter__() for sender in senders))
            sandbox["primary"].node.faults.add("refused")
            yield paired


# -- without ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _stub(pings: _Pings, names: list[str], interval: float) -> AsyncIterator[PairedServiceBusClient]:
    primary: Any = StubClient("primary", is_up=False)
    options = _options(StubManagement(), StubClient("secondary", is_up=True), interval)
    async with await pair_namespaces(primary, options, on_event=pings.on_event) as paired:
        yield paired


_WORLDS: Final = {"stub": _stub, "sdk": _sdk}


def main(kind: str, entities: int, interval: float = INTERVAL) -> None:
    """Print the figures of one run."""
    found = asyncio.run(measure_entities(kind, entities, interval))
    sys.stdout.write(
        f"{found.entities:,} entities ({found.kind}), a ping every {found.interval:g} s each: median "
        f"{found.median_interval:.2f} s, worst {100 * found.worst:.1f} % off; {100 * found.cpu_share:.0f} % of a core, "
        f"the loop stalled for {1000 * found.longest_stall:.0f} ms at most, {found.million_bytes:.0f} MB\n"
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *map(float, sys.argv[3:]))
