"""An engine's part in the fleet: what was seen is on disk before it acts, and what is taken is posted again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from paired_servicebus.core.fleet import fleet_member, pace
from paired_servicebus.core.fleet.engine_orders import EngineOrders, Kept
from paired_servicebus.core.fleet.fleet_documents import Board, Document, Order, Outcome, Posted, Signer
from paired_servicebus.core.fleet.fleet_events import CarryOut, Clean, OrderEnded, Undo
from paired_servicebus.core.fleet.fleet_member import FleetMember
from paired_servicebus.core.operator.actions import FLEET_VERBS
from paired_servicebus.engine.fleet import fleet_part
from paired_servicebus.engine.fleet.fleet_part import FleetPart
from paired_servicebus.engine.fleet.order_signatures import CurrentSigners
from tests.core.fleet.fleet_world import author, snapshot
from tests.core.fleet.made_orders import made_order

WAIT = 60.0


class MemoryBoard:
    """Boards in memory; somebody may take the next orders away."""

    def __init__(self) -> None:
        self.posts: dict[Board, list[Posted]] = {board: [] for board in Board}
        self.number = 0
        self.taken = 0

    async def read(self, board: Board, since: int, most: int) -> tuple[Sequence[Posted], bool]:
        return [post for post in self.posts[board] if post.number >= since][:most], True

    async def write(self, document: Document, ttl: float) -> None:
        self.number += 1
        is_order = isinstance(document, Order)
        if is_order and self.taken:
            self.taken -= 1
            return
        now = time.time()
        post = Posted(number=self.number, enqueued_at=now, ends_at=now + ttl, document=document)
        self.posts[Board.ORDERS if is_order else Board.REPORTS].append(post)

    async def clean(self, wanted: Clean) -> int:
        return 1

    async def close(self) -> None:
        pass


class AnySigner(CurrentSigners):
    """A file of operators with everybody's key."""

    signers: Any = "everybody"

    async def refresh(self) -> None:
        pass

    def verify(self, order: Order) -> Signer:
        return Signer(by="operator-a", fingerprint="SHA256:x")


class Engine:
    """A part in the fleet over boards in memory."""

    def __init__(self, board: MemoryBoard) -> None:
        self.warned: list[str] = []
        self.log: list[str] = []
        """What was kept and done: the targets of the orders seen on disk, and the acts."""
        self.acted = asyncio.Event()
        self.disk_is_full = False
        self.book = EngineOrders(engine=author("web-1"), verbs=FLEET_VERBS)
        member = FleetMember(author("web-1"), signers="h", orders=self.book)
        anybody: Any = board
        warn = self.warn
        self.part = FleetPart(
            member, anybody, AnySigner(None, warn=warn), admin=anybody, primary="shop-ne", warn=warn,
            changed=lambda: None, clock=time.time, carry_out=self.carry_out, keep=self.keep,
        )  # fmt: skip

    def warn(self, _about: str, text: str) -> None:
        self.warned.append(text)

    def keep(self, kept: Kept) -> None:
        if self.disk_is_full:
            raise OSError(28, "No space left on device")
        self.log += [f"kept {len(kept.seen)}"] if kept.seen else []

    async def carry_out(self, effect: CarryOut | Undo) -> OrderEnded:
        assert isinstance(effect, CarryOut)
        self.log.append("acted")
        self.acted.set()
        return OrderEnded(order_id=effect.order.id, outcome=Outcome.DONE, text="done")

    async def post(self) -> Order:
        order = made_order(at=time.time(), primary="shop-ne")
        await self.part.post_order(order)
        return order

    async def until(self, is_met: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT):
            while not is_met():
                await asyncio.sleep(0.01)


@pytest.fixture
def board() -> MemoryBoard:
    return MemoryBoard()


@pytest.fixture
async def engine(board: MemoryBoard, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    monkeypatch.setattr(fleet_member, "POST_AGAIN", 0.0)
    monkeypatch.setattr(fleet_part, "KEEP_AGAIN", 0.05)
    monkeypatch.setattr(fleet_part, "TAKE_UP_SECONDS", WAIT)
    for name in ("LOOK_WELL", "LOOK_NOT_WELL"):
        monkeypatch.setattr(pace, name, 0.05)
    made = Engine(board)
    made.part.start(snapshot("web-1", time.time()))
    await made.part.take_up()
    assert made.warned == []
    yield made
    await made.part.close("end")


async def test_an_order_that_somebody_took_is_posted_again_and_told(engine: Engine, board: MemoryBoard) -> None:
    """ "The console that posted … posts the signed bytes again when they vanish." """
    board.taken = 1
    order = await engine.post()
    await engine.until(lambda: any(post.document == order for post in board.posts[Board.ORDERS]))
    assert engine.warned == [f"the order {order.id} was taken from the board: posted again"]
    board.posts[Board.ORDERS] = [post for post in board.posts[Board.ORDERS] if post.document != order]
    await engine.until(lambda: any(post.document == order for post in board.posts[Board.ORDERS]))
    assert engine.log.count("acted") == 1


async def test_what_was_seen_is_on_disk_before_it_acts(engine: Engine) -> None:
    await engine.post()
    await engine.until(engine.acted.is_set)
    assert engine.log.index("kept 1") < engine.log.index("acted")


async def test_without_a_disk_no_order_is_obeyed_and_the_engine_says_so(engine: Engine) -> None:
    engine.disk_is_full = True
    await engine.post()
    await engine.until(lambda: bool(engine.warned))
    assert "no order of the fleet is carried out: what was seen cannot be kept" in engine.warned[0]
    assert not engine.acted.is_set()
    engine.disk_is_full = False
    await engine.until(engine.acted.is_set)
    assert engine.log.index("kept 1") < engine.log.index("acted")
