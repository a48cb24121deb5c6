"""Incidents straight from the newest part of an engine's journal: without Spark, and newer than any table.

Blocks; bytes are limited, so that a journal of any size costs a moment. Lines of other kinds are skipped undecoded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from paired_servicebus.core.incidents.incident_fold import IncidentFold, IncidentRecord
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.engine.journal.records import UnreadableLines
from paired_servicebus.engine.journal.spool import CLOSED, OPEN, SUFFIX

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
_KIND: Final = b'"kind":"'


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
    folds: defaultdict[str, IncidentFold] = defaultdict(IncidentFold)
    unread, since = UnreadableLines(), None
    for path, data in reversed(list(_newest_files(spool))):
        for line in data.split(b"\n"):
            record = unread.decode(path, 0, line) if line.endswith(b"}") and _kind(line) in KINDS else None
            if record is not None:
                since = record.event.at if since is None else min(since, record.event.at)
                folds[record.engine].add(record.event)
    found = chain.from_iterable(fold.incidents() for fold in folds.values())
    return JournalIncidents(incidents=tuple(sorted(found, key=lambda one: one.began_at)), since=since)


def _newest_files(spool: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield files with their newest bytes from a line's start on, the newest file first."""
    files = [*(spool / CLOSED).glob(f"*{SUFFIX}"), *(spool / OPEN).glob(f"*{SUFFIX}")]
    if not files and not spool.is_dir():
        raise FileNotFoundError(2, "No such file or directory", str(spool))
    left = MAX_BYTES
    for path in sorted(files, key=_place, reverse=True):
        if left <= 0:
            return
        try:
            with path.open("rb") as file:
                skipped = max(0, file.seek(0, 2) - left)
                file.seek(skipped)
                data = file.read(left)
        except FileNotFoundError:  # it gave way to newer ones, or moved when it was complete
            continue
        left -= len(data)
        yield path, data.partition(b"\n")[2] if skipped else data


def _place(path: Path) -> list[str]:
    """Return the sort key: the start of the boot and the number of the first record, which end each name."""
    return path.name.rsplit("-", 2)[1:]


def _kind(line: bytes) -> bytes:
    start = line.find(_KIND) + len(_KIND)
    return line[start : line.find(b'"', start)]
