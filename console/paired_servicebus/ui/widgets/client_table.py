"""The clients of the gateway, a row each: what they are, whether their sends fail, where these go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from paired_servicebus.core.gateway import gateway_sentences as words
from paired_servicebus.core.model.gateway_view import GatewayClient, GatewayView, LinkDirection, SendsGo
from paired_servicebus.core.text.number_format import plural, rate, short_count, size
from paired_servicebus.core.text.time_format import age, clock
from paired_servicebus.ui.render.spans import (
    BLANK,
    Column,
    Line,
    Role,
    Span,
    columns_in,
    cut,
    fact,
    fit,
    fit_name,
    line,
    name_list,
    pack,
    rule,
    wrap,
)
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

WAY_ROLES: Final = {
    SendsGo.PRIMARY: Role.TEXT,
    SendsGo.BACKLOG: Role.FAILED_OVER,
    SendsGo.HELD: Role.SUSPECT,
    SendsGo.REFUSED: Role.FAILED_OVER,
    SendsGo.UNKNOWN: Role.UNKNOWN,
}


def _goes(client: GatewayClient, _: float) -> Span:
    worst = next((way for way in (SendsGo.REFUSED, SendsGo.HELD, SendsGo.BACKLOG) if way in client.goes), None)
    return Span(words.where_text(client), WAY_ROLES[worst] if worst is not None else Role.TEXT)


def _refused(client: GatewayClient, _: float) -> Span:
    return Span(rate(client.refused_per_second), Role.FAILED_OVER if client.refused_per_second else Role.TEXT)


COLUMNS: Final[tuple[Column[GatewayClient, float], ...]] = (
    Column(title="key", width=10, align="left", draw=lambda it, _: Span(it.key or "none yet")),
    Column(title="address", width=16, align="left", from_width=100, draw=lambda it, _: Span(it.address, Role.MUTED)),
    Column(title="for", width=6, from_width=70, draw=lambda it, now: Span(age(now - it.since))),
    Column(title="send/s", width=6, draw=lambda it, _: Span(rate(it.accepted_per_second))),
    Column(title="refused", width=7, draw=_refused),
    Column(
        title="accepted", width=10, from_width=90, draw=lambda it, _: Span(short_count(it.accepted, 10), Role.MUTED)
    ),
    Column(title="in hand", width=8, from_width=90, draw=lambda it, _: Span(size(it.bytes_in_hand), Role.MUTED)),
    Column(title="sends go", width=20, align="left", draw=_goes),
)
LEAST_NAME: Final = 11
MOST_NAME: Final = 30
MARKS: Final = 4


def _name_width(width: int) -> int:
    """Return the cells of the client's name; in a small terminal the last column is cut instead."""
    taken = MARKS + sum(column.width + 2 for column in columns_in(width, COLUMNS))
    return min(MOST_NAME, max(LEAST_NAME, width - taken))


def _cell(column: Column[GatewayClient, float], text: str) -> str:
    """Return a column's text; the last one is not padded, so that nothing of it is cut where it fits."""
    return "  " + (text if column is COLUMNS[-1] else fit(text, column.width, column.align))


