"""The lock that permits one engine a pairing, and the running engine's description in it.

The lock is the kernel's (flock) and ends with the process. An engine that ends cleanly clears its text; text without a
lock was left by a killed engine.
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
    os.ftruncate(fd, 0)
    os.pwrite(fd, msgspec.json.encode(holder), 0)
    return fd


def _lock(fd: int) -> None:
    """Lock, with some retries: `running` holds the lock for an instant."""
    for _ in range(_MAX_ATTEMPTS - 1):
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_RETRY_SECONDS)
    return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def mark_clean_exit(fd: int) -> None:
    """Clear the text for a clean exit. `fd` is the result of `acquire`; closing it releases the lock."""
    os.ftruncate(fd, 0)


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
        return read_json(_HOLDER, os.pread(fd, _MAX_BYTES, 0))
    except UnreadableError:  # just acquired and still empty, or changed on disk
        return None
