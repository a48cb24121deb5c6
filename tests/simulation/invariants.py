"""The invariants of a run, checked against the events in the World, never against an adapter's own report.

Each rule has a name; a broken rule is recorded with its time and subject. paired_servicebus.core.accounting.ledger
makes the balance (SPEC.md section 11) from the lists kept here. A duplicate is allowed only if one of the three windows
was open for its message, and never at a destination with duplicate detection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from paired_servicebus.core.accounting.ledger import Ledger
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.simulation.run_record import TOLERANCE, RunRecord
from paired_servicebus.simulation.sim_namespaces import (
    BEGAN,
    EVERY_DELIVERY_LIMIT,
    HeldMessage,
    SimBacklogQueue,
    SimDestination,
    SimMessage,
)
from tests.simulation.campaign_plan import CampaignPlan

MESSAGES_FAULT: Final = frozenset({FailureKind.ARGUMENT, FailureKind.TOO_LARGE})
COUNTING: Final = frozenset(
    {
        FailureKind.TIMEOUT,
        FailureKind.CONNECTION,
        FailureKind.COMMUNICATION,
        FailureKind.INTERNAL,
        FailureKind.DETACHED,
        FailureKind.UNEXPLAINED,
        FailureKind.DISABLED,
        FailureKind.NOT_FOUND,
        FailureKind.FULL,
    }
)
"""Failures that count for a failover (SPEC.md section 5). Here and below nothing is taken from the rules under test."""
PULLING: Final = COUNTING | {FailureKind.UNAUTHENTICATED, FailureKind.UNAUTHORIZED}
"""Failures that pull a backlog queue (SPEC.md section 7.1)."""
MIN_BACK_OFF: Final = 1.0
MAX_BACK_OFF: Final = 30.0
"""Seconds between two tries of a failed destination (SPEC.md section 8)."""
MAX_ON_THE_WAY: Final = 180.0
"""Seconds from a pump's receive to the latest landing of a try."""
MAX_ON_THE_WAY_APART: Final = 900.0
"""The same of pumps that deliver apart: a slow destination's messages wait for the tries of those before them."""
MAX_BROKEN: Final = 20
"""Maximum number of broken rules kept per run."""


@dataclass(frozen=True, slots=True)
class BrokenInvariant:
    """A broken rule: its name, the time (seconds since the beginning), and the subject."""

    rule: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.at:9.3f}  BROKEN {self.rule}: {self.text}"


