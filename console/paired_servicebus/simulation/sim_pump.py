"""A pump in the World: an adapter of the shipped machine (paired_servicebus.core.pump.pump_machine).

It does what the pump on our own AMQP does, without bytes: it receives while there is room, hands messages to its
engine's delivery, settles them in the background, renews locks, and receives deferred messages by number. A settlement
without an answer is tried again once; then its result is unknown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import Any, Final

from paired_servicebus.core.errors import EnvelopeError, PairedError
from paired_servicebus.core.model.envelope import EnvelopeProperties, unwrap
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.core.pump.dead_letter_rules import is_messages_fault, time_left
from paired_servicebus.core.pump.pump_events import (
    Complete,
    DeadLetter,
    Defer,
    DeferredFound,
    Deliver,
    DeliveryFailed,
    DeliveryWithheld,
    LocksLost,
    MessageArrived,
    MessagesAccepted,
    MessagesSettled,
    MessagesWithdrawn,
    Outcome,
    Publish,
    PumpEffect,
    PumpEvent,
    PumpMessage,
    Recall,
    RecallDue,
    RecallEnded,
    Release,
    Relock,
)
from paired_servicebus.simulation.run_plan import LOCK
from paired_servicebus.simulation.sim_engine import SimEngine
from paired_servicebus.simulation.sim_namespaces import HeldMessage, SimBacklogQueue, unpark
from paired_servicebus.simulation.virtual_clock import SimProcess, Steps

# An engine's deliveries in the World: one lane for each destination, shared by the engine's pumps.
#
# Like the delivery on our own AMQP: a lane has one try in flight, which begins with one message and grows; the messages
# of a try succeed and fail one by one. A silent destination's unsent messages return to their pumps.

PACK: Final = 5
"""Messages of one try, at most."""
SIZE: Final = 16 * 1024
"""Bytes of every message, so that a pump asks for several deferred ones in one request."""
STALLED_SECONDS: Final = 1.0
"""Seconds without an answer after which unsent messages return to their pumps."""
OF_THE_LINK: Final = frozenset({FailureKind.TOO_LARGE})
"""Messages' faults that end the link, and with it all tries under way: a message is at fault if it is alone."""
IN_DOUBT: Final = frozenset({FailureKind.TIMEOUT, FailureKind.CONNECTION})


class SimBacklogMessage(PumpMessage):
    """A backlog message with its lock, and the envelope's contents; None: it is unreadable."""

    __slots__ = ("content", "held", "lock", "pump")

    def __init__(
        self,
        pump: SimPump,
        held: HeldMessage,
        lock: int,
        content: EnvelopeProperties | None,
        *,
        at: float,
        is_recalled: bool,
    ) -> None:
        path = content.path if content is not None else ""
        super().__init__(
            path, path.casefold(), held.number, held.letter.message_id, SIZE, at + LOCK, is_recalled=is_recalled
        )
        self.pump = pump
        self.held = held
        self.lock = lock
        self.content = content


class Lane:
    """One destination's messages. allowed: of the next try. tries: so far. began: start of the latest."""

    __slots__ = ("allowed", "began", "is_busy", "tries", "under_way", "waiting")

    def __init__(self) -> None:
        self.began = 0.0
        self.waiting: deque[SimBacklogMessage] = deque()
        self.under_way = 0
        self.allowed = 1
        self.tries = 0
        self.is_busy = False


