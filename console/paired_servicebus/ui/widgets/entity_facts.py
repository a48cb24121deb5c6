"""One entity in full: state and why-line, possible changes, pings, sends by route and outcome; and its events.

Each part has its lines regardless of figures, so that nothing moves when these arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from paired_servicebus.core.gateway.gateway_sentences import senders_text
from paired_servicebus.core.model.pairing_events import StateChanged
from paired_servicebus.core.model.pairing_fold import PairingEntity
from paired_servicebus.core.model.snapshot import EntityView, RouteView, Snapshot
from paired_servicebus.core.operator.fleet_sentences import engines_by_state
from paired_servicebus.core.operator.why_line import StateOutlook, outlook, pings
from paired_servicebus.core.text.number_format import (
    count,
    duration,
    milliseconds,
    percent,
    plural,
    rate,
    time_or_day,
)
from paired_servicebus.core.text.time_format import age, until
from paired_servicebus.core.text.untrusted_text import name
from paired_servicebus.ui.render.spans import (
    BLANK,
    LOOKS,
    Line,
    Role,
    Span,
    cut,
    fit,
    line,
    name_list,
    pack,
    ping_mark,
    rule,
    shorten,
    wrap,
)
from paired_servicebus.ui.state.log_entries import LogEntry
from paired_servicebus.ui.state.summary import why_now
from paired_servicebus.ui.state.view import View, pairing_in
from paired_servicebus.ui.widgets.frame.lines_widget import Lines
from paired_servicebus.ui.widgets.timeline_list import engine_of, has_engines

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
            rule(entity.path, width, note=Span(_place(view), Role.MUTED)),
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
    fleet = pairing_in(snapshot).fleet
    if fleet is None:
        return []
    found = engines_by_state(entity.total, fleet)
    lines = [
        rule(
            "engines",
            width,
            note=Span(f"{entity.total.silent:,} silent", Role.SUSPECT) if entity.total.silent else None,
        )
    ]
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
    why = wrap(why_now(entity, now), width - 4, lines=WHY_LINES)
    state = line(head, Span(pack(tuple(one for one in parts if one), max(1, width - head.width))))
    return [state, *[line(f"   {text}") for text in why]]


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
    title = rule("pings", width, note=Span(f"{sent} since the engine started", Role.MUTED))
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
    note = Span(here + since, Role.MUTED) if since else None
    routes = _summed(entity.sends, rows)
    large = f"   {plural(entity.too_large, 'message')} too large for the backlog" if entity.too_large else ""
    return [
        rule("sends", width, note=note),
        line(Span(f" {fit('route', LABEL)}{''.join(head)}", Role.MUTED), Span(large, Role.SUSPECT)),
        *[_route(route) for route in routes],
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


def _route(route: RouteView) -> Line:
    tried = route.accepted + route.failed
    share = percent(route.failed, tried)
    numbers = fit(count(route.accepted), NUMBER, "right")
    return line(
        f" {fit(route.route, LABEL)}",
        Span(numbers, Role.TITLE),
        Span(fit(count(route.failed), NUMBER, "right"), Role.SUSPECT if route.failed else Role.TEXT),
        fit(share, NUMBER, "right"),
    )


CLOCK: Final = 10
MAX_LINES: Final = 3
"""Lines of a why-line; other entries have one."""


class EntityHistory(Lines):
    """A rule, then as many of the newest entries as fit."""

    ages: ClassVar[bool] = False  # an event stays true

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return the rule and the entries, from the top."""
        room = max(0, height - 1)
        shown = _newest(view, width, room)
        if not shown and view.snapshot is not None:
            shown = [line(Span(" no events of this entity yet", Role.MUTED))][:room]
        return [rule("history", width), *shown]


def _newest(view: View, width: int, room: int) -> list[Line]:
    path, shown = view.selected.casefold(), list[Line]()
    for entry in reversed(view.events):
        if entry.sentence.subject.casefold() != path:
            continue
        where = f"{engine_of(entry, view)}: " if has_engines(view) else ""
        shown[:0] = _lines(entry, where, width, view.snapshot.at if view.snapshot else entry.at)
        if len(shown) >= room:
            return shown[len(shown) - room :]
    return shown


def _lines(entry: LogEntry, where: str, width: int, now: float) -> list[Line]:
    most = MAX_LINES if entry.kind == StateChanged.kind else 1
    parts = [part for part in wrap(where + entry.text, width - CLOCK - 1, lines=most) if part]
    first = line(
        Span(f" {time_or_day(entry.at, now):<{CLOCK - 1}}", Role.MUTED), Span(parts[0] if parts else "", entry.role)
    )
    return [first, *[line(" " * CLOCK, Span(part, entry.role)) for part in parts[1:]]]
