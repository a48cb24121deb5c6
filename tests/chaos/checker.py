"""The verdict on a run: Jepsen's total queue, from the lists that processes kept outside of the system.

Lost, unexpected and parked are the ledger's (SPEC.md section 11). Duplicates are looked at one by one: a copy is a
message that the broker took twice, not one that it gave out again. A copy is in order inside the three windows of
SPEC.md's promise alone: a send that timed out but landed, a syphon that died between the destination's acceptance and
its completion, a lock that expired. Seen from outside these are open while a caller is in doubt or a call lasts longer
than an attempt may, and during the episodes that can open one. Where the destination detects duplicates there is none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from paired_servicebus.core.accounting.ledger import Arrival, Ledger, SendOutcome, balance
from tests.chaos.lists import Arrived, Attempted, Began, Fact, Found, Lying, Recovered, Told
from tests.chaos.plan import DEDUP

FOR_EVER: Final = float("inf")


@dataclass(slots=True)
class Life:
    """What is known of one message id."""

    entity: str
    attempts: list[float] = field(default_factory=list)
    told: list[tuple[float, SendOutcome]] = field(default_factory=list)
    numbers: dict[int, float] = field(default_factory=dict)
    """When each copy first arrived, by the broker's number."""

    @property
    def answer(self) -> SendOutcome:
        """What its caller was told in the end; an attempt without an end is in doubt, and doubt stays."""
        answers = {answer for _, answer in self.told}
        if SendOutcome.ACCEPTED in answers:
            return SendOutcome.ACCEPTED
        if SendOutcome.IN_DOUBT in answers or len(self.told) < len(self.attempts):
            return SendOutcome.IN_DOUBT
        return SendOutcome.REFUSED

    @property
    def was_in_doubt(self) -> bool:
        """Whether any attempt had no clear end."""
        return len(self.told) < len(self.attempts) or any(answer is SendOutcome.IN_DOUBT for _, answer in self.told)

    @property
    def longest(self) -> float:
        """Seconds that the longest attempt lasted."""
        return max((ended - began for began, (ended, _) in zip(self.attempts, self.told, strict=False)), default=0.0)


@dataclass(slots=True)
class History:
    """All lists of a run, told in any order."""

    lives: dict[str, Life] = field(default_factory=dict)
    disturbed: dict[int, tuple[float, float]] = field(default_factory=dict)
    """From when to when an episode that opens windows lasted, by its number."""
    parked: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    changed: dict[str, str] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)

    def add(self, facts: Iterable[Fact]) -> None:
        """Take facts in; of one process in the order in which it wrote them."""
        for fact in facts:
            match fact:
                case Attempted():
                    for name in fact.ids:
                        self.lives.setdefault(name, Life(fact.entity)).attempts.append(fact.at)
                case Told():
                    for name in fact.ids:
                        self.lives[name].told.append((fact.at, fact.answer))
                case Arrived():
                    self._arrived(fact)
                case Began(opens=True):
                    self.disturbed[fact.episode] = (fact.at, FOR_EVER)
                case Recovered() if fact.episode in self.disturbed:
                    self.disturbed[fact.episode] = (self.disturbed[fact.episode][0], fact.at)
                case Lying():
                    (self.dead if fact.dead else self.parked).update(fact.ids)
                case Found():
                    self.found.append(fact.text)

    def _arrived(self, fact: Arrived) -> None:
        self.lives.setdefault(fact.id, Life(fact.entity)).numbers.setdefault(fact.number, fact.at)
        if fact.changed:
            self.changed[fact.id] = fact.changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a run; `problems` is empty if all is as promised. `copies` counts copies too many, by entity."""

    ledger: Ledger
    copies: dict[str, int]
    problems: tuple[str, ...]
    suspects: tuple[str, ...]
    """The ids that the problems are about."""


def check(history: History, *, send_timeout: float) -> Verdict:
    """The verdict on a history of which nothing more will come."""
    ledger = _balance(history)
    copies = {name: len(life.numbers) - 1 for name, life in history.lives.items() if len(life.numbers) > 1}
    wrong = {name: _why_wrong(history, history.lives[name], send_timeout) for name in copies}
    lines = {
        **{name: f"LOST {name}" for name in ledger.lost_ids},
        **{name: f"UNEXPECTED {name}" for name in ledger.unexpected_ids},
        **{name: f"DUPLICATE {name}: {why}" for name, why in wrong.items() if why},
        **{name: f"CHANGED {name}: {how}" for name, how in history.changed.items()},
        **{name: f"NOT DRAINED {name}: it lies in the backlog" for name in sorted(history.parked)},
        **{name: f"DEAD-LETTERED {name}" for name in sorted(history.dead)},
    }
    by_entity = Counter[str]()
    for name, count in copies.items():
        by_entity[history.lives[name].entity] += count
    return Verdict(
        ledger=ledger,
        copies=dict(by_entity),
        problems=(*history.found, *lines.values()),
        suspects=tuple(lines),
    )


def _balance(history: History) -> Ledger:
    answers = {name: life.answer for name, life in history.lives.items() if life.attempts}
    order = defaultdict[str, int](int)
    arrivals = []
    for name, life in history.lives.items():
        for _ in life.numbers:
            order[life.entity] += 1
            arrivals.append(Arrival(name, life.entity, order[life.entity]))
    return balance(answers=answers, arrivals=arrivals, parked=history.parked, dead_lettered=history.dead)


def _why_wrong(history: History, life: Life, send_timeout: float) -> str:
    """Why copies of a message are not in order; empty if they are."""
    if life.entity == DEDUP:
        return f"{len(life.numbers)} copies where the destination detects duplicates"
    if life.was_in_doubt or life.longest >= send_timeout:
        return ""
    begin, end = min(life.attempts, default=0.0), max(life.numbers.values())
    if any(began <= end and begin <= ended for began, ended in history.disturbed.values()):
        return ""
    return f"{len(life.numbers)} copies, and no window was open"
