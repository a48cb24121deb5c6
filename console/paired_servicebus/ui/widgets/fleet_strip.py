"""The engines of the pairing on every host: a strip on the dashboard, and a table on the page of engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len

from paired_servicebus.core.backlog.backlog_totals import sum_backlog
from paired_servicebus.core.model.entity_state import WELL, State
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetOrder, FleetStatus, FleetView
from paired_servicebus.core.model.pairing_fold import PairingView, pairing_of
from paired_servicebus.core.model.snapshot import EntityView, Snapshot
from paired_servicebus.core.operator import fleet_sentences as words
from paired_servicebus.core.text import untrusted_text
from paired_servicebus.core.text.number_format import count, plural, rate
from paired_servicebus.core.text.time_format import age, clock
from paired_servicebus.ui.render.spans import (
    BETWEEN,
    BLANK,
    LOOKS,
    SYPHON_LOOKS,
    Line,
    Part,
    Role,
    Span,
    cut,
    fit,
    fit_name,
    line,
    pack,
    paragraph,
    rule,
)
from paired_servicebus.ui.state.view import CommandAnswer, Neighbour, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

WIDE: Final = 110
INDENT: Final = "     "
MAX_FOLDED: Final = 3
"""Lines of names of one group."""
MAX_DIFFERENT: Final = 5
MAX_OTHERS: Final = 3
"""Orders that do not stand."""
COLUMNS: Final = (("engine", 20, 0), ("host", 16, WIDE), ("state", 13, 0), ("heard", 12, 0), ("syphon", 8, WIDE),
                  ("takes", 13, WIDE), ("send/s", 7, 0), ("not healthy", 0, 0))  # fmt: skip
"""Title, cells (0: the rest), and the narrowest terminal that has it."""


class FleetStrip(Lines):
    """Engines by state, trouble, unwell entities, silent engines and standing orders; hidden without a fleet."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return the rule and the most urgent `height` - 1 lines."""
        pairing = pairing_of(view.snapshot) if view.snapshot is not None else None
        if pairing is None or (fleet := pairing.fleet) is None:
            return ()
        rows = urgent_rows(pairing, fleet, view.now, brief=True)[: height - 1]
        lines = [_text(part, width, role, indent=" ") for part, role in rows]
        return [fleet_rule(fleet, view.now, width), *lines]


def fleet_rule(fleet: FleetView, now: float, width: int) -> Line:
    """Return the rule with the number of engines in each state."""
    unwell = any(state not in {one.value for one in WELL} for state, _ in words.engine_counts(fleet))
    role = Role.MUTED if words.trouble_part(fleet, now) else Role.FAILED_OVER if unwell else Role.HEALTHY
    watched = "" if fleet.read_at is None else f", read {age(now - fleet.read_at)} ago"
    title = f"fleet{watched}"
    room = width - len(title) - 10
    return rule(title, width, note=Span(pack((words.engines_part(fleet),), room), role))


def urgent_rows(
    pairing: PairingView, fleet: FleetView, now: float, *, brief: bool = False
) -> list[tuple[list[Part], Role]]:
    """Return one line each for trouble, entities, silence; differences and oddities last.

    `brief`: for the strip; with the standing orders, and trouble and silence share a line, so that the first order
    stays in sight.
    """
    rows: list[tuple[list[Part], Role]] = []
    trouble, silent = words.trouble_part(fleet, now), words.silent_part(fleet, now)
    if trouble:
        rows.append(([trouble, silent] if brief else [trouble], Role.STATEMENT))
    if entities := words.unwell_part(pairing.totals):
        rows.append(([entities], Role.FAILED_OVER))
    if silent and not (trouble and brief):
        rows.append(([silent], Role.SUSPECT))
    rows += _standing_rows(fleet, now) if brief else []
    if brief and (differing := words.differing_part(fleet)):
        rows.append(([differing], Role.SUSPECT))
    rows += [([part], Role.SUSPECT) for part in words.odd_parts(fleet)]
    quiet = "all engines agree" if words.standing_orders(fleet, now) else "all engines agree, no order stands"
    return rows or [([(quiet,)], Role.MUTED)]


