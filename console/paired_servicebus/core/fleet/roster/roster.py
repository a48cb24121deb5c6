"""The engines of a pairing: who is there, who is silent, and their entities, from the documents on the reports board.

Silence has a rule of its own (EngineRecord.status), and is judged by the latest reading, not by the present: a board
that this engine cannot read makes no engine silent. An engine is gone after PRESENCE_SECONDS without a document.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from paired_servicebus.core.fleet.board.board_reader import OFF_BY
from paired_servicebus.core.fleet.board.document_bounds import EntityRow, bound_text
from paired_servicebus.core.fleet.fleet_documents import (
    PRESENCE_SECONDS,
    Author,
    Document,
    Goodbye,
    OrderAnswer,
    Posted,
    Presence,
    Report,
)
from paired_servicebus.core.fleet.roster.engine_record import EngineRecord
from paired_servicebus.core.fleet.roster.fleet_entities import merge_entities
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetEntity, FleetStatus, with_other_signers

MAX_ENGINES: Final = 2000
"""Boots kept; more are skipped and counted, so that known engines stay."""
MAX_ROWS: Final = 100_000
"""Entities kept over all reports; a report above it contributes only the entities in its presence."""
MAX_NAMED: Final = 5
"""Names in a remark."""

Key = tuple[str, str]


class Roster:
    """The engines on the reports board."""

    def __init__(self, *, primary: str, secondary: str) -> None:
        self._namespaces = (primary.casefold(), secondary.casefold())
        self._records: dict[Key, EngineRecord] = {}
        self._rows = 0
        self._paths: dict[str, str] = {}
        self.skipped = 0
        """Documents of other pairings, or above the limits."""

    def read(self, post: Posted, now: float) -> bool:
        """Take a document in; return whether it is one of this pairing. now: the namespace's time."""
        author = author_of(post.document)
        if author is None or (author.primary.casefold(), author.secondary.casefold()) != self._namespaces:
            self.skipped += 1
            return False
        if post.enqueued_at + PRESENCE_SECONDS <= now:
            return True
        key = (bound_text(author.engine).casefold(), bound_text(author.boot))
        record = self._records.get(key)
        if record is None:
            if len(self._records) >= MAX_ENGINES:
                self.forget_gone(now)
            if len(self._records) >= MAX_ENGINES:
                self.skipped += 1
                return False
            record = self._records[key] = EngineRecord()
        self._rows -= len(record.rows)
        record.read(post)
        if record.rows:
            record.rows = self._shared(record.rows) if self._rows + len(record.rows) <= MAX_ROWS else ()
        self._rows += len(record.rows)
        return True

    def _shared(self, rows: tuple[EntityRow, ...]) -> tuple[EntityRow, ...]:
        """Return the rows with one string for each path, since engines of a pairing send to the same entities."""
        if len(self._paths) > MAX_ROWS:
            self._paths.clear()
        return tuple((self._paths.setdefault(row[0], row[0]), *row[1:]) for row in rows)

    def forget_gone(self, now: float) -> None:
        """Forget engines that were not heard for PRESENCE_SECONDS."""
        for key in [key for key, one in self._records.items() if one.heard[0] + PRESENCE_SECONDS <= now]:
            self._rows -= len(self._records.pop(key).rows)

    def engines(self, now: float, *, watched_since: float | None = None, pace: float = 15.0) -> RosterView:
        """Return the engines at a time by the namespace's clock; EngineRecord.status has the arguments."""
        self.forget_gone(now)
        boots: dict[str, list[EngineRecord]] = defaultdict(list)
        for (name, _), record in sorted(self._records.items()):
            if record.is_shown:
                boots[name].append(record)
        shown = []
        for records in boots.values():
            running = _without_replaced(records)
            statuses = [(one, one.status(now, watched_since=watched_since, pace=pace)) for one in running]
            rival = sum(1 for _, status in statuses if status is FleetStatus.REPORTING)
            for record, status in statuses:
                others = max(rival - 1, 0) if status is FleetStatus.REPORTING else 0
                view = record.view(status, others)
                if view is not None:
                    shown.append((view, record.current_rows))
        return RosterView(shown)


def _without_replaced(records: list[EngineRecord]) -> list[EngineRecord]:
    """Return the boots of one name without those that a later boot replaced: silent before it began.

    A boot of which only the goodbye is left has an unknown beginning, so it replaces none.
    """
    begun = [one for one in records if one.presence is not None] or records
    newest = max(one.first_at for one in begun)
    return [one for one in begun if one.first_at == newest or (one.heard[0] >= newest and not one.has_ended)]


class RosterView:
    """The engines at one time."""

    def __init__(self, shown: list[tuple[FleetEngine, tuple[EntityRow, ...]]]) -> None:
        self.engines: tuple[FleetEngine, ...] = tuple(engine for engine, _ in shown)
        self._shown = shown

    @property
    def running(self) -> int:
        """Return the number of engines that have not ended."""
        return sum(1 for engine in self.engines if engine.status is not FleetStatus.ENDED)

    def entities(self) -> tuple[FleetEntity, ...]:
        """Return the entities over all engines that have not ended."""
        return merge_entities((engine, rows) for engine, rows in self._shown if engine.status is not FleetStatus.ENDED)

    def missing(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the expected names that no document has."""
        known = {engine.engine.casefold() for engine in self.engines}
        return tuple(name for name in names if bound_text(name).casefold() not in known)

    def remarks(self) -> tuple[str, ...]:
        """Return the remarks for the operator."""
        running = [engine for engine in self.engines if engine.status is not FleetStatus.ENDED]
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


def author_of(document: Document | None) -> Author | None:
    """Return the author of a document on the reports board; None: it has none."""
    match document:
        case Presence() | Goodbye() | OrderAnswer():
            return document.author
        case Report():
            return document.presence.author
        case _:
            return None
