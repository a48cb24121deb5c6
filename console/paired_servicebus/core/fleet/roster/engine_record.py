"""One boot of one engine, by its latest documents.

Of each kind the newest document by the namespace's time and number counts. So documents may come late, twice, or in any
order, and the record is the same.
"""

from __future__ import annotations

from typing import Final

from paired_servicebus.core.fleet.board.document_bounds import (
    MAX_REASON,
    EntityRow,
    bound_author,
    bound_entities,
    bound_number,
    bound_presence,
    bound_text,
    sum_figures,
)
from paired_servicebus.core.fleet.fleet_documents import (
    MAX_NOT_WELL,
    Author,
    Goodbye,
    OrderAnswer,
    Posted,
    Presence,
    Report,
)
from paired_servicebus.core.fleet.pace import LOOK_MOST, LOOK_WELL, REPORT_LEAST
from paired_servicebus.core.model.entity_state import WELL, State
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetEntityState, FleetFigures, FleetStatus, Takes

PRESENCE_MARGIN: Final = 300.0
"""Seconds that a presence may be late."""
MISSED_REPORTS: Final = 3.0

Stamp = tuple[float, int]
_NEVER: Final[Stamp] = (-1.0, -1)


class EngineRecord:
    """The latest documents of one engine's boot."""

    def __init__(self) -> None:
        self.first_at = float("inf")
        self.heard: Stamp = _NEVER
        self.presence: Presence | None = None
        self.rows: tuple[EntityRow, ...] = ()
        self.figures: FleetFigures | None = None
        self.report_pace: float | None = None
        self._presence: Stamp = _NEVER
        self._report: Stamp = _NEVER
        self._goodbye: Stamp = _NEVER
        self._author: Author | None = None
        """The author of the latest goodbye."""
        self._reason = ""
        self._silent_for: Stamp = _NEVER
        """The latest stamp when it was found silent: it stays so until it is heard again, also without a watch."""

    def read(self, post: Posted) -> None:
        """Take a document of this boot in."""
        stamp = (post.enqueued_at, post.number)
        self.first_at = min(self.first_at, post.enqueued_at)
        self.heard = max(self.heard, stamp)
        match post.document:
            case Presence() as presence if stamp > self._presence:
                self._presence, self.presence = stamp, bound_presence(presence)
            case Report() as report:
                self._read_report(report, stamp)
            case Goodbye() as goodbye if stamp > self._goodbye:
                self._goodbye, self._reason = stamp, bound_text(goodbye.reason, MAX_REASON)
                self._author = bound_author(goodbye.author)
            case OrderAnswer() | _:
                pass

    def _read_report(self, report: Report, stamp: Stamp) -> None:
        if stamp > self._presence:
            self._presence, self.presence = stamp, bound_presence(report.presence)
        if stamp > self._report:
            self._report, self.rows = stamp, bound_entities(report)
            self.figures = sum_figures(report.snapshot, stamp[0])
            self.report_pace = min(max(bound_number(report.pace), REPORT_LEAST), LOOK_MOST)

    @property
    def has_ended(self) -> bool:
        return self._goodbye > max(self._presence, self._report)

    @property
    def is_shown(self) -> bool:
        """Return whether more than answers are known. A board may hold only the goodbye of a boot that ended."""
        return self.presence is not None or self._author is not None

    @property
    def current_rows(self) -> tuple[EntityRow, ...]:
        """Return the entities of the latest report, corrected by a newer presence."""
        if self.presence is None or self._report >= self._presence or not self.rows:
            return self.rows
        named = {one.path.casefold(): one for one in self.presence.not_well}
        is_all = len(named) < MAX_NOT_WELL
        return tuple(_corrected(row, named, is_all) for row in self.rows)

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
        within = PRESENCE_MARGIN + (self.presence.next_within if self.presence is not None else 0.0)
        if watched_since is None:
            return heard + within
        pace = max(pace, self.report_pace or 0.0)
        watched = max(heard, watched_since + LOOK_WELL) + MISSED_REPORTS * pace
        return min(watched, heard + within)

    def view(self, status: FleetStatus, namesakes: int) -> FleetEngine | None:
        """Return the engine for screens; None: only its answers are known."""
        presence = self.presence
        if presence is None:
            return None if self._author is None else self._ended_view(self._author)
        author = presence.author
        return FleetEngine(
            engine=author.engine,
            boot=author.boot,
            host=author.host,
            pid=author.pid,
            program=author.program,
            version=author.version,
            environment=author.environment,
            status=status,
            heard_at=self.heard[0],
            started_at=presence.started_at,
            states=presence.states,
            not_well=presence.not_well,
            queues=presence.queues,
            syphon=presence.syphon,
            takes=presence.takes,
            signers=presence.signers,
            standing=presence.standing,
            newest_order=presence.newest_order,
            clock_offset=presence.clock_offset,
            reason=self._reason if status is FleetStatus.ENDED else "",
            namesakes=namesakes,
            figures=self.figures,
            differs=presence.differs,
        )

    def _ended_view(self, author: Author) -> FleetEngine:
        """Return an engine of which only the goodbye is known; `started_at` and `takes` have no value for unknown."""
        return FleetEngine(
            engine=author.engine,
            boot=author.boot,
            host=author.host,
            pid=author.pid,
            program=author.program,
            version=author.version,
            environment=author.environment,
            status=FleetStatus.ENDED,
            heard_at=self.heard[0],
            started_at=0.0,
            states=(),
            not_well=(),
            queues=(),
            syphon=State.UNKNOWN.value,
            takes=Takes.LOOK_ONLY,
            signers="",
            standing=(),
            newest_order=0,
            reason=self._reason,
        )


def _corrected(row: EntityRow, named: dict[str, FleetEntityState], is_all: bool) -> EntityRow:
    path, state, since, *rates = row
    one = named.get(path.casefold())
    if one is not None:
        return path, one.state, one.since, rates[0], rates[1]
    return (path, State.HEALTHY, since, rates[0], rates[1]) if is_all and state not in WELL else row
