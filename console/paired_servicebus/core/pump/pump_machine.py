"""The pump of one backlog queue as one pure state machine: `step(event) -> effects` (SPEC.md section 8).

It decides which message is taken, delivered, deferred, received again, dead-lettered, completed or released. The
adapters move bytes and report: two pumps in paired_servicebus.pairing.syphon, and one in paired_servicebus.simulation.

    a message arrives                        effect
    unreadable, expired, or not allowed      dead-letter (dead_letter_rules.py)
    moved before, completion unconfirmed     complete
    in hand; its first lock ended            relock
    older ones are deferred, or its          defer; release if the operator paused this queue;
    destination accepts nothing              dead-letter if it was deferred and its destination is missing for too long
    otherwise                                deliver

    a delivery ends                          effect
    accepted                                 publish its receipt, then complete
    the message's own fault                  dead-letter
    the destination's fault                  defer; dead-letter if the destination is missing for too long

A deferred message is older than every active one of its destination: it goes first, oldest first. The machine has no
clock, and no event about a message makes `step` raise.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from paired_servicebus.core.accounting.billing import SEARCH_INTERVAL_SECONDS
from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.model import pairing_events
from paired_servicebus.core.model.snapshot import MAX_DESTINATIONS, DestinationView
from paired_servicebus.core.model.verdict import FailureKind, Judgement
from paired_servicebus.core.pump import pump_events as e
from paired_servicebus.core.pump.dead_letter_rules import is_messages_fault, kind_for, not_allowed, refused
from paired_servicebus.core.pump.destination_circuits import DestinationCircuits
from paired_servicebus.core.pump.intake_limit import IntakeLimit, SyphonRateLimit
from paired_servicebus.core.text.number_format import plural

# The bytes of a pump's messages: how many more messages its queue may send, and how many one request receives.

FIRST_SIZE: Final = 256 * 1024
"""Assumed bytes of a message before the first."""
LEAST_SIZE: Final = 1024.0
"""Bytes of a message that are foreseen at least."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of messages in hand and in flight from the queue, by their foreseen size."""
CREDIT: Final = 2500
"""Messages in flight from the queue, at most."""
PORTION: Final = 250
"""Messages received again by one request, at most."""
PORTION_BYTES: Final = 256 * 1024


class MessageSizes:
    """The sizes that a pump has seen. in_hand: bytes of messages received and not settled."""

    def __init__(self) -> None:
        self.in_hand = 0
        self._largest = float(FIRST_SIZE)
        """Bytes of the largest recent message."""
        self._largest_recalled = 0
        """Bytes of the largest message that arrived since a request for deferred ones began."""

    def add(self, size: int) -> None:
        """Count a message that is now in hand."""
        self.in_hand += size
        if size > self._largest:
            self._largest = float(size)

    def add_recalled(self, size: int) -> None:
        """Note the size of a deferred message that was received again."""
        self._largest_recalled = max(self._largest_recalled, size)

    def recall_ended(self) -> None:
        """Foresee smaller messages after smaller ones came, so that the next request is for more."""
        if self._largest_recalled:
            self._largest = max(LEAST_SIZE, self._largest_recalled, self._largest / 2)
            self._largest_recalled = 0

    def credit(self, granted: int, *, room: int) -> int | None:
        """Return the number of messages that the queue may send next; None: as granted before."""
        wanted = max(0, min(CREDIT, room, int((MAX_BYTES - self.in_hand) / self._largest)))
        if wanted >= granted:
            if wanted <= 2 * granted:
                return None
            self._largest = max(LEAST_SIZE, self._largest / 2)  # the next portion shows their present size
        return wanted

    def portion(self) -> int:
        """Return how many deferred messages one request may receive."""
        return min(PORTION, max(1, int(PORTION_BYTES / self._largest)))


# The times of a pump's searches for deferred messages that it does not know.

