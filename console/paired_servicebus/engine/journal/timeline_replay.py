"""What engines told before this one, out of their journal: a timeline goes on over a restart.

Bounded in time, bytes and number, so that a journal of any size costs a moment; whoever calls this does so in a thread.
Lines that consoles are not told are passed over by their kind, undecoded: a busy outage has thousands for each that is.
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
    """The newest records that consoles were told, oldest first, each with its line.

    Args:
        spool: the journal's folder.
        besides: the boot that asks, whose own records are none of these.
        since: seconds since the epoch; what is older is not wanted.
        most: records at most.
        untold: kinds of events that consoles are not told.
        unread: takes the lines among them that cannot be read.

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
    """Lines, each with its file and the byte that it begins at; the one behind a file's last newline is empty."""
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
    """Names end with the start of the boot and the number of the first record, whatever the engine was called."""
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
