"""The files of a journal: written in `.open/`, moved into `events/` when complete, read back by name.

A file in `events/` is complete and never changes; readers ignore `.open/`, because its name begins with a dot. A crash
leaves its file in `.open/`, with at most a torn last line: `recover` removes that line and moves the file. File names
sort as the records do: engine, start of the boot, number of the file's first record. A reader can request the open file
with `ask` instead of waiting for its completion.

Not here: when a file is complete, and full disks (writer.py).
"""

from __future__ import annotations

import errno
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.engine.journal import records

OPEN: Final = ".open"
CLOSED: Final = "events"
SUFFIX: Final = ".jsonl"
REQUEST_FILE: Final = "asked"
"""Touched by a reader that requests the open file."""
_PROBE: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredFile:
    """One file that a crash had left."""

    name: str
    torn_bytes: int
    """Bytes of the incomplete record removed from its end."""


class SpoolFile:
    """A file being written. Every method may raise OSError; a failed `append` leaves only whole lines behind."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / OPEN / name
        self._target = folder / CLOSED / name
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._finished = False
        self.lines = 0
        self.bytes = 0

    def append(self, *lines: bytes) -> None:
        """Write lines to the operating system: they survive this process, but not yet the machine."""
        data = b"\n".join((*lines, b""))
        written = os.write(self._fd, data)
        whole, count = written, len(lines)
        if written != len(data):  # the disk filled up, as a rule in the middle of a line
            whole = data.rfind(b"\n", 0, written) + 1
            count = data.count(b"\n", 0, whole)
            os.ftruncate(self._fd, self.bytes + whole)
        self.lines += count
        self.bytes += whole
        if count != len(lines):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def sync(self) -> None:
        """Sync appended lines, so that they survive the machine."""
        os.fsync(self._fd)

    def finish(self) -> None:
        """Complete the file for readers; an empty one is removed. No append may follow.

        May be called again: after a failure it resumes.
        """
        if self._fd >= 0:
            if self.lines:
                os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1
        if self._finished:
            return
        if self.lines:
            self._path.rename(self._target)
        else:
            self._path.unlink()
        self._finished = True


def prepare(folder: Path) -> None:
    """Make the folders, readable only by their owner."""
    for place in (folder, folder / OPEN, folder / CLOSED):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)


def probe(folder: Path) -> None:
    """Raise OSError unless the disk accepts a moderate amount of data again."""
    path = folder / OPEN / ".probe"
    try:
        with path.open("wb") as file:
            file.write(bytes(_PROBE))
            file.flush()
            os.fsync(file.fileno())
    finally:
        path.unlink(missing_ok=True)


def ask(folder: Path) -> None:
    """Ask the writing engine to complete its open file within about a second. Raises OSError."""
    (folder / REQUEST_FILE).touch(mode=0o600)


def asked(folder: Path) -> int:
    """Return the time of the last request in nanoseconds; 0: there was none. Raises OSError."""
    try:
        return (folder / REQUEST_FILE).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def trim(folder: Path, keep: int) -> int:
    """Delete the oldest complete files until at most `keep` bytes are left; return the number of deleted files."""
    with os.scandir(folder / CLOSED) as found:
        sizes = sorted((entry.name, entry.stat().st_size) for entry in found if entry.name.endswith(SUFFIX))
    left = sum(size for _, size in sizes)
    deleted = 0
    for name, size in sizes:
        if left <= keep:
            break
        (folder / CLOSED / name).unlink(missing_ok=True)
        left -= size
        deleted += 1
    return deleted


def recover(folder: Path) -> tuple[RecoveredFile, ...]:
    """Remove torn last lines from the files of a crash, and move them to the complete ones.

    Only the holder of the engine's lock may call this.
    """
    found = []
    for path in sorted((folder / OPEN).glob(f"*{SUFFIX}")):
        size = path.stat().st_size
        whole = _whole_length(path, size)
        if whole:
            os.truncate(path, whole)
            path.rename(folder / CLOSED / path.name)
        else:
            path.unlink()
        found.append(RecoveredFile(name=path.name, torn_bytes=size - whole))
    return tuple(found)


def last_record(folder: Path, engine: str) -> Record | None:
    """Return the last record that an engine's earlier boots wrote; None: there is none that can be read.

    Raises OSError.
    """
    names = (path for path in (folder / CLOSED).glob(f"*{SUFFIX}") if path.name.rsplit("-", 2)[0] == engine)
    for path in sorted(names, key=lambda path: path.name, reverse=True):
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _PROBE))
            lines = file.read().split(b"\n")
        for line in reversed(lines):
            try:
                record = records.decode(line) if line else None
            except records.UnreadableLineError:
                continue
            if record is not None and record.engine == engine:
                return record
    return None


def _whole_length(path: Path, size: int) -> int:
    """Return the bytes up to the end of the last record. A machine's crash can leave megabytes of zeros after it."""
    if not size:
        return 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        end = data.rfind(b"\n") + 1
        while end:
            start = data.rfind(b"\n", 0, end - 1) + 1
            if _is_record(data[start : end - 1]):
                break
            end = start
        return end


def _is_record(line: bytes) -> bool:
    try:
        records.decode(line)
    except records.UnreadableLineError:
        return False
    return True
