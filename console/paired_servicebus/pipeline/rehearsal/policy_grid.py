"""The requested policies and their runs: one for every policy and seed, in independent chunks.

A run's row is the same wherever and whenever its chunk is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import product
from typing import Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.pipeline.rehearsal.histories.recorded_history import RecordedHistory
from paired_servicebus.pipeline.rehearsal.policy_replay import COLUMNS, RunOutcome, replay

RUNS_A_CHUNK: Final = 20
"""Small enough that the last chunks leave no processor idle for long, at some tenths of a second a run at worst."""
NAMES: Final = ("policy", "seed", *COLUMNS)

Row = tuple[int, ...]
"""By NAMES."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One rehearsal. `policies` begins with the one in force."""

    history: RecordedHistory
    policies: tuple[Policy, ...]
    seeds: int

    @property
    def runs(self) -> int:
        """Policy-seeds."""
        return len(self.policies) * self.seeds

    @property
    def chunks(self) -> int:
        """How many there are."""
        return -(-self.runs // RUNS_A_CHUNK)


def policies_of(
    current: Policy, *, intervals: Sequence[float], pings: Sequence[int], ping_intervals: Sequence[float]
) -> tuple[Policy, ...]:
    """Return the policy in force, then every combination that is another.

    Raises ConfigurationError: a value is out of its range.
    """
    asked = (
        replace(current, failover_interval=interval, failback_pings=count, ping_primary_interval=every)
        for interval, count, every in product(intervals, pings, ping_intervals)
    )
    return tuple(dict.fromkeys((current, *asked)))


def order_of(history: RecordedHistory, policies: Sequence[Policy], seeds: int) -> Order:
    """Return the order of a rehearsal.

    Raises ConfigurationError: fewer than two seeds, since the first two are the bounds.
    """
    if seeds < 2:
        raise ConfigurationError(f"--seeds is {seeds}; it must be 2 at least: the first two are the record's bounds")
    return Order(history=history, policies=tuple(policies), seeds=seeds)


def run_chunk(order: Order, chunk: int) -> Iterator[Row]:
    """Return the rows of a chunk. Neighbours are spread over chunks, so that each has its share of the long runs."""
    for index in range(chunk, order.runs, order.chunks):
        policy, seed = divmod(index, order.seeds)
        outcome = replay(order.history, order.policies[policy], seed + 1)
        yield (policy, seed + 1, *astuple(outcome))


def outcome_of(row: Row) -> RunOutcome:
    """Return a row's policy, seed and result."""
    return RunOutcome(**dict(zip(COLUMNS, row[2:], strict=True)))
