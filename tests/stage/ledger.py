"""The ledger of a play: the lists that senders and receivers keep outside of the system, and the verdict on them.

Each process appends to a file of its own, one JSON line a fact; a line is one write to the operating system, so a
killed process leaves everything that it wrote before. No journal is read.

Lost, unexpected and parked are those of SPEC.md section 11. Duplicates are judged one by one: a copy is a message that
the broker accepted twice, not one that it delivers again. A copy is in order inside the three windows of SPEC.md's
promise alone: a send that timed out but landed, a syphon that ended between the destination's acceptance and its
completion, a lock that expired. Seen from outside these are open while a caller is in doubt or a call lasts longer
than an attempt may, and during the episodes that can open one. Where the destination detects duplicates there is none.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.accounting.ledger import Arrival, SendOutcome, balance
from paired_servicebus.core.accounting.ledger import Ledger as Balance

SUFFIX: Final = ".list"
MOST_SHOWN: Final = 10
"""Messages for which evidence is shown."""
MOST_LINES: Final = 40


class Broken(AssertionError):
    """A promise that does not hold, and without which the rest of the play proves nothing."""


class Attempted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A sender begins an attempt; written before anything is sent."""

    at: float
    entity: str
    ids: list[str]


class Answered(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The outcome, for its caller, of the attempt that began last with these ids."""

    at: float
    ids: list[str]
    answer: SendOutcome
    error: str = ""


class Arrived(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A receiver got a message. number: the broker's own, equal when it is delivered again. changed: what of it is not
    as it was sent."""

    at: float
    entity: str
    id: str
    number: int
    changed: str = ""


class Stood(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The states of an application's entities, and the messages refused of each, whenever they change."""

    at: float
    who: str
    states: dict[str, str]
    refused: dict[str, int] = {}


class Mark(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A process reached a point of its life, such as "ready"; value: a figure that belongs to it."""

    at: float
    who: str
    text: str
    value: float = 0.0


class Began(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The director begins an episode. opens: whether it can open one of the windows in which duplicates arise."""

    at: float
    episode: int
    title: str
    opens: bool


class Recovered(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All works again after an episode."""

    at: float
    episode: int


class Found(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The director saw a promise broken."""

    at: float
    text: str


class Remaining(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The ids in a queue when everything had come to rest. dead: it is one of dead letters."""

    at: float
    place: str
    dead: bool
    ids: list[str]


Fact = Attempted | Answered | Arrived | Stood | Mark | Began | Recovered | Found | Remaining
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final[msgspec.json.Decoder[Fact]] = msgspec.json.Decoder(Fact)


def now() -> float:
    """Seconds since the epoch: the clock that all processes of a machine share."""
    return time.time()


class FactFile:
    """A process's own list, open for writing."""

    def __init__(self, folder: Path, name: str) -> None:
        self._fd = os.open(folder / f"{name}{SUFFIX}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, fact: Fact) -> None:
        os.write(self._fd, _ENCODER.encode(fact) + b"\n")


class FactReader:
    """All lists of a folder, read as they grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def new(self) -> Iterator[Fact]:
        """Yield the facts written since the last call; a line that is not complete waits for the next."""
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            yield from map(_DECODER.decode, whole.splitlines())


@dataclass(slots=True)
class Life:
    """What is known of one message id. numbers: when each copy first arrived, by the broker's number."""

    entity: str
    attempts: list[float] = field(default_factory=list)
    answers: list[tuple[float, SendOutcome]] = field(default_factory=list)
    numbers: dict[int, float] = field(default_factory=dict)

    @property
    def was_in_doubt(self) -> bool:
        """Whether any attempt had no clear end."""
        told = [answer for _, answer in self.answers]
        return len(told) < len(self.attempts) or SendOutcome.IN_DOUBT in told

    @property
    def outcome(self) -> SendOutcome:
        """The final result for its caller; an attempt without an end is in doubt, and doubt stays."""
        if any(answer is SendOutcome.ACCEPTED for _, answer in self.answers):
            return SendOutcome.ACCEPTED
        return SendOutcome.IN_DOUBT if self.was_in_doubt else SendOutcome.REFUSED

    @property
    def longest(self) -> float:
        """Seconds that the longest attempt lasted."""
        return max((ended - began for began, (ended, _) in zip(self.attempts, self.answers, strict=False)), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement on a play; `problems` is empty if all is as promised.

    copies: copies too many, by entity. suspects: the ids that the problems are about.
    """

    balance: Balance
    copies: dict[str, int]
    problems: tuple[str, ...]
    suspects: tuple[str, ...]


@dataclass(slots=True)
class Ledger:
    """All facts of a play, added in any order; those of one process in the order in which it wrote them.

    accepted: when the attempt began that was accepted, by id. marks: the newest of each text, by process.
    """

    lives: dict[str, Life] = field(default_factory=dict)
    accepted: dict[str, float] = field(default_factory=dict)
    arrived: set[str] = field(default_factory=set)
    stood: dict[str, list[Stood]] = field(default_factory=lambda: defaultdict(list))
    marks: dict[str, dict[str, Mark]] = field(default_factory=lambda: defaultdict(dict))
    disturbed: dict[int, tuple[float, float]] = field(default_factory=dict)
    """When an episode that opens windows began and ended, by its number."""
    parked: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    changed: dict[str, str] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)
    first_refused_at: float | None = None
    """When the first attempt ended that was not accepted."""

    def add(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            match fact:
                case Attempted():
                    for name in fact.ids:
                        self.lives.setdefault(name, Life(fact.entity)).attempts.append(fact.at)
                case Answered():
                    self._answered(fact)
                case Arrived():
                    self._arrived(fact)
                case Stood():
                    self.stood[fact.who].append(fact)
                case Mark():
                    self.marks[fact.who][fact.text] = fact
                case Began(opens=True):
                    self.disturbed[fact.episode] = (fact.at, float("inf"))
                case Recovered() if fact.episode in self.disturbed:
                    self.disturbed[fact.episode] = (self.disturbed[fact.episode][0], fact.at)
                case Remaining():
                    (self.dead if fact.dead else self.parked).update(fact.ids)
                case Found():
                    self.found.append(fact.text)

    def _answered(self, fact: Answered) -> None:
        if fact.answer is not SendOutcome.ACCEPTED:
            self.first_refused_at = self.first_refused_at or fact.at
        for name in fact.ids:
            life = self.lives[name]
            life.answers.append((fact.at, fact.answer))
            if fact.answer is SendOutcome.ACCEPTED:
                self.accepted[name] = life.attempts[-1]

    def _arrived(self, fact: Arrived) -> None:
        self.arrived.add(fact.id)
        self.lives.setdefault(fact.id, Life(fact.entity)).numbers.setdefault(fact.number, fact.at)
        if fact.changed:
            self.changed[fact.id] = fact.changed

    # -- questions while it grows -------------------------------------------------------------------------------------

    def state(self, who: str, entity: str) -> str:
        """Return the newest state of an entity in a process; "" if it has none."""
        return self.stood[who][-1].states.get(entity, "") if self.stood[who] else ""

    def has_answer(self, name: str) -> bool:
        return name in self.lives and bool(self.lives[name].answers)

    def own_refusals(self) -> Counter[str]:
        """Count the messages whose attempts did not end in acceptance, by entity."""
        refused: Counter[str] = Counter()
        for life in self.lives.values():
            refused[life.entity] += sum(answer is not SendOutcome.ACCEPTED for _, answer in life.answers)
        return +refused

    # -- the verdict --------------------------------------------------------------------------------------------------

    def judge(
        self, *, send_timeout: float, calls_only: bool = False, dedup: str = "", may_park: bool = False
    ) -> Verdict:
        """Return the verdict on a history that is complete.

        send_timeout: of an attempt, in seconds: a longer call may have landed and been sent again. calls_only: besides
        it, only a call under way in an episode excuses a copy. dedup: the entity that detects duplicates. may_park:
        messages may end in the backlog queues.
        """
        found = self.balance()
        copies = {name: len(life.numbers) - 1 for name, life in self.lives.items() if len(life.numbers) > 1}
        wrong = {name: self._why_wrong(self.lives[name], send_timeout, dedup, calls_only=calls_only) for name in copies}
        lines = {
            **{name: f"LOST {name}" for name in found.lost_ids},
            **{name: f"UNEXPECTED {name}" for name in found.unexpected_ids},
            **{name: f"DUPLICATE {name}: {why}" for name, why in wrong.items() if why},
            **{name: f"CHANGED {name}: {how}" for name, how in self.changed.items()},
            **{name: f"NOT DRAINED {name}: it is in a backlog queue" for name in sorted(self.parked) if not may_park},
            **{name: f"DEAD-LETTERED {name}" for name in sorted(self.dead)},
        }
        by_entity: Counter[str] = Counter()
        for name, count in copies.items():
            by_entity[self.lives[name].entity] += count
        problems = (*self.found, *lines.values())
        return Verdict(balance=found, copies=dict(by_entity), problems=problems, suspects=tuple(lines))

    def balance(self) -> Balance:
        """Return the balance of SPEC.md section 11."""
        answers = {name: life.outcome for name, life in self.lives.items() if life.attempts}
        order: Counter[str] = Counter()
        arrivals = []
        for name, life in self.lives.items():
            for _ in life.numbers:
                order[life.entity] += 1
                arrivals.append(Arrival(name, life.entity, order[life.entity]))
        return balance(answers=answers, arrivals=arrivals, parked=self.parked, dead_lettered=self.dead)

    def _why_wrong(self, life: Life, send_timeout: float, dedup: str, *, calls_only: bool) -> str:
        """Return why copies of a message are not in order; "" if they are."""
        if life.entity == dedup:
            return f"{len(life.numbers)} copies where the destination detects duplicates"
        if life.longest >= send_timeout or (life.was_in_doubt and not calls_only):
            return ""
        begin, end = min(life.attempts, default=0.0), max(life.numbers.values())
        if calls_only:
            end = max((ended for ended, _ in life.answers), default=end)
        if any(began <= end and begin <= ended for began, ended in self.disturbed.values()):
            return ""
        return f"{len(life.numbers)} copies, and no window was open"


def evidence(folder: Path, suspects: Iterable[str]) -> Iterator[str]:
    """Yield lines for a person: every line of every list and journal that names a suspect, by file."""
    every = list(suspects)
    files = sorted([*folder.glob(f"*{SUFFIX}"), *folder.rglob("*.jsonl")])
    for name in every[:MOST_SHOWN]:
        yield f"--- {name}"
        found = [
            f"{path.relative_to(folder)}: {line}"
            for path in files
            for line in path.read_text(errors="replace").splitlines()
            if f'"{name}"' in line
        ]
        yield from found[:MOST_LINES]
        if len(found) > MOST_LINES:
            yield f"and {len(found) - MOST_LINES} lines more"
    if len(every) > MOST_SHOWN:
        yield f"and {len(every) - MOST_SHOWN} messages more"
