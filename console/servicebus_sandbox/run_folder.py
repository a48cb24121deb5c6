"""The folder of a running sandbox with its certificates, and the removal of abandoned ones.

A sandbox locks a file in its folder; the system unlocks it when the process ends. So the next sandbox recognizes and
removes the folders of killed ones.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

_PREFIX: Final = "servicebus-sandbox-"
_LOCK: Final = "in-use"


@contextmanager
def open_run_folder() -> Iterator[Path]:
    """Yield a new private folder for the duration of the context. Raises OSError."""
    _remove_abandoned(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    lock = None
    try:
        lock = _claim(folder)
        yield folder
    finally:
        shutil.rmtree(folder)
        if lock is not None:
            os.close(lock)


def _claim(folder: Path) -> int:
    """Lock the file before it gets its name, so that a named file of a living owner is never unlocked."""
    claimed = folder / "claimed"
    lock = os.open(claimed, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    claimed.rename(folder / _LOCK)
    return lock


def _remove_abandoned(where: Path) -> None:
    """Remove our unlocked folders; skip those of other users or without permission."""
    for folder in where.glob(f"{_PREFIX}*"):
        try:
            if folder.lstat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / _LOCK, os.O_WRONLY | os.O_NOFOLLOW)
        except OSError:  # not ours, or just removed
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
        except BlockingIOError:
            pass  # in use
        except OSError as error:
            log.info("the folder %s of a sandbox that was killed cannot be removed: %s", folder, error)
        finally:
            os.close(lock)
