"""What stands in one engine by the fleet, and what an engine keeps on disk for the next one.

Kept are the orders that it has seen, what is in force here, what it answered, and where a local operator acted after an
order. All of it is written before an order that is new in it acts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.fleet.fleet_documents import CarriedOrder, Outcome, StandingFleetOrder, Subject
from paired_servicebus.core.text.time_format import age

ALARM_SECONDS: Final = (1800.0, 300.0)
"""Seconds before the end of a standing order at which an alarm is due."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Answer:
    """What this engine did about the newest order of a subject."""

    order_id: str
    outcome: Outcome
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOrder:
    """An order that was seen, with the verdict about it."""

    order: CarriedOrder
    by: str
    fingerprint: str
    first_at: float
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What an engine keeps.

    local: subject, time and description of a local operator's order.
    """

    seen: tuple[KeptOrder, ...] = ()
    applied: tuple[StandingFleetOrder, ...] = ()
    answered: tuple[tuple[Subject, Answer], ...] = ()
    local: tuple[tuple[Subject, float, str], ...] = ()
    is_informed: bool = False
    """Whether both boards were read to their end once: until then it is a new engine."""


def next_alarm(standing: Iterable[StandingFleetOrder], *, at: float) -> float | None:
    """Return the next time at which an alarm or an end is due."""
    due = [one.until - before for one in standing for before in (*ALARM_SECONDS, 0.0)]
    return min((time for time in due if time > at), default=None)


def alarms_due(standing: Iterable[StandingFleetOrder], *, after: float, at: float) -> tuple[str, ...]:
    """Return a sentence for each order whose alarm is due in (after, at]."""
    found = []
    for order in standing:
        if any(max(after, order.since) < order.until - seconds <= at < order.until for seconds in ALARM_SECONDS):
            left = age(order.until - at)
            found.append(f"{order} ends in {left}, and is released then; extend it by a new order")
    return tuple(found)
