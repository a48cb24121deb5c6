"""The plan of each bench: `paired bench NAME --help` shows these docstrings and defaults.

Importing this module is cheap: it imports no bench. Plans are frozen, so that one can be a function's default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter

from paired_servicebus.core.errors import PairedError


class BenchError(PairedError):
    """A measurement that is not possible."""


UNASKED: Final = Parameter(parse=False)
"""Marks a parameter that only tests set: the command line does not offer it."""
Size = Annotated[int, Parameter(help="Bytes of a message's body.")]
LatencyMs = Annotated[float, Parameter(help="Milliseconds that a round trip takes longer, in the sandbox.")]
Rounds = Annotated[int, Parameter(help="How often each way takes its turn.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlan:
    """A round of ingest or moves takes `per_round` messages at most."""

    messages: int = 100_000
    """Messages held in the end; a round takes 20,000 at most."""
    size: Size = 1024
    rounds: Annotated[int, UNASKED] = 5
    per_round: Annotated[int, UNASKED] = 20_000
    links: Annotated[int, UNASKED] = 1000
    idle_timeout: Annotated[float, UNASKED] = 10.0
    """Seconds; the AMQP idle timeout of each idle client. Shorter than any SDK's, so that keeping links alive is in the
    figure."""
    idle_seconds: Annotated[float, UNASKED] = 6.0
    round_trip_seconds: Annotated[float, UNASKED] = 3.0
    round_trips: Annotated[int, UNASKED] = 100
    credits: Annotated[int, UNASKED] = 1000
    """Credits a second of the throttled sandbox."""
    throttled_seconds: Annotated[int, UNASKED] = 4

    @property
    def messages_per_round(self) -> int:
        """Return the messages of one round."""
        return min(self.messages, self.per_round)


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
class SyphonPlan:
    """Size of the backlog, and the number of rounds."""

    messages: int = 20_000
    """Messages that the syphon moves in a round; fewer if the destination could not hold those of all rounds."""
    size: Size = 1024
    latency_ms: LatencyMs = 0.0
    rounds: Rounds = 3
    destinations: int = 1
    """More than 1: also measure a backlog for this number of destinations."""
    memory: int = 0
    """Also measure the growth of memory while this number of messages is moved."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SendPlan:
    """Number and size of the messages; with several callers the number is of all callers together."""

    messages: int = 300
    """Messages that one caller sends in a round."""
    size: Size = 1024
    latency_ms: LatencyMs = 0.0
    rounds: Rounds = 7


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverPlan:
    """Number of failovers, and size of the messages."""

    messages: int = 100
    """Number of failovers; each takes a second or two."""
    size: Size = 1024
    latency_ms: LatencyMs = 0.0
