"""A console and its operator: watches the fleet through an engine, drafts an order, signs it and has it posted."""

from __future__ import annotations

from typing import Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.fleet.fleet_documents import Order
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.operator.fleet_question import FleetRequest, draft_order
from tests.simulation.fleet.fleet_invariants import FleetChecker
from tests.simulation.fleet.fleet_plan import KEYS, PRIMARY, SECONDARY, PlannedOrder
from tests.simulation.fleet.fleet_run import FleetRun
from tests.simulation.fleet.sim_board import sign
from tests.simulation.fleet.sim_fleet_engine import SimFleetEngine

READING_SECONDS: Final = (3.2, 9.0)
"""Seconds that an operator reads the screen before an order."""
VIEWS: Final = (8.0, 20.0)
"""Seconds after an order at which its author reads the answers."""


class SimConsole:
    """One console at one engine."""

    def __init__(self, world: FleetRun, index: int, engines: list[SimFleetEngine], checks: FleetChecker) -> None:
        self.world, self.index, self.engines, self.checks = world, index, engines, checks
        self.engine = engines[world.plan.consoles[index]]
        self._watching = 0

    def give(self, planned: PlannedOrder) -> None:
        """Begin to watch, and order after a while."""
        world, engine = self.world, self.engine
        if not engine.is_alive:
            world.log(f"console {self.index} finds no engine")
            return
        self.watch(1)
        seconds = world.random.uniform(0.5, 1.5) if planned.haste else world.random.uniform(*READING_SECONDS)
        world.later(seconds, engine, self._order, planned)
        world.later(world.random.uniform(22.0, 50.0), engine, self.watch, -1)

    def watch(self, change: int) -> None:
        """Begin a watch, or end one."""
        self._watching += change
        if self._watching == max(change, 0):
            self.engine.watch(is_watched=self._watching > 0)

    def restarted(self) -> None:
        """Forget the watches of the boot that ended."""
        self._watching = 0

    def _order(self, planned: PlannedOrder) -> None:
        """Draft an order as the verb does, sign it, and hand it over."""
        world, engine = self.world, self.engine
        view = engine.member.view()
        if view.trouble or view.read_at is None:
            world.log(f"console {self.index} orders nothing: {view.trouble or 'the fleet is not known yet'}")
            return
        engines = None if planned.engines is None else tuple(self.engines[one].name for one in planned.engines)
        try:
            why = world.next_id("drill")
            command = Command(action_id=planned.verb, scope=planned.scope, targets=planned.targets, why=why)
            wanted = FleetRequest(command=command, engines=engines, stands_for=planned.stands_for)
            draft = draft_order(view, wanted, primary=PRIMARY, secondary=SECONDARY, now=engine.own_time())
        except ConfigurationError as error:
            world.log(f"console {self.index} orders nothing: {error}")
            return
        self.checks.drafted(engine, draft.text)
        order = sign(draft.confirm(draft.to_type), KEYS[self.index])
        slow = world.random.random() < 0.04 and not world.is_sound
        world.later(61.0 if slow else world.random.uniform(0.02, 0.5), engine, self._post, order)

    def _post(self, order: Order) -> None:
        world, engine = self.world, self.engine
        if void := engine.check(order):
            world.log(f"console {self.index} posts nothing: {void}")
            return
        text = order.text
        world.log(f"console {self.index} posts {order.id[:8]} {text.verb} {text.targets} {text.engines or 'all'}")
        world.note_order(order, engine.tolerance)
        if world.is_last:
            world.last_ids.append(order.id)
        engine.post_order(order)
        for seconds in VIEWS:
            world.later(seconds, engine, self.view)

    def view(self) -> None:
        """Read the screen."""
        self.checks.viewed(self.engine, self.engine.member.view())
