"""Sums by minute: sends, failures, readings of queues, the syphon's work, and cost, as the tables of these names.

Times are microseconds since the epoch (UTC). Rows are by column. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, floor
from typing import Any, Final

from paired_servicebus.core.judging.engine_boots import micros
from paired_servicebus.core.model import pairing_events as e

MINUTE: Final = 60_000_000
Row = dict[str, Any]
CAUSES: Final = {
    "sends": "sent_bytes",
    "parked": "parked_bytes",
    "pings": "",
    "receives": "",
    "moves": "moved_bytes",
    "settlements": "",
}
"""The causes of billed operations, with the field of their bytes."""
_SENT: Final = (
    "primary_accepted", "primary_failed", "backlog_accepted", "backlog_failed", "pings_sent", "pings_accepted",
    "pings_failed",
)  # fmt: skip


@dataclass(slots=True)
class _Minute:
    """One entity's minute at one engine."""

    counts: Counter[str] = field(default_factory=Counter)
    pings: list[float] = field(default_factory=list)
    last_good_at: int | None = None


@dataclass(slots=True)
class _Queue:
    """One queue's minute at one engine."""

    parked: int = 0
    last: e.QueueRead | None = None
    depth_max: int = 0
    n: int = 0
    sum_t: float = 0.0
    sum_d: float = 0.0
    sum_tt: float = 0.0
    sum_td: float = 0.0


class MinuteFold:
    """Takes records in any order, each once; has the rows of a table so far."""

    def __init__(self) -> None:
        self._minutes: defaultdict[tuple[str, str, int], _Minute] = defaultdict(_Minute)
        self._failures: Counter[tuple[str, str, int, str, str]] = Counter()
        self._queues: defaultdict[tuple[str, int, int], _Queue] = defaultdict(_Queue)
        self._syphon: defaultdict[tuple[str, int | None, str | None, int], Counter[str]] = defaultdict(Counter)
        self._dead_letters: Counter[tuple[str, int, str, int, str]] = Counter()
        self._cost: defaultdict[tuple[str, int, str], list[int]] = defaultdict(lambda: [0, 0])
        self.good: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        """When the primary accepted a send, by engine and entity without case."""
        self._adds: Mapping[type[e.Event], Callable[[str, int, Any], None]] = {
            e.SendsCounted: self._add_sends,
            e.FailuresCounted: self._add_failures,
            e.OperationsCounted: self._add_operations,
            e.PingSent: lambda engine, at, event: self._add_ping(engine, at, event, "pings_sent"),
            e.PingFailed: lambda engine, at, event: self._add_ping(engine, at, event, "pings_failed"),
            e.PingAccepted: lambda engine, at, event: self._add_ping(engine, at, event, "pings_accepted"),
            e.QueueRead: self._add_reading,
            e.Diverted: self._add_diverted,
            e.Moved: lambda engine, at, event: self._add_syphon(engine, at, event, "moved"),
            e.DeadLettered: self._add_dead_letter,
            e.DestinationFailed: lambda engine, at, event: self._add_syphon(engine, at, event, "retries"),
            e.PumpStopped: lambda engine, at, event: self._add_syphon(engine, at, event, "retries"),
        }

    def add(self, record: e.Record) -> None:
        """Take one record; kinds that no table sums up are ignored."""
        add = self._adds.get(record.event.__class__)
        if add is not None:
            add(record.engine, micros(record.event.at), record.event)

    def rows(self) -> dict[str, list[Row]]:
        """Return each table's rows, by its name."""
        return {
            "minutes": [_minute_row(key, one) for key, one in self._minutes.items()],
            "failures": [
                dict(zip(("engine", "entity", "minute", "route", "failure", "count"), (*key, count), strict=True))
                for key, count in self._failures.items()
            ],
            "backlog": [_queue_row(key, one) for key, one in self._queues.items()],
            "syphon": [
                {
                    **dict(zip(("engine", "queue", "entity", "minute"), key, strict=True)),
                    **{name: counts[name] for name in ("moved", "retries", "dead_lettered")},
                }
                for key, counts in self._syphon.items()
            ],
            "dead_letters": [
                dict(zip(("engine", "queue", "entity", "minute", "reason", "count"), (*key, count), strict=True))
                for key, count in self._dead_letters.items()
            ],
            "cost": [
                dict(zip(("engine", "minute", "cause", "operations", "bytes"), (*key, *sums), strict=True))
                for key, sums in self._cost.items()
            ],
        }

    # -- one kind each ----------------------------------------------------------------------------------------

    def _add_sends(self, engine: str, at: int, event: e.SendsCounted) -> None:
        one = self._minutes[engine, event.entity, _minute(at)]
        side = "primary" if event.route == "primary" else "backlog"
        one.counts[f"{side}_accepted"] += event.accepted
        one.counts[f"{side}_failed"] += event.failed
        if side == "primary" and event.accepted > 0:
            good = at - int(event.seconds * 1e6)
            one.last_good_at = good if one.last_good_at is None else max(good, one.last_good_at)
            self.good[engine, event.entity.lower()].append(good)

    def _add_failures(self, engine: str, at: int, event: e.FailuresCounted) -> None:
        self._failures[engine, event.entity, _minute(at), event.route, str(event.failure)] += event.count

    def _add_operations(self, engine: str, at: int, event: e.OperationsCounted) -> None:
        for cause, size in CAUSES.items():
            number = getattr(event, cause)
            if number > 0:
                sums = self._cost[engine, _minute(at), cause]
                sums[0] += number
                sums[1] += getattr(event, size) if size else 0

    def _add_ping(self, engine: str, at: int, event: Any, name: str) -> None:
        one = self._minutes[engine, event.entity, _minute(at)]
        one.counts[name] += 1
        if isinstance(event, e.PingAccepted):
            one.pings.append(event.took)

    def _add_reading(self, engine: str, at: int, event: e.QueueRead) -> None:
        one = self._queues[engine, event.queue, _minute(at)]
        if one.last is None or event.at >= one.last.at:
            one.last = event
        one.depth_max = max(one.depth_max, event.depth) if one.n else event.depth
        within = at % MINUTE / 1e6
        one.n += 1
        one.sum_t += within
        one.sum_d += event.depth
        one.sum_tt += within * within
        one.sum_td += within * event.depth

    def _add_diverted(self, engine: str, at: int, event: e.Diverted) -> None:
        self._queues[engine, event.queue, _minute(at)].parked += 1

    def _add_dead_letter(self, engine: str, at: int, event: e.DeadLettered) -> None:
        self._add_syphon(engine, at, event, "dead_lettered")
        self._dead_letters[engine, event.queue, event.entity, _minute(at), event.reason] += 1

    def _add_syphon(self, engine: str, at: int, event: Any, name: str) -> None:
        key = engine, getattr(event, "queue", None), getattr(event, "entity", None), _minute(at)
        self._syphon[key][name] += 1


