"""The World's parts as a rehearsal wants them: they count what a run is asked for, and leave out what changes nothing.

What is left out is nothing that the World draws for or that anybody would see: the same seed gives the same run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from paired_servicebus.core.failover.send_router import PRIMARY
from paired_servicebus.core.model.pairing_events import Event, SendsCounted, StateChanged
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.simulation.run_plan import RESCAN, PlannedCall, QueuePlan
from paired_servicebus.simulation.sim_engine import SimEngine
from paired_servicebus.simulation.sim_messages import SimMessage
from paired_servicebus.simulation.sim_namespaces import HeldMessage, SimBacklogQueue
from paired_servicebus.simulation.sim_pump import SimPump
from paired_servicebus.simulation.sim_sender import SimSender
from paired_servicebus.simulation.virtual_clock import Steps, VirtualClock
from paired_servicebus.simulation.world import WorldParts

if TYPE_CHECKING:
    from paired_servicebus.pipeline.rehearsal.policy_replay import Replay


class CountingQueue(SimBacklogQueue):
    """Knows how many messages it has ever taken, and in `lying` for whom it holds some."""

    def __init__(
        self, index: int, plan: QueuePlan, clock: VirtualClock, expired_lock: Callable[..., None], lying: Counter[str]
    ) -> None:
        super().__init__(index, plan, clock, expired_lock)
        self.taken = 0
        self._lying = lying

    def take(self, letters: Sequence[SimMessage], hidden: float = 0.0) -> FailureKind | None:
        """As every queue."""
        failure = super().take(letters, hidden)
        if failure is None:
            self.taken += len(letters)
            for letter in letters:
                self._lying[letter.path.casefold()] += 1
        return failure

    def complete(self, locked: Sequence[tuple[HeldMessage, int]]) -> list[bool]:
        """As every queue."""
        settled = super().complete(locked)
        for (held, _), done in zip(locked, settled, strict=True):
            self._lying[held.letter.path.casefold()] -= done
        return settled

    def _bury(self, held: HeldMessage, reason: str) -> None:
        super()._bury(held, reason)
        self._lying[held.letter.path.casefold()] -= 1


class CountedEngine(SimEngine):
    """An engine whose changes are counted."""

    world: Replay

    def start(self) -> None:
        """As every engine."""
        self._counted: dict[str, float] = {}
        """When the latest send was accepted that the machine was not told of."""
        super().start()

    def accepted(self, path: str, queue: int | None, messages: int) -> None:
        """As every engine; what is nothing new need not be told, as senders do not tell it."""
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
        """What was only counted, or not even played, before anything is called quiet."""
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
        """As every engine."""
        self.world.pings += 1
        yield from super().ping(effect)


class CountedSending(SimSender):
    """A call that is counted, and repeated by a caller that insists."""

    world: Replay

    def call(self, order: PlannedCall, letters: Sequence[SimMessage]) -> Steps:
        """Until it is accepted, or as often as its caller asks."""
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
    """A pump that asks an empty queue nothing, and leaves messages where they are as long as none of them may be
    delivered; taken out and set aside, they would go home in the same order."""

    world: Replay

    def cycle(self) -> Steps:
        """As every pump's, once there is something to deliver."""
        clock, lying = self.clock, self.world.lying
        if self.queue.held and not any(self.may_deliver(path) for path, count in lying.items() if count > 0):
            next_try = self.engine.machine.destinations.next_try() or clock.now + RESCAN
            yield from self.engine.change(min(max(next_try, clock.now + 1.0), clock.now + RESCAN))
        elif self.queue.held or self.aside or self.world.is_ever_paused:
            yield from super().cycle()
        else:
            yield from self._first_message()

    def _first_message(self) -> Steps:
        """Wait for one. Searches for what is set aside would have come and gone meanwhile, and found nothing."""
        clock, process = self.clock, self.clock.current
        turn = process.turn
        if self._scanned_at is None or clock.now - self._scanned_at >= RESCAN:
            self._scanned_at = clock.now
        self.queue.waiters.append(lambda: clock.wake(clock.now, process, turn))
        yield
        self._scanned_at += (clock.now - self._scanned_at) // RESCAN * RESCAN

    def find_set_aside(self) -> Steps:
        """What is set aside; nothing where nothing lies."""
        if self.queue.held:
            yield from super().find_set_aside()
        else:
            self.aside = {}


PARTS: Final = WorldParts(engine=CountedEngine, sending=CountedSending, moving=FrugalMoving)
