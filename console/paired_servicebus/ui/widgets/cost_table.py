"""Billed operations by cause since the engine started, and the fixed costs as an estimate of a day.

Nothing counted is projected: a minute of an outage says nothing about a month. Estimates follow SPEC.md section 8.
Money needs a price in console.toml, and is never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from paired_servicebus.core.accounting.billing import (
    DAY,
    PARKED_MESSAGE_OPERATIONS,
    SEARCH_INTERVAL_SECONDS,
    Price,
    idle_receives,
    probes_a_day,
)
from paired_servicebus.core.model.snapshot import Meter, Snapshot
from paired_servicebus.core.text.number_format import NOT_KNOWN, count, duration, plural, size, time_or_day
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, cut, fact, fit, line, rule
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

LABEL: Final = 16
NUMBER: Final = 14
BYTES: Final = 10
MONEY: Final = 12

Number = Callable[[Meter], int]
Cause = tuple[str, Number, Number, str]
"""A name, its operations, its bytes, and what it is."""
CAUSES: Final[tuple[Cause, ...]] = (
    ("sends", lambda it: it.sends, lambda it: it.sent_bytes, "to the primary, billed anyway"),
    ("parked", lambda it: it.parked, lambda it: it.parked_bytes, "sends to the backlog"),
    ("receives", lambda it: it.receives, lambda it: it.received_bytes, "by the syphon, and peeks"),
    ("moves", lambda it: it.moves, lambda it: it.moved_bytes, "sends to destinations"),
    ("settlements", lambda it: it.settlements, lambda it: 0, "complete, defer, dead-letter"),
    ("pings", lambda it: it.pings, lambda it: 0, "and probes"),
)
"""Bytes are those of messages: settlements and pings have no body."""
FLEET: Final[Cause] = (
    "fleet",
    lambda it: it.fleet or 0,
    lambda it: 0,
    "looks and posts on the boards",
)


class CostTable(Lines):
    """The whole page."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        if view.snapshot is None:
            return [rule("cost", width)]
        meter, standing = _meter(view.snapshot, view.price, width), _standing(view.snapshot, view.price, width)
        between = [BLANK] if len(meter) + len(standing) < height else []
        return [Line(cut(one.spans, width)) for one in (*meter, *between, *standing)]


def _meter(snapshot: Snapshot, price: Price | None, width: int) -> list[Line]:
    since = f"counted since {time_or_day(snapshot.started_at, snapshot.at)}, {duration(_age(snapshot))}"
    head = f" {fit('cause', LABEL)}{fit('operations', NUMBER, 'right')}"
    head += fit(price.currency, MONEY, "right") if price is not None else ""
    head += fit("bytes", BYTES, "right")
    billed = snapshot.billed
    added = billed.total - billed.sends
    causes = CAUSES if billed.fleet is None else (*CAUSES, FLEET)
    return [
        rule("operations of this engine", width, note=since),
        line(Span(head, Role.MUTED)),
        *[row for cause in causes for row in _cause(cause, billed, price)],
        _row("total", billed.total, _sum(billed, CAUSES), price, Span("")),
        _row("added by pairing", added, _sum(billed, CAUSES[1:]), price, Span("   all except sends", Role.MUTED)),
    ]


def _cause(cause: Cause, billed: Meter, price: Price | None) -> list[Line]:
    name, number, bytes_of, words = cause
    row = _row(name, number(billed), bytes_of(billed), price, Span(f"   {words}", Role.MUTED))
    if name != "receives":
        return [row]
    idle = billed.waits + billed.searches + billed.attaches
    return [row, _row("  idle calls", idle, None, price, Span("   without a message", Role.MUTED))]


def _age(snapshot: Snapshot) -> float:
    return max(0.0, snapshot.at - snapshot.started_at) if snapshot.started_at is not None else 0.0


def _sum(billed: Meter, causes: Sequence[Cause]) -> int:
    """Return the bytes of these causes."""
    return sum(bytes_of(billed) for _, _, bytes_of, _ in causes)


def _row(name: str, number: int, bytes_: int | None, price: Price | None, words: Span) -> Line:
    return line(
        f" {fit(name, LABEL)}",
        Span(fit(count(number), NUMBER, "right"), Role.TITLE),
        Span(fit(f"{price.of(number):,.4f}", MONEY, "right") if price is not None else ""),
        Span(fit(size(bytes_), BYTES, "right")),
        words,
    )


def _standing(snapshot: Snapshot, price: Price | None, width: int) -> list[Line]:
    facts = [
        ("idle syphon", _idle(snapshot)),
        ("  counted so far", _so_far(snapshot.billed)),
        ("a parked message", f"{PARKED_MESSAGE_OPERATIONS} operations and its bytes at every stage, instead of 2"),
        ("a failover", _failover(snapshot)),
        ("probes", _probes(snapshot)),
        ("money", _money(price)),
    ]
    return [rule("fixed costs, estimated", width), *(fact(label, text, 19, width) for label, text in facts)]


def _idle(snapshot: Snapshot) -> str:
    policy = snapshot.policy
    if policy is None:
        return "unknown: this engine does not report its options"
    if not policy.enable_syphon:
        return "no extra cost: this engine runs none"
    queues = len(snapshot.queues)
    windows = (policy.syphon_receive_window, SEARCH_INTERVAL_SECONDS)  # receives and, at most, searches
    calls = sum(idle_receives(backlog_queues=queues, window=window, engines=1, seconds=DAY) for window in windows)
    return f"{calls:,.0f} calls a day per engine"


def _so_far(billed: Meter) -> str:
    searches = plural(billed.searches, "search", "searches")
    return f"{plural(billed.waits, 'wait')}, {searches}, {plural(billed.attaches, 'link')} opened"


def _failover(snapshot: Snapshot) -> str:
    if snapshot.policy is None:
        return NOT_KNOWN
    day = probes_a_day(interval=snapshot.policy.ping_primary_interval, ping=snapshot.policy.ping)
    left = sum(entity.next_ping_at is not None for entity in snapshot.entities)
    now = f"; now {plural(left, 'entity', 'entities')}" if left else ""
    return (f"{day:,} pings a day for each entity" if day else "its pings open a link, not billed") + now


def _probes(snapshot: Snapshot) -> str:
    if snapshot.policy is None:
        return NOT_KNOWN
    day = probes_a_day(interval=snapshot.policy.ping_primary_interval, ping=snapshot.policy.ping)
    if not day:
        return "opening a link, not billed"
    return f"at most {day:,} a day for each entity probed"


def _money(price: Price | None) -> str:
    if price is None:
        return "unknown: add a price to [prices] in console.toml"
    return f"{price.million_operations:g} {price.currency} a million operations, by console.toml; bytes not counted"
