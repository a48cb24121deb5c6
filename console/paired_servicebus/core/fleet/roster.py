"""The engines of a pairing: who is there, who is silent, and their entities, from the documents on the reports board.

Silence has a rule of its own (EngineRecord.status), and is judged by the latest reading, not by the present: a board
that this engine cannot read makes no engine silent. An engine is gone after PRESENCE_SECONDS without a document.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Final

from paired_servicebus.core.backlog.depth_readings import QueueUsage
from paired_servicebus.core.fleet.board_reader import (
    OFF_BY,
    bound_number,
    bound_text,
    bounded,
    sum_figures,
)
from paired_servicebus.core.fleet.fleet_documents import (
    PRESENCE_INTERVAL,
    PRESENCE_SECONDS,
    Author,
    Document,
    Goodbye,
    OrderRow,
    Posted,
    Presence,
    Report,
    Stamp,
)
from paired_servicebus.core.fleet.pace import LOOK_MOST, LOOK_WELL, REPORT_LEAST
from paired_servicebus.core.model.entity_state import WELL, State
from paired_servicebus.core.model.fleet_view import (
    WORST_FIRST,
    EngineFacts,
    FleetEngine,
    FleetEntity,
    FleetEntityState,
    FleetFigures,
    FleetStatus,
    FleetView,
    Takes,
    with_other_signers,
)
from paired_servicebus.core.model.pairing_fold import MAX_NOT_WELL, part_of, silent_part, sum_parts, sum_states
from paired_servicebus.core.model.snapshot import (
    BUSY_STATUSES,
    MOVING_STATUSES,
    DestinationView,
    EntityView,
    ParkedView,
    SyphonStatus,
    SyphonView,
)

# The entities of a fleet, merged over its engines without case.

MAX_SHOWN: Final = 200
"""Entities of a view, the worst first."""
MAX_MERGED: Final = 10_000
"""Distinct paths merged; unsigned reports may name any number."""
MAX_PARTS: Final = 100
"""Parts of one entity's sum that are held; more are added up."""


def merge_entities(engines: Iterable[EngineReport]) -> tuple[FleetEntity, ...]:
    """Return the entities of the engines, the worst first, at most MAX_SHOWN.

    An engine without a report names only its entities that are not healthy; its other entities are not counted.
    """
    merged: dict[str, list[FleetEntity]] = {}
    for one in engines:
        for entity in one.entities or one.engine.not_well:
            key = entity.path.casefold()
            if key not in merged and len(merged) >= MAX_MERGED:
                continue
            parts = merged.setdefault(key, [])
            if one.engine.status is FleetStatus.REPORTING:
                parts.append(part_of(one.engine.engine, entity, has_counts=one.engine.figures is not None))
            else:
                parts.append(silent_part(entity.path))
            if len(parts) > MAX_PARTS:
                parts[:] = [sum_parts(parts[0].path, parts)]
        for held in one.destinations:
            if known := merged.get(held.path.casefold()):
                known[0] = replace(known[0], held_back=(known[0].held_back or 0) + held.set_aside)
    return tuple(sum_parts(parts[0].path, parts) for parts in sorted(merged.values(), key=_rank)[:MAX_SHOWN])


def _rank(parts: Sequence[FleetEntity]) -> tuple[int, int, str]:
    """Return its place: the worst state, then the number of engines in it, then the path."""
    counts = dict(sum_states(part.states for part in parts))
    place, worst = next(((at, one) for at, one in enumerate(WORST_FIRST) if one in counts), (len(WORST_FIRST), None))
    return place, -counts[worst] if worst is not None else 0, parts[0].path.casefold()


# One boot of one engine, by its latest documents.
#
# Of each kind the newest document by the namespace's time and number counts. So documents may come late, twice, or in
# any order, and the record is the same.

PRESENCE_MARGIN: Final = 300.0
"""Seconds that a presence may be late."""
MISSED_REPORTS: Final = 3.0
KNOWN_AFTER: Final = 10.0
"""Seconds between two documents of a boot from which it is known: a flood names each engine once."""

_NEVER: Final[Stamp] = (-1.0, -1)


