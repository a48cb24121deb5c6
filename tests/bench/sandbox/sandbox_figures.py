"""Figures of the sandbox bench with their targets; they become one JSON object.

Rates are messages a second of wall time, medians of rounds; other load on the machine changes them. CPU is microseconds
of a process for each message, and is more reliable. `reached` compares the median with the target. The targets are
meant for bodies of TARGET_SIZE bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

TARGET_SIZE: Final = 1024
INGEST_TARGET: Final = 60_000
MOVE_TARGET: Final = 25_000
HELD_TARGET: Final = 2_500_000_000
"""Bytes of the process with a million messages, at most."""
IDLE_TARGET: Final = 0.02
ROUND_TRIP_TARGET: Final = 20.0
THROTTLED_MARGIN: Final = 0.05
MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRound:
    """One round of a load: messages, wall seconds, and CPU seconds of both processes."""

    messages: int
    seconds: float
    server_seconds: float
    client_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRate:
    """`low` and `high` are the slowest and the fastest round.

    server_share: CPU time of the sandbox, as a share of wall time. Far below 1 the sandbox was not the limit: it waited
    for the client, the network or the machine.
    """

    messages: int
    rounds: int
    per_second: float
    low: float
    high: float
    server_us: float
    client_us: float
    server_share: float
    target: float
    reached: bool

    @classmethod
    def of(cls, rounds: Sequence[LoadRound], target: float) -> LoadRate:
        """Return the medians of rounds."""
        rates = [one.messages / one.seconds for one in rounds]
        return cls(
            messages=rounds[0].messages,
            rounds=len(rounds),
            per_second=round(median(rates), 1),
            low=round(min(rates), 1),
            high=round(max(rates), 1),
            server_us=round(median(1e6 * one.server_seconds / one.messages for one in rounds), 2),
            client_us=round(median(1e6 * one.client_seconds / one.messages for one in rounds), 2),
            server_share=round(median(one.server_seconds / one.seconds for one in rounds), 3),
            target=target,
            reached=median(rates) >= target,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHeld:
    """Memory: `rss_bytes` with the messages; `million_bytes` with a million, projected from fewer."""

    messages: int
    rss_bytes: int
    empty_rss_bytes: int
    bytes_per_message: float
    million_bytes: int
    is_projected: bool
    target: int
    reached: bool

    @classmethod
    def of(cls, messages: int, *, empty: int, full: int) -> MemoryHeld:
        """Compute the figures from the process's memory before and after."""
        each = (full - empty) / messages
        million = full if messages == MILLION else round(empty + each * MILLION)
        return cls(
            messages=messages,
            rss_bytes=full,
            empty_rss_bytes=empty,
            bytes_per_message=round(each, 1),
            million_bytes=million,
            is_projected=messages != MILLION,
            target=HELD_TARGET,
            reached=million <= HELD_TARGET,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleLinks:
    """Cost of idle links, each on its own connection: `cpu_share` of one core, over `seconds`."""

    links: int
    seconds: float
    idle_timeout: float
    cpu_share: float
    target: float
    reached: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrip:
    """Milliseconds of a send and its answer on one connection while another process floods."""

    samples: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    flood_per_second: float
    target: float
    reached: bool

    @classmethod
    def of(cls, took: Sequence[float], flood_per_second: float) -> RoundTrip:
        """Compute the figures from single times in milliseconds."""
        ordered = sorted(took)
        p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
        return cls(
            samples=len(ordered),
            p50_ms=round(median(ordered), 3),
            p99_ms=round(p99, 3),
            max_ms=round(ordered[-1], 3),
            flood_per_second=round(flood_per_second, 1),
            target=ROUND_TRIP_TARGET,
            reached=p99 <= ROUND_TRIP_TARGET,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottledRates:
    """Messages a second with credits; `target` is the number of credits a second, to be met within a twentieth."""

    sent_per_second: float
    received_per_second: float
    target: int
    reached: bool

    @classmethod
    def of(cls, credits_per_second: int, *, sent: float, received: float) -> ThrottledRates:
        """Compare both rates with the credits."""
        return cls(
            sent_per_second=round(sent, 1),
            received_per_second=round(received, 1),
            target=credits_per_second,
            reached=all(abs(rate / credits_per_second - 1) <= THROTTLED_MARGIN for rate in (sent, received)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxFigures:
    """All figures of `python -m tests.bench sandbox`; `size`: bytes of a message's body."""

    size: int
    ingest: LoadRate
    move: LoadRate
    held: MemoryHeld
    idle: IdleLinks
    round_trip: RoundTrip
    throttled: ThrottledRates

    @property
    def reached(self) -> bool:
        """Whether every target is reached."""
        parts = (self.ingest, self.move, self.held, self.idle, self.round_trip, self.throttled)
        return all(part.reached for part in parts)
