"""Arm-then-fire: what was armed, until it is fired or its time is over.

A token stands for one order in every detail: the same verb on the same targets by the same person. It is good once and
for some seconds, by a clock that never jumps. What is typed wrong does not use it up; firing does, whatever comes of
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.operator.actions import ARMED_SECONDS, Scope, typed_right

MAX_ARMED: Final = 64
"""Orders that are armed at one time; the oldest goes first. Each holds a few names."""


@dataclass(frozen=True, slots=True)
class CommandIntent:
    """What is ordered, in every detail that was previewed."""

    verb: str
    scope: Scope
    targets: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class _Armed:
    meant: CommandIntent
    to_type: str
    until: float


class ArmedCommands:
    """The armed orders of one engine.

    Args:
        monotonic: seconds that never jump.
        token: a new one, that nobody can guess.
    """

    def __init__(self, *, monotonic: Callable[[], float], token: Callable[[], str]) -> None:
        self._monotonic = monotonic
        self._token = token
        self._armed: dict[str, _Armed] = {}

    def arm(self, meant: CommandIntent, *, to_type: str) -> str:
        """Arms an order; its token."""
        self._forget()
        token = self._token()
        self._armed[token] = _Armed(meant, to_type, self._monotonic() + ARMED_SECONDS)
        while len(self._armed) > MAX_ARMED:
            del self._armed[next(iter(self._armed))]
        return token

    def fire(self, token: str, meant: CommandIntent, *, typed: str) -> str:
        """Why an order may not be fired; empty if it may, once."""
        self._forget()
        armed = self._armed.get(token)
        if armed is None:
            over = f"its {ARMED_SECONDS:g} s are over or it was fired already" if token else "it was not"
            return f"{meant.verb} is dangerous and has to be armed first: {over}"
        if armed.meant != meant:
            return f"what was armed is another order: {armed.meant.verb} {' '.join(armed.meant.targets)}".rstrip()
        if not typed_right(typed, armed.to_type):
            return f"{typed!r} was typed, and firing needs {armed.to_type!r}"
        del self._armed[token]
        return ""

    def _forget(self) -> None:
        now = self._monotonic()
        self._armed = {token: armed for token, armed in self._armed.items() if armed.until > now}
