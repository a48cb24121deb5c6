"""The rules of orders a second time, for the checks: which orders count in one engine, and what stands there.

Nothing here is taken from the rules under test but the table of verbs. The truth of an engine follows from the posts
that readings gave to it, and from what it had stored when it ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from paired_servicebus.core.fleet.fleet_documents import OrderText, Subject
from paired_servicebus.core.operator.actions import FLEET_VERBS
from tests.simulation.fleet.fleet_plan import PRIMARY, SECONDARY
from tests.simulation.fleet.sim_board import Signers, SimPost

FRESH_SECONDS: Final = 60.0
ONE_SHOT_SECONDS: Final = 600.0
LONGEST: Final = 72 * 3600.0


class Judgement(Enum):
    """The result of the rules that depend on the board alone."""

    COUNTS = auto()
    OVERTAKEN = auto()
    SECOND = auto()
    """Its id is on the board already."""
    VOID = auto()


@dataclass(frozen=True, slots=True)
class JudgedPost:
    """A post and its judgement. look: the number of the whole reading that showed it; 1: the first of a boot."""

    post: SimPost
    text: OrderText
    judgement: Judgement
    look: int


@dataclass(frozen=True, slots=True)
class KnownOrder:
    """The newest counting order about a subject."""

    order_id: str
    verb: str
    enqueued_at: float
    until: float
    """The end of a standing order; minus infinity: it revokes."""


@dataclass(frozen=True, slots=True)
class StoredTruth:
    """What the next boot knows."""

    newest: Mapping[Subject, KnownOrder] = field(default_factory=dict)
    released: Mapping[Subject, str] = field(default_factory=dict)


def subjects(text: OrderText) -> tuple[Subject, ...]:
    """Return what an order is about."""
    about = FLEET_VERBS[text.verb].stands_for or text.verb
    return tuple((about, text.scope, target.casefold()) for target in text.targets or ("",))


def is_for(text: OrderText, engine: str) -> bool:
    """Return whether an order means an engine."""
    return text.engines is None or engine.casefold() in [name.casefold() for name in text.engines]


def end_of(text: OrderText, enqueued_at: float) -> float:
    """Return the end of an order's effect."""
    verb = FLEET_VERBS[text.verb]
    if verb.stands:
        return enqueued_at + min(text.stands_for or 0.0, LONGEST)
    return enqueued_at + LONGEST if verb.revokes else act_end_of(text, enqueued_at)


def act_end_of(text: OrderText, enqueued_at: float) -> float:
    """Return the time until which an order that does not stand is carried out."""
    return min(text.issued_at + text.act_within, enqueued_at + ONE_SHOT_SECONDS)


class OrderTruth:
    """The truth about one engine.

    Args:
        engine: its name.
        signers: the keys in its signers file.
        verbs: the verbs that it knows.
    """

    def __init__(self, engine: str, signers: Signers, verbs: frozenset[str]) -> None:
        self._engine, self._signers, self._verbs = engine, signers, verbs
        self.stored = StoredTruth()
        self.ends: dict[str, set[float]] = {}
        """The ends of each order's copies that counted."""
        self.version = 0
        """The number of changes."""
        self.begin()

    def begin(self) -> None:
        """Begin a boot with what the one before stored."""
        self.newest = dict(self.stored.newest)
        self.released = dict(self.stored.released)
        self.log: list[JudgedPost] = []
        self.looks = 0
        self.generation = -1
        self._pending: dict[int, SimPost] = {}

    def serve(self, posts: tuple[SimPost, ...]) -> None:
        """Take posts in that a reading gave to the engine."""
        for post in posts:
            if post.generation != self.generation:
                self.log, self._pending, self.generation = [], {}, post.generation
            if not any(one.post is post for one in self.log):
                self._pending[post.number] = post

    def read_again(self) -> None:
        """Forget the posts: the engine reads the board from its beginning."""
        self.log, self._pending = [], {}

    def judge(self) -> None:
        """Judge all posts, since the end of the board was reached."""
        self.looks += 1
        for number in sorted(self._pending):
            post = self._pending[number]
            if post.text is None or post.text.verb not in self._verbs:
                continue
            judged = JudgedPost(post, post.text, self._judge(post, post.text), self.looks)
            self.log.append(judged)
            if judged.judgement is Judgement.COUNTS and is_for(post.text, self._engine):
                self._learn(judged)
        self._pending.clear()

    def _judge(self, post: SimPost, text: OrderText) -> Judgement:
        is_ours = (text.primary.casefold(), text.secondary.casefold()) == (PRIMARY, SECONDARY)
        is_signed = self._signers is not None and post.key in self._signers
        is_fresh = abs(post.enqueued_at - text.issued_at) <= FRESH_SECONDS
        if not (is_ours and is_signed and is_fresh and post.is_genuine):
            return Judgement.VOID
        if any(one.text.id == text.id and one.judgement is not Judgement.VOID for one in self.log):
            return Judgement.SECOND
        about = set(subjects(text))
        for other in self.log:
            is_newer = other.post.number > text.on_top_of and other.judgement is Judgement.COUNTS
            lasts = end_of(other.text, other.post.enqueued_at) > post.enqueued_at
            if is_newer and lasts and about & set(subjects(other.text)) and _share(text, other.text):
                return Judgement.OVERTAKEN
        return Judgement.COUNTS

    def _learn(self, judged: JudgedPost) -> None:
        verb, post = FLEET_VERBS[judged.text.verb], judged.post
        if not verb.stands_for:
            return
        until = end_of(judged.text, post.enqueued_at) if verb.stands else float("-inf")
        self.version += 1
        self.ends.setdefault(judged.text.id, set()).add(until)
        for subject in subjects(judged.text):
            before = self.newest.get(subject)
            if before is None or before.enqueued_at <= post.enqueued_at:
                self.newest[subject] = KnownOrder(judged.text.id, verb.id, post.enqueued_at, until)

    def find(self, number: int) -> JudgedPost | None:
        """Return the order of that number on the board that the engine reads."""
        return next((one for one in self.log if one.post.number == number), None)

    def standing(self, now: float) -> dict[Subject, KnownOrder]:
        """Return what stands, also what was released or refused here."""
        return {subject: one for subject, one in sorted(self.newest.items()) if one.until > now}

    def in_force(self, now: float) -> dict[Subject, KnownOrder]:
        """Return what stands and was neither released nor refused here."""
        return {key: one for key, one in self.standing(now).items() if self.released.get(key) != one.order_id}

    def release(self, order_id: str, subject: Subject) -> None:
        """Note that an order is not in force here: a local operator ended it, or the guard refused it."""
        self.version += 1
        self.released[subject] = order_id

    def snapshot(self, now: float) -> StoredTruth:
        """Return what a boot after this one knows if it is stored now."""
        return StoredTruth(self.standing(now), dict(self.released))


def _share(one: OrderText, other: OrderText) -> bool:
    if one.engines is None or other.engines is None:
        return True
    return bool({name.casefold() for name in one.engines} & {name.casefold() for name in other.engines})
