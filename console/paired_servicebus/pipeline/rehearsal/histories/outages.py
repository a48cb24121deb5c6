"""From observations to outages.

An outage began between the last good observation and the first bad one. It ended between the last bad one and the first
good one. If counts of one second have both, the outage affected a share of the requests.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.pipeline.rehearsal.histories.observations import EntityObservations, Observation, is_unanswered
from paired_servicebus.pipeline.rehearsal.histories.recorded_history import (
    CONDITIONS,
    Outage,
    TimeBounds,
    kind_of_reason,
)

WINDOW: Final = 1.0
"""Seconds by which counted sends may be recorded late."""


@dataclass(slots=True)
class Spell:
    """Bad sightings with no good one between them."""

    began: TimeBounds
    last_bad: float
    ended: TimeBounds | None = None
    reasons: list[str] = field(default_factory=list)
    good: int = 0
    bad: int = 0
    """Of the windows inside, where both are known."""


def outages_of(seen: EntityObservations, last: float) -> list[Outage]:
    """Return the outages of one entity; `last` is when the record ends."""
    spells: list[Spell] = []
    good_at: float | None = None
    clean = True
    """Whether a window without a failure lies between the latest spell and now."""
    for sight in sorted(seen.sightings, key=lambda one: one.told):
        spell = spells[-1] if spells and spells[-1].ended is None else None
        if sight.window and sight.good and sight.bad:
            _mixed(spells, spell, sight)
        elif sight.bad:
            if spell is None:
                spell = _opened(spells, sight, good_at, merge=not clean)
                clean = False
            spell.last_bad = max(spell.last_bad, sight.asked if is_unanswered(sight) else sight.told)
            spell.bad += sight.bad if sight.window else 0
            spell.reasons += [sight.reason] if sight.reason else []
        elif spell is None or sight.asked >= spell.last_bad or not sight.window:
            good_at = sight.told
            clean = clean or sight.window
            if spell is not None:
                spell.ended = TimeBounds(min(spell.last_bad, sight.told), sight.told)
    found = (_outage(seen, spell, last) for spell in spells)
    return [outage for outage in found if outage.failure in CONDITIONS]  # the others are of single messages


def _mixed(spells: list[Spell], spell: Spell | None, sight: Observation) -> None:
    """Add a second with both: the edge of a spell, inside of one, or a whole one."""
    if spell is not None:
        if sight.asked > spell.began.latest:
            spell.good, spell.bad = spell.good + sight.good, spell.bad + sight.bad
            spell.last_bad = max(spell.last_bad, sight.asked)
    elif not spells or sight.asked >= (spells[-1].ended or spells[-1].began).latest:
        found = Spell(TimeBounds(sight.asked, sight.told), sight.told, good=sight.good, bad=sight.bad)
        found.ended = TimeBounds(sight.told, sight.told)
        spells.append(found)


def _opened(spells: list[Spell], sight: Observation, good_at: float | None, *, merge: bool) -> Spell:
    """Open a new spell, or the latest again if every second between them had a failure."""
    if merge and spells:
        spell = spells[-1]
        spell.ended = None
        spell.good += 1
        return spell
    earliest = sight.asked if good_at is None else min(good_at, sight.told)
    latest = max(earliest, sight.asked) if is_unanswered(sight) else sight.told
    spells.append(Spell(TimeBounds(earliest, latest), sight.asked))
    return spells[-1]


def _outage(seen: EntityObservations, spell: Spell, last: float) -> Outage:
    ended = spell.ended or TimeBounds(min(spell.last_bad, last), last)
    share = spell.bad / (spell.good + spell.bad) if spell.good and spell.bad else 1.0
    return Outage(seen.path, _kind(seen, spell, ended), spell.began, ended, round(share, 3))


def _kind(seen: EntityObservations, spell: Spell, ended: TimeBounds) -> FailureKind:
    """Return the most frequent failure kind.

    An older journal counts none: a failure without a state change or doubt was throttling.
    """
    found = Counter(kind for kind in map(kind_of_reason, spell.reasons) if kind is not None)
    found.update(kind for at, kind in seen.kinds if spell.began.earliest <= at <= ended.latest + WINDOW)
    return found.most_common(1)[0][0] if found else FailureKind.BUSY
