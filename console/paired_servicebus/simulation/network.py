"""One request's way to a namespace and back, and the effect of a fault on it.

A request that has left is independent: its sender may crash or give up, and it still arrives. Requests that arrive
without an answer cause duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from random import Random
from typing import Any, Final

from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.simulation.run_plan import InjectedCondition
from paired_servicebus.simulation.sim_namespaces import RequestTarget
from paired_servicebus.simulation.virtual_clock import SimProcess, VirtualClock

ANSWERS: Final = {
    InjectedCondition.REFUSED: FailureKind.CONNECTION,
    InjectedCondition.INTERNAL: FailureKind.INTERNAL,
    InjectedCondition.BUSY: FailureKind.BUSY,
    InjectedCondition.DISABLED: FailureKind.DISABLED,
    InjectedCondition.DELETED: FailureKind.NOT_FOUND,
    InjectedCondition.UNAUTHORIZED: FailureKind.UNAUTHORIZED,
    InjectedCondition.FULL: FailureKind.FULL,
}
"""Conditions with a failure as the only answer."""
HARMLESS: Final = frozenset({InjectedCondition.HIDDEN, InjectedCondition.AWAY})


class Network:
    """The network between engines and namespaces. A refusal takes `refusal` seconds longer than its way."""

    refusal = 0.0

    def __init__(self, clock: VirtualClock, random: Random) -> None:
        self._clock = clock
        self._random = random

    def request(
        self,
        target: RequestTarget,
        condition: InjectedCondition | None,
        timeout: float,
        act: Callable[[], Any],
        unanswered: Callable[[], None] | None = None,
    ) -> Generator[None, Any, tuple[FailureKind | None, Any]]:
        """Request `act` from `target`; return the failure or None, and the act's result. Part of the running process.

        condition: the fault that the request meets. timeout: seconds. unheard: called before an act whose answer is
        lost.
        """
        clock, random = self._clock, self._random
        process, now = clock.current, clock.now
        out, back = 0.002 + 0.05 * random.random(), 0.002 + 0.05 * random.random()
        if condition is None or condition in HARMLESS:
            if out + back < timeout:
                clock.at(now + out, self._land, act, back, process, process.turn)
            else:
                self._cut(now + out, now + timeout, FailureKind.TIMEOUT, act, unanswered)
        elif condition is InjectedCondition.BLACK_HOLE or out + back >= timeout:
            clock.wake(now + timeout, process, process.turn, (FailureKind.TIMEOUT, None))
        elif condition in ANSWERS:
            self._refuse(now + out, now + timeout, ANSWERS[condition])
        elif condition is InjectedCondition.SLOW:
            slow = timeout * (0.2 + random.random())
            if slow + back < timeout:
                clock.at(now + slow, self._land, act, back, process, process.turn)
            else:
                self._cut(now + slow, now + timeout, FailureKind.TIMEOUT, act, unanswered)
        elif condition is InjectedCondition.ACK_LOST:
            self._cut(now + out, now + timeout, FailureKind.TIMEOUT, act, unanswered)
        elif condition is InjectedCondition.LANDS_LATE:
            late = timeout + 60.0 * random.random()
            self._cut(now + late, now + timeout, FailureKind.TIMEOUT, act, unanswered)
        elif random.random() < 0.5:  # RESET, after it arrived or before
            self._cut(now + out, now + out + back, FailureKind.CONNECTION, act, unanswered)
        else:
            self._refuse(now + out, now + timeout, FailureKind.CONNECTION)
        outcome: tuple[FailureKind | None, Any] = yield
        return outcome

    def _refuse(self, at: float, gives_up: float, failure: FailureKind) -> None:
        process, answered_at = self._clock.current, at + self.refusal
        if answered_at < gives_up or not self.refusal:
            self._clock.wake(answered_at, process, process.turn, (failure, None))
        else:
            self._clock.wake(gives_up, process, process.turn, (FailureKind.TIMEOUT, None))

    def _land(self, act: Callable[[], Any], back: float, process: SimProcess, turn: int) -> None:
        answer = act()
        failure = answer if isinstance(answer, FailureKind) else None
        self._clock.wake(self._clock.now + back, process, turn, (failure, None if failure else answer))

    def _cut(
        self,
        lands: float,
        answered_at: float,
        failure: FailureKind,
        act: Callable[[], Any],
        unanswered: Callable[[], None] | None,
    ) -> None:
        process = self._clock.current
        self._clock.at(lands, _land_unheard, act, unanswered)
        self._clock.wake(answered_at, process, process.turn, (failure, None))


def _land_unheard(act: Callable[[], Any], unanswered: Callable[[], None] | None) -> None:
    if unanswered is not None:
        unanswered()
    act()
