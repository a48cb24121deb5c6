"""Credentials that a namespace refuses: said by log and alarm, with the way to replace them (SPEC.md section 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.text.time_format import clock

SAID_SECONDS: Final = 60.0
"""Seconds between two log lines about one namespace."""
REPLACE: Final = (
    "replace it without a restart: `Namespace.renew(connection_string)` in an application, "
    "the file that pairing.toml names in an engine"
)


@dataclass(slots=True)
class _Refused:
    """One entity's refusals. began, latest: seconds since 1970."""

    began: float
    latest: float
    reason: str


class RefusedCredentials:
    """The refusals of one pairing, by side ("primary" or "secondary") and by what was refused.

    Args:
        lasts: seconds after which a refusal without another one is no alarm any more.
    """

    def __init__(self, lasts: float) -> None:
        self._lasts = lasts
        self._refused: dict[tuple[str, str], _Refused] = {}
        self._said: dict[str, float] = {}

    def refuse(self, side: str, what: str, reason: str, *, at: float) -> str:
        """Note a refusal; return the sentence to log now, empty while one is younger than SAID_SECONDS."""
        found = self._refused.setdefault((side, what), _Refused(at, at, reason))
        found.latest, found.reason = at, reason
        if at - self._said.get(side, -SAID_SECONDS) < SAID_SECONDS:
            return ""
        self._said[side] = at
        return f"the {side} namespace refuses this process's credential: {reason}; {REPLACE}"

    def accept(self, side: str, what: str) -> None:
        """Note that the credential was accepted there."""
        if self._refused:
            self._refused.pop((side, what), None)

    def alarms(self, at: float) -> tuple[str, ...]:
        """Return a sentence for each side that refuses the credential now."""
        self._refused = {key: one for key, one in self._refused.items() if at - one.latest <= self._lasts}
        return tuple(self._alarm(side) for side in dict.fromkeys(side for side, _ in self._refused))

    def _alarm(self, side: str) -> str:
        mine = [one for (where, _), one in self._refused.items() if where == side]
        began, reason = min(one.began for one in mine), max(mine, key=lambda one: one.latest).reason
        return f"the {side} namespace refuses the credential since {clock(began)}: {reason}; {REPLACE}"
