"""Incidents straight from the newest part of an engine's journal: without Spark, and newer than any table.

Blocks; bytes are limited, so that a journal of any size costs a moment. Lines of other kinds are skipped undecoded.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from paired_servicebus.core.incidents.incident_fold import IncidentFold, IncidentRecord
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.engine.journal.reader import kind_of, newest_lines
from paired_servicebus.engine.journal.records import UnreadableLines

MAX_BYTES: Final = 24 * 1024 * 1024
"""Of the journal, the newest, that are looked into."""
KINDS: Final = frozenset(
    kind.kind.encode()
    for kind in (
        e.EngineStarted,
        e.EngineStopped,
        e.StateChanged,
        e.PingAccepted,
        e.PingFailed,
        e.SendsCounted,
        e.OperationsCounted,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalIncidents:
    """The incidents that were found, oldest first, and the time from which on the journal was read."""

    incidents: tuple[IncidentRecord, ...]
    since: float | None
    """Seconds since the epoch; None: the journal is empty."""


def read_journal_incidents(spool: Path) -> JournalIncidents:
    """Return the incidents in the newest MAX_BYTES of the journal in `spool`.

    Raises:
        OSError: the journal cannot be read.
    """
    if not spool.is_dir():
        raise FileNotFoundError(2, "No such file or directory", str(spool))
    folds: defaultdict[str, IncidentFold] = defaultdict(IncidentFold)
    unread = UnreadableLines()
    lines = ((path, at, line) for path, at, line in newest_lines(spool, most_bytes=MAX_BYTES) if kind_of(line) in KINDS)
    records = [record for path, at, line in lines if (record := unread.decode(path, at, line)) is not None]
    for record in reversed(records):
        folds[record.engine].add(record.event)
    since = min((record.event.at for record in records), default=None)
    found = chain.from_iterable(fold.incidents() for fold in folds.values())
    return JournalIncidents(incidents=tuple(sorted(found, key=lambda one: one.began_at)), since=since)
