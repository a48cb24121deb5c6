"""A board in memory: numbers and times by the namespace, lazy expiry, deletion; and the faults on the way to it.

A reading sees a beginning of the board: what it does not see yet is newer than all that it sees.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from hashlib import sha256
from random import Random
from typing import Final, NamedTuple

from paired_servicebus.core.fleet.board_reader import carried_by
from paired_servicebus.core.fleet.fleet_documents import (
    Board,
    Document,
    Order,
    OrderText,
    Posted,
    Signer,
    Unverified,
    encode_order_text,
)
from paired_servicebus.core.fleet.fleet_events import Clean
from tests.simulation.fleet.fleet_plan import ENDED_AT, ENDED_KEY, FleetCondition, FleetFault

STALE_SECONDS: Final = 20.0
"""Seconds of posts that a stale reading misses."""
MISSING_SECONDS: Final = 4.0
"""Seconds between the deletion of a board and its creation."""
MAX_LATE: Final = 90.0
Signers = frozenset[str] | None
"""The keys of a signers file; None: there is no file."""


def sign(text: OrderText, key: str) -> Order:
    """Return an order signed by a key: the signature names the key and the exact bytes."""
    signed = encode_order_text(text)
    return Order(signed=signed.decode(), signature=f"{key} {sha256(signed).hexdigest()}")


def signing_key(order: Order) -> str:
    """Return the key that signed exactly these bytes; empty: none did."""
    key, _, digest = order.signature.partition(" ")
    return key if digest == sha256(order.signed.encode()).hexdigest() else ""


def verify(order: Order, signers: Signers) -> Signer | Unverified:
    """Return the signer, as the board of an engine with this signers file gives it."""
    if signers is None:
        return Unverified(why="look only: this engine has no file of signers")
    key = signing_key(order)
    if key == ENDED_KEY:
        return Signer(by="operator-e", fingerprint=f"SHA256:{key}", valid_before=ENDED_AT)
    if key in signers:
        return Signer(by=key.replace("key", "operator"), fingerprint=f"SHA256:{key}")
    return Unverified(why="its signature does not verify" if not key else f"no operator has the key {key}")


class SimPost:
    """A message on a board. order: what it contains, if that is an order of this version."""

    __slots__ = ("_read", "base", "carried", "generation", "order")

    def __init__(self, base: Posted, generation: int) -> None:
        self.base, self.generation = base, generation
        self.order = base.document if isinstance(base.document, Order) else None
        self.carried = carried_by(base.document)
        self._read: dict[Signers, Posted] = {}

    @property
    def number(self) -> int:
        return self.base.number

    @property
    def enqueued_at(self) -> float:
        return self.base.enqueued_at

    @property
    def orders(self) -> tuple[Order, ...]:
        """The order that it is, or the orders that it carries."""
        return self.carried if self.order is None else (self.order,)

    def read(self, signers: Signers) -> Posted:
        """Return it as an engine with this signers file reads it."""
        if not self.orders:
            return self.base
        found = self._read.get(signers)
        if found is None:
            found = self._read[signers] = self._verified(signers)
        return found

    def _verified(self, signers: Signers) -> Posted:
        if self.order is not None:
            return replace(self.base, signer=verify(self.order, signers))
        verdicts = ((order, verify(order, signers)) for order in self.carried)
        orders = tuple((order, one) for order, one in verdicts if isinstance(one, Signer))
        return replace(self.base, carried=orders)


class Reading(NamedTuple):
    """The messages of one reading."""

    posts: tuple[SimPost, ...]
    is_end: bool


class SimBoard:
    """One board."""

    def __init__(self, board: Board, *, is_prompt: bool) -> None:
        self.board = board
        self.generation = 0
        self.missing_until = 0.0
        self._is_prompt = is_prompt
        self._posts: list[SimPost] = []
        self._number = 0

    @property
    def posts(self) -> list[SimPost]:
        return self._posts

    def write(self, document: Document | Posted, ttl: float, now: float) -> SimPost:
        """Add a message: the namespace numbers and dates it. A Posted has a body that is no document."""
        self._number += 1
        ends_at = now + ttl
        if isinstance(document, Posted):
            base = replace(document, number=self._number, enqueued_at=now, ends_at=ends_at)
        else:
            base = Posted(number=self._number, enqueued_at=now, ends_at=ends_at, document=document)
        post = SimPost(base, self.generation)
        self._posts.append(post)
        return post

    def read(self, since: int, most: int, now: float, *, is_stale: bool = False) -> Reading:
        """Return messages from a number on."""
        if self._is_prompt:
            self._posts = [post for post in self._posts if post.base.ends_at > now]
        posts = self._posts[bisect_left(self._posts, since, key=_number) :]
        if is_stale:
            posts = [post for post in posts if post.enqueued_at <= now - STALE_SECONDS]
        return Reading(tuple(posts[:most]), len(posts) <= most)

    def remake(self, now: float) -> None:
        """Delete it with all messages, and create it again."""
        self.generation += 1
        self._posts, self._number = [], 0
        self.missing_until = now + MISSING_SECONDS

    def take(self, post: SimPost) -> None:
        """Receive a message: it is gone."""
        self._posts.remove(post)

    def clean(self, wanted: Clean) -> list[SimPost]:
        """Delete what an engine's cleaning deletes; return it."""
        gone = [post for post in self._posts if self._goes(post.base, wanted)]
        lost = {id(post) for post in gone}
        self._posts = [post for post in self._posts if id(post) not in lost]
        return gone

    @staticmethod
    def _goes(post: Posted, wanted: Clean) -> bool:
        is_junk = post.document is None and not post.is_newer
        return post.enqueued_at < wanted.before or (bool(wanted.dead) and (is_junk or post.ends_at <= wanted.now))


def _number(post: SimPost) -> int:
    return post.base.number


class Network:
    """The way from the engines to the boards."""

    def __init__(self, faults: tuple[FleetFault, ...], began: float, random: Random) -> None:
        self._faults = faults
        self._began = began
        self._random = random

    def condition(self, engine: int, now: float, *, is_write: bool) -> FleetCondition | None:
        """Draw the condition of a request that begins now."""
        at = now - self._began
        for fault in self._faults:
            if fault.at <= at < fault.ends and (fault.engines is None or engine in fault.engines):
                is_apt = fault.condition not in (_WRITES if not is_write else _READS)
                if is_apt and self._random.random() < fault.share:
                    return fault.condition
        return None

    def seconds(self, condition: FleetCondition | None) -> float:
        """Draw the duration of a request."""
        if condition in (FleetCondition.SLOW, FleetCondition.UNREACHABLE, FleetCondition.ACK_LOST):
            return self._random.uniform(1.0, 12.0)
        return self._random.uniform(0.01, 0.2)

    def lateness(self) -> float:
        """Draw the seconds until a late post is on the board."""
        return self._random.uniform(1.0, MAX_LATE)


_WRITES: Final = frozenset({FleetCondition.ACK_LOST, FleetCondition.LANDS_LATE})
_READS: Final = frozenset({FleetCondition.STALE})
