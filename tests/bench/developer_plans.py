"""What each developers' bench measures: `python -m tests.bench NAME --help` shows these docstrings and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from cyclopts import Parameter

from paired_servicebus.bench.bench_plans import LatencyMs, Rounds, Size

UNASKED: Final = Parameter(parse=False)
"""Marks a parameter that only tests set: the command line does not offer it."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPlan:
    """How far away the namespace is that tasks drain."""

    size: Size = 1024
    latency_ms: LatencyMs = 20.0
    rounds: Annotated[int, Parameter(help="How often each number of tasks takes its turn.")] = 2


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    """How long an engine is watched with consoles on it; one that reads nothing does so for a lap."""

    seconds: float = 60.0
    """Of a lap; there are four a round."""
    rounds: Rounds = 1
    entities: Annotated[int, UNASKED] = 30
    """That ping."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenPlan:
    """How large an engine is looked at, and how often."""

    entities: int = 1000
    """How many the engine has."""
    keys: int = 20
    """How often each key is typed in a run."""
    runs: int = 3
    """How often the dashboard is opened."""
    seconds: Annotated[float, UNASKED] = 10.0
    """Without a key, to count bytes."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class BytesPlan:
    """How large an engine is looked at, and for how long bytes are counted."""

    entities: int = 30
    """How many the engine has."""
    seconds: float = 30.0
    """For which bytes are counted in each situation."""
    settle_seconds: Annotated[float, UNASKED] = 12.0
    """After a change: traffic reaches each entity within 10 s."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePlan:
    """How large the journals are that become tables, and for how long one is followed."""

    events: int = 1_000_000
    """Of the large journal; the small one has a tenth."""
    seconds: float = 60.0
    """For which a journal is followed; forty more to warm up."""
    rate: int = 1_000
    """Events a second of the journal that is followed."""
    only: Literal["once", "cluster", "live"] | None = None
    """One part of it."""

    @property
    def small(self) -> int:
        """Events of the small journal."""
        return self.events // 10

    def has(self, part: str) -> bool:
        """Whether it is to be measured."""
        return self.only in (None, part)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPlan:
    """Number and size of the messages, and the number of idle clients."""

    messages: int = 1000
    """Messages that each way sends one by one in a round."""
    size: Size = 1024
    rounds: Rounds = 5
    connections: int = 1000
    """Idle clients."""
    backlog: int = 60_000
    """Messages that are drained beside sends."""
    taken: Annotated[int, UNASKED] = 20_000
    """Messages that each way receives and completes in a round."""
    flood_seconds: Annotated[float, UNASKED] = 2.0
    idle_timeout: Annotated[float, UNASKED] = 10.0
    """Seconds; shorter than any SDK's, so that keeping connections alive is in the figure."""
    idle_seconds: Annotated[float, UNASKED] = 6.0


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverPlan:
    """Number of failovers, and size of the messages."""

    messages: int = 100
    """Number of failovers; each takes a second or two."""
    size: Size = 1024
    latency_ms: LatencyMs = 0.0


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Number and size of the messages that one syphon moves."""

    messages: int = 1_000_000
    size: Size = 1024


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class AddedPlan:
    """Size of the messages that are sent on a stub of the SDK."""

    size: Size = 1024
