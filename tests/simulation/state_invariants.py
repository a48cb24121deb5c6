"""The rules of SPEC.md section 6, checked from outside: an engine's announcements against the World's real answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import StateChanged
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.simulation.run_record import TOLERANCE, RotationEvents, StateEvents
from tests.simulation.invariants import COUNTING, PULLING, InvariantChecker

QUIET_AFTER: Final = 15 * 60.0
"""Seconds of silence after which a healthy entity becomes unknown (SPEC.md section 6)."""
WELL: Final = frozenset({State.HEALTHY, State.UNKNOWN})
DIVERTING: Final = frozenset({State.FAILED_OVER, State.FORCED})
HELD: Final = 4.0
"""Seconds within which one of an entity's held calls tries the primary, before there is no time for an answer."""


@dataclass(slots=True)
class SeenEntity:
    """One entity of one engine, seen from outside."""

    state: State = State.UNKNOWN
    since: float = 0.0
    failure: FailureKind | None = None
    """The latest answer to a send; None: accepted, or none yet."""
    heard: float | None = None
    """End of the engine's latest send or ping; None: none yet."""
    busy_at: float | None = None
    """When the primary answered "server busy" latest: nothing is tried for a while after that."""
    ping_due: float | None = None
    """Time at which the next ping must leave."""
    ping_began: float | None = None
    missing_since: float | None = None
    """Time since which each ping found no such entity; None: the last one was answered otherwise."""
    """Start of the ping under way."""
    pings_rest_until: float = 0.0
    """Time before which no ping may leave after a throttled one, whatever operators order."""
    good_pings: int = 0
    held: dict[object, float] = field(default_factory=dict)
    """The held calls, and since when each is."""
    sends: int = 0
    """Attempts at the primary under way."""


@dataclass(slots=True)
class StateInvariantChecker(StateEvents):
    """The checker of one engine's entities during one boot."""

    engine: str
    watch: InvariantChecker
    seen: dict[str, SeenEntity] = field(default_factory=dict)

    def of(self, path: str) -> SeenEntity:
        key = path.casefold()
        found = self.seen.get(key)
        if found is None:
            found = self.seen[key] = SeenEntity()
        return found

    def send_leaves(self, path: str) -> None:
        """Record the start of a send at the primary."""
        self.of(path).sends += 1

    def holds(self, path: str, call: object, at: float) -> None:
        """Record that a call is held."""
        self.of(path).held.setdefault(call, at)

    def goes_on(self, path: str, call: object) -> None:
        """Record that a call is held no longer."""
        self.of(path).held.pop(call, None)

    def send_answered(self, path: str, at: float, failure: FailureKind | None) -> None:
        """Record the result of a send at the primary."""
        seen = self.of(path)
        self._check_not_silent(seen, path, at)
        seen.failure, seen.heard = failure, at
        seen.busy_at = at if failure is FailureKind.BUSY else seen.busy_at
        seen.sends -= 1

    def failed(self, path: str, failure: FailureKind) -> None:
        """Check that a failure that counts ended an entity's good state."""
        state = self.of(path).state
        if failure in COUNTING and state in WELL:
            self.watch.fail("verdict", f"{self.engine}: {path} is {state} after {failure}")

    def changed(self, change: StateChanged) -> None:
        """Check a change of state announced by the machine."""
        seen, now = self.of(change.entity), State(change.now)
        if not change.by:
            self._by_itself(seen, now, change)
        elif now is State.HEALTHY and seen.heard is None:
            self.watch.fail("healthy by evidence", f"{self.engine}: {change.entity} was never asked and is {now}")
        if now in DIVERTING and seen.state not in DIVERTING:
            seen.ping_due = max(change.at + self.watch.plan.policy.ping_primary_interval, seen.pings_rest_until)
            seen.ping_began, seen.good_pings, seen.missing_since = None, 0, None
        elif now not in DIVERTING:
            self._check_ping_time(seen, change.entity, change.at)
            seen.ping_due = seen.ping_began = None
        seen.state, seen.since = now, change.at

    def _by_itself(self, seen: SeenEntity, now: State, change: StateChanged) -> None:
        fail, policy = self.watch.fail, self.watch.plan.policy
        what = f"{self.engine}: {change.entity} from {seen.state} to {now}"
        if seen.state in (State.FORCED, State.PINNED):
            fail("only an operator releases", what)
        elif now is State.SUSPECT:
            if seen.failure not in COUNTING:
                fail("verdict", f"{what} for {seen.failure or 'no failure'}")
        elif now is State.UNKNOWN:
            self._fell_quiet(seen, what, change.at)
        elif now is State.FAILED_OVER:
            late = change.at - seen.since - policy.failover_interval
            self._check_tried(seen, what, change.at)
            if seen.failure is None:
                fail("failover interval", f"{what}, though the latest send was accepted")
            if seen.state is not State.SUSPECT or abs(late) > TOLERANCE:
                fail("failover interval", f"{what}, {late:+.3f} s from when the interval ended")
        elif seen.state is State.FAILED_OVER:
            if seen.good_pings < policy.failback_pings:
                fail("failback", f"{what} after {seen.good_pings} accepted pings of {policy.failback_pings}")
            if change.at - seen.since < policy.cool_down - TOLERANCE:
                fail("failback", f"{what} before the cool-down of {policy.cool_down:g} s")
        elif seen.failure is not None:
            fail("healthy by a send", f"{what} after {seen.failure}")

    def _check_tried(self, seen: SeenEntity, what: str, at: float) -> None:
        """Check that held calls have tried the primary before the failover that their silence would cause."""
        since = max(min(seen.held.values(), default=at), seen.heard or 0.0)
        rests = seen.busy_at is not None and at - seen.busy_at < self.watch.plan.policy.throttle_wait + HELD
        if not seen.sends and not rests and at - since > HELD:
            self.watch.fail("held calls try", f"{what}, and nothing was tried for {at - since:.3f} s")

    # -- silence ----------------------------------------------------------------------------------------------------

    @staticmethod
    def _quiet_at(seen: SeenEntity) -> float | None:
        """Return when it may no longer be called healthy; None: it is not."""
        return max((seen.heard or 0.0) + QUIET_AFTER, seen.since) if seen.state is State.HEALTHY else None

    def _fell_quiet(self, seen: SeenEntity, what: str, at: float) -> None:
        if seen.state is State.FAILED_OVER:
            if seen.missing_since is None or at - max(seen.missing_since, seen.since) < QUIET_AFTER - TOLERANCE:
                self.watch.fail("deleted", f"{what}, and its pings found no such entity since {seen.missing_since}")
            return
        due = self._quiet_at(seen)
        if due is None or abs(at - due) > TOLERANCE:
            self.watch.fail("quiet", f"{what}, {at - (due or 0.0):+.3f} s from when it had been quiet for long enough")

    def _check_not_silent(self, seen: SeenEntity, path: str, at: float) -> None:
        due = self._quiet_at(seen)
        if due is not None and due < at - TOLERANCE:
            self.watch.fail("quiet", f"{self.engine}: {path} is healthy though quiet for {at - due:.3f} s too long")

    # -- pings ------------------------------------------------------------------------------------------------------

    def ping_leaves(self, path: str, at: float) -> None:
        """Check a ping's time.

        The first comes one interval after failover, then one an interval, none while sends use the primary.
        """
        seen = self.of(path)
        what = f"{self.engine}: {path} is {seen.state}"
        if seen.state not in DIVERTING:
            self.watch.fail("ping", f"{what} and is pinged")
        elif seen.ping_began is not None:
            self.watch.fail("ping", f"{what} and two pings are under way")
        elif seen.ping_due is None or abs(at - seen.ping_due) > TOLERANCE:
            self.watch.fail("ping", f"{what} and is pinged {at - (seen.ping_due or 0):+.3f} s from when it was due")
        seen.ping_due, seen.ping_began = None, at

    def ping_answered(self, path: str, began: float, at: float, failure: FailureKind | None) -> None:
        """Record a ping's answer; ignore one that a failback has overtaken."""
        seen = self.of(path)
        if seen.ping_began != began:
            return
        policy = self.watch.plan.policy
        rest = policy.throttle_wait if failure is FailureKind.BUSY else 0.0
        seen.pings_rest_until = at + rest
        seen.good_pings = 0 if failure else seen.good_pings + 1
        seen.ping_began = None
        seen.heard = at
        is_missing = failure is FailureKind.NOT_FOUND
        seen.missing_since = (at if seen.missing_since is None else seen.missing_since) if is_missing else None
        seen.ping_due = max(began + policy.ping_primary_interval, at + rest)

    def _check_ping_time(self, seen: SeenEntity, path: str, at: float) -> None:
        if seen.ping_due is not None and seen.ping_due < at - TOLERANCE:
            self.watch.fail("ping", f"{self.engine}: {path} was to be pinged {at - seen.ping_due:.3f} s ago")

    def check_end(self, at: float) -> None:
        """Check at the end of a boot that no ping is overdue, and no silent entity is called healthy."""
        for path, seen in self.seen.items():
            self._check_ping_time(seen, path, at)
            self._check_not_silent(seen, path, at)