class SimDelivery:
    """The deliveries of one engine."""

    def __init__(self, engine: SimEngine) -> None:
        self.engine = engine
        self.world = engine.world
        self.clock = engine.clock
        self.who = (engine.name, "syphon")
        self.failed_at: dict[str, float] = {}
        """Time of each destination's latest failure."""
        self._lanes: dict[tuple[str, int | None], Lane] = {}
        """By destination, and by backlog queue if the pumps deliver apart."""
        self._apart = engine.world.plan.apart
        self.rate = engine.world.watch.rate_of(engine)

    # -- used by pumps ------------------------------------------------------------------------------------------------

    def room(self, key: str, pump: SimPump) -> int:
        """Return how many more messages the destination may get."""
        lane = self._lanes.get((key, pump.queue.index if self._apart else None))
        return 1 if lane is None else 2 * PACK - lane.under_way - len(lane.waiting)

    def give(self, message: SimBacklogMessage) -> None:
        """Send a message after the ones given before."""
        name = message.key, message.pump.queue.index if self._apart else None
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane()
        lane.waiting.append(message)
        if not lane.is_busy:
            lane.is_busy = True
            self.clock.start(self._send_all(message.path, message.key, lane), self.engine.processes)

    def withdraw(self, pump: SimPump, numbers: set[int] | None = None) -> list[SimBacklogMessage]:
        """Remove and return a pump's unsent messages: all of them, or of these numbers."""
        found: list[SimBacklogMessage] = []
        for lane in self._lanes.values():
            mine = [one for one in lane.waiting if one.pump is pump and (numbers is None or one.number in numbers)]
            if mine:
                found += mine
                lane.waiting = deque(one for one in lane.waiting if one not in mine)
        return found

    # -- sending ------------------------------------------------------------------------------------------------------

    def _send_all(self, path: str, key: str, lane: Lane) -> Steps:
        yield from self.clock.sleep(self.clock.now)  # messages of one read leave together
        while lane.waiting:
            if not self.engine.machine.may_deliver(path, at=self.clock.now):
                self._withhold(lane)
                break
            tried = [lane.waiting.popleft() for _ in range(min(lane.allowed, len(lane.waiting)))]
            yield from self._try(path, key, lane, tried)
        lane.is_busy = False
        self.engine.wake(key)

    def _try(self, path: str, key: str, lane: Lane, tried: Sequence[SimBacklogMessage]) -> Steps:
        now = self.clock.now
        for message in tried:
            message.sent_at = now
        lane.under_way, lane.tries, lane.began = len(tried), lane.tries + 1, now
        if not self._apart:
            self.clock.at(now + STALLED_SECONDS, self._check_stalled, key, lane, lane.tries)
        failures = yield from self._attempt(key, tried)
        lane.under_way = 0
        self.engine.machine.destinations.stalled.discard(key)
        self._report(path, lane, tried, failures)

    def _report(
        self,
        path: str,
        lane: Lane,
        tried: Sequence[SimBacklogMessage],
        failures: Sequence[FailureKind | None],
    ) -> None:
        """Report what each message met; unless it is the fault of single ones, return the waiting ones too."""
        now, healthy, is_alone = self.clock.now, True, len(tried) == 1
        by_failure: dict[FailureKind | None, list[SimBacklogMessage]] = {}
        for message, failure in zip(tried, failures, strict=True):
            by_failure.setdefault(failure, []).append(message)
        for failure, messages in by_failure.items():
            if failure is None:
                lane.allowed = min(PACK, lane.allowed + 1)
                for message in messages:
                    message.pump.watch.accepted(message.held)
                for pump, part in _by_pump(messages):
                    pump.apply(MessagesAccepted(part, now))
            elif is_messages_fault(self.engine.judge(failure).kind, alone=is_alone or failure not in OF_THE_LINK):
                for message in messages:
                    message.pump.apply(DeliveryFailed(path, [message], self.engine.judge(failure), now, alone=True))
            else:
                healthy, lane.allowed, self.failed_at[tried[0].key] = False, 1, now
                judgement, in_doubt = self.engine.judge(failure), failure in IN_DOUBT
                for pump, part in _by_pump(messages):
                    pump.apply(DeliveryFailed(path, part, judgement, now, in_doubt, is_alone))
        if not healthy:
            self._withhold(lane)

    def _withhold(self, lane: Lane) -> None:
        waiting, lane.waiting = list(lane.waiting), deque()
        for pump, messages in _by_pump(waiting):
            pump.apply(DeliveryWithheld(messages, self.clock.now))

    def _check_stalled(self, key: str, lane: Lane, tries: int) -> None:
        if self.engine.alive and lane.under_way and lane.tries == tries:
            self.engine.machine.destinations.stalled.add(key)
            self._withhold(lane)

    def _attempt(self, key: str, tried: Sequence[SimBacklogMessage]) -> Any:
        """Make one attempt; return each message's failure, or None."""
        world, watch, engine, began = self.world, self.world.watch, self.engine, self.clock.now
        messages = [
            unpark(one.held.letter, one.content, (one.pump.queue.index, one.number, one.held.enqueued_at))
            for one in tried
            if one.content
        ]
        diverting = key in world.destinations and engine.machine.entity(key, at=began).diverting
        watch.attempted(self.who, key, messages[0].body, diverting=diverting)
        watch.delivers(engine, key, messages[0].body)
        destination = world.destinations.get(key)
        if destination is None:
            yield from self.clock.sleep(began + 0.05)
            failures: Sequence[FailureKind | None] = [FailureKind.NOT_FOUND] * len(messages)
        else:
            condition = destination.met(world.random)
            timeout, unanswered = engine.machine.policy.send_timeout, partial(watch.unanswered, messages)
            act = partial(destination.take_each, messages)
            failure, answer = yield from world.network.request(destination, condition, timeout, act, unanswered)
            failures = answer if failure is None else [failure] * len(messages)
        if watch.trace is not None:
            watch.log(f"{engine.name} moved {[one.body for one in messages]} to {key}: {failures}")
        if self.rate is not None and FailureKind.BUSY in failures:
            self.rate.busy_at = self.clock.now
        for met in dict.fromkeys(failures):
            watch.answered(self.who, key, met, tried=began, is_alone=len(tried) == 1)
            watch.heard(engine.name, key, met)
        return failures