class EngineRecord:
    """The latest documents of one engine's boot."""

    def __init__(self, *, is_own: bool = False, is_expected: bool = False) -> None:
        self.is_own, self._is_expected = is_own, is_expected
        self.first_at = inf
        self.heard: Stamp = _NEVER
        self.presence: Presence | None = None
        self._goodbye: Goodbye | None = None
        self.entities: tuple[EntityView, ...] = ()
        """Those of the latest report."""
        self.destinations: tuple[DestinationView, ...] = ()
        """Those of its syphon, by the latest report."""
        self.figures: FleetFigures | None = None
        self.report_pace: float | None = None
        self._presence_at: Stamp = _NEVER
        self._report_at: Stamp = _NEVER
        self._goodbye_at: Stamp = _NEVER
        self._silent_for: Stamp = _NEVER
        """The latest stamp when it was found silent: it stays so until it is heard again, also without a watch."""

    def read(self, post: Posted) -> None:
        """Take a document of this boot in.

        This engine knows its own documents: whatever its clock says, no message on the board is newer, or else it is
        forged.
        """
        self.first_at = min(self.first_at, post.enqueued_at)
        self.heard = max(self.heard, post.stamp)
        if not self.is_own:
            self._take(post.document, post.stamp)

    def read_own(self, document: Presence | Report, now: float) -> None:
        """Take a document in that this engine has posted. now: about the namespace's time."""
        self.first_at = min(self.first_at, now)
        self.heard = self._presence_at = self._report_at = (now, 0)
        self._take(document, (now, 1))

    def _take(self, document: Document | None, stamp: Stamp) -> None:
        match document:
            case Presence() as presence if stamp > self._presence_at:
                self._presence_at, self.presence = stamp, bounded(presence)
            case Goodbye() as goodbye if stamp > self._goodbye_at:
                self._goodbye_at, self._goodbye = stamp, bounded(goodbye)
            case Report() as report:
                self._take(report.presence, stamp)
                if stamp > self._report_at:
                    self._take_report(report, stamp)
            case _:
                pass

    def _take_report(self, report: Report, stamp: Stamp) -> None:
        self._report_at, self.entities = stamp, bounded(report.snapshot.entities, "entities")
        self.destinations = bounded(report.snapshot.syphon.destinations, "destinations")
        self.figures = sum_figures(report.snapshot, stamp[0])
        self.report_pace = min(max(bound_number(report.pace), REPORT_LEAST), LOOK_MOST)

    @property
    def is_known(self) -> bool:
        """Return whether it is more than a claim: expected, or heard twice."""
        return self.is_own or self._is_expected or self.heard[0] - self.first_at >= KNOWN_AFTER

    @property
    def has_ended(self) -> bool:
        return self._goodbye_at > max(self._presence_at, self._report_at)

    @property
    def is_shown(self) -> bool:
        """Return whether a presence or a goodbye was read."""
        return self.presence is not None or self._goodbye is not None

    @property
    def answers(self) -> tuple[OrderRow, ...]:
        """Return what it did about orders."""
        return () if self.presence is None else self.presence.rows

    @property
    def current_entities(self) -> tuple[EntityView, ...]:
        """Return the entities of the latest report, corrected by a newer presence."""
        if self.presence is None or self._report_at >= self._presence_at or not self.entities:
            return self.entities
        named = {one.path.casefold(): one for one in self.presence.not_well}
        is_all = len(named) < MAX_NOT_WELL
        return tuple(_correct(entity, named, is_all) for entity in self.entities)

    @property
    def size(self) -> int:
        """Return the number of rows that its report keeps."""
        return len(self.entities) + len(self.destinations)

    def status(self, now: float, *, watched_since: float | None, pace: float) -> FleetStatus:
        """Return whether it reports, at the time of the latest reading.

        Args:
            now: that time, by the namespace's clock, as every time here.
            watched_since: start of this engine's uninterrupted watch; None: it does not watch.
            pace: seconds between two reports that the watch asks for.
        """
        if self.has_ended:
            return FleetStatus.ENDED
        if self.heard != self._silent_for and now <= self._due(watched_since, pace):
            return FleetStatus.REPORTING
        self._silent_for = self.heard
        return FleetStatus.SILENT

    def _due(self, watched_since: float | None, pace: float) -> float:
        heard = self.heard[0]
        within = PRESENCE_MARGIN + (PRESENCE_INTERVAL if self.presence is not None else 0.0)
        if watched_since is None:
            return heard + within
        pace = max(pace, self.report_pace or 0.0)
        watched = max(heard, watched_since + LOOK_WELL) + MISSED_REPORTS * pace
        return min(watched, heard + within)

    def view(self, status: FleetStatus, namesakes: int, *, is_claimed: bool) -> FleetEngine | None:
        """Return the engine for screens; None: nothing is known."""
        document = self.presence or self._goodbye
        if document is None:
            return None
        author, known = document.author, self.presence or _UNKNOWN
        return FleetEngine(
            **{one.name: getattr(known, one.name) for one in fields(EngineFacts)},
            engine=author.engine,
            boot=author.boot,
            host=author.host,
            pid=author.pid,
            program=author.program,
            version=author.version,
            environment=author.environment,
            status=status,
            heard_at=self.heard[0],
            reason=self._goodbye.reason if self._goodbye is not None and status is FleetStatus.ENDED else "",
            namesakes=namesakes,
            figures=self.figures,
            is_claimed=is_claimed,
        )


