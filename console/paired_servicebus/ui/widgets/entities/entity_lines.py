"""The lines of one entity: its row, the reason of its state, and its past."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rich.cells import cell_len

from paired_servicebus.core.gateway.gateway_sentences import senders_text
from paired_servicebus.core.model.snapshot import EntityView
from paired_servicebus.core.text.number_format import count, duration, plural
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, cut, fit, line, pack, shorten
from paired_servicebus.ui.render.state_looks import LOOKS, QUIET
from paired_servicebus.ui.state.situation import why_now
from paired_servicebus.ui.widgets.entities.entity_columns import (
    ALL_COLUMNS,
    columns_in,
    fleet_width,
    name_width,
    next_change,
)
from paired_servicebus.ui.widgets.entities.fleet_rows import FleetRows

INDENT: Final = "     "


def row_line(
    entity: EntityView,
    now: float,
    width: int,
    selected: bool,
    *,
    marked: bool = False,
    fleet: FleetRows | None = None,
) -> Line:
    look = fleet.look(entity) if fleet is not None else LOOKS[entity.state]
    spans = [
        Span(("*" if marked else " ") + ("▸" if selected else " "), Role.KEY),
        Span(f"{look.glyph} ", look.role),
        Span(fit(entity.path, name_width(width, fleet=fleet is not None)), Role.TITLE if selected else Role.TEXT),
    ]
    spans += [Span("  "), fleet.cell(entity, fleet_width(width))] if fleet is not None else []
    for column in columns_in(width, fleet=fleet is not None):
        cell = cut(column.draw(entity, now), column.width)
        padding = " " * (column.width - sum(span.width for span in cell))
        spans += [Span("  " + padding), *cell] if column.align == "right" else [Span("  "), *cell, Span(padding)]
    return line(*spans, ground=Role.SELECTED if selected else None)


def why_line(entity: EntityView, now: float, width: int, selected: bool, *, fleet: FleetRows | None = None) -> Line:
    differing = fleet.differing(entity) if fleet is not None else ()
    quiet = entity.state in QUIET and not differing
    room = width - len(INDENT)
    before = f"{pack((differing,), room // 2)} · here: " if differing else ""
    in_column = next_change in [column.draw for column in columns_in(width, fleet=fleet is not None)]
    clients, why = senders_text(entity), why_now(entity, now, counts_down=not in_column)
    if clients and (quiet or cell_len(f"{before}{clients} · {why}") <= room):  # an outage's reason comes first
        before += f"{clients} · "
    text = before + shorten(why, room - cell_len(before))
    return Line((Span(INDENT + text, Role.MUTED if quiet else Role.TEXT),), Role.SELECTED if selected else None)


def _history(entity: EntityView, _now: float, width: int, selected: bool) -> Line:
    sends = [
        f"{count(entity.accepted)} accepted",
        f"{count(entity.diverted)} diverted",
        f"{count(entity.failed)} failed",
    ]
    parts = [
        *(sends if width < ALL_COLUMNS else ()),
        f"{count(entity.pings_accepted)} of {plural(entity.pings_sent, 'ping')} accepted"
        if entity.pings_sent
        else "no ping",
        f"failed over {count(entity.failovers)}×, {duration(entity.seconds_failed_over)} total"
        if entity.failovers
        else "never failed over",
    ]
    text = Span(INDENT + " · ".join(parts), Role.MUTED)
    return Line(cut([text], width), Role.SELECTED if selected else None)


def _gap(_entity: EntityView, _now: float, _width: int, _selected: bool) -> Line:
    return BLANK


PARTS: Final[tuple[Callable[[EntityView, float, int, bool], Line], ...]] = (row_line, why_line, _history, _gap)
