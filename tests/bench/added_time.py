"""`python -m tests.bench added`: the processor time that the pairing adds to one send, on a stub of the SDK."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from azure.servicebus import ServiceBusMessageBatch

from paired_servicebus.bench.rounds import Figures, Targets
from paired_servicebus.bench.send_bench import ENTITY, run_lap
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import judge
from paired_servicebus.pairing.runtime.deadlines import TaskOwner
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.paired_sender import PairedSender
from paired_servicebus.pairing.sending.pairing_links import PrimaryLinks
from paired_servicebus.pairing.sending.sender_link import OpenLimiter

STUBBED: Final = 2000
"""Sends of a round."""
STUB_ROUNDS: Final = 15
ADDED_TARGET_US: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedTime(Figures):
    """added_us: microseconds of processor time a send."""

    size: int
    added_us: float

    @property
    def targets(self) -> Targets:
        """At most."""
        return {"added_us": (ADDED_TARGET_US, self.added_us <= ADDED_TARGET_US)}


class _StubSender:
    """An SDK sender that is open and accepts immediately."""

    async def __aenter__(self) -> _StubSender:
        return self

    async def send_messages(self, message: object, *, timeout: float | None = None) -> None:
        """Accept the message."""

    async def create_message_batch(self) -> Any:
        """Return an empty batch, as a link does after it opened."""
        return ServiceBusMessageBatch(max_size_in_bytes=256 * 1024)

    async def close(self) -> None:
        """Do nothing."""


class _StubClient:
    fully_qualified_namespace = "stub"

    def get_queue_sender(self, path: str) -> _StubSender:
        """Return a new stub."""
        return _StubSender()


async def measure_added(size: int) -> AddedTime:
    """Return the median of rounds."""
    tasks = TaskOwner()
    await tasks.open()
    client: Any = _StubClient()
    runtime = PairingRuntime(PairingMachine(Policy(), queues=(0,)), tasks, judge, None)
    ours = PairedSender(runtime, PrimaryLinks(runtime, client, OpenLimiter(), client), ENTITY, {})
    plain = client.get_queue_sender(ENTITY)
    added = []
    try:
        for _ in range(STUB_ROUNDS):
            paired, alone = (
                await run_lap([ours.send_messages], size, STUBBED),
                await run_lap([plain.send_messages], size, STUBBED),
            )
            added.append(paired.cpu_us - alone.cpu_us)
    finally:
        await ours.close()
        await tasks.close()
    return AddedTime(size=size, added_us=round(median(added), 2))