_UNKNOWN: Final = EngineFacts(
    started_at=0.0, states=(), not_well=(), queues=(), syphon=State.UNKNOWN.value, takes=Takes.LOOK_ONLY, signers=""
)
"""What is known of an engine by its goodbye alone; `started_at` and `takes` have no value for unknown."""


def _correct(entity: EntityView, named: dict[str, FleetEntityState], is_all: bool) -> EntityView:
    one = named.get(entity.path.casefold())
    if one is not None:
        return replace(
            entity,
            state=one.state,
            since=one.since,
            first_failure_at=one.first_failure_at,
            first_failure_kind=one.first_failure_kind,
        )
    return replace(entity, state=State.HEALTHY) if is_all and entity.state not in WELL else entity


# Facts of the fleet for this engine's other rules: clean-up, the syphon's alarm, queue indices, readiness.
#
# A silent engine may run: its queues stay in use, and its syphon is unknown, never absent.

CURRENT_SECONDS: Final = 300.0
"""Seconds since a reading of the reports within which an absence counts as known."""


def usage_from(view: FleetView | None) -> QueueUsage | None:
    """Return the backlog queues that other engines of the fleet use; None: unknown, the board was never read.

    Queues of silent engines are used; whether their syphon moves messages is unknown, so it is not counted.
    """
    if view is None or view.read_at is None:
        return None
    others = _others(view)
    return QueueUsage(
        used=frozenset(index for one in others for index in one.queues),
        moved=_moved(others, MOVING_STATUSES),
        busy=_moved(others, BUSY_STATUSES),
    )


def syphons_elsewhere(view: FleetView | None) -> tuple[str, ...] | None:
    """Return the other reporting engines that run a syphon; None: unknown, the board was never read.

    An empty result proves the absence only while no engine of the view is silent and it has no trouble.
    """
    if view is None or view.read_at is None:
        return None
    moving = (one for one in _others(view) if one.syphon in MOVING_STATUSES)
    return tuple(sorted(one.engine for one in moving if one.status is FleetStatus.REPORTING))


def lacks_syphon(view: FleetView, parked: ParkedView | None, syphon: SyphonView, at: float) -> bool:
    """Return whether messages are parked at `at` and the whole fleet is known to run no syphon.

    SPEC.md section 4.6: "an alarm once the fleet shows none". While an engine is silent or missing, or the boards are
    not read, that is unknown.
    """
    if parked is None or not parked.messages or syphon.status is not SyphonStatus.OFF:
        return False
    if view.read_at is None or at - view.read_at > CURRENT_SECONDS or view.trouble or view.missing:
        return False
    return not any(one.status is FleetStatus.SILENT for one in view.engines) and not syphons_elsewhere(view)


