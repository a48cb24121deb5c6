"""A message queue with sessions: each is a lane with one consumer and one lock.

The lock belongs to the session and holds all its messages. As in the service, it does not expire while its holder waits
for messages. When it expires, deliveries in hand have failed; when the consumer leaves, they return uncounted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from servicebus_sandbox.broker.broker_errors import (
    BrokerError,
    InvalidOperation,
    MessageNotFound,
    SessionCannotBeLocked,
    SessionLockLost,
    SessionNeeded,
)
from servicebus_sandbox.broker.message import StoredMessage
from servicebus_sandbox.broker.queues.agenda import Deadlines, earliest
from servicebus_sandbox.broker.queues.message_queue import Consumer, Lane, MessageQueue
from servicebus_sandbox.broker.transaction import Act

Answer = Callable[["MessageSession | None"], None]


class MessageSession(Lane):
    """One session. `locked_until` is in epoch seconds; `locked` are the numbers of the holder's messages."""

    __slots__ = ("holder", "id", "locked", "locked_until", "offered", "state", "state_set_at")

    def __init__(self, session_id: str) -> None:
        super().__init__()
        self.id = session_id
        self.state: bytes | None = None
        self.state_set_at = 0.0
        self.holder: Consumer | None = None
        self.locked_until = 0.0
        self.locked: dict[int, None] = {}
        self.offered = False  # listed as available


@dataclass(slots=True)
class _Wait:
    consumer: Consumer
    until: float
    answer: Answer


