"""The columns of the table of entities: title, width, from which terminal on, and how a cell is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import EntityView
from paired_servicebus.core.text.number_format import NOT_KNOWN, count, rate, short_count, time_or_day
from paired_servicebus.core.text.time_format import age, roughly, until
from paired_servicebus.ui.render.spans import Role, Span
from paired_servicebus.ui.render.state_looks import LOOKS, QUIET, ping_mark
from paired_servicebus.ui.state.row_order import NOWHERE

WIDEST_NAME: Final = 32
ALL_COLUMNS: Final = 152
"""Cells that fit every column."""
Cell = tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityColumn:
    """One column. `draw` returns its spans, which are cut or padded to `width` cells."""

    title: str
    width: int
    draw: Callable[[EntityView, float], Cell]
    align: Literal["left", "right"] = "left"
    from_width: int = 0
    """Cells of the narrowest terminal that has it."""
    fleet_from: int | None = None
    """The same beside the fleet's column; None: `from_width`."""


def state(entity: EntityView, _now: float) -> Cell:
    return (Span(entity.state, LOOKS[entity.state].role),)


def _lasting(entity: EntityView, now: float) -> Cell:
    return (Span(_lasts(entity, now - entity.since)),)


def _lasts(entity: EntityView, seconds: float) -> str:
    """Return the age to the second if the state needs attention; a healthy row then ticks rarely and costs nothing."""
    return roughly(seconds) if entity.state in QUIET else age(seconds)


def _refused(entity: EntityView, _now: float) -> Cell:
    return (Span(rate(entity.refused_per_second), Role.FAILED_OVER if entity.refused_per_second else Role.TEXT),)


def _route(entity: EntityView, _now: float) -> Cell:
    return (Span(entity.route, Role.FAILED_OVER if entity.route == NOWHERE else Role.TEXT),)


def _ping(entity: EntityView, now: float) -> Cell:
    """Return the latest outcome, how many in a row had it, and its age."""
    mark = ping_mark(entity.last_ping_good)
    if not entity.last_ping_at:
        return (mark,)
    row = pings_in_a_row(entity)
    number = f" ×{short_count(row, 4).strip()}" if row > 1 and entity.state not in QUIET else ""
    return (mark, Span(f"{number} {_lasts(entity, now - entity.last_ping_at)}", Role.TEXT))


def pings_in_a_row(entity: EntityView) -> int:
    """Return the latest pings with the same outcome; at least so many if the engine remembers no more. 0: unknown."""
    if entity.last_ping_good:
        return entity.pings_in_a_row
    if entity.pings and not entity.pings_accepted:
        return entity.pings
    failed = 0
    for took in reversed(entity.recent_pings):
        if took is not None:
            break
        failed += 1
    return failed


def _first_fail(entity: EntityView, now: float) -> Cell:
    at = entity.first_failure_at
    return (Span(NOT_KNOWN if at is None or entity.state in QUIET else time_or_day(at, now)),)


def next_change(entity: EntityView, now: float) -> Cell:
    if entity.state is State.SUSPECT and entity.fails_over_at is not None:
        return (Span(f"over {until(entity.fails_over_at, now)}", Role.SUSPECT),)
    return (Span(f"ping {until(entity.next_ping_at, now)}" if entity.next_ping_at is not None else NOT_KNOWN),)


COLUMNS: Final[tuple[EntityColumn, ...]] = (
    EntityColumn(title="state", width=11, draw=state),
    EntityColumn(title="for", width=6, fleet_from=70, draw=_lasting),
    EntityColumn(title="first fail", width=10, from_width=124, fleet_from=176, draw=_first_fail),
    EntityColumn(title="to", width=9, fleet_from=100, draw=_route),
    EntityColumn(
        title="send/s",
        width=6,
        align="right",
        from_width=70,
        fleet_from=92,
        draw=lambda it, _: (Span(rate(it.sends_per_second)),),
    ),
    EntityColumn(title="refused", width=7, align="right", draw=_refused),
    EntityColumn(title="ping", width=11, from_width=78, fleet_from=112, draw=_ping),
    EntityColumn(title="next", width=14, from_width=100, fleet_from=132, draw=next_change),
    EntityColumn(
        title="accepted",
        width=11,
        align="right",
        from_width=152,
        fleet_from=188,
        draw=lambda it, _: (Span(count(it.accepted)),),
    ),
    EntityColumn(
        title="diverted",
        width=10,
        align="right",
        from_width=112,
        fleet_from=164,
        draw=lambda it, _: (Span(count(it.diverted)),),
    ),
    EntityColumn(
        title="failed",
        width=8,
        align="right",
        from_width=132,
        fleet_from=176,
        draw=lambda it, _: (Span(count(it.failed)),),
    ),
)


def columns_in(width: int, *, fleet: bool = False) -> tuple[EntityColumn, ...]:
    """Return the columns of a terminal of that width; fewer beside the fleet's."""
    if not fleet:
        return tuple(column for column in COLUMNS if width >= column.from_width)
    return tuple(one for one in COLUMNS if width >= (one.from_width if one.fleet_from is None else one.fleet_from))


def fleet_width(width: int) -> int:
    """Return the width of the fleet's column."""
    return 38 if width >= 140 else 27 if width >= 80 else 17


def name_width(width: int, *, fleet: bool = False) -> int:
    """Return the width of the entity's path."""
    taken = sum(column.width + 2 for column in columns_in(width, fleet=fleet)) + (fleet_width(width) + 2) * fleet
    return max(8, min(WIDEST_NAME, width - taken - 5))
