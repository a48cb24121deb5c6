"""Where the dashboard's own trouble goes: a file in the pairing's state folder, never the screen.

Without locals, since a local may hold what nobody should read, and masked, since a sentence may quote it.
"""

from __future__ import annotations

import logging
import os
import traceback
from datetime import UTC, datetime
from typing import Final

from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import indent_lines
from paired_servicebus.engine.instance.engine_paths import engine_paths

NAME: Final = "dashboard.log"


class _Masked(logging.Formatter):
    """Masks the whole record, its traceback included; no second line of it poses as a record."""

    def format(self, record: logging.LogRecord) -> str:
        return masked(indent_lines(super().format(record)))


class CrashLog:
    """The file; made when there is something to write."""

    def __init__(self, pairing: str) -> None:
        self._path = engine_paths(pairing).logs / NAME
        self.said = ""
        """The one sentence for the terminal; empty while nothing happened."""

    def quiet_libraries(self) -> None:
        """Sends what libraries log from now on to the file instead of the terminal."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handler: logging.Handler = logging.FileHandler(self._path, encoding="utf-8", delay=True)
        except OSError:  # no folder: then nowhere, but not on the screen
            handler = logging.NullHandler()
        handler.setLevel(logging.WARNING)
        handler.setFormatter(_Masked("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.getLogger().addHandler(handler)

    def report(self, error: BaseException) -> None:
        """Writes the exception down and keeps the sentence about it."""
        what = f"the dashboard ended on an unexpected error ({type(error).__name__}); the engine goes on"
        try:
            self._append(masked(indent_lines("".join(traceback.format_exception(error)))))
            self.said = f"{what}. What happened is in {self._path}"
        except OSError as trouble:
            self.said = f"{what}. It could not be written to {self._path}: {trouble.strerror or trouble}"

    def _append(self, text: str) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        stamp = datetime.now(UTC).isoformat(timespec="seconds")
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(file, "a", encoding="utf-8") as out:
            out.write(f"{stamp}\n{text}\n")
