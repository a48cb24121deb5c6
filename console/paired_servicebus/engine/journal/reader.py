"""The reader of journal files: lines and records, oldest first or newest first.

Files are in the order of their boots and numbers, which end each name. A file that gives way to newer ones while it is
read has no lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.engine.journal.records import UnreadableLines
from paired_servicebus.engine.journal.spool import CLOSED, OPEN, SUFFIX

_KIND: Final = b'"kind":"'


def files_of(spool: Path, *, with_open: bool = True) -> list[Path]:
    """Return a journal's files, the oldest first. with_open: also those that an engine still writes.

    Open files are listed first, so that one that completes meanwhile is not missed.
    """
    writing = sorted((spool / OPEN).glob(f"*{SUFFIX}")) if with_open else []
    found = {path.name: path for path in writing} | {path.name: path for path in (spool / CLOSED).glob(f"*{SUFFIX}")}
    return sorted(found.values(), key=lambda path: path.name.rsplit("-", 2)[1:])


def newest_lines(
    spool: Path, *, most_bytes: int, since: float = 0.0, with_open: bool = True
) -> Iterator[tuple[Path, int, bytes]]:
    """Yield a journal's lines, the newest first, each with its file and offset.

    The line behind a file's last newline is empty.

    Args:
        most_bytes: of the newest lines that are read.
        since: seconds since the epoch; files that were last written before are left out.
        with_open: also files that an engine still writes.

    Raises OSError.
    """
    left = most_bytes
    for path in reversed(files_of(spool, with_open=with_open)):
        if left <= 0:
            return
        try:
            if path.stat().st_mtime < since:
                return
            with path.open("rb") as file:
                skipped = max(0, file.seek(0, 2) - left)
                file.seek(skipped)
                data = file.read(left)
        except FileNotFoundError:  # it gave way to newer ones, or moved when it was complete
            continue
        left -= len(data)
        lines, end = data.split(b"\n"), skipped + len(data)
        for line in reversed(lines[1:] if skipped else lines):
            yield path, end - len(line), line
            end -= len(line) + 1


def kind_of(line: bytes) -> bytes:
    """Return the kind in a line, without decoding it."""
    start = line.find(_KIND) + len(_KIND)
    return line[start : line.find(b'"', start)]


class JournalReader:
    """Reads a journal's records back, oldest first within an engine; can be iterated again.

    Lines of unknown kinds are skipped and counted in `unknown`, lines that are no records in `unread`; both are those
    of the latest iteration.
    """

    def __init__(self, paths: Callable[[], Iterable[Path]]) -> None:
        self._paths = paths
        self.unknown = 0
        self.unread = UnreadableLines()

    def __iter__(self) -> Iterator[Record]:
        self.unknown, self.unread = 0, UnreadableLines()
        for path in self._paths():
            try:
                file = path.open("rb")
            except FileNotFoundError:  # it was the oldest, and there was no room for it any more
                continue
            with file:
                end = 0
                for line in file:
                    end += len(line)
                    unread = self.unread.count
                    record = self.unread.decode(path, end - len(line), line)
                    if record is not None:
                        yield record
                    elif self.unread.count == unread:
                        self.unknown += 1


def read_files(paths: Iterable[Path]) -> JournalReader:
    """Return the records of these files, in their order; a file that is gone has none."""
    listed = tuple(paths)
    return JournalReader(lambda: listed)
