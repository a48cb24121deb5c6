"""An enemy who may send to both boards and receive from them, but has no key of an operator.

copy               posts an old order again          change            alters the bytes of an order
unsigned, foreign  orders without a right            other pairing     an order of another pairing
newer, broken      an unknown version; no document   no end, long end  a form that no order has
dated back         an ended key signs                future            an order that is issued later
carried            a presence with forged orders     goodbye           ends an engine in its name
row, presence      answers for engines, invents some
watch, flood       makes engines work                deluge            floods a board beyond reading
take, take newest  receives orders                   take presence     receives presences
take all           receives every order              resurrect         posts again what was replaced
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
    OrderRow,
    OrderText,
    Outcome,
    Posted,
    Presence,
    Watch,
    encode_order_text,
)
from paired_servicebus.core.fleet.order_rules import to_type
from paired_servicebus.core.model.fleet_view import Takes
from paired_servicebus.core.operator.actions import FLEET_VERBS
from tests.simulation.fleet.fleet_plan import (
    ENDED_AT,
    ENDED_KEY,
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

    def _order(self, order: Order) -> None:
        self.world.boards[Board.ORDERS].write(order, HOUR, self.world.clock.now)

    def _some(self, random: Random) -> Order | None:
        return random.choice(self.world.genuine) if self.world.genuine else None

    def _copy(self, random: Random) -> None:
        if (order := self._some(random)) is not None:
            self._order(order)

    def _change(self, random: Random) -> None:
        order = self._some(random)
        if order is None:
            return
        target = random.choice(ENTITIES)
        now = self.world.clock.now
        text = replace(order.text, targets=(target,), issued_at=now, until=now + HOUR)
        changed = self._retyped(replace(text, scope="entity", verb="force", engines=None))
        self._order(Order(signed=encode_order_text(changed).decode(), signature=order.signature))

    def _text(self, random: Random, **other: object) -> OrderText:
        """Return an order that would count if it were signed."""
        world = self.world
        text = OrderText(
            primary=PRIMARY, secondary=SECONDARY, verb="force", scope="entity", targets=(random.choice(ENTITIES),),
            engines=None, typed="", reach=len(self.engines), why=world.next_id("enemy"), issued_at=world.clock.now,
            until=world.clock.now + HOUR, seen="",
        )  # fmt: skip
        return self._retyped(replace(text, **other))  # type: ignore[arg-type]

    @staticmethod
    def _retyped(text: OrderText) -> OrderText:
        return replace(text, typed=to_type(text, FLEET_VERBS[text.verb]))

    def _unsigned(self, random: Random) -> None:
        text = self._text(random)
        self._order(Order(signed=encode_order_text(text).decode(), signature=""))

    def _foreign(self, random: Random) -> None:
        self._order(sign(self._text(random), FOREIGN_KEY))

    def _other_pairing(self, random: Random) -> None:
        """Post an order that an operator gave to another pairing."""
        self._order(sign(self._text(random, secondary="shop-us"), KEYS[0]))

    def _no_end(self, random: Random) -> None:
        """Post a signed order that ends before it begins."""
        self._order(sign(self._text(random, until=self.world.clock.now - 1.0), KEYS[0]))

    def _long_end(self, random: Random) -> None:
        """Post a signed order that stands for longer than any may."""
        self._order(sign(self._text(random, until=self.world.clock.now + 100 * HOUR), KEYS[0]))

    def _future(self, random: Random) -> None:
        """Post an order by an operator whose clock is hours ahead."""
        later = self.world.clock.now + random.uniform(61.0, HOUR) + 240.0
        order = sign(self._text(random, issued_at=later, until=later + HOUR), KEYS[0])
        self._order(order)

    def _dated_back(self, random: Random) -> None:
        """Post an order that an ended key signs now, with a time of issue before its end."""
        order = sign(self._text(random, issued_at=ENDED_AT - 1.0), ENDED_KEY)
        self.world.dated_back.add(order.id)
        self._order(order)

    def _newer(self, random: Random) -> None:
        del random
        post = Posted(
            number=0, enqueued_at=0, ends_at=0, document=None, copies=self.world.next_id("newer"), is_newer=True,
            kind="order",
        )  # fmt: skip
        self.world.boards[Board.ORDERS].write(post, HOUR, self.world.clock.now)

    def _take(self, random: Random) -> None:
        """Receive one of the newest orders."""
        board = self.world.boards[Board.ORDERS]
        if orders := [post for post in board.posts if post.order is not None]:
            board.take(random.choice(orders[-3:]))

    def _take_newest(self, random: Random) -> None:
        """Receive the newest release, so that what it ended looks as if it stood."""
        del random
        board = self.world.boards[Board.ORDERS]
        orders = [post for post in board.posts if post.order is not None and post.order.text.verb in FLEET_VERBS]
        releases = [post for post in orders if post.order and not FLEET_VERBS[post.order.text.verb].stands]
        for post in releases[-1:] or orders[-1:]:
            board.take(post)

    def _take_all(self, random: Random) -> None:
        del random
        board = self.world.boards[Board.ORDERS]
        for post in [post for post in board.posts if post.order is not None]:
            board.take(post)

    def _resurrect(self, random: Random) -> None:
        """Receive every order, and post those again that newer ones replaced."""
        self._take_all(random)
        newest = {one.text.targets: one for one in self.world.genuine}
        for order in self.world.genuine:
            if newest[order.text.targets] is not order:
                self._order(order)

    def _take_presence(self, random: Random) -> None:
        board = self.world.boards[Board.REPORTS]
        for post in [post for post in board.posts if random.random() < 0.5]:
            board.take(post)

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

    def _presence_of(self, author: Author, *, rows: tuple[OrderRow, ...] = (), **other: object) -> None:
        presence = Presence(
            id=self.world.next_id("presence"), author=author, started_at=self.world.began, queues=(), syphon="off",
            states=(), not_well=(), takes=Takes.SIGNED, signers="", clock_offset=None, rows=rows,
        )  # fmt: skip
        document = replace(presence, **other)  # type: ignore[arg-type]
        self.world.boards[Board.REPORTS].write(document, HOUR, self.world.clock.now)

    def _row(self, random: Random) -> None:
        """Answer the newest order in the name of an engine."""
        if not self.world.genuine:
            return
        order, author = self.world.genuine[-1], self._author(random)
        self.world.forged.add((order.id, author.engine.casefold()))
        self._presence_of(author, rows=(OrderRow(order_id=order.id, outcome=Outcome.DONE),))

    def _presence(self, random: Random) -> None:
        """Invent engines."""
        self.world.has_claims = True
        for number in range(random.randint(1, 20)):
            self._presence_of(replace(self._author(random), engine=f"Ghost-{number}"), newest_order=9e9)

    def _carried(self, random: Random) -> None:
        """Invent an engine that has seen old and forged orders."""
        self.world.has_claims = True
        forged = [sign(self._text(random), FOREIGN_KEY) for _ in range(3)]
        later = self.world.clock.now + HOUR
        forged += [sign(self._text(random, issued_at=later, until=later + HOUR), KEYS[0])]
        orders = [*random.sample(self.world.genuine, min(3, len(self.world.genuine))), *forged]
        carried = tuple(orders)
        self._presence_of(replace(self._author(random), engine="Ghost"), carried=carried)

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

    def _deluge(self, random: Random) -> None:
        """Post more junk than anybody reads."""
        is_orders = random.random() < 0.8
        board = self.world.boards[Board.ORDERS if is_orders else Board.REPORTS]
        post = Posted(number=0, enqueued_at=0, ends_at=0, document=None, trouble="it is not JSON")
        for _ in range(random.randint(1_500, 4_500) if is_orders else 8_000):
            board.write(post, HOUR, self.world.clock.now)
        self.world.deluges += 1
