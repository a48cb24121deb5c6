"""A pump in the World: moves one backlog queue's messages, like paired_servicebus.pairing.syphon.sdk_pump.

Core decides whether a destination may be tried, when it is retried, and when its messages are undeliverable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from paired_servicebus.core.errors import EnvelopeError, PairedError
from paired_servicebus.core.model.envelope import EnvelopeProperties, remaining, unwrap
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.core.pump.destination_circuits import FATES, Fate
from paired_servicebus.simulation.run_plan import RESCAN, RESCAN_AFTER_MISS
from paired_servicebus.simulation.sim_engine import SimEngine
from paired_servicebus.simulation.sim_messages import SimMessage, unpark
from paired_servicebus.simulation.sim_namespaces import HeldMessage, SimBacklogQueue
from paired_servicebus.simulation.virtual_clock import Steps

BATCH: Final = 20
PACK: Final = 5
SETTLE: Final = 30.0
MESSAGES_FAULT: Final = frozenset(kind for kind, fate in FATES.items() if fate is Fate.DEAD_LETTERED)

Locked = tuple[HeldMessage, int]
"""A backlog message and its lock."""
Load = tuple[Locked, EnvelopeProperties]


class LinkBrokenError(PairedError):
    """The link to the backlog queue is unusable; the pump begins a new cycle."""


class SimPump:
    """The pump of one backlog queue.

    Overridden by planted bugs: `may_deliver`, `deliver_pack`, `settle`, `dead_letter`, `defer`, `find_set_aside`,
    `open_envelope`, `undeliverable`, `move`.
    """

    def __init__(self, engine: SimEngine, queue: SimBacklogQueue) -> None:
        self.engine = engine
        self.world = engine.world
        self.clock = engine.clock
        self.queue = queue
        self.aside: dict[str, list[int]] = {}
        """Numbers of deferred messages, by destination."""
        self.who = (engine.name, "syphon")
        self._scanned_at: float | None = None
        self._missed = False
        """Whether another engine held a requested deferred message."""

    def run(self) -> Steps:
        """Repeat cycles; a failure ends a cycle, not the pump."""
        engine, clock = self.engine, self.clock
        while True:
            while engine.machine.pauses.all:
                yield from engine.change(clock.now + 60.0)
            self._scanned_at = None
            try:
                while not engine.machine.pauses.all:
                    yield from self.cycle()
            except LinkBrokenError:
                yield from clock.sleep(clock.now + engine.machine.policy.syphon_retry_interval)

    def cycle(self) -> Steps:
        """Move the deferred messages that may go, in their order, then receive from the queue."""
        clock = self.clock
        if self._scanned_at is None or clock.now >= self.scan_due(self._scanned_at):
            self._missed = False
            yield from self.find_set_aside()
            self._scanned_at = clock.now
        for path in [path for path in self.aside if self.may_deliver(path)]:
            yield from self.move_deferred(path)
        if not self.queue.readable:
            yield from self._wait_for_work(self.scan_due(self._scanned_at))
            return
        received = yield from self.request(partial(self.queue.receive, BATCH))
        yield from self.move(received)

    def scan_due(self, scanned_at: float) -> float:
        """Return when to search for deferred messages: soon after a miss, since the engine holding them may be dead."""
        return scanned_at + (RESCAN_AFTER_MISS if self._missed else RESCAN)

    def _wait_for_work(self, until: float) -> Steps:
        """Wait for a message, a change, or the next try of a destination."""
        clock, process = self.clock, self.clock.current
        turn = process.turn
        self.queue.waiters.append(lambda: clock.wake(clock.now, process, turn))
        if self.aside:
            until = min(until, max(self.engine.machine.destinations.next_try() or until, clock.now + 1.0))
        yield from self.engine.change(until)

    def request(self, act: Any, unanswered: Callable[[], None] | None = None) -> Any:
        """Send a request to the queue. Raises LinkBrokenError. unheard: called before an act whose answer is lost."""
        condition = self.queue.met(self.world.random)
        failure, answer = yield from self.world.network.request(self.queue, condition, SETTLE, act, unanswered)
        if failure is not None and failure is not FailureKind.FULL:
            raise LinkBrokenError(f"{self.queue.name}: {failure}")
        return act() if failure is FailureKind.FULL else answer

    def may_deliver(self, path: str) -> bool:
        """Return whether the destination may be tried now."""
        return self.engine.machine.may_deliver(path, at=self.clock.now)

    # -- moving -----------------------------------------------------------------------------------------------------

    def move(self, received: Sequence[Locked]) -> Steps:
        """Move each destination's messages in their order, one destination after another."""
        for path, load in (yield from self.sorted(received)).items():
            # Deferred messages precede newer messages of their destination.
            if path in self.aside or not self.may_deliver(path):
                yield from self.defer(path, load)
            else:
                yield from self.deliver(path, load)

    def sorted(self, received: Sequence[Locked]) -> Any:
        """Group messages by destination; dead-message those without a valid one, and expired ones."""
        loads: dict[str, list[Load]] = {}
        for locked in received:
            try:
                content = self.open_envelope(locked[0])
            except EnvelopeError as error:
                yield from self.dead_letter([locked], str(error))
            else:
                loads.setdefault(content.path.casefold(), []).append((locked, content))
        return loads

    def open_envelope(self, held: HeldMessage) -> EnvelopeProperties:
        """Return the envelope's contents, with the time to live by the policy."""
        content = unwrap(held.letter.properties)
        if self.engine.machine.policy.ttl_policy == "restart" or content.time_to_live is None:
            return content
        left = remaining(content.time_to_live, parked_for=self.clock.now - held.enqueued_at)
        if left is None:
            raise EnvelopeError("expired in the backlog")
        return replace(content, time_to_live=left)

    def deliver(self, path: str, load: Sequence[Load]) -> Steps:
        """Deliver a load to its destination in packs; defer the messages that it does not accept now."""
        done = 0
        while done < len(load):
            if not self.may_deliver(path):  # asked anew each time: other pumps have tried it meanwhile
                yield from self.defer(path, load[done:])
                return
            pack = load[done : done + PACK]
            failure = yield from self.deliver_pack(path, pack)
            if failure in MESSAGES_FAULT and len(pack) > 1:
                failure, count = yield from self._one_by_one(path, pack)
                done += count
            elif failure is None or failure in MESSAGES_FAULT:
                yield from self.settle_result(path, pack, failure)
                done += len(pack)
                continue
            if failure is not None and failure not in MESSAGES_FAULT:
                yield from self.settle_result(path, load[done:], failure)
                return

    def _one_by_one(self, path: str, pack: Sequence[Load]) -> Any:
        """Deliver each message separately after a refused batch; return the last failure, and the number handled."""
        for count, one in enumerate(pack):
            if not self.may_deliver(path):
                return None, count
            failure = yield from self.deliver_pack(path, [one])
            if failure is not None and failure not in MESSAGES_FAULT:
                return failure, count
            yield from self.settle_result(path, [one], failure)
        return None, len(pack)

    def deliver_pack(self, path: str, pack: Sequence[Load]) -> Any:
        """Make one attempt; return its failure, or None."""
        world, watch, engine = self.world, self.world.watch, self.engine
        messages = [unpark(held.letter, content, (self.queue.index, held.number)) for (held, _), content in pack]
        timeout, began = engine.machine.policy.send_timeout, self.clock.now
        diverting = engine.machine.entity(path, at=self.clock.now).diverting if path in world.destinations else False
        watch.attempted(self.who, path, messages[0].body, diverting=diverting)
        failure = yield from self._attempt(path, messages, timeout)
        if watch.trace is not None:
            watch.log(f"{engine.name} moved {messages[0].body}+{len(messages) - 1} to {path}: {failure or 'accepted'}")
        watch.answered(self.who, path, failure, tried=began)
        watch.heard(engine.name, path, failure)
        return failure

    def _attempt(self, path: str, messages: list[SimMessage], timeout: float) -> Any:
        world = self.world
        destination = world.destinations.get(path)
        if destination is None:
            yield from self.clock.sleep(self.clock.now + 0.05)
            return FailureKind.NOT_FOUND
        condition = destination.met(world.random)
        failure, _ = yield from world.network.request(
            destination,
            condition,
            timeout,
            partial(destination.take, messages),
            partial(world.watch.unanswered, messages),
        )
        return failure

    def settle_result(self, path: str, load: Sequence[Load], failure: FailureKind | None) -> Steps:
        """Complete, dead-message or defer by the result; update the destination's circuit."""
        now, destinations = self.clock.now, self.engine.machine.destinations
        if failure is None:
            destinations.delivered(path, at=now)
            yield from self.settle(load)
        elif failure in MESSAGES_FAULT:
            yield from self.dead_letter([locked for locked, _ in load], f"refused: {failure}")
        else:
            kind = self.engine.judge(failure).kind
            destinations.failed(path, at=now, kind=kind, reason=str(kind))
            if self.undeliverable(path):
                yield from self.dead_letter([locked for locked, _ in load], "not found for too long")
            else:
                yield from self.defer(path, load)

    def undeliverable(self, path: str) -> bool:
        """Return whether the destination has been missing for too long."""
        return self.engine.machine.destinations.undeliverable(path, self.clock.now)

    # -- settlements ------------------------------------------------------------------------------------------------

    def settle(self, load: Sequence[Load]) -> Steps:
        """Complete the messages; one with a lost lock is delivered again."""
        yield from self.request(partial(self.queue.complete, [locked for locked, _ in load]))

    def dead_letter(self, locked: Sequence[Locked], reason: str) -> Steps:
        """Move the messages to the queue's dead-message queue."""
        for held, _ in locked:
            self.world.watch.dead_lettered(self.engine.name, held)
        yield from self.request(partial(self.queue.dead_letter, locked, reason))

    def defer(self, path: str, load: Sequence[Load]) -> Steps:
        """Defer the messages and remember their numbers."""
        locked = [one for one, _ in load]
        unanswered = partial(self.world.watch.deferred_unheard, self.queue.index, locked)
        yield from self.request(partial(self.queue.defer, locked), unanswered)
        self.aside.setdefault(path, []).extend(held.number for (held, _), _ in load)

    # -- deferred messages -------------------------------------------------------------------------------------------

    def move_deferred(self, path: str) -> Steps:
        """Deliver the messages deferred for a destination, oldest first, while it accepts them."""
        numbers = sorted(set(self.aside.pop(path)))
        while numbers:
            chunk, numbers = numbers[:BATCH], numbers[BATCH:]
            received = yield from self.receive_again(chunk)
            for destination, load in (yield from self.sorted(received)).items():
                yield from self.deliver(destination, load)
            if path in self.aside:  # it failed again: later messages wait behind it
                self.aside[path] += numbers
                return
            if numbers and not self.may_deliver(path):
                self.aside[path] = numbers
                return

    def receive_again(self, numbers: Sequence[int]) -> Any:
        """Receive deferred messages by number, one by one if the whole request fails."""
        found = yield from self.request(partial(self.queue.receive_deferred, numbers))
        if found is not None or len(numbers) == 1:
            self._missed = self._missed or found is None
            return found or []
        received: list[Locked] = []
        for number in numbers:
            received += yield from self.receive_again([number])
        return received

    def find_set_aside(self) -> Steps:
        """Peek through the queue for messages deferred by this engine before a crash, or by another syphon."""
        found = yield from self.request(self.queue.peek_deferred)
        known: dict[str, list[int]] = {}
        for held in found:
            try:
                path = unwrap(held.letter.properties).path.casefold()
            except EnvelopeError:
                path = ""
            known.setdefault(path, []).append(held.number)
        self.aside = known
