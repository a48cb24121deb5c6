"""The folder of a running sandbox, with its certificates; a sandbox that was killed could not remove its own.

A living sandbox holds a lock on a file in its folder, which the system lets go of however the process ends. So whoever
starts next can tell the folders of the dead from those in use, and removes them.
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
    """A new folder, closed to others, for as long as the context lasts. Raises OSError where none can be made."""
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
    """Lock the file before it has its name: under that name nobody ever finds it unlocked while its owner lives."""
    claimed = folder / "claimed"
    lock = os.open(claimed, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    claimed.rename(folder / _LOCK)
    return lock


def _remove_abandoned(where: Path) -> None:
    """Remove our folders that nobody holds; what belongs to other users or cannot be removed is left alone."""
    for folder in where.glob(f"{_PREFIX}*"):
        try:
            if folder.lstat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / _LOCK, os.O_WRONLY | os.O_NOFOLLOW)
        except OSError:  # none of ours, or gone in this moment
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
