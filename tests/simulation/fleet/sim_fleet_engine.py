"""One engine of the simulated fleet: its boots, its clock, its disk, and the effects of its machine.

It does what the engine's driver does: one reading of a board at a time, posts and acts one after the other, and what
was seen is stored a moment after it changed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from math import inf
from typing import Final

from paired_servicebus.core.fleet.engine_orders import EngineOrders, Kept, to_take_up
from paired_servicebus.core.fleet.fleet_documents import (
    Author,
    Board,
    Order,
    Presence,
    Report,
    Signer,
    Subject,
)
from paired_servicebus.core.fleet.fleet_events import (
    BoardRead,
    CarryOut,
    Clean,
    CleaningEnded,
    Ending,
    FleetEffect,
    FleetEvent,
    OwnState,
    ReadBoard,
    ReadFailed,
    Say,
    Ticked,
    Undo,
    Watched,
    Write,
    WriteFailed,
    Written,
)
from paired_servicebus.core.fleet.fleet_member import FleetMember
from paired_servicebus.core.fleet.order_rules import ORDER_SECONDS
from paired_servicebus.core.operator.actions import FLEET_VERBS
from tests.simulation.fleet.fleet_plan import (
    KEYS,
    PRIMARY,
    SECONDARY,
    EngineKind,
    FleetCondition,
    PlannedEngine,
)
from tests.simulation.fleet.fleet_run import Act, FleetRun
from tests.simulation.fleet.order_truth import OrderTruth, TrueOrder, subjects, true_order
from tests.simulation.fleet.sim_board import Reading, Signers, SimPost, verify
from tests.simulation.fleet.sim_guard import LOCAL, Done, Held, SimGuard

NEW_VERBS: Final = frozenset({"pause-syphon", "resume-syphon"})
"""The verbs that the version before does not know."""
STORE_SECONDS: Final = 0.2
STORE_AGAIN: Final = 30.0
"""Seconds until a refused write to the disk is tried again."""
START_SECONDS: Final = 1.5
"""Most seconds from a boot's take-up of what is stored to its first reading."""
MAX_UNSENT: Final = 100


