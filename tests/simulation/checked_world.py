"""The World with its invariants: also strangers, recreated queues, operators' pauses, and the checks of a run's end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from paired_servicebus.core.accounting.ledger import SendOutcome
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.entity_state import Entity, State, Trigger
from paired_servicebus.simulation.run_plan import PlannedCall
from paired_servicebus.simulation.run_record import TOLERANCE
from paired_servicebus.simulation.sim_engine import SimEngine
from paired_servicebus.simulation.sim_namespaces import BEGAN, SimBacklogQueue, SimMessage
from paired_servicebus.simulation.sim_sender import SimSender
from paired_servicebus.simulation.world import AS_SHIPPED, RunResult, World, WorldParts
from tests.simulation.call_invariants import CallChecker
from tests.simulation.campaign_plan import CampaignPlan, Stranger, draw_message
from tests.simulation.invariants import BrokenInvariant, InvariantChecker
from tests.simulation.plan_generator import draw_plan
from tests.simulation.pump_invariants import LOOK_INTERVAL, PumpInvariantChecker, RateChecker, WaitingChecker, is_paused
from tests.simulation.state_invariants import RotationChecker, StateInvariantChecker


class CountingMachine(PairingMachine):
    """The machine as shipped, with a record of the reached lines of its table."""

    reached: set[tuple[State, Trigger]]

    def _move(self, entity: Entity, trigger: Trigger, at: float, why: str, by: str = "") -> Any:
        effects = super()._move(entity, trigger, at, why, by)
        self.reached.add((entity.state, trigger))
        return effects


class RunChecker(InvariantChecker):
    """The checker of one run, its engines, pumps and calls."""

    def states_of(self, engine: str) -> StateInvariantChecker:
        return StateInvariantChecker(engine, self)

    def rotation_of(self, engine: str) -> RotationChecker:
        return RotationChecker(engine, self, len(self.plan.queues))

    def call_of(self, sender: SimSender, timeout: float | None) -> CallChecker:
        queues, began = sender.world.queues, sender.clock.now
        return CallChecker(sender.engine.name, self, self.plan.policy, queues, began, timeout)

    def pump_of(self, engine: SimEngine, queue: SimBacklogQueue) -> PumpInvariantChecker:
        return PumpInvariantChecker(engine, queue, self)

    def rate_of(self, engine: SimEngine) -> RateChecker | None:
        rate, world = self.plan.policy.syphon_rate, engine.world
        if not rate:
            return None
        slack = len(world.queues) * (2 + len(world.destinations)) * max(1.0, rate)
        return RateChecker(self, engine.name, rate=rate, slack=slack, began=engine.clock.now)

    def delivers(self, engine: SimEngine, key: str, what: str) -> None:
        if is_paused(engine, "destination", key):
            self.fail("paused", f"{engine.name} sends {what} to {key}, which an operator paused")

    def waits(self, sender: SimSender, *, diverting: bool) -> None:
        """Check that another queue is tried before a wait for a busy one (SPEC.md section 5)."""
        if not diverting:
            return
        resting = {route.queue for route, until in sender.memory.busy.items() if until > sender.clock.now}
        free = [place.index for place in sender.engine.machine.rotation.places if not place.pulled]
        if set(free) - resting:
            self.fail("another queue first", f"{sender.engine.name} waits while {free} are in, {resting} rest")

    def call_ended(self, engine: str, took: float, timeout: float | None) -> None:
        """Check the call's duration: its own limit, or one `send_timeout` at the primary and two at the backlog."""
        longest = 3 * self.plan.policy.send_timeout if timeout is None else timeout
        if took > longest + TOLERANCE:
            self.fail("call's time", f"{engine}: a call took {took:.3f} s of {longest:g} s")

    def ended(self, engine: SimEngine) -> None:
        engine.state_watch.check_end(engine.clock.now)
        for entity in engine.machine.entities():
            if entity.state not in (State.HEALTHY, State.UNKNOWN):
                self.fail("healthy in the end", f"{engine.name}: {entity.path} is {entity.state}")
        for place in engine.machine.rotation.places:
            if place.pulled:
                self.fail("queues return", f"{engine.name}: backlog/{place.index} is still pulled: {place.reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedResult(RunResult):
    """The result of one run with its checks."""

    broken: tuple[BrokenInvariant, ...]
    reached: frozenset[tuple[str, str]]
    """States and triggers of the table that occurred."""
    trace: tuple[str, ...] = ()


class CheckedWorld(World):
    """One run that is checked."""

    plan: CampaignPlan
    watch: RunChecker
    record = RunChecker

    def __init__(self, plan: CampaignPlan, seed: int, *, parts: WorldParts = AS_SHIPPED, traced: bool = False) -> None:
        self.reached: set[tuple[State, Trigger]] = set()
        counting = type("Counting", (CountingMachine, parts.pairing), {"reached": self.reached})
        super().__init__(plan, seed, parts=replace(parts, pairing=counting), traced=traced)
        self._expected_failbacks: list[tuple[SimEngine, str, int]] = []

    def run(self) -> CheckedResult:
        result = super().run()
        return CheckedResult(
            seed=result.seed,
            events=result.events,
            ledger=result.ledger,
            stuck=result.stuck,
            broken=tuple(self.watch.broken),
            reached=frozenset((str(state), trigger.name) for state, trigger in self.reached),
            trace=tuple(self.watch.trace or ()),
        )

    def _lay_out(self) -> None:
        super()._lay_out()
        at, plan = self.clock.at, self.plan
        for call in plan.calls:
            at(BEGAN + call.at, self._call, call)
        for pause in plan.pauses:
            target = ("queue", pause.queue) if pause.queue is not None else ("destination", pause.path)
            at(BEGAN + pause.at, self.engines[pause.engine].pause, target)
            at(BEGAN + pause.ends, self.engines[pause.engine].resume, target)
        for stranger in plan.strangers:
            at(BEGAN + stranger[0], self._stranger, stranger)
        for when, queue in plan.recreations:
            at(BEGAN + when, self._recreate, self.queues[queue])
        if not plan.policy.syphon_rate:
            at(BEGAN + LOOK_INTERVAL, self._look_at_waiting)
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
        queue.deleted += [held.letter for held in queue.held.values()]
        queue.held.clear()
        queue._ready.clear()
        queue._numbers = 0
        self.watch.recreated(queue.index)

    def _look_at_waiting(self) -> None:
        now = self.clock.now
        WaitingChecker(self.watch, self.engines, self.queues, self.destinations).look(now)
        self.clock.at(now + LOOK_INTERVAL, self._look_at_waiting)

    # -- afterwards -------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """Undo operators' acts; entities failed over now must fail back in the stated time."""
        super()._heal()
        for engine in self.engines:
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


def run_seed(seed: int, *, parts: WorldParts = AS_SHIPPED, traced: bool = False) -> CheckedResult:
    """Draw a plan and run it; the same seed gives the same run."""
    return CheckedWorld(draw_plan(Random(f"plan {seed}")), seed, parts=parts, traced=traced).run()
