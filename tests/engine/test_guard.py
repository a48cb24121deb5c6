"""The guard: what it refuses, that the audit line is on disk before the act, and what a full disk changes."""

from __future__ import annotations

from typing import Any

import pytest

from console.core.events import Commanded, CommandEnded, Event
from console.engine.guard import VERBS, Guard, Reach
from console.engine.protocol import Command


class Audit:
    """Keeps what is recorded, and what was done, in order."""

    def __init__(self, pairing: Any, *, on_disk: bool = True) -> None:
        self.said: list[Event | str] = []
        self.on_disk = on_disk
        self.trouble = "" if on_disk else "No space left on device in /spool"
        pairing.before_act = lambda: self.said.append("acted")

    def record(self, event: Event) -> int:
        self.said.append(event)
        return len(self.said)

    async def sync(self) -> bool:
        self.said.append("synced")
        return self.on_disk


def guard(pairing: Any, audit: Audit, *, read_only: bool = False, ends: list[str] | None = None) -> Guard:
    reach = Reach(pairing, (ends if ends is not None else []).append)
    return Guard(reach, audit, read_only=read_only, clock=lambda: 5.0)


def order(verb: str, target: str = "", *, by: str = "ada") -> Command:
    return Command(id=9, verb=verb, target=target, by=by, why="drill")


async def test_the_audit_line_is_on_disk_before_the_act(pairing: Any) -> None:
    audit = Audit(pairing)
    done = await guard(pairing, audit).execute(order("force", "orders"))
    assert (done.id, done.ok) == (9, True)
    assert audit.said == [
        Commanded(at=5.0, command="force", target="orders", by="ada", why="drill"),
        "synced",
        "acted",
        CommandEnded(at=5.0, command_seq=1, outcome="orders is forced now"),
    ]


async def test_with_a_full_disk_it_acts_and_says_that_the_audit_is_not_written(pairing: Any) -> None:
    audit = Audit(pairing, on_disk=False)
    done = await guard(pairing, audit).execute(order("force", "orders"))
    assert done.ok
    assert "acted" in audit.said
    assert done.text == "orders is forced now (the audit is not written: No space left on device in /spool)"


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
async def test_read_only_refuses_every_verb_and_audits_the_attempt(pairing: Any, verb: Any) -> None:
    audit, ends = Audit(pairing), []
    refusing = guard(pairing, audit, read_only=True, ends=ends)
    done = await refusing.execute(order(verb.name, "orders" if verb.needs_target else ""))
    assert not done.ok
    assert "read-only" in done.text
    assert pairing.acts == []
    assert ends == []
    assert [type(event) for event in audit.said if event != "synced"] == [Commanded, CommandEnded]


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
async def test_every_verb_does_something(pairing: Any, verb: Any) -> None:
    pairing.force("orders", by="setup")
    pairing.acts.clear()
    ends: list[str] = []
    acting = guard(pairing, Audit(pairing), ends=ends)
    done = await acting.execute(order(verb.name, "orders" if verb.needs_target else ""))
    assert done.ok
    assert len(pairing.acts) + len(ends) == 1


@pytest.mark.parametrize(
    ("faulty", "sentence"),
    [
        (order("explode", "orders"), "there is no command 'explode'; there are force, release"),
        (order("force", "orders", by=" "), "needs the name of who orders it"),
        (order("force"), "force needs an entity; it has orders, payments"),
        (order("force", "nothing"), "this engine has no entity 'nothing'; it has orders, payments"),
        (order("stop", "orders"), "stop takes no target, and 'orders' was named"),
    ],
)
async def test_a_faulty_order_is_answered_and_leaves_no_trace(pairing: Any, faulty: Command, sentence: str) -> None:
    audit = Audit(pairing)
    done = await guard(pairing, audit).execute(faulty)
    assert not done.ok
    assert sentence in done.text
    assert audit.said == []


async def test_entities_are_compared_without_case(pairing: Any) -> None:
    done = await guard(pairing, Audit(pairing)).execute(order("force", "ORDERS"))
    assert done.ok


async def test_an_act_that_cannot_be_is_answered_with_its_reason(pairing: Any) -> None:
    audit = Audit(pairing)
    done = await guard(pairing, audit).execute(order("release", "orders"))
    assert not done.ok
    assert done.text == "orders is unknown: there is nothing to release"
    assert isinstance(audit.said[-1], CommandEnded)


async def test_a_fault_of_ours_is_answered_and_ends_the_audit(pairing: Any) -> None:
    audit = Audit(pairing)

    def crash() -> None:
        raise KeyError("inner")

    pairing.before_act = crash
    done = await guard(pairing, audit).execute(order("force", "orders"))
    assert not done.ok
    assert "force failed in the engine (KeyError" in done.text
    assert isinstance(audit.said[-1], CommandEnded)
