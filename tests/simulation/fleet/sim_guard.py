"""The guard of one engine: what it carries out of the fleet's orders and of local ones, and what holds in the engine.

It decides by core's checks of orders, as the engine's guard does. The state is of one process: it is gone with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from paired_servicebus.core.fleet.fleet_documents import Outcome, StandingFleetOrder, Subject
from paired_servicebus.core.fleet.fleet_events import CarryOut, OrderEnded, Undo
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import (
    EntityView,
    Meter,
    QueueView,
    Snapshot,
    SyphonStatus,
    SyphonView,
)
from paired_servicebus.core.operator import action_row
from paired_servicebus.core.operator.action_row import Action, each_target
from paired_servicebus.core.operator.actions import BY_ID
from paired_servicebus.core.operator.targets import Scope
from tests.simulation.fleet.fleet_plan import ENTITIES, PRIMARY, SECONDARY

LOCAL: Final = ""
"""The owner of a local operator's order."""
_STATES: Final = {"force": State.FORCED, "pin": State.PINNED}
_SYPHON: Final[Subject] = ("syphon", Scope.ALL, "")
_READ_ONLY: Final[Subject] = ("orders", Scope.ALL, "")


class Held(NamedTuple):
    """What holds about a subject. owner: the id of an order of the fleet, or LOCAL."""

    verb: str
    owner: str


class Done(NamedTuple):
    """The result of an effect: the event for the member, and the subjects that it changed."""

    ended: OrderEnded
    changed: tuple[Subject, ...]
    not_held: tuple[Subject, ...]


class SimGuard:
    """What holds in one boot of an engine."""

    def __init__(self, name: str, boot: str, *, syphon: bool, queues: int, began: float) -> None:
        self.held: dict[Subject, Held] = {}
        self.failed_over: set[str] = set()
        self._has_syphon = syphon
        entities = tuple(
            EntityView(path=path, state=State.HEALTHY, since=began, why="", route="primary", sends_per_second=1.0,
                       accepted=1, diverted=0, failed=0)
            for path in ENTITIES
        )  # fmt: skip
        views = tuple(QueueView(index=index, path=f"x/{index}", in_rotation=True) for index in range(queues))
        self._base = Snapshot(
            engine=name, boot=boot, pid=1, seq=0, at=began, pairing="shop", environment="test", primary=PRIMARY,
            secondary=SECONDARY, read_only=False, entities=entities, queues=views, billed=Meter(), times="",
            syphon=SyphonView(status=SyphonStatus.IDLE if syphon else SyphonStatus.OFF, text=""), started_at=began,
        )  # fmt: skip

    def snapshot(self, at: float) -> Snapshot:
        """Return the engine's state."""
        paused = tuple(int(key[2]) for key in sorted(self.held) if key[:2] == ("syphon", Scope.QUEUE))
        status = self._base.syphon.status
        if self._has_syphon and _SYPHON in self.held:
            status = SyphonStatus.PAUSED
        entities = tuple(replace(one, state=self._state(one.path)) for one in self._base.entities)
        syphon = replace(self._base.syphon, status=status, paused_queues=paused)
        return replace(self._base, at=at, read_only=_READ_ONLY in self.held, entities=entities, syphon=syphon)

    @property
    def is_unwell(self) -> bool:
        """Return whether an entity makes the engine look faster."""
        return bool(self.failed_over) or any(held.verb == "force" for held in self.held.values())

    def _state(self, path: str) -> State:
        held = self.held.get(("entity", Scope.ENTITY, path))
        if held is not None:
            return _STATES[held.verb]
        return State.FAILED_OVER if path in self.failed_over else State.HEALTHY

    # -- orders of the fleet ----------------------------------------------------------------------------------------

    def carry_out(self, effect: CarryOut | Undo, at: float, *, fails: bool) -> Done:
        """Carry an effect out, or refuse it. fails: what it does fails."""
        if isinstance(effect, Undo):
            held = effect.order.command
            undo = BY_ID[BY_ID[held.action_id].undo]
            return self._act(undo, replace(held, action_id=undo.id), "", at, fails=False)
        command, order_id = effect.command, effect.order.id
        action = BY_ID[command.action_id]
        changes = action_row.changes_something(action, self.snapshot(at), command)
        refusal = action_row.read_only(action) if _READ_ONLY in self.held and changes else ""
        if refusal:
            return self._refused(action, command, order_id, refusal, at)
        return self._act(action, command, order_id, at, fails=fails)

    def take_up(self, order: StandingFleetOrder) -> None:
        """Apply what held in the boot before."""
        self._apply(BY_ID[order.command.action_id], order.subject, order.order_id)

    def _act(self, action: Action, command: Command, owner: str, at: float, *, fails: bool) -> Done:
        snapshot = self.snapshot(at)
        fault = action_row.fault(action, snapshot, command)
        if fault and not (action.revokes and command.scope == Scope.ENTITY):
            return self._refused(action, command, owner, fault, at)
        reasons = {one.target: fault or self._why_not(action, snapshot, one) for one in each_target(command)}
        failed = tuple(one for one, why in reasons.items() if fails and not why and not action.revokes)
        changed = tuple(_subject(action, command.scope, one) for one in reasons if one not in failed)
        for subject in changed:
            self._apply(action, subject, owner)
        outcome = Outcome.FAILED if failed else Outcome.DONE
        ended = OrderEnded(order_id=owner, outcome=outcome, text=outcome.value, not_held=failed)
        return Done(ended, changed, tuple(_subject(action, command.scope, one) for one in failed))

    def _apply(self, action: Action, subject: Subject, owner: str) -> None:
        if action.revokes:
            self.held.pop(subject, None)
            self.failed_over.discard(subject[2])
        elif self._has_syphon or not action.needs_syphon:
            self.held[subject] = Held(action.id, owner)

    def _why_not(self, action: Action, snapshot: Snapshot, command: Command) -> str:
        if action.needs_syphon and snapshot.syphon.status is SyphonStatus.OFF and action.stands_for:
            return "this engine runs no syphon"
        return action_row.why_not(action, snapshot, command)

    def _refused(self, action: Action, command: Command, owner: str, text: str, at: float) -> Done:
        named = command.targets or ("",)
        ended = OrderEnded(order_id=owner, outcome=Outcome.REFUSED, text=text, not_held=named)
        return Done(ended, (), tuple(_subject(action, command.scope, one) for one in named))

    # -- local orders -----------------------------------------------------------------------------------------------

    def act_locally(self, verb: str, target: str, at: float) -> Subject | None:
        """Carry a local operator's order out; None: it was refused."""
        action = BY_ID[verb]
        command = Command(action_id=verb, scope=action.scope, targets=(target,) if target else ())
        refusal = action_row.read_only(action) if _READ_ONLY in self.held else ""
        if refusal or action_row.why_not(action, self.snapshot(at), command):
            return None
        subject = _subject(action, action.scope, target)
        self._apply(action, subject, LOCAL)
        return subject


def _subject(action: Action, scope: str, target: str) -> Subject:
    return (action.stands_for or action.id, str(scope), target.casefold())
