"""The entities of a fleet, merged over its engines without case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from paired_servicebus.core.fleet.board.document_bounds import EntityRow
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import WORST_FIRST, FleetEngine, FleetEntity, FleetStatus

MAX_SHOWN: Final = 200
"""Entities of a view, the worst first."""
MAX_MERGED: Final = 10_000
"""Distinct paths merged; unsigned reports may name any number."""
MAX_NAMED: Final = 50
"""Engines named of one entity."""


class _Merged:
    def __init__(self, path: str) -> None:
        self.path = path
        self.states: Counter[State] = Counter()
        self.silent = 0
        self.engines: list[tuple[float, str, State]] = []
        self.sends: float | None = None
        self.refused: float | None = None

    def add(self, name: str, state: State, since: float) -> None:
        self.states[state] += 1
        if state is not State.HEALTHY:
            self.engines.append((since, name, state))

    def view(self) -> FleetEntity:
        return FleetEntity(
            path=self.path,
            states=tuple((state, self.states[state]) for state in WORST_FIRST if self.states[state]),
            silent=self.silent,
            engines=tuple((name, state, since) for since, name, state in sorted(self.engines)[:MAX_NAMED]),
            sends_per_second=self.sends,
            refused_per_second=self.refused,
        )

    @property
    def rank(self) -> tuple[int, int, str]:
        """Return its place: the worst state, then the number of engines in it, then the path."""
        worst = next((place for place, state in enumerate(WORST_FIRST) if self.states[state]), len(WORST_FIRST))
        count = self.states[WORST_FIRST[worst]] if worst < len(WORST_FIRST) else 0
        return worst, -count, self.path.casefold()


def merge_entities(engines: Iterable[tuple[FleetEngine, tuple[EntityRow, ...]]]) -> tuple[FleetEntity, ...]:
    """Return the entities of the engines, the worst first, at most MAX_SHOWN.

    An engine without a report names only its entities that are not healthy; its other entities are not counted.
    """
    merged: dict[str, _Merged] = {}
    for engine, rows in engines:
        _merge(merged, engine, rows or _of_presence(engine))
    ranked = sorted(merged.values(), key=lambda one: one.rank)
    return tuple(one.view() for one in ranked[:MAX_SHOWN])


def _merge(merged: dict[str, _Merged], engine: FleetEngine, rows: tuple[EntityRow, ...]) -> None:
    reports = engine.status is FleetStatus.REPORTING
    for path, state, since, sends, refused in rows:
        key = path.casefold()
        one = merged.get(key)
        if one is None:
            if len(merged) >= MAX_MERGED:
                continue
            one = merged[key] = _Merged(path)
        if not reports:
            one.silent += 1
            continue
        one.add(engine.engine, state, since)
        if engine.figures is not None:
            one.sends = (one.sends or 0.0) + sends
            one.refused = (one.refused or 0.0) + refused


def _of_presence(engine: FleetEngine) -> tuple[EntityRow, ...]:
    return tuple((one.path, one.state, one.since, 0.0, 0.0) for one in engine.not_well)
