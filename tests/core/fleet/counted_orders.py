"""Orders of a fleet that are only counted, for tests of a member without the rules of orders."""

from __future__ import annotations

from paired_servicebus.core.fleet.fleet_documents import Order, Outcome, Posted, Subject
from paired_servicebus.core.fleet.fleet_events import FleetEffect
from paired_servicebus.core.fleet.orders.order_book import OrderBook
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetOrder


class CountedOrders(OrderBook):
    """In place of an OrderBook: orders are counted, and none is carried out."""

    def __init__(self) -> None:  # nothing of an OrderBook's is used
        self.count = 0
        self._newest = 0

    def read(self, posts: tuple[Posted, ...], at: float, *, is_whole: bool) -> tuple[FleetEffect, ...]:
        """Count the orders."""
        del at, is_whole
        numbers = [post.number for post in posts if isinstance(post.document, Order)]
        self.count += len(numbers)
        self._newest = max([self._newest, *numbers])
        return ()

    def step(self, at: float) -> tuple[FleetEffect, ...]:
        """Do nothing."""
        del at
        return ()

    def reset(self) -> None:
        """Begin at number 0 again."""
        self._newest = 0

    def judge_again(self) -> None:
        """Begin at number 0 again."""
        self.reset()

    def read_answer(self, post: Posted) -> None:
        """Do nothing."""

    def find(self, order_id: str) -> tuple[int, float] | None:
        """Return None: no order was carried out."""
        del order_id
        return None

    def note_outcome(self, order_id: str, outcome: Outcome, not_held: tuple[str, ...]) -> None:
        """Do nothing."""

    def note_local(self, subjects: tuple[Subject, ...], how: str = "") -> None:
        """Do nothing."""

    def orders(self, engines: tuple[FleetEngine, ...], at: float) -> tuple[FleetOrder, ...]:
        """Return nothing."""
        del engines, at
        return ()

    @property
    def standing(self) -> tuple[str, ...]:
        return ()

    @property
    def differences(self) -> tuple[str, ...]:
        return ()

    @property
    def newest(self) -> int:
        return self._newest

    @property
    def next_deadline(self) -> float | None:
        return None
