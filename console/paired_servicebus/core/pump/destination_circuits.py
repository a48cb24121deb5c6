"""Which destinations the syphon may try now: one circuit per destination (SPEC.md section 8).

One failed destination must not delay the others' messages: after a failure there is one try per destination when its
back-off has ended, not one per message. What a failure means for the messages is a table; every pump asks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from paired_servicebus.core.model.verdict import FailureKind

MIN_BACKOFF_SECONDS: Final = 1.0
MAX_BACKOFF_SECONDS: Final = 30.0
UNBROKEN: Final = 2 * MAX_BACKOFF_SECONDS
"""Seconds between two tries that still make one run of "not found": after a longer silence (a pause, a failover, no
message for it) nobody knows whether the destination was missing all the time."""


class Fate(StrEnum):
    """What becomes of a message whose destination said no."""

    WAITS = "waits"
    """Until the destination takes it, however long that is."""
    WAITS_A_WHILE = "waits a while"
    """For `undeliverable_after`; then it is dead-lettered."""
    DEAD_LETTERED = "dead-lettered"
    """At once: the destination will never take this message."""


FATES: Final[dict[FailureKind, Fate]] = {
    FailureKind.TOO_LARGE: Fate.DEAD_LETTERED,
    FailureKind.ARGUMENT: Fate.DEAD_LETTERED,
    FailureKind.NOT_FOUND: Fate.WAITS_A_WHILE,
    FailureKind.TIMEOUT: Fate.WAITS,
    FailureKind.CONNECTION: Fate.WAITS,
    FailureKind.COMMUNICATION: Fate.WAITS,
    FailureKind.INTERNAL: Fate.WAITS,
    FailureKind.DETACHED: Fate.WAITS,
    FailureKind.UNEXPLAINED: Fate.WAITS,
    FailureKind.DISABLED: Fate.WAITS,
    FailureKind.FULL: Fate.WAITS,
    FailureKind.BUSY: Fate.WAITS,
    FailureKind.UNAUTHENTICATED: Fate.WAITS,
    FailureKind.UNAUTHORIZED: Fate.WAITS,
    FailureKind.UNLISTED: Fate.WAITS,
}
"""SPEC.md section 8. DEAD_LETTERED is the message's own fault, everything else the destination's."""


@dataclass(slots=True)
class Circuit:
    """A destination that failed: since when, why, how often, and when it may be tried again."""

    path: str
    since: float
    reason: str
    missing_since: float | None
    failures: int = 0
    failed_at: float = 0.0
    """The latest failure."""
    retry_at: float = 0.0


class DestinationCircuits:
    """The circuits of one engine's syphon, by destination path (compared without case)."""

    def __init__(self, *, throttle_wait: float, undeliverable_after: float) -> None:
        self._open: dict[str, Circuit] = {}
        self._throttle_wait = throttle_wait
        self._undeliverable_after = undeliverable_after

    def available(self, path: str, at: float) -> bool:
        """Whether a message may be sent there now."""
        circuit = self._open.get(path.casefold()) if self._open else None
        return circuit is None or circuit.retry_at <= at

    def failed(self, path: str, *, at: float, kind: FailureKind, reason: str) -> Circuit:
        """A send there failed; the circuit with its next try.

        One that fails while the circuit waits began before the wait. It is no further try, so the back-off does not
        grow; but "server busy" makes the wait as long as it asks for, and no wait is ever shortened.
        """
        missing = at if FATES[kind] is Fate.WAITS_A_WHILE else None
        circuit = self._open.setdefault(path.casefold(), Circuit(path, at, reason, missing, failed_at=at))
        unbroken = circuit.missing_since is not None and at - circuit.failed_at <= UNBROKEN
        if missing is None or not unbroken:
            circuit.missing_since = missing
        circuit.reason, circuit.failed_at = reason, at
        wait = self._throttle_wait if kind is FailureKind.BUSY else 0.0
        if circuit.retry_at <= at:
            wait = max(wait, min(MIN_BACKOFF_SECONDS * 2.0**circuit.failures, MAX_BACKOFF_SECONDS))
            circuit.failures = min(circuit.failures + 1, 32)
        circuit.retry_at = max(circuit.retry_at, at + wait)
        return circuit

    def delivered(self, path: str, *, at: float) -> bool:
        """A send there was accepted; True when the destination had failed before and is healed.

        One that is accepted while the circuit waits began before the failure: a throttled destination keeps its rest.
        But it exists, so a run of "not found" is over.
        """
        circuit = self._open.get(path.casefold()) if self._open else None  # as a rule no destination fails
        if circuit is None:
            return False
        circuit.missing_since = None
        if circuit.retry_at > at:
            return False
        del self._open[path.casefold()]
        return True

    def undeliverable(self, path: str, at: float) -> bool:
        """Whether the destination has been missing for so long that its messages are dead-lettered. Time in which it
        was not tried says nothing."""
        circuit = self._open.get(path.casefold())
        if circuit is None or circuit.missing_since is None:
            return False
        return min(at, circuit.failed_at) - circuit.missing_since >= self._undeliverable_after

    def circuit(self, path: str) -> Circuit | None:
        """The destination's failure; None when it has not failed, or not since its last success."""
        return self._open.get(path.casefold())

    def circuits(self) -> tuple[Circuit, ...]:
        """The destinations that fail now."""
        return tuple(self._open.values())

    def next_try(self) -> float | None:
        """When the first of them may be tried again."""
        return min((circuit.retry_at for circuit in self._open.values()), default=None)
