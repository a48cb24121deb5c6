"""A file that is replaced at once and survives a crash: readers find the old content or the new one, never a part."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file, and wait until the disk has it. Its folder must exist. Raises OSError."""
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
