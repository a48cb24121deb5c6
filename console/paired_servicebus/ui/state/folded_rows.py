"""The rows of the entities' table: one each, and one for all quiet entities while another one needs attention.

Folded are the healthy and the unknown whose sends reach their callers, in every engine of the fleet, unless they are
marked or selected. The order of rows is in row_order.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.model.fleet_view import FleetView
from paired_servicebus.core.model.snapshot import EntityView
from paired_servicebus.core.operator.fleet_sentences import is_unwell
from paired_servicebus.ui.render.state_looks import QUIET
from paired_servicebus.ui.state.row_order import is_lost

QUIET_ROWS: Final = 3
QUIET_ROWS_HIGH: Final = 12
"""Quiet entities that keep their rows, on an ordinary terminal and on a high one."""
FOLD: Final = ""
"""The name of the row that stands for the quiet entities; an entity's row has its path."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows from top to bottom."""

    entities: tuple[EntityView, ...]
    """Those with a row of their own."""
    quiet: tuple[EntityView, ...] = ()
    """Those that the fold stands for, shown or not; empty: there is no fold."""
    fold_at: int = 0
    """The place of the fold: so many entities are above it."""
    is_open: bool = False
    """Whether the quiet ones have rows too, below the fold."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each row."""
        paths = tuple(entity.path for entity in self.entities)
        return (*paths[: self.fold_at], FOLD, *paths[self.fold_at :]) if self.quiet else paths


def table_rows(
    listed: Sequence[EntityView], *, kept: Collection[str], at_most: int, is_open: bool, unwell: Collection[str]
) -> TableRows:
    """Return the rows of the listed entities, which are sorted worst first.

    Args:
        kept: paths that have a row of their own while the others are folded.
        at_most: so many quiet ones are not folded.
        is_open: whether the operator has unfolded the quiet ones.
        unwell: paths in lower case of those that another engine reports as not well.
    """
    loud = tuple(one for one in listed if needs_eyes(one, unwell))
    if not loud or len(listed) - len(loud) <= at_most:
        return TableRows(tuple(listed))
    quiet = tuple(one for one in listed if not needs_eyes(one, unwell))
    if is_open:
        return TableRows((*loud, *quiet), quiet, len(loud), is_open=True)
    own = tuple(one for one in quiet if one.path in kept)
    folded = tuple(one for one in quiet if one.path not in kept)
    return TableRows((*loud, *own), folded, len(loud) + len(own))


def needs_eyes(entity: EntityView, unwell: Collection[str] = ()) -> bool:
    """Return whether an entity is not quiet: by its state, by its sends, or in another engine."""
    return is_lost(entity) or entity.state not in QUIET or entity.path.casefold() in unwell


def unwell_in(fleet: FleetView | None) -> frozenset[str]:
    """Return the paths, in lower case, of the entities that are not well in an engine of the fleet."""
    return (
        frozenset(one.path.casefold() for one in fleet.entities if is_unwell(one)) if fleet is not None else frozenset()
    )
