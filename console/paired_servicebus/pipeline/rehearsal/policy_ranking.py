"""The requested policies, their runs, and the figures of the runs: the recommended policy with its reason.

A run for every policy and seed, in independent chunks; its row is the same wherever and whenever its chunk is run. For
each policy the figures are the median and the extremes of its runs. The weights are shown with the result: a second of
refused sends counts one, a failover FAILOVER, since it parks messages, loses order and may duplicate. The mean of all
readings decides; ties go to the fewest parked, then the lowest cost, then the first policy, which is the one in force.
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

FAILOVER: Final = 10.0
"""Seconds of refused sends that one failover is worth avoiding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure over all readings of the record: the middle one, the least and the greatest."""

    middle: int
    least: int
    greatest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """The figures of one policy."""

    policy: Policy
    figures: dict[str, Figure]
    score: float
    """Mean seconds, failovers counted in; less is better."""

    def __getitem__(self, name: str) -> Figure:
        return self.figures[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalResult:
    """Every policy's line, the one in force first; and the index of the recommended one."""

    lines: tuple[PolicyFigures, ...]
    best: int
    reason: str

    @property
    def recommended(self) -> Policy:
        """The policy."""
        return self.lines[self.best].policy


def rehearsed(order: Order, rows: Sequence[Row]) -> RehearsalResult:
    """Return the figures of all rows; their order does not matter."""
    runs: list[list[RunOutcome]] = [[] for _ in order.policies]
    for row in sorted(rows):
        runs[row[0]].append(outcome_of(row))
    lines = tuple(_line(policy, found) for policy, found in zip(order.policies, runs, strict=True))
    best = min(range(len(lines)), key=lambda index: _rank(lines[index], index))
    return RehearsalResult(lines=lines, best=best, reason=_reason(lines, best))


def _line(policy: Policy, runs: Sequence[RunOutcome]) -> PolicyFigures:
    figures = {name: _figure([getattr(run, name) for run in runs]) for name in COLUMNS}
    weighed = sum(run.unavailable_ms for run in runs) / 1000.0 + FAILOVER * sum(run.failovers for run in runs)
    return PolicyFigures(policy=policy, figures=figures, score=round(weighed / len(runs), 3))


def _figure(values: list[int]) -> Figure:
    values.sort()
    return Figure(middle=values[len(values) // 2], least=values[0], greatest=values[-1])


def _rank(line: PolicyFigures, index: int) -> tuple[int, float, int, int, int]:
    """Return the sort key of a policy: one that broke a rule is never recommended."""
    wrong = line["broken"].greatest + line["lost"].greatest
    return wrong, round(line.score, 1), line["parked"].middle, line["operations"].middle, index


def _reason(lines: Sequence[PolicyFigures], best: int) -> str:
    now, then = lines[0], lines[best]
    if not any(line["unavailable_ms"].greatest or line["failovers"].greatest for line in lines):
        return "under every policy nothing failed over and no sender was refused: there is nothing to choose by"
    if best == 0:
        return f"no other policy does better: {_weight(now)} weighed"
    told = "; ".join(_change(what, now, then) for what in ("unavailable_ms", "failovers", "parked", "duplicates"))
    sure = "" if _apart(now, then) else "; the record leaves readings in which the policy in force does as well"
    return f"{told}; {_weight(then)} weighed instead of {_weight(now)}{sure}"


def _weight(line: PolicyFigures) -> str:
    return f"{line.score:,.0f} s"


def _apart(now: PolicyFigures, then: PolicyFigures) -> bool:
    """Whether even its worst reading is better than the best one of the policy in force."""
    return _bound(then, "greatest") < _bound(now, "least")


def _bound(line: PolicyFigures, end: str) -> float:
    seconds: int = getattr(line["unavailable_ms"], end)
    failovers: int = getattr(line["failovers"], end)
    return seconds / 1000.0 + FAILOVER * failovers


def _change(name: str, now: PolicyFigures, then: PolicyFigures) -> str:
    before, after = now[name].middle, then[name].middle
    if name == "unavailable_ms":
        return f"senders are refused for {after / 1000:,.0f} s instead of {before / 1000:,.0f} s"
    what = {"failovers": "failovers", "parked": "messages parked", "duplicates": "duplicates"}[name]
    return f"{after:,} {what} as before" if after == before else f"{after:,} {what} instead of {before:,}"


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