RESCAN: Final = SEARCH_INTERVAL_SECONDS
"""Minimum seconds between two searches for messages that others deferred: each is billed."""
MISSED: Final = 60.0
"""Maximum seconds until the next search while a deferred message could not be received, and the minimum while the
queue contains messages that the pump does not know."""
SOON: Final = 5.0
"""Minimum seconds until the next search after a deferred message could not be received: its holder may be dead, and
the lock ends by itself."""
RATIO: Final = 30
"""Pause before the next search, as a multiple of the last one's duration."""


class SearchSchedule:
    """Times of a pump's searches for deferred messages: immediately, then every RESCAN seconds.

    After a miss the next follows within SOON, then after growing pauses up to MISSED while messages cannot be received.
    due_at: seconds since 1970.
    """

    __slots__ = ("_ended_at", "_missed", "_soon", "_took", "due_at")

    def __init__(self) -> None:
        self.due_at = 0.0
        self._missed = False
        self._soon = SOON
        self._took = 0.0
        self._ended_at = 0.0

    def unseen(self, now: float) -> None:
        """Search soon: the queue contains unknown messages, perhaps deferred by an engine that died."""
        self.due_at = min(self.due_at, max(now, self._ended_at + max(MISSED, RATIO * self._took)))

    def missed(self, now: float) -> None:
        """Search soon: another engine, perhaps dead, has a deferred message."""
        if not self._missed:
            self._missed = True
            self.due_at = min(self.due_at, now + max(self._soon, RATIO * self._took))

    def began(self) -> None:
        """Handle the begin of a search."""
        self._soon = min(MISSED, 2 * self._soon) if self._missed else SOON
        self._missed = False

    def failed(self, now: float) -> None:
        """Pause after a failed search, so that a pump can do other work."""
        self.due_at = now + SOON

    def ended(self, now: float, *, took: float) -> None:
        """Handle the end of a search; took: seconds of work."""
        self._took = took
        self._ended_at = now
        self.due_at = now + max(self._soon if self._missed else RESCAN, RATIO * took)


# What one pump did since its start, for its queue's line on the screen.

NOT_STARTED: Final = "not started"
"""A pump's text until it is attached, or has failed to attach."""
MAX_REASONS: Final = 20
OTHER_REASONS: Final = "other reasons: the journal has each"


@dataclass(slots=True)
class PumpProgress:
    """One pump's work since its start."""

    moved: int = 0
    moved_to: Counter[str] = field(default_factory=Counter)
    """Moved messages by destination."""
    dead_lettered: int = 0
    dead_reasons: Counter[str] = field(default_factory=Counter)
    """Reasons of dead letters, at most MAX_REASONS of them; the rest count under OTHER_REASONS."""
    repeated: int = 0
    """Messages that may have arrived twice: in doubt after a lost link, or moved after their lock's end."""
    last_moved_at: float | None = None
    text: str = NOT_STARTED
    failing_since: float | None = None
    set_aside: int = 0
    set_aside_for: Mapping[str, int] = field(default_factory=dict)
    """Messages held back, by destination."""
    unconfirmed: Callable[[], int] = lambda: 0
    """Return the number of moved or dead-lettered messages that the queue has not confirmed."""
    note: str = ""
    """The reason why the pump is of the other kind, or ""."""

    @property
    def line(self) -> str:
        """The pump's text for the view of its queue."""
        parts = [self.text, self.note]
        if self.repeated:
            parts.insert(1, f"{plural(self.repeated, 'message')} may have arrived twice")
        return "; ".join(part for part in parts if part)

    def count_dead_letter(self, reason: str) -> None:
        """Count a dead letter with its reason."""
        self.dead_lettered += 1
        known = reason in self.dead_reasons or len(self.dead_reasons) < MAX_REASONS
        self.dead_reasons[reason if known else OTHER_REASONS] += 1


