"""The figures of a developers' bench: what each should be, and one table for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from paired_servicebus.bench.bench_command import Figures

Targets = dict[str, tuple[float, bool]]
"""Target of each figure that has one, and whether it is reached."""


class Measured:
    """Figures with targets."""

    __slots__ = ()

    @property
    def targets(self) -> Targets:
        """By the name of the figure."""
        raise NotImplementedError

    @property
    def reached(self) -> bool:
        """Whether every target is reached."""
        return all(reached for _, reached in self.targets.values())


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
    dataclass: Any = figures
    rows = [f"{name:36} {value:>14,.2f}" for name, value in flatten(asdict(dataclass)).items()]
    rows += [
        f"{name:36} {target:>14,g} wanted: {'reached' if reached else 'missed'}"
        for name, (target, reached) in figures.targets.items()
    ]
    return "\n".join(rows) + "\n"
