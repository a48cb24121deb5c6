"""A gateway's transactions, by seeds: their three ways to end, with failures of the primary and of the backlog between.

The acts, the backlog and the primary are of this file; the rules of the commit are the shipped ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from paired_servicebus.core.errors import BacklogUnavailableError, WireError, WireTimeoutError
from paired_servicebus.engine.gateway.transactions import Transaction
from servicebus_amqp.encoding.performatives import ACCEPTED, Discharge, Error, Rejected, TransactionalState
from servicebus_amqp.nodes.request_ends import AmqpRefusal

SEEDS = range(200)
ENDS = ("commit", "rollback", "lost")
"""A transaction's three ways to end: by its client, twice, and without it."""


@dataclass(eq=False)
class SimAct:
    """A send that the primary has, or that is held for the backlog."""

    world: SimWorld
    name: str
    is_held: bool
    messages: tuple[str, ...] = ("m",)

    def __post_init__(self) -> None:
        self.sender, self.is_sent = self, not self.is_held

    async def park(self, acts: list[SimAct], _: float) -> None:
        """All of them or none; a failure may be of the answer alone."""
        if self.world.chance.random() < 0.2:
            raise BacklogUnavailableError("no queue accepted them")
        self.world.done.update(act.name for act in acts)

    def conclude(self, act: SimAct, *, is_committed: bool) -> None:
        self.world.concluded[act.name] = is_committed

    def doubt(self, act: SimAct, _: str) -> None:
        self.world.doubted.add(act.name)


@dataclass
class SimWorld:
    """done: what came, by name and how often. answer: to the client."""

    chance: Random
    done: Counter[str] = field(default_factory=Counter)
    concluded: dict[str, bool] = field(default_factory=dict)
    doubted: set[str] = field(default_factory=set)
    answer: AmqpRefusal | None = None
    is_up: bool = True

    async def ask(self, body: Discharge) -> Any:
        """The primary's coordinator: it does a commit whole, refuses it whole, or its answer is lost."""
        end = self.chance.choice(["done", "done", "refused", "unanswered", "unheard"])
        if end == "unheard":
            raise WireTimeoutError("no answer")
        if end == "refused" and not body.fail:
            return Rejected(error=Error(condition="amqp:transaction:rollback", description="a lock was lost"))
        if not body.fail:
            self.done.update(act.name for act in self.acts if act.is_sent)
        if end == "unanswered":
            raise WireTimeoutError("no answer")
        return ACCEPTED

    async def run(self, end: str) -> None:
        owner = SimpleNamespace(budget=None, tally=SimpleNamespace(name=SimpleNamespace(sdk="Java")))
        owner.refusal = lambda error: AmqpRefusal("com.microsoft:timeout", str(error), 408)
        made = Transaction(owner, None)  # type: ignore[arg-type] # what it needs of them
        self.acts = [
            SimAct(self, f"a{number}", self.chance.random() < 0.4) for number in range(self.chance.randint(0, 5))
        ]
        for act in self.acts:
            made.add(act)  # type: ignore[arg-type]
        if any(act.is_sent for act in self.acts):
            made._declared = self, TransactionalState(txn_id=b"there")  # type: ignore[assignment]
        if end == "lost":
            made.lose("the coordinator is gone")
        self.answer = await made.end(fail=end == "rollback")

    def faults(self, end: str) -> list[str]:
        """The rules that this run has broken."""
        names = {act.name for act in self.acts}
        refused, text = self.answer is not None, "" if self.answer is None else self.answer.description
        broken = ["an act is done twice"] if any(count > 1 for count in self.done.values()) else []
        if end == "commit" and not refused and set(self.done) != names:
            broken.append("a commit is done in part")
        if (end != "commit" or refused) and not ("in doubt" in text or "may come twice" in text) and self.done:
            broken.append("what was not committed is done")
        if any(act.name in self.done and act.is_sent and refused for act in self.acts) and not self.doubted:
            broken.append("what may be done is not named")
        if set(self.concluded) != names or (refused and any(self.concluded.values())):
            broken.append("an act is not concluded as its transaction ended")
        return broken


async def campaign() -> set[str]:
    """The rules that some seed has broken."""
    broken: set[str] = set()
    for seed in SEEDS:
        for end in ENDS:
            world = SimWorld(Random(seed))
            await world.run(end)
            broken.update(world.faults(end))
    return broken


async def test_a_commit_is_whole_or_refused_and_nothing_comes_of_another_end() -> None:
    """A commit is whole or refused; a message of a refused commit may come twice where its outcome was in doubt."""
    assert await campaign() == set()


async def _commit_in_part(self: Transaction, held: list[Any]) -> None:
    """Park the first of the acts alone."""
    await _PARK(self, held[:1])


async def _commit_twice(self: Transaction, *, fail: bool) -> WireError | None:
    """Ask again after an answer, as a client would after none."""
    await _DISCHARGE(self, fail=fail)
    return await _DISCHARGE(self, fail=fail)


_PARK, _DISCHARGE = Transaction._park, Transaction._discharge


@pytest.mark.parametrize(
    ("name", "bug", "found"),
    [
        ("_park", _commit_in_part, "a commit is done in part"),
        ("_discharge", _commit_twice, "an act is done twice"),
    ],
    ids=["in part", "twice"],
)
async def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, bug: Callable[..., Any], found: str
) -> None:
    monkeypatch.setattr(Transaction, name, bug)
    assert found in await campaign()