def most_parked(pumps: Iterable[PumpProgress]) -> tuple[DestinationView, ...]:
    """Return the destinations of an engine's pumps with the most messages held back, then moved."""
    held, moved, paths = Counter[str](), Counter[str](), dict[str, str]()
    for pump in pumps:
        for counts, total in ((pump.set_aside_for, held), (pump.moved_to, moved)):
            for path, count in counts.items():
                key = path.casefold()
                paths.setdefault(key, path)
                total[key] += count
    ranked = sorted(paths, key=lambda key: (-held[key], -moved[key], key))[:MAX_DESTINATIONS]
    return tuple(DestinationView(path=paths[key], set_aside=held[key], moved=moved[key]) for key in ranked)


WINDOW: Final = 5000
"""Messages in hand: received and not settled."""
MAX_REMEMBERED: Final = 100_000
"""Moved messages without confirmed completion, remembered against repeated sends."""
IN_VAIN: Final = 100
"""Deferred messages in a row that did not come, after which the rest counts as another engine's."""

_new: Final[Any] = tuple.__new__
"""Makes an effect of the usual way at half the price."""

M = TypeVar("M", bound=e.PumpMessage)
Effects = Sequence[e.PumpEffect[M]]


class PumpRules(Protocol):
    """The pairing's rules for its pumps; `PairingMachine` has them."""

    destinations: DestinationCircuits
    pace: SyphonRateLimit
    allowed: frozenset[str] | None
    """Keys of the destinations that the owner allows; None: all."""

    def may_deliver(self, path: str, *, at: float) -> bool:
        """Return whether this destination may be tried now."""

    def may_pump(self, queue: int) -> bool:
        """Return whether no operator has paused this backlog queue."""


