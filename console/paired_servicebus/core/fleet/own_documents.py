"""The documents that an engine posts about itself, and the changes that make it post them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from paired_servicebus.core.fleet.board.document_bounds import MAX_DIFFERENCES
from paired_servicebus.core.fleet.fleet_documents import (
    MAX_NOT_WELL,
    Author,
    Goodbye,
    OrderAnswer,
    Outcome,
    Presence,
    Report,
)
from paired_servicebus.core.fleet.orders.order_book import OrderBook
from paired_servicebus.core.model.entity_state import WELL
from paired_servicebus.core.model.fleet_view import WORST_FIRST, FleetEntityState, Takes
from paired_servicebus.core.model.gateway_view import without_clients
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus

_MOVING: Final = frozenset({SyphonStatus.IDLE, SyphonStatus.WAITING, SyphonStatus.RUNNING})

ChangeKey = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The head of this engine's documents. signers: the hash of its file of signers; empty: it looks only."""

    author: Author
    signers: str = ""


class OwnDocuments:
    """The documents of one engine. Their ids are its boot and a running number."""

    def __init__(self, identity: Identity, orders: OrderBook) -> None:
        self._identity, self._orders = identity, orders
        self._count = 0

    def next_id(self) -> str:
        """Return a new document id."""
        self._count += 1
        return f"{self._identity.author.boot}-{self._count}"

    def take_signers(self, signers: str) -> bool:
        """Take the hash of the changed file of signers; return whether verdicts by it may differ."""
        before, self._identity = self._identity.signers, replace(self._identity, signers=signers)
        return signers not in ("", before)

    def takes(self, snapshot: Snapshot) -> Takes:
        """Return whether this engine acts on orders."""
        if snapshot.read_only:
            return Takes.READ_ONLY
        return Takes.SIGNED if self._identity.signers else Takes.LOOK_ONLY

    def presence_key(self, snapshot: Snapshot) -> ChangeKey:
        """Return the values whose change makes a new presence; a syphon that begins to wait is no change."""
        status = snapshot.syphon.status
        return (
            "moving" if status in _MOVING else status,
            snapshot.syphon.paused_queues,
            tuple(queue.index for queue in snapshot.queues),
            self._orders.standing,
            self._orders.differences,
            self.takes(snapshot),
            self._identity.signers,
        )

    def report_key(self, snapshot: Snapshot) -> ChangeKey:
        """Return the values whose change makes a report due immediately."""
        states = tuple((entity.path, entity.state) for entity in snapshot.entities)
        return (states, *self.presence_key(snapshot))

    def presence(self, snapshot: Snapshot, clock_offset: float | None) -> Presence:
        """Return a presence of now."""
        states = Counter(entity.state for entity in snapshot.entities)
        not_well = sorted((one for one in snapshot.entities if one.state not in WELL), key=lambda one: one.since)
        return Presence(
            id=self.next_id(),
            author=self._identity.author,
            started_at=snapshot.at if snapshot.started_at is None else snapshot.started_at,
            queues=tuple(queue.index for queue in snapshot.queues),
            syphon=snapshot.syphon.status.value,
            paused_queues=snapshot.syphon.paused_queues,
            states=tuple((state, states[state]) for state in WORST_FIRST if states[state]),
            not_well=tuple(
                FleetEntityState(path=one.path, state=one.state, since=one.since) for one in not_well[:MAX_NOT_WELL]
            ),
            takes=self.takes(snapshot),
            signers=self._identity.signers,
            standing=self._orders.standing,
            newest_order=self._orders.newest,
            clock_offset=clock_offset,
            differs=self._orders.differences[:MAX_DIFFERENCES],
        )

    def report(self, snapshot: Snapshot, clock_offset: float | None, pace: float) -> Report:
        """Return a report of now, without the fleet, which every reader knows, and the gateway's clients."""
        gateway = without_clients(snapshot.gateway) if snapshot.gateway is not None else None
        bare = replace(snapshot, fleet=None, gateway=gateway)
        return Report(id=self.next_id(), presence=self.presence(bare, clock_offset), pace=pace, snapshot=bare)

    def goodbye(self, reason: str) -> Goodbye:
        """Return a goodbye."""
        return Goodbye(id=self.next_id(), author=self._identity.author, reason=reason)

    def answer(self, order_id: str, number: int, at: float, outcome: Outcome, text: str) -> OrderAnswer:
        """Return an answer to an order. at: the namespace's time."""
        return OrderAnswer(
            id=self.next_id(),
            author=self._identity.author,
            order_id=order_id,
            number=number,
            at=at,
            outcome=outcome,
            text=text,
        )
