"""The entities: the head and the rows of their table, and one entity in full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len
from textual import events

from paired_servicebus.core.gateway.gateway_sentences import senders_text
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_fold import PairingEntity, pairing_of
from paired_servicebus.core.model.snapshot import NOWHERE, EntityView, RouteView, Snapshot
from paired_servicebus.core.operator.fleet_sentences import dissenters, engines_by_state
from paired_servicebus.core.operator.why_line import StateOutlook, outlook, pings
from paired_servicebus.core.text.number_format import (
    NOT_KNOWN,
    count,
    duration,
    milliseconds,
    percent,
    plural,
    rate,
    short_count,
    time_or_day,
)
from paired_servicebus.core.text.time_format import age, clock, roughly, until
from paired_servicebus.core.text.untrusted_text import name
from paired_servicebus.ui.render.spans import (
    BETWEEN,
    BLANK,
    LOOKS,
    MAX_NAMES,
    QUIET,
    Column,
    Line,
    Role,
    Span,
    columns_in,
    cut,
    fit,
    fit_name,
    line,
    name_list,
    pack,
    paragraph,
    ping_mark,
    rule,
    shorten,
    spread,
    wrap,
)
from paired_servicebus.ui.state.summary import MANY, STEADY_SECONDS, why_now
from paired_servicebus.ui.state.view import (
    SORTS,
    WORST_FIRST,
    EngineLink,
    TableRows,
    View,
    by_state,
    groups_of,
    needs_eyes,
)
from paired_servicebus.ui.widgets.frame.lines_widget import LazyLines, Lines

# The columns of the table of entities: title, width, from which terminal on, and how a cell is drawn.

WIDEST_NAME: Final = 32
NEVER: Final = 10_000
"""Cells of no terminal."""


def state(entity: EntityView, _now: float) -> Span:
    return Span(entity.state, LOOKS[entity.state].role)


def _in_engines(entity: EntityView, _now: float) -> Span:
    """Return at how many engines it is in its state, and how many are silent."""
    if not isinstance(entity, PairingEntity):
        return Span(NOT_KNOWN)
    silent = f"{BETWEEN}{entity.total.silent:,} silent" if entity.total.silent else ""
    return Span(f"{entity.in_state:,} of {entity.engines:,}{silent}")


def _since(entity: EntityView, now: float) -> Span:
    """Return when the present episode began, at the engine where it began first."""
    at = entity.first_failure_at if entity.first_failure_at is not None else entity.since
    return Span(NOT_KNOWN if entity.state in QUIET else time_or_day(at, now))


def _held_back(entity: EntityView, _now: float) -> Span:
    """Return the messages that syphons hold back for it."""
    return Span(count(entity.total.held_back if isinstance(entity, PairingEntity) else None))


def _here(entity: EntityView, _now: float) -> Span:
    """Return the state in this engine."""
    here = entity.here if isinstance(entity, PairingEntity) else entity
    return Span("not here", Role.MUTED) if here is None else state(here, _now)


def _lasts(entity: EntityView, seconds: float) -> str:
    """Return the age to the second if the state needs attention; a healthy row then ticks rarely and costs nothing."""
    return roughly(seconds) if entity.state in QUIET else age(seconds)


def _refused(entity: EntityView, _now: float) -> Span:
    return Span(rate(entity.refused_per_second), Role.FAILED_OVER if entity.refused_per_second else Role.TEXT)


def _route(entity: EntityView, _now: float) -> Span:
    return Span(entity.route, Role.FAILED_OVER if entity.route == NOWHERE else Role.TEXT)


def _ping(entity: EntityView, now: float) -> Span:
    """Return the latest outcome, how many in a row had it, and its age."""
    mark = ping_mark(entity.last_ping_good)
    if not entity.last_ping_at:
        return mark
    row = pings_in_a_row(entity)
    number = f" ×{short_count(row, 4).strip()}" if row > 1 and entity.state not in QUIET else ""
    return Span(f"{mark.text}{number} {_lasts(entity, now - entity.last_ping_at)}", mark.role)


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


def _first_fail(entity: EntityView, now: float) -> Span:
    at = entity.first_failure_at
    return Span(NOT_KNOWN if at is None or entity.state in QUIET else time_or_day(at, now))


def next_change(entity: EntityView, now: float) -> Span:
    if entity.state is State.SUSPECT and entity.fails_over_at is not None:
        return Span(f"over {until(entity.fails_over_at, now)}", Role.SUSPECT)
    return Span(f"ping {until(entity.next_ping_at, now)}" if entity.next_ping_at is not None else NOT_KNOWN)


C = Column
COLUMNS: Final[tuple[Column[EntityView, float], ...]] = (
    C(title="state", width=11, align="left", draw=state),
    C(title="engines", width=20, align="left", from_width=NEVER, fleet_from=0, draw=_in_engines),
    C(title="for", width=6, align="left", fleet_from=NEVER, draw=lambda it, now: Span(_lasts(it, now - it.since))),
    C(title="since", width=8, align="left", from_width=NEVER, fleet_from=70, draw=_since),
    C(title="first fail", width=10, align="left", from_width=124, fleet_from=NEVER, draw=_first_fail),
    C(title="to", width=9, align="left", fleet_from=NEVER, draw=_route),
    C(title="send/s", width=6, from_width=70, fleet_from=88, draw=lambda it, _: Span(rate(it.sends_per_second))),
    C(title="refused", width=7, draw=_refused),
    C(title="held", width=6, from_width=NEVER, fleet_from=80, draw=_held_back),
    C(title="to", width=22, align="left", from_width=NEVER, fleet_from=132, draw=_route),
    C(title="ping", width=11, align="left", from_width=78, fleet_from=96, draw=_ping),
    C(title="next", width=14, align="left", from_width=100, fleet_from=160, draw=next_change),
    C(title="here", width=11, align="left", from_width=NEVER, fleet_from=150, draw=_here),
    C(title="accepted", width=11, from_width=152, fleet_from=188, draw=lambda it, _: Span(count(it.accepted))),
    C(title="diverted", width=10, from_width=112, fleet_from=164, draw=lambda it, _: Span(count(it.diverted))),
    C(title="failed", width=8, from_width=132, fleet_from=176, draw=lambda it, _: Span(count(it.failed))),
)


def name_width(width: int, *, fleet: bool = False) -> int:
    """Return the width of the entity's path."""
    taken = sum(column.width + 2 for column in columns_in(width, COLUMNS, fleet=fleet))
    return max(8, min(WIDEST_NAME, width - taken - 5))


