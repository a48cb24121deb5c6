"""An order over the fleet as an operator asks for it, on the screen or by a verb: whether it is possible, its draft.

Pure. Not here: the question before it (fleet_question.py), the signature, and the posting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.fleet.orders.fleet_verbs import EnginesPerOrder
from paired_servicebus.core.fleet.orders.order_draft import OrderDraft, draft_order
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetOrder, FleetStatus, FleetView, Takes
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus
from paired_servicebus.core.operator.action_row import Action
from paired_servicebus.core.operator.actions import BY_ID, FLEET_VERBS
from paired_servicebus.core.operator.order_sentences import standing_orders
from paired_servicebus.core.operator.targets import ActionTarget, Scope
from paired_servicebus.core.text.untrusted_text import repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRequest:
    """An operator's wish.

    Args:
        engines: the engines meant, by name; None: all.
        stands_for: seconds that a standing order stands; None: the usual 4 hours.
    """

    action: Action
    aim: ActionTarget
    engines: tuple[str, ...] | None = None
    why: str = ""
    stands_for: float | None = None


def known_fleet(snapshot: Snapshot) -> FleetView:
    """Return the fleet. Raises ConfigurationError: it is off or unknown, so that nothing may be ordered."""
    view = snapshot.fleet
    if view is None:
        raise ConfigurationError(f"the fleet is off in the engine {snapshot.engine}: add [fleet] to its pairing.toml")
    if view.trouble or view.read_at is None:
        reason = repeated(view.trouble) or "its boards are not read"
        raise ConfigurationError(f"nothing was ordered: the fleet is unknown ({reason})")
    return view


def draft_request(snapshot: Snapshot, wanted: FleetRequest, *, order_id: str, now: float) -> OrderDraft:
    """Return the order that a request asks for, from what the engine knows of the fleet.

    Args:
        order_id: unguessable, and new.
        now: seconds since the epoch, by the clock of the engine's host.

    Raises:
        ConfigurationError: the fleet is unknown, or no engine would take such an order.
    """
    view = known_fleet(snapshot)
    return draft_order(
        view,
        FLEET_VERBS[wanted.action.id],
        order_id=order_id,
        primary=snapshot.primary,
        secondary=snapshot.secondary,
        scope=wanted.aim.scope,
        targets=wanted.aim.targets,
        engines=wanted.engines,
        why=wanted.why,
        stands_for=wanted.stands_for,
        now=now,
        expect=view.missing or view.expected or (),
    )


def fleet_entities(snapshot: Snapshot, names: Sequence[str], matching: str | None = None) -> tuple[str, ...]:
    """Return entities by the fleet's names; matching: all that have it in their path.

    Raises ConfigurationError: no engine knows an entity.
    """
    view = known_fleet(snapshot)
    known = (*(one.path for one in snapshot.entities), *(one.path for one in view.entities))
    paths = {path.casefold(): path for path in known}
    if matching is not None:
        found = tuple(path for key, path in sorted(paths.items()) if matching.casefold() in key)
        if not found:
            raise ConfigurationError(f"none of the fleet's {len(paths)} entities has {matching!r} in its path")
        return found
    unknown = next((one for one in names if one.casefold() not in paths), None)
    if unknown is not None:
        listed = ", ".join(paths.values()) or "none yet"
        raise ConfigurationError(f"no engine of the fleet has an entity {unknown!r}; the fleet has {repeated(listed)}")
    return tuple(paths[one.casefold()] for one in names)


# -- whether it is possible ------------------------------------------------------------------------------------------


def why_not_over_fleet(action: Action, snapshot: Snapshot, aim: ActionTarget) -> str:
    """Return why an action is impossible over the fleet now; empty if it is possible."""
    if action.over_fleet is EnginesPerOrder.NONE:
        return f"{action.label} is not allowed over the fleet"
    try:
        view = known_fleet(snapshot)
    except ConfigurationError as error:
        return str(error).removeprefix("nothing was ordered: ")
    present = [one for one in view.engines if one.status is not FleetStatus.ENDED]
    if not present:
        return "no engine of the fleet is known"
    if not any(one.takes is not Takes.LOOK_ONLY for one in present):
        return "every engine looks only: [fleet] operators in pairing.toml names the file of signers"
    if action.revokes and not _revocable(action, view, present, aim, snapshot.at):
        return f"{repeated(str(aim)) or 'nothing'} has nothing to {action.label.split()[0]} in any engine"
    return ""


def has_fleet_order(action: Action, snapshot: Snapshot | None, aim: ActionTarget) -> bool:
    """Return whether an order of the fleet stands that the action revokes."""
    if snapshot is None or snapshot.fleet is None or not action.revokes:
        return False
    return bool(standing_about(action, snapshot.fleet, aim, snapshot.at))


def standing_about(action: Action, view: FleetView, aim: ActionTarget, now: float) -> tuple[FleetOrder, ...]:
    """Return the standing orders of the fleet about the same subject and one of the same targets."""
    targets = {one.casefold() for one in aim.targets}
    return tuple(
        one
        for one in standing_orders(view, now)
        if (known := BY_ID.get(one.verb)) is not None
        and known.stands_for == action.stands_for
        and (not targets or not one.targets or targets & {each.casefold() for each in one.targets})
    )


def _revocable(action: Action, view: FleetView, present: Sequence[FleetEngine], aim: ActionTarget, now: float) -> bool:
    if standing_about(action, view, aim, now):
        return True
    if aim.scope is Scope.ENTITY:
        targets = {one.casefold() for one in aim.targets}
        held = (State.FORCED, State.PINNED, State.FAILED_OVER)
        return any(one.path.casefold() in targets and one.state in held for each in present for one in each.not_well)
    if action.lifts_read_only:
        return any(one.takes is Takes.READ_ONLY for one in present)
    return any(one.syphon == SyphonStatus.PAUSED for one in present) or aim.scope is not Scope.ALL
