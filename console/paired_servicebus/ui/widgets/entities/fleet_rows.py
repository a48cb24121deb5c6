"""The entities as all engines of the fleet report them, for the table of entities."""

from __future__ import annotations

from paired_servicebus.core.model.fleet_view import FleetEntity, FleetView
from paired_servicebus.core.model.snapshot import EntityView
from paired_servicebus.core.operator.fleet_sentences import dissenters, entity_part, is_unwell, worst_state
from paired_servicebus.ui.render.spans import Role, Span, fit, pack
from paired_servicebus.ui.render.state_looks import LOOKS, StateLook
from paired_servicebus.ui.state.view import View


class FleetRows:
    """What the engines of the fleet report about the listed entities."""

    def __init__(self, view: FleetView) -> None:
        self._view = view
        self._by_path = {one.path.casefold(): one for one in view.entities}

    def entity(self, entity: EntityView) -> FleetEntity | None:
        """Return the fleet's figures of an entity; paths compare case-insensitively."""
        return self._by_path.get(entity.path.casefold())

    def is_unwell(self, entity: EntityView) -> bool:
        """Return whether it is not well in an engine."""
        found = self.entity(entity)
        return found is not None and is_unwell(found)

    def look(self, entity: EntityView) -> StateLook:
        """Return the look of the worst state, here or in another engine."""
        found = self.entity(entity)
        states = (entity.state, worst_state(found)) if found is not None else (entity.state,)
        return max((LOOKS[state] for state in states), key=lambda look: look.weight)

    def cell(self, entity: EntityView, width: int) -> Span:
        """Return the engines by state."""
        found = self.entity(entity)
        if found is None:
            return Span(fit("unknown", width), Role.UNKNOWN)
        role = (
            LOOKS[worst_state(found)].role if self._view.read_at is not None and not self._view.trouble else Role.MUTED
        )
        return Span(fit(pack((entity_part(found),), width), width), role)

    def differing(self, entity: EntityView) -> tuple[str, ...]:
        """Return the engines that disagree with most, in shorter and shorter wordings."""
        found = self.entity(entity)
        return dissenters(found, self._view) if found is not None else ()


def fleet_of(view: View) -> FleetRows | None:
    """Return the rows of the engine's fleet; None without one."""
    fleet = view.snapshot.fleet if view.snapshot is not None else None
    return FleetRows(fleet) if fleet is not None else None
