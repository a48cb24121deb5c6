"""Two boards in memory and a number of engines, played in virtual time, with a count of billed operations."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import replace

from tests.simulation.fleet.sim_board import SimBoard

from paired_servicebus.core.fleet.engine_orders import EngineOrders
from paired_servicebus.core.fleet.fleet_documents import Author, Board, Report
from paired_servicebus.core.fleet.fleet_events import (
    BoardRead,
    Clean,
    CleaningEnded,
    FleetEffect,
    FleetEvent,
    OwnState,
    ReadBoard,
    Ticked,
    Write,
    Written,
)
from paired_servicebus.core.fleet.fleet_member import FleetMember
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import (
    EntityView,
    Meter,
    QueueView,
    Snapshot,
    SyphonStatus,
    SyphonView,
)
from paired_servicebus.core.operator.actions import FLEET_VERBS
from paired_servicebus.engine.fleet.service_bus_board import MAX_DELETED

START = 1_800_000_000.0


def author(engine: str, boot: str = "boot-1", **other: str) -> Author:
    head = Author(
        engine=engine, boot=boot, host=f"host-{engine}", pid=7, program="shop", version="1.0", pairing="shop",
        environment="production", primary="shop-ne", secondary="shop-we",
    )  # fmt: skip
    return replace(head, **other)


def snapshot(
    engine: str, at: float = START, *, entities: dict[str, State] | None = None,
    syphon: SyphonStatus = SyphonStatus.OFF, sends: float = 1.0,
) -> Snapshot:  # fmt: skip
    states = {"orders": State.HEALTHY} if entities is None else entities
    views = tuple(
        EntityView(path=path, state=state, since=at, why="", route="primary", sends_per_second=sends, accepted=3,
                   diverted=0, failed=0)
        for path, state in states.items()
    )  # fmt: skip
    queues = tuple(QueueView(index=index, path=f"x/{index}", in_rotation=True) for index in range(3))
    return Snapshot(
        engine=engine, boot="boot-1", pid=7, seq=0, at=at, pairing="shop", environment="production", primary="shop-ne",
        secondary="shop-we", read_only=False, entities=views, queues=queues,
        syphon=SyphonView(status=syphon, text=""), billed=Meter(), times="", started_at=at,
    )  # fmt: skip


def engine_orders(engine: str) -> EngineOrders:
    return EngineOrders(engine=author(engine), verbs=FLEET_VERBS)


def fleet_member(engine: str, **options: object) -> FleetMember:
    return FleetMember(author(engine), orders=engine_orders(engine), **options)  # type: ignore[arg-type]


class FleetWorld:
    """Engines with clocks of their own beside two boards."""

    def __init__(self, engines: int, *, syphons: int = 0, skew: float = 0.0, **expect: int) -> None:
        self.boards = {board: SimBoard(board, is_prompt=False) for board in Board}
        self.now = START
        self.operations: Counter[str] = Counter()
        self.read_by: Counter[int] = Counter()
        """Operations of each engine's readings."""
        self.late: list[tuple[float, int]] = []
        self.first_report: dict[str, float] = {}
        self.alive = [True] * engines
        self.skew = [skew if place == 1 else 0.0 for place in range(engines)]
        self.snapshots = [
            snapshot(f"app-{place}", syphon=SyphonStatus.IDLE if place < syphons else SyphonStatus.OFF)
            for place in range(engines)
        ]
        self.members = [fleet_member(f"app-{place}", spread=place / engines, **expect) for place in range(engines)]
        self.queue: list[tuple[float, int]] = []
        for place in range(engines):
            self.tell(place, OwnState(at=self.own_time(place), snapshot=self.snapshots[place]))

    def own_time(self, place: int) -> float:
        return self.now + self.skew[place]

    def tell(self, place: int, event: FleetEvent) -> None:
        effects = self.members[place].step(event)
        while effects:
            effects += self.do(place, effects.pop(0))
        deadline = self.members[place].next_deadline - self.skew[place]
        heapq.heappush(self.queue, (max(deadline, self.now), place))

    def do(self, place: int, effect: FleetEffect) -> list[FleetEffect]:
        member = self.members[place]
        match effect:
            case ReadBoard():
                found = self.boards[effect.board].read(effect.since, effect.most, self.now)
                posts = tuple(post.base for post in found.posts)
                self.operations["read"] += max(1, len(posts))
                self.read_by[place] += max(1, len(posts))
                at = self.own_time(place)
                return member.step(
                    BoardRead(at=at, board=effect.board, since=effect.since, posts=posts, is_end=found.is_end)
                )
            case Write():
                document = effect.document
                self.operations["write"] += 1
                if isinstance(document, Report):
                    self.first_report.setdefault(document.presence.author.engine, self.now)
                self.boards[document.kind.board].write(document, effect.ttl, self.now)
                return member.step(Written(at=self.own_time(place), document=document))
            case Clean():
                self.operations["clean"] += self._clean(effect)
                return member.step(CleaningEnded(at=self.own_time(place), wanted=effect))
        return []

    def _clean(self, wanted: Clean) -> int:
        """Clean as the engine does; return the billed operations: batches, or two for each received message."""
        board = self.boards[wanted.board]
        old = sum(post.enqueued_at < wanted.before for post in board.posts)
        received = len(board.posts) - old if wanted.dead else 0
        board.clean(wanted)
        return old // MAX_DELETED + 1 + 2 * received

    def run(self, seconds: float) -> int:
        """Play; return the operations of this time."""
        before, end = sum(self.operations.values()), self.now + seconds
        while self.queue and self.queue[0][0] <= end:
            due, place = heapq.heappop(self.queue)
            self.now = max(self.now, due)
            if self.alive[place] and self.members[place].next_deadline <= self.own_time(place):
                self.tell(place, Ticked(at=self.own_time(place)))
        self.now = end
        return sum(self.operations.values()) - before
