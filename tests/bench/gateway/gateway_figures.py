"""Figures of the gateway's bench with their targets; they become one JSON object.

Times and rates depend on other load of the machine; those of a client directly at the namespace, in turn with the
gateway's in the same run, show how much. The targets are meant for bodies of 1 KB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from paired_servicebus.bench.rounds import Figures, Targets

ADDED_TARGET_MS: Final = 0.3
ADDED_P99_TARGET_MS: Final = 1.5
PIPELINED_TARGET: Final = 10_000
TAKEN_TARGET: Final = 10_000
CPU_TARGET_US: Final = 60.0
IDLE_TARGET_MB: Final = 150.0
IDLE_CPU_TARGET: Final = 0.02
DRAIN_TARGET_MS: Final = 5.0
_PERCENTILE: Final = 0.99
_MB: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTimes:
    """Milliseconds of sends that follow each other on one connection."""

    sends: int
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, took: Sequence[float]) -> SendTimes:
        """Compute the figures from single times in milliseconds."""
        ordered = sorted(took)
        slow = ordered[min(len(ordered) - 1, int(_PERCENTILE * len(ordered)))]
        return cls(sends=len(ordered), p50_ms=round(median(ordered), 3), p99_ms=round(slow, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodLap:
    """Messages sent as fast as possible, or received and completed. gateway_seconds: CPU of the gateway, or 0."""

    messages: int
    seconds: float
    gateway_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodRate:
    """Medians of laps: messages a second, and the gateway's CPU for each message in microseconds."""

    laps: int
    per_second: float
    low: float
    high: float
    gateway_us: float

    @classmethod
    def of(cls, laps: Sequence[FloodLap]) -> FloodRate:
        """Return the medians of one or more laps."""
        rates = [lap.messages / lap.seconds for lap in laps]
        return cls(
            laps=len(laps),
            per_second=round(median(rates), 1),
            low=round(min(rates), 1),
            high=round(max(rates), 1),
            gateway_us=round(median(1e6 * lap.gateway_seconds / lap.messages for lap in laps), 2),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleClients:
    """The gateway with idle clients, each a connection with one sender. grown_mb: memory because of them."""

    connections: int
    seconds: float
    idle_timeout: float
    resident_mb: float
    grown_mb: float
    cpu_share: float

    @classmethod
    def of(
        cls, connections: int, *, seconds: float, idle_timeout: float, before: int, after: int, cpu_seconds: float
    ) -> IdleClients:
        """Compute the figures. before, after: bytes of the gateway's process."""
        return cls(
            connections=connections,
            seconds=round(seconds, 3),
            idle_timeout=idle_timeout,
            resident_mb=round(after / _MB, 1),
            grown_mb=round((after - before) / _MB, 1),
            cpu_share=round(cpu_seconds / seconds, 5),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainTimes:
    """Sends while a syphon drains: through the gateway of its process, through another's, and directly, in turn.

    The sandbox is one process and serves the drain as well: what a direct send waits is not the gateway's. drained,
    drained_per_second: messages of the backlog meanwhile.
    """

    direct: SendTimes
    through: SendTimes
    apart: SendTimes
    """Through a gateway whose engine has no syphon."""
    drained: int
    drained_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayFigures(Figures):
    """direct, through: a send at the namespace and by the gateway; added_…: their differences, in milliseconds.

    flood, taken: messages sent by another process, and those received and completed.
    """

    size: int
    rounds: int
    direct: SendTimes
    through: SendTimes
    added_ms: float
    added_p99_ms: float
    flood_direct: FloodRate
    flood: FloodRate
    flood_ratio: float
    taken_direct: FloodRate
    taken: FloodRate
    taken_ratio: float
    idle: IdleClients
    drain: DrainTimes

    @property
    def targets(self) -> Targets:
        """Target of each figure, rates at least, all others at most; and whether it is reached."""
        flood, idle, drain = self.flood, self.idle, self.drain
        return {
            "added_ms": (ADDED_TARGET_MS, self.added_ms <= ADDED_TARGET_MS),
            "added_p99_ms": (ADDED_P99_TARGET_MS, self.added_p99_ms <= ADDED_P99_TARGET_MS),
            "pipelined_per_second": (PIPELINED_TARGET, flood.per_second >= PIPELINED_TARGET),
            "taken_per_second": (TAKEN_TARGET, self.taken.per_second >= TAKEN_TARGET),
            "cpu_us": (CPU_TARGET_US, flood.gateway_us <= CPU_TARGET_US),
            "idle_mb": (IDLE_TARGET_MB, idle.grown_mb <= IDLE_TARGET_MB),
            "idle_cpu_share": (IDLE_CPU_TARGET, idle.cpu_share < IDLE_CPU_TARGET),
            "drain_p99_ms": (DRAIN_TARGET_MS, drain.through.p99_ms <= DRAIN_TARGET_MS),
        }
