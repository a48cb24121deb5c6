"""The World's parts for a rehearsal: they count a run's requests and skip work that changes no result.

Skipped work draws no random number and has no effect, so the same seed gives the same run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final

from paired_servicebus.core.failover.send_router import PRIMARY
from paired_servicebus.core.model.pairing_events import Event, SendsCounted, StateChanged
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.pipeline.rehearsal.histories.recorded_history import RecordedHistory
from paired_servicebus.simulation.run_plan import RESCAN, PlannedCall, QueuePlan
from paired_servicebus.simulation.sim_engine import SimEngine
from paired_servicebus.simulation.sim_messages import BEGAN, SimMessage
from paired_servicebus.simulation.sim_namespaces import HeldMessage, SimBacklogQueue
from paired_servicebus.simulation.sim_pump import RENEWAL, SimPump
from paired_servicebus.simulation.sim_sender import SimSender
from paired_servicebus.simulation.virtual_clock import Steps, VirtualClock
from paired_servicebus.simulation.world import World, WorldParts


class CountedWorld(World):
    """A World that its parts report to; `policy_replay.Replay` implements it."""

    history: RecordedHistory
    lying: Counter[str]
    """Messages in backlog queues, by entity."""
    pings: int
    is_ever_paused: bool

    @property
    def past_the_end(self) -> bool:
        """Whether the record has ended and the run only settles."""
        return self.clock.now >= BEGAN + self.history.seconds

    def refused(self, path: str, began: float) -> None:
        """Record a failed call that began at `began`."""
        raise NotImplementedError

    def served(self, path: str) -> None:
        """Record an accepted call, by either route."""
        raise NotImplementedError

    def changed(self, change: StateChanged) -> None:
        """Record a change of an entity's state."""
        raise NotImplementedError

    def last_skipped(self, key: str) -> float | None:
        """Return the due time of an entity's latest skipped call that was not counted; None if there is none."""
        raise NotImplementedError


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

    world: CountedWorld

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

    world: CountedWorld

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

    world: CountedWorld

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
