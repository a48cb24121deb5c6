"""Lines on standard output, for verbs that hold texts from outside."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from console.secret import masked
from console.ui.line import harmless


def print_lines(lines: Iterable[str]) -> None:
    """Writes each masked, and so that nothing in it can move a terminal's cursor."""
    for line in lines:
        sys.stdout.write(harmless(masked(line)) + "\n")
