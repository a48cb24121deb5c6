"""The sessions of one queue: existing, held and available ones.

A session is a lane with one consumer, a lock and a state. The message queue decides about messages when a lock ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from servicebus_sandbox.broker.broker_errors import SessionCannotBeLocked, SessionLockLost
from servicebus_sandbox.broker.queues.deadline_heap import Deadlines, earliest
from servicebus_sandbox.broker.queues.lane import Consumer, Lane

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

    def find(self, session_id: str) -> MessageSession | None:
        return self._sessions.get(session_id)

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

    def serve_waits(self, until: float) -> None:
        """Lock available sessions for waiting consumers, first come first served, until `until`."""
        while self._waits:
            session = self.next_available()
            if session is None:
                return
            wait = self._waits.pop(next(iter(self._waits)))
            wait.answer(self.accept(wait.consumer, session.id, until))

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