def _standing_rows(fleet: FleetView, now: float) -> list[tuple[list[Part], Role]]:
    """Return a line for each standing order, the first to end first."""
    standing = words.standing_orders(fleet, now)
    more = (f"{len(standing) - 1} more orders stand (7)", f"+{len(standing) - 1}") if standing[1:] else ()
    return [
        ([words.order_part(one, now, fleet), *([more] if more and not place else [])], order_role(one, now))
        for place, one in enumerate(standing)
    ]


def order_role(order: FleetOrder, now: float) -> Role:
    """Return the look of an order: louder once it ends soon, muted if nothing of it stands."""
    if order.until is None or order.until <= now:
        return Role.MUTED
    return {300.0: Role.STATEMENT, 1800.0: Role.SUSPECT}.get(words.ending_stage(order, now), Role.FORCED)


def fleet_page(pairing: PairingView, fleet: FleetView, now: float, width: int, height: int) -> list[Line]:
    """Return the whole fleet for the page of engines: urgent lines, orders, then a row each.

    If the rows do not fit into `height` lines, engines in the same state share one.
    """
    lines = [fleet_rule(fleet, now, width)]
    lines += [_text(part, width, role) for part, role in urgent_rows(pairing, fleet, now)]
    lines += [_text([part], width, Role.MUTED) for part in (words.gateways_part(fleet),) if part]
    ended = [one for one in fleet.engines if one.status is FleetStatus.ENDED]
    engines = (*words.present(fleet), *ended)
    orders = [*_orders(fleet, now, width), *_differences(fleet, width)]
    if len(lines) + len(orders) + 1 + len(engines) > height:
        groups = _groups(engines)
        if len(lines) + len(orders) + len(_folded(groups, now, width, height)) > height:
            orders = [_text(part, width, role) for part, role in _standing_rows(fleet, now)]
            if differing := words.differing_part(fleet):
                orders.append(_text([differing], width, Role.SUSPECT))
        lines += orders
        return lines + _folded(groups, now, width, height - len(lines))
    columns = [(title, cells) for title, cells, least in COLUMNS if width >= least]
    columns[0] = ("engine", NARROW if width < NARROW_BELOW else columns[0][1])
    titles = [Span("  " + "".join(fit(title, cells or len(title)) + " " for title, cells in columns), Role.MUTED)]
    lines += [*orders, rule("engines", width), Line(cut(titles, width))]
    return lines + [_row(one, now, width, fleet.me) for one in engines]


def _orders(fleet: FleetView, now: float, width: int) -> list[Line]:
    """Return the orders: those that stand with all their answers, then the newest others."""
    standing = words.standing_orders(fleet, now)
    known = {one.id for one in standing}
    others = [one for one in words.newest_orders(fleet) if one.id not in known]
    if not standing and not others:
        return [rule("orders: none on the board", width)]
    text = f"{len(standing) or 'none'} {'stands' if len(standing) == 1 else 'stand'}"
    lines = [rule(f"orders: {text}", width, note=f"{len(others)} older" if others else None)]
    for one in (*standing, *others[:MAX_OTHERS]):
        lines += _order(one, fleet, now, width)
    return lines


def _differences(fleet: FleetView, width: int) -> list[Line]:
    """Return what local operators changed about the fleet's orders, in full."""
    lines: list[Line] = []
    for engine, text in words.differences(fleet)[:MAX_DIFFERENT]:
        lines += paragraph(f"{engine} differs: {text}", width, Role.SUSPECT, indent=2, lines=2)
    return lines


