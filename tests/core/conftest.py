"""A pairing that is told things, on a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import TypeVar

import pytest

from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.failover.pairing_machine import Announce, Effect, PairingMachine, ProbeQueue, SendPing
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.entity_state import Entity, State
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import FailureKind

BEGAN = 1_700_000_000.0
Announced = TypeVar("Announced", bound=e.Event)


class Told:
    """One pairing, with short words for what happens to it; `now` counts seconds from the beginning."""

    def __init__(self, policy: Policy, queues: int) -> None:
        self.machine = PairingMachine(policy, queues=range(queues))
        self.now = 0.0
        self.effects: list[Effect] = []
        """Of the latest event."""

    @property
    def at(self) -> float:
        return BEGAN + self.now

    def step(self, event: e.Event) -> list[Effect]:
        self.effects = self.machine.step(event)
        return self.effects

    def run(self, *steps: Step) -> None:
        """It ticks at a number of seconds, has to be in a state, and does or checks everything else."""
        for step in steps:
            if isinstance(step, State):
                assert self.state() is step
            elif isinstance(step, (int, float)):
                self.ticks(to=step)
            else:
                step(self)

    # -- what happens -----------------------------------------------------------------------------------------

    def accepts(self, entity: str = "orders", *, queue: int | None = None) -> list[Effect]:
        return self.step(e.SendAccepted(at=self.at, entity=entity, queue=queue))

    def fails(
        self,
        entity: str = "orders",
        *,
        queue: int | None = None,
        failure: FailureKind = FailureKind.TIMEOUT,
        reason: str = "timeout",
    ) -> list[Effect]:
        return self.step(e.SendFailed(at=self.at, entity=entity, queue=queue, failure=failure, reason=reason))

    def ticks(self, to: float | None = None) -> list[Effect]:
        self.now = self.now if to is None else to
        return self.step(e.Ticked(at=self.at))

    def ping_accepted(self, number: int, *, entity: str = "orders", took: float = 0.0) -> list[Effect]:
        return self.step(e.PingAccepted(at=self.at, entity=entity, number=number, took=took))

    def ping_failed(
        self,
        number: int,
        *,
        entity: str = "orders",
        took: float = 0.0,
        reason: str = "timeout",
        throttled: bool = False,
    ) -> list[Effect]:
        event = e.PingFailed(at=self.at, entity=entity, number=number, reason=reason, took=took, throttled=throttled)
        return self.step(event)

    def forces(self, entity: str = "orders") -> list[Effect]:
        return self.step(e.Forced(at=self.at, entity=entity, by="anna", why="a drill"))

    def pins(self, entity: str = "orders") -> list[Effect]:
        return self.step(e.Pinned(at=self.at, entity=entity, by="anna", why="a drill"))

    def releases(self, entity: str = "orders") -> list[Effect]:
        return self.step(e.EntityReleased(at=self.at, entity=entity, by="anna", why="over"))

    def probed(self, queue: int, *, accepted: bool, reason: str = "") -> list[Effect]:
        return self.step(e.QueueProbed(at=self.at, queue=queue, accepted=accepted, reason=reason))

    # -- what came of it --------------------------------------------------------------------------------------

    def entity(self, path: str = "orders") -> Entity:
        return self.machine.entity(path, at=self.at)

    def state(self, path: str = "orders") -> State:
        return self.entity(path).state

    def due(self) -> float | None:
        """The next deadline, in seconds from the beginning."""
        deadline = self.machine.next_deadline
        return None if deadline is None else deadline - BEGAN

    def picture(self) -> tuple[object, ...]:
        """Everything that can be asked of the machine, apart from it."""
        machine = self.machine
        rules = (machine.pauses.all, machine.next_deadline, tuple(machine.destinations.open.values()))
        return deepcopy((machine.entities(), machine.rotation.places, *rules))

    def pings(self) -> list[SendPing]:
        return [effect for effect in self.effects if isinstance(effect, SendPing)]

    def probes(self) -> list[int]:
        return [effect.queue for effect in self.effects if isinstance(effect, ProbeQueue)]

    def announced(self, kind: type[Announced]) -> list[Announced]:
        events = [effect.event for effect in self.effects if isinstance(effect, Announce)]
        return [event for event in events if isinstance(event, kind)]

    def changes(self) -> list[tuple[str, str]]:
        return [(change.was, change.now) for change in self.announced(e.StateChanged)]

    # -- ways there -------------------------------------------------------------------------------------------

    def fail_over(self, entity: str = "orders") -> None:
        """Fail once, wait out the interval in silence."""
        self.fails(entity)
        self.ticks(self.now + self.machine.policy.failover_interval)
        assert self.state(entity) is State.FAILED_OVER

    def reach(self, state: State, entity: str = "orders") -> None:
        """From unknown to `state`, at once where that can be."""
        if state is State.HEALTHY:
            self.accepts(entity)
        elif state is State.SUSPECT:
            self.fails(entity)
        elif state is State.FAILED_OVER:
            self.fail_over(entity)
        else:
            self.entity(entity)
            if state is State.FORCED:
                self.forces(entity)
            elif state is State.PINNED:
                self.pins(entity)
        assert self.state(entity) is state


Step = State | int | float | Callable[[Told], object]


def does(method: Callable[..., object], *args: object, **options: object) -> Callable[[Told], object]:
    return lambda pairing: method(pairing, *args, **options)


def at(seconds: float) -> Callable[[Told], None]:
    """The clock is set; nothing ticks."""
    return lambda pairing: setattr(pairing, "now", seconds)


def due(seconds: float | None) -> Callable[[Told], None]:
    def check(pairing: Told) -> None:
        assert pairing.due() == seconds

    return check


def changed(*changes: tuple[str, str]) -> Callable[[Told], None]:
    """The states that the latest event led from and to."""

    def check(pairing: Told) -> None:
        assert pairing.changes() == list(changes)

    return check


def pinged(*numbers: int, entities: tuple[str, ...] = ("orders",)) -> Callable[[Told], None]:
    """The latest event sent these pings to each of the entities."""

    def check(pairing: Told) -> None:
        assert pairing.pings() == [SendPing(entity, number) for entity in entities for number in numbers]

    return check


def has(**facts: object) -> Callable[[Told], None]:
    """The entity has these values."""

    def check(pairing: Told) -> None:
        assert {name: getattr(pairing.entity(), name) for name in facts} == facts

    return check


def announces(kind: type[e.Event], **facts: object) -> Callable[[Told], None]:
    """The latest event announced one of that kind, with these values."""

    def check(pairing: Told) -> None:
        events = pairing.announced(kind)
        assert [{name: getattr(event, name) for name in facts} for event in events] == [facts]

    return check


def refuses(words: str, act: Callable[[Told], object]) -> Callable[[Told], None]:
    """An act is refused as illegal in these words, a pattern, and leaves everything as it was."""

    def check(pairing: Told) -> None:
        before = pairing.picture()
        with pytest.raises(IllegalEventError, match=words):
            act(pairing)
        assert pairing.picture() == before

    return check


def nothing(pairing: Told) -> None:
    """The latest event has no effect."""
    assert pairing.effects == []


@pytest.fixture
def told() -> Callable[..., Told]:
    """Make a pairing: options of the policy by name, and the number of its backlog queues."""

    def make(*, queues: int = 3, **options: object) -> Told:
        return Told(Policy(**options), queues)

    return make
