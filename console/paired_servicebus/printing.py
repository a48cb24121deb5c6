"""What a command writes onto its terminal: masked, and so that nothing in it can move a cursor or pose as our line."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from paired_servicebus.core.foreign_text import harmless, harmless_json, one_line
from paired_servicebus.core.masking import masked


def print_lines(lines: Iterable[str]) -> None:
    """Write lines on standard output. One with a line break in it stays one."""
    for line in lines:
        sys.stdout.write(harmless(masked(line)) + "\n")


def print_object(encoded: str) -> None:
    """Write a JSON object on standard output, as a line that any reader of JSON reads the same values from."""
    sys.stdout.write(harmless_json(masked(encoded)) + "\n")


def complain(sentence: str) -> int:
    """Write a sentence on standard error; the exit status of what a person can put right."""
    sys.stderr.write(f"paired: {masked(one_line(sentence))}\n")
    return 2
