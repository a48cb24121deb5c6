"""The rules of orders a second time, for the checks: which orders count in one engine, and which is the newest.

Nothing here is taken from the rules under test but the table of verbs. The truth of an engine follows from the orders
that readings gave to it, from what its consoles posted, and from what is on its disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from math import inf
from typing import Final

from paired_servicebus.core.fleet.fleet_documents import Order, OrderText, Subject
from paired_servicebus.core.operator.actions import FLEET_VERBS
from tests.simulation.fleet.fleet_plan import PRIMARY, SECONDARY
from tests.simulation.fleet.sim_board import Signers, signing_key

FUTURE_SECONDS: Final = 60.0
LONGEST: Final = 72 * 3600.0
Age = tuple[float, str]
"""The place of an order among those of a subject: the greatest is the newest."""


@dataclass(frozen=True, slots=True)
class TrueOrder:
    """An order and the facts about it that no engine sees."""

    order_id: str
    text: OrderText
    key: str
    """Whose key signed exactly these bytes; empty: nobody's."""

    @property
    def age(self) -> Age:
        return self.text.issued_at, self.order_id

    @property
    def stands(self) -> bool:
        return FLEET_VERBS[self.text.verb].stands


def true_order(order: Order) -> TrueOrder:
    """Return the facts about an order."""
    return TrueOrder(sha256(order.signed.encode()).hexdigest()[:32], order.text, signing_key(order))


def subjects(text: OrderText) -> tuple[Subject, ...]:
    """Return what an order is about."""
    about = FLEET_VERBS[text.verb].stands_for
    return tuple((about, text.scope, target.casefold()) for target in text.targets or ("",))


def is_for(text: OrderText, engine: str) -> bool:
    """Return whether an order means an engine."""
    return text.engines is None or engine.casefold() in [name.casefold() for name in text.engines]


def is_right(one: TrueOrder) -> bool:
    """Return whether an order has a right form, for this pairing."""
    text = one.text
    is_ours = (text.primary.casefold(), text.secondary.casefold()) == (PRIMARY, SECONDARY)
    if not is_ours or text.verb not in FLEET_VERBS or not 0 < text.until - text.issued_at <= LONGEST:
        return False
    verb = FLEET_VERBS[text.verb]
    wanted = (
        str(text.reach) if text.reach > 1 else text.targets[0] if len(text.targets) == 1 else str(len(text.targets))
    )
    return not verb.dangerous or text.typed == wanted or not text.targets


class OrderTruth:
    """The truth about one engine.

    Args:
        engine: its name.
        signers: the keys in its signers file.
        verbs: the verbs that it knows.
    """

    def __init__(self, engine: str, signers: Signers, verbs: frozenset[str]) -> None:
        self._engine, self.signers, self._verbs = engine, signers, verbs
        self.known: dict[str, TrueOrder] = {}
        """The orders with a right form that this boot could know, by id."""
        self.known_at: dict[str, float] = {}
        """When this boot could know each of them first."""
        self.released: dict[Subject, str] = {}
        """The order that is not in force here: it was refused, or a local operator acted after it."""
        self.best: dict[Subject, Age] = {}
        """The newest order of each subject that is on disk, or was on one of these boots' disks."""
        self.orders_end_at = self.reports_end_at = 0.0
        """When this boot reached the end of each board."""

    def begin(self, kept: dict[str, TrueOrder], *, is_new: bool) -> None:
        """Begin a boot with what is on its disk."""
        self.known, self.known_at = dict(kept), {}
        self.orders_end_at = self.reports_end_at = 0.0
        if is_new:
            self.best, self.released = {}, {}

    def serve(self, order: Order, enqueued_at: float, now: float) -> None:
        """Take an order in that a reading or a console gave to the engine."""
        one = true_order(order)
        if self.is_valid(one) and one.text.issued_at <= enqueued_at + FUTURE_SECONDS:
            self.known[one.order_id] = one
            self.known_at[one.order_id] = min(now, self.known_at.get(one.order_id, inf))

    def is_valid(self, one: TrueOrder) -> bool:
        """Return whether an order counts here."""
        is_signed = self.signers is not None and one.key in self.signers
        return is_signed and one.text.verb in self._verbs and is_right(one)

    def store(self, kept: dict[str, TrueOrder]) -> None:
        """Note what is on disk now."""
        for one in kept.values():
            if is_for(one.text, self._engine):
                for subject in subjects(one.text):
                    self.best[subject] = max(self.best.get(subject, one.age), one.age)

    def newest(self) -> dict[Subject, TrueOrder]:
        """Return the newest known order of each subject for the engine. One that lost its signer stays newest."""
        found: dict[Subject, TrueOrder] = {}
        for one in self.known.values():
            for subject in subjects(one.text) if is_for(one.text, self._engine) else ():
                if subject not in found or found[subject].age < one.age:
                    found[subject] = one
        return found

    def newest_read(self) -> dict[Subject, TrueOrder]:
        """Return the newest orders without those that only a console of this engine handed to it."""
        return {key: one for key, one in self.newest().items() if self.known_at.get(one.order_id, 0.0) < inf}

    def in_force(self, now: float) -> dict[Subject, TrueOrder]:
        """Return what stands and was neither released nor refused here."""
        return {
            key: one
            for key, one in sorted(self.newest().items())
            if one.stands and one.text.until > now and self.released.get(key) != one.order_id and self.is_valid(one)
        }
