"""One run: a plan in virtual time, then recovery, quiet and the balance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from paired_servicebus.core.accounting.ledger import Ledger, SendOutcome
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.pump.pump_machine import PumpMachine
from paired_servicebus.simulation.invariants import BrokenInvariant, InvariantChecker
from paired_servicebus.simulation.network import Network
from paired_servicebus.simulation.pump_invariants import LOOK_INTERVAL, WaitingChecker
from paired_servicebus.simulation.run_plan import InjectedFault, OperatorAct, Plan, PlannedCall, Stranger
from paired_servicebus.simulation.sim_delivery import SimDelivery
from paired_servicebus.simulation.sim_engine import CountingMachine, Reached, SimEngine
from paired_servicebus.simulation.sim_messages import BEGAN, SimMessage, draw_message
from paired_servicebus.simulation.sim_namespaces import SimBacklogQueue, SimDestination
from paired_servicebus.simulation.sim_pump import SimPump
from paired_servicebus.simulation.sim_sender import SimSender
from paired_servicebus.simulation.virtual_clock import VirtualClock, kill


@dataclass(frozen=True, slots=True)
class WorldParts:
    """The parts of a World: the shipped rules and the World's adapters. A planted bug replaces one."""

    pairing: type[CountingMachine] = CountingMachine
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
    broken: tuple[BrokenInvariant, ...]
    reached: frozenset[tuple[str, str]]
    """States and triggers of the table that occurred."""
    trace: tuple[str, ...] = ()


