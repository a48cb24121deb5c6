"""The engines of the pairing on every host: a strip on the dashboard, and a table on the page of engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len

from paired_servicebus.core.model.entity_state import WELL, State
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetStatus, FleetView
from paired_servicebus.core.operator import fleet_sentences as words
from paired_servicebus.core.operator.fleet_table import engine_cells, engine_status, not_well
from paired_servicebus.core.text.number_format import rate
from paired_servicebus.core.text.time_format import age
from paired_servicebus.ui.render.spans import BETWEEN, BLANK, Line, Part, Role, Span, cut, fit, pack, rule, wrap
from paired_servicebus.ui.render.state_looks import LOOKS
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

WIDE: Final = 110
INDENT: Final = "     "
MAX_FOLDED: Final = 3
"""Lines of names of one group."""
COLUMNS: Final = (("engine", 20, 0), ("host", 16, WIDE), ("state", 13, 0), ("heard", 12, 0), ("syphon", 8, WIDE),
                  ("takes", 13, WIDE), ("send/s", 7, 0), ("not healthy", 0, 0))  # fmt: skip
"""Title, cells (0: the rest), and the narrowest terminal that has it."""


class FleetStrip(Lines):
    """Engines by state, trouble, unwell entities, silent engines and standing orders; hidden without a fleet."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return the rule and the most urgent `height` - 1 lines."""
        fleet = view.snapshot.fleet if view.snapshot is not None else None
        if fleet is None:
            return [BLANK] * height
        rows = urgent_rows(fleet, view.now, brief=True)[: height - 1]
        lines = [Line(cut([Span(f" {pack(part, width - 1)}", role)], width)) for part, role in rows]
        return [fleet_rule(fleet, view.now, width), *lines, *[BLANK] * (height - 1 - len(lines))]


def fleet_rule(fleet: FleetView, now: float, width: int) -> Line:
    """Return the rule with the number of engines in each state."""
    unwell = any(state not in {one.value for one in WELL} for state, _ in words.engine_counts(fleet))
    role = Role.MUTED if words.trouble_part(fleet, now) else Role.FAILED_OVER if unwell else Role.HEALTHY
    watched = "" if fleet.read_at is None else f", read {age(now - fleet.read_at)} ago"
    title = f"fleet{watched}"
    room = width - len(title) - 10
    return rule(title, width, note=Span(pack((words.engines_part(fleet),), room), role))


def urgent_rows(fleet: FleetView, now: float, *, brief: bool = False) -> list[tuple[list[Part], Role]]:
    """Return one line each for trouble, entities, silence, and each standing order; oddities last.

    `brief`: trouble and silence share a line, so that the first order stays in sight.
    """
    rows: list[tuple[list[Part], Role]] = []
    trouble, silent = words.trouble_part(fleet, now), words.silent_part(fleet, now)
    if trouble:
        rows.append(([trouble, silent] if brief else [trouble], Role.STATEMENT))
    if entities := words.unwell_part(fleet):
        rows.append(([entities], Role.FAILED_OVER))
    if silent and not (trouble and brief):
        rows.append(([silent], Role.SUSPECT))
    standing = words.standing_orders(fleet, now)
    if standing:
        more = (f"{len(standing) - 1} more orders stand (7)", f"+{len(standing) - 1}") if standing[1:] else ()
        rows.append(([words.order_part(standing[0], now), *([more] if more else [])], Role.FORCED))
        rows += [([words.order_part(one, now)], Role.FORCED) for one in standing[1:]]
    rows += [([part], Role.SUSPECT) for part in words.odd_parts(fleet)]
    return rows or [([("all engines agree, no order stands",)], Role.MUTED)]


def fleet_page(fleet: FleetView, now: float, width: int, height: int) -> list[Line]:
    """Return the whole fleet for the page of engines: urgent lines, orders, then a row each.

    If the rows do not fit into `height` lines, engines in the same state share one.
    """
    lines = [fleet_rule(fleet, now, width)]
    standing = {one.id for one in words.standing_orders(fleet, now)}
    lines += [_text(part, width, role) for part, role in urgent_rows(fleet, now)]
    others = [one for one in words.newest_orders(fleet) if one.id not in standing]
    lines += [_text([words.order_part(one, now)], width, Role.MUTED) for one in others[:3]]
    ended = [one for one in fleet.engines if one.status is FleetStatus.ENDED]
    engines = (*words.present(fleet), *ended)
    if len(lines) + 1 + len(engines) > height:
        return lines + _folded(engines, now, width, height - len(lines))
    columns = [(title, cells) for title, cells, least in COLUMNS if width >= least]
    titles = [Span("  " + "".join(fit(title, cells or len(title)) + " " for title, cells in columns), Role.MUTED)]
    lines.append(Line(cut(titles, width)))
    return lines + [_row(one, now, width, fleet.me) for one in engines]


def _folded(engines: Sequence[FleetEngine], now: float, width: int, room: int) -> list[Line]:
    """Return a group of engines in the same state as one line of figures, and their names in the lines under it."""
    groups: dict[tuple[str, str], list[FleetEngine]] = {}
    for one in engines:
        bad = not_well(one) if one.status is not FleetStatus.ENDED else ""
        groups.setdefault((engine_status(one), bad), []).append(one)
    each = max(1, min(MAX_FOLDED, (room - len(groups)) // max(1, len(groups))))
    lines: list[Line] = []
    for (status, bad), found in groups.items():
        role, sends = _role(found[0]), sum(one.figures.sends_per_second for one in found if one.figures is not None)
        silent = found[0].status is not FleetStatus.REPORTING
        figures = (
            f"since {words.minute(min(one.heard_at for one in found), now)}" if silent else f"{rate(sends)} sends/s"
        )
        about = "" if bad == "none" else f"{BETWEEN}{bad}"
        lines.append(Line(cut([Span(f"  {status} ", role), Span(f"{len(found):,}{BETWEEN}{figures}{about}")], width)))
        lines += _names([one.engine for one in found], width - len(INDENT), each)
    return lines


def _names(engines: list[str], width: int, rows: int) -> list[Line]:
    """Return the names in at most `rows` lines, and the number of those without room."""
    most = len(engines)
    while most > 1 and len(words.names(engines, most)) > (width - words.MAX_NAME // 4) * rows:
        most -= 1
    text = words.names(engines, most)
    wrapped = wrap(text, width, lines=rows) if cell_len(text) > width else [text]
    return [Line((Span(INDENT + part, Role.MUTED),)) for part in wrapped if part]


def _text(parts: list[Part], width: int, role: Role) -> Line:
    return Line(cut([Span(f"  {pack(parts, width - 2)}", role)], width))


def _row(engine: FleetEngine, now: float, width: int, me: str) -> Line:
    role = _role(engine)
    spans = [Span("* " if engine.engine == me else "  ", Role.KEY)]
    for (title, cells, least), text in zip(COLUMNS, engine_cells(engine, now), strict=True):
        if width >= least:
            spans.append(Span((fit(text, cells) + " ") if cells else text, role if title == "state" else Role.TEXT))
    drawn = Line(cut(spans, width))
    return drawn.greyed() if engine.status is FleetStatus.ENDED else drawn


def _role(engine: FleetEngine) -> Role:
    if engine.status is not FleetStatus.REPORTING:
        return Role.SUSPECT if engine.status is FleetStatus.SILENT else Role.MUTED
    return next((LOOKS[state].role for state in State if state == engine.state), Role.UNKNOWN)
