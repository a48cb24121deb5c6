"""One engine in the World: the shipped machine, with substitutes for the asyncio parts of paired_servicebus.pairing.

They are the timer, pings and probes, and the wake-up of waiting calls.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from random import Random
from typing import Any, Final, Protocol

from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.failover.pairing_machine import Announce, PairingMachine, ProbeQueue, SendPing
from paired_servicebus.core.failover.send_router import SenderMemory
from paired_servicebus.core.model.pairing_events import (
    EntityReleased,
    Event,
    Forced,
    PingAccepted,
    PingFailed,
    Pinned,
    QueueProbed,
    QueuePulled,
    QueueRestored,
    SendAccepted,
    SendFailed,
    StateChanged,
    SyphonPaused,
    SyphonResumed,
    Ticked,
)
from paired_servicebus.core.model.verdict import VERDICTS, FailureKind, Judgement, Verdict
from paired_servicebus.core.pump.pump_machine import PumpMachine
from paired_servicebus.simulation.run_plan import InjectedCondition, OperatorAct, Plan
from paired_servicebus.simulation.run_record import RunRecord
from paired_servicebus.simulation.sim_namespaces import RequestTarget, SimBacklogQueue, SimDestination
from paired_servicebus.simulation.virtual_clock import SimProcess, Steps, VirtualClock, kill

# One request's way to a namespace and back, and the effect of a fault on it.
#
# A request that has left is independent: its sender may crash or give up, and it still arrives. Requests that arrive
# without an answer cause duplicates.

ANSWERS: Final = {
    InjectedCondition.REFUSED: FailureKind.CONNECTION,
    InjectedCondition.INTERNAL: FailureKind.INTERNAL,
    InjectedCondition.BUSY: FailureKind.BUSY,
    InjectedCondition.DISABLED: FailureKind.DISABLED,
    InjectedCondition.DELETED: FailureKind.NOT_FOUND,
    InjectedCondition.UNAUTHORIZED: FailureKind.UNAUTHORIZED,
    InjectedCondition.FULL: FailureKind.FULL,
}
"""Conditions with a failure as the only answer."""
HARMLESS: Final = frozenset({InjectedCondition.HIDDEN, InjectedCondition.AWAY})


class Network:
    """The network between engines and namespaces. A refusal takes `refusal` seconds longer than its way."""

    refusal = 0.0

    def __init__(self, clock: VirtualClock, random: Random) -> None:
        self._clock = clock
        self._random = random

    def request(
        self,
        target: RequestTarget,
        condition: InjectedCondition | None,
        timeout: float,
        act: Callable[[], Any],
        unanswered: Callable[[], None] | None = None,
    ) -> Generator[None, Any, tuple[FailureKind | None, Any]]:
        """Request `act` from `target`; return the failure or None, and the act's result. Part of the running process.

        condition: the fault that the request meets. timeout: seconds. unheard: called before an act whose answer is
        lost.
        """
        clock, random = self._clock, self._random
        process, now = clock.current, clock.now
        out, back = 0.002 + 0.05 * random.random(), 0.002 + 0.05 * random.random()
        if condition is None or condition in HARMLESS:
            if out + back < timeout:
                clock.at(now + out, self._land, act, back, process, process.turn)
            else:
                self._cut(now + out, now + timeout, FailureKind.TIMEOUT, act, unanswered)
        elif condition is InjectedCondition.BLACK_HOLE or out + back >= timeout:
            clock.wake(now + timeout, process, process.turn, (FailureKind.TIMEOUT, None))
        elif condition in ANSWERS:
            self._refuse(now + out, now + timeout, ANSWERS[condition])
        elif condition is InjectedCondition.SLOW:
            slow = timeout * (0.2 + random.random())
            if slow + back < timeout:
                clock.at(now + slow, self._land, act, back, process, process.turn)
            else:
                self._cut(now + slow, now + timeout, FailureKind.TIMEOUT, act, unanswered)
        elif condition is InjectedCondition.ACK_LOST:
            self._cut(now + out, now + timeout, FailureKind.TIMEOUT, act, unanswered)
        elif condition is InjectedCondition.LANDS_LATE:
            late = timeout + 60.0 * random.random()
            self._cut(now + late, now + timeout, FailureKind.TIMEOUT, act, unanswered)
        elif random.random() < 0.5:  # RESET, after it arrived or before
            self._cut(now + out, now + out + back, FailureKind.CONNECTION, act, unanswered)
        else:
            self._refuse(now + out, now + timeout, FailureKind.CONNECTION)
        outcome: tuple[FailureKind | None, Any] = yield
        return outcome

    def _refuse(self, at: float, gives_up: float, failure: FailureKind) -> None:
        process, answered_at = self._clock.current, at + self.refusal
        if answered_at < gives_up or not self.refusal:
            self._clock.wake(answered_at, process, process.turn, (failure, None))
        else:
            self._clock.wake(gives_up, process, process.turn, (FailureKind.TIMEOUT, None))

    def _land(self, act: Callable[[], Any], back: float, process: SimProcess, turn: int) -> None:
        answer = act()
        failure = answer if isinstance(answer, FailureKind) else None
        self._clock.wake(self._clock.now + back, process, turn, (failure, None if failure else answer))

    def _cut(
        self,
        lands: float,
        answered_at: float,
        failure: FailureKind,
        act: Callable[[], Any],
        unanswered: Callable[[], None] | None,
    ) -> None:
        process = self._clock.current
        self._clock.at(lands, _land_unheard, act, unanswered)
        self._clock.wake(answered_at, process, process.turn, (failure, None))


def _land_unheard(act: Callable[[], Any], unanswered: Callable[[], None] | None) -> None:
    if unanswered is not None:
        unanswered()
    act()


CHANGES: Final = frozenset({StateChanged, QueuePulled, QueueRestored, SyphonPaused, SyphonResumed})
"""Events after which a waiting call or pump may go on."""
PauseTarget = tuple[str, object]
"""A backlog queue by index, or a destination by casefolded path."""
EVERYTHING: Final[PauseTarget] = ("syphon", None)


class EngineParts(Protocol):
    """The parts of a World that an engine creates."""

    @property
    def pairing(self) -> type[PairingMachine]: ...
    @property
    def pump(self) -> type[PumpMachine[Any]]: ...
    @property
    def delivery(self) -> Callable[[SimEngine], Any]: ...
    @property
    def moving(self) -> Callable[[SimEngine, SimBacklogQueue], Any]: ...


class RunContext(Protocol):
    """The state of one run that its engines, senders and pumps use; `World` is the implementation."""

    plan: Plan
    random: Random
    clock: VirtualClock
    watch: RunRecord
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
        self.pumps: list[Any] = []
        self.pump_watches: list[Any] = []
        """The checkers of its pumps, by backlog queue."""
        self.pauses: set[PauseTarget] = set()
        """Operators' pauses in force, recorded from outside."""
        self.booted_at = self.paused_at = 0.0
        """Time of its start, and of the latest change of `pauses`."""
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
        self.state_watch = world.watch.states_of(self.name)
        self.rotation_watch = world.watch.rotation_of(self.name)
        self.memories: dict[tuple[int, str], SenderMemory] = {}
        self.pauses = set()
        self.booted_at = self.clock.now
        self._armed: float | None = None
        world.watch.log(f"{self.name} starts")
        for entity in world.plan.entities:  # like an engine with configured entities
            self.machine.entity(entity.path, at=self.clock.now)
        if self.syphon:
            self.delivery = world.parts.delivery(self)
            self.pumps = [world.parts.moving(self, queue) for queue in world.queues]
            self.pump_watches = [pump.watch for pump in self.pumps]
            for pump in self.pumps:
                self.clock.start(pump.run(), self.processes)

    def crash(self) -> None:
        """Die; the calls in progress get no answer."""
        if not self.alive:
            return
        self.world.watch.log(f"{self.name} crashes")
        self.state_watch.check_end(self.clock.now)
        self.alive = False
        self._arms += 1
        self._waiters, self.pumps, self.pump_watches = [], [], []
        self.world.watch.open_calls -= self.calls
        self.calls = 0
        kill(self.processes)

    def memory(self, sender: int, path: str) -> SenderMemory:
        """Return the memory of one paired sender."""
        return self.memories.setdefault((sender, path), SenderMemory(trial=self.machine.trial(path)))

    # -- the machine ------------------------------------------------------------------------------------------------

    def judge(self, failure: FailureKind) -> Judgement:
        return Judgement(failure, VERDICTS[failure], str(failure))

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
            self.rotation_watch.pulled(event.queue, FailureKind(event.reason))
        elif isinstance(event, QueueRestored):
            self.rotation_watch.restored(event.queue)
        if event.__class__ in CHANGES:
            self.wake()

    def wake(self, key: str | None = None) -> None:
        """Resume the processes that wait for a change, and the pumps that may have work now, for one destination."""
        for pump in self.pumps:
            pump.changed(key)
        if self._waiters:
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
        at = self.clock.now
        match act.verb:
            case "force":
                self._order(Forced(at=at, entity=act.path, by="anna", why="a drill"))
            case "pin":
                self._order(Pinned(at=at, entity=act.path, by="anna", why="a drill"))
            case "release":
                self._order(EntityReleased(at=at, entity=act.path, by="anna", why="over"))
            case "pause":
                self.pause(EVERYTHING)
            case "resume":
                self.resume(EVERYTHING)

    def pause(self, target: PauseTarget) -> None:
        """Pause the syphon: all of it, a backlog queue, or a destination."""
        if self._order(SyphonPaused(at=self.clock.now, by="anna", **_scope(target))):
            self.pauses.add(target)
            self.paused_at = self.clock.now

    def resume(self, target: PauseTarget) -> None:
        """Resume what was paused; a crash has resumed it, too."""
        if self._order(SyphonResumed(at=self.clock.now, by="anna", **_scope(target))):
            self.pauses.discard(target)
            self.paused_at = self.clock.now

    def _order(self, event: Event) -> bool:
        """Return whether the engine lives and its machine accepts the order."""
        if not self.alive:
            return False
        try:
            self.tell(event)
        except IllegalEventError as error:
            self.world.watch.log(f"{self.name} refuses an order: {error}")
            return False
        return True

    # -- reports of sends to the machine -----------------------------------------------------------------------------

    def accepted(self, path: str, queue: int | None, messages: int) -> None:
        if queue is not None:
            self.rotation_watch.answered(queue)
        self.tell(SendAccepted(at=self.clock.now, entity=path, queue=queue, messages=messages))

    def failed(self, path: str, queue: int | None, judgement: Judgement, messages: int) -> None:
        if judgement.kind is FailureKind.BUSY and self.syphon and self.delivery.rate is not None:
            self.delivery.rate.busy_at = self.clock.now
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
        self.rotation_watch.probed(effect.queue, accepted)
        self.tell(QueueProbed(at=self.clock.now, queue=effect.queue, accepted=accepted, reason=reason))


def _scope(target: PauseTarget) -> dict[str, Any]:
    what, which = target
    if what == "queue":
        return {"queue": which}
    return {"destination": which} if what == "destination" else {}


def _nothing() -> None:
    """Do nothing, like an attach."""
