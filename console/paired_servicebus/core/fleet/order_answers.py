"""Who did what about an order: done + refused + silent = addressed.

An engine answers by rows of its presence and its reports. Presences are claims: where the expected engines are named,
only they count, and names are listed up to MAX_LISTED.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.fleet.board_reader import bound_text
from paired_servicebus.core.fleet.engine_orders import SeenOrder
from paired_servicebus.core.fleet.fleet_documents import OrderRow, Outcome, is_meant
from paired_servicebus.core.fleet.order_rules import FleetVerbs
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetOrder, FleetStatus
from paired_servicebus.core.text.untrusted_text import repeated

ALL_DONE, SOME_MISSING, NO_ANSWER = 0, 1, 3
"""Exit statuses of `--wait`."""
MAX_LISTED: Final = 20
"""Engines named with one outcome."""
MAX_SHOWN: Final = 30
"""Orders of a view, the newest first."""

Boot = tuple[str, str]
"""An engine's name without case, and its boot."""
Expect = int | tuple[str, ...] | None
"""The number or the names of the engines that pairing.toml expects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The engines that should answer."""

    present: tuple[FleetEngine, ...]
    never_heard: tuple[str, ...] = ()
    """Names of further ones."""
    unnamed: int = 0
    """Further ones, of which only the number is known."""
    unlisted: int = 0
    """Further ones that a console does not get: most of them report."""
    claimed: int = 0
    """Engines that are only claimed, in a flood: they are none of the above."""

    @property
    def count(self) -> int:
        return len(self.present) + len(self.never_heard) + self.unnamed + self.unlisted

    @property
    def silent(self) -> tuple[tuple[str, float | None], ...]:
        """Return those that will not answer soon, and when they were heard; None: never."""
        silent = ((one.engine, one.heard_at) for one in self.present if one.status is not FleetStatus.REPORTING)
        return (*silent, *((name, None) for name in self.never_heard))


def addressed_engines(
    engines: tuple[str, ...] | None, known: Iterable[FleetEngine], expect: Expect = None, *, unlisted: int = 0
) -> Expected:
    """Return the engines that an order addresses.

    Args:
        engines: the names that the order has; None: all.
        known: the engines of the roster. Those that are only claimed are counted apart, unless the order names them.
        expect: what pairing.toml expects. If it has names, other engines are claims that nothing waits for.
        unlisted: further engines of the roster, of which only the number is known.
    """
    unlisted = unlisted if engines is None and not isinstance(expect, tuple) else 0
    names = expect if isinstance(expect, tuple) and expect else None
    if engines is not None:
        names = engines
    meant = [one for one in known if one.status is not FleetStatus.ENDED and is_meant(names, one.engine)]
    present = tuple(one for one in meant if engines is not None or not one.is_claimed)
    heard = {one.engine.casefold() for one in present}
    missing = {name.casefold(): name for name in names or () if name.casefold() not in heard}
    return Expected(
        present=present,
        never_heard=tuple(missing.values()),
        unnamed=max(0, expect - len(present) - unlisted) if isinstance(expect, int) and engines is None else 0,
        unlisted=unlisted,
        claimed=len(meant) - len(present),
    )


def needs_partial(expected: Expected, *, is_flooded: bool = False) -> str:
    """Return why an order needs `--partial`; empty: nobody that it addresses is silent.

    is_flooded: more engines are claimed than can be: then silence says nothing, and blocks no order.
    """
    silent = [] if is_flooded else [name for name, _ in expected.silent]
    count = len(silent) + expected.unnamed
    if not count:
        return ""
    listed = ", ".join(silent[:MAX_LISTED]) + (f" and {len(silent) - MAX_LISTED} more" if silent[MAX_LISTED:] else "")
    names = f" ({repeated(listed)})" if silent else ""
    return f"{count} {'engine is' if count == 1 else 'engines are'} silent{names}: --partial orders the others"


def order_views(
    orders: tuple[SeenOrder, ...],
    verbs: FleetVerbs,
    engines: tuple[FleetEngine, ...],
    answers: Mapping[Boot, tuple[OrderRow, ...]],
    expect: Expect = None,
) -> tuple[FleetOrder, ...]:
    """Return the newest orders with their answers, for screens."""
    by_order: dict[str, dict[Boot, OrderRow]] = {}
    for boot, rows in answers.items():
        for row in rows:
            by_order.setdefault(row.order_id, {})[boot] = row
    return tuple(
        _view(one, verbs, addressed_engines(one.text.engines, engines, expect), by_order.get(one.order.id, {}))
        for one in orders[:MAX_SHOWN]
    )


def _view(one: SeenOrder, verbs: FleetVerbs, expected: Expected, answers: Mapping[Boot, OrderRow]) -> FleetOrder:
    text, verb = one.text, verbs[one.text.verb]
    rows = [(engine, answers.get((engine.engine.casefold(), engine.boot))) for engine in expected.present]
    done = [engine.engine for engine, row in rows if row is not None and row.outcome is Outcome.DONE]
    refused = [(engine.engine, row.text) for engine, row in rows if row is not None and row.outcome is not Outcome.DONE]
    silent: list[tuple[str, float | None]] = [(engine.engine, engine.heard_at) for engine, row in rows if row is None]
    silent += [(name, None) for name in expected.never_heard]
    return FleetOrder(
        id=one.order.id,
        verb=verb.id,
        scope=bound_text(text.scope),
        targets=tuple(bound_text(each) for each in text.targets),
        engines=None if text.engines is None else tuple(bound_text(each) for each in text.engines),
        by=repeated(one.by),
        at=text.issued_at,
        until=text.until if verb.stands and one.counts else None,
        done=tuple(done[:MAX_LISTED]),
        more_done=len(done[MAX_LISTED:]),
        refused=tuple(refused[:MAX_LISTED]),
        more_refused=len(refused[MAX_LISTED:]),
        silent=tuple(silent[:MAX_LISTED]),
        unnamed=expected.unnamed + len(silent[MAX_LISTED:]),
        claimed=expected.claimed,
        why=repeated(text.why),
    )


def exit_status(order: FleetOrder) -> int:
    """Return the exit status of `--wait`."""
    if not order.done and not order.refused:
        return NO_ANSWER
    return SOME_MISSING if order.refused or order.silent_count else ALL_DONE
