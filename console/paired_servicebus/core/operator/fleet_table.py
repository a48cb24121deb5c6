"""The fleet as plain lines, for `paired fleet` and `paired status --fleet`: verdict, engines, entities, orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from paired_servicebus.core.model.entity_state import GLYPHS, WELL, State
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetEntity, FleetStatus, FleetView
from paired_servicebus.core.operator import fleet_sentences as words
from paired_servicebus.core.operator import order_sentences
from paired_servicebus.core.text import foreign_words
from paired_servicebus.core.text.number_format import NOT_KNOWN, rate
from paired_servicebus.core.text.time_format import age, clock

WIDEST: Final = 28
"""Cells of a name in a column."""
MAX_PATHS: Final = 3
"""Entities named in an engine's row."""
SILENT_GLYPH: Final = "✗"
HEADS: Final = ("engine", "host", "state", "heard", "syphon", "takes", "send/s", "not healthy")


def fleet_lines(view: FleetView, now: float) -> list[str]:
    """Return the fleet as lines, times in UTC."""
    read = f", read {clock(view.read_at)}" if view.read_at is not None else ""
    lines = [f"fleet: {words.fleet_word(view, now)}, {words.engines_part(view)[0]}{read}"]
    lines += [f"  ! {text}" for text in words.fleet_complaints(view, now)]
    lines += [f"  ? {part[0]}" for part in words.odd_parts(view) if "skipped" in part[0]]
    lines += [f"  {text}" for text in words.gateways_part(view)[:1]]
    lines += ["", *_engine_rows(view, now)] if view.engines else []
    lines += ["", *_entity_rows(view)] if view.entities else []
    orders = [f"  {order_sentences.order_part(one, now, view)[0]}" for one in order_sentences.newest_orders(view)]
    return [*lines, "", "orders", *(orders or ["  none on the board"])]


def _engine_rows(view: FleetView, now: float) -> list[str]:
    ended = [one for one in view.engines if one.status is FleetStatus.ENDED]
    return _table([HEADS, *(engine_cells(one, now) for one in (*words.present(view), *ended))])


def engine_cells(engine: FleetEngine, now: float) -> tuple[str, ...]:
    """Return an engine's row; a silent one's figures are of when it was heard last."""
    figures = engine.figures
    sends = rate(figures.sends_per_second) if figures is not None else NOT_KNOWN
    if figures is not None and engine.status is not FleetStatus.REPORTING:
        sends = f"was {sends}"
    host, status = foreign_words.name(engine.host), engine_status(engine)
    return (foreign_words.name(engine.engine), host, status, heard(engine, now), engine.syphon, engine.takes, sends,
            not_well(engine))  # fmt: skip


def engine_status(engine: FleetEngine) -> str:
    """Return its glyph and its state."""
    state = next((state for state in State if state == engine.state), None)
    return f"{GLYPHS[state] if state is not None else SILENT_GLYPH} {engine.state}"


def heard(engine: FleetEngine, now: float) -> str:
    """Return when it was heard: an age while it reports, a time of day once it is silent or has ended."""
    if engine.status is FleetStatus.REPORTING:
        return f"{age(now - engine.heard_at)} ago"
    return f"since {foreign_words.minute(engine.heard_at, now)}"


def not_well(engine: FleetEngine, most: int = MAX_PATHS) -> str:
    """Return its entities that are not healthy, or why it ended."""
    if engine.status is FleetStatus.ENDED:
        return foreign_words.reason(engine.reason)
    bad = sum(count for state, count in engine.states if state not in WELL)
    known = [one.path for one in engine.not_well if one.state not in WELL]
    before = "was " if engine.status is FleetStatus.SILENT else ""
    if not bad:
        return "was healthy" if before else "none"
    shown = ", ".join(foreign_words.name(path) for path in known[:most])
    more = bad - len(known[:most])
    return f"{before}{shown}" + (f" and {more:,} more" if shown and more else f"{more:,}" if more else "")


def _entity_rows(view: FleetView) -> list[str]:
    bad = words.unwell_entities(view)
    well = [one for one in view.entities if one not in bad]
    rows = [("entity", "over all engines", "send/s", "refused/s", "who differs")]
    return _table([*rows, *(_entity_cells(one, view) for one in (*bad, *well))])


def _entity_cells(entity: FleetEntity, view: FleetView) -> tuple[str, ...]:
    who = words.dissenters(entity, view)
    figures = (entity.sends_per_second, entity.refused_per_second)
    sends, refused = (NOT_KNOWN if one is None else rate(one) for one in figures)
    return (foreign_words.name(entity.path), words.entity_part(entity)[0], sends, refused, who[0] if who else "")


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows in columns; the last one is as wide as its text."""
    widths = [min(WIDEST, max(len(row[place]) for row in rows)) for place in range(len(rows[0]) - 1)]
    widths = [max(width, *(len(row[place]) for row in rows)) if place else width for place, width in enumerate(widths)]
    return [
        "  " + "  ".join([*(_cell(text, width) for text, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]


def _cell(text: str, width: int) -> str:
    return (text if len(text) <= width else f"{text[: width - 1]}…").ljust(width)
