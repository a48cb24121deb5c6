"""A new order, as an operator's console makes it: from what its engine knows of the fleet now.

The console shows `OrderDraft.to_type` and who will not be reached, signs `encode_order_text(draft.text)`, and gives
both to its engine, which posts them. No engine trusts any of this: the rules decide about the signed bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.fleet.fleet_documents import OrderText
from paired_servicebus.core.fleet.orders.order_answers import Expected, addressed_engines, expected_engines
from paired_servicebus.core.fleet.orders.order_answers import needs_partial as _needs_partial
from paired_servicebus.core.fleet.orders.order_rules import (
    DEFAULT_STANDING_SECONDS,
    MAX_STANDING_SECONDS,
    EnginesPerOrder,
    FleetVerb,
)
from paired_servicebus.core.fleet.orders.order_rules import to_type as _to_type
from paired_servicebus.core.fleet.orders.order_text import too_long
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetStatus, FleetView, with_other_signers
from paired_servicebus.core.text.time_format import age
from paired_servicebus.core.text.untrusted_text import repeated

ACT_SECONDS: Final = 300.0
"""Seconds within which an order that does not stand is carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderDraft:
    """An order to be signed. needs_partial: why it needs `--partial`; empty: every addressed engine reports."""

    text: OrderText
    to_type: str
    needs_partial: str
    takes: tuple[str, ...]
    """Remarks about addressed engines that will refuse it (look only, read-only), or may: another file of signers."""

    def confirm(self, typed: str) -> OrderText:
        """Return the text with the operator's confirmation."""
        return replace(self.text, typed=typed)


def draft_order(
    view: FleetView,
    verb: FleetVerb,
    *,
    order_id: str,
    primary: str,
    secondary: str,
    scope: str,
    targets: tuple[str, ...],
    engines: tuple[str, ...] | None,
    why: str,
    stands_for: float | None,
    now: float,
    expect: int | tuple[str, ...] = (),
) -> OrderDraft:
    """Return a new order.

    Args:
        view: the fleet as the posting engine knows it.
        order_id: unguessable, and new.
        engines: the engines meant; None: all.
        stands_for: seconds that a standing order stands; None: DEFAULT_STANDING_SECONDS.
        now: seconds since the epoch, by the clock of the posting engine's host.
        expect: the number or the names of the engines that are expected.

    Raises:
        ConfigurationError: no engine would take such an order; the text has the reason.
    """
    _check(verb, engines, stands_for)
    me = next((one for one in view.engines if (one.engine, one.boot) == (view.me, view.my_boot)), None)
    known = [one for one in view.engines if one.status is not FleetStatus.ENDED]
    named = None if engines is None else {one.casefold() for one in engines}
    text = OrderText(
        id=order_id,
        primary=primary,
        secondary=secondary,
        verb=verb.id,
        scope=scope,
        targets=targets,
        engines=engines,
        typed="",
        why=why,
        issued_at=now - (me.clock_offset or 0.0 if me is not None else 0.0),
        act_within=ACT_SECONDS,
        stands_for=(stands_for or DEFAULT_STANDING_SECONDS) if verb.stands else None,
        on_top_of=max([me.newest_order if me is not None else 0, *(one.number for one in view.orders)]),
        seen=tuple((one.engine, one.state) for one in known if named is None or one.engine.casefold() in named),
    )
    expected = addressed_engines(text, expected_engines(view.engines, expect))
    typed = _to_type(text, verb) if verb.dangerous else ""
    _check_text(replace(text, typed=typed), verb, expected)
    return OrderDraft(
        text=text,
        to_type=typed,
        needs_partial=_needs_partial(text, expected),
        takes=_takes(known, expected, me.signers if me is not None else ""),
    )


def _check_text(text: OrderText, verb: FleetVerb, expected: Expected) -> None:
    if verb.over is EnginesPerOrder.ONE and len(text.seen) > 1:
        raise ConfigurationError(
            f"{len(text.seen)} engines are named {repeated(text.seen[0][0])}, and each would do it: "
            "give each its own name ([fleet] name in pairing.toml)"
        )
    if not expected.engines:
        raise ConfigurationError("no engine of the fleet is known: none would carry the order out")
    if trouble := too_long(text):
        raise ConfigurationError(trouble)


def _check(verb: FleetVerb, engines: tuple[str, ...] | None, stands_for: float | None) -> None:
    if verb.over is EnginesPerOrder.NONE:
        raise ConfigurationError(f"{verb.label} is not allowed over the fleet: give it to one engine at its host")
    if verb.over is EnginesPerOrder.ONE and (engines is None or len(engines) != 1):
        raise ConfigurationError(f"{verb.label} is for exactly one engine of the fleet: name it")
    if engines is not None and len({one.casefold() for one in engines}) != len(engines):
        raise ConfigurationError("an engine was named twice; names are compared without case")
    if stands_for is None:
        return
    if not verb.stands:
        raise ConfigurationError(f"{verb.label} does not stand, so it has no end")
    if not 0 < stands_for <= MAX_STANDING_SECONDS:
        raise ConfigurationError(f"{verb.label} stands for {age(MAX_STANDING_SECONDS)} at most")


def _takes(known: list[FleetEngine], expected: Expected, mine: str) -> tuple[str, ...]:
    """Return which addressed engines take no signed order, or decide by another file of signers than `mine`."""
    boots = {(one.name, one.boot) for one in expected.engines}
    addressed = [one for one in known if (one.engine, one.boot) in boots]
    by_reason: dict[str, list[str]] = {}
    for one in addressed:
        if not one.takes.acts:
            by_reason.setdefault(f"will refuse ({one.takes.value})", []).append(one.engine)
    if others := with_other_signers((one for one in addressed if one.takes.acts), mine):
        by_reason["may refuse (another file of signers)"] = list(others)
    return tuple(f"{reason}: {repeated(', '.join(names))}" for reason, names in by_reason.items())
