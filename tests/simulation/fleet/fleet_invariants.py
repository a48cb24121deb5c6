"""The invariants of the fleet (FLEET.md section 10), checked against the truth of each engine and the facts of boards.

no act without a counting order          decided      a void order changes nothing         decided, looked
an end is kept, and no order ends early  looked       done once is done once               decided
"done" means done                        viewed       done + refused + silent = addressed  viewed
engines stand equal after recovery       equal        a cleaning deletes no order          cleaned
operations stay within bounds            operations   a local order is not undone          acted
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from paired_servicebus.core.fleet.fleet_documents import OrderAnswer, OrderText, Outcome, Subject
from paired_servicebus.core.fleet.fleet_events import CarryOut, TakeUp, Undo
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetOrder, FleetStatus, FleetView
from paired_servicebus.core.operator.actions import FLEET_VERBS
from tests.simulation.fleet.fleet_run import Act, FleetRun
from tests.simulation.fleet.order_truth import (
    Judgement,
    OrderTruth,
    act_end_of,
    end_of,
    is_for,
    subjects,
)
from tests.simulation.fleet.sim_board import SimPost
from tests.simulation.fleet.sim_fleet_engine import SimFleetEngine
from tests.simulation.fleet.sim_guard import LOCAL, Done, Held
from tests.simulation.invariants import MAX_BROKEN, BrokenInvariant

SLACK: Final = 1.25
"""The margin of the allowed operations."""
LAG: Final = 15.0
"""Seconds that decided acts may wait for each other."""


class FleetChecker:
    """The checker of one run."""

    def __init__(self, world: FleetRun, engines: list[SimFleetEngine]) -> None:
        self.world, self.engines = world, engines
        self.broken: list[BrokenInvariant] = []
        self.acts = self.answers = 0
        self._did: set[tuple[str, str, str]] = set()
        """Name, boot and order id of what was done."""
        self._refused_ends: set[tuple[str, str]] = set()
        """Boots and the orders that revoke something and were refused there."""
        self._said: set[tuple[object, ...]] = set()
        self._local_at: dict[tuple[str, Subject], float] = {}

    def fail(self, rule: str, text: str, *about: object) -> None:
        """Record a broken rule, once for each subject."""
        if (rule, *about) in self._said and about:
            return
        self._said.add((rule, *about))
        found = BrokenInvariant(rule, self.world.clock.now - self.world.began, text)
        self.world.log(f"BROKEN {rule}: {text}")
        if len(self.broken) < MAX_BROKEN:
            self.broken.append(found)

    # -- decisions ----------------------------------------------------------------------------------------------------

    def decided(self, engine: SimFleetEngine, effect: Act) -> None:
        """Check an effect of the order rules at its decision."""
        match effect:
            case CarryOut():
                why = self._unfounded(engine, effect)
                self.world.log(f"{engine.boot} decides on {effect.number}: {effect.order.id} {effect.targets}")
            case TakeUp(order=order):
                known = engine.truth.newest.get(order.subject)
                is_known = known is not None and known.order_id == order.order_id
                is_over = known is not None and known.until <= self.world.clock.now - engine.tolerance
                is_released = engine.truth.released.get(order.subject) == order.order_id
                why = "it is over" if is_over else "it was released here" if is_released else ""
                why = why if is_known else "it does not stand here"
                self.world.log(f"{engine.boot} takes up {order.order_id} {order.subject}")
            case Undo(order=order):
                why = self._early(engine, order.order_id, order.subject)
                self.world.log(f"{engine.boot} undoes {order.order_id} {order.subject}")
        if why and not engine.is_misled:
            self.fail("no act without a counting order", f"{engine.boot}: {type(effect).__name__}: {why}")

    def _unfounded(self, engine: SimFleetEngine, effect: CarryOut) -> str:
        """Return why an order must not be carried out; empty: it counts."""
        found = engine.truth.find(effect.number)
        if found is None or found.text.id != effect.order.id:
            return f"order {effect.number} was not read"
        text, enqueued_at = found.text, found.post.enqueued_at
        if found.judgement is not Judgement.COUNTS:
            return f"order {text.id} is {found.judgement.name}"
        if not is_for(text, engine.name):
            return f"order {text.id} is for others"
        now = self.world.clock.now - engine.tolerance
        verb = FLEET_VERBS[text.verb]
        if now >= (end_of(text, enqueued_at) if verb.stands else act_end_of(text, enqueued_at)):
            return f"order {text.id} is over"
        if verb.stands:
            newest = [engine.truth.newest[one].order_id for one in subjects(text) if one[2] in _keys(effect.targets)]
            return "" if all(one == text.id for one in newest) else f"order {text.id} has a successor"
        if found.look == 1:
            return f"order {text.id} was ordered before this boot"
        return "" if verb.revokes else self._again(engine, text.id)

    def _again(self, engine: SimFleetEngine, order_id: str) -> str:
        if order_id in engine.acted:
            self.fail("done once is done once", f"{engine.boot}: order {order_id} again")
        engine.acted.add(order_id)
        return ""

    def _early(self, engine: SimFleetEngine, order_id: str, subject: Subject) -> str:
        ends = engine.truth.ends.get(order_id, {float("inf")})
        newest = engine.truth.newest.get(subject)
        is_over = min(ends) <= self.world.clock.now + engine.tolerance
        is_succeeded = newest is not None and newest.order_id != order_id
        return "" if is_over or is_succeeded else f"order {order_id} is undone before its end"

    # -- acts ---------------------------------------------------------------------------------------------------------

    def acted(
        self, engine: SimFleetEngine, effect: Act, done: Done, before: dict[Subject, Held], decided: float
    ) -> None:
        """Check an act of the guard, and note its result."""
        ended = done.ended
        self.acts += 1
        self.world.log(f"{engine.boot}: {type(effect).__name__} {ended.order_id} {ended.outcome} {ended.text}")
        if ended.outcome is Outcome.DONE and ended.order_id:
            self._did.add((engine.name.casefold(), engine.boot, ended.order_id))
        if isinstance(effect, Undo):
            for subject in done.changed:
                held = before.get(subject)
                if held is not None and held.owner == LOCAL and self._local_at[engine.boot, subject] < decided:
                    self.fail("a local order is not undone", f"{engine.boot}: {subject} by {effect.order.order_id}")
            return
        order_id = effect.order.id if isinstance(effect, CarryOut) else effect.order.order_id
        for subject in done.not_held:
            newest = engine.truth.newest.get(subject)
            if newest is not None and newest.order_id == order_id:
                engine.truth.release(order_id, subject)
        if ended.outcome is not Outcome.DONE:
            self._refused_ends.add((engine.boot, order_id))

    def acted_locally(self, engine: SimFleetEngine, subject: Subject) -> None:
        """Note a local operator's order."""
        now = self.world.clock.now
        self._local_at[engine.boot, subject] = now
        standing = engine.truth.standing(now).get(subject)
        if standing is not None:
            engine.truth.release(standing.order_id, subject)

    def answered(self, engine: SimFleetEngine, answer: OrderAnswer) -> None:
        """Check an answer that an engine posts."""
        self.answers += 1
        self.world.log(f"{engine.boot} answers {answer.order_id}: {answer.outcome} {answer.text}")
        text = self.world.texts.get(answer.order_id)
        if answer.outcome is not Outcome.DONE or text is None:
            return
        key = (engine.name.casefold(), engine.boot, answer.order_id)
        if key in self._did:
            return
        if not FLEET_VERBS[text.verb].revokes or self._holds_older(engine, answer, text):
            self.fail('"done" means done', f"{engine.boot} answers done to {answer.order_id}, which it did not do")
        self._did.add(key)

    @staticmethod
    def _holds_older(engine: SimFleetEngine, answer: OrderAnswer, text: OrderText) -> bool:
        """Return whether an order of the fleet holds that is older than one that revokes it."""
        post = engine.truth.find(answer.number)
        held = [one for one in subjects(text) if engine.guard.held.get(one, Held("", LOCAL)).owner != LOCAL]
        return post is None or any(engine.truth.newest[one].enqueued_at <= post.post.enqueued_at for one in held)

    def cleaned(self, engine: SimFleetEngine, gone: list[SimPost]) -> None:
        """Check a cleaning."""
        for post in gone:
            if post.text is not None and post.base.ends_at > self.world.clock.now:
                self.fail("a cleaning deletes no order", f"{engine.boot} deleted order {post.text.id}")

    # -- states -------------------------------------------------------------------------------------------------------

    def look(self, seconds: float) -> None:
        """Check what holds in each engine that rests. seconds: since the check before."""
        for engine in self.engines:
            if engine.is_alive and engine.guard.is_unwell:
                engine.unwell_seconds += seconds
            if engine.is_alive and engine.has_joined and not engine.is_busy and engine.acts:
                self._check_ends(engine)
                if not engine.is_misled:
                    self._check_held(engine)

    def taken_up(self, engine: SimFleetEngine) -> None:
        """Check that a boot holds what the one before it stored, before it reads the board."""
        if engine.acts:
            self._check_held(engine)

    def _check_ends(self, engine: SimFleetEngine) -> None:
        now = self.world.clock.now
        for subject, held in engine.guard.held.items():
            if held.owner == LOCAL:
                continue
            end = max(engine.truth.ends.get(held.owner, {0.0}))
            if end + engine.tolerance + LAG < now:
                text = f"{engine.boot}: {subject} still holds by {held.owner}, which ended {now - end:.0f} s ago"
                self.fail("an end is kept", text, engine.boot, subject, held.owner)

    def _check_held(self, engine: SimFleetEngine) -> None:
        now, margin = self.world.clock.now, engine.tolerance + LAG
        in_force = engine.truth.in_force(now)
        for subject, known in in_force.items():
            is_settled = known.until > now + margin
            if subject[0] == "syphon" and not engine.planned.syphon:
                continue
            held = engine.guard.held.get(subject)
            if is_settled and held != Held(known.verb, known.order_id):
                text = f"{engine.boot}: {subject} is {held}, but {known.order_id} ({known.verb}) stands"
                self.fail("what stands is in force", text, engine.boot, subject, known.order_id)
        for subject, held in engine.guard.held.items():
            newest = engine.truth.newest.get(subject)
            if held.owner == LOCAL or subject in in_force or newest is None or newest.order_id == held.owner:
                continue
            is_refused = (engine.boot, newest.order_id) in self._refused_ends or newest.order_id in (
                engine.truth.released.get(subject),
            )
            if not is_refused and newest.enqueued_at + 120.0 < now:
                text = f"{engine.boot}: {subject} holds by {held.owner}, but {newest.order_id} came after it"
                self.fail("what does not stand is not in force", text, engine.boot, subject)

    def equal(self) -> None:
        """Check that each engine knows the orders of the board: the same for all of them."""
        board = self.world.orders
        if board.removed:
            return
        for engine in self.engines:
            if not (engine.is_alive and engine.acts):
                continue
            whole = OrderTruth(engine.name, engine.signers, frozenset(engine.verbs))
            whole.serve(tuple(board.posts))
            whole.judge()
            for subject, known in whole.newest.items():
                found = engine.truth.newest.get(subject)
                if found is None or found.order_id != known.order_id:
                    text = f"{engine.boot}: {subject} is by {found and found.order_id}, not by {known.order_id}"
                    self.fail("engines stand equal", text, engine.boot, subject)

    # -- consoles -----------------------------------------------------------------------------------------------------

    def viewed(self, console: SimFleetEngine, view: FleetView) -> None:
        """Check what a console shows."""
        posts = {(post.number, post.enqueued_at): post for post in self.world.orders.all}
        for order in view.orders:
            post = posts[order.number, order.at]
            if post.text is not None:
                self._check_sum(console, view, order, post.text)
                self._check_done(console, view, order, post.text)

    def _check_sum(self, console: SimFleetEngine, view: FleetView, order: FleetOrder, text: OrderText) -> None:
        rows = Counter(
            name.casefold()
            for name in (*order.done, *(name for name, _ in order.refused), *(name for name, _ in order.silent))
        )
        asked = Counter(
            one.engine.casefold() for one in view.engines if is_for(text, one.engine) and _is_asked(one, order)
        )
        wrong = [name for name, count in asked.items() if rows[name] != count]
        wrong += [name for name in rows if not is_for(text, name)]
        wrong += [name for name in text.engines or () if not rows[name.casefold()]]
        least = sum(asked.values()) if text.engines is not None else max(sum(asked.values()), view.expected or 0)
        if wrong or sum(rows.values()) + order.unnamed < least:
            seen = f"{dict(rows)} and {order.unnamed} unknown"
            shown = f"{console.boot} shows {seen} for {order.id}, asked {dict(asked)} (of {least})"
            self.fail("done + refused + silent = addressed", shown, console.boot, order.id)

    def _check_done(self, console: SimFleetEngine, view: FleetView, order: FleetOrder, text: OrderText) -> None:
        for name, count in Counter(one.casefold() for one in order.done).items():
            if (order.id, name) in self.world.forged:
                continue
            boots = {boot for who, boot, order_id in self._did if (who, order_id) == (name, order.id)}
            present = {one.boot for one in view.engines if one.engine.casefold() == name and _is_asked(one, order)}
            if count > len(boots & present if present else boots):
                shown = f"{console.boot} shows {order.id} as done by {name}, of which {boots} did it"
                self.fail('"done" means done', shown, console.boot, order.id, name)

    def all_answered(self, console: SimFleetEngine, view: FleetView, order_ids: list[str]) -> None:
        """Check that a console shows an answer of each living engine that counts an order of the sound fleet."""
        shown = {order.id: order for order in reversed(view.orders)}
        for order_id in order_ids:
            order = shown.get(order_id)
            if self.world.texts[order_id].verb not in console.verbs:
                continue  # an older version shows no order that it does not know
            if order is None:
                self.fail("orders are shown", f"{console.boot} does not show {order_id}")
                continue
            answered = {name.casefold() for name in (*order.done, *(name for name, _ in order.refused))}
            for engine in self.engines:
                known = [one for one in engine.truth.log if one.text.id == order_id and is_for(one.text, engine.name)]
                if engine.is_alive and engine.acts and known and engine.name.casefold() not in answered:
                    self.fail("each engine answers", f"{console.boot}: {engine.boot} is silent about {order_id}")

    # -- operations ---------------------------------------------------------------------------------------------------

    def operations(self) -> None:
        """Check each engine's requests against the pace that the watches on the board and its state allow."""
        world = self.world
        seconds = world.clock.now - world.began
        for engine in self.engines:
            slow = seconds / 60.0 + world.watched_seconds / 5.0 + engine.unwell_seconds / 10.0
            shown = engine.watching_seconds / 5.0
            most = SLACK * (slow + shown) + 40 * engine.boots + 3 * len(world.plan.orders) + engine.pages
            if engine.reads > most:
                self.fail(
                    "operations stay within bounds", f"{engine.name}: {engine.reads} readings, {most:.0f} allowed"
                )
            posts = world.watched_seconds / 5.0 + seconds / 60.0 + 2 * len(world.texts)
            most = SLACK * posts + 40 * engine.boots + engine.watching_seconds / 20.0
            if engine.writes > most:
                self.fail("operations stay within bounds", f"{engine.name}: {engine.writes} posts, {most:.0f} allowed")


def _keys(targets: tuple[str, ...]) -> set[str]:
    return {one.casefold() for one in targets or ("",)}


def _is_asked(engine: FleetEngine, order: FleetOrder) -> bool:
    """Return whether a shown engine has to answer: one that began later is not asked for what was over."""
    if engine.status is FleetStatus.ENDED:
        return False
    return engine.started_at - (engine.clock_offset or 0.0) <= (order.at if order.until is None else order.until)