class World:
    """One run, with its parts and its schedule.

    Args:
        plan: the events.
        seed: for everything that the plan leaves open: network times, shares of faults, the machine's random choices.
    """

    checks_waiting = True

    def __init__(self, plan: Plan, seed: int, *, parts: WorldParts = AS_SHIPPED, traced: bool = False) -> None:
        self.plan = plan
        self.seed = seed
        self.parts = parts
        self.random = Random(f"world {seed}")
        self.clock = VirtualClock(BEGAN)
        self.reached: Reached = set()
        self.watch = InvariantChecker(plan, lambda: self.clock.now, [] if traced else None)
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
        self._expected_failbacks: list[tuple[SimEngine, str, int]] = []

    def _lock_ended(self, index: int):  # type: ignore[no-untyped-def]
        return lambda held: self.watch.lock_ended(index, held)

    # -- a run ------------------------------------------------------------------------------------------------------

    def run(self) -> RunResult:
        self._lay_out()
        self.clock.run(BEGAN + self.plan.ends_at)
        stuck = self.watch.stuck(self.queues)
        for engine in self.engines:
            engine.state_watch.check_end(self.clock.now)
            self._check_end(engine)
            kill(engine.processes)
        ledger = self.watch.balance(self.queues)
        return RunResult(
            seed=self.seed,
            events=self.clock.events,
            ledger=ledger,
            stuck=stuck,
            broken=tuple(self.watch.broken),
            reached=frozenset((str(state), trigger.name) for state, trigger in self.reached),
            trace=tuple(self.watch.trace or ()),
        )

    def _lay_out(self) -> None:
        at, plan = self.clock.at, self.plan
        for engine in self.engines:
            at(BEGAN, engine.start)
        for call in plan.calls:
            at(BEGAN + call.at, self._call, call)
        for fault in plan.faults:
            at(BEGAN + fault.at, self._begin, fault)
            at(BEGAN + fault.ends, self._end, fault)
        for crash in plan.crashes:
            engine = self.engines[crash.engine]
            at(BEGAN + crash.at, engine.crash)
            at(BEGAN + crash.back, self._restart, engine)
        for act in plan.acts:
            at(BEGAN + act.at, self.engines[act.engine].operate, act)
        for pause in plan.pauses:
            target = ("queue", pause.queue) if pause.queue is not None else ("destination", pause.path)
            at(BEGAN + pause.at, self.engines[pause.engine].pause, target)
            at(BEGAN + pause.ends, self.engines[pause.engine].resume, target)
        for stranger in plan.strangers:
            at(BEGAN + stranger[0], self._stranger, stranger)
        for when, queue in plan.recreations:
            at(BEGAN + when, self._recreate, self.queues[queue])
        if self.checks_waiting and not plan.policy.syphon_rate:
            at(BEGAN + LOOK_INTERVAL, self._look_at_waiting)
        at(BEGAN + plan.heals_at, self._heal)
        at(BEGAN + plan.heals_at + plan.back_within, self._check_failbacks)

    def _call(self, call: PlannedCall) -> None:
        engine = self.engines[call.engine]
        if not engine.alive:
            return
        sessions = self.destinations[call.path.casefold()].plan.sessions
        messages = [self._letter(call.path, sessions) for _ in range(call.messages)]
        self.watch.offered(messages)
        self.clock.start(self.parts.sending(engine, call.sender, call.path).call(call, messages), engine.processes)

    def _letter(self, path: str, sessions: int) -> SimMessage:
        self._letters += 1
        return draw_message(self.random, self._letters, path, sessions, self.clock.now)

    def _stranger(self, stranger: Stranger) -> None:
        """Put a foreign message into a backlog queue; if accepted, it counts."""
        self._letters += 1
        body = f"x{self._letters}"
        path = "" if stranger.malformed else "nowhere"
        message = SimMessage(body, body, path, path, self._letters)
        message.properties = {"x-ms-path": path} if path else {"x-ms-path": 7}
        if self.queues[stranger.queue].take([message]) is None:
            self.watch.offered([message])
            self.watch.told(message, SendOutcome.ACCEPTED)

    def _recreate(self, queue: SimBacklogQueue) -> None:
        """Delete a backlog queue and create it again, as its owner may."""
        self.watch.log(f"{queue.name} is deleted with {len(queue.held)} messages, and created again")
        queue.recreate()
        self.watch.recreated(queue.index)

    def _look_at_waiting(self) -> None:
        now = self.clock.now
        WaitingChecker(self.watch, self.engines, self.queues, self.destinations).look(now)
        self.clock.at(now + LOOK_INTERVAL, self._look_at_waiting)

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
        """Undo every operator's act; entities failed over now must fail back in the stated time."""
        self.watch.log("everything has healed")
        for index, engine in enumerate(self.engines):
            for entity in engine.machine.entities():
                if entity.state in (State.FORCED, State.PINNED):
                    engine.operate(OperatorAct(self.clock.now, index, "release", entity.path))
            for target in sorted(engine.pauses, key=str):
                engine.resume(target)
            for entity in engine.machine.entities():
                if entity.state is State.FAILED_OVER:
                    self._expected_failbacks.append((engine, entity.path, entity.failbacks))

    def _check_failbacks(self) -> None:
        """Check that each entity failed back in the stated time after its recovery; a full entity has not recovered."""
        now, within = self.clock.now, self.plan.back_within
        waiting, self._expected_failbacks = self._expected_failbacks, []
        later: list[float] = []
        for engine, path, failbacks in waiting:
            entity = engine.machine.entity(path, at=now)
            due = self.destinations[path.casefold()].full_at + within
            if entity.failbacks != failbacks:
                continue
            if due > now:
                self._expected_failbacks.append((engine, path, failbacks))
                later.append(due)
            else:
                self.watch.fail("back in time", f"{engine.name}: {path} is {entity.state} {within:g} s after it healed")
        if later:
            self.clock.at(min(later), self._check_failbacks)

    def _check_end(self, engine: SimEngine) -> None:
        for entity in engine.machine.entities():
            if entity.state not in (State.HEALTHY, State.UNKNOWN):
                self.watch.fail("healthy in the end", f"{engine.name}: {entity.path} is {entity.state}")
        for place in engine.machine.rotation.places:
            if place.pulled:
                self.watch.fail(
                    "queues return", f"{engine.name}: backlog/{place.index} is still pulled: {place.reason}"
                )
