"""The dashboard's own errors: logged to a file in the pairing's state folder, never to the screen.

Tracebacks have no locals, which may contain secrets, and are masked, since a message may quote one.
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
    """Masks a record and its traceback, and indents its further lines, which cannot pose as records."""

    def format(self, record: logging.LogRecord) -> str:
        return masked(indent_lines(super().format(record)))


class CrashLog:
    """The log file, which is created when it is first written."""

    def __init__(self, pairing: str) -> None:
        self._path = engine_paths(pairing).logs / NAME
        self.sentence = ""
        """The sentence for the terminal; empty without an error."""

    def quiet_libraries(self) -> None:
        """Redirect the libraries' log records from the terminal to the file."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handler: logging.Handler = logging.FileHandler(self._path, encoding="utf-8", delay=True)
        except OSError:  # no folder: drop them, the screen stays clean
            handler = logging.NullHandler()
        handler.setLevel(logging.WARNING)
        handler.setFormatter(_Masked("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.getLogger().addHandler(handler)

    def report(self, error: BaseException) -> None:
        """Log the exception and store the sentence about it."""
        sentence = f"the dashboard ended on an unexpected error ({type(error).__name__}); the engine keeps running"
        try:
            self._append(masked(indent_lines("".join(traceback.format_exception(error)))))
            self.sentence = f"{sentence}. The traceback is in {self._path}"
        except OSError as trouble:
            self.sentence = f"{sentence}. It could not be written to {self._path}: {trouble.strerror or trouble}"

    def _append(self, text: str) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        stamp = datetime.now(UTC).isoformat(timespec="seconds")
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(file, "a", encoding="utf-8") as out:
            out.write(f"{stamp}\n{text}\n")
