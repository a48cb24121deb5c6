"""The register of orders: of each subject the newest counting order, whatever happened in between (FLEET.md section 5).

Newer means issued later; the digest of the signed bytes breaks a tie. So engines agree, whichever board or presence
they read an order from. A release is an order like any other: it stays in the register for as long as any older order
of its subjects could stand. So an engine that saw it never returns to an older one, even if the message is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from paired_servicebus.core.fleet.fleet_documents import (
    MAX_CARRIED,
    MAX_CARRIED_BYTES,
    CarriedOrder,
    Order,
    OrderText,
    Signer,
    Subject,
    Unverified,
)
from paired_servicebus.core.fleet.orders.order_rules import ORDER_SECONDS, FleetVerb, FleetVerbs, is_meant, subjects_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenOrder:
    """An order that counted when it was read here.

    Args:
        first_at: the namespace's time of the first message with its bytes.
        counts: False if its signer has no right any more: then the rules decide, and no older order does.
    """

    order: Order
    by: str
    fingerprint: str
    first_at: float
    counts: bool = True

    @property
    def text(self) -> OrderText:
        return self.order.text

    @property
    def age_key(self) -> tuple[float, str]:
        """Return its place among orders of one subject: the greatest is the newest."""
        return self.text.issued_at, self.order.id

    def is_signed_by(self, signer: Signer | Unverified) -> bool:
        """Return whether a verdict by another file of operators leaves it its right."""
        return isinstance(signer, Signer) and self.first_at <= signer.valid_before


class Register:
    """The orders that an engine has seen.

    Args:
        verbs: the actions that can be ordered.
        seen: what the engine before this one had seen.
    """

    def __init__(self, verbs: FleetVerbs, seen: Iterable[SeenOrder] = ()) -> None:
        self._verbs = verbs
        self._by_subject: dict[Subject, tuple[SeenOrder, ...]] = {}
        self.version = 0
        """Grows with each change."""
        self._orders: tuple[int, tuple[SeenOrder, ...]] = (-1, ())
        self._carried: tuple[int, tuple[CarriedOrder, ...]] = (-1, ())
        self._newest: dict[str, tuple[int, dict[Subject, SeenOrder]]] = {}
        for one in seen:
            self.add(one)

    def verb(self, one: SeenOrder) -> FleetVerb:
        """Return the action of a seen order."""
        return self._verbs[one.text.verb]

    def subjects(self, one: SeenOrder) -> frozenset[Subject]:
        """Return what a seen order is about."""
        return subjects_of(one.text, self.verb(one))

    def add(self, one: SeenOrder) -> bool:
        """Take an order in; return whether it is the newest of a subject for an engine, and was not known."""
        if one.text.verb not in self._verbs:
            return False
        is_new = False
        for subject in self.subjects(one):
            before = self._by_subject.get(subject, ())
            if any(each.order.id == one.order.id and each.counts >= one.counts for each in before):
                continue
            others = (each for each in before if each.order.id != one.order.id)
            after = _uncovered(sorted((*others, one), key=lambda each: each.age_key, reverse=True))
            self._by_subject[subject] = after
            is_new |= one in after
        self.version += is_new
        return is_new

    def newest(self, engine: str) -> dict[Subject, SeenOrder]:
        """Return the newest order of each subject that means an engine."""
        version, known = self._newest.get(engine, (-1, {}))
        if version == self.version:
            return known
        found: dict[Subject, SeenOrder] = {}
        for subject, seen in self._by_subject.items():
            meant = next((one for one in seen if is_meant(one.text.engines, engine)), None)
            if meant is not None:
                found[subject] = meant
        self._newest[engine] = (self.version, found)
        return found

    @property
    def orders(self) -> tuple[SeenOrder, ...]:
        """Return every order that is the newest of one of its subjects for an engine, the newest first."""
        if self._orders[0] != self.version:
            found = {one.order.id: one for seen in self._by_subject.values() for one in seen}
            self._orders = self.version, tuple(sorted(found.values(), key=lambda one: one.age_key, reverse=True))
        return self._orders[1]

    def find(self, order_id: str) -> SeenOrder | None:
        """Return an order by its id; None: it is not known, or newer ones replaced all of it."""
        return next((one for one in self.orders if one.order.id == order_id), None)

    @property
    def newest_issue(self) -> float:
        """Return when the newest order that counts was issued; 0: none is known."""
        return next((one.text.issued_at for one in self.orders if one.counts), 0.0)

    def judge_again(self, verdicts: Mapping[str, bool]) -> bool:
        """Note which orders the present file of operators verifies, by id; return whether one changed."""
        changed = False
        for subject, seen in self._by_subject.items():
            after = tuple(replace(one, counts=verdicts.get(one.order.id, one.counts)) for one in seen)
            changed |= after != seen
            self._by_subject[subject] = after
        self.version += changed
        return changed

    def forget_over(self, at: float) -> bool:
        """Forget the orders that can decide nothing any more; return whether there were any."""
        if not self.orders or self.orders[-1].text.issued_at + ORDER_SECONDS > at:
            return False
        over = [
            subject
            for subject, seen in self._by_subject.items()
            if any(one.text.issued_at + ORDER_SECONDS <= at for one in seen)
        ]
        for subject in over:
            left = tuple(one for one in self._by_subject[subject] if one.text.issued_at + ORDER_SECONDS > at)
            if left:
                self._by_subject[subject] = left
            else:
                del self._by_subject[subject]
        self.version += bool(over)
        return bool(over)

    def carried(self) -> tuple[CarriedOrder, ...]:
        """Return the orders that a presence carries: releases first, since they protect, then the newest."""
        if self._carried[0] != self.version:
            self._carried = self.version, self._choose()
        return self._carried[1]

    def _choose(self) -> tuple[CarriedOrder, ...]:
        found: list[CarriedOrder] = []
        size = 0
        for one in sorted(self.orders, key=lambda each: self.verb(each).stands):
            carried = one.order.carried
            size += len(one.order.signed) + len(carried.signature)
            if len(found) >= MAX_CARRIED or size > MAX_CARRIED_BYTES:
                break
            found.append(carried)
        return tuple(found)


def _uncovered(newest_first: Iterable[SeenOrder]) -> tuple[SeenOrder, ...]:
    """Return the orders of one subject without those whose engines newer ones all mean."""
    found: list[SeenOrder] = []
    named: set[str] = set()
    for one in newest_first:
        if one.text.engines is None:
            return (*found, one)
        engines = {engine.casefold() for engine in one.text.engines}
        if not engines <= named:
            found.append(one)
            named |= engines
    return tuple(found)
