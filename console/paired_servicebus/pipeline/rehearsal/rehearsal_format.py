"""A rehearsal in words: a table for a person, one JSON object for a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.text.time_format import clock, day_and_clock
from paired_servicebus.pipeline.rehearsal.histories.recorded_history import Outage, RecordedHistory, TimeBounds
from paired_servicebus.pipeline.rehearsal.policy_ranking import FAILOVER, Figure, Order, PolicyFigures, RehearsalResult

HEADS: Final = (
    ("failover", "interval"),
    ("failback", "pings"),
    ("ping", "interval"),
    ("failovers", ""),
    ("flaps", ""),
    ("refused", "for s"),
    ("parked", ""),
    ("dupli-", "cates"),
    ("out of", "order"),
    ("pings", ""),
    ("billed", "besides"),
    ("weighed", "s"),
    ("", ""),
)
COUNTS: Final = ("failovers", "flaps", "unavailable_ms", "parked", "duplicates", "out_of_order", "pings", "operations")
MOST: Final = 12
"""Outages that are listed one by one."""


def as_text(order: Order, found: RehearsalResult, *, known: bool) -> list[str]:
    """Give lines for a person.

    Args:
        known: whether the first policy is the one in force, and not only the defaults.
    """
    return [*_what(order.history), "", *_table(found, known=known), "", *_advice(order, found)]


def _what(history: RecordedHistory) -> Iterator[str]:
    when = "" if history.began_at is None else f" from {day_and_clock(history.began_at)} UTC"
    entities = ", ".join(history.entities)
    offered = f"about {history.messages:,} messages to {entities}"
    yield f"replayed: {history.source}, {history.seconds:,.0f} s{when}; {offered}"
    for outage in history.outages[:MOST]:
        yield f"  {_outage(outage, history.began_at)}"
    if len(history.outages) > MOST:
        yield f"  and {len(history.outages) - MOST} more"


def _outage(outage: Outage, began_at: float | None) -> str:
    target = outage.target if isinstance(outage.target, str) else f"backlog/{outage.target}"
    share = "" if outage.share == 1.0 else f", {outage.share:.0%} of requests"
    return f"{target}: {outage.failure} from {_span(outage.began, began_at)} to {_span(outage.ended, began_at)}{share}"


def _span(span: TimeBounds, began_at: float | None) -> str:
    earliest, latest = _clock(span.earliest, began_at), _clock(span.latest, began_at)
    return earliest if earliest == latest else f"{earliest}–{latest}"


def _clock(at: float, began_at: float | None) -> str:
    return f"{at:,.0f} s" if began_at is None else clock(began_at + at)


# -- the table -----------------------------------------------------------------------------------------------------


def _table(found: RehearsalResult, *, known: bool) -> Iterator[str]:
    rows = [tuple(head[part] for head in HEADS) for part in (0, 1)]
    rows += [_row(line, _mark(index, found.best, known=known)) for index, line in enumerate(found.lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        yield "  ".join([*cells, row[-1]]).rstrip()


def _mark(index: int, best: int, *, known: bool) -> str:
    marks = [("in force" if known else "the defaults")] if index == 0 else []
    return ", ".join(marks + (["recommended"] if index == best else []))


def _row(line: PolicyFigures, mark: str) -> tuple[str, ...]:
    policy = line.policy
    told = (f"{policy.failover_interval:g} s", str(policy.failback_pings), f"{policy.ping_primary_interval:g} s")
    return (*told, *(_cell(line[name], name) for name in COUNTS), f"{line.score:,.1f}", mark)


def _cell(figure: Figure, name: str) -> str:
    """Return the middle of all readings, and the ends where they differ."""
    scale = 1000 if name.endswith("_ms") else 1
    middle, least, greatest = (f"{round(value / scale):,}" for value in (figure.middle, figure.least, figure.greatest))
    return middle if least == greatest else f"{middle} ({least}–{greatest})"


def _advice(order: Order, found: RehearsalResult) -> Iterator[str]:
    yield f"recommended: {_policy(found.recommended)}"
    yield f"  {found.reason}"
    yield f"  weighed: the seconds in which senders were refused, and {FAILOVER:g} for each failover; the mean of all"
    yield f"  {order.seeds} readings of the record; in the table the middle one, and the ends in brackets"
    if order.history.unknown:
        yield "the record cannot tell:"
        yield from (f"  {sentence}" for sentence in order.history.unknown)
    yield "duplicates: none where the destination detects them"


def _policy(policy: Policy) -> str:
    return (
        f'failover_interval = "{policy.failover_interval:g}s", failback_pings = {policy.failback_pings}, '
        f'ping_primary_interval = "{policy.ping_primary_interval:g}s"'
    )


# -- for programs --------------------------------------------------------------------------------------------------


def as_object(order: Order, found: RehearsalResult) -> str:
    """One JSON object; the same bytes for the same runs, wherever they were run."""
    told: dict[str, Any] = {
        "history": _history(order.history),
        "seeds": order.seeds,
        "policies": [_policy_object(line) for line in found.lines],
        "recommended": found.best,
        "reason": found.reason,
        "unknown": order.history.unknown,
    }
    return msgspec.json.encode(told).decode()


def _history(history: RecordedHistory) -> dict[str, Any]:
    return {
        "source": history.source,
        "began_at": history.began_at,
        "seconds": history.seconds,
        "entities": history.entities,
        "messages": history.messages,
        "outages": [outage._asdict() for outage in history.outages],
    }


def _policy_object(line: PolicyFigures) -> dict[str, Any]:
    policy = line.policy
    figures: dict[str, Sequence[int]] = {
        name: (figure.middle, figure.least, figure.greatest) for name, figure in line.figures.items()
    }
    return {
        "failover_interval": policy.failover_interval,
        "failback_pings": policy.failback_pings,
        "ping_primary_interval": policy.ping_primary_interval,
        "weighed": line.score,
        **figures,
    }
