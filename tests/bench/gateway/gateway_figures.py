"""Figures of the gateway's bench with their targets; they become one JSON object.

Times and rates depend on other load of the machine; those of a client directly at the namespace, in turn with the
gateway's in the same run, show how much. The targets are meant for bodies of 1 KB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

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
class GatewayFigures:
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
    def targets(self) -> dict[str, tuple[float, bool]]:
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

    @property
    def reached(self) -> bool:
        """Whether every target is reached."""
        return all(reached for _, reached in self.targets.values())


def gateway_table(figures: GatewayFigures) -> str:
    """Return the table of `python -m tests.bench gateway`."""
    direct, through, idle, drain = figures.direct, figures.through, figures.idle, figures.drain
    found = {
        "added_ms": ("added to a send, p50", f"{figures.added_ms:.3f} ms", _beside(direct.p50_ms, through.p50_ms)),
        "added_p99_ms": ("", f"p99 {figures.added_p99_ms:.3f} ms", _beside(direct.p99_ms, through.p99_ms)),
        "pipelined_per_second": (
            "pipelined sends",
            f"{figures.flood.per_second:,.0f}/s",
            f"{figures.flood_direct.per_second:,.0f}/s directly, ratio {figures.flood_ratio:.2f}",
        ),
        "cpu_us": ("", f"{figures.flood.gateway_us:.1f} µs", "the gateway's CPU for a message"),
        "taken_per_second": (
            "received and completed",
            f"{figures.taken.per_second:,.0f}/s",
            f"{figures.taken_direct.per_second:,.0f}/s directly, ratio {figures.taken_ratio:.2f}, "
            f"{figures.taken.gateway_us:.1f} µs of the gateway's CPU",
        ),
        "idle_mb": (
            f"{idle.connections:,} idle clients",
            f"{idle.grown_mb:.1f} MB",
            f"{idle.resident_mb:.1f} MB in all",
        ),
        "idle_cpu_share": ("", f"{100 * idle.cpu_share:.2f} % of a core", f"over {idle.seconds:g} s"),
        "drain_p99_ms": (
            "a send during a drain",
            f"p99 {drain.through.p99_ms:.1f} ms",
            f"{drain.direct.p99_ms:.1f} ms directly, {drain.apart.p99_ms:.1f} by a gateway without syphon, "
            f"{drain.drained_per_second:,.0f}/s drained beside",
        ),
    }
    rows = [f"the gateway, bodies of {figures.size:,} bytes, {figures.rounds} rounds"]
    for name, (what, value, more) in found.items():
        target, reached = figures.targets[name]
        word = "at least" if name.endswith("_per_second") else "at most"
        rows.append(f"{what:24} {value:18} {word} {target:<8,g} {'reached' if reached else 'missed':8} {more}")
    return "\n".join(rows) + "\n"


def _beside(direct: float, through: float) -> str:
    return f"{direct:.3f} ms directly, {through:.3f} ms through it"
