"""One engine of the simulated fleet: its boots, its clock, its disk, and the effects of its machine.

It does what the engine's driver does: one reading of a board at a time, posts and acts one after the other, and what
stands is stored a moment after it changed.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Any, Final

from paired_servicebus.core.fleet.fleet_documents import (
    BOARD_OF,
    Author,
    Board,
    Order,
    OrderAnswer,
    Signer,
    Subject,
    kind_of,
)
from paired_servicebus.core.fleet.fleet_events import (
    BoardRead,
    CarryOut,
    Clean,
    Ending,
    FleetEffect,
    FleetEvent,
    LocallyOrdered,
    LookWanted,
    OwnState,
    ReadBoard,
    ReadFailed,
    RosterWanted,
    Say,
    TakeUp,
    Ticked,
    Undo,
    Watched,
    Write,
    WriteFailed,
    Written,
)
from paired_servicebus.core.fleet.fleet_member import FleetMember, Identity
from paired_servicebus.core.fleet.orders.order_book import KeptOrders, OrderBook
from paired_servicebus.core.fleet.orders.order_rules import ORDER_SECONDS, ThisEngine
from paired_servicebus.core.fleet.orders.standing_rules import in_force
from paired_servicebus.core.operator.actions import BY_ID, FLEET_VERBS
from tests.core.fleet.counted_orders import CountedOrders
from tests.simulation.fleet.engine_clock import EngineClock
from tests.simulation.fleet.fleet_plan import (
    KEYS,
    PRIMARY,
    SECONDARY,
    EngineKind,
    FleetCondition,
    PlannedEngine,
)
from tests.simulation.fleet.fleet_run import Act, FleetRun
from tests.simulation.fleet.order_truth import OrderTruth, StoredTruth
from tests.simulation.fleet.sim_board import Reading, Signers, SimPost, verify
from tests.simulation.fleet.sim_guard import LOCAL, Held, SimGuard

NEW_VERBS: Final = frozenset({"pause-syphon", "resume-syphon"})
"""The verbs that the version before does not know."""
STORE_SECONDS: Final = 0.2
START_SECONDS: Final = 1.5
"""Most seconds from a boot's take-up of what is stored to its first reading."""
MAX_UNSENT: Final = 100