class SessionTable:
    """All sessions of one queue. A session without ready message, holder and state is dropped."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._sessions: dict[str, MessageSession] = {}
        self._available: deque[MessageSession] = deque()
        self._waits: dict[int, _Wait] = {}
        self._waits_made = 0
        self._locks: Deadlines[str] = Deadlines(self._lock_deadline)
        self._timeouts: Deadlines[int] = Deadlines(self._wait_deadline)

    def __iter__(self) -> Iterator[MessageSession]:
        return iter(self._sessions.values())

    def get(self, session_id: str) -> MessageSession:
        """Return the session; create it if it is missing."""
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = MessageSession(session_id)
        return session

    def held(self, session_id: str) -> MessageSession:
        """Return the session if it is held. Raises SessionLockLost."""
        session = self._sessions.get(session_id)
        if session is None or session.holder is None:
            raise SessionLockLost(self._path, session_id)
        return session

    def accept(self, consumer: Consumer, session_id: str, until: float) -> MessageSession:
        """Lock the session for the consumer. Raises SessionCannotBeLocked if another consumer holds it."""
        session = self.get(session_id)
        if session.holder is not None:
            raise SessionCannotBeLocked(self._path, session_id)
        session.holder, consumer.lane = consumer, session
        self.extend(session, until)
        return session

    def extend(self, session: MessageSession, until: float) -> None:
        session.locked_until = until
        self._locks.add(until, session.id)

    def free(self, session: MessageSession) -> None:
        """Release the session; the caller has handled its messages."""
        if session.holder is not None:
            session.leave(session.holder)
        session.holder = None
        self.offer(session)
        self.forget_if_idle(session)

    def offer(self, session: MessageSession) -> None:
        """List the session as available, if it is."""
        if session.holder is None and session.ready and not session.offered:
            session.offered = True
            self._available.append(session)

    def next_available(self) -> MessageSession | None:
        """Return the available session that has waited longest."""
        while self._available:
            session = self._available.popleft()
            session.offered = False
            if session.holder is None and session.ready:
                return session
        return None

    @property
    def has_waits(self) -> bool:
        return bool(self._waits)

    def wait(self, consumer: Consumer, until: float, answer: Answer) -> None:
        """Wait for any session; `answer` gets it, or None at `until`."""
        self._waits_made += 1
        self._waits[self._waits_made] = _Wait(consumer, until, answer)
        self._timeouts.add(until, self._waits_made)

    def stop_waiting(self, consumer: Consumer) -> None:
        self._waits = {number: wait for number, wait in self._waits.items() if wait.consumer is not consumer}

    def serve_waits(self, until: float) -> Iterator[Consumer]:
        """Lock available sessions for waiting consumers, first come first served, until `until`; yield each."""
        while self._waits:
            session = self.next_available()
            if session is None:
                return
            wait = self._waits.pop(next(iter(self._waits)))
            wait.answer(self.accept(wait.consumer, session.id, until))
            yield wait.consumer

    def time_out_waits(self, now: float) -> None:
        for number in self._timeouts.due(now):
            self._waits.pop(number).answer(None)

    def lost_locks(self, now: float) -> Iterator[MessageSession]:
        """Yield the sessions whose lock has ended while they are held."""
        for session_id in self._locks.due(now):
            yield self._sessions[session_id]

    def next_deadline(self) -> float | None:
        return earliest(self._locks.next(), self._timeouts.next())

    def forget_if_idle(self, session: MessageSession) -> None:
        if session.holder is None and not session.ready and session.state is None:
            self._sessions.pop(session.id, None)

    def _lock_deadline(self, session_id: str) -> float | None:
        session = self._sessions.get(session_id)
        return session.locked_until if session is not None and session.holder is not None else None

    def _wait_deadline(self, number: int) -> float | None:
        wait = self._waits.get(number)
        return wait.until if wait is not None else None


class SessionQueue(MessageQueue):
    """A queue whose messages all have session ids; `intake` and `Subscription.put` ensure that."""

    def __init__(self, path: str, *others: Any, **options: Any) -> None:
        super().__init__(path, *others, **options)
        self._sessions = SessionTable(path)

    # ------------------------------------------------------------------ accepting

    def attach(self, consumer: Consumer) -> None:
        raise SessionNeeded(self.path)

    def attach_to_session(self, consumer: Consumer, session_id: str) -> MessageSession:
        """Lock this session for the consumer. Raises SessionCannotBeLocked if another consumer holds it."""
        self._check_receivable()
        self._be_looked_at()
        session = self._sessions.accept(consumer, session_id, self._new_lock_end())
        self._consumers[consumer] = None
        return session

    def attach_to_next_session(self, consumer: Consumer, until: float, answer: Answer) -> None:
        """Lock the next session with messages; `answer` gets it at a later `run`, or None at `until`."""
        self._check_receivable()
        self._consumers[consumer] = None
        self._sessions.wait(consumer, until, answer)
        self._be_looked_at()
        self._agenda.call_at(until, self)
        self._agenda.want_dispatch(self)

    def detach(self, consumer: Consumer) -> None:
        """Remove the consumer: its session is free immediately, its messages return uncounted."""
        self._sessions.stop_waiting(consumer)
        session = consumer.lane
        if isinstance(session, MessageSession):
            self._end_lock(session, failed=False)
        super().detach(consumer)

    def close(self, reason: BrokerError) -> None:
        super().close(reason)
        self._sessions = SessionTable(self.path)

    def dispatch(self, now: float) -> None:
        if self._sessions.has_waits:
            for consumer in self._sessions.serve_waits(self._new_lock_end()):
                self.grant(consumer, consumer.credit)  # .NET's flow follows its attach, and comes before the answer
        super().dispatch(now)

    def _is_watched(self) -> bool:
        return self._sessions.has_waits or super()._is_watched()

    # ------------------------------------------------------------------ sessions

    def check_session(self, session_id: str) -> None:
        """Raise SessionLockLost unless the session is held."""
        self._sessions.held(session_id)

    def renew_session(self, session_id: str) -> float:
        """Extend the session's lock; return its end in epoch seconds. Raises SessionLockLost."""
        session = self._sessions.held(session_id)
        self._sessions.extend(session, self._new_lock_end())
        return session.locked_until

    def session_state(self, session_id: str) -> bytes | None:
        """Return the session's state. Raises SessionLockLost."""
        return self._sessions.held(session_id).state

    def set_session_state(self, session_id: str, state: bytes | None) -> None:
        """Set the session's state. Raises SessionLockLost."""
        session = self._sessions.held(session_id)
        session.state, session.state_set_at = state, self._agenda.clock()

    def hold_session_state(self, session_id: str, state: bytes | None) -> Act:
        """Reserve a change of the session's state for a transaction; its lock must not change hands. As above."""
        holder = self._sessions.held(session_id).holder

        def check() -> None:
            if self._sessions.held(session_id).holder is not holder:
                raise SessionLockLost(self.path, session_id)

        return Act(check=check, perform=partial(self.set_session_state, session_id, state), release=lambda: None)

    def session_ids(self, *, state_set_since: float | None = None) -> list[str]:
        """Return the sessions with messages or a state; with a time, those whose state was set since then."""
        if state_set_since is None:
            return sorted(s.id for s in self._sessions if s.ready or s.locked or s.state is not None)
        return sorted(s.id for s in self._sessions if s.state is not None and s.state_set_at >= state_set_since)

    def _new_lock_end(self) -> float:
        until = self._agenda.clock() + self._lock_seconds
        self._agenda.call_at(until, self)
        return until

    def _end_lock(self, session: MessageSession, *, failed: bool) -> None:
        for number in list(session.locked):
            stored = self._store.get(number)
            if stored is not None and stored.lock_token is not None:
                self._give_back(self._unlock(stored.lock_token), failed=failed)
        self._sessions.free(session)
        self._agenda.want_dispatch(self)

    # ------------------------------------------------------------------ overridden for messages

    def _lane_of(self, stored: StoredMessage) -> MessageSession:
        return self._sessions.get(stored.message.session_id or "")

    def _line_up(self, stored: StoredMessage) -> None:
        super()._line_up(stored)
        self._sessions.offer(self._lane_of(stored))
        if self._sessions.has_waits:
            self._agenda.want_dispatch(self)

    def _hold_until(self, stored: StoredMessage, until: float) -> None:
        session = self._lane_of(stored)
        stored.locked_until = session.locked_until
        session.locked[stored.sequence_number] = None

    def renew(self, token: bytes) -> float:
        raise InvalidOperation(f"messages of '{self.path}' are locked by their session; renew the session's lock")

    def _locked(self, token: bytes) -> StoredMessage:
        stored = self._tokens.get(token)
        if stored is None:
            raise SessionLockLost(self.path, None)
        return stored

    def _unlock(self, token: bytes) -> StoredMessage:
        stored = super()._unlock(token)
        self._lane_of(stored).locked.pop(stored.sequence_number, None)
        return stored

    def _deferred(self, number: int, session_id: str | None) -> StoredMessage:
        self._sessions.held(session_id or "")
        stored = super()._deferred(number, session_id)
        if stored.message.session_id != session_id:
            raise MessageNotFound(self.path, number)
        return stored

    def _remove(self, stored: StoredMessage) -> None:
        super()._remove(stored)
        self._sessions.forget_if_idle(self._lane_of(stored))

    def run_due(self, now: float) -> float | None:
        following = super().run_due(now)
        for session in self._sessions.lost_locks(now):
            consumer = session.holder
            if consumer is not None and consumer.credit > 0:
                self._sessions.extend(session, self._new_lock_end())
                continue
            self._end_lock(session, failed=True)
            if consumer is not None:
                self._consumers.pop(consumer, None)
                consumer.lost(SessionLockLost(self.path, session.id))
        self._sessions.time_out_waits(now)
        return earliest(following, self._sessions.next_deadline())
