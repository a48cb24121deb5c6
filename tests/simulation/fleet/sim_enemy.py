"""An enemy who may send to both boards and receive from them, but has no key of an operator.

copy, copy now     posts an old order again          change            alters the bytes of an order
unsigned, foreign  orders without a right            claims an id      takes the id of an order that will come
other pairing      an order of another pairing       newer, no end     a version or a form that is unknown
answer, goodbye    posts in the name of an engine    watch, flood      makes engines work
take               receives an order                 broken            no document at all
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from paired_servicebus.core.fleet.fleet_documents import (
    Author,
    Board,
    Goodbye,
    Order,
    OrderAnswer,
    OrderText,
    Outcome,
    Posted,
    Watch,
)
from paired_servicebus.core.fleet.orders.order_rules import to_type
from paired_servicebus.core.fleet.orders.order_text import encode_order_text
from paired_servicebus.core.operator.actions import FLEET_VERBS
from tests.simulation.fleet.fleet_plan import (
    ENTITIES,
    FOREIGN_KEY,
    KEYS,
    PRIMARY,
    SECONDARY,
    Mischief,
)
from tests.simulation.fleet.fleet_run import FleetRun
from tests.simulation.fleet.sim_board import sign
from tests.simulation.fleet.sim_fleet_engine import SimFleetEngine

HOUR: Final = 3600.0


class SimEnemy:
    """The acts of the enemy."""

    def __init__(self, world: FleetRun, engines: list[SimFleetEngine]) -> None:
        self.world, self.engines = world, engines

    def act(self, mischief: Mischief) -> None:
        """Do one act."""
        random = Random(mischief.number)
        self.world.log(f"the enemy: {mischief.kind}")
        getattr(self, "_" + mischief.kind.replace(" ", "_"))(random)

    # -- orders -------------------------------------------------------------------------------------------------------

    def _order(self, order: Order, *, is_genuine: bool = False) -> None:
        self.world.boards[Board.ORDERS].write(order, HOUR, self.world.clock.now, is_genuine=is_genuine)

    def _some(self, random: Random) -> Order | None:
        return random.choice(self.world.genuine) if self.world.genuine else None

    def _copy(self, random: Random) -> None:
        if (order := self._some(random)) is not None:
            self._order(order, is_genuine=True)

    def _copy_now(self, random: Random) -> None:
        """Post the next order again, seconds after it."""
        self.world.copies.append(random.uniform(0.5, 55.0))

    def _change(self, random: Random) -> None:
        order = self._some(random)
        if order is None:
            return
        target = random.choice(ENTITIES)
        text = replace(order.text, id=self.world.next_id("changed"), targets=(target,), issued_at=self.world.clock.now)
        changed = self._retyped(replace(text, scope="entity", verb="force", stands_for=HOUR, engines=None))
        self._order(Order(text=changed, signed=encode_order_text(changed), signature=order.signature))

    def _text(self, random: Random, **other: object) -> OrderText:
        """Return an order that would count if it were signed."""
        world = self.world
        text = OrderText(
            id=world.next_id("enemy"), primary=PRIMARY, secondary=SECONDARY, verb="force", scope="entity",
            targets=(random.choice(ENTITIES),), engines=None, typed="", why="", issued_at=world.clock.now,
            act_within=300.0, stands_for=HOUR, on_top_of=10**6,
            seen=tuple((one.name, "healthy") for one in self.engines),
        )  # fmt: skip
        return self._retyped(replace(text, **other))  # type: ignore[arg-type]

    @staticmethod
    def _retyped(text: OrderText) -> OrderText:
        return replace(text, typed=to_type(text, FLEET_VERBS[text.verb]))

    def _unsigned(self, random: Random) -> None:
        text = self._text(random)
        self._order(Order(text=text, signed=encode_order_text(text), signature=""))

    def _foreign(self, random: Random) -> None:
        self._order(sign(self._text(random), FOREIGN_KEY), is_genuine=True)

    def _claims_an_id(self, random: Random) -> None:
        """Post a forged order under the id of a true one."""
        if (order := self._some(random)) is not None:
            self._order(sign(replace(self._text(random), id=order.id), FOREIGN_KEY))

    def _other_pairing(self, random: Random) -> None:
        """Post an order that an operator gave to another pairing."""
        self._order(sign(self._text(random, secondary="shop-us"), KEYS[0]), is_genuine=True)

    def _no_end(self, random: Random) -> None:
        """Post a signed order that has no end."""
        self._order(sign(self._text(random, stands_for=None), KEYS[0]))

    def _newer(self, random: Random) -> None:
        del random
        post = Posted(
            number=0, enqueued_at=0, ends_at=0, document=None, copies=self.world.next_id("newer"), is_newer=True,
            kind="order",
        )  # fmt: skip
        self.world.boards[Board.ORDERS].write(post, HOUR, self.world.clock.now)

    def _take(self, random: Random) -> None:
        board = self.world.boards[Board.ORDERS]
        orders = [post for post in board.posts if post.text is not None]
        if orders:
            board.take(random.choice(orders[-3:]))

    # -- others -------------------------------------------------------------------------------------------------------

    def _broken(self, random: Random) -> None:
        post = Posted(number=0, enqueued_at=0, ends_at=0, document=None, trouble="it is not JSON")
        self.world.boards[random.choice(list(Board))].write(post, HOUR, self.world.clock.now)

    def _author(self, random: Random) -> Author:
        engine = random.choice(self.engines)
        return Author(
            engine=engine.name, boot=engine.boot, host="h", pid=1, program="x", version="1", pairing="shop",
            environment="test", primary=PRIMARY, secondary=SECONDARY,
        )  # fmt: skip

    def _answer(self, random: Random) -> None:
        """Answer the newest order in the name of an engine; half of the answers are to another number."""
        if not self.world.genuine:
            return
        order, author = self.world.genuine[-1], self._author(random)
        numbers = [post.number for post in self.world.boards[Board.ORDERS].all if post.text is order.text]
        number = numbers[-1] if numbers and random.random() < 0.5 else 10**6
        if number < 10**6:
            self.world.forged.add((order.id, author.engine.casefold()))
        answer = OrderAnswer(
            id=self.world.next_id("answer"), author=author, order_id=order.id, number=number,
            at=self.world.clock.now + random.choice((0.0, HOUR)), outcome=Outcome.DONE, text="done",
        )  # fmt: skip
        self.world.boards[Board.REPORTS].write(answer, HOUR, self.world.clock.now)

    def _goodbye(self, random: Random) -> None:
        goodbye = Goodbye(id=self.world.next_id("goodbye"), author=self._author(random), reason="")
        self.world.boards[Board.REPORTS].write(goodbye, HOUR, self.world.clock.now)

    def _watch(self, random: Random) -> None:
        del random
        self.world.land(Watch(id=self.world.next_id("watch"), by="enemy", look=0.01, report=0.01), HOUR)

    def _flood(self, random: Random) -> None:
        kinds = (self._broken, self._foreign, self._unsigned, self._newer)
        for _ in range(random.randint(20, 300)):
            random.choice(kinds)(random)