class SimFleetEngine:
    """One engine, over all its boots."""

    def __init__(self, world: FleetRun, index: int, planned: PlannedEngine) -> None:
        self.world, self.index, self.planned = world, index, planned
        self.name = f"App-{index}"
        self.clock = EngineClock(planned, world.clock.now)
        self.signers = _signers(planned.kind)
        self.verbs = {
            verb: row
            for verb, row in FLEET_VERBS.items()
            if planned.kind is not EngineKind.FEWER_VERBS or verb not in NEW_VERBS
        }
        judges = planned.kind is not EngineKind.NO_ORDERS
        self.truth = OrderTruth(self.name, self.signers, frozenset(self.verbs) if judges else frozenset())
        self.boots = 0
        self.is_alive = False
        self.disk = KeptOrders()
        self.local_disk: dict[Subject, Held] = {}
        self.acted: set[str] = set()
        """Ids of the orders that are done once, over all boots."""
        self.reads = self.writes = self.pages = self.read_generation = 0
        self.unwell_seconds = self.watching_seconds = self._watched_at = 0.0
        self.has_joined = False
        self.guard: SimGuard
        self.member: FleetMember
        self.book: OrderBook | None = None

    @property
    def boot(self) -> str:
        return f"{self.name}.{self.boots}"

    @property
    def acts(self) -> bool:
        """Return whether it takes part in orders."""
        return self.planned.kind is not EngineKind.NO_ORDERS and self.signers is not None

    def own_time(self) -> float:
        return self.clock.time(self.world.clock.now)

    # -- a boot -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a boot: what is stored is taken up first."""
        world = self.world
        self.boots += 1
        self.is_alive, self.has_joined = True, False
        self.began_at = world.clock.now
        self.truth.begin()
        self.guard = SimGuard(
            self.name, self.boot, syphon=self.planned.syphon, queues=self.planned.queues, began=self.own_time()
        )
        self.guard.held = dict(self.local_disk)
        self._take_up_stored()
        self._make_member()
        self._unsent: deque[Write] = deque()
        self._acts: deque[tuple[Act, float]] = deque()
        self.is_acting = self._is_sending = False
        self.unseen: dict[str, tuple[Order, float]] = {}
        self.width = inf
        """Seconds within which the best evidence of this boot knows the namespace's clock."""
        self._whole_at: dict[Board, float] = {}
        self._stored_version, self._stored_at = self.truth.version, 0.0
        self._tick_at = inf
        world.log(f"{self.boot} starts{'' if not self.disk.standing else f' with {len(self.disk.standing)} stored'}")
        world.later(world.random.uniform(0.1, START_SECONDS), self, self._join)

    def _take_up_stored(self) -> None:
        """Apply what stands by the disk, as the engine's host does before its first send."""
        if not self.acts:
            return
        at = self.own_time()
        for one in in_force(self.disk.standing, dict(self.disk.released)):
            if one.until > at:
                self.guard.carry_out(TakeUp(order=one), at, fails=False)

    def _make_member(self) -> None:
        author = Author(
            engine=self.name, boot=self.boot, host=f"host-{self.index}", pid=1, program="shop", version="1",
            pairing="shop", environment="test", primary=PRIMARY, secondary=SECONDARY,
        )  # fmt: skip
        expect = self.world.plan.expect
        self.book = None
        if self.planned.kind is not EngineKind.NO_ORDERS:
            me = ThisEngine(name=self.name, primary=PRIMARY, secondary=SECONDARY)
            self.book = OrderBook(engine=me, verbs=self.verbs, expect=expect, kept=self.disk)
        signers = "" if self.signers is None else str(sorted(self.signers))
        self.member = FleetMember(
            Identity(author=author, signers=signers),
            expect=expect,
            spread=self.planned.spread,
            orders=self.book or CountedOrders(),
        )
        self._kept = self.disk

    def _join(self) -> None:
        self.has_joined = True
        self.world.checks.taken_up(self)
        self.note_state()

    def set_clock(self) -> None:
        """Set its clock right: what it knows of the namespace's clock is wrong for a while."""
        self.clock.set_right(self.world.clock.now)
        if self.is_alive:
            self.width = self._tick_at = inf
            self._whole_at.clear()
            self._schedule_tick()

    def change(self, path: str, *, fails: bool) -> None:
        """Have an entity fail over by itself, or recover."""
        if self.is_alive and self.has_joined:
            (self.guard.failed_over.add if fails else self.guard.failed_over.discard)(path)
            self.note_state()

    def crash(self) -> None:
        """Kill the engine."""
        self.is_alive = False
        self.world.log(f"{self.boot} is killed")

    def end(self) -> None:
        """End the engine cleanly."""
        if not self.is_alive:
            return
        self.tell(Ending(at=self.own_time(), reason="a deployment"))
        while self._unsent:
            effect = self._unsent.popleft()
            self._note_answer(effect)
            if self.world.network.condition(self.index, self.world.clock.now, is_write=True) is None:
                self.world.land(effect.document, effect.ttl)
        self._store(self._kept, self.truth.snapshot(self.world.clock.now))
        self.is_alive = False
        self.world.log(f"{self.boot} ends")

    # -- the machine ------------------------------------------------------------------------------------------------

    def tell(self, event: FleetEvent) -> None:
        """Give an event to the machine, and perform its effects."""
        for effect in self.member.step(event):
            self._perform(effect)
        if self.book is not None and self.book.kept != self._kept:
            self._kept, self._stored_version = self.book.kept, -1
        if self._stored_version != self.truth.version:
            self._store_soon()
        self._schedule_tick()

    def _store_soon(self) -> None:
        """Store what stands now, a moment later."""
        world = self.world
        self._stored_version = self.truth.version
        self._stored_at = max(world.clock.now + world.random.uniform(0.0, STORE_SECONDS), self._stored_at)
        kept, truth = self._kept, self.truth.snapshot(world.clock.now)
        world.later(self._stored_at - world.clock.now, self, self._store, kept, truth)

    def _store(self, kept: KeptOrders, truth: StoredTruth) -> None:
        self.disk, self.truth.stored = kept, truth

    def _schedule_tick(self) -> None:
        due = self.member.next_deadline
        wait = max(due - self.own_time(), 0.0)
        now = self.world.clock.now
        if wait < inf and now + wait < self._tick_at:
            self._tick_at = now + wait + 1e-4
            self.world.later(wait + 1e-4, self, self._tick, self._tick_at)

    def _tick(self, planned: float) -> None:
        if planned != self._tick_at:
            return
        self._tick_at = inf
        self.tell(Ticked(at=self.own_time()))

    def note_state(self) -> None:
        """Tell the machine the engine's own state."""
        at = self.own_time()
        self.tell(OwnState(at=at, snapshot=self.guard.snapshot(at)))

    def watch(self, *, is_watched: bool) -> None:
        """Note that a console shows the fleet, or none does any more."""
        now = self.world.clock.now
        self.watching_seconds += 0.0 if is_watched else now - self._watched_at
        if is_watched:
            self._watched_at = now
            self.tell(RosterWanted(at=self.own_time()))
        self.tell(Watched(at=self.own_time(), is_watched=is_watched))

    def _perform(self, effect: FleetEffect) -> None:
        match effect:
            case ReadBoard():
                self._read(effect)
            case Write():
                self._unsent.append(effect)
                self._send()
            case Clean():
                self._clean(effect)
            case CarryOut() | TakeUp() | Undo():
                self.world.checks.decided(self, effect)
                self._acts.append((effect, self.world.clock.now))
                self._act_next()
            case Say():
                self.world.log(f"{self.boot} says: {effect.text}")

    # -- boards -----------------------------------------------------------------------------------------------------

    def _read(self, effect: ReadBoard) -> None:
        world = self.world
        self.reads += 1
        condition = world.network.condition(self.index, world.clock.now, is_write=False)
        world.later(world.network.seconds(condition), self, self._arrive, effect, condition, world.clock.now)

    def _arrive(self, effect: ReadBoard, condition: FleetCondition | None, asked_at: float) -> None:
        world, board = self.world, self.world.boards[effect.board]
        is_missing = world.clock.now < board.missing_until
        if is_missing or condition in (FleetCondition.UNREACHABLE, FleetCondition.BUSY):
            reason, is_busy = "missing" if is_missing else str(condition), condition is FleetCondition.BUSY
            self.tell(ReadFailed(at=self.own_time(), board=effect.board, reason=reason, is_busy=is_busy))
            return
        reading = board.read(effect.since, effect.most, world.clock.now, is_stale=condition is FleetCondition.STALE)
        is_orders = effect.board is Board.ORDERS
        if is_orders:
            self._learn(effect, reading, asked_at)
        posts = tuple(post.read(self.signers) if is_orders else post.base for post in reading.posts)
        self.tell(
            BoardRead(at=self.own_time(), board=effect.board, since=effect.since, posts=posts, is_end=reading.is_end)
        )
        if is_orders:
            self._after_orders(reading, asked_at)

    def _learn(self, effect: ReadBoard, reading: Reading, asked_at: float) -> None:
        """Note for the checks what this reading shows. A look at the first message alone is a check of the queue."""
        if effect.most == 1:
            return
        before = self._whole_at.get(effect.board)
        if reading.posts and before is not None:
            steady = self.clock.is_steady and not self.world.has_stale
            width = self.world.clock.now - before
            self.width = min(self.width, width) if steady or self.width == inf else max(self.width, width)
        if effect.since == 1:
            self.truth.read_again()
            self.read_generation = self.world.orders.generation
        self.truth.serve(reading.posts)
        self.pages += not reading.is_end
        if reading.is_end:
            if asked_at >= self.clock.set_at:
                self._whole_at[effect.board] = asked_at
            self.truth.judge()

    def _after_orders(self, reading: Reading, asked_at: float) -> None:
        """Post orders of this engine's console again that a whole reading does not show."""
        if not reading.is_end:
            return
        for order_id, (order, posted_at) in list(self.unseen.items()):
            if posted_at <= asked_at:
                del self.unseen[order_id]
                if self.book is not None and not self.book.has(order_id):
                    self.world.log(f"{self.boot} posts {order_id} again")
                    self.post_order(order, is_again=True)

    def _send(self) -> None:
        if self._is_sending or not self._unsent:
            return
        world = self.world
        self._is_sending = True
        self.writes += 1
        effect = self._unsent.popleft()
        condition = world.network.condition(self.index, world.clock.now, is_write=True)
        self._note_answer(effect)
        world.later(world.network.seconds(condition), self, self._sent, effect, condition)

    def _note_answer(self, effect: Write) -> None:
        if isinstance(effect.document, OrderAnswer):
            self.world.checks.answered(self, effect.document)

    def _sent(self, effect: Write, condition: FleetCondition | None) -> None:
        self._is_sending = False
        reason = self._try_to_land(effect, condition)
        if reason:
            is_busy = condition is FleetCondition.BUSY
            self.tell(WriteFailed(at=self.own_time(), document=effect.document, reason=reason, is_busy=is_busy))
        else:
            self.tell(Written(at=self.own_time(), document=effect.document))
        self._send()

    def _try_to_land(self, effect: Write, condition: FleetCondition | None) -> str:
        """Put a document on its board; return the failure that its author sees."""
        board = self.world.boards[BOARD_OF[kind_of(effect.document)]]
        if self.world.clock.now < board.missing_until:
            return "missing"
        if condition in (FleetCondition.UNREACHABLE, FleetCondition.BUSY):
            return str(condition)
        if condition is FleetCondition.LANDS_LATE:
            self.world.clock.at(
                self.world.clock.now + self.world.network.lateness(), self.world.land, effect.document, effect.ttl
            )
        else:
            self.world.land(effect.document, effect.ttl)
        return "no acknowledgement" if condition is FleetCondition.ACK_LOST else ""

    def post_order(self, order: Order, *, is_again: bool = False) -> None:
        """Post an order of a console."""
        world = self.world
        condition = world.network.condition(self.index, world.clock.now, is_write=True)
        world.later(world.network.seconds(condition), self, self._posted, order, condition, is_again)

    def _posted(self, order: Order, condition: FleetCondition | None, is_again: bool) -> None:
        reason = self._try_to_land(Write(document=order, ttl=ORDER_SECONDS), condition)
        if not reason and not is_again:
            self.unseen[order.id] = (order, self.world.clock.now)
        if not reason:
            self.tell(LookWanted(at=self.own_time()))

    def check(self, order: Order) -> str:
        """Return why an order of a console would be void."""
        if self.book is None:
            return "this engine knows no orders"
        at = self.member.clock.namespace_time(self.own_time())
        signer = Signer(by="", fingerprint="") if self.signers is None else verify(order, self.signers)
        return self.book.check(order, signer, at)

    def _clean(self, effect: Clean) -> None:
        gone: list[SimPost] = self.world.boards[effect.board].clean(effect)
        self.writes += 1
        self.world.checks.cleaned(self, gone)

    # -- acts -------------------------------------------------------------------------------------------------------

    def _act_next(self) -> None:
        if self.is_acting or not self._acts:
            return
        world = self.world
        self.is_acting = True
        seconds = world.random.choice((0.0, 0.01, 0.05, world.random.uniform(0.0, 3.0)))
        world.later(seconds, self, self._act, *self._acts.popleft())

    def _act(self, effect: Act, decided_at: float) -> None:
        world = self.world
        fails = isinstance(effect, CarryOut) and world.random.random() < 0.02
        before = dict(self.guard.held)
        done = self.guard.carry_out(effect, self.own_time(), fails=fails)
        world.checks.acted(self, effect, done, before, decided_at)
        self.local_disk = {key: one for key, one in self.guard.held.items() if one.owner == LOCAL}
        is_slow = isinstance(effect, CarryOut) and BY_ID[effect.order.text.verb].slow
        world.later(world.random.uniform(1.0, 30.0) if is_slow else 0.0, self, self._acted, done.ended)
        self.is_acting = False
        self._act_next()

    def _acted(self, ended: Any) -> None:
        self.tell(ended)
        self.note_state()

    def act_locally(self, verb: str, target: str) -> None:
        """Carry out a local operator's order."""
        subject = self.guard.act_locally(verb, target, self.own_time())
        if subject is None:
            return
        self.world.log(f"{self.boot}: a local operator orders {verb} {target}")
        self.local_disk = {key: one for key, one in self.guard.held.items() if one.owner == LOCAL}
        self.world.checks.acted_locally(self, subject)
        self.tell(LocallyOrdered(at=self.own_time(), subjects=(subject,)))
        self.note_state()

    @property
    def tolerance(self) -> float:
        """Return the seconds by which it may err about the namespace's time."""
        now = self.world.clock.now
        drift = abs(self.clock.drift) * (now - self.began_at)
        return self.world.clock_margin + drift + min(max(self.clock.worst, abs(self.clock.offset(now))), self.width)

    @property
    def is_misled(self) -> bool:
        """Return whether it does not know yet that the board was created again."""
        return self.read_generation != self.world.orders.generation

    @property
    def is_busy(self) -> bool:
        """Return whether acts are under way."""
        return self.is_acting or bool(self._acts)


def _signers(kind: EngineKind) -> Signers:
    if kind in (EngineKind.LOOK_ONLY, EngineKind.NO_ORDERS):
        return None
    return frozenset(KEYS[:-1] if kind is EngineKind.FEWER_SIGNERS else KEYS)
