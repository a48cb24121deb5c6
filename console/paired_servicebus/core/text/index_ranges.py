"""Indices of queues, and lists of names, in sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MAX_NAMES: Final = 3
"""Maximum names in a sentence; the others are counted."""


def format_indices(indices: Iterable[int]) -> str:
    """Format indices with consecutive ones as a range: "0, 2 to 4"."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(_run(run) for run in runs) or "none"


def join_names(names: Iterable[str], most: int = MAX_NAMES) -> str:
    """Join names with commas, but only count those after the first `most`: "a, b, c and 2 more"."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def _run(run: list[int]) -> str:
    return f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run))
