"""Episodes of entities, as the table `episodes`: from the first failure to the return, by a boot's own numbers.

An episode belongs to one boot of one engine; no clock is compared with another one. One whose engine stopped, was
restarted or is silent ends with that reason. Times are microseconds since the epoch (UTC). Pure.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from paired_servicebus.core.judging.engine_boots import EngineBoot, micros
from paired_servicebus.core.judging.receipts import Receipt
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.entity_state import DIVERTING, State
from paired_servicebus.core.text.time_format import written

NEAR: Final = 2_000_000
"""Microseconds that an operator's order may be before the change of state that it makes, or after it."""
_ORDERS: Final = (e.Forced, e.Pinned, e.EntityReleased)
_PINGS: Final[Mapping[type[e.Event], str]] = {
    e.PingSent: "pings_sent",
    e.PingAccepted: "pings_accepted",
    e.PingFailed: "pings_failed",
}
_OPEN: Final = frozenset({State.SUSPECT, *DIVERTING})
Row = dict[str, Any]
Place = tuple[str, str, str]
"""An engine, its boot, and an entity without case."""


@dataclass(slots=True)
class _Episode:
    """One episode under construction. closing: the change that ended it."""

    begin: e.StateChanged
    recorded: list[Any] = field(default_factory=list)
    closing: e.StateChanged | None = None

    @property
    def began_at(self) -> int:
        return micros(self.begin.at)


class EpisodeFold:
    """Takes records in any order, each once; `rows` returns the episodes so far."""

    def __init__(self) -> None:
        self._stories: defaultdict[Place, list[tuple[int, Any]]] = defaultdict(list)

    def add(self, record: e.Record) -> None:
        """Take one record; kinds without a bearing are ignored."""
        event: Any = record.event
        if isinstance(event, e.StateChanged | _ORDERS[0] | _ORDERS[1] | _ORDERS[2]) or event.__class__ in _PINGS:
            self._stories[record.engine, record.boot, event.entity.lower()].append((record.seq, event))

    def rows(
        self,
        boots: Iterable[EngineBoot],
        good: Mapping[tuple[str, str], Sequence[int]],
        receipts: Iterable[Receipt],
    ) -> list[Row]:
        """Return the episodes.

        Args:
            good: when the primary accepted sends, by engine and entity without case, sorted.
        """
        by_name = {(one.engine, one.boot): one for one in boots}
        diverted: defaultdict[Place, list[Receipt]] = defaultdict(list)
        for one in receipts:
            if one.diverted and one.diverted_by is not None and one.diverted_boot is not None:
                diverted[one.diverted_by, one.diverted_boot, one.entity.lower()].append(one)
        found: list[Row] = []
        for place, story in self._stories.items():
            events = [event for _, event in sorted(story, key=lambda item: item[0])]
            rows = [_row(one, by_name[place[:2]], good.get((place[0], place[2]), ())) for one in _episodes(events)]
            _add_figures(rows, diverted.get(place, ()))
            found += rows
        return found


def _episodes(events: Sequence[Any]) -> list[_Episode]:
    """Cut an entity's story into episodes; an order near one's begin or end belongs to it."""
    found: list[_Episode] = []
    current: _Episode | None = None
    waiting: list[Any] = []
    for index, event in enumerate(events):
        if isinstance(event, e.StateChanged):
            if event.now in _OPEN and current is None:
                current = _Episode(event, [one for one in waiting if 0 <= micros(event.at) - micros(one.at) <= NEAR])
                found.append(current)
                waiting = []
            if current is not None:
                current.recorded.append(event)
                if event.now not in _OPEN:
                    current.closing, current = event, None
        elif current is not None:
            current.recorded.append(event)
        elif isinstance(event, _ORDERS):
            waiting.append(event)
            _add_late_order(found, event, events[index + 1 :])
    return found


