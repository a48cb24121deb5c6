"""An engine's log: one file of limited size a start; libraries log from WARNING on; secrets are masked.

All log files of a pairing stay below 10 MB. A long log continues in a new file, one older part is kept, and a start
removes the logs of earlier starts beyond MAX_KEPT_BYTES. A line that repeats within a minute is counted instead of
written.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final, TextIO

from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import escape_json, indent_lines

TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"
FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
MAX_FILE_BYTES: Final = 2 * 1024**2
"""Of one file of a log; there are two at most."""
MAX_KEPT_BYTES: Final = 4 * 1024**2
"""Of the logs of earlier starts together."""
FOLD_SECONDS: Final = 60.0
MAX_REMEMBERED_LINES: Final = 500
"""Different lines that are remembered."""
MAX_LINE_CHARS: Final = 16 * 1024
_OUTPUTS: Final = (1, 2)

log = logging.getLogger(__name__)


class MaskingFormatter(logging.Formatter):
    """Formats a record, its traceback included: masked, harmless, and no second line of it poses as a record."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        """Return the masked line."""
        return masked(indent_lines(super().format(record)))


class JsonFormatter(MaskingFormatter):
    """Formats a record as one JSON object: `at`, `level`, `logger`, `text`, and `traceback` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the masked line."""
        line = {
            "at": self.formatTime(record, TIME_FORMAT),
            "level": record.levelname,
            "logger": record.name,
            "text": masked(record.getMessage()),
        }
        if record.exc_info:
            line["traceback"] = masked(self.formatException(record.exc_info))
        return escape_json(json.dumps(line, ensure_ascii=False))


class RepeatFilter(logging.Filter):
    """Passes a line once in FOLD_SECONDS; the next one that passes has the number of dropped ones."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[object, ...], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is written."""
        kind = record.exc_info[0] if record.exc_info else None
        key = (record.name, record.levelno, str(record.msg), str(record.args), kind)
        since, left_out = self._seen.get(key, (None, 0))
        if since is not None and record.created - since < FOLD_SECONDS:
            self._seen[key] = (since, left_out + 1)
            return False
        if left_out:
            record.msg, record.args = "%s (and %d more times since then)", (record.getMessage(), left_out)
        self._seen.pop(key, None)
        self._seen[key] = (record.created, 0)
        while len(self._seen) > MAX_REMEMBERED_LINES:
            del self._seen[next(iter(self._seen))]
        return True


class LogFile(RotatingFileHandler):
    """The log's file, readable only by its owner.

    Standard output and error of the process follow it into each new file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=MAX_FILE_BYTES, backupCount=1, encoding="utf-8")
        self._lead_outputs_here()

    def doRollover(self) -> None:
        """Begin a new file."""
        super().doRollover()
        self._lead_outputs_here()

    def handleError(self, record: logging.LogRecord) -> None:
        """Do nothing: a full disk cannot log its own failure, and the journal's watch reports it."""

    def _open(self) -> io.TextIOWrapper:
        fd = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return os.fdopen(fd, "a", encoding="utf-8")

    def _lead_outputs_here(self) -> None:
        assert self.stream is not None, "a file was opened just now"
        for output in _OUTPUTS:
            os.dup2(self.stream.fileno(), output)


class LogStream(io.TextIOBase):
    """A replacement of sys.stderr that logs each line, so libraries' output counts for the log's size."""

    def __init__(self) -> None:
        self._begun = ""

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the real descriptor, for faulthandler and child processes."""
        return _OUTPUTS[1]

    def write(self, text: str) -> int:
        """Log each whole line."""
        *lines, self._begun = (self._begun + text).split("\n")
        if len(self._begun) > MAX_LINE_CHARS:
            lines, self._begun = [*lines, self._begun], ""
        for line in lines:
            if line.strip():
                log.warning("on standard error: %s", line[:MAX_LINE_CHARS])
        return len(text)


def log_to(stream: TextIO) -> None:
    """Send this process's log only to `stream`."""
    _log_by(logging.StreamHandler(stream))


def log_to_file(path: Path) -> None:
    """Send this process's log, standard output and standard error only to the file.

    Raises:
        OSError: the file cannot be opened.
    """
    _log_by(LogFile(path))
    sys.stderr = LogStream()


def log_as_json() -> None:
    """Write the rest of this process's log as JSON."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())


def _log_by(handler: logging.Handler) -> None:
    handler.setFormatter(MaskingFormatter(FORMAT, TIME_FORMAT))
    handler.addFilter(RepeatFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for package in ("paired_servicebus", "servicebus_amqp", "servicebus_sandbox"):
        logging.getLogger(package).setLevel(logging.INFO)
    logging.captureWarnings(True)


def new_log_file(folder: Path) -> Path:
    """Return a new file name. Removes the oldest logs of earlier starts beyond MAX_KEPT_BYTES."""
    left = MAX_KEPT_BYTES
    for old in sorted(folder.glob("engine-*.log*"), reverse=True):
        with suppress(FileNotFoundError):  # another start was sooner
            left -= old.stat().st_size
            if left < 0:
                old.unlink()
    return folder / f"engine-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.log"