def _others(view: FleetView) -> list[FleetEngine]:
    me = (view.me.casefold(), view.my_boot)
    return [
        one for one in view.engines if one.status is not FleetStatus.ENDED and (one.engine.casefold(), one.boot) != me
    ]


def _moved(engines: list[FleetEngine], statuses: frozenset[SyphonStatus]) -> frozenset[int]:
    moving = (one for one in engines if one.status is FleetStatus.REPORTING and one.syphon in statuses)
    return frozenset(index for one in moving for index in one.queues)


MAX_ENGINES: Final = 500
"""Boots kept: anybody with Send can invent more. This engine's, expected and known ones stay; of the others the newest
stay, and the rest is counted."""
MAX_ROWS: Final = 100_000
"""Entities kept over all reports; a report above it contributes only the entities in its presence."""
MAX_NAMED: Final = 5
"""Names in a remark."""

Key = tuple[str, str]


def _key_of(author: Author) -> Key:
    return bound_text(author.engine).casefold(), bound_text(author.boot)


class Roster:
    """The engines on the reports board. author: this engine."""

    def __init__(self, author: Author, *, expected: tuple[str, ...] = ()) -> None:
        self._namespaces = (author.primary.casefold(), author.secondary.casefold())
        self._own = _key_of(author)
        self._expected = frozenset(bound_text(one).casefold() for one in expected)
        self._flooded_until = -inf
        self._records: dict[Key, EngineRecord] = {}
        """By the boot, in the order of their first documents."""
        self.skipped = 0
        """Documents of other pairings, or above the limits."""

    def read(self, post: Posted, now: float, *, reached: float = -inf) -> bool:
        """Take a document in; return whether it is one of this pairing.

        Args:
            now: the namespace's time, by the best estimate.
            reached: a time that its clock has certainly reached: a document that ended before says nothing.
        """
        document = post.document
        author = document.author if isinstance(document, Presence | Goodbye | Report) else None
        if author is None or (author.primary.casefold(), author.secondary.casefold()) != self._namespaces:
            self.skipped += 1
            return False
        if post.ends_at <= reached or post.enqueued_at + PRESENCE_SECONDS <= now:
            return True
        record = self._admit(_key_of(author), post.enqueued_at, now)
        if record is None:
            self.skipped += 1
            return False
        record.read(post)
        self._limit_rows(record)
        return True

    def read_own(self, document: Presence | Report, now: float) -> None:
        """Take a document in that this engine has posted. now: about the namespace's time."""
        record = self._admit(self._own, now, now)
        if record is not None:
            record.read_own(document, now)
            self._limit_rows(record)

    def _limit_rows(self, record: EngineRecord) -> None:
        """Drop the rows of a record that was changed, if all have more than MAX_ROWS."""
        if record.size and sum(one.size for one in self._records.values()) > MAX_ROWS:
            record.entities, record.destinations = (), ()

    def _admit(self, key: Key, at: float, now: float) -> EngineRecord | None:
        """Return the record of a boot, or a new one; None: there is no room for it."""
        record = self._records.get(key)
        if record is not None:
            return record
        if len(self._records) >= MAX_ENGINES:
            self.forget_gone(now)
        if len(self._records) >= MAX_ENGINES:
            self._flooded_until = max(self._flooded_until, at + PRESENCE_SECONDS)
            oldest = next((one for one, record in self._records.items() if not record.is_known), None)
            if oldest is None:
                return None
            del self._records[oldest]
            self.skipped += 1
        record = self._records[key] = EngineRecord(is_own=key == self._own, is_expected=key[0] in self._expected)
        return record

    def is_flooded(self, now: float) -> bool:
        """Return whether more engines are claimed than can be. now: the namespace's time."""
        return now < self._flooded_until

    def forget_gone(self, now: float) -> None:
        """Forget engines that were not heard for PRESENCE_SECONDS."""
        for key in [key for key, one in self._records.items() if one.heard[0] + PRESENCE_SECONDS <= now]:
            del self._records[key]

    def engines(self, now: float, *, watched_since: float | None = None, pace: float = 15.0) -> RosterView:
        """Return the engines at a time by the namespace's clock; EngineRecord.status has the arguments."""
        self.forget_gone(now)
        boots: dict[str, list[EngineRecord]] = defaultdict(list)
        for (name, _), record in sorted(self._records.items()):
            if record.is_shown:
                boots[name].append(record)
        is_flooded = self.is_flooded(now)
        shown = list[EngineReport]()
        for records in boots.values():
            running = _without_replaced(records)
            statuses = [(one, one.status(now, watched_since=watched_since, pace=pace)) for one in running]
            rival = sum(1 for _, status in statuses if status is FleetStatus.REPORTING)
            for record, status in statuses:
                others = max(rival - 1, 0) if status is FleetStatus.REPORTING else 0
                view = record.view(status, others, is_claimed=is_flooded and not record.is_known)
                if view is not None:
                    shown.append(
                        EngineReport(
                            engine=view,
                            entities=record.current_entities,
                            destinations=record.destinations,
                            answers=record.answers,
                        )
                    )
        return RosterView(shown)


