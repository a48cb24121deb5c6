"""The place of the order rules in an engine's part of the fleet.

FleetMember reads the boards and writes the answers. The rules of orders decide which posts count; without them an
engine only counts the orders that it read.
"""

from __future__ import annotations

from typing import Protocol

from paired_servicebus.core.fleet.fleet_documents import Order, Outcome, Posted, Subject
from paired_servicebus.core.fleet.fleet_events import FleetEffect
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetOrder


class OrderHook(Protocol):
    """The rules of orders. Every `at` is the namespace's time; `next_deadline` is too."""

    def read(self, posts: tuple[Posted, ...], at: float, *, is_whole: bool) -> tuple[FleetEffect, ...]:
        """Read new posts of the orders board. is_whole: the end of the board is reached, so the set is complete."""

    def step(self, at: float) -> tuple[FleetEffect, ...]:
        """Act on deadlines, such as the end of a standing order."""

    def reset(self) -> None:
        """Forget the board: it was deleted and created again, and its numbers begin at 1."""

    def judge_again(self) -> None:
        """Forget the verdicts: the signers changed, and the board is read again. What stands stays until then."""

    def read_answer(self, post: Posted) -> None:
        """Read an engine's answer from the reports board. The same post may come twice."""

    def find(self, order_id: str) -> tuple[int, float] | None:
        """Return the number and the end of an order that this engine carried out; None: unknown."""

    def note_outcome(self, order_id: str, outcome: Outcome, not_held: tuple[str, ...]) -> None:
        """Note the result of a CarryOut; targets that are not held are not released at the order's end."""

    def note_local(self, subjects: tuple[Subject, ...], how: str = "") -> None:
        """Note that a local operator gave an order about these subjects. how: "released here by operator-b"."""

    def orders(self, engines: tuple[FleetEngine, ...], at: float) -> tuple[FleetOrder, ...]:
        """Return the orders for screens."""

    @property
    def standing(self) -> tuple[str, ...]:
        """Return the ids of the orders that stand in this engine."""

    @property
    def differences(self) -> tuple[str, ...]:
        """Return how this engine differs from what stands."""

    @property
    def newest(self) -> int:
        """Return the number of the newest order read; 0: none."""

    @property
    def next_deadline(self) -> float | None:
        """Return the time of the next deadline."""


class CountedOrders:
    """The default: orders are counted, and none is carried out."""

    def __init__(self) -> None:
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
