"""The orders that one engine read from the board, judged by rules 1 to 5 as they came.

Forged, late and malformed orders decide nothing, so only the latest of them are kept, for screens. A flood of them
grows nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from paired_servicebus.core.fleet.fleet_documents import Order, Posted, Unverified
from paired_servicebus.core.fleet.orders.fleet_verbs import FleetVerbs
from paired_servicebus.core.fleet.orders.order_rules import (
    ORDER_SECONDS,
    BoardOrder,
    ReadOrder,
    Rule,
    ThisEngine,
    judge_board,
)

MAX_SHOWN: Final = 20
"""Orders kept for screens, and as many void ones."""
NOT_VERIFIED: Final = Unverified(why="look only: its signature was not verified")


class OrderLog:
    """The orders of one board, by number. `newest` is the highest number of an order, void or not."""

    def __init__(self, *, engine: ThisEngine, verbs: FleetVerbs) -> None:
        self._engine, self._verbs = engine, verbs
        self._orders: list[BoardOrder] = []
        """Those that count or were overtaken: only they decide about later ones."""
        self._documents: dict[int, Order] = {}
        self._void: deque[BoardOrder] = deque(maxlen=MAX_SHOWN)
        self.newest = 0

    def read(self, posts: Iterable[Posted]) -> list[tuple[Posted, BoardOrder]]:
        """Judge new posts; return the orders among them by number. A number that was read before is skipped."""
        judged = []
        for post in sorted(posts, key=lambda one: one.number):
            is_order = isinstance(post.document, Order) or (post.document is None and post.is_newer)
            if is_order and post.number > self.newest:
                self.newest = post.number
                judged.append((post, self._add(post)))
        return judged

    def judge(self, read: ReadOrder) -> BoardOrder:
        """Apply rules 1 to 5 to an order after those of the log."""
        return judge_board(read, engine=self._engine, verbs=self._verbs, earlier=self._orders)

    def _add(self, post: Posted) -> BoardOrder:
        order = self.judge(ReadOrder(post=post, signer=NOT_VERIFIED if post.signer is None else post.signer))
        if order.void is None or order.void.rule is Rule.OVERTAKEN:
            self._orders.append(order)
            if isinstance(post.document, Order):
                self._documents[post.number] = post.document
        else:
            self._void.append(order)
        return order

    def has(self, order_id: str) -> bool:
        """Return whether an order of that id was read, void or not."""
        return any(one.text is not None and one.text.id == order_id for one in (*self._orders, *self._void))

    def document(self, number: int) -> Order:
        """Return the document of an order that counts."""
        return self._documents[number]

    def forget_over(self, at: float) -> None:
        """Forget orders that can decide nothing any more."""
        if self._orders and self._orders[0].enqueued_at + ORDER_SECONDS < at:
            self._orders = [one for one in self._orders if one.enqueued_at + ORDER_SECONDS >= at]
            kept = {one.number for one in self._orders}
            self._documents = {number: one for number, one in self._documents.items() if number in kept}

    def clear(self) -> None:
        """Forget a board that was deleted."""
        self._orders, self.newest = [], 0
        self._documents.clear()
        self._void.clear()

    @property
    def orders(self) -> tuple[BoardOrder, ...]:
        """Return the orders that count or were overtaken."""
        return tuple(self._orders)

    @property
    def shown(self) -> tuple[BoardOrder, ...]:
        """Return the orders for screens, by number."""
        return tuple(sorted((*self._orders[-MAX_SHOWN:], *self._void), key=lambda one: one.number))
