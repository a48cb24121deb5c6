"""Scheduled messages: stored, listed, cancelled, and released when due. Delayed ones are only not visible yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush

from servicebus_sandbox.broker.broker_errors import MessageNotFound
from servicebus_sandbox.broker.message import Message, MessageState, MessageStore, StoredMessage
from servicebus_sandbox.broker.queues.agenda import Agenda, Deadlines


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
        self._due: Deadlines[int] = Deadlines(self._deadline)

    def __len__(self) -> int:
        return len(self._store)

    @property
    def size_bytes(self) -> int:
        return self._store.size_bytes

    def add(self, message: Message, when: float, now: float) -> int:
        """Store the message until `when` (epoch seconds); return the number that cancels it."""
        number = self._new_number()
        self._store.add(StoredMessage(message, number, now, expires_at=when, state=MessageState.SCHEDULED))
        self._due.add(when, number)
        self._agenda.call_at(when, self)
        return number

    def cancel(self, numbers: Sequence[int]) -> None:
        """Remove these messages, all or none. Raises MessageNotFound if one is missing."""
        found = []
        for number in numbers:
            stored = self._store.get(number)
            if stored is None:
                raise MessageNotFound(self.path, number)
            found.append(stored)
        for stored in found:
            self._store.remove(stored)

    def clear(self) -> None:
        self._store = MessageStore()

    def starting_at(self, number: int) -> Iterator[StoredMessage]:
        return self._store.starting_at(number)

    def run_due(self, now: float) -> float | None:
        for number in self._due.due(now):
            stored = self._store.get(number)
            if stored is not None:
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