def _add_late_order(found: list[_Episode], event: Any, later: Sequence[Any]) -> None:
    """Add an order after the last episode's end to it, unless it makes the next one begin."""
    closing = found[-1].closing if found else None
    if closing is None or isinstance(event, e.Forced) or micros(event.at) - micros(closing.at) > NEAR:
        return
    begin = next((one for one in later if isinstance(one, e.StateChanged) and one.now in _OPEN), None)
    if begin is None or not 0 <= micros(begin.at) - micros(event.at) <= NEAR:
        found[-1].recorded.append(event)


def _row(one: _Episode, boot: EngineBoot, good: Sequence[int]) -> Row:
    states = [event for event in one.recorded if isinstance(event, e.StateChanged)]
    diverting = next((event for event in states if event.now in DIVERTING), None)
    ping = next((event for event in one.recorded if isinstance(event, e.PingAccepted)), None)
    outcome = _outcome(one, boot, failed_over=diverting is not None)
    last_at = micros(one.recorded[-1].at)
    if outcome == "engine ended" and boot.ended_at is not None:
        last_at = max(last_at, boot.ended_at)
    place = bisect_left(good, one.began_at)
    pings = [_PINGS.get(event.__class__) for event in one.recorded]
    return {
        "id": f"{one.begin.entity}@{boot.engine}@{one.began_at}",
        "pairing": boot.pairing,
        "engine": boot.engine,
        "boot": boot.boot,
        "entity": one.begin.entity,
        "began_at": one.began_at,
        "suspected_at": one.began_at if one.begin.now == State.SUSPECT else None,
        "failed_over_at": None if diverting is None else micros(diverting.at),
        "first_ping_at": None if ping is None else micros(ping.at),
        "failed_back_at": None if one.closing is None or diverting is None else micros(one.closing.at),
        "last_at": last_at,
        "last_good_at": good[place - 1] if place else None,
        "outcome": outcome,
        "forced": any(event.now == State.FORCED for event in states),
        "cause": one.begin.why if diverting is None else diverting.why,
        "end_reason": boot.end_reason if one.closing is None else one.closing.why,
        **{name: pings.count(name) for name in _PINGS.values()},
        "orders": json.dumps([_order(event) for event in one.recorded if isinstance(event, _ORDERS)]),
    }


def _outcome(one: _Episode, boot: EngineBoot, *, failed_over: bool) -> str:
    if one.closing is not None:
        return "pinned" if one.closing.now == State.PINNED else "failed back" if failed_over else "recovered"
    if boot.ended in ("stopped", "restarted"):
        return "engine ended"
    return "engine silent" if boot.ended == "silent" else "open"


def _order(event: Any) -> Row:
    return {"at": written(event.at, "%Y-%m-%dT%H:%M:%S.%fZ"), "what": event.kind, "by": event.by, "why": event.why}


def _add_figures(rows: Sequence[Row], diverted: Iterable[Receipt]) -> None:
    """Add the figures of the messages that were diverted between an episode's begin and the next one's."""
    groups: list[list[Receipt]] = [[] for _ in rows]
    begins = [row["began_at"] for row in rows]
    for one in diverted:
        place = _place(begins, one.diverted_at or 0)
        if place is not None:
            groups[place].append(one)
    for row, group in zip(rows, groups, strict=True):
        left = [max(one.moved_at or 0, one.dead_lettered_at or 0) for one in group]
        has_left = all(one.moved + one.dead_lettered >= one.diverted for one in group)
        row.update(
            parked=len(group),
            moved=sum(one.moved > 0 for one in group),
            dead_lettered=sum(one.dead_lettered > 0 for one in group),
            first_diverted_at=min((one.diverted_at for one in group if one.diverted_at is not None), default=None),
            backlog_empty_at=row["failed_back_at"] if not group else max(left) if has_left else None,
        )


def _place(begins: Sequence[int], at: int) -> int | None:
    """Return the index of the latest begin that is not after a time."""
    found = [(begin, index) for index, begin in enumerate(begins) if begin <= at]
    return max(found)[1] if found else None
