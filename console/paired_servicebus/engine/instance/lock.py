"""The lock that permits one engine a pairing, and the running engine's description in it.

Whoever has the lock uses the state folder. An engine whose folder cannot be made runs without either, and tries again.

The lock is the kernel's (flock) and ends with the process. An engine that ends cleanly clears its text; text without a
lock was left by a killed engine.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import EngineRunningError, UnreadableError
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.foreign_json import read_json

_MAX_BYTES: Final = 4096
_MAX_ATTEMPTS: Final = 4
_RETRY_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """The running engine: its process, where it listens, where it logs."""

    pid: int
    socket: str
    log: str


_HOLDER: Final = msgspec.json.Decoder(LockHolder)


class StateFolder:
    """The state folder of one engine, from the lock on.

    Args:
        places: its paths.
        log: the path of the engine's log, for the operator.
    """

    def __init__(self, places: EnginePaths, *, log: str) -> None:
        self._places = places
        self._holder = LockHolder(pid=os.getpid(), socket=str(places.socket), log=log)
        self._fd: int | None = None

    def open(self) -> None:
        """Make the folder and acquire its lock, unless that is done.

        Raises:
            EngineRunningError: another engine runs; the text has its pid.
            OSError: folder or lock cannot be made.
        """
        if self._fd is None:
            self._places.prepare_state()
            self._fd = acquire(self._places.lock, self._holder)

    def open_again(self) -> None:
        """Do the same for an engine that serves already. Raises OSError, also where another engine runs."""
        try:
            self.open()
        except EngineRunningError as error:
            raise OSError(errno.EBUSY, "another engine of this name runs", str(self._places.state)) from error

    def mark_clean_exit(self) -> None:
        """Clear the lock's text for a clean exit."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)

    def close(self) -> None:
        """Clear the lock's text and release the lock."""
        self.mark_clean_exit()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def acquire(path: Path, holder: LockHolder) -> int:
    """Acquire the lock until the process ends or the returned descriptor is closed.

    Raises:
        EngineRunningError: another engine runs; the text has its pid.
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
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, msgspec.json.encode(holder), 0)
    except OSError:  # a full disk
        os.close(fd)
        raise
    return fd


def _lock(fd: int) -> None:
    """Lock, with some retries: `running` holds the lock for an instant."""
    for _ in range(_MAX_ATTEMPTS - 1):
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_RETRY_SECONDS)
    return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def running(path: Path) -> LockHolder | None:
    """Return the engine that holds the lock; None if none does."""
    holder, held = _inspect(path)
    return holder if held else None


def held(path: Path) -> bool:
    """Return whether an engine holds the lock, even if its text is unreadable."""
    return _inspect(path)[1]


def crashed_holder(path: Path) -> LockHolder | None:
    """Return the last engine if it was killed and none runs now."""
    holder, held = _inspect(path)
    return None if held else holder


def _inspect(path: Path) -> tuple[LockHolder | None, bool]:
    """Return the file's content, and whether the lock is held."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # no folder of this user's, so no engine of his
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
        return read_json(_HOLDER, os.pread(fd, _MAX_BYTES, 0))
    except (OSError, UnreadableError):  # just acquired and still empty, changed on disk, or no file
        return None
