"""Replays earlier engines' timeline from their journal after a restart.

Time, bytes and number are limited, so a journal of any size costs a moment. Call this in a thread. Lines of kinds that
consoles do not receive are skipped undecoded, because a busy outage has thousands of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.engine.journal import records
from paired_servicebus.engine.journal.spool import CLOSED, SUFFIX
from paired_servicebus.engine.journal.unreadable_lines import UnreadableLines

REPLAY_SECONDS: Final = 3600.0
"""Seconds that are looked back."""
MAX_REPLAY_BYTES: Final = 16 * 1024 * 1024
"""Of the journal, the newest, that are looked into."""
_KIND: Final = b'"kind":"'


def replay_records(
    spool: Path, *, besides: str, since: float, most: int, untold: Collection[str], unread: UnreadableLines
) -> tuple[tuple[Record, bytes], ...]:
    """Return the newest records that consoles received, oldest first, each with its line.

    Args:
        spool: the journal's folder.
        besides: the boot of the caller, whose own records are left out.
        since: seconds since the epoch; older records are left out.
        most: the maximum number of records.
        untold: kinds of events that consoles do not receive.
        unread: collects unreadable lines.

    Raises:
        OSError: the journal cannot be read.
    """
    passed_over = frozenset(kind.encode() for kind in untold)
    found: list[tuple[Record, bytes]] = []
    for path, at, line in _newest_first(spool, since):
        record = None if not line or _kind(line) in passed_over else _read(path, at, line, unread)
        if record is None or record.boot == besides or record.event.at < since:
            continue
        found.append((record, line))
        if len(found) >= most:
            break
    return tuple(reversed(found))


def _newest_first(spool: Path, since: float) -> Iterator[tuple[Path, int, bytes]]:
    """Yield lines, each with its file and offset; the one behind a file's last newline is empty."""
    left = MAX_REPLAY_BYTES
    for path in sorted((spool / CLOSED).glob(f"*{SUFFIX}"), key=_place, reverse=True):
        try:
            if left <= 0 or path.stat().st_mtime < since:
                return
            with path.open("rb") as file:
                skipped = max(0, file.seek(0, 2) - left)
                file.seek(skipped)
                data = file.read()
        except FileNotFoundError:  # it was the oldest, and gave way to newer ones
            return
        left -= len(data)
        lines, end = data.split(b"\n"), skipped + len(data)
        for line in reversed(lines[1:] if skipped else lines):
            yield path, end - len(line), line
            end -= len(line) + 1


def _place(path: Path) -> list[str]:
    """Return the sort key: the start of the boot and the number of the first record, which end each name."""
    return path.name.rsplit("-", 2)[1:]


def _kind(line: bytes) -> bytes:
    start = line.find(_KIND) + len(_KIND)
    return line[start : line.find(b'"', start)]


def _read(path: Path, at: int, line: bytes, unread: UnreadableLines) -> Record | None:
    try:
        return records.decode(line)
    except records.UnreadableLineError as error:
        unread.note(path, at, error)
        return None
