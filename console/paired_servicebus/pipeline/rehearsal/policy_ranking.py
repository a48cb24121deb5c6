"""The requested policies, their runs, and the figures of the runs: the recommended policy with its reason.

A run for every policy and seed, in independent chunks; its row is the same wherever and whenever its chunk is run. For
each policy the figures are the median and the extremes of its runs. The weights are shown with the result: a second of
refused sends counts one, a failover FAILOVER, since it parks messages, loses order and may duplicate. The mean of all
readings decides; ties go to the fewest parked, then the lowest cost, then the first policy, which is the one in force.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from random import Random
from typing import Any, Final, NamedTuple

from paired_servicebus.core.accounting.billing import PARKED_MESSAGE_OPERATIONS
from paired_servicebus.core.accounting.ledger import SendOutcome
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.failover.send_router import PRIMARY
from paired_servicebus.core.model.entity_state import DIVERTING, State
from paired_servicebus.core.model.pairing_events import Event, SendsCounted, StateChanged
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.pipeline.rehearsal import recorded_history
from paired_servicebus.simulation.run_plan import (
    LOCK,
    RESCAN,
    EntityPlan,
    InjectedCondition,
    InjectedFault,
    Plan,
    PlannedCall,
    QueuePlan,
)
from paired_servicebus.simulation.sim_engine import SimEngine
from paired_servicebus.simulation.sim_namespaces import BEGAN, HeldMessage, SimBacklogQueue, SimMessage
from paired_servicebus.simulation.sim_pump import RENEWAL, SimPump
from paired_servicebus.simulation.sim_sender import SimSender
from paired_servicebus.simulation.virtual_clock import Steps, VirtualClock
from paired_servicebus.simulation.world import World, WorldParts

# One run of a RecordedHistory under one policy, through the shipped rules in the simulation's World.
#
# The seed decides how an ambiguous record is read. Seed 1 takes every outage at its longest, seed 2 at its shortest,
# other seeds draw between. The seed also draws the network's free choices.
#
# Quiet times are skipped: a healthy entity without faults or parked messages takes messages as if without pairing
# (SPEC.md section 6). They are counted, and played again shortly before the next incident.

# The World's parts for a rehearsal: they report to the Replay, and skip work that changes no result.
#
# Skipped work draws no random number and has no effect, so the same seed gives the same run.


class CountingQueue(SimBacklogQueue):
    """A queue that counts every message it ever took, and in `lying` the messages it holds by entity."""

    def __init__(
        self, index: int, plan: QueuePlan, clock: VirtualClock, expired_lock: Callable[..., None], lying: Counter[str]
    ) -> None:
        super().__init__(index, plan, clock, expired_lock)
        self.taken = 0
        self._lying = lying

    def take(self, letters: Sequence[SimMessage], hidden: float = 0.0) -> FailureKind | None:
        """Take messages and count them by entity."""
        failure = super().take(letters, hidden)
        if failure is None:
            self.taken += len(letters)
            for letter in letters:
                self._lying[letter.path.casefold()] += 1
        return failure

    def complete(self, locked: Sequence[tuple[HeldMessage, int]]) -> list[bool]:
        """Complete messages and count them out again."""
        settled = super().complete(locked)
        for (held, _), done in zip(locked, settled, strict=True):
            self._lying[held.letter.path.casefold()] -= done
        return settled

    def _bury(self, held: HeldMessage, reason: str) -> None:
        super()._bury(held, reason)
        self._lying[held.letter.path.casefold()] -= 1


class CountedEngine(SimEngine):
    """An engine that counts its state changes and pings."""

    world: Replay

    def start(self) -> None:
        """Start without counted sends."""
        self._counted: dict[str, float] = {}
        """By entity: the time of the latest accepted send that the machine has not counted yet."""
        super().start()

    def accepted(self, path: str, queue: int | None, messages: int) -> None:
        """Accept a send; a healthy entity's sends are only counted here, as senders do it."""
        if queue is not None:
            return
        if path.casefold() in self.machine.settled:
            self._counted[path.casefold()] = self.clock.now
        else:
            super().accepted(path, queue, messages)

    def _tick(self, arm: int) -> None:
        quiet = self.machine.quiet.next()
        if arm == self._arms and quiet is not None and quiet <= self.clock.now:
            self._tell_counted()
        super()._tick(arm)

    def _tell_counted(self) -> None:
        """Count skipped and pending sends before an entity can become quiet."""
        for entity in self.machine.entities():
            key = entity.path.casefold()
            skipped = self.world.last_skipped(key)
            if skipped is not None and skipped >= entity.since:
                self.state_watch.send_answered(key, skipped, None)
            latest = max(skipped or 0.0, self._counted.pop(key, 0.0))
            if latest >= entity.since:
                self.tell(SendsCounted(at=latest, entity=key, route=str(PRIMARY), accepted=1, failed=0, seconds=0.0))

    def _announced(self, event: Event) -> None:
        super()._announced(event)
        if isinstance(event, StateChanged):
            self.world.changed(event)

    def ping(self, effect: Any) -> Steps:
        """Count the ping and send it."""
        self.world.pings += 1
        yield from super().ping(effect)


