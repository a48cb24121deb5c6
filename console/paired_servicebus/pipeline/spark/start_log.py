"""The JVM's own words about its failed start, which Spark's Python side leaves in the log.

pyspark only reports that the Java process exited. The reason is on the standard error that both processes share.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Final

from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line

MAX_LOG_BYTES: Final = 64 * 1024
"""Bytes of the log that are looked into."""
_MAX_REASON: Final = 400
_THROWN: Final = re.compile(r'Exception in thread "[^"]*" (?:[\w$]+\.)*[\w$]+: (?P<reason>\S.*)')
_ERROR: Final = re.compile(r"(?:Error: |error: |Error occurred during |.*error while loading shared libraries: ).*\S.*")
_NOISE: Final = re.compile(
    r"\s*at |\s*\.\.\. \d+ more|WARNING: |Picked up |Using Spark's |Setting default log level|\s*$"
    r"|Error: Could not create the Java Virtual Machine|Error: A fatal exception|\S*spark-class: line \d+: CMD:"
)
"""Lines around the reason; the last three follow from it."""


class StartLog:
    """The standard error of this process from now on, if it is a file."""

    def __init__(self) -> None:
        self._begin = self._size()

    def reason(self) -> str:
        """Return the JVM's own reason for its end as one line; empty if it left none."""
        if self._begin < 0:
            return ""
        try:
            with open("/dev/fd/2", "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor, not a path
                size = os.fstat(file.fileno()).st_size
                text = os.pread(file.fileno(), MAX_LOG_BYTES, max(self._begin, size - MAX_LOG_BYTES)).decode(
                    errors="replace"
                )
        except OSError:  # written to and not readable: a pipe of another user's
            return ""
        return reason_in(text)

    @staticmethod
    def _size() -> int:
        status = os.fstat(2)
        return status.st_size if stat.S_ISREG(status.st_mode) else -1


def reason_in(text: str) -> str:
    """Return the line of a JVM's output that has the reason for its end; empty without one."""
    lines = [line for line in text.splitlines() if not _NOISE.match(line)]
    thrown = [found["reason"] for line in lines if (found := _THROWN.match(line))]
    errors = [_with_next(lines, index) for index, line in enumerate(lines) if _ERROR.match(line)]
    said = thrown[-1] if thrown else errors[0] if errors else lines[-1] if lines else ""
    return one_line(masked(said), most=_MAX_REASON)


def _with_next(lines: list[str], index: int) -> str:
    """Return a line; with the next one, if that has the reason: the JVM writes two for its own errors."""
    line = lines[index]
    return " ".join(lines[index : index + 2]) if line.startswith("Error occurred during") else line
