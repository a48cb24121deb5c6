"""The circuit breakers of the syphon, one per destination (SPEC.md section 8).

One failed destination must not delay the others' messages. After a failure each destination gets one try per back-off,
not one per message. A table gives a failure's consequence for the message; every pump uses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from paired_servicebus.core.model.verdict import FailureKind

MIN_BACKOFF_SECONDS: Final = 1.0
MAX_BACKOFF_SECONDS: Final = 30.0
MAX_RUN_GAP_SECONDS: Final = 2 * MAX_BACKOFF_SECONDS
"""Maximum seconds between two tries of one run of "not found". After a longer gap (a pause, a failover, no message) the
destination may have existed in between."""


class Fate(StrEnum):
    """The consequence of a failed delivery for the message."""

    WAITS = "waits"
    """Waits until the destination accepts it, without limit."""
    WAITS_A_WHILE = "waits a while"
    """Waits for `undeliverable_after`, then is dead-lettered."""
    DEAD_LETTERED = "dead-lettered"
    """Dead-lettered immediately: the destination will never accept this message."""


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
"""SPEC.md section 8. For DEAD_LETTERED the message is at fault, otherwise the destination."""


@dataclass(slots=True)
class Circuit:
    """A failed destination: start, reason, number of failures, and time of the next try."""

    path: str
    since: float
    reason: str
    missing_since: float | None
    failures: int = 0
    failed_at: float = 0.0
    retry_at: float = 0.0


class DestinationCircuits:
    """The circuits of one engine's syphon, by destination path (compared without case)."""

    def __init__(self, *, throttle_wait: float, undeliverable_after: float) -> None:
        self._open: dict[str, Circuit] = {}
        self._throttle_wait = throttle_wait
        self._undeliverable_after = undeliverable_after

    def available(self, path: str, at: float) -> bool:
        """Return whether a message may be sent there now."""
        circuit = self._open.get(path.casefold()) if self._open else None
        return circuit is None or circuit.retry_at <= at

    def failed(self, path: str, *, at: float, kind: FailureKind, reason: str) -> Circuit:
        """Record a failed send; return the circuit with its next try.

        A failure during the wait belongs to an earlier attempt, so the back-off does not grow. "Server busy" still
        extends the wait to `throttle_wait`. No failure shortens a wait.
        """
        missing = at if FATES[kind] is Fate.WAITS_A_WHILE else None
        circuit = self._open.setdefault(path.casefold(), Circuit(path, at, reason, missing, failed_at=at))
        unbroken = circuit.missing_since is not None and at - circuit.failed_at <= MAX_RUN_GAP_SECONDS
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
        """Record an accepted send; return whether this closed the destination's circuit.

        A send accepted during the wait began before the failure, so a throttled destination keeps its rest. It ends a
        run of "not found".
        """
        circuit = self._open.get(path.casefold()) if self._open else None  # usually empty
        if circuit is None:
            return False
        circuit.missing_since = None
        if circuit.retry_at > at:
            return False
        del self._open[path.casefold()]
        return True

    def undeliverable(self, path: str, at: float) -> bool:
        """Return whether the destination was missing long enough to dead-letter its messages, counting only tried time."""
        circuit = self._open.get(path.casefold())
        if circuit is None or circuit.missing_since is None:
            return False
        return min(at, circuit.failed_at) - circuit.missing_since >= self._undeliverable_after

    def circuit(self, path: str) -> Circuit | None:
        """Return the destination's circuit; None: no failure since its last success."""
        return self._open.get(path.casefold())

    def circuits(self) -> tuple[Circuit, ...]:
        """Return the circuits of all failing destinations."""
        return tuple(self._open.values())

    def next_try(self) -> float | None:
        """Return the time of the first retry; None: no destination fails."""
        return min((circuit.retry_at for circuit in self._open.values()), default=None)