def is_old(view: View, entity: EntityView) -> bool:
    """Return whether its state is that of other engines, as they reported it too long ago."""
    if view.snapshot is None or not isinstance(entity, PairingEntity) or not entity.is_elsewhere:
        return False
    return pairing_of(view.snapshot).old_since is not None


def differing(view: View, entity: EntityView) -> tuple[str, ...]:
    """Return the engines that disagree with most, in shorter and shorter wordings."""
    fleet = pairing_of(view.snapshot).fleet if view.snapshot is not None else None
    if fleet is None or not isinstance(entity, PairingEntity):
        return ()
    return dissenters(entity.total, fleet)


# The steps until the first figures, in the place of the entities: what is over, what is waited for and since when.

NAME: Final = 16
REASON_LINES: Final = 3
_LOOKS: Final = {True: ("✓", Role.HEALTHY), None: ("…", Role.TEXT), False: ("·", Role.MUTED)}


class _Step(NamedTuple):
    """One step. over: whether it is over; None: it is under way; False: it has not begun."""

    name: str
    text: str
    over: bool | None


def attach_lines(view: View, width: int) -> list[Line]:
    """Return the steps of a screen without figures."""
    return [drawn for step in _steps(view) for drawn in _lines(step, width)]


def _steps(view: View) -> Iterator[_Step]:
    answered = view.answered_at is not None
    for place, text in enumerate(view.start_steps):
        yield _Step("start", text, True if answered or place < len(view.start_steps) - 1 else None)
    if view.answered_at is not None:
        waited = _for(view.clock - view.answered_at)
        yield _Step("engine", "answers", True)
        yield _Step("first figures", f"asked for{waited}; an engine that starts reads its queues first", None)
        return
    if view.start_steps:
        yield _Step("engine", "answers once it runs", False)
    elif view.link is EngineLink.UNREACHABLE:
        yield _Step("engine", f"no answer{_for(view.clock - view.link_since)}: {view.link_reason}", None)
    else:
        yield _Step("engine", f"connecting to the engine of {view.pairing}", None)
    yield _Step("first figures", "come with its answer", False)


