"""One engine a pairing: the lock that the running one holds, and what it says of itself there.

The lock is the kernel's (flock) and goes with the process, however that ends. An engine that ends in order takes its
text with it; text that nobody holds the lock for is of one that was killed.
"""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import EngineRunningError, UnreadableError
from paired_servicebus.foreign_json import read_json

_MOST_BYTES: Final = 4096
_TRIES: Final = 4
_PAUSE: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """The running engine: its process, where it listens, where it logs."""

    pid: int
    socket: str
    log: str


_HOLDER: Final = msgspec.json.Decoder(LockHolder)


def acquire(path: Path, holder: LockHolder) -> int:
    """Becomes the one engine, until the process ends; or until the descriptor that is returned is closed.

    Raises:
        EngineRunningError: another one runs; its pid is named.
        OSError: the file cannot be made.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(fd)
    except BlockingIOError as error:
        other = _read(fd)
        os.close(fd)
        who = f"(pid {other.pid}, socket {other.socket})" if other else f"(it holds {path})"
        raise EngineRunningError(
            f"an engine for this pairing runs already {who}: attach to it with paired attach, "
            "or end it with paired down"
        ) from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, msgspec.json.encode(holder), 0)
    return fd


def _lock(fd: int) -> None:
    """Tries a few times: one who only looks (`running`) holds the lock for an instant."""
    for _ in range(_TRIES - 1):
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE)
    return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def mark_clean_exit(fd: int) -> None:
    """Ends in order: nobody will be missed. `fd` is what `acquire` returned; the lock is held until it is closed."""
    os.ftruncate(fd, 0)


def running(path: Path) -> LockHolder | None:
    """The engine that holds the lock; None if none does."""
    holder, held = _look(path)
    return holder if held else None


def held(path: Path) -> bool:
    """Whether an engine holds the lock, whatever its text has become."""
    return _look(path)[1]


def crashed_holder(path: Path) -> LockHolder | None:
    """The last engine, if it ended without leaving, and none runs now."""
    holder, held = _look(path)
    return None if held else holder


def _look(path: Path) -> tuple[LockHolder | None, bool]:
    """What stands in the file, and whether somebody holds the lock."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None, False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(fd), True
    else:
        return _read(fd), False
    finally:
        os.close(fd)


def _read(fd: int) -> LockHolder | None:
    try:
        return read_json(_HOLDER, os.pread(fd, _MOST_BYTES, 0))
    except UnreadableError:  # it was taken this instant, and nothing stands there yet; or the disk has changed it
        return None
