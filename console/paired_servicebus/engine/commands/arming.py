"""Armed commands, until they are fired or expire.

A token authorizes one command in every detail: action, targets and operator. It is valid once, for ARMED_SECONDS of
monotonic time. A wrong confirmation text does not consume it; firing does, regardless of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.operator.order_checks import ARMED_SECONDS, typed_right
from paired_servicebus.core.operator.targets import Scope

MAX_ARMED: Final = 64
"""Orders that are armed at one time; the oldest goes first. Each holds a few names."""


@dataclass(frozen=True, slots=True)
class CommandIntent:
    """A command with all details that its preview showed."""

    action_id: str
    scope: Scope
    targets: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class _Armed:
    meant: CommandIntent
    to_type: str
    until: float


class ArmedCommands:
    """The armed commands of one engine.

    Args:
        monotonic: seconds that never jump.
        token: makes a new, unguessable token.
    """

    def __init__(self, *, monotonic: Callable[[], float], token: Callable[[], str]) -> None:
        self._monotonic = monotonic
        self._token = token
        self._armed: dict[str, _Armed] = {}

    def arm(self, meant: CommandIntent, *, to_type: str) -> str:
        """Arm a command; return its token."""
        self._forget()
        token = self._token()
        self._armed[token] = _Armed(meant, to_type, self._monotonic() + ARMED_SECONDS)
        while len(self._armed) > MAX_ARMED:
            del self._armed[next(iter(self._armed))]
        return token

    def fire(self, token: str, meant: CommandIntent, *, typed: str) -> str:
        """Return the reason why a command may not be fired; empty if it may, once."""
        self._forget()
        armed = self._armed.get(token)
        if armed is None:
            over = f"its {ARMED_SECONDS:g} s are over or it was fired already" if token else "it was not"
            return f"{meant.action_id} is dangerous and has to be armed first: {over}"
        if armed.meant != meant:
            return f"another order was armed: {armed.meant.action_id} {' '.join(armed.meant.targets)}".rstrip()
        if not typed_right(typed, armed.to_type):
            return f"{typed!r} was typed, and firing needs {armed.to_type!r}"
        del self._armed[token]
        return ""

    def _forget(self) -> None:
        now = self._monotonic()
        self._armed = {token: armed for token, armed in self._armed.items() if armed.until > now}
