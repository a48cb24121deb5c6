"""The fleet's orders in words: who ordered what until when, who answered, and what ends soon. Pure.

A `Part` has several wordings, the longest first, so that a screen takes the longest that fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from paired_servicebus.core.fleet.orders.standing_rules import ALARM_SECONDS
from paired_servicebus.core.model.fleet_view import FleetOrder, FleetStatus, FleetView
from paired_servicebus.core.operator.actions import BY_ID
from paired_servicebus.core.operator.targets import Scope
from paired_servicebus.core.text.foreign_words import minute, name, names, reason
from paired_servicebus.core.text.time_format import until

Part = tuple[str, ...]
BETWEEN: Final = " · "


def standing_orders(view: FleetView, now: float) -> tuple[FleetOrder, ...]:
    """Return the orders that stand now: those that end soon first, then the newest."""
    found = (one for one in newest_orders(view) if _stands(one, now))
    return tuple(sorted(found, key=lambda one: ending_stage(one, now)))


def _stands(order: FleetOrder, now: float) -> bool:
    return not order.void and not order.ended and order.until is not None and order.until > now


def ending_stage(order: FleetOrder, now: float) -> float:
    """Return the seconds of the alarm that a standing order is under: 300, 1800, or infinity before the first."""
    left = inf if order.until is None else order.until - now
    return min((seconds for seconds in ALARM_SECONDS if left <= seconds), default=inf)


def ending_part(view: FleetView, now: float) -> Part:
    """Return the alarm of the standing order that ends first: "payments forced by operator-a ends in 4m12s"."""
    ending = [one for one in standing_orders(view, now) if ending_stage(one, now) < inf]
    if not ending:
        return ()
    first = min(ending, key=lambda one: one.until or inf)
    more = f" (and {len(ending) - 1} more)" if ending[1:] else ""
    left = f"ends {until(first.until or now, now)}{more}"
    return (
        f"{order_subject(first)} {left}, and is released then: order it again to extend it",
        f"{order_subject(first)} {left}: order it again to extend it",
        f"{order_subject(first)} {left}",
    )


def newest_orders(view: FleetView) -> tuple[FleetOrder, ...]:
    """Return all orders, the newest first."""
    return tuple(sorted(view.orders, key=lambda one: -one.number))


def order_subject(order: FleetOrder) -> str:
    """Return who ordered what: "payments forced by operator-a"."""
    where = f" at {names(order.engines, 3)}" if order.engines is not None else ""
    unknown = "a signer not verified here" if order.is_unverified else "a signer unknown here"
    return f"{_what(order)} {_ordered(order.verb)}{where} by {name(order.by) if order.by else unknown}"


def _what(order: FleetOrder) -> str:
    action = BY_ID.get(order.verb)
    if not order.targets:
        return action.whole if action is not None else "all"
    prefix = "backlog/" if order.scope == Scope.QUEUE else ""
    return names([f"{prefix}{one}" for one in order.targets], 3)


def order_head(order: FleetOrder, now: float) -> str:
    """Return who ordered what until when: "payments forced by operator-a until 18:02"."""
    if order.until is None:
        return f"{order_subject(order)} at {minute(order.at, now)}"
    is_ending = _stands(order, now) and ending_stage(order, now) < inf
    left = f", ends {until(order.until, now)}" if is_ending else ""
    return f"{order_subject(order)} until {minute(order.until, now)}{left}"


def _ordered(action_id: str) -> str:
    """Return an order in the passive; one that this version does not know by its foreign name."""
    action = BY_ID.get(action_id)
    return action.participle or action.label if action is not None else name(action_id)


def answers_part(order: FleetOrder, now: float, view: FleetView | None = None) -> Part:
    """Return "17 done · 1 refused (read-only: web-9) · 2 silent since 13:58 (pay-3, pay-4)", then shorter.

    view: the fleet now. An engine that reports and has not answered yet is not silent.
    """
    parts = _outcomes(order, now, view)
    counts = BETWEEN.join(f"{part.count:,} {part.what.partition(' since ')[0]}" for part in parts)
    every = max(1, *(part.most for part in parts))
    full = [BETWEEN.join(part.text(most) for part in parts) for most in (every, 3, 1) if most <= every]
    again = _when_they_return(order, parts[-1].count if parts[-1].what.startswith(SILENT) else 0, now)
    return tuple(dict.fromkeys([full[0] + again, *full, counts]))


def not_answered(order: FleetOrder, view: FleetView | None) -> tuple[str, ...]:
    """Return the addressed engines that report, and have not answered yet."""
    reporting = {one.engine for one in view.engines if one.status is FleetStatus.REPORTING} if view else ()
    return tuple(engine for engine, _ in order.silent if engine in reporting)


SILENT: Final = "silent"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The engines with one outcome, by reason."""

    count: int
    what: str
    engines: Mapping[str, list[str]] = field(default_factory=dict)
    unnamed: int = 0

    @property
    def most(self) -> int:
        return max((len(who) for who in self.engines.values()), default=0)

    def text(self, most: int) -> str:
        """Return it with at most this many names of each reason."""
        each = [f"{why}: {names(who, most)}" if why else names(who, most) for why, who in self.engines.items()]
        unnamed = [f"{self.unnamed:,} unknown"] if self.unnamed else []
        listed = ", ".join(filter(None, ("; ".join(each), *unnamed)))
        return f"{self.count:,} {self.what} ({listed})" if listed else f"{self.count:,} {self.what}"


def _outcomes(order: FleetOrder, now: float, view: FleetView | None) -> list[_Outcome]:
    """Return what the addressed engines did; "silent" comes last."""
    parts = [_Outcome(len(order.done), "done")]
    if order.refused:
        why: dict[str, list[str]] = {}
        for engine, text in order.refused:
            why.setdefault(reason(text) or "no reason given", []).append(engine)
        parts.append(_Outcome(len(order.refused), "refused", why))
    if waiting := not_answered(order, view):
        parts.append(_Outcome(len(waiting), "not answered yet", {"": list(waiting)}))
    silent = [one for one in order.silent if one[0] not in waiting]
    if count := len(silent) + order.unnamed:
        heard = [at for _, at in silent if at is not None]
        since = f" since {minute(min(heard), now)}" if heard else ""
        who = {"": [engine for engine, _ in silent]} if silent else {}
        parts.append(_Outcome(count, SILENT + since, who, order.unnamed))
    return parts


def _when_they_return(order: FleetOrder, silent: int, now: float) -> str:
    """Return what silent engines do when they are back; empty if none is silent or the order has ended."""
    action = BY_ID.get(order.verb)
    they, s = ("it", "s") if silent == 1 else ("they", "")
    if silent and (_stands(order, now) or (action is not None and action.revokes)):
        return f": {they} take{s} it up when {they} come{s} back"
    if silent and order.acts_until is not None and order.acts_until > now:
        return f": {they} can do it until {minute(order.acts_until, now)}"
    return ""


def order_part(order: FleetOrder, now: float, view: FleetView | None = None) -> Part:
    """Return the order and its answers; of a void one, why it does not count. view: as `answers_part`."""
    head = order_head(order, now)
    if order.void:
        return (f"{head}: void, {reason(order.void)}", f"{head}: void")
    if order.ended:
        return (f"{head}: {reason(order.ended)}", f"{head}: ended")
    return (*(f"{head}: {text}" for text in answers_part(order, now, view)), head)