class PumpMachine(Generic[M]):
    """The rules and the state of one pump.

    Args:
        queue: the backlog queue's index.
        progress: shared with a pump that replaces this one.
        intake: limits the messages that it takes; None: by the rate limit alone.

    deferred: messages deferred in the queue. search: the times of searches for more.
    """

    def __init__(
        self, rules: PumpRules, queue: int, *, progress: PumpProgress | None = None, intake: IntakeLimit | None = None
    ) -> None:
        self.queue = queue
        self.progress = progress or PumpProgress()
        self.deferred = e.DeferredByDestination()
        self.search = SearchSchedule()
        self._sizes = MessageSizes()
        self._rules = rules
        self._intake = intake or IntakeLimit(rules.pace)
        self._in_hand: dict[int, M] = {}
        self._moved: OrderedDict[int, str] = OrderedDict()
        """Ids of moved messages without confirmed completion, by number."""
        self._asked: dict[int, e.DeferredMessages] = {}
        """Messages requested by `Recall` that have not arrived, by number."""

    # -- queries ------------------------------------------------------------------------------------------------------

    @property
    def in_hand(self) -> int:
        """Messages received and not settled."""
        return len(self._in_hand)

    def messages(self) -> Iterable[M]:
        """Return the messages in hand."""
        return self._in_hand.values()

    def room(self, at: float) -> int:
        """Return how many more messages the pump takes now."""
        in_hand = len(self._in_hand)
        return int(min(WINDOW - in_hand, self._intake.left(in_hand, at)))

    def intake_left(self, at: float) -> float:
        """Return how many more messages its limit allows now; infinity: no limit."""
        return self._intake.left(len(self._in_hand), at)

    def credit(self, granted: int, at: float) -> int | None:
        """Return the number of messages that the queue may send next; None: as granted before."""
        wanted = self._sizes.credit(granted, room=self.room(at))
        if wanted is not None and wanted < granted and self.intake_left(at) >= granted:
            return None  # the rest is in flight; only a limit that shrank takes credit back
        return wanted

    def known(self) -> set[int]:
        """Return the numbers of messages in hand, requested, or deferred; a search ignores these."""
        return self._in_hand.keys() | self._asked.keys() | self.deferred.numbers()

    def recallable(self, at: float) -> list[str]:
        """Return the keys of destinations whose deferred messages may be received again."""
        ready: list[str] = []
        for key, found in list(self.deferred.by_key.items()):
            if not found.count:
                del self.deferred.by_key[key]
            elif found.numbers and (
                self._accepts(found.path, key, at) or self._rules.destinations.is_absent(found.path, at)
            ):
                ready.append(key)  # to be delivered, or dead-lettered
        return ready

    # -- events -------------------------------------------------------------------------------------------------------

    def step(self, event: e.PumpEvent[M]) -> Effects[M]:
        """Apply an event and return its effects.

        Raises:
            IllegalEventError: this is no event of a pump; nothing has changed.
        """
        handler = _HANDLERS.get(event.__class__)
        if handler is None:
            raise IllegalEventError(f"the pump does not handle {type(event).__name__}")
        effects: Effects[M] = handler(self, event)
        return effects

    def _arrived(self, event: e.MessageArrived[M]) -> Effects[M]:
        message, at, fault = event
        self._intake.took()
        if message.is_recalled:
            message.deferred_as = self._asked.pop(message.number, None)
            self._sizes.add_recalled(message.size)
        if fault:
            return self._dead_letter(message, fault, at)
        number, size = message.number, message.size
        has_id = bool(message.message_id)  # from our senders always (SPEC.md section 7.3), from others perhaps
        if has_id and self._moved.get(number) == message.message_id:  # delivered; only its completion was lost
            self._uncount(message)
            return (e.Complete([message]),)
        held = self._in_hand.get(number)
        if held is not None:
            if has_id and held.message_id == message.message_id:
                return self._relock(held, message)
            self._forget(held)  # a new queue whose numbers began again, or a message without an id
        self._in_hand[number] = message
        self._sizes.add(size)
        allowed = self._rules.allowed
        if allowed is not None and message.key not in allowed:
            return self._dead_letter(message, not_allowed(message.path), at)
        if self._may_go(message, at):
            return (_new(e.Deliver, (message, at)),)
        self._intake.gave_back()
        # A new message waits for a try of its own: the destination may exist by now.
        return self._hold_back((message,), at) if message.is_recalled else self._wait(message)

    def _relock(self, held: M, again: M) -> Effects[M]:
        self._uncount(again)
        held.is_recalled = again.is_recalled
        held.lock_ends = again.lock_ends
        return (e.Relock(held, again),)

    def _may_go(self, message: M, at: float) -> bool:
        """Return whether a message may be delivered now: nothing older of its destination waits."""
        requested = message.deferred_as
        if requested is not None:
            if requested.oldest < message.number:  # deferred since this one was requested
                return False
        elif (found := self.deferred.by_key.get(message.key)) is not None and found.has_older:
            return False
        return self._accepts(message.path, message.key, at)

    def _accepts(self, path: str, key: str, at: float) -> bool:
        stalled = self._rules.destinations.stalled
        return not (stalled and key in stalled) and self._rules.may_deliver(path, at=at)

    def _accepted(self, event: e.MessagesAccepted[M]) -> Effects[M]:
        messages, at = event
        destinations, progress, queue = self._rules.destinations, self.progress, self.queue
        failing, moved = destinations.open, self._moved
        receipts: list[pairing_events.Event] = []
        for message in messages:
            self._forget(message)
            moved[message.number] = message.message_id
            if failing and destinations.delivered(message.path, at=at, sent_at=message.sent_at):
                receipts.append(pairing_events.DestinationHealed(at=at, entity=message.path))
            receipts.append(
                pairing_events.Moved(at=at, entity=message.path, message_id=message.message_id, queue=queue)
            )
        while len(moved) > MAX_REMEMBERED:
            moved.popitem(last=False)
        progress.moved += len(messages)
        progress.moved_to.update(message.path for message in messages)
        progress.last_moved_at = at
        return (e.Publish(receipts), e.Complete(messages))

    def _failed(self, event: e.DeliveryFailed[M]) -> Effects[M]:
        path, messages, failure, at, in_doubt, alone = event
        if in_doubt:  # sent again, since they may not have arrived
            self.progress.repeated += len(messages)
        if is_messages_fault(failure.kind, alone=alone):
            return [effect for one in messages for effect in self._dead_letter(one, refused(path, failure.reason), at)]
        news = self._destination_failed(path, kind_for(failure.kind, alone=alone), failure, at)
        return [*news, *self._hold_back(messages, at)]

    def _destination_failed(self, path: str, kind: FailureKind, failure: Judgement, at: float) -> Effects[M]:
        destinations, news = self._rules.destinations, list[pairing_events.Event]()
        if kind is FailureKind.BUSY:
            limit = self._rules.pace.throttled(at)
            if limit is not None:
                text = f"the limit is {limit:,.0f} messages a second, and rises again with its capacity"
                news.append(pairing_events.Warned(at=at, about="syphon", text=f"{path} is throttled: {text}"))
        is_new = path.casefold() not in destinations.open
        circuit = destinations.failed(path, at=at, kind=kind, reason=failure.reason)
        if is_new:
            news.append(
                pairing_events.DestinationFailed(at=at, entity=path, reason=failure.reason, retry_at=circuit.retry_at)
            )
        return (e.Publish(news),) if news else ()

    def _hold_back(self, messages: Sequence[M], at: float) -> Effects[M]:
        """Defer messages whose destination accepts nothing now, or dead-letter them if it is missing for too long."""
        effects: list[e.PumpEffect[M]] = []
        for message in messages:
            reason = self._rules.destinations.undeliverable(message.path, at)
            effects += self._dead_letter(message, reason, at) if reason else self._wait(message)
        return effects

    def _settled(self, event: e.MessagesSettled[M]) -> Effects[M]:
        messages, outcome, is_done = event
        if outcome is e.Outcome.DEFERRED:
            for message in messages:
                self._deferral_ended(message, is_refused=is_done is False)
            return ()
        moved = self._moved
        for message in messages:
            if moved.get(message.number) != message.message_id:
                continue
            if is_done:
                del moved[message.number]
            elif is_done is False:  # another engine may have it now; this pump will not send it again
                self.progress.repeated += 1
        return ()

    def _deferral_ended(self, message: M, *, is_refused: bool) -> None:
        found = self.deferred.of(message.path, message.key)
        found.ended(message.number)
        is_deferred = message.is_recalled or not is_refused  # a recalled one was deferred before
        if is_deferred and message.number > 0:
            found.add(message.number)

    def _locks_lost(self, event: e.LocksLost[M]) -> Effects[M]:
        for message in event.messages:
            deferred = message.deferred_as
            self._forget(message)
            if deferred is not None:
                deferred.add(message.number)
        return ()

    def _withdrawn(self, event: e.MessagesWithdrawn[M]) -> Effects[M]:
        effects: list[e.PumpEffect[M]] = []
        for message in event.messages:
            effects += self._defer(message) if message.deferred_as else self._release(message)
        return effects

    # -- one message's end --------------------------------------------------------------------------------------------

    def _wait(self, message: M) -> Effects[M]:
        """Defer a message; one of a paused queue is released, since other engines may move it now."""
        if message.deferred_as is None and not self._rules.may_pump(self.queue):
            return self._release(message)
        return self._defer(message)

    def _defer(self, message: M) -> Effects[M]:
        self._forget(message)
        found = self.deferred.of(message.path, message.key)
        found.began(message.number)
        return (e.Defer(message),)

    def _release(self, message: M) -> Effects[M]:
        self._forget(message)
        return (e.Release(message),)

    def _dead_letter(self, message: M, reason: str, at: float) -> Effects[M]:
        self._forget(message)
        self.progress.count_dead_letter(reason)
        receipt = pairing_events.DeadLettered(
            at=at, entity=message.path, message_id=message.message_id, queue=self.queue, reason=reason
        )
        return (e.Publish((receipt,)), e.DeadLetter(message, reason))

    def _forget(self, message: M) -> None:
        if self._in_hand.get(message.number) is message:
            del self._in_hand[message.number]
            self._sizes.in_hand -= message.size
        if message.deferred_as is not None:
            self._uncount(message)

    def _uncount(self, message: M) -> None:
        """Stop counting a message as deferred and received again."""
        if message.deferred_as is not None:
            message.deferred_as.in_hand -= 1
            message.deferred_as = None

    # -- deferred messages --------------------------------------------------------------------------------------------

    def _found(self, event: e.DeferredFound) -> Effects[M]:
        for path, number in event.messages:
            found = self.deferred.of(path, path.casefold())
            found.add(number)
            found.is_sorted = False  # it may be a duplicate of one that is being deferred
        return ()

    def _recall_due(self, event: e.RecallDue) -> Effects[M]:
        key, room, at = event
        found = self.deferred.by_key.get(key)
        if found is None or not found.numbers:
            return ()
        if not self._rules.destinations.undeliverable(found.path, at):
            if not self._accepts(found.path, key, at):
                return ()
        else:
            room = PORTION  # they are dead-lettered on arrival
        portion = min(self._sizes.portion(), self.room(at), room)
        if portion <= 0:
            return (e.AwaitRoom(key),)
        numbers = found.take(portion, requested=self._asked.keys())
        if not numbers:
            return (e.AwaitRoom(key),)
        found.in_hand += len(numbers)
        found.asked += len(numbers)
        self._asked.update(dict.fromkeys(numbers, found))
        return (e.Recall(key, found.path, numbers),)

    def _recall_ended(self, event: e.RecallEnded) -> Effects[M]:
        key, numbers, missing, failed, at = event
        self._sizes.recall_ended()
        for number in missing:
            self._asked.pop(number, None)
        found = self.deferred.by_key.get(key)
        if found is None:
            return ()
        found.asked -= len(numbers)
        found.in_hand -= len(missing)
        if failed:  # probably still there
            for number in missing:
                found.add(number)
        elif missing:  # another engine has them, alive or dead: the next search finds out
            self.search.missed(at)
        found.in_vain = found.in_vain + len(numbers) if len(missing) == len(numbers) and not failed else 0
        if found.in_vain >= IN_VAIN:  # other engines probably have the rest as well
            found.numbers.clear()
            found.in_vain = 0
        return ()

    def _counted(self, event: e.QueueCounted) -> Effects[M]:
        if event.messages > event.known:
            self.search.unseen(event.at)
        return ()

    # -- the pump itself ----------------------------------------------------------------------------------------------

    def _works(self, event: e.PumpWorks) -> Effects[M]:
        self.progress.failing_since = None
        return ()

    def _pump_failed(self, event: e.PumpFailed) -> Effects[M]:
        """Report the failure once, and not at every try."""
        reason, retry_in, at, todo = event
        self.progress.text = f"cannot receive: {reason}; {todo}" if todo else f"cannot receive: {reason}"
        if self.progress.failing_since is not None:
            return ()
        self.progress.failing_since = at
        return (
            e.Publish((pairing_events.PumpStopped(at=at, queue=self.queue, reason=reason, retry_at=at + retry_in),)),
        )


_HANDLERS: Final[dict[type, Callable[[Any, Any], Effects[Any]]]] = {
    e.MessageArrived: PumpMachine._arrived,
    e.MessagesAccepted: PumpMachine._accepted,
    e.DeliveryFailed: PumpMachine._failed,
    e.DeliveryWithheld: lambda machine, event: machine._hold_back(*event),
    e.MessagesSettled: PumpMachine._settled,
    e.LocksLost: PumpMachine._locks_lost,
    e.MessagesWithdrawn: PumpMachine._withdrawn,
    e.DeferredFound: PumpMachine._found,
    e.RecallDue: PumpMachine._recall_due,
    e.RecallEnded: PumpMachine._recall_ended,
    e.QueueCounted: PumpMachine._counted,
    e.PumpWorks: PumpMachine._works,
    e.PumpFailed: PumpMachine._pump_failed,
}
