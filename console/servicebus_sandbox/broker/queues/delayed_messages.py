"""Accepted messages that are not visible yet, as when a dependency of the service lags behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from servicebus_sandbox.broker.message import Message
from servicebus_sandbox.broker.queues.agenda import Agenda


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
