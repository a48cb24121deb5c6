"""What the parts of one run share: the clock, the boards, the network, the orders that were given, and the story."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from paired_servicebus.core.fleet.fleet_documents import (
    Board,
    Document,
    Order,
    OrderText,
    Watch,
)
from paired_servicebus.core.fleet.fleet_events import CarryOut, Undo
from paired_servicebus.simulation.virtual_clock import VirtualClock
from tests.simulation.fleet.fleet_plan import BEGAN, FleetCondition, FleetPlan
from tests.simulation.fleet.sim_board import STALE_SECONDS, Network, SimBoard, SimPost

if TYPE_CHECKING:
    from tests.simulation.fleet.fleet_invariants import FleetChecker
    from tests.simulation.fleet.sim_fleet_engine import SimFleetEngine

WATCH_SECONDS: Final = 120.0
Act = CarryOut | Undo


class FleetRun:
    """The shared parts of one run."""

    checks: FleetChecker

    def __init__(self, plan: FleetPlan, seed: int, *, traced: bool = False) -> None:
        self.plan, self.seed = plan, seed
        self.random = Random(f"fleet world {seed}")
        self.clock = VirtualClock(BEGAN)
        self.began = BEGAN
        self.trace: list[str] | None = [] if traced else None
        is_prompt = plan.expiry == "prompt"
        self.boards = {board: SimBoard(board, is_prompt=is_prompt) for board in Board}
        self.network = Network(plan.faults, BEGAN, Random(f"fleet network {seed}"))
        self.texts: dict[str, OrderText] = {}
        self.genuine: list[Order] = []
        self.last_ids: list[str] = []
        """Orders of the sound fleet."""
        self.given: dict[str, tuple[float, float]] = {}
        """When an order was given, and by how much its author may err about the namespace's time."""
        self.watched_seconds = 0.0
        self._watched_until = BEGAN
        self._ids = 0
        self.has_stale = any(fault.condition is FleetCondition.STALE for fault in plan.faults)
        self.clock_margin = 3.0 + (STALE_SECONDS if self.has_stale else 0.0)
        self.forged: set[tuple[str, str]] = set()
        """Order ids and names for which the enemy posted an answer."""
        self.dated_back: set[str] = set()
        """Ids of orders that an ended key signed: a new engine shows them as orders without a right."""
        self.deluges = 0
        self.has_claims = False
        """Whether the enemy invented engines."""

    @property
    def orders(self) -> SimBoard:
        return self.boards[Board.ORDERS]

    @property
    def is_sound(self) -> bool:
        """Return whether everything has healed."""
        return self.clock.now >= BEGAN + self.plan.heals_at

    @property
    def is_last(self) -> bool:
        """Return whether the engines stand equal, and the last orders are given."""
        return self.clock.now >= BEGAN + self.plan.healed_at

    # -- for the parts ------------------------------------------------------------------------------------------------

    def log(self, text: str) -> None:
        """Note a line of the story."""
        if self.trace is not None:
            self.trace.append(f"{self.clock.now - BEGAN:9.3f}  {text}")

    def later(self, seconds: float, engine: SimFleetEngine, action: Callable[..., object], *arguments: Any) -> None:
        """Call an action of an engine's boot later, unless that boot has ended."""
        self.clock.at(self.clock.now + seconds, self._if_alive, engine, engine.boots, action, arguments)

    @staticmethod
    def _if_alive(engine: SimFleetEngine, boot: int, action: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        if engine.is_alive and engine.boots == boot:
            action(*arguments)

    def next_id(self, kind: str) -> str:
        """Return a new id."""
        self._ids += 1
        return f"{kind}-{self._ids}"

    def land(self, document: Document, ttl: float) -> SimPost:
        """Put a document on its board."""
        now = self.clock.now
        post = self.boards[document.kind.board].write(document, ttl, now)
        if isinstance(document, Watch):
            self.watched_seconds += now + WATCH_SECONDS - max(now, self._watched_until)
            self._watched_until = now + WATCH_SECONDS
        if isinstance(document, Order):
            self.log(f"{document.id[:8]} is order {post.number}")
        return post

    def note_order(self, order: Order, tolerance: float) -> None:
        """Note an order of a console."""
        self.texts[order.id] = order.text
        self.genuine.append(order)
        self.given[order.id] = (self.clock.now, tolerance)
