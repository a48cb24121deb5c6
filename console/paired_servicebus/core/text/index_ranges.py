"""The indices of backlog queues in sentences."""

from __future__ import annotations

from collections.abc import Iterable


def format_indices(indices: Iterable[int]) -> str:
    """Format indices with consecutive ones as a range: "0, 2 to 4"."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(_run(run) for run in runs) or "none"


def _run(run: list[int]) -> str:
    return f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run))
