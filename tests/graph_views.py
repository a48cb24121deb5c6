"""Figures over time for the screens: an entity that failed over 80 seconds ago."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paired_servicebus.core.series.graphs import KEPT, Curves, Graphs, Mark
from tests.ui.conftest import AT

FAILED_AT = AT - 80.0


def since(begins: float, before: float | None, after: float | None) -> tuple[float | None, ...]:
    """A curve that changes at a time."""
    return tuple(before if AT - 5.0 * (KEPT - place) < begins else after for place in range(KEPT))


def graphs(**changes: Any) -> Graphs:
    """Payments failed over 80 s ago."""
    curves = Curves(
        to_primary=since(FAILED_AT, 420.0, 96.0),
        to_backlog=since(FAILED_AT, 0.0, 43.0),
        refused=since(FAILED_AT, 0.0, 0.0),
        p50=since(FAILED_AT, 4.0, 4.0),
        p99=since(FAILED_AT, 18.0, 3_000.0),
        parked=since(FAILED_AT, 0.0, 1_204.0),
        moved=since(FAILED_AT, 0.0, 0.0),
    )
    base = Graphs(
        at=AT,
        whole=True,
        total=curves,
        entities={"payments": replace(curves, parked=(), moved=())},
        marks=(Mark(at=FAILED_AT, what="failed over", subject="payments"),),
    )
    return replace(base, **changes)