class InvariantChecker(RunRecord):
    """The checker of one run."""

    plan: CampaignPlan

    def __init__(self, plan: CampaignPlan, clock: Callable[[], float], trace: list[str] | None) -> None:
        super().__init__(plan, clock, trace)
        self.broken: list[BrokenInvariant] = []
        self.sent: dict[str, SimMessage] = {}
        self._landings: Counter[str] = Counter()
        self._windows: Counter[str] = Counter()
        self._lock_ends: Counter[str] = Counter()
        self._detected: dict[str, str] = {}
        """Messages that landed more than once despite duplicate detection, with their destination."""
        self._resting: dict[tuple[object, ...], float] = {}
        self._failed_at: dict[tuple[object, ...], float] = {}
        self._missing: dict[tuple[str, str], tuple[float, float]] = {}
        """First and latest "not found" by engine and destination."""
        self._unpinged: dict[tuple[str, str], tuple[float, float]] = {}
        """The same of pings, which alone try a destination that is failed over."""
        self._newest: dict[tuple[int, str], int] = {}
        self._recreated: set[int] = set()
        self._disorder: set[tuple[int, str]] = set()
        """Pairs of backlog queue and stream whose order an open window excuses."""
        self._ordered = sum(plan.syphons) == 1 and not plan.crashes

    def log(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self._clock() - BEGAN:9.3f}  {text}")

    def fail(self, rule: str, text: str) -> None:
        found = BrokenInvariant(rule, self._clock() - BEGAN, text)
        if self.trace is not None:
            self.trace.append(str(found))
        if len(self.broken) < MAX_BROKEN:
            self.broken.append(found)

    # -- messages ---------------------------------------------------------------------------------------------------

    def offered(self, messages: Sequence[SimMessage]) -> None:
        super().offered(messages)
        self.sent.update((message.body, message) for message in messages)

    def landed(self, destination: SimDestination, message: SimMessage) -> None:
        """Check a message that a destination accepted."""
        body = message.body
        self._landings[body] += 1
        if self._landings[body] > 1:
            if destination.plan.detects_duplicates:
                self.fail("duplicate detected", f"{body} landed twice in {destination.name}, which detects duplicates")
        elif message.parked_at is not None:
            self._check_order(message, *message.parked_at[:2])
        original = self.sent.get(body)
        if original is not None and original is not message:
            self._check_content(message, original, destination)

    def _check_order(self, message: SimMessage, queue: int, number: int) -> None:
        if not self._ordered or message.session_id is None or queue in self._recreated:
            return
        key = (queue, message.stream)
        if number < self._newest.get(key, 0) and key not in self._disorder:
            newer = self._newest[key]
            self.fail("order", f"{message.body}, number {number} of backlog/{queue}, after {newer} of {message.stream}")
        self._newest[key] = max(number, self._newest.get(key, 0))

    def _check_content(self, message: SimMessage, original: SimMessage, destination: SimDestination) -> None:
        for name in ("message_id", "session_id", "scheduled", "properties"):
            if getattr(message, name) != getattr(original, name):
                was, now = getattr(original, name), getattr(message, name)
                self.fail("content", f"{message.body}: {name} was {was!r} and arrived as {now!r}")
        left, whole = message.time_to_live, original.time_to_live
        if not self._is_time_right(message, whole, left):
            self.fail("content", f"{message.body}: its time to live was {whole} and arrived as {left}")
        if destination.name != message.path.casefold():
            self.fail("content", f"{message.body} was sent to {message.path} and arrived in {destination.name}")

    def _is_time_right(self, message: SimMessage, whole: timedelta | None, left: timedelta | None) -> bool:
        if self.plan.policy.ttl_policy == "restart" or message.parked_at is None or whole is None or left is None:
            return left == whole
        on_the_way = MAX_ON_THE_WAY_APART if self.plan.apart else MAX_ON_THE_WAY
        passed = self._clock() - _life_begins(message, message.parked_at[2]) - on_the_way
        return timedelta(0) < left <= whole - timedelta(seconds=max(0.0, passed))

    # -- windows ----------------------------------------------------------------------------------------------------

    def unanswered(self, messages: Sequence[SimMessage]) -> None:
        """Open a window: the messages land, but their sender gets no answer."""
        for message in messages:
            self._windows[message.body] += 1
            if message.parked_at is not None:
                self._disorder.add((message.parked_at[0], message.stream))

    def lock_ended(self, queue: int, held: HeldMessage) -> None:
        """Open a window: a lock ended unsettled."""
        self._windows[held.letter.body] += 1
        self._lock_ends[held.letter.body] += 1
        self._disorder.add((queue, held.letter.stream))

    def deferred_unheard(self, queue: int, locked: Sequence[tuple[HeldMessage, int]]) -> None:
        """Excuse the order of messages that were deferred after their pump's time-out, since newer ones went first."""
        self.hidden(queue, [held.letter for held, _ in locked])

    def recreated(self, queue: int) -> None:
        """Excuse the order of a queue whose numbers begin again: a pump may know deferred messages by old ones."""
        self._recreated.add(queue)

    def hidden(self, queue: int, messages: Sequence[SimMessage]) -> None:
        """Excuse the order of messages that appear late in a backlog queue, or return to it."""
        for message in messages:
            self._disorder.add((queue, message.stream))

    # -- attempts ---------------------------------------------------------------------------------------------------

    def attempted(self, who: tuple[object, ...], where: str, what: str, *, diverting: bool) -> None:
        """Check the start of an attempt. `who` is the engine, boot and part; `diverting` is the engine's own state."""
        now = self._clock()
        if diverting:
            self.fail("no send to the primary while failed over", f"{who} attempted {what} at {where}")
        until = self._resting.get((*who, where))
        if until is not None and until > now + TOLERANCE:
            self.fail("rest", f"{who} attempted {what} at {where} {until - now:.3f} s too early")

    def answered(
        self,
        who: tuple[object, ...],
        where: str,
        failure: FailureKind | None,
        *,
        tried: float = 0.0,
        is_alone: bool = True,
    ) -> None:
        """Record the end of an attempt.

        `tried`: start of a syphon's attempt. One that began before the latest failure is no new try. `is_alone`: the
        attempt had one message, which may be the one at fault.
        """
        if who[-1] == "ping":
            self._pinged((str(who[0]), where), failure)
        if failure is None:
            return
        now, key = self._clock(), (*who, where)
        if failure in MESSAGES_FAULT:
            if not is_alone:  # the rest after it is the pump's own, and its tries before are old
                self._failed_at[key] = now
            return
        rest = self.plan.policy.throttle_wait if failure is FailureKind.BUSY else 0.0
        if tried and tried >= self._failed_at.get(key, 0.0):
            rest = max(rest, MIN_BACK_OFF)
        self._failed_at[key] = now
        self._resting[key] = max(self._resting.get(key, 0.0), now + rest)

    def heard(self, engine: str, path: str, failure: FailureKind | None) -> None:
        """Record a syphon's result at a destination, for the duration of "not found"."""
        now, since, last = self._clock(), *self._missing.get((engine, path), (0.0, 0.0))
        if failure is FailureKind.NOT_FOUND:
            self._missing[(engine, path)] = (
                since if now - last <= 2 * MAX_BACK_OFF + TOLERANCE else now,
                now,
            )
        elif failure is None:
            self._missing.pop((engine, path), None)

    def _pinged(self, key: tuple[str, str], failure: FailureKind | None) -> None:
        now, (since, last) = self._clock(), self._unpinged.get(key, (0.0, 0.0))
        gap = max(2 * MAX_BACK_OFF, 2 * self.plan.policy.ping_primary_interval) + TOLERANCE
        if failure is FailureKind.NOT_FOUND:
            self._unpinged[key] = (since if now - last <= gap else now, now)
        else:
            self._unpinged.pop(key, None)

    def dead_lettered(self, engine: str, held: HeldMessage) -> None:
        """Check that there is a reason for a message dead-lettered by a pump."""
        message, policy = held.letter, self.plan.policy
        original = self.sent.get(message.body, message)
        since, last = self._missing.get((engine, message.path.casefold()), (0.0, 0.0))
        absent_since, pinged = self._unpinged.get((engine, message.path.casefold()), (0.0, 0.0))
        runs = ((since, last), (absent_since, pinged))
        missing = any(first and latest - first >= policy.undeliverable_after - TOLERANCE for first, latest in runs)
        allowed = policy.destinations
        if message.poison or not message.path or missing or (allowed and message.path.casefold() not in allowed):
            return
        lives = original.time_to_live
        passed = self._clock() - _life_begins(original, held.enqueued_at)
        if policy.ttl_policy == "elapsed" and lives is not None and passed >= lives.total_seconds() - TOLERANCE:
            return
        self.fail("dead-lettered without reason", f"{message.body} for {message.path}")

    # -- the end ----------------------------------------------------------------------------------------------------

    def stuck(self, queues: Sequence[SimBacklogQueue]) -> int:
        """Check for messages left in backlog queues and calls without an end; return their number."""
        left = [f"{held.letter.body} in backlog/{queue.index}" for queue in queues for held in queue.held.values()]
        if left:
            self.fail("stuck", f"{len(left)} messages never left: {', '.join(left[:5])}")
        if self.open_calls:
            self.fail("stuck", f"{self.open_calls} calls never ended")
        return super().stuck(queues)

    def balance(self, queues: Sequence[SimBacklogQueue]) -> Ledger:
        """Return the ledger, and check the rules that apply at the end."""
        for queue, (message, reason) in ((each, found) for each in queues for found in each.dead):
            if reason == EVERY_DELIVERY_LIMIT and self._lock_ends[message.body] < queue.plan.delivery_limit:
                self.fail("delivery limit", f"{message.body} in {queue.name} was given back until its limit")
        for body, count in self._landings.items():
            if count - 1 > self._windows[body]:
                self.fail("duplicate", f"{body} landed {count} times; windows open for it: {self._windows[body]}")
        ledger = super().balance(queues)
        if ledger.lost:
            self.fail("lost", ", ".join(ledger.lost_ids[:10]))
        if ledger.unexpected:
            self.fail("unexpected", ", ".join(ledger.unexpected_ids[:10]))
        return ledger


def _life_begins(message: SimMessage, parked_at: float) -> float:
    """Time to live counts from the later of enqueued and scheduled."""
    return parked_at if message.scheduled is None else max(parked_at, message.scheduled.timestamp())
