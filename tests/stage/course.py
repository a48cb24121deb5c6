"""The course of faults of the chaos: a pure function of the seed, so that a run can be repeated.

An episode breaks something for some seconds, or somebody; then everything is mended and proven. A round is a
list of episodes in which each kind of fault and each special case comes once; rounds go on without end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from enum import StrEnum
from typing import Final

from servicebus_sandbox.faults import EFFECTS, OWN_OPERATION, FaultKind, Operation

PRIMARY: Final = "primary"
SECONDARY: Final = "secondary"
DEDUP: Final = "orders"
"""Detects duplicates."""
SESSIONS: Final = "payments"
TOPIC: Final = "audit"
PLAIN: Final = "plain"
ENTITIES: Final = (DEDUP, SESSIONS, TOPIC, PLAIN)
TRANSFER: Final = "/x-servicebus-transfer/"
"""In the path of every backlog queue."""
BACKLOG: Final = tuple(f"{PRIMARY}{TRANSFER}{index}" for index in range(3))
LOCK: Final = timedelta(seconds=10)
"""A backlog queue that its owner made with shorter locks than ours: what a killed syphon held comes again soon."""

MIXED: Final = 3
"""Faults of a mixed episode."""
DOWN: Final = (FaultKind.REFUSED, FaultKind.RESET, FaultKind.BLACK_HOLED)
_ANSWERED: Final = (FaultKind.BUSY, FaultKind.FULL, FaultKind.LATE, FaultKind.DISABLED)
"""Whoever meets one of these knows for certain what became of a message."""


class Act(StrEnum):
    """What is done to processes and to the clock; to die is to be killed with SIGKILL."""

    NOTHING = "nothing"
    SENDING = "a sender, and the engine it is, dies while sending"
    PINGING = "the engine and a sender die while pinging"
    BETWEEN = "the engine dies between the pump's send and its completion"
    STALLED = "the engine stands still between the pump's send and its completion, until its locks have ended"
    AGED = "the clock of both namespaces jumps over the end of every lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A fault that begins `after` some seconds; the other fields are those of the sandbox's control URL."""

    after: float = 0.0
    namespace: str
    fault: str
    entities: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    direction: str | None = None
    probability: float | None = None
    seed: int | None = None
    count: int | None = None
    delay_s: float | None = None
    duration_s: float | None = None
    slow_s: float | None = None

    def order(self) -> dict[str, object]:
        """The JSON object that orders it."""
        named = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "after"}
        written = {name: list(map(str, value)) if isinstance(value, tuple) else value for name, value in named.items()}
        return {name: value for name, value in written.items() if value}

    @property
    def opens(self) -> bool:
        """Whether a message can land and its sender not know, or be moved and its pump not have completed it."""
        if Operation.SETTLE in self.operations and self.namespace == SECONDARY:
            return True
        if self.namespace == PRIMARY and self.fault in (FaultKind.NOT_FOUND, FaultKind.UNAUTHORIZED):
            return False
        return self.fault not in _ANSWERED

    def __str__(self) -> str:
        order = self.order()
        place = " ".join([str(order.pop("namespace")), *self.entities])
        fault = order.pop("fault")
        order.pop("entities", None)
        operations = order.pop("operations", [])
        assert isinstance(operations, list)
        more = ", ".join([*operations, *(f"{name} {value}" for name, value in order.items() if name != "seed")])
        return f"{place} {fault}" + (f" ({more})" if more else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Something goes wrong for `seconds`, and is mended."""

    title: str
    seconds: float
    strikes: tuple[Strike, ...] = ()
    dies: str = ""
    """Who is killed amid the strikes: "engine", "sender", or nobody."""
    dies_after: float = 0.0
    act: Act = Act.NOTHING
    entity: str = PLAIN
    """Where the act is prepared."""

    @property
    def opens(self) -> bool:
        """Whether it can open one of the windows in which duplicates arise."""
        return self.act is not Act.NOTHING or bool(self.dies) or any(strike.opens for strike in self.strikes)


def episodes(seed: int) -> Iterator[Episode]:
    """Rounds of episodes, without end."""
    rng = random.Random(f"chaos {seed}")
    while True:
        round_ = [*_specials(rng), *_mixtures(rng)]
        rng.shuffle(round_)
        yield from round_


def _specials(rng: random.Random) -> list[Episode]:
    down = [Strike(namespace=PRIMARY, fault=rng.choice(DOWN)), Strike(namespace=SECONDARY, fault=rng.choice(DOWN))]
    later = replace(down[1], after=3.0)
    slow = Strike(namespace=PRIMARY, fault=FaultKind.LATENCY, operations=(Operation.SEND,), delay_s=0.3)
    return [
        Episode(title="both namespaces are down", seconds=rng.uniform(4, 7), strikes=tuple(down)),
        Episode(
            title="the secondary fails while the primary is down", seconds=rng.uniform(6, 9), strikes=(down[0], later)
        ),
        Episode(title=Act.SENDING, seconds=rng.uniform(1, 2), strikes=(slow,), act=Act.SENDING),
        Episode(title=Act.PINGING, seconds=rng.uniform(1, 3), act=Act.PINGING, entity=rng.choice(ENTITIES)),
        *(
            Episode(title=act, seconds=0.0, act=act, entity=rng.choice(ENTITIES))
            for act in (Act.BETWEEN, Act.STALLED, Act.AGED)
        ),
    ]


def _mixtures(rng: random.Random) -> list[Episode]:
    """Every kind of fault once: most of them some at a time, one alone."""
    kinds = list(FaultKind)
    rng.shuffle(kinds)
    hands = [kinds[:1], *(kinds[start : start + MIXED] for start in range(1, len(kinds), MIXED))]
    return [_mixture([_strike(kind, rng) for kind in hand], rng) for hand in hands]


def _mixture(strikes: list[Strike], rng: random.Random) -> Episode:
    seconds = rng.uniform(3, 7)
    dies = rng.choice(("", "", "", "engine", "sender"))
    title = "; ".join([*map(str, strikes), *([f"the {dies} dies"] if dies else [])])
    return Episode(
        title=title, seconds=seconds, strikes=tuple(strikes), dies=dies, dies_after=rng.uniform(0.2, 0.9) * seconds
    )


def _strike(kind: FaultKind, rng: random.Random) -> Strike:
    """One fault of this kind, anywhere it can be."""
    namespace = rng.choice((PRIMARY, PRIMARY, SECONDARY))
    there = ENTITIES if namespace == PRIMARY else BACKLOG
    strike = Strike(
        after=round(rng.uniform(0, 2), 1),
        namespace=namespace,
        fault=kind,
        entities=tuple(rng.sample(there, rng.choice((1, 1, 2)))) if rng.random() < 0.6 else (),
        operations=_operations(kind, rng),
    )
    match kind:
        case FaultKind.HALF_OPEN:
            return replace(strike, entities=(), operations=())
        case FaultKind.NODE_RESTART:
            entities = strike.entities or there
            return replace(strike, entities=entities, operations=(), delay_s=0.3, duration_s=2.0, slow_s=2.0)
        case FaultKind.LATE | FaultKind.LATENCY:
            strike = replace(strike, delay_s=round(rng.uniform(0.2, 3), 1))
    if kind in (FaultKind.BLACK_HOLED, FaultKind.LATENCY):
        strike = replace(strike, direction=rng.choice((None, "in", "out")))
    if rng.random() < 0.3:
        strike = replace(strike, probability=round(rng.uniform(0.2, 0.8), 1), seed=rng.randrange(1, 2**31))
    if rng.random() < 0.2:
        strike = replace(strike, count=rng.randint(1, 20))
    return strike


def _operations(kind: FaultKind, rng: random.Random) -> tuple[str, ...]:
    """None half of the time: whatever the kind bears on; else one or two that it can."""
    effect = EFFECTS.get(kind)
    moments = effect.always | effect.named if effect is not None else frozenset()
    bears_on = sorted({operation for moment in moments for operation in OWN_OPERATION[moment]})
    if not bears_on or rng.random() < 0.5:
        return ()
    return tuple(rng.sample(bears_on, min(len(bears_on), rng.randint(1, 2))))
