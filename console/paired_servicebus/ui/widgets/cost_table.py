"""Billed operations by cause, projected to a month, and the cost of standing arrangements.

The meter counts the operations of this engine since it started; the projections follow the model of SPEC.md section 8.
Money needs a price in console.toml, and is never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from paired_servicebus.core.accounting.billing import (
    DAY,
    MONTH_DAYS,
    PARKED_MESSAGE_OPERATIONS,
    Price,
    idle_receives,
    idle_searches,
    probes_a_day,
)
from paired_servicebus.core.model.snapshot import BilledView, Snapshot
from paired_servicebus.core.text.number_format import NOT_KNOWN, count, duration, plural, short_count, time_or_day
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, cut, fit, line, rule
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

LABEL: Final = 14
NUMBER: Final = 14
BYTES: Final = 9
MONEY: Final = 12
LEAST_AGE: Final = 60.0
"""Seconds of an engine's life before its rate is projected."""

Number = Callable[[BilledView], int]
Size = Callable[[BilledView], int | None]
CAUSES: Final[tuple[tuple[str, Number, Size, str], ...]] = (
    ("sends", lambda it: it.sends, lambda it: it.sent_bytes, "to the primary, billed anyway"),
    ("parked", lambda it: it.parked, lambda it: it.parked_bytes, "sends to the backlog"),
    ("receives", lambda it: it.receives, lambda it: it.received_bytes, "by the syphon, and peeks"),
    ("moves", lambda it: it.moves, lambda it: it.moved_bytes, "sends to destinations"),
    ("settlements", lambda it: it.settlements, lambda it: 0, "beyond the model's 4"),
    ("pings", lambda it: it.pings, lambda it: 0, "and probes"),
)
"""Bytes are those of messages: settlements and pings have no body."""
FLEET: Final[tuple[str, Number, Size, str]] = (
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
        return [Line(cut(one.spans, width)) for one in [*meter, *between, *standing][:height]]


def _meter(snapshot: Snapshot, price: Price | None, width: int) -> list[Line]:
    since = f"counted since {time_or_day(snapshot.started_at, snapshot.at)}, {duration(_age(snapshot))}"
    head = f" {fit('cause', LABEL)}{fit('operations', NUMBER, 'right')}{fit(f'in {MONTH_DAYS} days', NUMBER, 'right')}"
    head += fit(price.currency, MONEY, "right") if price is not None else ""
    head += fit("bytes", BYTES, "right")
    billed = snapshot.billed
    added = billed.total - billed.sends
    return [
        rule("billed operations of this engine", width, note=Span(since, Role.MUTED)),
        line(Span(head, Role.MUTED)),
        *[row for cause in _causes(billed) for row in _cause(cause, snapshot, price)],
        _row("total", billed.total, _sum(billed, CAUSES), snapshot, price, Span("")),
        _row(
            "by the pairing", added, _sum(billed, CAUSES[1:]), snapshot, price, Span("   all except sends", Role.MUTED)
        ),
    ]


def _causes(billed: BilledView) -> tuple[tuple[str, Number, Size, str], ...]:
    return CAUSES if billed.fleet is None else (*CAUSES, FLEET)


def _cause(cause: tuple[str, Number, Size, str], snapshot: Snapshot, price: Price | None) -> list[Line]:
    name, number, size, words = cause
    billed = snapshot.billed
    row = _row(name, number(billed), size(billed), snapshot, price, Span(f"   {words}", Role.MUTED))
    return [row, *_idle_calls(snapshot, price)] if name == "receives" else [row]


def _idle_calls(snapshot: Snapshot, price: Price | None) -> list[Line]:
    """Return the receives without a message, with the model's figure beside the counted one."""
    counted, modelled = _counted(snapshot.billed), _modelled(snapshot)
    if counted is None or modelled is None:
        return []
    words = Span(f"   model {sum(modelled):,.0f}", Role.MUTED)
    return [_row("  idle calls", sum(counted), None, snapshot, price, words)]


def _counted(billed: BilledView) -> tuple[int, int, int] | None:
    """Return waits, searches and opened links; None if the engine does not count them."""
    if billed.waits is None or billed.searches is None or billed.attaches is None:
        return None
    return billed.waits, billed.searches, billed.attaches


def _modelled(snapshot: Snapshot) -> tuple[float, float] | None:
    """Return waits and searches of an idle syphon in 30 days; None without a syphon, or if its options are unknown."""
    policy, queues = snapshot.policy, len(snapshot.queues)
    if policy is None or not policy.enable_syphon:
        return None
    month = MONTH_DAYS * DAY
    waits = idle_receives(backlog_queues=queues, window=policy.syphon_receive_window, engines=1, seconds=month)
    return waits, idle_searches(backlog_queues=queues, engines=1, seconds=month)


def _age(snapshot: Snapshot) -> float:
    return max(0.0, snapshot.at - snapshot.started_at) if snapshot.started_at is not None else 0.0


def _sum(billed: BilledView, causes: Sequence[tuple[str, Number, Size, str]]) -> int | None:
    """Return the bytes of these causes; None if one is unknown."""
    sizes = [size(billed) for _, _, size, _ in causes]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _row(name: str, number: int, size: int | None, snapshot: Snapshot, price: Price | None, words: Span) -> Line:
    age = _age(snapshot)
    month = round(number * MONTH_DAYS * DAY / age) if age >= LEAST_AGE else None
    cost = f"{price.of(month):,.2f}" if price is not None and month is not None else NOT_KNOWN
    return line(
        f" {fit(name, LABEL)}",
        Span(fit(count(number), NUMBER, "right"), Role.TITLE),
        Span(fit(count(month), NUMBER, "right")),
        Span(fit(cost, MONEY, "right") if price is not None else ""),
        Span(fit(short_count(size, BYTES - 2), BYTES, "right")),
        words,
    )


def _standing(snapshot: Snapshot, price: Price | None, width: int) -> list[Line]:
    lines = [rule("standing arrangements, by the model", width)]
    facts = [
        ("an idle syphon", _idle(snapshot)),
        *_so_far(snapshot),
        ("a parked message", f"{PARKED_MESSAGE_OPERATIONS} operations and its bytes at every stage, instead of 2"),
        ("a failover", _failover(snapshot)),
        ("probes", _probes(snapshot)),
        ("money", _money(price)),
    ]
    for label, text in facts:
        lines.append(line(Span(f" {label:<18}", Role.MUTED), text))
    return lines


def _idle(snapshot: Snapshot) -> str:
    if snapshot.policy is None:
        return f"{NOT_KNOWN}: this engine does not report its options"
    modelled = _modelled(snapshot)
    if modelled is None:
        return "nothing: this engine runs none"
    waits, searches = (month / MONTH_DAYS for month in modelled)
    month = f"{sum(modelled):,.0f} in {MONTH_DAYS} days an engine"
    return f"{waits:,.0f} waits, {searches:,.0f} searches a day; {month}"


def _so_far(snapshot: Snapshot) -> list[tuple[str, str]]:
    counted = _counted(snapshot.billed)
    if counted is None or _modelled(snapshot) is None:
        return []
    waits, searches, links = counted
    return [("  counted so far", f"{waits:,} waits, {searches:,} searches, {plural(links, 'link', 'links')} opened")]


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
    return f"at most {day:,} a day, {day * MONTH_DAYS:,} in {MONTH_DAYS} days, for each entity probed"


def _money(price: Price | None) -> str:
    if price is None:
        return "unknown: add a price to [prices] in console.toml"
    return f"{price.million_operations:g} {price.currency} a million operations, by console.toml; bytes not counted"
