"""One run: a plan in virtual time, then recovery, quiet and the balance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from paired_servicebus.core.accounting.ledger import Ledger
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.pump.pump_machine import PumpMachine
from paired_servicebus.simulation.run_plan import InjectedFault, OperatorAct, Plan
from paired_servicebus.simulation.run_record import RunRecord
from paired_servicebus.simulation.sim_engine import Network, SimEngine
from paired_servicebus.simulation.sim_namespaces import BEGAN, SimBacklogQueue, SimDestination
from paired_servicebus.simulation.sim_pump import SimDelivery, SimPump
from paired_servicebus.simulation.sim_sender import SimSender
from paired_servicebus.simulation.virtual_clock import VirtualClock, kill


@dataclass(frozen=True, slots=True)
class WorldParts:
    """The parts of a World: the shipped rules and the World's adapters."""

    pairing: type[PairingMachine] = PairingMachine
    engine: type[SimEngine] = SimEngine
    sending: type[SimSender] = SimSender
    pump: type[PumpMachine[Any]] = PumpMachine
    delivery: type[SimDelivery] = SimDelivery
    moving: type[SimPump] = SimPump


AS_SHIPPED = WorldParts()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of one run."""

    seed: int
    events: int
    ledger: Ledger
    stuck: int
    """Messages left in backlog queues, and calls that never ended."""


class World:
    """One run, with its parts and its schedule.

    Args:
        plan: the events.
        seed: for everything that the plan leaves open: network times, shares of faults, the machine's random choices.
    """

    record: type[RunRecord] = RunRecord

    def __init__(self, plan: Plan, seed: int, *, parts: WorldParts = AS_SHIPPED, traced: bool = False) -> None:
        self.plan = plan
        self.seed = seed
        self.parts = parts
        self.random = Random(f"world {seed}")
        self.clock = VirtualClock(BEGAN)
        self.watch = self.record(plan, lambda: self.clock.now, [] if traced else None)
        self.network = Network(self.clock, self.random)
        watch = self.watch
        self.destinations = {
            entity.path.casefold(): SimDestination(
                entity, self.clock, landed=watch.landed, received=watch.received, expired=watch.expired
            )
            for entity in plan.entities
        }
        self.queues = [
            SimBacklogQueue(index, queue, self.clock, self._lock_ended(index))
            for index, queue in enumerate(plan.queues)
        ]
        self.engines = [parts.engine(self, index, syphon=syphon) for index, syphon in enumerate(plan.syphons)]
        self._letters = 0

    def _lock_ended(self, index: int):  # type: ignore[no-untyped-def]
        return lambda held: self.watch.lock_ended(index, held)

    # -- a run ------------------------------------------------------------------------------------------------------

    def run(self) -> RunResult:
        self._lay_out()
        self.clock.at(BEGAN + self.plan.heals_at, self._heal)
        self.clock.run(BEGAN + self.plan.ends_at)
        stuck = self.watch.stuck(self.queues)
        for engine in self.engines:
            self.watch.ended(engine)
            kill(engine.processes)
        return RunResult(seed=self.seed, events=self.clock.events, ledger=self.watch.balance(self.queues), stuck=stuck)

    def _lay_out(self) -> None:
        at, plan = self.clock.at, self.plan
        for engine in self.engines:
            at(BEGAN, engine.start)
        for fault in plan.faults:
            at(BEGAN + fault.at, self._begin, fault)
            at(BEGAN + fault.ends, self._end, fault)
        for crash in plan.crashes:
            engine = self.engines[crash.engine]
            at(BEGAN + crash.at, engine.crash)
            at(BEGAN + crash.back, self._restart, engine)
        for act in plan.acts:
            at(BEGAN + act.at, self.engines[act.engine].operate, act)

    # -- faults -----------------------------------------------------------------------------------------------------

    def _targets(self, fault: InjectedFault) -> Sequence[SimDestination | SimBacklogQueue]:
        return [
            self.queues[target] if isinstance(target, int) else self.destinations[target] for target in fault.targets
        ]

    def _begin(self, fault: InjectedFault) -> None:
        self.watch.log(f"{fault.condition.name} begins at {fault.targets}, share {fault.share}")
        for target in self._targets(fault):
            target.begin(fault)

    def _end(self, fault: InjectedFault) -> None:
        self.watch.log(f"{fault.condition.name} ends at {fault.targets}")
        for target in self._targets(fault):
            target.end(fault, self.clock.now)

    @staticmethod
    def _restart(engine: SimEngine) -> None:
        if not engine.alive:
            engine.start()

    # -- afterwards -------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """Undo every operator's act."""
        self.watch.log("everything has healed")
        for index, engine in enumerate(self.engines):
            for entity in engine.machine.entities():
                if entity.state in (State.FORCED, State.PINNED):
                    engine.operate(OperatorAct(self.clock.now, index, "release", entity.path))
            for target in sorted(engine.pauses, key=str):
                engine.resume(target)
