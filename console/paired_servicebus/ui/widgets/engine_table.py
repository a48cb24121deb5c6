"""The engines on this machine, the one on screen first: the state of each, its entities, and its last answer.

Engines that receive commands have a mark. An unreachable one is a full-width statement, never an old figure that looks
like a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from paired_servicebus.core.backlog.backlog_totals import sum_backlog
from paired_servicebus.core.model.snapshot import EntityView, Snapshot
from paired_servicebus.core.text.number_format import count, plural, rate
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.ui.render.spans import BLANK, LOOKS, SYPHON_LOOKS, Line, Role, Span, cut, fit, line, rule
from paired_servicebus.ui.state.view import CommandAnswer, Neighbour, View
from paired_servicebus.ui.widgets.fleet_strip import fleet_page
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

NAME: Final = 24
NARROW: Final = 12
WIDE: Final = 100
OLD_AFTER: Final = 20.0
"""Seconds behind the engine on screen after which figures are old: twice the poll interval (other_engines.py)."""
INDENT: Final = "     "
EACH: Final = 3
"""Lines of an engine."""


class EngineHead(Lines):
    """The rule, with the number of engines that receive commands."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        title = plural(1 + len(view.neighbours), "engine")
        if view.snapshot is not None and view.snapshot.fleet is not None:
            title += " on this machine"
        if not view.chosen:
            return [rule(title, width, note=Span("commands go to this engine only", Role.MUTED))]
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
        fleet = view.snapshot.fleet if view.snapshot is not None else None
        return [*lines, *fleet_page(fleet, view.now, width, height - len(lines))] if fleet is not None else lines

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
        Span(fit(name, NAME if width >= WIDE else NARROW), Role.TITLE),
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
