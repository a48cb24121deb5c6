"""The invariants of the fleet (FLEET.md section 10), checked against the truth of each engine and the facts of boards.

no act without a counting order          decided      an end is kept, and no order ends early  looked, decided
seen on disk before it acts              decided      a void order changes nothing             decided, looked
no engine returns to an older order      decided      a local order holds against older ones   decided, acted
a new engine reads both boards first     decided      what stands is in force                  looked
"done" means done                        viewed       done + refused + silent = addressed      viewed
engines stand equal after recovery       equal        a cleaning deletes no order              cleaned
operations stay within bounds            operations   a reading stays within its share         operations
a flooded board is said                  looked       each engine answers                      all_answered
who orders later wins                    drafted
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Final

from paired_servicebus.core.fleet.fleet_documents import Board, OrderRow, OrderText, Outcome, Presence, Report, Subject
from paired_servicebus.core.fleet.fleet_events import CarryOut, Clean
from paired_servicebus.core.model.fleet_view import FleetOrder, FleetStatus, FleetView
from tests.simulation.fleet.fleet_run import Act, FleetRun
from tests.simulation.fleet.order_truth import TrueOrder, is_for, is_right, subjects, true_order
from tests.simulation.fleet.sim_board import SimPost
from tests.simulation.fleet.sim_fleet_engine import SimFleetEngine
from tests.simulation.fleet.sim_guard import LOCAL, Done, Held
from tests.simulation.invariants import MAX_BROKEN, BrokenInvariant

SLACK: Final = 1.25
"""The margin of the allowed operations."""
LAG: Final = 15.0
"""Seconds that decided acts may wait for each other, and for the disk."""
CREDITS_A_SECOND: Final = 20.0
FIRST_CREDITS: Final = 5_000.0


class FleetChecker:
    """The checker of one run."""

    def __init__(self, world: FleetRun, engines: list[SimFleetEngine]) -> None:
        self.world, self.engines = world, engines
        self.broken: list[BrokenInvariant] = []
        self.acts = self.answers = 0
        self._did: set[tuple[str, str, str]] = set()
        """Name, boot and order id of what was done."""
        self._refused: set[tuple[str, Subject, str]] = set()
        """Name, subject and order of what is not in force, because the guard refused it."""
        self._said: set[tuple[object, ...]] = set()
        self._local_at: dict[tuple[str, Subject], float] = {}
        self._contested: set[tuple[str, Subject]] = set()

    def fail(self, rule: str, text: str, *about: object) -> None:
        """Record a broken rule, once for each subject."""
        if (rule, *about) in self._said and about:
            return
        self._said.add((rule, *about))
        found = BrokenInvariant(rule, self.world.clock.now - self.world.began, text)
        self.world.log(f"BROKEN {rule}: {text}")
        if len(self.broken) < MAX_BROKEN:
            self.broken.append(found)

    # -- orders -------------------------------------------------------------------------------------------------------

    def drafted(self, engine: SimFleetEngine, text: OrderText) -> None:
        """Check that an order is issued after those that it shall replace, as its console knows them."""
        newest = engine.truth.newest()
        for subject in subjects(text):
            known = newest.get(subject)
            if known is not None and known.text.until > self.world.clock.now and known.text.issued_at >= text.issued_at:
                shown = f"{engine.boot}: {subject} is by {known.order_id[:8]}, issued at {known.text.issued_at:.3f}"
                self.fail("who orders later wins", f"{shown}, and is ordered for {text.issued_at:.3f}")

    # -- decisions ----------------------------------------------------------------------------------------------------

    def decided(self, engine: SimFleetEngine, effect: Act) -> None:
        """Check an effect of the orders at its decision."""
        if isinstance(effect, CarryOut):
            command = effect.command
            self.world.log(f"{engine.boot} decides on {effect.order.id[:8]} {command.action_id} {command.targets}")
            one = true_order(effect.order)
            for subject in subjects(one.text):
                targets = {target.casefold() for target in command.targets}
                if not targets or subject[2] in targets:
                    self._check_decision(engine, one, subject)
            return
        order = effect.order
        self.world.log(f"{engine.boot} undoes {order.order_id[:8]} {order.subject}")
        newest = engine.truth.newest().get(order.subject)
        text = self.world.texts.get(order.order_id)
        until = order.until if text is None else text.until
        is_over = until <= self.world.clock.now + engine.tolerance
        is_succeeded = newest is not None and (newest.order_id != order.order_id or not engine.truth.is_valid(newest))
        if not is_over and not is_succeeded and engine.signers_at < self.world.clock.now - LAG:
            self.fail("no order ends early", f"{engine.boot}: {order.order_id[:8]} is undone before its end")

    def _check_decision(self, engine: SimFleetEngine, one: TrueOrder, subject: Subject) -> None:
        name, truth = f"{engine.boot}: {one.order_id[:8]} {one.text.verb} {subject}", engine.truth
        if why := self._unfounded(engine, one, subject):
            self.fail("no act without a counting order", f"{name}: {why}")
        if one.order_id not in {true.order_id for true in engine._on_disk(engine.disk).values()}:
            self.fail("seen on disk before it acts", name)
        if truth.best.get(subject, one.age) > one.age:
            self.fail("no engine returns to an older order", f"{name}: it has seen {truth.best[subject][1][:8]}")
        if not truth.orders_end_at or (engine.is_new and not truth.reports_end_at):
            self.fail("a new engine reads both boards first", name)
        if engine.is_new:
            self._check_new(engine, one, subject, name)
        local = self._local_at.get((engine.name, subject))
        given, margin = self.world.given.get(one.order_id, (inf, 0.0))
        if (
            local is not None
            and given + margin + engine.tolerance < local
            and (engine.name, subject) not in self._contested
        ):
            self.fail("a local order holds against older ones", name)

    def _unfounded(self, engine: SimFleetEngine, one: TrueOrder, subject: Subject) -> str:
        """Return why an order must not be carried out; empty: it counts."""
        if one.order_id not in engine.truth.known:
            return "it was not read, or does not count"
        if not engine.truth.is_valid(one) and engine.signers_at < self.world.clock.now - LAG:
            return "its signer has no right"
        if not is_for(one.text, engine.name):
            return "it is for others"
        if one.text.until <= self.world.clock.now - engine.tolerance:
            return "it is over"
        newest = engine.truth.newest()[subject]
        return "" if newest.order_id == one.order_id else f"{newest.order_id[:8]} is newer"

    def _check_new(self, engine: SimFleetEngine, one: TrueOrder, subject: Subject, name: str) -> None:
        """Check that a new engine obeys no order that a presence on the board shows to be replaced."""
        for post in self.world.boards[Board.REPORTS].posts:
            if post.enqueued_at >= engine.truth.reports_end_at - 25.0:  # a stale reading misses the newest
                continue
            for order in map(true_order, post.carried):
                is_newer = order.age > one.age and order.text.issued_at <= post.enqueued_at + 60.0
                is_known = engine.truth.is_valid(order) and is_for(order.text, engine.name)
                if is_newer and is_known and subject in subjects(order.text):
                    self.fail("a new engine obeys nothing revoked", f"{name}: {order.order_id[:8]} is carried")
            known = self._known_to(post)
            if subject in known and known[subject].age > one.age and engine.truth.is_valid(known[subject]):
                author = f"{known[subject].order_id[:8]} was known to the author of a presence"
                self.fail("a new engine obeys nothing revoked", f"{name}: {author}")

    def _known_to(self, post: SimPost) -> dict[Subject, TrueOrder]:
        """Return the newest orders for all engines that the author of a presence or report knew, as the truth is."""
        document = post.base.document
        document_id = document.id if isinstance(document, Presence | Report) else ""
        found = next((one.posted_with[document_id] for one in self.engines if document_id in one.posted_with), {})
        return {subject: one for subject, one in found.items() if one.text.engines is None}

    # -- acts ---------------------------------------------------------------------------------------------------------

    def acted(
        self, engine: SimFleetEngine, effect: Act, done: Done, before: dict[Subject, Held], decided: float
    ) -> None:
        """Check an act of the guard, and note its result."""
        ended = done.ended
        self.acts += 1
        self.world.log(f"{engine.boot}: {type(effect).__name__} {ended.order_id[:8]} {ended.outcome} {ended.text}")
        if not isinstance(effect, CarryOut):
            for subject in done.changed:
                newest = engine.truth.newest().get(subject)
                if newest is not None and newest.order_id == effect.order.order_id:
                    engine.truth.released[subject] = newest.order_id
                held = before.get(subject)
                if held is not None and held.owner == LOCAL and self._local_at[engine.name, subject] < decided:
                    self.fail("a local order is not undone", f"{engine.boot}: {subject} by {effect.order.order_id[:8]}")
            return
        if ended.outcome is Outcome.DONE:
            self._did.add((engine.name.casefold(), engine.boot, ended.order_id))
        for subject in done.not_held:
            engine.truth.released[subject] = ended.order_id
            self._refused.add((engine.name, subject, ended.order_id))
        for subject in done.changed:
            self._local_at.pop((engine.name, subject), None)
            if engine.truth.released.get(subject) == ended.order_id:
                del engine.truth.released[subject]

    def acted_locally(self, engine: SimFleetEngine, subject: Subject) -> None:
        """Note a local operator's order."""
        self._local_at[engine.name, subject] = self.world.clock.now
        self._contested.discard((engine.name, subject))
        if engine.is_busy:
            self._contested.add((engine.name, subject))
        newest = engine.truth.newest().get(subject)
        if newest is not None:
            engine.truth.released[subject] = newest.order_id

    def answered(self, engine: SimFleetEngine, rows: tuple[OrderRow, ...]) -> None:
        """Check the answers that an engine posts."""
        self.answers += len(rows)
        for row in rows:
            if row.outcome is not Outcome.DONE or row.order_id not in self.world.texts:
                continue
            if not any(name == engine.name.casefold() and one == row.order_id for name, _, one in self._did):
                self.fail('"done" means done', f"{engine.boot} answers done to {row.order_id[:8]}, which it did not do")

    def cleaned(self, engine: SimFleetEngine, wanted: Clean, gone: list[SimPost]) -> None:
        """Check a cleaning: it deletes no order of a right form of which no newer message is left."""
        if wanted.is_flush:
            return
        left = {post.order.id for post in self.world.boards[wanted.board].posts if post.order is not None}
        newest = {one.order_id for one in engine.truth.newest().values()}
        for post in gone:
            is_over = post.base.ends_at <= self.world.clock.now
            if post.order is not None and post.order.id in newest and post.order.id not in left and not is_over:
                self.fail("a cleaning deletes no order", f"{engine.boot} deleted order {post.order.id[:8]}")

    # -- states -------------------------------------------------------------------------------------------------------

    def look(self, seconds: float) -> None:
        """Check what holds in each engine that rests. seconds: since the check before."""
        for engine in self.engines:
            if not engine.is_alive:
                continue
            if engine.guard.is_unwell:
                engine.unwell_seconds += seconds
            if engine.has_joined and not engine.is_busy and engine.acts:
                self._check_ends(engine)
                if not engine.is_misled and not engine.is_deaf:
                    self._check_held(engine)

    def taken_up(self, engine: SimFleetEngine) -> None:
        """Check that a boot holds nothing by the fleet that its disk shows to be replaced."""
        if engine.is_new:  # a new pod knows of no local operator
            self._local_at = {key: at for key, at in self._local_at.items() if key[0] != engine.name}
        answered = dict(engine.disk.answered)
        for subject, one in engine.truth.in_force(self.world.clock.now + engine.tolerance).items():
            answer = answered.get(subject)
            is_done = answer is not None and (answer.order_id, answer.outcome) == (one.order_id, Outcome.DONE)
            if is_done and subject not in engine.guard.held and (subject[0] != "syphon" or engine.planned.syphon):
                shown = f"{engine.boot} starts without {subject} by {one.order_id[:8]}, which its disk calls done"
                self.fail("what stands is in force", shown)
        for subject, held in engine.guard.held.items():
            text = self.world.texts.get(held.owner)
            if text is not None and text.until + engine.tolerance < self.world.clock.now:
                self.fail("an end is kept", f"{engine.boot} starts with {subject} by {held.owner[:8]}, which is over")
            best = engine.truth.best.get(subject)
            is_refused = best is not None and (engine.name, subject, best[1]) in self._refused
            if held.owner != LOCAL and best is not None and best[1] != held.owner and not is_refused:
                self.fail(
                    "no engine returns to an older order", f"{engine.boot} starts with {subject} by {held.owner[:8]}"
                )

    def _check_ends(self, engine: SimFleetEngine) -> None:
        now = self.world.clock.now
        for subject, held in engine.guard.held.items():
            text = self.world.texts.get(held.owner)
            if text is not None and text.until + engine.tolerance + LAG < now:
                late = f"{held.owner[:8]}, which ended {now - text.until:.0f} s ago"
                self.fail("an end is kept", f"{engine.boot}: {subject} still holds by {late}", engine.boot, subject)
            if held.owner != LOCAL and text is None:
                self.fail("a void order changes nothing", f"{engine.boot}: {subject} holds by {held.owner[:8]}")

    def _check_held(self, engine: SimFleetEngine) -> None:
        now, margin = self.world.clock.now, engine.tolerance + LAG
        if now < engine.disk_fails_until + 60.0 or now - engine.signers_at < 90.0:
            return
        newest = engine.truth.newest()
        for subject, one in engine.truth.in_force(now).items():
            if (subject[0] == "syphon" and not engine.planned.syphon) or one.text.until <= now + margin:
                continue
            held = engine.guard.held.get(subject)
            is_local = (engine.name, subject) in self._local_at
            is_local |= engine.truth.known_at.get(one.order_id, 0.0) + LAG > now
            if held != Held(one.text.verb, one.order_id) and not is_local:
                text = f"{engine.boot}: {subject} is {held}, but {one.order_id[:8]} ({one.text.verb}) stands"
                self.fail("what stands is in force", text, engine.boot, subject, one.order_id)
        for subject, held in engine.guard.held.items():
            known = newest.get(subject)
            if held.owner == LOCAL or known is None:
                continue
            if known.order_id == held.owner:
                if not engine.truth.is_valid(known):
                    text = f"{engine.boot}: {subject} holds by {held.owner[:8]}, whose signer has no right"
                    self.fail("a signer without a right holds nothing", text, engine.boot, subject)
                continue
            is_old = max(known.text.issued_at + 180.0, engine.truth.known_at.get(known.order_id, 0.0) + LAG) < now
            if (engine.name, subject, known.order_id) not in self._refused and is_old:
                text = f"{engine.boot}: {subject} holds by {held.owner[:8]}, but {known.order_id[:8]} is newer"
                self.fail("what does not stand is not in force", text, engine.boot, subject)

    def equal(self) -> None:
        """Check that each engine knows the orders of the board: the same for all of them."""
        posts = [post for post in self.world.orders.posts if post.order is not None]
        for engine in self.engines:
            if not (engine.is_alive and engine.acts):
                continue
            known = {subject: one.age for subject, one in engine.truth.newest().items()}
            mine = {subject: one.age for subject, one in _newest(engine).items()}
            for post in posts:
                one = true_order(post.order) if post.order is not None else None
                if one is None or not engine.truth.is_valid(one) or not is_for(one.text, engine.name):
                    continue
                if (
                    one.text.issued_at > post.enqueued_at + 60.0
                    or one.text.issued_at + 72 * 3600 < self.world.clock.now
                ):
                    continue
                for subject in subjects(one.text):
                    if mine.get(subject, (-inf, "")) < one.age:
                        text = f"{engine.boot}: {subject} is by {known.get(subject)}, not by {one.order_id[:8]}"
                        self.fail("engines stand equal", text, engine.boot, subject)

    # -- consoles -----------------------------------------------------------------------------------------------------

    def viewed(self, console: SimFleetEngine, view: FleetView) -> None:
        """Check what a console shows."""
        for order in view.orders:
            text = self.world.texts.get(order.id)
            if text is None and order.by and order.id not in self.world.dated_back:
                self.fail("a void order changes nothing", f"{console.boot} shows {order.id[:8]} as an order", order.id)
            elif text is not None:
                self._check_sum(console, view, order)
                self._check_done(console, order)

    def _check_sum(self, console: SimFleetEngine, view: FleetView, order: FleetOrder) -> None:
        text = self.world.texts[order.id]
        rows = Counter(
            name.casefold()
            for name in (*order.done, *(name for name, _ in order.refused), *(name for name, _ in order.silent))
        )
        asked = Counter(
            one.engine.casefold()
            for one in view.engines
            if one.status is not FleetStatus.ENDED
            and is_for(text, one.engine)
            and not (one.is_claimed and text.engines is None)
        )
        wrong = [name for name in rows if not is_for(text, name)]
        wrong += [name for name in text.engines or () if not rows[name.casefold()]]
        total = order.done_count + order.refused_count + order.silent_count
        least = max(sum(asked.values()), 0 if text.engines is not None else view.expected or 0)
        if wrong or total < least or total > max(least, len(set(text.engines or ()) | set(asked)), sum(asked.values())):
            shown = f"{console.boot} shows {total} for {order.id[:8]}, asked {dict(asked)} (of {least}); {wrong}"
            self.fail("done + refused + silent = addressed", shown, console.boot, order.id)

    def _check_done(self, console: SimFleetEngine, order: FleetOrder) -> None:
        for name in {one.casefold() for one in order.done}:
            if (order.id, name) not in self.world.forged and not any(
                who == name and order_id == order.id for who, _, order_id in self._did
            ):
                shown = f"{console.boot} shows {order.id[:8]} as done by {name}"
                self.fail('"done" means done', shown, console.boot, order.id, name)

    def all_answered(self, console: SimFleetEngine, view: FleetView, order_ids: list[str]) -> None:
        """Check that a console shows an answer of each living engine that counts an order of the sound fleet."""
        shown = {order.id: order for order in view.orders}
        newest = {one.order_id for one in console.truth.newest().values()}
        for order_id in order_ids:
            text, order = self.world.texts[order_id], shown.get(order_id)
            if text.verb not in console.verbs or console.truth.signers is None or order_id not in newest:
                continue
            if order is None:
                self.fail("orders are shown", f"{console.boot} does not show {order_id[:8]}")
                continue
            answered = {name.casefold() for name in (*order.done, *(name for name, _ in order.refused))}
            for engine in self.engines:
                one = engine.truth.known.get(order_id)
                is_newest = one is not None and one in engine.truth.newest().values()
                is_known = engine.is_alive and engine.acts and is_newest and is_for(text, engine.name)
                if is_known and engine.name.casefold() not in answered and not order.more_done:
                    self.fail("each engine answers", f"{console.boot}: {engine.boot} is silent about {order_id[:8]}")

    # -- operations ---------------------------------------------------------------------------------------------------

    def operations(self) -> None:
        """Check each engine's requests against the pace that the watches on the board and its state allow."""
        world = self.world
        seconds = world.clock.now - world.began
        for engine in self.engines:
            slow = seconds / 60.0 + world.watched_seconds / 5.0 + engine.unwell_seconds / 10.0
            shown = engine.watching_seconds / 5.0
            most = SLACK * (slow + shown) * 2 + 40 * engine.boots + 3 * len(world.plan.orders) + engine.pages
            if engine.reads > most + 40 * world.deluges:
                self.fail(
                    "operations stay within bounds", f"{engine.name}: {engine.reads} readings, {most:.0f} allowed"
                )
            posts = world.watched_seconds / 5.0 + seconds / 60.0 + 2 * len(world.texts)
            most = SLACK * posts + 40 * engine.boots + engine.watching_seconds / 20.0
            if engine.writes > most + 10 * len(world.plan.mischief):
                self.fail("operations stay within bounds", f"{engine.name}: {engine.writes} posts, {most:.0f} allowed")
            most = engine.boots * 2 * FIRST_CREDITS + 2 * CREDITS_A_SECOND * seconds
            if world.deluges and engine.messages > most:
                self.fail("a reading stays within its share", f"{engine.name}: {engine.messages}, {most:.0f} allowed")


def _newest(engine: SimFleetEngine) -> dict[Subject, TrueOrder]:
    """Return the newest orders by the engine's own register."""
    found = engine.book.register.newest(engine.name)
    return {subject: true_order(one.order) for subject, one in found.items() if is_right(true_order(one.order))}
