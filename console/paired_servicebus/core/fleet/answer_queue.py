"""The answers of one engine to orders, until the namespace has them."""

from __future__ import annotations

from collections import deque
from typing import Final

from paired_servicebus.core.fleet.fleet_documents import OrderAnswer, Outcome
from paired_servicebus.core.fleet.fleet_events import AnswerOrder, FleetEffect, Write
from paired_servicebus.core.fleet.order_hook import OrderHook
from paired_servicebus.core.fleet.own_documents import OwnDocuments

MAX_ANSWERS: Final = 100
"""Answers that wait for the namespace; the oldest gives way."""
ANSWER_SECONDS: Final = 3600.0


class AnswerQueue:
    """The answers that wait. Every `now` is the namespace's time."""

    def __init__(self, documents: OwnDocuments, orders: OrderHook) -> None:
        self._documents, self._orders = documents, orders
        self._waiting: deque[OrderAnswer] = deque(maxlen=MAX_ANSWERS)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, order_id: str, number: int, outcome: Outcome, text: str, now: float) -> None:
        """Add a new answer."""
        self._waiting.append(self._documents.answer(order_id, number, now, outcome, text))

    def add_again(self, answer: OrderAnswer) -> None:
        """Add an answer that the namespace did not accept."""
        self._waiting.append(answer)

    def take_from(self, effects: tuple[FleetEffect, ...], now: float) -> list[FleetEffect]:
        """Add the answers among the effects of the order rules; return the other effects."""
        others: list[FleetEffect] = []
        for one in effects:
            if isinstance(one, AnswerOrder):
                self.add(one.order_id, one.number, one.outcome, one.text, now)
            else:
                others.append(one)
        return others

    def post(self, now: float) -> list[FleetEffect]:
        """Return the writes of all waiting answers. An answer stays until its order's end."""
        answers = tuple(self._waiting)
        self._waiting.clear()
        ends = ((answer, self._orders.find(answer.order_id)) for answer in answers)
        return [
            Write(document=answer, ttl=max(ANSWER_SECONDS, (found[1] - now) if found is not None else 0.0))
            for answer, found in ends
        ]
