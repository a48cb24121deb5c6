"""How long a send waits at a failover, and at the failback: measured in one process, on sandboxes in it.

Not counted is the time until the failure is known, which is the namespace's and the SDK's. What is counted: from the
verdict on the failure until the same call is accepted by a backlog queue (failover_interval 0), and from the accepted
ping until the next send is accepted by the primary. Several senders share the entity, so that links have to be opened.

    python -m console.bench.failover
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Final

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from console.core.entity import State
from console.core.events import Event, PingAccepted, StateChanged
from console.core.verdict import Judgement, judge
from console.pairing import (
    PairedSender,
    PairedServiceBusClient,
    SendAvailabilityPairedNamespaceOptions,
    pair_namespaces,
)
from console.sandbox import Sandbox

ROUNDS: Final = 11
SENDERS: Final = 4
PATIENCE: Final = 30.0
ENTITY: Final = "orders"


@dataclass(frozen=True, slots=True)
class FailoverFigures:
    """Milliseconds, one for each round: over to the backlog, and back to the primary."""

    over_ms: tuple[float, ...]
    back_ms: tuple[float, ...]
    senders: int

    @property
    def over_p50_ms(self) -> float:
        """The median of the first kind."""
        return median(self.over_ms)

    @property
    def back_p50_ms(self) -> float:
        """The median of the second kind."""
        return median(self.back_ms)


@dataclass(slots=True)
class _Marks:
    """When the latest failure was judged, and the latest ping accepted; wakes who waits for the failback."""

    judged_at: float = 0.0
    ping_at: float = 0.0
    back: asyncio.Event = field(default_factory=asyncio.Event)

    def judge(self, error: BaseException) -> Judgement:
        """The verdict, and when it was asked for."""
        self.judged_at = perf_counter()
        return judge(error)

    def on_event(self, event: Event) -> None:
        """Note pings and failbacks."""
        if isinstance(event, PingAccepted):
            self.ping_at = perf_counter()
        elif isinstance(event, StateChanged) and event.was == State.FAILED_OVER:
            self.back.set()


async def measure_failover(*, rounds: int = ROUNDS, senders: int = SENDERS) -> FailoverFigures:
    """Break the entity, send; mend it, send again; `rounds` times."""
    marks = _Marks()
    async with Sandbox.start() as sandbox, await _paired(sandbox, marks) as paired:
        several = [paired.get_queue_sender(ENTITY) for _ in range(senders)]
        over, back = [], []
        for _ in range(rounds):
            for sender in several:
                await sender.send_messages(_message())
            over.append(await _over(sandbox, several, marks))
            back.append(await _back(several, marks))
        return FailoverFigures(tuple(over), tuple(back), senders)


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


async def _over(sandbox: Sandbox, senders: list[PairedSender], marks: _Marks) -> float:
    """One call that meets the failure; the entity is mended again when the others have been sent, too."""
    faults = sandbox["primary"].node.faults
    fault = faults.add("refused", entity=ENTITY)
    await senders[0].send_messages(_message())
    took = perf_counter() - marks.judged_at
    for sender in senders[1:]:
        await sender.send_messages(_message())
    marks.back.clear()
    faults.remove(fault.id)
    return took * 1000


async def _back(senders: list[PairedSender], marks: _Marks) -> float:
    """The slowest of all senders' next calls, begun together as soon as the ping was accepted."""
    async with asyncio.timeout(PATIENCE):
        await marks.back.wait()
        await asyncio.gather(*(sender.send_messages(_message()) for sender in senders))
    return (perf_counter() - marks.ping_at) * 1000


def _message() -> ServiceBusMessage:
    return ServiceBusMessage(bytes(1024))


def main() -> None:
    """Print the medians."""
    figures = asyncio.run(measure_failover())
    sys.stdout.write(
        f"{figures.senders} senders, {len(figures.over_ms)} rounds\n"
        f"from the verdict to the backlog's acceptance, same call  p50 {figures.over_p50_ms:6.1f} ms, "
        f"longest {max(figures.over_ms):6.1f} ms\n"
        f"from the accepted ping to the primary's acceptance       p50 {figures.back_p50_ms:6.1f} ms, "
        f"longest {max(figures.back_ms):6.1f} ms\n"
    )


if __name__ == "__main__":
    main()
