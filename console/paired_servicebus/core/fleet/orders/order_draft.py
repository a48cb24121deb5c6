"""A new order, as an operator's console makes it: from what its engine knows of the fleet now.

The console shows `OrderDraft.to_type` and who will not be reached, signs `encode_order_text(draft.text)`, and gives
both to its engine, which posts them. No engine trusts any of this: the rules decide about the signed bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.fleet.fleet_documents import MAX_NAMED_ENGINES, OrderText
from paired_servicebus.core.fleet.orders.order_answers import Expect, Expected, addressed_engines
from paired_servicebus.core.fleet.orders.order_answers import needs_partial as _needs_partial
from paired_servicebus.core.fleet.orders.order_rules import (
    DEFAULT_STANDING_SECONDS,
    MAX_STANDING_SECONDS,
    FleetVerb,
    FleetVerbs,
)
from paired_servicebus.core.fleet.orders.order_rules import to_type as _to_type
from paired_servicebus.core.fleet.orders.order_text import too_long
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetStatus, FleetView, with_other_signers
from paired_servicebus.core.text.time_format import age
from paired_servicebus.core.text.untrusted_text import repeated

LATER_SECONDS = 0.001
"""Seconds by which an order is issued after the newest one of its subjects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderDraft:
    """An order to be signed. needs_partial: why it needs `--partial`; empty: every addressed engine reports."""

    text: OrderText
    to_type: str
    needs_partial: str
    expected: Expected
    """The engines that it addresses."""
    takes: tuple[str, ...]
    """Remarks about addressed engines that will refuse it (look only, read-only), or may: another file of signers."""

    def confirm(self, typed: str) -> OrderText:
        """Return the text with the operator's confirmation."""
        return replace(self.text, typed=typed)


def draft_order(
    view: FleetView,
    verbs: FleetVerbs,
    command: Command,
    *,
    primary: str,
    secondary: str,
    engines: tuple[str, ...] | None,
    stands_for: float | None,
    now: float,
) -> OrderDraft:
    """Return a new order.

    Args:
        view: the fleet as the posting engine knows it.
        verbs: the actions that can be ordered over the fleet.
        command: what is ordered.
        engines: the engines meant; None: all.
        stands_for: seconds that a standing order stands; None: DEFAULT_STANDING_SECONDS.
        now: seconds since the epoch, by the clock of the posting engine's host.

    Raises:
        ConfigurationError: no engine would take such an order; the text has the reason.
    """
    verb = verbs.get(command.action_id)
    if verb is None:
        raise ConfigurationError(f"{command.action_id} is not allowed over the fleet: give it to one engine")
    _check(verb, engines, stands_for)
    expect = expected_of(view)
    me = next((one for one in view.engines if (one.engine, one.boot) == (view.me, view.my_boot)), None)
    expected = addressed_engines(engines, view.engines, expect)
    issued_at = _issue(view, verb, command, now - (view.clock_offset or 0.0))
    stands_for = (stands_for or DEFAULT_STANDING_SECONDS) if verb.stands else MAX_STANDING_SECONDS
    text = OrderText(
        primary=primary,
        secondary=secondary,
        verb=verb.id,
        scope=command.scope,
        targets=command.targets,
        engines=engines,
        typed="",
        reach=0 if view.is_flooded and engines is None else expected.count,
        why=command.why,
        issued_at=issued_at,
        until=issued_at + stands_for,
        seen=_digest(view),
    )
    typed = _to_type(text, verb) if verb.dangerous else ""
    if not expected.count:
        raise ConfigurationError("no engine of the fleet is known: none would carry the order out")
    if trouble := too_long(replace(text, typed=typed)):
        raise ConfigurationError(trouble)
    return OrderDraft(
        text=text,
        to_type=typed,
        needs_partial=_needs_partial(expected, is_flooded=view.is_flooded and engines is None),
        expected=expected,
        takes=_takes(view, expected, me.signers if me is not None else ""),
    )


def expected_of(view: FleetView) -> Expect:
    """Return what pairing.toml expects, as the engine of the view says it."""
    return view.expected_names or view.expected


def _issue(view: FleetView, verb: FleetVerb, command: Command, now: float) -> float:
    """Return the time of issue: after every order of the same subjects, so that whoever orders later wins."""
    targets = {one.casefold() for one in command.targets}
    newest = [one.at for one in view.orders if one.scope == command.scope and _share(one.targets, targets)]
    return round(max(now, *(at + LATER_SECONDS for at in newest)) if newest else now, 3)


def _share(targets: tuple[str, ...], others: set[str]) -> bool:
    return not others or not targets or not others.isdisjoint(one.casefold() for one in targets)


def _digest(view: FleetView) -> str:
    known = sorted((one.engine, one.boot, one.state) for one in view.engines if one.status is not FleetStatus.ENDED)
    return sha256(repr(known).encode()).hexdigest()[:32]


def _check(verb: FleetVerb, engines: tuple[str, ...] | None, stands_for: float | None) -> None:
    if engines is not None and len({one.casefold() for one in engines}) != len(engines):
        raise ConfigurationError("an engine was named twice; names are compared without case")
    if engines is not None and len(engines) > MAX_NAMED_ENGINES:
        raise ConfigurationError(f"{len(engines)} engines are named, and {MAX_NAMED_ENGINES} are allowed: order all")
    if stands_for is None:
        return
    if not verb.stands:
        raise ConfigurationError(f"{verb.label} does not stand, so it has no end")
    if not 0 < stands_for <= MAX_STANDING_SECONDS:
        raise ConfigurationError(f"{verb.label} stands for {age(MAX_STANDING_SECONDS)} at most")


def _takes(view: FleetView, expected: Expected, mine: str) -> tuple[str, ...]:
    """Return which addressed engines take no signed order, or decide by another file of signers than `mine`."""
    keys = {one.key for one in expected.engines}
    addressed = [one for one in view.engines if (one.engine.casefold(), one.boot) in keys]
    by_reason: dict[str, list[FleetEngine]] = {}
    for one in addressed:
        if not one.takes.acts:
            by_reason.setdefault(f"will refuse ({one.takes.value})", []).append(one)
    remarks = [f"{reason}: {_few([one.engine for one in them])}" for reason, them in by_reason.items()]
    if others := with_other_signers((one for one in addressed if one.takes.acts), mine):
        remarks.append(f"may refuse (another file of signers): {_few(list(others))}")
    return tuple(remarks)


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 20} more" if names[20:] else ""
    return repeated(", ".join(names[:20])) + more