def _without_replaced(records: list[EngineRecord]) -> list[EngineRecord]:
    """Return the boots of one name without those that a later boot replaced: silent before it began.

    A boot of which only the goodbye is left has an unknown beginning, so it replaces none.
    """
    begun = [one for one in records if one.presence is not None] or records
    newest = max(one.first_at for one in begun)
    return [
        one for one in begun if one.is_own or one.first_at == newest or (one.heard[0] >= newest and not one.has_ended)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReport:
    """One engine with its latest report, for the merging over all engines."""

    engine: FleetEngine
    entities: tuple[EntityView, ...]
    """Its entities, corrected by a newer presence; empty: it has not reported."""
    destinations: tuple[DestinationView, ...]
    """The entities whose messages its syphon moved or holds back."""
    answers: tuple[OrderRow, ...]


def _key(engine: FleetEngine) -> Key:
    return engine.engine.casefold(), engine.boot


class RosterView:
    """The engines at one time. A claim makes neither entities nor remarks."""

    def __init__(self, shown: list[EngineReport]) -> None:
        self.reports = tuple(one for one in shown if not one.engine.is_claimed)
        self.engines: tuple[FleetEngine, ...] = tuple(one.engine for one in shown)
        self.answers = {_key(one.engine): one.answers for one in shown}
        self._entities: tuple[FleetEntity, ...] | None = None

    @property
    def running(self) -> int:
        """Return the number of engines that have not ended."""
        return sum(1 for engine in self.engines if engine.status is not FleetStatus.ENDED)

    def entities(self, *, but: Key = ("", "")) -> tuple[FleetEntity, ...]:
        """Return the entities over all engines that have not ended, without those of the engine `but`."""
        if self._entities is None:
            self._entities = merge_entities(
                one for one in self.reports if one.engine.status is not FleetStatus.ENDED and _key(one.engine) != but
            )
        return self._entities

    def missing(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the expected names that no document has."""
        known = {engine.engine.casefold() for engine in self.engines}
        return tuple(name for name in names if bound_text(name).casefold() not in known)

    def remarks(self) -> tuple[str, ...]:
        """Return the remarks for the operator: claims of a flood accuse nobody."""
        running = [one.engine for one in self.reports if one.engine.status is not FleetStatus.ENDED]
        return (*_namesakes(running), *_clocks(running), *_signers(running))


def _namesakes(engines: list[FleetEngine]) -> tuple[str, ...]:
    names = sorted({engine.engine for engine in engines if engine.namesakes})
    if not names:
        return ()
    return (f"several engines are named {_list(names)}: give each its own name ([fleet] name in pairing.toml)",)


def _clocks(engines: list[FleetEngine]) -> tuple[str, ...]:
    off = [one.engine for one in engines if one.clock_offset is not None and abs(one.clock_offset) > OFF_BY]
    return (f"clocks differ from the namespace's by more than {OFF_BY:.0f} s: {_list(off)}",) if off else ()


def _signers(engines: list[FleetEngine]) -> tuple[str, ...]:
    others = with_other_signers(engines)
    return (f"another file of signers than most: {_list(list(others))}",) if others else ()


def _list(names: list[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
