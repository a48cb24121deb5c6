"""The answers of one engine to orders that do not count: each with the reason, and few to forged ones."""

from __future__ import annotations

from collections import deque
from typing import Final

from paired_servicebus.core.fleet.fleet_documents import ONE_SHOT_SECONDS, Outcome, Posted
from paired_servicebus.core.fleet.fleet_events import AnswerOrder
from paired_servicebus.core.fleet.orders.order_rules import (
    BoardOrder,
    Counts,
    Rule,
    ThisEngine,
    is_meant,
    order_end,
    verdict,
)
from paired_servicebus.core.fleet.orders.order_text import OLDER

MAX_REFUSALS: Final = 30
REFUSALS_SECONDS: Final = 3600.0
"""An engine answers at most MAX_REFUSALS void orders in this time: anyone with Send can post them."""
MAX_ID: Final = 128


class VoidAnswers:
    """Decides whether a void order is answered. Every time is the namespace's."""

    def __init__(self, engine: ThisEngine) -> None:
        self._me = engine
        self._answered: deque[float] = deque()

    def answer(self, post: Posted, order: BoardOrder, at: float, *, is_new: bool) -> list[AnswerOrder]:
        """Return the answer to a void order, if there is one.

        is_new: it was posted after this engine's start. Of older ones a starting engine answers only those that would
        stand, and that it cannot verify.
        """
        if post.is_newer:
            return self._answer_newer(post, at) if is_new else []
        if order.text is None or not is_meant(order.text, self._me.name) or len(order.text.id) > MAX_ID:
            return []
        void = verdict(order, engine=self._me, at=at)
        if isinstance(void, Counts) or void.rule is Rule.MEANT or not (is_new or _would_stand(order, void.rule, at)):
            return []
        if void.rule not in (Rule.OVERTAKEN, Rule.OVER) and not self._may_answer(at):
            return []
        return [AnswerOrder(order_id=order.text.id, number=order.number, outcome=Outcome.REFUSED, text=void.text)]

    def _answer_newer(self, post: Posted, at: float) -> list[AnswerOrder]:
        is_late = at >= post.enqueued_at + ONE_SHOT_SECONDS
        if is_late or not 0 < len(post.copies) <= MAX_ID or not self._may_answer(at):
            return []
        text = OLDER.removeprefix("refused: ")
        return [AnswerOrder(order_id=post.copies, number=post.number, outcome=Outcome.REFUSED, text=text)]

    def _may_answer(self, at: float) -> bool:
        while self._answered and self._answered[0] + REFUSALS_SECONDS <= at:
            self._answered.popleft()
        if len(self._answered) >= MAX_REFUSALS:
            return False
        self._answered.append(at)
        return True


def _would_stand(order: BoardOrder, rule: Rule, at: float) -> bool:
    if rule is not Rule.SIGNATURE or order.text is None or order.verb is None or not order.verb.stands:
        return False
    return order_end(order.text, order.verb, order.enqueued_at) > at