def _for(seconds: float) -> str:
    return f" for {age(seconds)}" if seconds >= 1 else ""


def _lines(step: _Step, width: int) -> Iterator[Line]:
    glyph, role = _LOOKS[step.over]
    for place, text in enumerate(wrap(step.text, width - NAME - 8, lines=REASON_LINES)):
        head = f"   {glyph} {step.name:<{NAME}}" if place == 0 else " " * (NAME + 5)
        yield line(Span(head, role), Span(text, Role.MUTED if step.over is False else Role.TEXT))


# The lines of the table of entities, computed on demand.
#
# If all why-lines fit, each entity has its own. Otherwise the selected one has, and those that are not quiet while they
# all fit, else the worst of them that leave every row in sight; from WHY_FOR_ALL cells on all where not every row is.
# The quiet ones share a line while they are folded (row_order.py). The last line counts rows out of sight, by state
# if they are not healthy.

# The lines of one entity: its row, and the reason of its state.

INDENT: Final = "     "


def row_line(
    entity: EntityView, now: float, width: int, selected: bool, *, marked: bool = False, fleet: bool = False
) -> Line:
    look = LOOKS[entity.state]
    spans = [
        Span(("*" if marked else " ") + ("▸" if selected else " "), Role.KEY),
        Span(f"{look.glyph} ", look.role),
        Span(fit_name(entity.path, name_width(width, fleet=fleet)), Role.TITLE if selected else Role.TEXT),
    ]
    for column in columns_in(width, COLUMNS, fleet=fleet):
        drawn = column.draw(entity, now)
        spans.append(Span("  " + fit(drawn.text, column.width, column.align), drawn.role))
    return line(*spans, ground=Role.SELECTED if selected else None)


def why_line(
    entity: EntityView, now: float, width: int, selected: bool, *, differ: tuple[str, ...] = (), fleet: bool = False
) -> Line:
    quiet = entity.state in QUIET and not differ
    room = width - len(INDENT)
    before = f"{pack((differ,), room // 2)} · " if differ else ""
    in_column = next_change in [column.draw for column in columns_in(width, COLUMNS, fleet=fleet)]
    clients, why = senders_text(entity), why_now(entity, now, counts_down=not in_column)
    if clients and (quiet or cell_len(f"{before}{clients} · {why}") <= room):  # an outage's reason comes first
        before += f"{clients} · "
    text = before + shorten(why, room - cell_len(before))
    return Line((Span(INDENT + text, Role.MUTED if quiet else Role.TEXT),), Role.SELECTED if selected else None)


LINES: Final = 3
"""Of an entity: its row, its why-line, and a gap."""


WHY_FOR_ALL: Final = 120
"""Cells from which every unwell entity has its why-line where rows are out of sight anyway."""
WIDE_HINT: Final = 80
"""Cells from which the fold names its key."""


