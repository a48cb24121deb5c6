"""An experiment: an assumption about Service Bus, its reason, and the function that tests it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from paired_servicebus.verify.trial import Trial

DEADLINE: Final = 60.0
"""Seconds for an experiment, without the removal of its queues."""


class ExperimentResult(StrEnum):
    """A result, as in the JSON file."""

    HOLDS = "holds"
    DIFFERS = "differs"
    NOT_PERMITTED = "not permitted"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Observation:
    """The evidence of an experiment: whether the assumption holds, and one sentence."""

    holds: bool
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """name: a stable key. why: the part of the project that relies on the assumption. is_slow: needs `--slow`."""

    name: str
    assumption: str
    why: str
    run: Callable[[Trial], Awaitable[Observation]]
    deadline: float = DEADLINE
    is_slow: bool = False
    needs_standard: bool = False
    """Whether the tier Basic lacks the feature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentReport:
    """An experiment's result. seen: one sentence, without secrets, hosts and names of namespaces."""

    experiment: Experiment
    result: ExperimentResult
    seen: str
    seconds: float
