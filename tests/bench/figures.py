"""One table for the figures of any bench."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paired_servicebus.bench.rounds import Figures


def flatten(figures: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a bench's JSON object; a nested one is named `paired.cpu_us`."""
    found: dict[str, float] = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{inner}": number for inner, number in flatten(value).items()}
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = value
    return found


def figures_table(figures: Figures) -> str:
    """Return a row for each figure, then one for each target; lists of single readings are in the JSON object alone."""
    rows = [f"{name:36} {value:>14,.2f}" for name, value in flatten(figures.as_dict()).items()]
    rows += [
        f"{name:36} {target:>14,g} wanted: {'reached' if reached else 'missed'}"
        for name, (target, reached) in figures.targets.items()
    ]
    return "\n".join(rows) + "\n"
