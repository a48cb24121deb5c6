"""The plan of each bench: `paired bench NAME --help` shows these docstrings and defaults.

Importing this module is cheap: it imports no bench. Plans are frozen, so that one can be a function's default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from paired_servicebus.core.errors import PairedError


class BenchError(PairedError):
    """A measurement that is not possible."""


Size = Annotated[int, Parameter(help="Bytes of a message's body.")]
LatencyMs = Annotated[float, Parameter(help="Milliseconds that a round trip takes longer, in the sandbox.")]
Rounds = Annotated[int, Parameter(help="How often each way takes its turn.")]


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


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SendPlan:
    """Number and size of the messages; with several callers the number is of all callers together."""

    messages: int = 300
    """Messages that one caller sends in a round."""
    size: Size = 1024
    latency_ms: LatencyMs = 0.0
    rounds: Rounds = 7
