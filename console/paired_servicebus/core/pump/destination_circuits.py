"""The circuit breakers of the syphon, one per destination (SPEC.md section 8).

One failed destination must not delay the others' messages. After a failure each destination gets one try per back-off,
not one per message. dead_letter_rules.py has a failure's consequence for the message.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.core.pump.dead_letter_rules import FATES, Fate, missing

MIN_BACKOFF_SECONDS: Final = 1.0
MAX_BACKOFF_SECONDS: Final = 30.0
MAX_RUN_GAP_SECONDS: Final = 2 * MAX_BACKOFF_SECONDS
"""Maximum seconds between two tries of one run of "not found". After a longer gap (a pause, a failover, no message) the
destination may have existed in between."""


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

    def __init__(self, *, throttle_wait: float, undeliverable_after: float, ping_interval: float = 0.0) -> None:
        self.stalled: set[str] = set()
        """Casefolded paths of destinations that owe answers: their unsent messages are deferred, to let others pass."""
        self.open: dict[str, Circuit] = {}
        """The circuits of failing destinations, by casefolded path; a success removes one."""
        self._absent: dict[str, tuple[float, float]] = {}
        """The first and the latest "not found" of a run of pings, by casefolded path."""
        self._ping_gap = max(MAX_RUN_GAP_SECONDS, 2 * ping_interval)
        self._throttle_wait = throttle_wait
        self._undeliverable_after = undeliverable_after

    def available(self, path: str, at: float) -> bool:
        """Return whether a message may be sent there now."""
        circuit = self.open.get(path.casefold()) if self.open else None
        return circuit is None or circuit.retry_at <= at

    def failed(self, path: str, *, at: float, kind: FailureKind, reason: str) -> Circuit:
        """Record a failed send; return the circuit with its next try.

        A failure during the wait belongs to an earlier attempt, so the back-off does not grow. "Server busy" still
        extends the wait to `throttle_wait`. No failure shortens a wait.
        """
        missing = at if FATES[kind] is Fate.WAITS_A_WHILE else None
        circuit = self.open.setdefault(path.casefold(), Circuit(path, at, reason, missing, failed_at=at))
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

    def pinged(self, path: str, *, at: float, is_missing: bool) -> None:
        """Record a ping's answer. A failed-over destination is tried by pings alone."""
        if not is_missing:
            self._absent.pop(path.casefold(), None)
            return
        first, latest = self._absent.get(path.casefold(), (at, at))
        self._absent[path.casefold()] = (first if at - latest <= self._ping_gap else at, at)

    def is_absent(self, path: str, at: float) -> bool:
        """Return whether pings did not find it for `undeliverable_after`, up to now."""
        first, latest = self._absent.get(path.casefold(), (at, -inf)) if self._absent else (at, -inf)
        return at - latest <= self._ping_gap and latest - first >= self._undeliverable_after

    def delivered(self, path: str, *, at: float, sent_at: float) -> bool:
        """Record an accepted send; return whether this closed the destination's circuit.

        A send that began before the latest failure proves nothing, so a throttled destination keeps its rest. It ends
        a run of "not found".
        """
        circuit = self.open.get(path.casefold()) if self.open else None  # usually empty
        if circuit is None:
            return False
        circuit.missing_since = None
        if circuit.retry_at > at or sent_at <= circuit.failed_at:
            return False
        del self.open[path.casefold()]
        return True

    def undeliverable(self, path: str, at: float) -> str:
        """Return why the destination's messages are dead-lettered; "": they wait, or a try is due.

        It was not found for `undeliverable_after`; only tries and pings count.
        """
        if self.is_absent(path, at):
            return missing(path, at - self._absent[path.casefold()][0])
        circuit = self.open.get(path.casefold()) if self.open else None
        if circuit is None or circuit.missing_since is None or circuit.retry_at <= at:
            return ""
        if min(at, circuit.failed_at) - circuit.missing_since < self._undeliverable_after:
            return ""
        return missing(path, at - circuit.missing_since)
