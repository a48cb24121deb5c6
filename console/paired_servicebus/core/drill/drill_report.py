"""The result of a drill: measured times beside the promises, the ledger, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from paired_servicebus.core.accounting.ledger import Ledger
from paired_servicebus.core.drill.drill_plan import DrillPart, DrillPlan, DrillRole, Phase
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import day_and_clock

MAX_NAMED: Final = 10
"""Message ids in a sentence."""


class DrillOutcome(StrEnum):
    """The end of a drill."""

    HELD = "held"
    BROKEN = "broken"
    NOT_DONE = "not carried out"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    """The measurements of one entity; times are seconds. None: it did not happen, or not to this entity."""

    part: DrillPart
    detect: float | None = None
    divert: float | None = None
    returned: float | None = None
    return_promise: float | None = None
    """The promise for its failback, with `cool_down`."""
    failovers: int = 0
    pings_refused: int = 0
    pings_accepted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillMeasures:
    """The measurements of a drill. drain: seconds from the last failback until all parked messages had arrived."""

    parts: tuple[PartResult, ...]
    ledger: Ledger
    drain: float | None
    diverted: int
    operations: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRow:
    """One measured time beside its promise, both in seconds. took None: it did not happen."""

    phase: Phase
    role: DrillRole | None
    took: float | None
    promise: float | None

    @property
    def is_kept(self) -> bool:
        """Return whether it happened, and within its promise."""
        return self.took is not None and (self.promise is None or self.took <= self.promise)


def time_rows(plan: DrillPlan, measures: DrillMeasures) -> tuple[TimeRow, ...]:
    """Return the measured times of each failing entity beside the promises for the options in force."""
    rows: list[TimeRow] = []
    for phase in (Phase.DETECT, Phase.DIVERT, Phase.RETURN):
        for one in measures.parts:
            if one.part.fails:
                promise = one.return_promise if phase is Phase.RETURN else plan.promise(phase)
                rows.append(TimeRow(phase=phase, role=one.part.role, took=_took(one)[phase], promise=promise))
    return (*rows, TimeRow(phase=Phase.DRAIN, role=None, took=measures.drain, promise=plan.promise(Phase.DRAIN)))


def _took(one: PartResult) -> Mapping[Phase, float | None]:
    return {Phase.DETECT: one.detect, Phase.DIVERT: one.divert, Phase.RETURN: one.returned}


def broken_promises(plan: DrillPlan, measures: DrillMeasures) -> tuple[str, ...]:
    """Return a sentence for each promise that was not kept."""
    return (
        *(_late(row) for row in time_rows(plan, measures) if not row.is_kept),
        *(_failed_over(one) for one in measures.parts if not one.part.fails and one.failovers),
        *_unbalanced(measures.ledger),
    )


_DID_NOT: Final[Mapping[Phase, str]] = {
    Phase.DETECT: "did not fail over",
    Phase.DIVERT: "had no send accepted by a backlog queue",
    Phase.RETURN: "did not fail back",
    Phase.DRAIN: "not all parked messages arrived",
}
_LATE: Final[Mapping[Phase, str]] = {
    Phase.DETECT: "failed over",
    Phase.DIVERT: "had its first send in the backlog",
    Phase.RETURN: "failed back",
    Phase.DRAIN: "the backlog was empty",
}


def _late(row: TimeRow) -> str:
    subject = f"{row.role} " if row.role is not None else ""
    if row.took is None:
        return subject + _DID_NOT[row.phase]
    return f"{subject}{_LATE[row.phase]} after {row.took:.1f} s; promised: {row.promise:g} s"


def _failed_over(one: PartResult) -> str:
    return f"{one.part.role} failed over {plural(one.failovers, 'time')}, and nothing was wrong with it"


def _unbalanced(ledger: Ledger) -> list[str]:
    named = (
        (ledger.lost, "accepted and lost", ledger.lost_ids),
        (ledger.unexpected, "delivered and never accepted", ledger.unexpected_ids),
    )
    found = [f"{plural(number, 'message')} {words}: {_some(ids)}" for number, words, ids in named if number]
    counted = (
        (ledger.parked, "still parked"),
        (ledger.dead_lettered, "dead-lettered by the syphon"),
        (ledger.refused, "refused to the end"),
        (ledger.in_doubt - ledger.recovered, "in doubt to the end"),
    )
    return [*found, *(f"{plural(number, 'message')} {words}" for number, words in counted if number)]


def _some(ids: tuple[str, ...]) -> str:
    more = f" and {len(ids) - MAX_NAMED} more" if len(ids) > MAX_NAMED else ""
    return ", ".join(ids[:MAX_NAMED]) + more


# The last drill of a pairing, as far as a machine knows: when it was, and how it ended.


@dataclass(frozen=True, slots=True, kw_only=True)
class LastDrill:
    """The last drill. began, ended: seconds since the epoch; ended and outcome None: it runs, or was killed.

    text: the verdict, as a sentence. configured: whether it had the pairing's own times.
    """

    began: float
    ended: float | None = None
    outcome: DrillOutcome | None = None
    text: str = ""
    configured: bool = False

    @property
    def sentence(self) -> str:
        """Return when it was and how it ended."""
        times = "the pairing's own times" if self.configured else "short times"
        began = f"{day_and_clock(self.began)} UTC, {times}"
        if self.outcome is None or self.ended is None:
            return f"{began}: it has not ended, or was killed"
        return f"{began}: {self.outcome}{': ' if self.text else ''}{self.text}"