class CountedSending(SimSender):
    """A call that is counted, and retried by a caller that insists."""

    world: Replay

    def call(self, order: PlannedCall, letters: Sequence[SimMessage]) -> Steps:
        """Send until the messages are accepted, or until the caller gives up."""
        world, path, began = self.world, self.destination.name, self.clock.now
        self.engine.calls += 1
        self.world.watch.open_calls += 1
        left = list(letters)
        while True:
            yield from self.deliver(left, order.timeout)
            if not left:
                world.served(path)
                break
            world.refused(path, began)
            if world.history.insists is None or world.past_the_end:
                break
            yield from self.clock.sleep(self.clock.now + world.history.insists)
        for letter in left:
            self.world.watch.told(letter, self.answer(letter))
        self.engine.calls -= 1
        self.world.watch.open_calls -= 1


class FrugalMoving(SimPump):
    """A pump that does not poll an empty queue, and leaves messages in it while none of them may be delivered.

    Deferring and recalling them would keep their order.
    """

    world: Replay

    def cycle(self) -> Steps:
        """Run a cycle of the usual pump if there is a message to deliver."""
        if self.queue.held and not self._is_any_deliverable():
            yield from self._renew()
            yield from self.wait(self._next_look())
        elif self.queue.held or self.machine.in_hand or self.machine.deferred or self.world.is_ever_paused:
            yield from super().cycle()
        else:
            yield from self._first_message()

    def _is_any_deliverable(self) -> bool:
        machine, now = self.engine.machine, self.clock.now
        stalled = machine.destinations.stalled
        paths = [path for path, count in self.world.lying.items() if count > 0 and path not in stalled]
        return any(machine.may_deliver(path, at=now) for path in paths)

    def _next_look(self) -> float:
        """Return when a destination is tried again, or a lock has to be renewed."""
        now = self.clock.now
        until = min(self._next_try(), now + RESCAN)
        ends = min((message.lock_ends for message in self.machine.messages()), default=inf)
        return max(min(until, ends - RENEWAL), now + 1.0)

    def _first_message(self) -> Steps:
        """Wait for the first message. Searches in the meantime would find no deferred messages, and are skipped."""
        clock, search = self.clock, self.machine.search
        if clock.now >= search.due_at:
            search.due_at = clock.now + RESCAN
        self.queue.waiters[self.wake] = None
        yield from self.wait(inf)
        search.due_at += max(0.0, (clock.now - search.due_at) // RESCAN + 1) * RESCAN

    def changed(self, key: str | None = None) -> None:
        """End the wait: messages that were left in the queue may go now."""
        self.wake()

    def search(self) -> Steps:
        """Search for deferred messages unless the queue is empty."""
        if self.queue.held:
            yield from super().search()


PARTS: Final = WorldParts(engine=CountedEngine, sending=CountedSending, moving=FrugalMoving)


LONGEST: Final = 1
SHORTEST: Final = 2
MARGIN: Final = 1.0
"""Seconds before something happens from which on messages are played again."""
FLAP: Final = 600.0
"""Seconds within which a failback that is followed by another failover of the same entity was a flap."""
LEAST_OUTAGE: Final = 0.001
CAPACITY: Final = 10_000_000
"""Messages. The record does not hold queue depths; an outage has the kind "full" when a queue was full."""


class RunOutcome(NamedTuple):
    """The result of one run. Whole numbers, so that sums do not depend on order; times in milliseconds."""

    failovers: int
    flaps: int
    failed_over_ms: int
    unavailable_ms: int
    """Summed over entities: from the first call that failed to the next that was accepted."""
    accepted: int
    refused: int
    """Messages whose last answer was a failure or a timeout."""
    parked: int
    duplicates: int
    out_of_order: int
    pings: int
    operations: int
    """Operations beyond a healthy day: pings, and the extra cost of each parked message."""
    lost: int
    broken: int
    """Unexpected messages, messages that never left a backlog queue, and calls without an end: a defect of ours."""


COLUMNS: Final = RunOutcome._fields


def replay(history: recorded_history.RecordedHistory, policy: Policy, seed: int) -> RunOutcome:
    """Run it."""
    return Replay(history, policy, seed).outcome()


# -- reading the record --------------------------------------------------------------------------------------------


def plan_of(history: recorded_history.RecordedHistory, policy: Policy, seed: int) -> Plan:
    """Return the plan of one reading of the record."""
    random = Random(f"reading {seed}")
    quiet = 2 * LOCK + 3 * RESCAN
    plan = Plan(
        policy=policy,
        entities=tuple(EntityPlan(path=path, capacity=CAPACITY) for path in history.entities),
        queues=(QueuePlan(capacity=CAPACITY),) * history.queues,
        syphons=(True,),
        faults=tuple(_read(outage, seed, random) for outage in history.outages),
        crashes=history.crashes,
        acts=history.acts,
        heals_at=history.seconds,
        ends_at=history.seconds + quiet,
    )
    within = plan.back_within + 9 * policy.ping_primary_interval
    return replace(plan, ends_at=plan.ends_at + within)


def _read(outage: recorded_history.Outage, seed: int, random: Random) -> InjectedFault:
    """Return one reading of an outage. Every seed draws equally often, so that readings differ in nothing else."""
    began, ended, draw = random.random(), random.random(), random.random()
    if seed == LONGEST:
        began, ended = 0.0, 1.0
    elif seed == SHORTEST:
        began, ended = 1.0, 0.0
    at = _between(outage.began, began)
    ends = max(at + LEAST_OUTAGE, _between(outage.ended, ended))
    conditions = recorded_history.CONDITIONS.get(outage.failure, (InjectedCondition.INTERNAL,))
    return InjectedFault(at, ends, (_key(outage.target),), conditions[int(draw * len(conditions))], outage.share)


def _key(target: str | int) -> str | int:
    return target.casefold() if isinstance(target, str) else target


def _between(span: recorded_history.TimeBounds, draw: float) -> float:
    return span.earliest + draw * span.width


# -- the run -----------------------------------------------------------------------------------------------------------


class Replay(World):
    """One run of a RecordedHistory."""

    def __init__(self, history: recorded_history.RecordedHistory, policy: Policy, seed: int) -> None:
        plan = plan_of(history, policy, seed)
        super().__init__(plan, seed, parts=PARTS)
        self.history = history
        self.network.refusal = history.refusal
        self.lying: Counter[str] = Counter()
        self.queues = [
            CountingQueue(index, queue, self.clock, self._lock_ended(index), self.lying)
            for index, queue in enumerate(plan.queues)
        ]
        self.pings = 0
        self.is_ever_paused = any(act.verb == "pause" for act in plan.acts)
        self.refused_since: dict[str, float] = {}
        self._served_at: dict[str, float] = {}
        self._unavailable = 0.0
        self._left: dict[str, float] = {}
        self._returned: dict[str, float] = {}
        self._failed_over = 0.0
        self._failovers = 0
        self._flaps = 0
        self._skipped = 0
        self._skipping: defaultdict[str, dict[CallFlow, None]] = defaultdict(dict)
        """By entity: the flows that skip calls not yet due or not yet counted."""
        self._incidents = {path: _incidents(plan, path) for path in self.destinations}

    def outcome(self) -> RunOutcome:
        """Run the history and return the result."""
        result = self.run()
        end = self.clock.now
        for path in tuple(self.refused_since):
            self.served(path)
        failed_over = self._failed_over + sum(end - at for at in self._left.values())
        parked = sum(queue.taken for queue in self.queues if isinstance(queue, CountingQueue))
        return RunOutcome(
            failovers=self._failovers,
            flaps=self._flaps,
            failed_over_ms=round(failed_over * 1000),
            unavailable_ms=round(self._unavailable * 1000),
            accepted=result.ledger.accepted + self._skipped,
            refused=sum(1 for answer in self.watch.answers.values() if answer is not SendOutcome.ACCEPTED),
            parked=parked,
            duplicates=result.ledger.duplicates,
            out_of_order=result.ledger.out_of_order,
            pings=self.pings,
            operations=self.pings + parked * (PARKED_MESSAGE_OPERATIONS - 2),
            lost=result.ledger.lost,
            broken=result.ledger.unexpected + result.stuck,
        )

    @property
    def past_the_end(self) -> bool:
        """Whether the record has ended and the run only settles."""
        return self.clock.now >= BEGAN + self.history.seconds

    # -- load -------------------------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        super()._lay_out()
        for number, load in enumerate(self.history.loads):
            for since, until, rate in load.spans(self.history.seconds):
                CallFlow(self, load, number, since, until, rate).arrange()

    def _letter(self, path: str, sessions: int) -> SimMessage:
        self._letters += 1
        body = f"m{self._letters}"
        return SimMessage(body, body, path, path.casefold(), self._letters)

    def skip(self, calls: int, flow: CallFlow) -> None:
        """Count calls that need not be played: each was accepted by the primary."""
        self._skipped += calls
        self._letters += calls
        self._skipping[flow.key][flow] = None

    def last_skipped(self, key: str) -> float | None:
        """Return the due time of an entity's latest skipped call that was not counted; None if there is none."""
        now, flows = self.clock.now - BEGAN, self._skipping[key]
        found = {flow: flow.last_skipped(now) for flow in flows}
        for flow in found:
            if not flow.is_skipping(now):
                del flows[flow]
        return max((BEGAN + at for at in found.values() if at is not None), default=None)

    def quiet_until(self, path: str) -> float | None:
        """Return the end of a healthy entity's quiet time (seconds since the beginning); None if it is not healthy."""
        now, key = self.clock.now - BEGAN, path.casefold()
        entity = self.engines[0].machine.entity(path, at=self.clock.now)
        if (
            entity.state is not State.HEALTHY
            or not entity.primary_good
            or self.destinations[key].faults
            or key in self.refused_since
            or self.lying[key]
        ):
            return None
        return next((at for at in self._incidents[key] if at >= now), self.history.seconds + MARGIN) - MARGIN

    # -- counted ----------------------------------------------------------------------------------------------------

    def refused(self, path: str, began: float) -> None:
        """Note a failed call that began then; others may have been accepted meanwhile."""
        self.refused_since.setdefault(path, max(began, self._served_at.get(path, began)))

    def served(self, path: str) -> None:
        """Note an accepted call, by either route."""
        self._served_at[path] = self.clock.now
        since = self.refused_since.pop(path, None)
        if since is not None:
            self._unavailable += max(0.0, min(self.clock.now, BEGAN + self.history.seconds) - since)

    def changed(self, change: StateChanged) -> None:
        """Note a change of an entity's state."""
        path, was, now = change.entity.casefold(), State(change.was), State(change.now)
        if now in DIVERTING and was not in DIVERTING:
            self._failovers += 1
            self._flaps += change.at - self._returned.get(path, -recorded_history.FOREVER) < FLAP
            self._left[path] = change.at
        elif was in DIVERTING and now not in DIVERTING:
            self._failed_over += change.at - self._left.pop(path, change.at)
            self._returned[path] = change.at


def _incidents(plan: Plan, path: str) -> list[float]:
    """When something happens to an entity from outside."""
    times = [fault.at for fault in plan.faults if path in fault.targets]
    times += [act.at for act in plan.acts if act.path.casefold() in ("", path)]
    times += [time for crash in plan.crashes for time in (crash.at, crash.back)]
    return sorted(times)


class CallFlow:
    """The calls of one step of one load."""

    def __init__(
        self, world: Replay, load: recorded_history.OfferedLoad, sender: int, since: float, until: float, rate: float
    ) -> None:
        self._world = world
        self._load = load
        self._sender = sender
        self._since, self._until, self._rate = since, until, rate
        self._phase = world.random.random()
        self._next = 0
        self._in_hand = 0
        self._skipped_to = 0
        self.key = load.path.casefold()

    def last_skipped(self, now: float) -> float | None:
        """When the latest of the calls was due that were not played; None: they are yet to come."""
        number = min(recorded_history.calls_before(now - self._since, self._rate, self._phase), self._skipped_to) - 1
        return self._time_of(number) if number >= 0 else None

    def is_skipping(self, now: float) -> bool:
        """Whether calls that are not played are yet to come."""
        return self._time_of(self._skipped_to - 1) > now

    def _time_of(self, number: int) -> float:
        return self._since + (number + self._phase) / self._rate

    def arrange(self) -> None:
        """Arrange the next call."""
        due = self._time_of(self._next)
        if due < self._until:
            self._world.clock.at(BEGAN + due, self._due)

    def _due(self) -> None:
        world, path = self._world, self._load.path
        quiet = world.quiet_until(path)
        first = 0
        if quiet is not None:
            first = recorded_history.calls_before(min(quiet, self._until) - self._since, self._rate, self._phase)
        if first > self._next:
            world.skip(first - self._next, self)
            self._next = self._skipped_to = first
        else:
            self._play(path)
            self._next += 1
        self.arrange()

    def _play(self, path: str) -> None:
        if self._load.waits and self._in_hand:
            return  # it has no time for this one
        world, engine = self._world, self._world.engines[0]
        if not engine.alive:
            return
        letters = [world._letter(path, 0)]
        world.watch.offered(letters)
        call = PlannedCall(world.clock.now - BEGAN, 0, self._sender, path, 1)
        sending = CountedSending(engine, self._sender, path)
        steps = self._alone(sending, call, letters) if self._load.waits else sending.call(call, letters)
        world.clock.start(steps, engine.processes)

    def _alone(self, sending: CountedSending, call: PlannedCall, letters: list[SimMessage]) -> Steps:
        self._in_hand += 1
        yield from sending.call(call, letters)
        self._in_hand -= 1


FAILOVER: Final = 10.0
"""Seconds of refused sends that one failover is worth avoiding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure over all readings of the record: the middle one, the least and the greatest."""

    middle: int
    least: int
    greatest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """The figures of one policy."""

    policy: Policy
    figures: dict[str, Figure]
    score: float
    """Mean seconds, failovers counted in; less is better."""

    def __getitem__(self, name: str) -> Figure:
        return self.figures[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalResult:
    """Every policy's line, the one in force first; and the index of the recommended one."""

    lines: tuple[PolicyFigures, ...]
    best: int
    reason: str

    @property
    def recommended(self) -> Policy:
        """The policy."""
        return self.lines[self.best].policy


def rehearsed(order: Order, rows: Sequence[Row]) -> RehearsalResult:
    """Return the figures of all rows; their order does not matter."""
    runs: list[list[RunOutcome]] = [[] for _ in order.policies]
    for row in sorted(rows):
        runs[row[0]].append(RunOutcome(*row[2:]))
    lines = tuple(_line(policy, found) for policy, found in zip(order.policies, runs, strict=True))
    best = min(range(len(lines)), key=lambda index: _rank(lines[index], index))
    return RehearsalResult(lines=lines, best=best, reason=_reason(lines, best))


def _line(policy: Policy, runs: Sequence[RunOutcome]) -> PolicyFigures:
    figures = {name: _figure([getattr(run, name) for run in runs]) for name in COLUMNS}
    weighed = sum(run.unavailable_ms for run in runs) / 1000.0 + FAILOVER * sum(run.failovers for run in runs)
    return PolicyFigures(policy=policy, figures=figures, score=round(weighed / len(runs), 3))


def _figure(values: list[int]) -> Figure:
    values.sort()
    return Figure(middle=values[len(values) // 2], least=values[0], greatest=values[-1])


def _rank(line: PolicyFigures, index: int) -> tuple[int, float, int, int, int]:
    """Return the sort key of a policy: one that broke a rule is never recommended."""
    wrong = line["broken"].greatest + line["lost"].greatest
    return wrong, round(line.score, 1), line["parked"].middle, line["operations"].middle, index


def _reason(lines: Sequence[PolicyFigures], best: int) -> str:
    now, then = lines[0], lines[best]
    if not any(line["unavailable_ms"].greatest or line["failovers"].greatest for line in lines):
        return "under every policy nothing failed over and no sender was refused: there is nothing to choose by"
    if best == 0:
        return f"no other policy does better: {_weight(now)} weighed"
    told = "; ".join(_change(what, now, then) for what in ("unavailable_ms", "failovers", "parked", "duplicates"))
    sure = "" if _apart(now, then) else "; the record leaves readings in which the policy in force does as well"
    return f"{told}; {_weight(then)} weighed instead of {_weight(now)}{sure}"


def _weight(line: PolicyFigures) -> str:
    return f"{line.score:,.0f} s"


def _apart(now: PolicyFigures, then: PolicyFigures) -> bool:
    """Whether even its worst reading is better than the best one of the policy in force."""
    return _bound(then, "greatest") < _bound(now, "least")


def _bound(line: PolicyFigures, end: str) -> float:
    seconds: int = getattr(line["unavailable_ms"], end)
    failovers: int = getattr(line["failovers"], end)
    return seconds / 1000.0 + FAILOVER * failovers


def _change(name: str, now: PolicyFigures, then: PolicyFigures) -> str:
    before, after = now[name].middle, then[name].middle
    if name == "unavailable_ms":
        return f"senders are refused for {after / 1000:,.0f} s instead of {before / 1000:,.0f} s"
    what = {"failovers": "failovers", "parked": "messages parked", "duplicates": "duplicates"}[name]
    return f"{after:,} {what} as before" if after == before else f"{after:,} {what} instead of {before:,}"


RUNS_A_CHUNK: Final = 20
"""Small enough that the last chunks leave no processor idle for long, at some tenths of a second a run at worst."""
NAMES: Final = ("policy", "seed", *COLUMNS)

Row = tuple[int, ...]
"""By NAMES."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One rehearsal. `policies` begins with the one in force."""

    history: recorded_history.RecordedHistory
    policies: tuple[Policy, ...]
    seeds: int

    @property
    def runs(self) -> int:
        """Policy-seeds."""
        return len(self.policies) * self.seeds

    @property
    def chunks(self) -> int:
        """How many there are."""
        return -(-self.runs // RUNS_A_CHUNK)


def policies_of(
    current: Policy, *, intervals: Sequence[float], pings: Sequence[int], ping_intervals: Sequence[float]
) -> tuple[Policy, ...]:
    """Return the policy in force, then every combination that is another.

    Raises ConfigurationError: a value is out of its range.
    """
    asked = (
        replace(current, failover_interval=interval, failback_pings=count, ping_primary_interval=every)
        for interval, count, every in product(intervals, pings, ping_intervals)
    )
    return tuple(dict.fromkeys((current, *asked)))


def order_of(history: recorded_history.RecordedHistory, policies: Sequence[Policy], seeds: int) -> Order:
    """Return the order of a rehearsal.

    Raises ConfigurationError: fewer than two seeds, since the first two are the bounds.
    """
    if seeds < 2:
        raise ConfigurationError(f"--seeds is {seeds}; it must be 2 at least: the first two are the record's bounds")
    return Order(history=history, policies=tuple(policies), seeds=seeds)


def run_chunk(order: Order, chunk: int) -> Iterator[Row]:
    """Return the rows of a chunk. Neighbours are spread over chunks, so that each has its share of the long runs."""
    for index in range(chunk, order.runs, order.chunks):
        policy, seed = divmod(index, order.seeds)
        outcome = replay(order.history, order.policies[policy], seed + 1)
        yield (policy, seed + 1, *outcome)
