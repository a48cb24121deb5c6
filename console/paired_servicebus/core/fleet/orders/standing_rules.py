"""The standing set: what the orders on a board have in force in one engine at a time of the namespace.

The newest order about a subject decides, even after its end: an older one never comes back. The set depends only on
the log's content, so every engine that read the board has the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.fleet.fleet_documents import OrderText, StandingFleetOrder, Subject
from paired_servicebus.core.fleet.orders.order_rules import BoardOrder, FleetVerb, ThisEngine, is_meant, order_end
from paired_servicebus.core.text.time_format import age

ALARM_SECONDS: Final = (1800.0, 300.0)
"""Seconds before the end of a standing order at which an alarm is due."""
RELEASED_HERE: Final = "released here by a local operator"
START_SECONDS: Final = 60.0
"""Most seconds from an engine's application of what it stored to its first step."""
LATE_SECONDS: Final = 60.0
"""Seconds after which an order that takes effect is late: an engine looks at the board once a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A standing order that is no longer in force; the engine undoes it."""

    order: StandingFleetOrder
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingChanges:
    """The difference of two standing sets."""

    begun: tuple[StandingFleetOrder, ...] = ()
    """To be carried out; a different order about the same subject replaces the old one."""
    extended: tuple[StandingFleetOrder, ...] = ()
    """The same act by a newer order: only its end and its author change."""
    ended: tuple[Ended, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A standing order ends soon."""

    order: StandingFleetOrder
    seconds: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestOrder:
    """The newest order about a subject, with its target as it was written."""

    order: BoardOrder
    text: OrderText
    verb: FleetVerb
    target: str


def newest_orders(log: Iterable[BoardOrder], *, engine: ThisEngine) -> dict[Subject, NewestOrder]:
    """Return the newest order about each subject that means the engine. log: judged orders, in any sequence."""
    newest: dict[Subject, NewestOrder] = {}
    for order in sorted(log, key=lambda one: one.number):
        if order.void is not None or order.text is None or order.verb is None or not order.verb.stands_for:
            continue
        if not is_meant(order.text, engine.name):
            continue
        for target in order.text.targets or ("",):
            subject = (order.verb.stands_for, order.text.scope, target.casefold())
            newest[subject] = NewestOrder(order=order, text=order.text, verb=order.verb, target=target)
    return newest


def replaced_by(order: BoardOrder, counting: Iterable[BoardOrder]) -> BoardOrder | None:
    """Return the newer order with which all of a standing one was replaced; None: some of it stands to its end.

    counting: the orders that count, in any sequence.
    """
    left = set(order.subjects)
    for newer in sorted(counting, key=lambda one: one.number):
        is_newer = newer.number > order.number and newer.text is not None and order.text is not None
        if is_newer and newer.text is not None and order.text is not None and _means_all_of(newer.text, order.text):
            left -= newer.subjects
            if not left:
                return newer
    return None


def _means_all_of(later: OrderText, earlier: OrderText) -> bool:
    return later.engines is None or (
        earlier.engines is not None and all(is_meant(later, one) for one in earlier.engines)
    )


def standing_of(newest: Mapping[Subject, NewestOrder], *, at: float) -> tuple[StandingFleetOrder, ...]:
    """Return what stands, from the newest order about each subject."""
    return tuple(
        StandingFleetOrder(
            subject=subject,
            order_id=one.text.id,
            number=one.order.number,
            verb=one.verb.id,
            label=one.verb.label,
            scope=one.text.scope,
            target=one.target,
            by=one.order.by,
            why=one.text.why,
            since=one.order.enqueued_at,
            until=order_end(one.text, one.verb, one.order.enqueued_at),
        )
        for subject, one in sorted(newest.items(), key=lambda each: each[0])
        if one.verb.stands and order_end(one.text, one.verb, one.order.enqueued_at) > at
    )


def standing_changes(
    before: Iterable[StandingFleetOrder], after: Iterable[StandingFleetOrder], *, at: float
) -> StandingChanges:
    """Return what an engine does to get from one standing set to the next."""
    old, new = {one.subject: one for one in before}, {one.subject: one for one in after}
    begun = tuple(one for key, one in new.items() if key not in old or old[key].verb != one.verb)
    extended = tuple(
        one for key, one in new.items() if key in old and old[key].verb == one.verb and not _is_same(old[key], one)
    )
    ended = tuple(Ended(order=one, text=_why_ended(one, at)) for key, one in old.items() if key not in new)
    return StandingChanges(begun=begun, extended=extended, ended=ended)


def _is_same(one: StandingFleetOrder, other: StandingFleetOrder) -> bool:
    """Return whether two are one order; a board that was created again gives the same numbers to others."""
    return (one.number, one.order_id) == (other.number, other.order_id)


def _why_ended(order: StandingFleetOrder, at: float) -> str:
    return f"released at its end: {order}" if at >= order.until else f"released by a newer order: {order}"


def next_deadline(standing: Iterable[StandingFleetOrder], *, at: float) -> float | None:
    """Return the next time at which an alarm or an end is due."""
    due = [one.until - before for one in standing for before in (*ALARM_SECONDS, 0.0)]
    return min((time for time in due if time > at), default=None)


def alarms_due(standing: Iterable[StandingFleetOrder], *, after: float, at: float) -> tuple[Alarm, ...]:
    """Return the alarms due in (after, at], one for each order: the latest."""
    found = []
    for order in standing:
        due = [sec for sec in ALARM_SECONDS if max(after, order.since) < order.until - sec <= at < order.until]
        if due:
            left = age(order.until - at)
            text = f"{order} ends in {left}, and is released then; extend it by a new order"
            found.append(Alarm(order=order, seconds=min(due), text=text))
    return tuple(found)


def late(order: StandingFleetOrder, *, at: float) -> str:
    """Return how late an order takes effect; empty if it is not late."""
    seconds = at - order.since
    return f"takes effect {age(seconds)} late" if seconds > LATE_SECONDS else ""


def in_force(standing: Iterable[StandingFleetOrder], released: Mapping[Subject, str]) -> tuple[StandingFleetOrder, ...]:
    """Return the orders of the board's set that are in force in this engine.

    released: the id of the order that is not in force here, by subject. A newer order is in force again.
    """
    return tuple(one for one in standing if released.get(one.subject) != one.order_id)


def differing(
    standing: Iterable[StandingFleetOrder], released: Mapping[Subject, str], how: Mapping[Subject, str]
) -> tuple[str, ...]:
    """Return how this engine differs from the board's set.

    Args:
        standing, released: as `in_force`.
        how: how a local operator ended it. An order that was refused here has no entry: its answer has the reason.
    """
    return tuple(
        f"{how[one.subject] or RELEASED_HERE}: {one}"
        for one in standing
        if released.get(one.subject) == one.order_id and one.subject in how
    )


def just_ended(
    stored: Iterable[StandingFleetOrder], released: Mapping[Subject, str], *, at: float
) -> tuple[StandingFleetOrder, ...]:
    """Return the stored orders in force that ended while this engine started: it has applied them already."""
    return tuple(one for one in in_force(stored, released) if at - START_SECONDS < one.until <= at)