def _order(order: FleetOrder, fleet: FleetView, now: float, width: int) -> list[Line]:
    """Return one order: in one line if that has everything, else its answers below it."""
    role = order_role(order, now)
    why = f" “{untrusted_text.reason(order.why)}”" if order.why else ""
    whole = words.order_part(order, now, fleet)[0]
    if role is Role.MUTED or cell_len(whole + why) <= width - 2:
        return [_text([(whole + why, *words.order_part(order, now, fleet))], width, role)]
    answers = words.answers_part(order, now, fleet)[0]
    room = width - len(INDENT)
    rows = min(MAX_FOLDED, -(-cell_len(answers) // max(1, room - untrusted_text.MAX_NAME // 2)))
    head = _text([(f"{words.order_head(order, now)}{why}", words.order_head(order, now))], width, role)
    return [head, *paragraph(answers, width, indent=len(INDENT), lines=rows)]


Groups = dict[tuple[str, str], list[FleetEngine]]


def _groups(engines: Sequence[FleetEngine]) -> Groups:
    """Return the engines by their state and their entities that are not well."""
    groups: Groups = {}
    for one in engines:
        bad = words.not_well(one) if one.status is not FleetStatus.ENDED else ""
        groups.setdefault((words.engine_status(one), bad), []).append(one)
    return groups


def _folded(groups: Groups, now: float, width: int, room: int) -> list[Line]:
    """Return a group as one line of figures, and its names in the lines under it, the first groups with more lines."""
    spare = max(0, room - 2 * len(groups))
    lines: list[Line] = []
    for (status, bad), found in groups.items():
        role, sends = _role(found[0]), sum(one.figures.sends_per_second for one in found if one.figures is not None)
        silent = found[0].status is not FleetStatus.REPORTING
        figures = (
            f"since {untrusted_text.minute(min(one.heard_at for one in found), now)}"
            if silent
            else f"{rate(sends)} sends/s"
        )
        about = "" if bad == "none" else f"{BETWEEN}{bad}"
        lines.append(Line(cut([Span(f"  {status} ", role), Span(f"{len(found):,}{BETWEEN}{figures}{about}")], width)))
        named = _names([one.engine for one in found], width, min(MAX_FOLDED, 1 + spare))
        spare -= len(named) - 1
        lines += named
    return lines


def _names(engines: list[str], width: int, rows: int) -> list[Line]:
    """Return the names in at most `rows` lines, and the number of those without room."""
    most, room = len(engines), width - len(INDENT) - untrusted_text.MAX_NAME // 4
    while most > 1 and len(untrusted_text.names(engines, most)) > room * rows:
        most -= 1
    text = untrusted_text.names(engines, most)
    return paragraph(text, width, Role.MUTED, indent=len(INDENT), lines=rows)


def _text(parts: list[Part], width: int, role: Role, *, indent: str = "  ") -> Line:
    text = indent + pack(parts, width - len(indent))
    if role is Role.STATEMENT:
        return Line((Span(fit(text, width)),), role)
    return Line(cut([Span(text, role)], width))


def _row(engine: FleetEngine, now: float, width: int, me: str) -> Line:
    role = _role(engine)
    spans = [Span("* " if engine.engine == me else "  ", Role.KEY)]
    for (title, cells, least), text in zip(COLUMNS, words.engine_cells(engine, now), strict=True):
        if width >= least:
            cells = min(cells, NARROW) if title == "engine" and width < NARROW_BELOW else cells
            spans.append(Span((fit(text, cells) + " ") if cells else text, role if title == "state" else Role.TEXT))
    drawn = Line(cut(spans, width))
    return drawn.greyed() if engine.status is FleetStatus.ENDED else drawn


def _role(engine: FleetEngine) -> Role:
    if engine.status is not FleetStatus.REPORTING:
        return Role.SUSPECT if engine.status is FleetStatus.SILENT else Role.MUTED
    return next((LOOKS[state].role for state in State if state == engine.state), Role.UNKNOWN)


# The engines on this machine, the one on screen first: the state of each, its entities, and its last answer.
#
# Engines that receive commands have a mark. An unreachable one is a full-width statement, never an old figure that
# looks like a new one.

NAME: Final = 24
NARROW: Final = 12
NARROW_BELOW: Final = 76
ENGINES_WIDE: Final = 100
OLD_AFTER: Final = 20.0
"""Seconds behind the engine on screen after which figures are old: twice the poll interval (feed.py)."""
EACH: Final = 3
"""Lines of an engine."""


class EngineHead(Lines):
    """The rule, with the number of engines that receive commands."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        title = plural(1 + len(view.neighbours), "engine") + (" on this machine" if view.fleet is not None else "")
        if not view.chosen:
            return [rule(title, width, note="commands go to this engine only")]
        reached = 1 + sum(not one.unreachable for one in view.reach)
        note = Span(f"commands reach {reached} of the {1 + len(view.reach)} marked", Role.SUSPECT)
        return [rule(title, width, note=note)]


class EngineTable(Lines):
    """Three lines an engine, the selected one in sight."""

    DEFAULT_CSS = "EngineTable { overflow-y: scroll; scrollbar-size-vertical: 0; }"

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return the engine on screen, then its neighbours, then chosen ones that have ended."""
        outcomes = dict(view.outcomes)
        lines = _shown(view, width, outcomes.get(view.pairing))
        for one in view.neighbours:
            lines += _neighbour(one, view, width, outcomes.get(one.name))
        gone = {one.name for one in view.reach} - {one.name for one in view.neighbours}
        for one in view.reach:
            lines += _neighbour(one, view, width, None) if one.name in gone else []
        pairing = pairing_of(view.snapshot) if view.snapshot is not None else None
        if pairing is None or pairing.fleet is None:
            return lines
        return [*lines, *fleet_page(pairing, pairing.fleet, view.now, width, height - len(lines))]

    def show(self, view: View) -> None:
        """Show the view, with the selected engine in sight."""
        super().show(view)
        names = ["", *(one.name for one in view.neighbours)]
        self.keep_in_sight(EACH * (names.index(view.engine) if view.engine in names else 0), EACH)


def _shown(view: View, width: int, outcome: CommandAnswer | None) -> list[Line]:
    mark = Span("*▸" if not view.engine else "* ", Role.KEY)
    ground = Role.SELECTED if not view.engine else None
    if view.snapshot is None:
        return [line(mark, Span(f"○ {view.pairing}: state unknown yet"), ground=ground), BLANK, BLANK]
    return _engine(view, mark, view.pairing, view.snapshot, "shown here", width, outcome)


def _neighbour(one: Neighbour, view: View, width: int, outcome: CommandAnswer | None) -> list[Line]:
    selected = one.name == view.engine
    mark = Span(("*" if one.name in view.chosen else " ") + ("▸" if selected else " "), Role.KEY)
    ground = Role.SELECTED if selected else None
    if one.snapshot is None:
        text = f"{mark.text}✗ {one.name} is unreachable: {one.unreachable}"
        return [line(fit(text, width), ground=Role.STATEMENT), _outcome(outcome, width, ground), BLANK]
    return _engine(view, mark, one.name, one.snapshot, one.trouble or "healthy", width, outcome)


def _engine(
    view: View, mark: Span, name: str, found: Snapshot, how: str, width: int, outcome: CommandAnswer | None
) -> list[Line]:
    ground = Role.SELECTED if "▸" in mark.text else None
    worst = max((one.state for one in found.entities), key=lambda state: LOOKS[state].weight, default=None)
    look = LOOKS[worst] if worst is not None else None
    syphon = SYPHON_LOOKS[found.syphon.status]
    sums = sum_backlog(found)
    old = view.snapshot is not None and view.snapshot.at - found.at > OLD_AFTER
    spans = [
        mark,
        Span(f"{look.glyph if look else '○'} ", look.role if look else Role.UNKNOWN),
        Span(fit_name(name, NAME if width >= ENGINES_WIDE else NARROW), Role.TITLE),
        Span(f" {how}", Role.MUTED if how in ("shown here", "healthy") else Role.SUSPECT),
        Span(", read-only" if found.read_only else "", Role.SUSPECT),
        Span(f" as of {clock(found.at)}, old · " if old else " · ", Role.MUTED),
        Span(f"{rate(sum(one.sends_per_second for one in found.entities))}/s, "),
        Span(f"{count(sums.messages if sums.is_known else None)} parked, "),
        Span(f"syphon {found.syphon.status}", syphon.role if syphon.weight else Role.TEXT),
        Span(f", {plural(len(found.entities), 'entity', 'entities')}"),
    ]
    lines = [Line(cut(spans, width), ground), Line(cut(_entities(found.entities), width), ground)]
    return [*(one.greyed() if old else one for one in lines), _outcome(outcome, width, ground)]


def _entities(entities: Sequence[EntityView]) -> list[Span]:
    """Return the entities, worst first, so that healthy ones are cut."""
    spans = [Span(INDENT)]
    for one in sorted(entities, key=lambda one: -LOOKS[one.state].weight)[:40]:
        look = LOOKS[one.state]
        spans += [Span(f"{look.glyph} ", look.role), Span(f"{one.path} {rate(one.sends_per_second)}/s  ")]
    return spans


def _outcome(outcome: CommandAnswer | None, width: int, ground: Role | None) -> Line:
    if outcome is None:
        return Line((), ground)
    mark, role = ("✓", Role.HEALTHY) if outcome.good else ("✗", Role.FAILED_OVER)
    spans = [Span(f"{INDENT}{mark} ", role), Span(f"{clock(outcome.at)} ", Role.MUTED), Span(outcome.text)]
    return Line(cut(spans, width), ground)
