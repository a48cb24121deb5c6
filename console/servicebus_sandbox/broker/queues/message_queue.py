"""A message queue: storing, delivery, locks, settling, expiry; its schedule, forwarding, and lines of receivers.

It serves queues, subscriptions and their dead-letter queues, which differ in limits and sessions
(`session_queue`). Locks belong to the queue: they outlive receivers, and a token settles its message from any link.
`intake` checks status, quota, size and duplicates before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from heapq import heappop, heappush, merge
from itertools import islice

from servicebus_sandbox.broker.broker_errors import (
    BrokerError,
    EntityDisabled,
    EntityNotFound,
    InvalidOperation,
    MessageHeld,
    MessageLockLost,
    MessageNotFound,
    QuotaExceeded,
    Throttled,
)
from servicebus_sandbox.broker.entity_settings import ReceivingSettings, seconds_or_none
from servicebus_sandbox.broker.message import Message, MessageState, MessageStore, StoredMessage, Travel
from servicebus_sandbox.broker.queues.agenda import MESSAGE_COST, Agenda, Deadlines, earliest
from servicebus_sandbox.broker.transaction import Act

# Scheduled messages: stored, listed, cancelled, and released when due. Delayed ones are only not visible yet.


class Schedule:
    """Scheduled messages; `release` gets each one when it is due and gives it a new sequence number."""

    def __init__(
        self,
        path: str,
        agenda: Agenda,
        new_number: Callable[[], int],
        release: Callable[[Message, float], object],
    ) -> None:
        self.path = path
        self.alarm: float | None = None
        self._agenda = agenda
        self._new_number = new_number
        self._release = release
        self._store = MessageStore()
        self._held: set[int] = set()
        """Numbers of messages whose cancellation belongs to a transaction."""
        self._due: Deadlines[int] = Deadlines(self._deadline)

    def __len__(self) -> int:
        return len(self._store)

    @property
    def size_bytes(self) -> int:
        return self._store.size_bytes

    def new_number(self) -> int:
        """Return the number of a message that a transaction may add."""
        return self._new_number()

    def add(self, message: Message, when: float, now: float, number: int | None = None) -> int:
        """Store the message until `when` (epoch seconds); return the number that cancels it.

        number: given before; default: a new one.
        """
        number = number or self._new_number()
        stored = StoredMessage(message, number, now, expires_at=when, state=MessageState.SCHEDULED)
        self._store.add(stored)
        self._await(stored)
        return number

    def cancel(self, numbers: Sequence[int]) -> None:
        """Remove these messages, all or none. Raises MessageNotFound if one is missing or held."""
        for stored in [self._free(number) for number in dict.fromkeys(numbers)]:
            self._store.remove(stored)

    def hold(self, numbers: Sequence[int]) -> Act:
        """Reserve a cancellation for a transaction: until its end the messages stay, even when due.

        Raises as `cancel`.
        """
        found = [self._free(number) for number in dict.fromkeys(numbers)]
        held = [stored.sequence_number for stored in found]
        self._held.update(held)

        def perform() -> None:
            self._held.difference_update(held)
            self.cancel(held)

        def release() -> None:
            self._held.difference_update(held)
            for stored in found:
                self._await(stored)

        return Act(check=lambda: [self._stored(number) for number in held], perform=perform, release=release)

    def _stored(self, number: int) -> StoredMessage:
        stored = self._store.get(number)
        if stored is None:
            raise MessageNotFound(self.path, number)
        return stored

    def _await(self, stored: StoredMessage) -> None:
        if stored.expires_at is not None:
            self._due.add(stored.expires_at, stored.sequence_number)
            self._agenda.call_at(stored.expires_at, self)

    def _free(self, number: int) -> StoredMessage:
        if number in self._held:
            raise MessageNotFound(self.path, number)
        return self._stored(number)

    def clear(self) -> None:
        self._store = MessageStore()

    def starting_at(self, number: int) -> Iterator[StoredMessage]:
        return self._store.starting_at(number)

    def run_due(self, now: float) -> float | None:
        for number in self._due.due(now):
            stored = self._store.get(number)
            if stored is not None and number not in self._held:
                self._store.remove(stored)
                self._release(stored.message, now)
        return self._due.next()

    def _deadline(self, number: int) -> float | None:
        stored = self._store.get(number)
        return stored.expires_at if stored is not None else None


class DelayedMessages:
    """Held messages; `arrive` gets each one when it is due, with the epoch seconds of its acceptance."""

    def __init__(self, agenda: Agenda, arrive: Callable[[Message, float], object]) -> None:
        self.alarm: float | None = None
        self._agenda = agenda
        self._arrive = arrive
        self._waiting: list[tuple[float, int, float, Sequence[Message]]] = []
        self._held = 0

    def hold(self, messages: Sequence[Message], until: float, now: float) -> None:
        """Hold messages that were accepted together until `until`."""
        self._held += 1
        heappush(self._waiting, (until, self._held, now, messages))
        self._agenda.call_at(until, self)

    def clear(self) -> None:
        self._waiting.clear()

    def run_due(self, now: float) -> float | None:
        while self._waiting and self._waiting[0][0] <= now:
            _, _, accepted_at, messages = heappop(self._waiting)
            for message in messages:
                self._arrive(message, accepted_at)
        return self._waiting[0][0] if self._waiting else None


# Auto-forwarding from one queue to another entity of the namespace.
#
# A full destination is retried. A message that can never arrive (no such entity, too large, no session id, too many
# hops) goes to the source's transfer dead-letter queue. The destination's status is ignored: the service forwards to
# disabled entities too. `intake` accepts forwarded messages.

MAX_HOPS = 4
RETRY_SECONDS = 1.0
TOO_MANY_HOPS = "MaxTransferHopCountExceeded"
_NO_TRAVEL = Travel()

Send = Callable[[str, Message], None]
"""A call that puts a message into the entity at a path. Raises BrokerError."""


class Forwarder:
    """The forwarding of `queue` to the entity at the path `target`, if that is set.

    `source` is set for a dead-letter queue: the path of the entity where the messages failed.
    """

    def __init__(
        self, queue: MessageQueue, agenda: Agenda, send: Send, failed: MessageQueue, *, source: str | None = None
    ) -> None:
        self.target: str | None = None
        self.alarm: float | None = None
        self._queue = queue
        self._agenda = agenda
        self._send = send
        self._failed = failed
        self._source = source

    def aim(self, target: str | None) -> None:
        """Forward all messages there, including those already in the queue; None ends it."""
        if target is not None and target != self.target and len(self._queue):
            self._agenda.call_at(self._agenda.clock(), self)
        self.target = target

    def pass_on(self, stored: StoredMessage) -> bool:
        """Forward a message; return False if it stays, because there is no target or it is full."""
        if self.target is None or self.alarm is not None:
            return False  # keep the order behind waiting messages
        before = stored.message.travel or _NO_TRAVEL
        if before.hops >= MAX_HOPS:
            self._failed.put_dead(stored, TOO_MANY_HOPS, f"forwarded {MAX_HOPS} times before '{self._queue.path}'")
            return True
        travel = Travel(
            hops=before.hops + 1,
            first_number=before.first_number or stored.sequence_number,
            dead_letter_source=self._source or before.dead_letter_source,
            added=stored.added,
        )
        try:
            self._send(self.target, replace(stored.message, travel=travel))
        except QuotaExceeded:
            self._agenda.call_at(self._agenda.clock() + RETRY_SECONDS, self)
            return False
        except BrokerError as error:
            reason = "DestinationNotFound" if isinstance(error, EntityNotFound) else "DestinationRefused"
            self._failed.put_dead(stored, reason, str(error))
        return True

    def run_due(self, now: float) -> float | None:
        """Retry the waiting messages in order, up to the first that still has to wait."""
        for stored in self._queue.waiting():
            if not self.pass_on(stored):
                return None  # `pass_on` has scheduled the retry, if one is needed
            self._queue.let_go(stored)
        return None


# One line of ready messages and its waiting receivers.
#
# A queue without sessions is one lane; each session is a lane. Messages leave by sequence number, returned ones too.
# Receivers take turns, one message each.


class Consumer:
    """A receiver of a lane. `credit` is the number of messages it may still get.

    `deliver` is called for each message, `lost` once when the entity or the session's lock is gone. With
    `settles_on_delivery` delivery removes the message (receive-and-delete).
    """

    __slots__ = ("credit", "deliver", "lane", "lost", "settles_on_delivery", "waiting")

    def __init__(
        self,
        deliver: Callable[[StoredMessage], None],
        lost: Callable[[BrokerError], None],
        *,
        settles_on_delivery: bool = False,
    ) -> None:
        self.deliver = deliver
        self.lost = lost
        self.settles_on_delivery = settles_on_delivery
        self.lane: Lane | None = None
        self.credit = 0
        self.waiting = False


class Lane:
    """Sequence numbers of ready messages, and consumers in turn.

    `ready` counts the messages in line. The number of an expired message stays until it comes up; the owner skips it
    and keeps `ready` correct.
    """

    __slots__ = ("_back", "_fresh", "consumers", "ready")

    def __init__(self) -> None:
        self._fresh: deque[int] = deque()  # ascending, the usual case
        self._back: list[int] = []  # a heap: returned and unordered numbers
        self.consumers: deque[Consumer] = deque()
        self.ready = 0

    def put(self, number: int) -> None:
        self.ready += 1
        if not self._fresh or number > self._fresh[-1]:
            self._fresh.append(number)
        else:
            heappush(self._back, number)

    def pop(self) -> int:
        """Return the lowest number in line. The caller lowers `ready` if the message still exists."""
        if self._back and (not self._fresh or self._back[0] < self._fresh[0]):
            return heappop(self._back)
        return self._fresh.popleft()

    def wait(self, consumer: Consumer) -> None:
        """Queue a consumer with credit."""
        if not consumer.waiting:
            consumer.waiting = True
            self.consumers.append(consumer)

    def leave(self, consumer: Consumer) -> None:
        if consumer.waiting:
            consumer.waiting = False
            self.consumers.remove(consumer)
        consumer.lane = None

    def next_consumer(self) -> Consumer | None:
        """Return the next consumer; consumers without credit leave the round."""
        while self.consumers:
            consumer = self.consumers[0]
            if consumer.credit > 0:
                self.consumers.rotate(-1)
                return consumer
            consumer.waiting = False
            self.consumers.popleft()
        return None


REASON, DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"
EXPIRED, TOO_OFTEN = "TTLExpiredException", "MaxDeliveryCountExceeded"


class Settling(Enum):
    """The end of a lock by its receiver."""

    COMPLETE = "the message is removed"
    ABANDON = "the delivery has failed and counts; the message is available again or, after too many, dead-lettered"
    RELEASE = "the message returns unseen, without counting"
    DEFER = "only `receive_deferred` returns the message from now on"
    DEAD_LETTER = "the message moves to the dead-letter queue"


@dataclass(frozen=True, slots=True)
class Settlement:
    """An outcome, whether it came on a link or as a request. reason, description: of a dead letter."""

    kind: Settling
    added: dict[str, object] | None = None
    reason: str = ""
    description: str = ""


COMPLETE, RELEASE = Settlement(Settling.COMPLETE), Settlement(Settling.RELEASE)


class MessageQueue:
    """One line of messages with its consumers.

    `dead_letters` gets failed and expired messages; a dead-letter queue has none. `scheduled` is only for peeks. Times
    are epoch seconds.
    """

    def __init__(
        self,
        path: str,
        settings: ReceivingSettings,
        agenda: Agenda,
        new_number: Callable[[], int],
        *,
        dead_letters: MessageQueue | None = None,
    ) -> None:
        self.path = path
        self.dead_letters = dead_letters
        self.scheduled: Schedule | None = None
        self.forwarder: Forwarder | None = None
        self.alarm: float | None = None
        self.accessed_at = agenda.clock()
        self._agenda = agenda
        self._is_lazy = agenda.expires_lazily
        self._counts = dead_letters is not None or agenda.behaves.count_dead_letter_deliveries
        self._credits = agenda.credits
        self._new_number = new_number
        self._store = MessageStore()
        self._lane = Lane()
        self._consumers: dict[Consumer, None] = {}
        self._tokens: dict[bytes, StoredMessage] = {}
        self._held: set[bytes] = set()
        """Tokens of messages whose settling belongs to a transaction."""
        self._locks: Deadlines[int] = Deadlines(self._lock_deadline)
        self._expiries: Deadlines[int] = Deadlines(self._expiry_deadline)
        self._lanes_to_serve: dict[Lane, None] = {}
        self.apply(settings)

    def apply(self, settings: ReceivingSettings) -> None:
        """Follow changed settings. A dead-letter queue has no expiry and no delivery limit."""
        is_dead = self.dead_letters is None
        self._lock_seconds = settings.lock_duration.total_seconds()
        self._ttl_seconds = None if is_dead else seconds_or_none(settings.default_ttl)
        self._max_deliveries = None if is_dead else settings.max_delivery_count
        self._buries_expired = settings.dead_letter_on_expiration
        self._can_receive = settings.status.can_receive
        self._is_partitioned = not is_dead and getattr(settings, "enable_partitioning", False)

    # ------------------------------------------------------------------ contents

    def __len__(self) -> int:
        return len(self._store)

    @property
    def size_bytes(self) -> int:
        return self._store.size_bytes

    @property
    def consumers(self) -> int:
        return len(self._consumers)

    def peek(self, from_number: int, count: int, session_id: str | None = None) -> list[StoredMessage]:
        """Return up to `count` messages with ascending sequence numbers, in any state, without changes."""
        streams = [self._store.starting_at(from_number)]
        if self.scheduled is not None:
            streams.append(self.scheduled.starting_at(from_number))
        found: Iterator[StoredMessage] = merge(*streams, key=lambda stored: stored.sequence_number)
        if session_id is not None:
            found = (stored for stored in found if stored.message.session_id == session_id)
        return list(islice(found, count))

    # ------------------------------------------------------------------ entering

    def put(
        self,
        message: Message,
        now: float,
        *,
        ttl_limit: float | None = None,
        enqueued_sequence_number: int | None = None,
    ) -> int:
        """Store a message at the end; return its sequence number. `ttl_limit` is a topic's default, in seconds."""
        number = self._new_number()
        stored = StoredMessage(message, number, now, enqueued_sequence_number=enqueued_sequence_number)
        if message.travel is not None:
            stored.enqueued_sequence_number = message.travel.first_number
            stored.dead_letter_source = message.travel.dead_letter_source
            stored.add_properties(message.travel.added)
        if self._is_partitioned and stored.enqueued_sequence_number is None:
            stored.enqueued_sequence_number = number
        forwarder = self.forwarder
        if forwarder is not None and forwarder.target is not None and forwarder.pass_on(stored):
            return number
        self._store.add(stored)
        ttl = message.ttl
        if self._ttl_seconds is not None or ttl_limit is not None:
            ttl = earliest(ttl, self._ttl_seconds, ttl_limit)
        if ttl is not None:
            stored.expires_at = now + ttl
            self._expiries.add(stored.expires_at, number)
            self._agenda.call_at(stored.expires_at, self)
        self._line_up(stored)
        return number

    def put_dead(self, stored: StoredMessage, reason: str, description: str) -> None:
        """Store a message that failed in this queue's owner, with its number and history; empty words are left out."""
        dead = StoredMessage(
            stored.message,
            stored.sequence_number,
            stored.enqueued_at,
            delivery_count=stored.delivery_count,
            enqueued_sequence_number=stored.enqueued_sequence_number,
            added=stored.added,
        )
        dead.add_properties({name: text for name, text in ((REASON, reason), (DESCRIPTION, description)) if text})
        if self.forwarder is not None and self.forwarder.pass_on(dead):
            return
        self._store.add(dead)
        self._line_up(dead)

    def waiting(self) -> list[StoredMessage]:
        """Return the messages that could be received now, in order."""
        self._be_looked_at()
        return list(self._unlocked())

    def delete_waiting(self, before: float, most: int, session_id: str | None = None) -> int:
        """Remove up to `most` active messages that were enqueued before that time; return the number removed.

        The oldest leave first. Locked, deferred and scheduled ones stay. Expired ones are removed like the others.
        """
        old = (stored for stored in self._unlocked() if stored.enqueued_at < before)
        if session_id is not None:
            old = (stored for stored in old if stored.message.session_id == session_id)
        found = list(islice(old, most))
        kept = 0 if self._agenda.behaves.exact_batch_delete else len(found) // 2
        for stored in found[kept:]:
            self.let_go(stored)
        return len(found)

    def _unlocked(self) -> Iterator[StoredMessage]:
        every = self._store.starting_at(0)
        return (stored for stored in every if stored.state is MessageState.ACTIVE and stored.lock_token is None)

    def let_go(self, stored: StoredMessage) -> None:
        """Remove a waiting message that was forwarded or deleted."""
        self._lane_of(stored).ready -= 1
        self._remove(stored)

    def _lane_of(self, stored: StoredMessage) -> Lane:
        return self._lane

    def _line_up(self, stored: StoredMessage) -> None:
        lane = self._lane_of(stored)
        lane.put(stored.sequence_number)
        if lane.consumers:
            self._serve(lane)

    def _serve(self, lane: Lane) -> None:
        self._lanes_to_serve[lane] = None
        self._agenda.want_dispatch(self)

    # ------------------------------------------------------------------ consumers

    def attach(self, consumer: Consumer) -> None:
        """Add a consumer, which receives when it has credit. Raises EntityDisabled, InvalidOperation."""
        self._check_receivable()
        consumer.lane = self._lane
        self._consumers[consumer] = None

    def grant(self, consumer: Consumer, credit: int) -> None:
        """Set the number of messages that the consumer may get from now on."""
        consumer.credit = credit
        lane = consumer.lane
        if credit > 0 and lane is not None:
            if self._is_lazy:
                self._be_looked_at()
            lane.wait(consumer)
            if lane.ready:
                self._serve(lane)

    def detach(self, consumer: Consumer) -> None:
        """Remove the consumer. The locks of its messages stay until they end."""
        self._consumers.pop(consumer, None)
        if consumer.lane is not None:
            consumer.lane.leave(consumer)

    def dismiss(self, reason: BrokerError) -> None:
        """Remove every consumer because the entity was deleted or disabled."""
        for consumer in list(self._consumers):
            self._end(consumer, reason)

    def _end(self, consumer: Consumer, reason: BrokerError) -> None:
        self.detach(consumer)
        consumer.lost(reason)

    def close(self, reason: BrokerError) -> None:
        """Drop all consumers and messages of a deleted entity, so that pending alarms do not keep them in memory."""
        self.dismiss(reason)
        self._store = MessageStore()
        self._lane = Lane()
        self._tokens.clear()

    def dispatch(self, now: float) -> None:
        """Deliver ready messages to consumers with credit, in turn."""
        lanes, self._lanes_to_serve = self._lanes_to_serve, {}
        bucket = self._credits
        for lane in lanes:
            while lane.ready and (consumer := lane.next_consumer()) is not None:
                if bucket is not None and not bucket.spend(MESSAGE_COST, now):
                    self._end(consumer, Throttled(self._agenda.namespace))
                    continue
                consumer.credit -= 1
                self._hand_over(self._take(lane), consumer, now)

    def _take(self, lane: Lane) -> StoredMessage:
        """Return the first message in line; one must exist."""
        stored = None
        while stored is None:
            stored = self._store.get(lane.pop())
        lane.ready -= 1
        return stored

    def _hand_over(self, stored: StoredMessage, consumer: Consumer, now: float) -> None:
        self.accessed_at = now
        if consumer.settles_on_delivery:
            self._remove(stored)
        else:
            self._lock(stored, now)
        consumer.deliver(stored)

    def _check_receivable(self) -> None:
        if self.forwarder is not None and self.forwarder.target is not None:
            raise InvalidOperation(f"'{self.path}' forwards its messages; receive from '{self.forwarder.target}'")
        if not self._can_receive:
            raise EntityDisabled(self.path, "disabled for receiving")

    # ------------------------------------------------------------------ locks

    def _lock(self, stored: StoredMessage, now: float) -> None:
        token = stored.lock_token = self._agenda.new_token()
        self._tokens[token] = stored
        self._hold_until(stored, now + self._lock_seconds)

    def _hold_until(self, stored: StoredMessage, until: float) -> None:
        stored.locked_until = until
        self._locks.add(until, stored.sequence_number)
        self._agenda.call_at(until, self)

    def renew(self, token: bytes) -> float:
        """Extend a message's lock by the lock duration; return its end. Raises MessageLockLost."""
        stored = self._locked(token)
        self._hold_until(stored, self._agenda.clock() + self._lock_seconds)
        return stored.locked_until

    def _locked(self, token: bytes) -> StoredMessage:
        stored = self._tokens.get(token)
        if stored is None:
            raise MessageLockLost(self.path)
        return stored

    def _unlock(self, token: bytes) -> StoredMessage:
        stored = self._locked(token)
        del self._tokens[token]
        stored.lock_token = None
        return stored

    # ------------------------------------------------------------------ settling

    def settle(self, token: bytes, settlement: Settlement) -> None:
        """End the lock of a message. Raises as `check_settling`."""
        self.check_settling(token, settlement)
        self._apply(token, settlement)

    def check_settling(self, token: bytes, settlement: Settlement) -> None:
        """Raise MessageLockLost for an unknown token, or one in a transaction; InvalidOperation to bury a dead letter.

        A list of messages is checked first, so that all are settled or none.
        """
        if settlement.kind is Settling.DEAD_LETTER and self.dead_letters is None:
            raise InvalidOperation(f"'{self.path}' is a dead-letter queue itself; complete the message instead")
        self._locked(token)
        if token in self._held:
            raise MessageHeld(self.path)

    def hold(self, token: bytes, settlement: Settlement) -> Act:
        """Reserve the settling of a message for a transaction: its lock goes on, no other act settles it.

        Raises as `check_settling`. The act cannot be done once the lock has ended.
        """
        self.check_settling(token, settlement)
        self._held.add(token)

        def perform() -> None:
            self._held.discard(token)
            self._apply(token, settlement)

        return Act(check=partial(self._locked, token), perform=perform, release=partial(self._held.discard, token))

    def _apply(self, token: bytes, settlement: Settlement) -> None:
        stored = self._unlock(token)
        kind = settlement.kind
        if kind is Settling.COMPLETE:
            self._remove(stored)
            return
        stored.add_properties(settlement.added)
        if kind is Settling.DEAD_LETTER:
            self._bury(stored, settlement.reason, settlement.description)
            return
        if kind is Settling.DEFER:
            stored.state = MessageState.DEFERRED
        self._give_back(stored, failed=kind is Settling.ABANDON)

    def receive_deferred(
        self, numbers: Sequence[int], *, settles_on_delivery: bool = False, session_id: str | None = None
    ) -> list[StoredMessage]:
        """Lock and return deferred messages by number: all of them, or MessageNotFound if one is missing.

        `session_id` must be held if there are sessions.
        """
        self._check_receivable()
        self._be_looked_at()
        found = [self._deferred(number, session_id) for number in dict.fromkeys(numbers)]
        now = self.accessed_at = self._agenda.clock()
        for stored in found:
            if settles_on_delivery:
                self._remove(stored)
            else:
                self._lock(stored, now)
        return found

    def _deferred(self, number: int, session_id: str | None) -> StoredMessage:
        stored = self._store.get(number)
        if stored is None or stored.state is not MessageState.DEFERRED or stored.lock_token is not None:
            raise MessageNotFound(self.path, number)
        return stored

    def _give_back(self, stored: StoredMessage, *, failed: bool) -> None:
        """End a lock; the message is ready again, deferred, expired or, after too many failures, dead-lettered."""
        stored.delivery_count += failed and self._counts
        limit = self._max_deliveries
        if failed and limit is not None and stored.delivery_count >= limit:
            self._bury(stored, TOO_OFTEN, f"{stored.delivery_count} deliveries of this message failed")
        elif stored.expires_at is not None and stored.expires_at <= self._agenda.clock():
            self._expire(stored)
        elif stored.state is MessageState.ACTIVE:
            self._line_up(stored)

    def _expire(self, stored: StoredMessage) -> None:
        if self._buries_expired:
            self._bury(stored, EXPIRED, "the message's time to live ended before it was received")
        else:
            self._remove(stored)

    def _bury(self, stored: StoredMessage, reason: str, description: str) -> None:
        self._remove(stored)
        if self.dead_letters is not None:
            self.dead_letters.put_dead(stored, reason, description)

    def _remove(self, stored: StoredMessage) -> None:
        self._store.remove(stored)

    # ------------------------------------------------------------------ time

    def run_due(self, now: float) -> float | None:
        """End the locks and messages that are due; return the next deadline."""
        for number in self._locks.due(now):
            stored = self._store.get(number)
            if stored is not None and stored.lock_token is not None:
                self._give_back(self._unlock(stored.lock_token), failed=True)
        if self._is_lazy and not self._is_watched():
            return self._locks.next()
        self._expire_due(now)
        return earliest(self._locks.next(), self._expiries.next())

    def _expire_due(self, now: float) -> None:
        for number in self._expiries.due(now):
            stored = self._store.get(number)
            if stored is not None and stored.lock_token is None:  # a locked one expires when its lock ends
                if stored.state is MessageState.ACTIVE:
                    self._lane_of(stored).ready -= 1
                self._expire(stored)

    def _is_watched(self) -> bool:
        """Return whether a receiver wants messages; then lazy expiry works on time."""
        return any(consumer.credit > 0 for consumer in self._consumers)

    def _be_looked_at(self) -> None:
        """Expire lazily what is due, and have the rest watched while receivers want messages."""
        if not self._is_lazy:
            return
        self._expire_due(self._agenda.clock())
        following = self._expiries.next()
        if following is not None:
            self._agenda.call_at(following, self)

    def _lock_deadline(self, number: int) -> float | None:
        stored = self._store.get(number)
        return stored.locked_until if stored is not None and stored.lock_token is not None else None

    def _expiry_deadline(self, number: int) -> float | None:
        stored = self._store.get(number)
        return stored.expires_at if stored is not None else None
