"""The driver of an engine's orders: what is taken from the board is posted again, and what stands is stored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from paired_servicebus.core.fleet.fleet_documents import Board, Document, Order, OrderText, Outcome, Posted, Signer
from paired_servicebus.core.fleet.fleet_events import CarryOut, Clean, OrderEnded, TakeUp, Undo
from paired_servicebus.core.fleet.fleet_member import FleetMember, Identity
from paired_servicebus.core.fleet.orders.order_book import KeptOrders, OrderBook
from paired_servicebus.core.fleet.orders.order_rules import ThisEngine
from paired_servicebus.core.fleet.orders.order_text import encode_order_text
from paired_servicebus.core.operator.actions import FLEET_VERBS
from paired_servicebus.engine.fleet.board_port import Cleaned
from paired_servicebus.engine.fleet.fleet_driver import FleetDriver
from tests.core.fleet.fleet_world import author, snapshot

WAIT = 60.0


class MemoryBoard:
    """Boards in memory; somebody may take the next orders away. Orders are verified."""

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
        signer = Signer(by="operator-a", fingerprint="SHA256:x") if is_order else None
        post = Posted(number=self.number, enqueued_at=now, ends_at=now + ttl, document=document, signer=signer)
        self.posts[Board.ORDERS if is_order else Board.REPORTS].append(post)

    async def clean(self, wanted: Clean) -> Cleaned:
        return Cleaned()

    async def close(self) -> None:
        pass


class Engine:
    """A driver over boards in memory."""

    def __init__(self, board: MemoryBoard) -> None:
        self.warned: list[str] = []
        self.acts: list[CarryOut | TakeUp | Undo] = []
        self.kept: list[KeptOrders] = []
        self.acted = asyncio.Event()
        me = ThisEngine(name="web-1", primary="shop-ne", secondary="shop-we")
        self.book = OrderBook(engine=me, verbs=FLEET_VERBS)
        member = FleetMember(Identity(author=author("web-1"), signers="h"), orders=self.book)
        self.driver = FleetDriver(
            member, board, admin=Any, primary="shop-ne", warn=lambda _, text: self.warned.append(text),  # type: ignore[arg-type]
            changed=lambda: None, clock=time.time, carry_out=self.carry_out, book=self.book, keep=self.kept.append,
        )  # fmt: skip

    async def carry_out(self, effect: CarryOut | TakeUp | Undo) -> OrderEnded:
        self.acts.append(effect)
        self.acted.set()
        assert isinstance(effect, CarryOut)
        return OrderEnded(at=time.time(), order_id=effect.order.id, outcome=Outcome.DONE, text="done")


@pytest.fixture
def board() -> MemoryBoard:
    return MemoryBoard()


@pytest.fixture
async def engine(board: MemoryBoard) -> AsyncIterator[Engine]:
    made = Engine(board)
    made.driver.start(snapshot("web-1", time.time()))
    assert await made.driver.take_up(WAIT) == ""
    yield made
    await made.driver.close("end")


def order() -> Order:
    text = OrderText(
        id="o1", primary="shop-ne", secondary="shop-we", verb="force", scope="entity", targets=("payments",),
        engines=("web-1",), typed="payments", why="", issued_at=time.time(), act_within=300.0, stands_for=3600.0,
        on_top_of=0, seen=(),
    )  # fmt: skip
    return Order(text=replace(text), signed=encode_order_text(text), signature="s")


@pytest.mark.parametrize("taken", [0, 1])
async def test_an_order_that_somebody_took_is_posted_again_and_told(
    engine: Engine, board: MemoryBoard, taken: int
) -> None:
    """A holder of Listen on orders can take orders away: the poster notices within one look, posts again, says so."""
    board.taken = taken
    await engine.driver.post_order(order())
    async with asyncio.timeout(WAIT):
        await engine.acted.wait()
    assert engine.warned == ["the order o1 was taken from the board: it is posted again"] * taken
    assert len(engine.acts) == 1


async def test_what_stands_is_stored_also_by_an_engine_that_ends(engine: Engine) -> None:
    await engine.driver.post_order(order())
    async with asyncio.timeout(WAIT):
        await engine.acted.wait()
    await engine.driver.close("end")
    assert [one.order_id for one in engine.kept[-1].standing] == ["o1"]
