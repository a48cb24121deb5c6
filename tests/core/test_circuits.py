"""The circuits under any sequence of tries: several pumps try one destination, at once or overlapping."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.core.retries import next_try

from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.core.pump.destination_circuits import (
    FATES,
    MAX_BACKOFF_SECONDS,
    MAX_RUN_GAP_SECONDS,
    DestinationCircuits,
    Fate,
)

BEGAN = 1_700_000_000.0
THROTTLE = 10.0
UNDELIVERABLE = 60.0
KINDS = [kind for kind, fate in FATES.items() if fate is not Fate.DEAD_LETTERED]


class AnyTries(RuleBasedStateMachine):
    """A try begins only where `available` says so, and ends whenever it likes."""

    @initialize()
    def begin(self) -> None:
        self.made = DestinationCircuits(throttle_wait=THROTTLE, undeliverable_after=UNDELIVERABLE)
        self.now = BEGAN
        self.under_way: list[float] = []
        """When each try began."""
        self.busy_until = 0.0
        self.missing: list[float] = []
        """The latest run of "not found": when each was heard."""

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 3.0, 9.5, 30.0, 31.0, 61.0, 900.0]))
    def passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.made.available("orders", self.now))
    @rule()
    def tries(self) -> None:
        assert self.now >= self.busy_until, "section 5: not attempted again for ten seconds by anyone"
        self.under_way.append(self.now)

    @precondition(lambda self: self.under_way)
    @rule(kind=st.sampled_from(KINDS))
    def fails(self, kind: FailureKind) -> None:
        self.under_way.pop(0)
        before = next_try(self.made)
        circuit = self.made.failed("ORDERS", at=self.now, kind=kind, reason=str(kind))
        assert before is None or circuit.retry_at >= before, "no wait is ever shortened"
        if kind is FailureKind.BUSY:
            self.busy_until = self.now + THROTTLE
        if kind is not FailureKind.NOT_FOUND:
            self.missing = []
        elif self.missing and self.now - self.missing[-1] <= MAX_RUN_GAP_SECONDS:
            self.missing.append(self.now)
        else:
            self.missing = [self.now]

    @precondition(lambda self: self.under_way)
    @rule()
    def is_accepted(self) -> None:
        began, self.missing = self.under_way.pop(0), []
        circuit = self.made.circuit("orders")
        if self.made.delivered("orders", at=self.now, sent_at=began):
            assert circuit is not None
            assert began > circuit.failed_at, "an earlier try proves nothing"
            assert self.now >= self.busy_until
            assert self.made.circuit("orders") is None

    @invariant()
    def every_wait_ends(self) -> None:
        due = next_try(self.made)
        assert due is None or due <= self.now + max(MAX_BACKOFF_SECONDS, THROTTLE)

    @invariant()
    def undeliverable_is_only_what_was_missing_try_after_try(self) -> None:
        """Section 8: "Not found: retried with back-off for `undeliverable_after`"."""
        if self.made.undeliverable("orders", self.now):
            assert self.missing
            assert self.missing[-1] - self.missing[0] >= UNDELIVERABLE


TestAnyTries = AnyTries.TestCase
TestAnyTries.settings = settings(stateful_step_count=40)
