"""The boots of engines, from the numbers and times of their records: what is missing, and how each ended.

Times are microseconds since the epoch (UTC). Records of a boot count from 1 without gaps, so a number that is absent is
a record that is missing. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from paired_servicebus.core.model.pairing_events import EngineStarted, EngineStopped, MessageReceived, Record

SILENT: Final = 15 * 60 * 1_000_000
"""Microseconds without a record, before the newest one of its pairing's engines, after which an engine is silent."""
_UNNAMED: Final = re.compile(r"(-drain)?@[^@]*$")
_DRAIN: Final = re.compile(r"-drain@")
RESTARTED: Final = "the engine was killed, and started again"
SILENT_REASON: Final = "it recorded nothing for 15 minutes, while others of its pairing did"

Ended = Literal["stopped", "restarted", "silent", "running"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBoot:
    """One boot, as the table `engines` has it."""

    pairing: str
    engine: str
    boot: str
    started_at: int | None
    first_at: int
    last_at: int
    first_seq: int
    last_seq: int
    records: int
    missing: int
    complete_to: int | None
    """The time of the last record before the first gap; None: the first record is missing."""
    complete_from: int | None
    """The time of the first record after the last gap; None: no gap."""
    ended: Ended
    ended_at: int | None
    end_reason: str | None
    primary: str | None = None
    secondary: str | None = None
    syphon: bool | None = None
    backlog_queues: int | None = None
    version: str | None = None
    receives: bool = False
    pairing_name: str = ""
    """The pairing's name by this engine; `pairing` is the one by which its messages are judged."""

    @property
    def is_drain(self) -> bool:
        """Return whether it is a task of a drain, whose journal ends with it."""
        return _DRAIN.search(self.engine) is not None

    @property
    def may_go_on(self) -> bool:
        """Return whether it may have records that are not here."""
        return not self.is_drain and self.ended in ("running", "silent")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalGap:
    """Records that a boot's numbers lack."""

    engine: str
    boot: str
    first_seq: int
    last_seq: int

    @property
    def missing(self) -> int:
        return self.last_seq - self.first_seq + 1


@dataclass(slots=True)
class _Boot:
    """The known facts about a boot."""

    times: dict[int, int] = field(default_factory=dict)
    """By number."""
    started: EngineStarted | None = None
    stopped: EngineStopped | None = None
    receives: bool = False

    def spans(self) -> list[tuple[int, int]]:
        """Return the first and last of numbers that follow each other."""
        found: list[tuple[int, int]] = []
        for seq in sorted(self.times):
            if found and seq == found[-1][1] + 1:
                found[-1] = (found[-1][0], seq)
            else:
                found.append((seq, seq))
        return found


def pairing_by_name(engine: str) -> str:
    """Return an engine's pairing where no record gives it: its name up to the last "@", without a drain's ending."""
    return _UNNAMED.sub("", engine)


def micros(at: float) -> int:
    """Return a time in microseconds since the epoch."""
    return round(at * 1_000_000)


def shared_names(boots: Iterable[tuple[str, EngineStarted | None]]) -> Mapping[str, str]:
    """Return the pairing of each name that an engine gave it.

    Engines of the same two namespaces share backlog queues, whatever their names: they are one pairing, by the first
    of its names.
    """
    named = {(name, _namespaces(started)) for name, started in boots}
    first: dict[tuple[str, str], str] = {}
    for name, namespaces in named:
        if namespaces is not None:
            first[namespaces] = min(name, first.get(namespaces, name))
    found: dict[str, str] = {}
    for name, namespaces in named:
        shared = name if namespaces is None else first[namespaces]
        found[name] = min(shared, found.get(name, shared))
    return found


def _namespaces(started: EngineStarted | None) -> tuple[str, str] | None:
    return None if started is None else (started.primary.lower(), started.secondary.lower())


class BootFold:
    """Takes records in any order; `boots` returns those so far."""

    def __init__(self) -> None:
        self._boots: dict[tuple[str, str], _Boot] = {}

    def note(self, engine: str, boot: str, seq: int, at: int) -> bool:
        """Take the number of a record of an unknown kind; return whether it is new."""
        times = self._boots.setdefault((engine, boot), _Boot()).times
        if seq in times:
            return False
        times[seq] = at
        return True

    def add(self, record: Record) -> bool:
        """Take one record; return whether it is new."""
        event = record.event
        if not self.note(record.engine, record.boot, record.seq, micros(event.at)):
            return False
        boot = self._boots[record.engine, record.boot]
        if isinstance(event, MessageReceived):
            boot.receives = True
        elif isinstance(event, EngineStarted):
            boot.started = event
        elif isinstance(event, EngineStopped):
            boot.stopped = event
        return True

    def pairings(self) -> dict[tuple[str, str], str]:
        """Return each boot's pairing."""
        names = self._pairing_names()
        shared = shared_names((names[boot], one.started) for boot, one in self._boots.items())
        return {boot: shared[name] for boot, name in names.items()}

    def _pairing_names(self) -> dict[tuple[str, str], str]:
        return {
            boot: one.started.pairing if one.started is not None else pairing_by_name(boot[0])
            for boot, one in self._boots.items()
        }

    def boots(self) -> tuple[EngineBoot, ...]:
        """Return the boots, by engine and begin."""
        pairings, spans = self.pairings(), {name: one.spans() for name, one in self._boots.items()}
        pairing_names = self._pairing_names()
        newest_boot: dict[str, int] = {}
        newest: dict[str, int] = {}
        for name, one in self._boots.items():
            first, last = one.times[spans[name][0][0]], one.times[spans[name][-1][1]]
            newest_boot[name[0]] = max(first, newest_boot.get(name[0], first))
            newest[pairings[name]] = max(last, newest.get(pairings[name], last))
        found = [
            replace(
                _made(name, one, spans[name], pairings[name], newest_boot[name[0]], newest[pairings[name]]),
                pairing_name=pairing_names[name],
            )
            for name, one in self._boots.items()
        ]
        return tuple(sorted(found, key=lambda one: (one.engine, one.first_at, one.boot)))

    def gaps(self) -> tuple[JournalGap, ...]:
        """Return the gaps, by boot and number."""
        found = []
        for (engine, boot), one in sorted(self._boots.items()):
            before = 0
            for first, last in one.spans():
                if first > before + 1:
                    found.append(JournalGap(engine=engine, boot=boot, first_seq=before + 1, last_seq=first - 1))
                before = last
        return tuple(found)


def _made(
    name: tuple[str, str], one: _Boot, spans: list[tuple[int, int]], pairing: str, newest_boot: int, newest: int
) -> EngineBoot:
    (first, head), (tail, last) = spans[0], spans[-1]
    last_at = one.times[last]
    ended, ended_at, reason = _end_of(one, last_at, newest_boot, newest)
    started = one.started
    return EngineBoot(
        pairing=pairing,
        engine=name[0],
        boot=name[1],
        started_at=None if started is None else micros(started.at),
        first_at=one.times[first],
        last_at=last_at,
        first_seq=first,
        last_seq=last,
        records=len(one.times),
        missing=last - len(one.times),
        complete_to=one.times[head] if first == 1 else None,
        complete_from=one.times[tail] if len(spans) > 1 or first > 1 else None,
        ended=ended,
        ended_at=ended_at,
        end_reason=reason,
        primary=None if started is None else started.primary,
        secondary=None if started is None else started.secondary,
        syphon=None if started is None else started.syphon,
        backlog_queues=None if started is None else started.backlog_queues,
        version=None if started is None else started.version,
        receives=one.receives,
    )


def _end_of(one: _Boot, last_at: int, newest_boot: int, newest: int) -> tuple[Ended, int | None, str | None]:
    if one.stopped is not None:
        return "stopped", micros(one.stopped.at), one.stopped.reason
    if newest_boot > last_at:
        return "restarted", newest_boot, RESTARTED
    if last_at < newest - SILENT:
        return "silent", last_at, SILENT_REASON
    return "running", None, None


def pairings_of_engines(boots: Iterable[EngineBoot]) -> Mapping[str, str]:
    """Return each engine's pairing, whatever the boot."""
    found: dict[str, str] = {}
    for one in boots:
        found[one.engine] = max(one.pairing, found.get(one.engine, ""))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalCover:
    """The times between which all journals of a pairing are complete; None: no limit."""

    since: int | None
    until: int | None
    gap_engine: str | None
    late_engine: str | None
    syphon_known: bool

    def covers(self, at: int | None, until: int | None) -> bool:
        """Return whether no record is missing of the time from `at` (exclusively after a gap) to `until`."""
        after_gap = self.since is None or at is None or at > self.since
        return after_gap and (self.until is None or until is None or until <= self.until)


def covers_of(boots: Iterable[EngineBoot]) -> Mapping[str, JournalCover]:
    """Return the cover of each pairing's journals."""
    by_pairing: dict[str, list[EngineBoot]] = {}
    for boot in boots:
        by_pairing.setdefault(boot.pairing, []).append(boot)
    return {pairing: _cover(found) for pairing, found in by_pairing.items()}


def _cover(boots: list[EngineBoot]) -> JournalCover:
    gaps = [(boot.complete_from, boot.engine) for boot in boots if boot.missing and boot.complete_from is not None]
    ends = [(boot.last_at, boot.engine) for boot in boots if boot.may_go_on]
    since, gap_engine = max(gaps, default=(None, None))
    until, late_engine = min(ends, default=(None, None))
    return JournalCover(
        since=since,
        until=until,
        gap_engine=gap_engine,
        late_engine=late_engine,
        syphon_known=any(boot.syphon or boot.is_drain for boot in boots),
    )