@dataclass(slots=True)
class RotationChecker(RotationEvents):
    """The checker of one engine's backlog queues during one boot. out: the queues that are pulled."""

    engine: str
    watch: InvariantChecker
    queues: int
    out: set[int] = field(default_factory=set)
    probes: dict[int, bool] = field(default_factory=dict)
    """The latest probe's result of each queue."""

    @property
    def all_out(self) -> bool:
        """Whether a send is the probe (SPEC.md section 7)."""
        return len(self.out) == self.queues

    def answered(self, queue: int) -> None:
        """Record an answer of a queue to a send, which restores it while all are out."""
        if self.all_out:
            self.probes[queue] = True

    def attempted(self, queue: int) -> None:
        """Check the start of a send to a backlog queue."""
        if queue in self.out and not self.all_out:
            self.watch.fail("rotation", f"{self.engine} uses backlog/{queue}, which is pulled")

    def failed(self, queue: int, failure: FailureKind, *, is_unhindered: bool) -> None:
        """Check that a queue is pulled after a failure that pulls it, and none for want of time."""
        if failure is FailureKind.TIMEOUT and is_unhindered:
            self.watch.fail("no false alarm", f"{self.engine} pulls backlog/{queue}, which is healthy")
        if failure in PULLING and queue not in self.out:
            self.watch.fail("rotation", f"{self.engine} keeps backlog/{queue} after {failure}")

    def pulled(self, queue: int, failure: FailureKind) -> None:
        """Record a queue that is pulled, and check the reason."""
        self.out.add(queue)
        self.probes[queue] = False
        if failure not in PULLING:
            self.watch.fail("verdict", f"{self.engine} pulls backlog/{queue} for {failure}")

    def restored(self, queue: int) -> None:
        """Record a queue that returns, and check its probe."""
        self.out.discard(queue)
        if not self.probes.get(queue):
            self.watch.fail("rotation", f"{self.engine} uses backlog/{queue} again, and no probe was accepted")

    def probed(self, queue: int, accepted: bool) -> None:
        self.probes[queue] = accepted