class EngineClock:
    """A clock that is ahead and drifts, until it is set."""

    def __init__(self, planned: PlannedEngine, began: float) -> None:
        self.drift = planned.drift
        self._skew, self._since = planned.skew, began
        self.set_at = 0.0
        self.worst = abs(planned.skew)
        """The largest offset that evidence from before may still suggest."""

    def offset(self, now: float) -> float:
        """Return the seconds that it is ahead."""
        return self._skew + self.drift * (now - self._since)

    def time(self, now: float) -> float:
        """Return its time."""
        return now + self.offset(now)

    def set_right(self, now: float) -> None:
        """Set it."""
        self.worst = max(self.worst, abs(self.offset(now)))
        self._skew, self._since, self.set_at = 0.0, now, now

    @property
    def is_steady(self) -> bool:
        """Return whether evidence stays true. Else it is contradicted later, and the latest alone counts."""
        return not self.drift and not self.set_at


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
        self.truth = OrderTruth(self.name, self.signers, frozenset(self.verbs))
        self.boots = 0
        self.is_alive = False
        self.disk = Kept()
        self.local_disk: dict[Subject, Held] = {}
        self.messages = 0
        """Messages that its readings gave to it."""
        self.disk_fails_until = 0.0
        self.signers_at = 0.0
        """When its file of operators changed."""
        self.flood_messages = 0
        self.is_informed = False
        """Whether a boot with this disk has stored that it reached the end of both boards."""
        self.posted_with: dict[str, dict[Subject, TrueOrder]] = {}
        """The newest orders that it knew when it wrote a presence or a report, by the document's id."""
        self._is_doomed = False
        self.reads = self.writes = self.pages = self.read_generation = 0
        self.unwell_seconds = self.watching_seconds = self._watched_at = 0.0
        self.has_joined = False
        self.guard: SimGuard
        self.member: FleetMember
        self.book: EngineOrders

    @property
    def boot(self) -> str:
        return f"{self.name}.{self.boots}"

    @property
    def acts(self) -> bool:
        """Return whether it takes part in orders."""
        return self.signers is not None

    def own_time(self) -> float:
        return self.clock.time(self.world.clock.now)

    # -- a boot -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a boot: what is stored is taken up first."""
        world = self.world
        self.boots += 1
        self.is_alive, self.has_joined = True, False
        self.began_at = world.clock.now
        self.is_new = not self.is_informed
        self.truth.begin(self._on_disk(self.disk), is_new=self.is_new)
        self.guard = SimGuard(
            self.name, self.boot, syphon=self.planned.syphon, queues=self.planned.queues, began=self.own_time()
        )
        self.guard.held = dict(self.local_disk)
        self._take_up_stored()
        self._make_member()
        self._unsent: deque[Write] = deque()
        self._acts: deque[tuple[Act, float]] = deque()
        self.is_acting = self._is_sending = False
        self.width = inf
        """Seconds within which the best evidence of this boot knows the namespace's clock."""
        self._whole_at: dict[Board, float] = {}
        self._stored_version, self._stored_at = 0, 0.0
        self._tick_at = inf
        world.log(f"{self.boot} starts with {len(self.disk.seen)} seen and {len(self.disk.applied)} in force")
        world.later(world.random.uniform(0.1, START_SECONDS), self, self._join)

    @staticmethod
    def _on_disk(kept: Kept) -> dict[str, TrueOrder]:
        return {true_order(one).order_id: true_order(one) for one in (seen.order for seen in kept.seen)}

    def _take_up_stored(self) -> None:
        """Apply what held by the disk, as the engine's host does before its first send."""
        held = to_take_up(self.disk, engine=self.name, verbs=self.verbs, at=self.own_time())
        self.disk = replace(self.disk, applied=held)
        for one in held:
            self.guard.take_up(one)

    def _make_member(self) -> None:
        author = Author(
            engine=self.name, boot=self.boot, host=f"host-{self.index}", pid=1, program="shop", version="1",
            pairing="shop", environment="test", primary=PRIMARY, secondary=SECONDARY,
        )  # fmt: skip
        self.book = EngineOrders(engine=author, verbs=self.verbs, kept=self.disk)
        if self.signers is not None:
            self.book.judge_again(self._verdicts())
        self.member = FleetMember(
            author,
            signers="" if self.signers is None else str(sorted(self.signers)),
            expect=self.world.plan.expect,
            spread=self.planned.spread,
            orders=self.book,
        )

    def _verdicts(self) -> dict[str, bool]:
        return {one.order.id: one.is_signed_by(verify(one.order, self.signers)) for one in self.book.register.orders}

    def change_signers(self, *, is_whole: bool) -> None:
        """Take the last key out of the file of operators, or put it back."""
        if self.signers is None or self.planned.kind is EngineKind.FEWER_SIGNERS:
            return
        self.signers = frozenset(KEYS if is_whole else KEYS[:-2])
        self.truth.signers, self.signers_at = self.signers, self.world.clock.now
        self.world.log(f"{self.name} has the signers {sorted(self.signers)}")
        if self.is_alive and self.has_joined:
            self.member.note_signers(str(sorted(self.signers)), self._verdicts(), self.own_time())
            self.tell(Ticked(at=self.own_time()))

    def lose_disk(self) -> None:
        """Make the next boot one of a new pod."""
        self.disk, self.local_disk, self.is_informed = Kept(), {}, False

    def _join(self) -> None:
        self.has_joined = True
        if self.signers is not None:  # the file may have changed since the boot read it
            self.member.note_signers(str(sorted(self.signers)), self._verdicts(), self.own_time())
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

    def die_at_next_act(self) -> None:
        """Let it be killed between its next decision that replaces an order and the act."""
        self._is_doomed = True

    def _replaces(self, effect: Act) -> bool:
        """Return whether an effect replaces an order of the fleet that is in force here."""
        if not isinstance(effect, CarryOut):
            return False
        held = (self.guard.held.get(subject) for subject in subjects(effect.order.text))
        return any(one is not None and one.owner not in (LOCAL, effect.order.id) for one in held)

    def _start_again(self) -> None:
        if not self.is_alive:
            self.start()

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
            if self.world.network.condition(self.index, self.world.clock.now, is_write=True) is None:
                self.world.land(effect.document, effect.ttl)
        if self.world.clock.now >= self.disk_fails_until:
            self._keep(self.book.kept)
        self.is_alive = False
        self.world.log(f"{self.boot} ends")

    # -- the machine ------------------------------------------------------------------------------------------------

    def tell(self, event: FleetEvent) -> None:
        """Give an event to the machine, and perform its effects."""
        for effect in self.member.step(event):
            self._perform(effect)
        if self._stored_version != self.book.version:
            self._stored_version = self.book.version
            self._store_soon(self.world.random.uniform(0.0, STORE_SECONDS))
        self._schedule_tick()

    def _store_soon(self, seconds: float) -> None:
        """Store what is seen now, a moment later."""
        world = self.world
        self._stored_at = max(world.clock.now + seconds, self._stored_at)
        world.later(self._stored_at - world.clock.now, self, self._store, self.book.version, self.book.kept)

    def _store(self, version: int, kept: Kept) -> None:
        trouble = "no space" if self.world.clock.now < self.disk_fails_until else ""
        if trouble:
            self._store_soon(STORE_AGAIN)
        else:
            self._keep(kept)
        if warning := self.book.note_kept(version, trouble):
            self.world.log(f"{self.boot} says: {warning}")
        self.tell(Ticked(at=self.own_time()))

    def _keep(self, kept: Kept) -> None:
        self.disk = kept
        self.is_informed |= bool(self.truth.orders_end_at and self.truth.reports_end_at)
        self.truth.store(self._on_disk(kept))

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
            self.member.want_reports(self.own_time())
        self.tell(Watched(at=self.own_time(), is_watched=is_watched))

    def _perform(self, effect: FleetEffect) -> None:
        match effect:
            case ReadBoard():
                self._read(effect)
            case Write():
                if isinstance(effect.document, Presence | Report):
                    self.posted_with[effect.document.id] = self.truth.newest_read()
                self._unsent.append(effect)
                self._send()
            case Clean():
                self._clean(effect)
            case CarryOut() | Undo():
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
        posts = tuple(post.read(self.signers) for post in reading.posts)
        self._serve(effect, reading)
        self.tell(
            BoardRead(at=self.own_time(), board=effect.board, since=effect.since, posts=posts, is_end=reading.is_end)
        )

    def _learn(self, effect: ReadBoard, reading: Reading, asked_at: float) -> None:
        """Note for the checks what this reading shows. A look at the first message alone is a check of the queue."""
        if effect.most == 1:
            return
        before = self._whole_at.get(effect.board)
        is_new = before is not None and any(post.enqueued_at > before for post in reading.posts)
        if before is not None and is_new and not self.is_misled:
            steady = self.clock.is_steady and not self.world.has_stale
            width = self.world.clock.now - before
            self.width = min(self.width, width) if steady or self.width == inf else max(self.width, width)
        if effect.since == 1:
            self.read_generation = self.world.orders.generation
        self.pages += not reading.is_end
        if reading.is_end and asked_at >= self.clock.set_at:
            self._whole_at[effect.board] = asked_at

    def _serve(self, effect: ReadBoard, reading: Reading) -> None:
        """Note for the checks what the engine can know by a reading."""
        self.messages += len(reading.posts)
        for post in reading.posts:
            for order in post.orders:
                self.truth.serve(order, post.enqueued_at, self.world.clock.now)
        if not reading.is_end or effect.most == 1:
            return
        if effect.board is Board.ORDERS:
            self.truth.orders_end_at = self.world.clock.now
        else:
            self.truth.reports_end_at = self.world.clock.now

    def _send(self) -> None:
        if self._is_sending or not self._unsent:
            return
        world = self.world
        self._is_sending = True
        self.writes += 1
        effect = self._unsent.popleft()
        condition = world.network.condition(self.index, world.clock.now, is_write=True)
        if isinstance(effect.document, Presence | Report):
            presence = effect.document.presence if isinstance(effect.document, Report) else effect.document
            world.checks.answered(self, presence.rows)
        world.later(world.network.seconds(condition), self, self._sent, effect, condition)

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
        board = self.world.boards[effect.document.kind.board]
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

    def post_order(self, order: Order) -> None:
        """Post an order of a console."""
        world = self.world
        condition = world.network.condition(self.index, world.clock.now, is_write=True)
        world.later(world.network.seconds(condition), self, self._posted, order, condition)

    def _posted(self, order: Order, condition: FleetCondition | None) -> None:
        reason = self._try_to_land(Write(document=order, ttl=ORDER_SECONDS), condition)
        if not reason:
            signer = verify(order, self.signers)
            self.truth.serve(order, self.world.clock.now, inf)
            self.member.note_posted(order, signer if isinstance(signer, Signer) else None, self.own_time())
            self.tell(Ticked(at=self.own_time()))

    def check(self, order: Order) -> str:
        """Return why an order of a console would be void."""
        at = self.member.clock.namespace_time(self.own_time())
        signer = Signer(by="", fingerprint="") if self.signers is None else verify(order, self.signers)
        return self.book.check(order, signer, at)

    def _clean(self, effect: Clean) -> None:
        gone: list[SimPost] = self.world.boards[effect.board].clean(effect)
        self.writes += 1
        if effect.is_flush:
            self.world.log(f"{self.boot} flushes {len(gone)} messages of {effect.board}")
        self.world.checks.cleaned(self, effect, gone)
        self.world.later(0.1, self, self.tell, CleaningEnded(at=self.own_time(), wanted=effect))

    # -- acts -------------------------------------------------------------------------------------------------------

    def _act_next(self) -> None:
        if self.is_acting or not self._acts:
            return
        world = self.world
        if self._is_doomed and self._replaces(self._acts[0][0]):
            self._is_doomed = False
            self.crash()
            world.clock.at(world.clock.now + 10.0, self._start_again)
            return
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
        world.later(0.0, self, self._acted, effect, done)
        self.is_acting = False
        self._act_next()

    def _acted(self, effect: Act, done: Done) -> None:
        if isinstance(effect, CarryOut):
            self.book.note_outcome(done.ended)
        else:
            self.book.note_undone(effect.order)
        self.note_state()

    def act_locally(self, verb: str, target: str) -> None:
        """Carry out a local operator's order."""
        subject = self.guard.act_locally(verb, target, self.own_time())
        if subject is None:
            return
        self.world.log(f"{self.boot}: a local operator orders {verb} {target}")
        self.local_disk = {key: one for key, one in self.guard.held.items() if one.owner == LOCAL}
        self.world.checks.acted_locally(self, subject)
        self.book.note_local((subject,), "", self.member.clock.namespace_time(self.own_time()))
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

    @property
    def is_deaf(self) -> bool:
        """Return whether it has not read the boards as far as an act needs."""
        return not self.book.is_informed


def _signers(kind: EngineKind) -> Signers:
    if kind is EngineKind.LOOK_ONLY:
        return None
    return frozenset(KEYS[:-1] if kind is EngineKind.FEWER_SIGNERS else KEYS)
