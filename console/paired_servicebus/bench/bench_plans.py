"""What each bench is asked to measure: `paired bench NAME --help` shows these docstrings and defaults.

Importing this is cheap, unlike what measures. Frozen, so that a plan can be a function's default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter

UNASKED: Final = Parameter(parse=False)
"""Marks what only tests choose: the command line does not offer it."""
Size = Annotated[int, Parameter(help="Bytes of a message's body.")]
LatencyMs = Annotated[float, Parameter(help="Milliseconds that a round trip takes longer, in the sandbox.")]
Rounds = Annotated[int, Parameter(help="How often each way takes its turn.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlan:
    """A round of ingest or moves takes `per_round` messages at most."""

    messages: int = 100_000
    """How many are held in the end; a round takes 20,000 at most."""
    size: Size = 1024
    rounds: Annotated[int, UNASKED] = 5
    per_round: Annotated[int, UNASKED] = 20_000
    links: Annotated[int, UNASKED] = 1000
    idle_timeout: Annotated[float, UNASKED] = 10.0
    """Seconds within which each idle client wants to be heard: shorter than any SDK asks for, so that what keeps a
    link alive is in the figure."""
    idle_seconds: Annotated[float, UNASKED] = 6.0
    round_trip_seconds: Annotated[float, UNASKED] = 3.0
    round_trips: Annotated[int, UNASKED] = 100

    @property
    def messages_per_round(self) -> int:
        """How many a round takes."""
        return min(self.messages, self.per_round)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonPlan:
    """How much of a backlog is moved, beside whom, and how often."""

    messages: int = 20_000
    """How many the syphon moves in a round; fewer where the destination could not hold what all rounds bring it."""
    size: Size = 1024
    latency_ms: LatencyMs = 0.0
    rounds: Rounds = 3
    destinations: int = 1
    """More than 1: also a backlog for so many destinations."""
    memory: int = 0
    """Also how far memory grows while so many messages are moved."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SendPlan:
    """How many messages are sent by each way with one caller, and in a lap by all callers of the others."""

    messages: int = 300
    """How many one caller sends in a round."""
    size: Size = 1024
    latency_ms: LatencyMs = 0.0
    rounds: Rounds = 7


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverPlan:
    """How many failovers are seen, and of what."""

    messages: int = 100
    """How many failovers; each takes a second or two."""
    size: Size = 1024
    latency_ms: LatencyMs = 0.0
