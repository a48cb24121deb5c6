"""One engine in the World: the shipped machine, with substitutes for the asyncio parts of paired_servicebus.pairing.

They are the timer, pings and probes, and the wake-up of waiting calls.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.failover.effects import Announce, ProbeQueue, SendPing
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.failover.send_router import SenderMemory
from paired_servicebus.core.model.entity_state import Entity as Standing
from paired_servicebus.core.model.entity_state import State, Trigger
from paired_servicebus.core.model.pairing_events import (
    EntityReleased,
    Event,
    Forced,
    PingAccepted,
    PingFailed,
    Pinned,
    QueueProbed,
    QueuePulled,
    SendAccepted,
    SendFailed,
    StateChanged,
    SyphonPaused,
    SyphonResumed,
    Ticked,
)
from paired_servicebus.core.model.verdict import VERDICTS, FailureKind, Judgement, Verdict
from paired_servicebus.simulation.invariants import InvariantChecker
from paired_servicebus.simulation.network import Network
from paired_servicebus.simulation.run_plan import OperatorAct, Plan
from paired_servicebus.simulation.sim_namespaces import SimBacklogQueue, SimDestination
from paired_servicebus.simulation.state_invariants import StateInvariantChecker
from paired_servicebus.simulation.virtual_clock import SimProcess, Steps, VirtualClock, kill

JUDGEMENTS = {kind: Judgement(kind, VERDICTS[kind], str(kind)) for kind in FailureKind}
Reached = set[tuple[State, Trigger]]


class CountingMachine(PairingMachine):
    """The machine as shipped, with a record of the reached lines of its table."""

    reached: Reached

    def _move(self, entity: Standing, trigger: Trigger, at: float, why: str, by: str = "") -> Any:
        effects = super()._move(entity, trigger, at, why, by)
        self.reached.add((entity.state, trigger))
        return effects


class EngineParts(Protocol):
    """The parts of a World that an engine creates."""

    @property
    def pairing(self) -> type[CountingMachine]: ...
    @property
    def moving(self) -> Callable[[SimEngine, SimBacklogQueue], Any]: ...


class RunContext(Protocol):
    """The state of one run that its engines, senders and pumps use; `World` is the implementation."""

    plan: Plan
    random: Random
    clock: VirtualClock
    reached: Reached
    watch: InvariantChecker
    network: Network
    destinations: dict[str, SimDestination]
    queues: list[SimBacklogQueue]

    @property
    def parts(self) -> EngineParts: ...


class SimEngine:
    """One engine; a crash ends it anywhere, and `start` boots it again.

    Overridden by planted bugs: `judge`, `tell`, `ping`, `probe`.
    """

    def __init__(self, world: RunContext, index: int, *, syphon: bool) -> None:
        self.world = world
        self.clock = world.clock
        self.index = index
        self.syphon = syphon
        self.boot = 0
        self.name = ""
        self.alive = False
        self.processes: dict[SimProcess, None] = {}
        self.calls = 0
        self._waiters: list[tuple[SimProcess, int]] = []
        self._arms = 0
        """Timers set over all boots, since a crashed boot's timer may still fire."""

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        world = self.world
        self.boot += 1
        self.name = f"engine {self.index}.{self.boot}"
        self.alive = True
        self.machine = world.parts.pairing(world.plan.policy, queues=range(len(world.queues)))
        self.machine.reached = world.reached
        self.state_watch = StateInvariantChecker(self.name, world.watch)
        self.memories: dict[tuple[int, str], SenderMemory] = {}
        self._armed: float | None = None
        world.watch.log(f"{self.name} starts")
        for entity in world.plan.entities:  # like an engine with configured entities
            self.machine.entity(entity.path, at=self.clock.now)
        if self.syphon:
            for queue in world.queues:
                self.clock.start(world.parts.moving(self, queue).run(), self.processes)

    def crash(self) -> None:
        """Die; the calls in progress get no answer."""
        if not self.alive:
            return
        self.world.watch.log(f"{self.name} crashes")
        self.state_watch.check_end(self.clock.now)
        self.alive = False
        self._arms += 1
        self._waiters = []
        self.world.watch.open_calls -= self.calls
        self.calls = 0
        kill(self.processes)

    def memory(self, sender: int, path: str) -> SenderMemory:
        """Return the memory of one paired sender."""
        return self.memories.setdefault((sender, path), SenderMemory())

    # -- the machine ------------------------------------------------------------------------------------------------

    def judge(self, failure: FailureKind) -> Judgement:
        return JUDGEMENTS[failure]

    def tell(self, event: Event) -> None:
        """Step the machine and carry out its effects."""
        machine = self.machine
        for effect in machine.step(event):
            if isinstance(effect, Announce):
                self._announced(effect.event)
            elif isinstance(effect, SendPing):
                self.clock.start(self.ping(effect), self.processes)
            elif isinstance(effect, ProbeQueue):
                self.clock.start(self.probe(effect), self.processes)
        due = machine.next_deadline
        if due != self._armed:
            self._armed = due
            self._arms += 1
            if due is not None:
                self.clock.at(due, self._tick, self._arms)

    def _tick(self, arm: int) -> None:
        if arm == self._arms:
            self._armed = None
            self.tell(Ticked(at=self.clock.now))

    def _announced(self, event: Event) -> None:
        watch = self.world.watch
        if watch.trace is not None:
            watch.log(f"{self.name}: {event}")
        if isinstance(event, StateChanged):
            self.state_watch.changed(event)
        elif isinstance(event, QueuePulled):
            watch.pulled_for(FailureKind(event.reason), f"backlog/{event.queue}")
        waiters, self._waiters = self._waiters, []
        for process, turn in waiters:
            self.clock.wake(self.clock.now, process, turn)

    def change(self, until: float) -> Steps:
        """Wait for the next change, at most until `until`."""
        process = self.clock.current
        self._waiters.append((process, process.turn))
        self.clock.wake(until, process, process.turn)
        yield

    def operate(self, act: OperatorAct) -> None:
        """Apply an operator's act; the machine refuses an impossible one."""
        if not self.alive:
            return
        at = self.clock.now
        events: dict[str, Event] = {
            "force": Forced(at=at, entity=act.path, by="anna", why="a drill"),
            "pin": Pinned(at=at, entity=act.path, by="anna", why="a drill"),
            "release": EntityReleased(at=at, entity=act.path, by="anna", why="over"),
            "pause": SyphonPaused(at=at, by="anna"),
            "resume": SyphonResumed(at=at, by="anna"),
        }
        try:
            self.tell(events[act.verb])
        except IllegalEventError as error:
            self.world.watch.log(f"{self.name} refuses to {act.verb} {act.path}: {error}")

    # -- reports of sends to the machine -----------------------------------------------------------------------------

    def accepted(self, path: str, queue: int | None, messages: int) -> None:
        self.tell(SendAccepted(at=self.clock.now, entity=path, queue=queue, messages=messages))

    def failed(self, path: str, queue: int | None, judgement: Judgement, messages: int) -> None:
        self.tell(
            SendFailed(
                at=self.clock.now,
                entity=path,
                queue=queue,
                failure=judgement.kind,
                reason=judgement.reason,
                messages=messages,
            )
        )

    # -- hands ------------------------------------------------------------------------------------------------------

    def ping(self, effect: SendPing) -> Steps:
        """Send one ping, within `ping_timeout`; a throttled ping is not accepted."""
        world, path, began = self.world, effect.entity, self.clock.now
        destination = world.destinations[path.casefold()]
        who = (self.name, "ping")
        world.watch.attempted(who, destination.name, "a ping", diverting=False)
        self.state_watch.ping_leaves(path, began)
        condition = destination.met(world.random)
        timeout = world.plan.policy.ping_timeout
        failure, _ = yield from world.network.request(destination, condition, timeout, destination.ping)
        now = self.clock.now
        world.watch.answered(who, destination.name, failure)
        self.state_watch.ping_answered(path, began, now, failure)
        took = now - began
        if failure is None:
            self.tell(PingAccepted(at=now, entity=path, number=effect.number, took=took))
            return
        judgement = self.judge(failure)
        throttled = judgement.verdict is Verdict.THROTTLED
        self.tell(
            PingFailed(
                at=now, entity=path, number=effect.number, reason=judgement.reason, took=took, throttled=throttled
            )
        )

    def probe(self, effect: ProbeQueue) -> Steps:
        """Attach to a pulled backlog queue; a full or busy one can be attached to."""
        world = self.world
        queue = world.queues[effect.queue]
        condition = queue.met(world.random)
        failure, _ = yield from world.network.request(queue, condition, world.plan.policy.ping_timeout, _nothing)
        accepted = failure is None or failure in (FailureKind.FULL, FailureKind.BUSY)
        reason = "" if failure is None else str(failure)
        self.tell(QueueProbed(at=self.clock.now, queue=effect.queue, accepted=accepted, reason=reason))


def _nothing() -> None:
    """Do nothing, like an attach."""
