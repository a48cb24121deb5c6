"""An engine's deliveries in the World: one lane for each destination, shared by the engine's pumps.

Like the delivery on our own AMQP: a lane has one try in flight, which begins with one message and grows; the messages
of a try succeed and fail one by one. A silent destination's unsent messages return to their pumps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from paired_servicebus.core.model.envelope import EnvelopeProperties
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.core.pump.dead_letter_rules import is_messages_fault
from paired_servicebus.core.pump.pump_events import DeliveryFailed, DeliveryWithheld, MessagesAccepted, PumpEvent
from paired_servicebus.core.pump.pump_message import PumpMessage
from paired_servicebus.simulation.run_plan import LOCK
from paired_servicebus.simulation.run_record import PumpEvents
from paired_servicebus.simulation.sim_engine import SimEngine
from paired_servicebus.simulation.sim_messages import unpark
from paired_servicebus.simulation.sim_namespaces import HeldMessage, SimBacklogQueue
from paired_servicebus.simulation.virtual_clock import Steps

PACK: Final = 5
"""Messages of one try, at most."""
SIZE: Final = 16 * 1024
"""Bytes of every message, so that a pump asks for several deferred ones in one request."""
STALLED_SECONDS: Final = 1.0
"""Seconds without an answer after which unsent messages return to their pumps."""
OF_THE_LINK: Final = frozenset({FailureKind.TOO_LARGE})
"""Messages' faults that end the link, and with it all tries under way: a message is at fault if it is alone."""
IN_DOUBT: Final = frozenset({FailureKind.TIMEOUT, FailureKind.CONNECTION})


class LanePump(Protocol):
    """A pump, as deliveries use it."""

    queue: SimBacklogQueue
    watch: PumpEvents

    def apply(self, event: PumpEvent[SimBacklogMessage]) -> object:
        """Step the pump's machine and perform its effects."""


class SimBacklogMessage(PumpMessage):
    """A backlog message with its lock, and the envelope's contents; None: it is unreadable."""

    __slots__ = ("content", "held", "lock", "pump")

    def __init__(
        self,
        pump: LanePump,
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

    def room(self, key: str, pump: LanePump) -> int:
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

    def withdraw(self, pump: LanePump, numbers: set[int] | None = None) -> list[SimBacklogMessage]:
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


def _by_pump(messages: Iterable[SimBacklogMessage]) -> Iterable[tuple[LanePump, list[SimBacklogMessage]]]:
    found: dict[LanePump, list[SimBacklogMessage]] = {}
    for message in messages:
        found.setdefault(message.pump, []).append(message)
    return found.items()