class EntityRows(LazyLines):
    """The lines of the table."""

    def __init__(self, view: View, width: int, height: int) -> None:
        self._view = view
        self._width = width
        self._table = view.rows
        entities, fold_at = self._table.entities, self._table.fold_at
        self._rows = (*entities[:fold_at], None, *entities[fold_at:]) if self._table.quiet else entities
        """The rows from top to bottom; None stands for the fold."""
        many = sum(needs_eyes(entity) for entity in entities) > MANY
        self._now = view.now - view.now % STEADY_SECONDS if many else view.now
        self._fleet = view.fleet is not None
        self._places = self._plan(height)
        """Row and line within it, for each line of the table."""
        self.overflows = len(self._places) > height
        """Whether rows are out of sight, which the last visible line counts."""
        self.height = max(1, height - 1) if self.overflows else height
        """Visible lines."""

    def _plan(self, height: int) -> list[tuple[int, int]]:
        number = len(self._rows)
        each = min(LINES, height // number) if number else 0
        if each >= 2:
            return [(row, part) for row in range(number) for part in range(each if self._rows[row] else 1)]
        unwell = [entity for entity in self._table.entities if needs_eyes(entity)]
        every, rows = self._with_why(unwell), self._with_why(())
        if len(every) <= height or 2 * len(unwell) < height:
            return every
        if len(rows) <= height:
            others = [entity for entity in unwell if entity.path != self._view.selected]
            return self._with_why(others[: height - len(rows)])
        return every if self._width >= WHY_FOR_ALL else rows

    def _is_selected(self, row: EntityView | None) -> bool:
        return self._view.on_fold if row is None else row.path == self._view.selected

    def _with_why(self, wanted: Sequence[EntityView]) -> list[tuple[int, int]]:
        """Return a line for each row, and a why-line for the selected entity and the wanted ones."""
        paths = {self._view.selected, *(entity.path for entity in wanted)}
        places: list[tuple[int, int]] = []
        for index, row in enumerate(self._rows):
            places.append((index, 0))
            if row is not None and row.path in paths:
                places.append((index, 1))
        return places

    def __len__(self) -> int:
        return len(self._places) + self.overflows

    def out_of_sight(self, top: int) -> Line:
        """Return the number of entities above and below the window at `top`, their states, and the names of a few."""
        seen = {index for index, part in self._places[top : top + self.height] if part == 0}
        first, last = min(seen, default=0), max(seen, default=-1)
        above, below = self._entities_in(self._rows[:first]), self._entities_in(self._rows[last + 1 :])
        spans = [
            Span("  "),
            *_hidden("↑", above, self._view.selected),
            *_hidden("↓", below, self._view.selected),
        ]
        if 0 < len(below) <= MAX_NAMES and not any(needs_eyes(one) for one in below):
            room = self._width - sum(span.width for span in spans)
            spans += [Span(pack((name_list([one.path for one in below]),), room), Role.MUTED)]
        return Line(cut(spans, self._width))

    def _entities_in(self, rows: Sequence[EntityView | None]) -> list[EntityView]:
        """Return the entities of the rows, once each; a closed fold stands for its own."""
        found = [row for row in rows if row is not None]
        return found if self._table.is_open or None not in rows else [*found, *self._table.quiet]

    def line_at(self, place: int) -> Line:
        if place == len(self._places):
            return BLANK
        index, part = self._places[place]
        entity = self._rows[index]
        selected = self._is_selected(entity)
        if entity is None:
            return _fold(self._table, self._width, selected)
        if part == 0:
            marked = entity.path in self._view.marks
            drawn = row_line(entity, self._now, self._width, selected, marked=marked, fleet=self._fleet)
            return drawn.greyed() if is_old(self._view, entity) else drawn
        if part == 1:
            differ = differing(self._view, entity)
            return why_line(entity, self._now, self._width, selected, differ=differ, fleet=self._fleet)
        return BLANK

    def span_of_selection(self) -> tuple[int, int]:
        """Return the selected row's first line, and the one after its last."""
        own = [place for place, (index, _) in enumerate(self._places) if self._is_selected(self._rows[index])]
        return (own[0], own[-1] + 1) if own else (0, 0)


def _fold(table: TableRows, width: int, selected: bool) -> Line:
    """Return how many are quiet, their sends, and names as far as there is room; on the right, the key."""
    key = f"enter {'folds' if table.is_open else 'shows'} them " if width >= WIDE_HINT or selected else ""
    states = by_state(table.quiet)
    spans = [Span(" ▸" if selected else "  ", Role.KEY)]
    for place, (kind, found) in enumerate(states.items()):
        look = LOOKS[kind]
        spans += [Span(BETWEEN if place else "", Role.MUTED), Span(f"{look.glyph} {len(found):,} {kind}", look.role)]
    sends = sum(one.sends_per_second for one in table.quiet)
    room = width - sum(span.width for span in spans) - len(key) - len(BETWEEN) - 1
    names = () if table.is_open else (name_list([one.path for one in table.quiet]),)
    rest = pack(((f"{rate(sends)} sends/s", ""), *names), room) if room > 0 else ""
    spans += [Span(BETWEEN + rest if rest else "", Role.MUTED)]
    return spread(spans, [Span(key, Role.MUTED)], width, ground=Role.SELECTED if selected else None)


def _hidden(sign: str, entities: Sequence[EntityView], selected: str) -> tuple[Span, ...]:
    if not entities:
        return ()
    unwell = [one for one in entities if one.state not in QUIET]
    is_healthy = all(one.state is State.HEALTHY for one in entities)
    quiet = ", all healthy" if is_healthy else f" ({states_text(entities)})"
    which = f" ({states_text(unwell)})" if unwell else quiet
    own = f", the selected {selected}" if any(one.path == selected for one in entities) else ""
    role = LOOKS[next(iter(by_state(unwell)))].role if unwell else Role.MUTED
    return (Span(f"{sign} {len(entities):,} more{which}{own}  ", role),)


def states_text(entities: Sequence[EntityView]) -> str:
    """Return the number of entities in each state, the worst first."""
    return " · ".join(f"{len(found):,} {state}" for state, found in by_state(entities).items())


class EntityHead(Lines):
    """The rule above the table, with a demo's caption, and the columns' titles."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        fleet = view.fleet is not None
        titles = [Span("    " + fit("entity", name_width(width, fleet=fleet)), Role.MUTED)]
        titles += [
            Span("  " + fit(column.title, column.width, column.align), Role.MUTED)
            for column in columns_in(width, COLUMNS, fleet=fleet)
        ]
        return (rule(_title(view), width, note=_note(view)), Line(tuple(titles)))


def _note(view: View) -> Span | None:
    """Return a demo's caption, else the number of entities in each state, unless all are healthy."""
    if view.snapshot is None:
        return None
    if view.snapshot.caption:
        return Span(view.snapshot.caption, Role.KEY)
    groups = groups_of(view.snapshot)
    if set(groups) <= {State.HEALTHY}:
        return None
    everywhere = "all engines: " if view.fleet is not None else ""
    return Span(everywhere + states_text(view.entities), LOOKS[next(iter(groups))].role)


def _title(view: View) -> str:
    """Return the number of entities, their order, and the marks."""
    if view.snapshot is None:
        return "entities"
    title = plural(len(view.entities), "entity", "entities")
    if view.filter:
        title = f"{len(view.listed):,} of {title} with “{view.filter}”"
    sorted_at = "" if SORTS[view.sort].live else f" as of {clock(view.sorted_at)}"
    order = f", {view.sort}{sorted_at}"
    if view.snapshot.caption and view.sort == WORST_FIRST:
        order = ""  # a caption needs the room
    return " · ".join(part for part in (title + order, _marked(view)) if part)


def _marked(view: View) -> str:
    """Return the number of marks, and of the marked ones that a command reaches, if that differs."""
    if not view.marks:
        return ""
    hit, marked = len(view.marked), f"{len(view.marks):,} marked"
    if hit == len(view.marks):
        return marked
    return f"{marked}, keys act on {hit:,} listed" if hit else f"{marked}, none listed: keys act on {view.selected}"


class EntityTable(Lines):
    """The rows, with the selected one in sight."""

    DEFAULT_CSS = "EntityTable { overflow-y: scroll; scrollbar-size-vertical: 0; }"

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return rows and why-lines, drawn on demand; before the first figures, the steps until they come."""
        if view.snapshot is None:
            return attach_lines(view, width)
        return EntityRows(view, width, height)

    def show(self, view: View) -> None:
        """Show the view. A new order or filter starts at its first row, an unfolding at the fold.

        The selection is scrolled to when it moves, or when news move it out of a scrolled window.
        """
        before = self._view
        super().show(view)
        if before is None or before.sort != view.sort or before.filter != view.filter:
            self.scroll_to(y=0, animate=False, force=True, immediate=True)
        elif view.is_unfolded and not before.is_unfolded and isinstance(self._lines, EntityRows):
            first, _ = self._lines.span_of_selection()
            self.scroll_to(y=first, animate=False, force=True, immediate=True)
        elif before.selected != view.selected or before.on_fold != view.on_fold or self.scroll_offset.y:
            self._keep_in_sight()

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self._keep_in_sight()

    def _keep_in_sight(self) -> None:
        rows = self._lines
        if not isinstance(rows, EntityRows) or not self.size.height:
            return
        (first, last), top, height = rows.span_of_selection(), self.scroll_offset.y, rows.height
        if first < top:
            self.scroll_to(y=first, animate=False, force=True, immediate=True)
        elif last > top + height:
            self.scroll_to(y=last - height, animate=False, force=True, immediate=True)

    def _line_at(self, y: int) -> Line:
        rows = self._lines
        if isinstance(rows, EntityRows) and rows.overflows and y == rows.height:
            line = rows.out_of_sight(self.scroll_offset.y)
            return line if self._view is None or self._view.fresh else line.greyed()
        return super()._line_at(y)


# One entity in full: state and why-line, possible changes, pings, sends by route and outcome.
#
# Each part has its lines regardless of figures, so that nothing moves when these arrive.

LABEL: Final = 14
WHY_LINES: Final = 2
WAYS: Final = 2
"""Changes of state that are shown; no state has more."""
FIXED_SENDS: Final = 2
"""Lines of the sends without the routes."""
NUMBER: Final = 13


class EntityFacts(Lines):
    """The state of the selected entity."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return as many lines as there is room for, the routes last."""
        entity, snapshot = view.entity, view.snapshot
        if entity is None or snapshot is None:
            gone = f"no engine has {view.selected}" if view.selected else "no entity known yet"
            return [rule("entity", width), line(Span(f" {gone}", Role.MUTED))]
        shown = [
            rule(entity.path, width, note=_place(view)),
            *_standing(entity, width, view.now),
            *_ways(entity.here or entity, snapshot, width, view.now),
            *_elsewhere(entity, snapshot, width),
        ]
        if entity.here is not None:
            shown += _pings(entity.here, width, view.now)
            rows = height - len(shown) - FIXED_SENDS
            shown += _sends(entity.here, snapshot, width, rows=rows) if rows > 0 else []
        return [Line(cut(one.spans, width), one.ground) for one in shown]


def _elsewhere(entity: PairingEntity, snapshot: Snapshot, width: int) -> list[Line]:
    """Return which engines are in which state, a line a state, the worst first; with no fleet nothing."""
    fleet = pairing_of(snapshot).fleet
    if fleet is None:
        return []
    found = engines_by_state(entity.total, fleet)
    silent = Span(f"{entity.total.silent:,} silent", Role.SUSPECT) if entity.total.silent else None
    lines = [rule("engines", width, note=silent)]
    for state, (number, named) in found.items():
        look = LOOKS[state]
        who = pack((name_list([name(one) for one in named]),), width - LABEL - 8) if named else ""
        lines.append(line(Span(fit(f" {look.glyph} {state}", LABEL + 2), look.role), Span(f"{number:>4,}  {who}")))
    return lines


def _place(view: View) -> str:
    paths = [entity.path for entity in view.listed]
    place = f"{paths.index(view.selected) + 1} of " if view.selected in paths else ""
    return f"{place}{plural(len(paths), 'entity', 'entities')}"


def _standing(entity: PairingEntity, width: int, now: float) -> list[Line]:
    look = LOOKS[entity.state]
    where = f" at {entity.in_state} of {plural(entity.engines, 'engine')}" if entity.is_elsewhere else ""
    held, clients = entity.total.held_back, senders_text(entity)
    parts = (
        (f"for {age(now - entity.since)}",),
        (f"route {entity.route}", entity.route),
        (f"parked {held:,}",) if held else (),
        (f"sends {rate(entity.sends_per_second)}/s", ""),
        (f"{'slow, ' if entity.is_slow else ''}p99 {milliseconds(entity.p99)}", "") if entity.p99 is not None else (),
        (clients, "") if clients else (),
        (_episodes(entity) if entity.here is not None else "not sent to by this engine", ""),
    )
    head = Span(f" {look.glyph} {entity.state}{where} ", look.role)
    why = paragraph(why_now(entity, now), width, indent=3, lines=WHY_LINES)
    state = line(head, Span(pack(tuple(one for one in parts if one), max(1, width - head.width))))
    return [state, *why, *[BLANK] * (WHY_LINES - len(why))]


def _episodes(entity: EntityView) -> str:
    if not entity.failovers:
        return "never failed over"
    return f"failed over {entity.failovers:,}×, {duration(entity.seconds_failed_over)}"


def _ways(entity: EntityView, snapshot: Snapshot, width: int, now: float) -> list[Line]:
    ways = [_way(change, width) for change in outlook(entity, snapshot.policy, now)[:WAYS]]
    return [rule("next", width), *ways, *[BLANK] * (WAYS - len(ways))]


def _way(change: StateOutlook, width: int) -> Line:
    look = LOOKS[change.to]
    text = shorten(change.when, width - LABEL - 3)
    return line(Span(fit(f" {look.glyph} {change.to}", LABEL + 2), look.role), Span(text))


def _pings(entity: EntityView, width: int, now: float) -> list[Line]:
    sums = pings(entity.recent_pings)
    sent = f"{count(entity.pings_accepted)} of {plural(entity.pings_sent, 'ping')} accepted"
    title = rule("pings", width, note=f"{sent} since the engine started")
    if not sums.number:
        return [title, line(Span(" none answered yet", Role.MUTED), Span(_next_ping(entity, now), Role.MUTED))]
    row = entity.pings_in_a_row
    strip = [ping_mark(took is not None) for took in entity.recent_pings]
    figures = f"  p50 {milliseconds(sums.p50)}  p95 {milliseconds(sums.p95)}; {row:,} in a row"
    last = f"; last {age(now - entity.last_ping_at)} ago" if entity.last_ping_at is not None else ""
    return [title, line(" ", *strip, Span(figures), Span(last, Role.MUTED))]


def _next_ping(entity: EntityView, now: float) -> str:
    return f"; next {until(entity.next_ping_at, now)}" if entity.next_ping_at is not None else ""


def _sends(entity: EntityView, snapshot: Snapshot, width: int, *, rows: int) -> list[Line]:
    since = f"since {time_or_day(snapshot.started_at, snapshot.at)}" if snapshot.started_at is not None else ""
    head = [fit(title, NUMBER, "right") for title in ("accepted", "failed", "share")]
    here = "this engine, " if snapshot.fleet is not None else ""
    routes = _summed(entity.sends, rows)
    large = f"   {plural(entity.too_large, 'message')} too large for the backlog" if entity.too_large else ""
    return [
        rule("sends", width, note=here + since if since else None),
        line(Span(f" {fit('route', LABEL)}{''.join(head)}", Role.MUTED), Span(large, Role.SUSPECT)),
        *[_route_line(route) for route in routes],
    ]


def _summed(routes: Sequence[RouteView], rows: int) -> list[RouteView]:
    """Return the routes; those without a row are summed up in the last one."""
    if not routes:
        return [RouteView(route="primary", accepted=0, failed=0)]
    if len(routes) <= rows:
        return list(routes)
    rest = routes[rows - 1 :]
    sums = RouteView(
        route=f"{len(rest)} backlog queues" if rows > 1 else f"{len(rest)} routes",
        accepted=sum(one.accepted for one in rest),
        failed=sum(one.failed for one in rest),
    )
    return [*routes[: rows - 1], sums]


def _route_line(route: RouteView) -> Line:
    tried = route.accepted + route.failed
    share = percent(route.failed, tried)
    numbers = fit(count(route.accepted), NUMBER, "right")
    return line(
        f" {fit(route.route, LABEL)}",
        Span(numbers, Role.TITLE),
        Span(fit(count(route.failed), NUMBER, "right"), Role.SUSPECT if route.failed else Role.TEXT),
        fit(share, NUMBER, "right"),
    )