def _by_pump(messages: Iterable[SimBacklogMessage]) -> Iterable[tuple[SimPump, list[SimBacklogMessage]]]:
    found: dict[SimPump, list[SimBacklogMessage]] = {}
    for message in messages:
        found.setdefault(message.pump, []).append(message)
    return found.items()


BATCH: Final = 20
TICK: Final = 1.0
"""Seconds between two checks of what cannot go now."""
SETTLE: Final = 30.0
RENEWAL: Final = 20.0
"""Seconds before a lock's end at which it is renewed."""

Settling = tuple[Outcome | None, str, list[SimBacklogMessage]]
"""A settlement (None: a release), its reason, and its messages."""


class LinkBrokenError(PairedError):
    """The link to the backlog queue is unusable; the pump attaches again."""


class SimPump:
    """The pump of one backlog queue."""

    def __init__(self, engine: SimEngine, queue: SimBacklogQueue) -> None:
        self.engine = engine
        self.world = engine.world
        self.clock = engine.clock
        self.queue = queue
        self.machine = engine.world.parts.pump(engine.machine, queue.index)
        self.watch = engine.world.watch.pump_of(engine, queue)
        self._settling: list[Settling] = []
        self._is_settling = False
        self._unanswered: Sequence[SimBacklogMessage] = ()
        """Messages of the settlement under way."""
        self._is_paused = False
        self._recalls: set[str] = set()
        """Destinations whose deferred messages are being received."""
        self._waiting: tuple[SimProcess, int] | None = None
        self._elapsed = engine.machine.policy.ttl_policy == "elapsed"
        self._executors: dict[type, Callable[[Any], None]] = {
            Deliver: self._deliver,
            Publish: lambda effect: self.watch.published(effect.events),
            Complete: self._complete,
            Defer: self._defer,
            DeadLetter: self._dead_letter,
            Release: self._release,
            Relock: self._relock,
        }

    def run(self) -> Steps:
        """Attach again and again; a failure ends a link, not the pump."""
        engine, clock = self.engine, self.clock
        while True:
            while not self.is_open:
                self._is_paused = True
                self.apply(MessagesWithdrawn(engine.delivery.withdraw(self), clock.now))
                yield from self.wait(clock.now + 60.0)
            self._is_paused = False
            self.machine.search.due_at = 0.0
            try:
                while self.is_open:
                    yield from self.cycle()
            except LinkBrokenError:
                yield from clock.sleep(clock.now + engine.machine.policy.syphon_retry_interval)

    @property
    def is_open(self) -> bool:
        """Whether no operator has paused it."""
        return self.engine.machine.may_pump(self.queue.index)

    def cycle(self) -> Steps:
        """Search and renew what is due, start recalls, then receive from the queue or wait."""
        machine, now = self.machine, self.clock.now
        if now >= machine.search.due_at:
            machine.search.began()
            yield from self.search()
            self.watch.search_seconds = self.clock.now - now
            machine.search.ended(self.clock.now, took=self.watch.search_seconds)
        if machine.in_hand:
            yield from self._renew()
        if machine.deferred:
            for key in machine.recallable(self.clock.now):
                if key not in self._recalls:
                    self._recalls.add(key)
                    self.clock.start(self._recall(key), self.engine.processes)
        if not self.is_open:  # since the search began
            return
        credit = machine.credit(0, self.clock.now) if self.queue.readable else None
        if credit is not None:
            yield from self._receive(min(BATCH, credit))
        else:
            if self.queue.readable and self.engine.delivery.rate is not None:
                self.engine.delivery.rate.waits(self.clock.now)
            yield from self._wait_for_work()

    def _receive(self, most: int) -> Steps:
        """Receive messages from the queue; those in flight when the syphon is paused are released."""
        self.watch.receives()
        received = yield from self.request(partial(self.queue.receive, most))
        if self.is_open:
            for held, lock in received:
                self.take(held, lock)
        elif received:
            yield from self._try(partial(self.queue.release, received), None)

    def _wait_for_work(self) -> Steps:
        """Wait for a message, a change, a lock's end, or the next try of a destination."""
        clock, machine = self.clock, self.machine
        until = clock.now + TICK if self.queue.readable else machine.search.due_at
        if machine.deferred:
            until = min(until, self._next_try())
        if machine.in_hand:
            first = min(message.lock_ends for message in machine.messages())
            until = min(until, max(first - RENEWAL, clock.now + TICK))
        self.queue.waiters[self.wake] = None
        yield from self.wait(until)

    def _next_try(self) -> float:
        """Return when a failed destination is tried again; infinity: never, or it is being tried."""
        now, circuits = self.clock.now, self.engine.machine.destinations.open.values()
        return max(min((one.retry_at for one in circuits if one.retry_at > now), default=inf), now + TICK)

    def wait(self, until: float) -> Steps:
        """Wait for `wake`, at most until `until`."""
        process = self.clock.current
        self._waiting = process, process.turn
        self.clock.wake(until, *self._waiting)
        yield
        self._waiting = None

    def wake(self) -> None:
        """End the wait."""
        if self._waiting is not None:
            self.clock.wake(self.clock.now, *self._waiting)
            self._waiting = None

    def changed(self, key: str | None = None) -> None:
        """End the wait if deferred messages may go now, or the syphon is paused or resumed. key: of one destination."""
        if self._waiting is None:
            return
        deferred = self.machine.deferred.by_key
        if (key in deferred if key else deferred) or self.is_open is self._is_paused:
            self.wake()

    def request(self, act: Any) -> Any:
        """Send a request to the queue. Raises LinkBrokenError."""
        failure, answer = yield from self._try(act, None)
        if failure is not None:
            raise LinkBrokenError(f"{self.queue.name}: {failure}")
        return answer

    def _try(self, act: Any, unanswered: Callable[[], None] | None) -> Any:
        """Send a request; return its failure or None, and the answer. A full queue can still be read and settled."""
        condition = self.queue.met(self.world.random)
        failure, answer = yield from self.world.network.request(self.queue, condition, SETTLE, act, unanswered)
        return (None, act()) if failure is FailureKind.FULL else (failure, answer)

    # -- the machine --------------------------------------------------------------------------------------------------

    def take(self, held: HeldMessage, lock: int, *, is_recalled: bool = False) -> None:
        """Pass a locked message to the machine."""
        now, content, fault = self.clock.now, None, ""
        try:
            content = _open(held)
            left = time_left(content, parked_at=held.enqueued_at, now=now, elapsed=self._elapsed)
            if left is not content.time_to_live:
                content = replace(content, time_to_live=left)
        except EnvelopeError as error:
            fault = str(error)
        message = SimBacklogMessage(self, held, lock, content, at=now, is_recalled=is_recalled)
        self.watch.took(held, lock)
        effects = self.apply(MessageArrived(message, now, fault))
        rate = self.engine.delivery.rate
        if rate is not None:
            waits: Any = Defer | Release | DeadLetter if is_recalled and not fault else Defer | Release
            if not any(isinstance(effect, waits) for effect in effects):
                rate.used(self.clock.now)

    def apply(self, event: PumpEvent[SimBacklogMessage]) -> Sequence[PumpEffect[SimBacklogMessage]]:
        """Step the machine and perform its effects."""
        effects = self.machine.step(event)
        for effect in effects:
            self._executors[effect.__class__](effect)
        return effects

    def _deliver(self, effect: Deliver[SimBacklogMessage]) -> None:
        self.watch.gives(effect.message.held)
        self.engine.delivery.give(effect.message)

    def _complete(self, effect: Complete[SimBacklogMessage]) -> None:
        for message in effect.messages:
            self.watch.leaves(message.held, message.message_id)
        self._settle(Outcome.COMPLETED, "", *effect.messages)

    def _defer(self, effect: Defer[SimBacklogMessage]) -> None:
        message = effect.message
        self.watch.defers(message.held, message.key, is_recalling=message.key in self._recalls)
        self._settle(Outcome.DEFERRED, "", message)

    def _dead_letter(self, effect: DeadLetter[SimBacklogMessage]) -> None:
        self.watch.leaves(effect.message.held, effect.message.message_id)
        self.world.watch.dead_lettered(self.engine.name, effect.message.held)
        self._settle(Outcome.DEAD_LETTERED, effect.reason, effect.message)

    def _release(self, effect: Release[SimBacklogMessage]) -> None:
        self.watch.releases(effect.message.held)
        self._settle(None, "", effect.message)

    @staticmethod
    def _relock(effect: Relock[SimBacklogMessage]) -> None:
        effect.held.held, effect.held.lock = effect.again.held, effect.again.lock

    # -- settlements --------------------------------------------------------------------------------------------------

    def _settle(self, outcome: Outcome | None, reason: str, *messages: SimBacklogMessage) -> None:
        self._settling.append((outcome, reason, list(messages)))
        if not self._is_settling:
            self._is_settling = True
            self.clock.start(self._settle_all(), self.engine.processes)

    def _settle_all(self) -> Steps:
        while self._settling:
            outcome, reason, messages = self._settling.pop(0)
            while self._settling and self._settling[0][:2] == (outcome, reason):
                messages += self._settling.pop(0)[2]
            self._unanswered = messages
            done = yield from self._settle_batch(outcome, reason, messages)
            self._unanswered = ()
            if outcome is None:
                continue
            for is_done, group in groupby(zip(done, messages, strict=True), itemgetter(0)):
                self.apply(MessagesSettled([message for _, message in group], outcome, is_done))
            if outcome is Outcome.DEFERRED:
                for message, is_done in zip(messages, done, strict=True):
                    self.watch.deferred(message.held, message.key, is_done)
                self.changed()
        self._is_settling = False

    def _settle_batch(self, outcome: Outcome | None, reason: str, messages: Sequence[SimBacklogMessage]) -> Any:
        """Return for each message whether it is settled; None: unknown."""
        locked = [(message.held, message.lock) for message in messages]
        queue, unheard = self.queue, None
        act: Callable[[], list[bool]]
        if outcome is Outcome.COMPLETED:
            act = partial(queue.complete, locked)
        elif outcome is Outcome.DEFERRED:
            act = partial(queue.defer, locked)
            unheard = partial(self.world.watch.deferred_unheard, queue.index, locked)
        elif outcome is Outcome.DEAD_LETTERED:
            act = partial(queue.dead_letter, locked, reason)
        else:
            act = partial(queue.release, locked)
        failure, answer = yield from self._try(act, unheard)
        if failure is None:
            return answer
        failure, answer = yield from self._try(act, unheard)  # again, by lock token
        return [True if failure is None and is_done else None for is_done in answer or [False] * len(messages)]

    def _renew(self) -> Steps:
        """Renew locks that end soon; drop unsent messages with lost locks."""
        now, messages = self.clock.now, self.machine.messages()
        ending = [message for message in messages if message.lock_ends - now < RENEWAL]
        if not ending:
            return
        act = partial(self.queue.renew, [(message.held, message.lock) for message in ending])
        _failure, renewed = yield from self._try(act, None)
        for message, is_renewed in zip(ending, renewed or [], strict=False):
            if is_renewed:
                message.lock_ends = now + LOCK
        lost = {message.number for message in ending if message.lock_ends - self.clock.now < 1.0}
        if lost:
            withdrawn = self.engine.delivery.withdraw(self, lost)
            self.watch.lost(message.held for message in withdrawn)
            self.apply(LocksLost(withdrawn))

    # -- deferred messages --------------------------------------------------------------------------------------------

    def _recall(self, key: str) -> Steps:
        """Receive a destination's deferred messages, oldest first, while it accepts them."""
        try:
            yield from self._recall_all(key)
        finally:
            self._recalls.discard(key)

    def _recall_all(self, key: str) -> Steps:
        machine, clock = self.machine, self.clock
        while self.is_open:
            effects = machine.step(RecallDue(key, self.engine.delivery.room(key, self), clock.now))
            if not effects:
                return
            for effect in effects:
                if isinstance(effect, Recall):
                    yield from self._receive_again(effect)
                else:
                    yield from self.engine.change(clock.now + TICK)

    def _receive_again(self, recall: Recall) -> Steps:
        """Receive deferred messages; a request that fails for one of them is halved. A pause ends it."""
        self.watch.recalls(recall.numbers)
        missing, parts, failed = set(recall.numbers), [list(recall.numbers)], False
        while parts:
            part = parts.pop()
            failure, found = yield from self._try(partial(self.queue.receive_deferred, part), None)
            if failure is not None or not self.is_open:
                failed = True
                break
            if found is None and len(part) > 1:
                half = len(part) // 2
                parts += [part[half:], part[:half]]
            for held, lock in found or ():
                missing.discard(held.number)
                self.take(held, lock, is_recalled=True)
        self.watch.recalled(recall.key, missing, asked=len(recall.numbers), failed=failed)
        self.apply(RecallEnded(recall.key, recall.numbers, frozenset(missing), failed, self.clock.now))
        if failed:
            yield from self.clock.sleep(self.clock.now + TICK)
        elif missing:
            self.wake()  # for a search

    def search(self) -> Steps:
        """Peek through the queue for messages deferred by this engine before a crash, or by another syphon."""
        before = self.known()
        found = yield from self.request(self.queue.peek_deferred)
        known = before | self.known()
        unknown = [held for held in found if held.number not in known]
        self.watch.found(unknown)
        self.apply(DeferredFound([(_path(held), held.number) for held in unknown]))

    def known(self) -> set[int]:
        """Return the numbers of messages in hand, requested, deferred, or about to be settled."""
        settling = {message.number for *_, messages in self._settling for message in messages}
        return self.machine.known() | settling | {message.number for message in self._unanswered}


def _open(held: HeldMessage) -> EnvelopeProperties:
    """Open the envelope, once for all deliveries of the message. Raises EnvelopeError."""
    if held.opened is None:
        held.opened = unwrap(held.letter.properties)
    opened: EnvelopeProperties = held.opened
    return opened


def _path(held: HeldMessage) -> str:
    try:
        return _open(held).path
    except EnvelopeError:
        return ""