class ClientHead(Lines):
    """The rule with the number of clients, the gateway's figures, and the columns' titles."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        gateway = view.gateway
        if gateway is None:
            return [rule("gateway", width)]
        place = f"gateway {gateway.address}:{gateway.port}"
        if not gateway.listens:
            text = f" does not listen: {gateway.trouble or 'not started, or ending'}"
            return [rule(place, width), Line((Span(fit(text, width)),), Role.STATEMENT)]
        titles = [Span("    " + fit("client", _name_width(width)), Role.MUTED)]
        titles += [Span(_cell(one, one.title), Role.MUTED) for one in columns_in(width, COLUMNS)]
        return [
            rule(place, width, note=_note(gateway)),
            _figures(gateway, view.now, width),
            Line(cut(titles, width)) if gateway.clients else BLANK,
        ]


def _note(gateway: GatewayView) -> Span:
    failing = f", {gateway.failing:,} failing" if gateway.failing else ""
    return Span(f"{plural(gateway.count, 'client')}{failing}", Role.FAILED_OVER if gateway.failing else Role.MUTED)


def _figures(gateway: GatewayView, now: float, width: int) -> Line:
    """Return rates and bytes in hand; what stops clients comes first."""
    if gateway.paused:
        since = f" for {age(now - gateway.paused_since)}" if gateway.paused_since is not None else ""
        text = f"{plural(gateway.paused, 'client')} not read{since}: {size(gateway.bytes_in_hand)} in hand"
        return line(Span(" " + fit(text, width - 1), Role.FAILED_OVER))
    return line(Span(" " + pack((words.gateway_figures(gateway),), width - 1)))


class ClientTable(Lines):
    """A row for each client, those with trouble first, and the number of those without a row."""

    DEFAULT_CSS = "ClientTable { overflow-y: scroll; scrollbar-size-vertical: 0; }"

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        gateway = view.gateway
        if view.snapshot is not None and (gateway is None or not gateway.clients):
            how_to = words.NO_GATEWAY if gateway is None else words.NO_CLIENTS if gateway.listens else ()
            return [line(Span(fit(f" {text}", width).rstrip())) for text in how_to]
        if gateway is None:
            return ()
        rows = [_row(one, view, width) for one in gateway.clients]
        return [*rows, line(Span(f"    and {gateway.more:,} more", Role.MUTED))] if gateway.more else rows

    def show(self, view: View) -> None:
        """Show the view, with the selected row in sight."""
        super().show(view)
        ids = [one.id for one in view.clients]
        self.keep_in_sight(ids.index(view.client) if view.client in ids else 0)


def _glyph(client: GatewayClient) -> Span:
    if client.failing:
        return Span("✗ ", Role.FAILED_OVER)
    if words.is_troubled(client):
        return Span("! ", Role.SUSPECT)
    return Span("● ", Role.HEALTHY) if client.key else Span("○ ", Role.UNKNOWN)


def _row(client: GatewayClient, view: View, width: int) -> Line:
    selected = client.id == view.client
    spans = [Span(" ▸" if selected else "  ", Role.KEY), _glyph(client)]
    spans.append(Span(fit_name(words.client_title(client), _name_width(width)), Role.TITLE if selected else Role.TEXT))
    for column in columns_in(width, COLUMNS):
        drawn = column.draw(client, view.now)
        spans.append(Span(_cell(column, drawn.text), drawn.role))
    return Line(cut(spans, width), Role.SELECTED if selected else None)


LABEL: Final = 11


class ClientDetail(Lines):
    """The selected client in words: whether its sends fail and since when, to which entities, and what to do."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        client = next((one for one in view.clients if one.id == view.client), None)
        gateway = view.gateway
        if gateway is None:
            return ()
        if client is None:
            return [rule("refusals", width), *_refusals(gateway, width)]
        named = f"{words.client_title(client)}, key {client.key or 'none yet'}, from {client.address}"
        role = Role.FAILED_OVER if client.failing else Role.TEXT
        facts = [
            rule(named, width, note=f"since {clock(client.since)}"),
            fact("state", words.verdict(client, view.now), LABEL, width, role),
            _entities(client, width),
            *_refusal(client, width),
            fact("do", words.todo(client), LABEL, width, Role.TITLE if words.is_troubled(client) else Role.TEXT),
        ]
        return (
            [*facts, rule("latest refusals", width), *_refusals(gateway, width)] if height > len(facts) + 1 else facts
        )


def _refusal(client: GatewayClient, width: int) -> list[Line]:
    """Return its latest refusal in at most two lines."""
    if client.last_refused_at is None:
        return []
    text = f"{clock(client.last_refused_at)} {client.last_refusal} ({client.last_condition})"
    texts = wrap(text, width - LABEL, lines=2)
    return [fact("" if place else "refusal", one, LABEL, width, Role.SUSPECT) for place, one in enumerate(texts)]


def _entities(client: GatewayClient, width: int) -> Line:
    """Return its entities by direction and way, those of the worst way first."""
    groups: dict[str, list[str]] = {}
    for link in client.links:
        sends = link.direction is LinkDirection.SENDS
        groups.setdefault(f"{link.goes}: " if sends else f"{link.direction}: ", []).append(link.entity)
    parts = [name_list(names, before=before) for before, names in groups.items()] or [("no link attached",)]
    return fact("links", pack(parts, width - LABEL), LABEL, width)


def _refusals(gateway: GatewayView, width: int) -> list[Line]:
    """Return the latest refusals, of connections that have ended too."""
    if not gateway.refusals:
        return [line(Span(" none", Role.MUTED))]
    return [
        Line(
            cut(
                [
                    Span(f" {clock(one.last_at)} ", Role.MUTED),
                    Span(f"{one.count:,}× " if one.count > 1 else "", Role.SUSPECT),
                    Span(f"{one.sdk or 'a client'} {one.version}, key {one.key or 'none'}: ", Role.MUTED),
                    Span(f"{one.entity}: " if one.entity else "", Role.TEXT),
                    Span(one.sentence or one.condition, Role.SUSPECT),
                ],
                width,
            )
        )
        for one in gateway.refusals
    ]
