"""Spark's checkpoint of a query, and its removal when files of it are missing.

    metadata      the query's identity
    sources/0/N   the files up to step N
    offsets/N     batch N was begun, with the files up to a step
    commits/N     batch N is done
    state/        the state of transformWithState

Spark refuses an incomplete one. Its loss is harmless: the tables know their records, so all files may be read again. A
missing file of the state shows only when Spark needs it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_LOGS: Final = ("offsets", "commits", "sources/0")
_BLAMED: Final = re.compile(r"checkpoint|CHECKPOINT|STATEFUL|STATE_STORE|STDS_|log file|STREAM_LOG|Wrong basePath")
_THE_DISK: Final = re.compile(r"No space left|Permission denied|Read-only|Input/output error|quota")
_UP_TO: Final = re.compile(r'"logOffset":(\d+)')


def missing(checkpoint: Path) -> str:
    """Return the first thing that it lacks, as far as its files show; empty: nothing, or there is no checkpoint."""
    begun, done, files = (_numbered(checkpoint / log) for log in _LOGS)
    if not (begun or done or files):
        return ""
    for name in ("metadata", *(f"{log}/{path.name}" for log in _LOGS for path in (checkpoint / log).glob("[0-9]*"))):
        if not _has_content(checkpoint / name):
            return name
    last = max(begun, default=-1)
    needed = range(min(begun, default=0), max([last, *done]) + 1)
    if lacking := sorted(set(needed) - set(begun)):
        return f"offsets/{lacking[0]}"
    compacted = max((step for step, path in files.items() if path.suffix), default=0)
    steps = range(compacted, max([_up_to(begun.get(last)), *files]) + 1)
    if lacking := sorted(set(steps) - set(files)):
        return f"sources/0/{lacking[0]}"
    return ""


def is_blamed(reason: str) -> bool:
    """Return whether a query failed because of its checkpoint, by Spark's error."""
    return _BLAMED.search(reason) is not None and _THE_DISK.search(reason) is None


def _numbered(log: Path) -> dict[int, Path]:
    return {int(path.stem): path for path in log.glob("[0-9]*") if path.stem.isdecimal()}


def _has_content(path: Path) -> bool:
    """Return whether a file has content: a machine's crash can leave it empty, or full of zeros."""
    try:
        with path.open("rb") as file:
            return file.read(1) not in (b"", b"\0")
    except FileNotFoundError:
        return False


def _up_to(offset: Path | None) -> int:
    """Return the step of the files that a batch was begun with; -1: it had none."""
    found = _UP_TO.search(offset.read_text(errors="replace")) if offset is not None else None
    return int(found.group(1)) if found else -1
