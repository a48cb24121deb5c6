"""Output of commands to the terminal: masked, and without control characters or forged lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import escape_json, harmless, one_line


def print_lines(lines: Iterable[str]) -> None:
    """Write lines on standard output. One with a line break in it stays one."""
    for line in lines:
        sys.stdout.write(harmless(masked(line)) + "\n")


def print_object(encoded: str) -> None:
    """Write a JSON object on standard output, as a line that any reader of JSON reads the same values from."""
    sys.stdout.write(escape_json(masked(encoded)) + "\n")


def report_error(sentence: str) -> int:
    """Write a sentence on standard error; return the exit status of a user's error."""
    sys.stderr.write(f"paired: {masked(one_line(sentence))}\n")
    return 2