def _minute(at: int) -> int:
    return at - at % MINUTE


def _minute_row(key: tuple[str, str, int], one: _Minute) -> Row:
    engine, entity, minute = key
    counts = {name: one.counts[name] for name in _SENT}
    pings = sorted(one.pings)
    primary = counts["primary_accepted"], counts["primary_accepted"] + counts["primary_failed"]
    accepted = primary[0] + counts["backlog_accepted"]
    return {
        "engine": engine,
        "entity": entity,
        "minute": minute,
        **counts,
        "ping_seconds": pings,
        "availability": _share(*primary),
        "accepted_share": _share(accepted, primary[1] + counts["backlog_accepted"] + counts["backlog_failed"]),
        "ping_p50": _quantile(pings, 0.5),
        "ping_p95": _quantile(pings, 0.95),
        "ping_p99": _quantile(pings, 0.99),
        "last_good_at": one.last_good_at,
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _quantile(values: list[float], share: float) -> float | None:
    """Return a quantile of sorted values: between two of them by their distance."""
    if not values:
        return None
    place = (len(values) - 1) * share
    low, high = values[floor(place)], values[ceil(place)]
    return low + (high - low) * (place - floor(place))


def _queue_row(key: tuple[str, int, int], one: _Queue) -> Row:
    engine, queue, minute = key
    last, spread = one.last, round(one.n * one.sum_tt - one.sum_t * one.sum_t, 6)
    row: Row = {"engine": engine, "queue": queue, "minute": minute, "parked": one.parked}
    if last is None:
        return row
    return {
        **row,
        "read_at": micros(last.at),
        "depth": last.depth,
        "depth_max": one.depth_max,
        "bytes": last.size_bytes,
        "dead_lettered": last.dead_lettered,
        "scheduled": last.scheduled,
        "slope": (one.n * one.sum_td - one.sum_t * one.sum_d) / spread if spread else None,
        "n": one.n,
        "sum_t": one.sum_t,
        "sum_d": one.sum_d,
        "sum_tt": one.sum_tt,
        "sum_td": one.sum_td,
    }
