"""An engine's log: one file for each start, other people's libraries from WARNING on, never a secret."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TextIO

from console.secret import masked

FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class MaskingFormatter(logging.Formatter):
    """Formats a line, its traceback included, and masks what looks like a key, a signature or a token."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        """The masked line."""
        return masked(super().format(record))


def log_to(stream: TextIO) -> None:
    """Sends this process's log to `stream` and nowhere else."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(MaskingFormatter(FORMAT, "%Y-%m-%dT%H:%M:%SZ"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("console").setLevel(logging.INFO)
    logging.captureWarnings(True)


def new_log_file(folder: Path) -> Path:
    """A name that no start before had; nothing needs rotating."""
    return folder / f"engine-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.log"
