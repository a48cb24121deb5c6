"""The route of one send: primary, backlog queue, wait, or error to the caller (SPEC.md sections 5 to 7).

`SendRouter` reads the entity's state and the rotation. It changes neither, but for the turns: of many calls that could
try something that failed, one at a time does. It has no clock and no randomness: `at` and `draw` are arguments.

    primary ──accepted──▶ done
       │ counts, entity diverts now (or interval 0) ──▶ backlog queue, the sender's own ──accepted──▶ done
       │ link lost, still suspect ──▶ again after the SDK's pauses              │ counts: another queue
       │ counts, still suspect ──▶ raise, or hold: one call a second tries      │ all queues out: one call probes each
       │ busy ──▶ wait ten seconds, or until the state changes                  │ busy: another queue, then wait
       │                                                                        │ unauthorized: as counts
       └ the caller's own ──▶ raise                                             └ the caller's own ──▶ raise
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Final

from paired_servicebus.core.model.entity_state import Entity, State
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import Verdict

# Turns: of many calls that could try something that failed, one at a time does. Pure.
#
# A held call tries a suspect primary, one of an entity at a time; a call tries the backlog queues when all of them are
# out of the rotation. The others wait for its result, and ask again every LOOK_SECONDS.

LOOK_SECONDS: Final = 1.0
"""Seconds after which a waiting call asks again for the turn: the holder may have been cancelled."""


@dataclass(slots=True)
class Turn:
    """The turn to try, and who has it. failures: how many turns over all choices ended without success."""

    failures: int = 0
    _holder: object | None = None
    _since: float | None = None
    _due: float | None = None

    def take(self, call: object) -> bool:
        """Take the turn; return False if another call has it."""
        if self._holder is None:
            self._holder = call
        return self._holder is call

    def release(self, call: object) -> bool:
        """Free the turn for others; return False if the call does not have it."""
        if self._holder is not call:
            return False
        self._holder = self._due = None
        return True

    def fail(self, call: object) -> None:
        """Free the turn after a failure that the waiting calls share."""
        self.failures += self.release(call)

    def due_at(self, since: float, otherwise: float) -> float:
        """Return when the turn may be taken next: `otherwise`, unless a time was set since then.

        since: the beginning of the present trouble; an earlier one's times are forgotten.
        """
        if self._since != since or self._due is None:
            self._since, self._due = since, otherwise
        return self._due


# The rotation of backlog queues for senders (SPEC.md section 7.1).
#
# A failed send pulls its queue for every sender of the pairing; a successful probe restores it. A busy queue is not
# pulled. The interval between probes of a failing queue grows up to `MAX_PROBE_INTERVALS` intervals. While all queues
# are out, sends are the probe: one call at a time goes round them, and an acceptance restores the queue at once.

MAX_PROBE_INTERVALS: Final = 8
"""Maximum time between two probes of one queue, in probe intervals."""


@dataclass(slots=True)
class QueuePlace:
    """One backlog queue's place in the rotation."""

    index: int
    pulled: bool = False
    reason: str = ""
    since: float = 0.0
    failed_at: float = 0.0
    """Time of its latest failure."""
    probe_due: float | None = None
    """Time of the next probe; None while the queue is in, or during a probe."""
    probes: int = 0
    """Failed probes since it was pulled, plus returns that did not last."""
    withheld: bool = False
    """Whether its settings can lose a message: it is out, and no probe returns it."""


class Rotation:
    """The backlog queues of a pairing by index, all of them in at first. Indices may have gaps."""

    def __init__(self, indices: Iterable[int], *, probe_interval: float) -> None:
        self._by_index = {index: QueuePlace(index) for index in sorted(indices)}
        self._interval = probe_interval
        self.turn = Turn()
        """The turn to go round the queues while all of them are out."""

    @property
    def places(self) -> tuple[QueuePlace, ...]:
        """Return every queue's place, by index."""
        return tuple(self._by_index.values())

    @property
    def indices(self) -> tuple[int, ...]:
        """Return the indices in use, ascending."""
        return tuple(self._by_index)

    def pick(self, draw: float, *, avoid: Collection[int] = ()) -> int | None:
        """Return a queue that is in and not in `avoid`, chosen by `draw` in [0, 1); None: there is none."""
        choice = [place.index for place in self._by_index.values() if not place.pulled and place.index not in avoid]
        return choice[int(draw * len(choice))] if choice else None

    def holds(self, index: int) -> bool:
        """Return whether the queue is in."""
        place = self._by_index.get(index)
        return place is not None and not place.pulled

    @property
    def is_all_out(self) -> bool:
        """Return whether every queue is pulled."""
        return all(place.pulled for place in self._by_index.values())

    def first_out(self, *, avoid: Collection[int] = ()) -> int | None:
        """Return the pulled queue that failed longest ago, not in `avoid`; None: there is none."""
        places = self._by_index.values()
        out = [place for place in places if place.pulled and not place.withheld and place.index not in avoid]
        return min(out, key=lambda place: (place.failed_at, place.index)).index if out else None

    def pull(self, index: int, *, at: float, reason: str) -> bool:
        """Pull a queue; return False if it was out already."""
        place = self._by_index[index]
        place.failed_at = at
        if place.pulled:
            return False
        # A queue that fails again after its return is probed less often.
        place.probes = (
            place.probes + 1 if place.since and at - place.since < MAX_PROBE_INTERVALS * self._interval else 0
        )
        place.pulled, place.reason, place.since = True, reason, at
        place.probe_due = at + self._distance(place)
        return True

    def withhold(self, index: int, *, at: float, reason: str) -> bool:
        """Keep a queue out because of its settings; return False if it is out for this reason already."""
        place = self._by_index[index]
        if place.withheld and place.reason == reason:
            return False
        place.withheld = place.pulled = True
        place.reason, place.since, place.probe_due = reason, at, None
        return True

    def admit(self, index: int, *, at: float) -> bool:
        """End `withhold`: a probe, due now, decides about the return. Return False if the queue was not withheld."""
        place = self._by_index[index]
        if not place.withheld:
            return False
        place.withheld, place.probes, place.probe_due = False, 0, at
        return True

    def probed(self, index: int, *, at: float, accepted: bool, reason: str = "") -> bool:
        """Apply a probe's result; return whether the queue is in again."""
        place = self._by_index[index]
        if not place.pulled or place.withheld:
            return False
        if accepted:
            place.pulled, place.reason, place.since, place.probe_due = False, "", at, None
            return True
        place.probes += 1
        place.failed_at = at
        place.reason = reason or place.reason
        place.probe_due = at + self._distance(place)
        return False

    def probes_due(self, at: float) -> list[int]:
        """Return the queues to probe now; each is returned once until its probe's result."""
        due = [place for place in self._by_index.values() if place.probe_due is not None and place.probe_due <= at]
        for place in due:
            place.probe_due = None
        return [place.index for place in due]

    def next_probe(self) -> float | None:
        """Return the time of the next probe; None: none is due."""
        return min((place.probe_due for place in self.places if place.probe_due is not None), default=None)

    def _distance(self, place: QueuePlace) -> float:
        return self._interval * min(2.0 ** min(place.probes, MAX_PROBE_INTERVALS), MAX_PROBE_INTERVALS)


@dataclass(frozen=True, slots=True)
class Route:
    """A target of an attempt: the primary, or a backlog queue by index."""

    queue: int | None = None

    def __str__(self) -> str:
        return "primary" if self.queue is None else f"backlog/{self.queue}"


PRIMARY: Final = Route()
BACKLOG_TRIES: Final = 2
"""Multiple of `send_timeout` for the backlog if the caller set no limit. One queue may use up its time; another has as
much."""
MIN_ATTEMPT_SECONDS: Final = 1.0
MIN_ATTEMPT_SHARE: Final = 0.2
"""Minimum share of `send_timeout` for an attempt that is not a call's first; MIN_ATTEMPT_SECONDS if that is less. A
shorter attempt would time out, and prove nothing."""
RETRY_PAUSES: Final = (1.6, 3.2, 6.4)
"""Seconds before an attempt over a lost link is made again: the SDK's own, by default."""
HOLD_SECONDS: Final = 1.0
"""Seconds between two tries of held calls at a suspect primary, each longer or shorter by up to a quarter."""
PROBE_SECONDS: Final = 5.0
"""The longest attempt at a backlog queue while all queues are out of the rotation."""
_PROVEN: Final = frozenset({State.HEALTHY})
"""States in which a call retries the primary at once, since another send has succeeded."""
_SHORT: Final = 0.9
"""The share of an attempt's own limit below which it counts as shortened."""


@dataclass(frozen=True, slots=True)
class Try:
    """Attempt the send on `route`, for at most `timeout` seconds."""

    route: Route
    timeout: float
    is_short: bool = field(default=False, compare=False)
    """Whether less is left than an attempt's own limit: its time-out is no evidence against the route."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again at `until`, or when the entity's state or the rotation has changed."""

    until: float


class GiveUp(StrEnum):
    """The reason why a call ends without acceptance."""

    FAILED = "the failure goes to the caller"
    NO_BACKLOG = "no backlog queue took it"
    BUSY = "the namespace is busy"


Next = Try | Wait | GiveUp


@dataclass(slots=True)
class SenderMemory:
    """The state that one paired sender keeps between calls.

    trial: the turn of its entity's held calls, which all senders of the entity share. retry_pauses: seconds before an
    attempt over a lost link is made again; empty where the client has retries of its own.
    """

    queue: int | None = None
    """The sender's backlog queue, first chosen at random."""
    busy: dict[Route, float] = field(default_factory=dict)
    """Routes that answered "server busy", each with the time until which this sender avoids it."""
    trial: Turn = field(default_factory=Turn)
    retry_pauses: tuple[float, ...] = RETRY_PAUSES

    def rests(self, route: Route, at: float) -> bool:
        """Return whether this sender must still avoid `route`."""
        return self.busy.get(route, at) > at

    def lapse(self, at: float) -> None:
        """Forget the routes whose rest is over."""
        for route in [route for route, until in self.busy.items() if until <= at]:
            del self.busy[route]


class SendRouter:
    """The route of one send call. `leave` has to be called at its end.

    Args:
        sender: the paired sender's backlog queue and throttled routes.
        policy: times are seconds.
        at: when the call began.
        timeout: the caller's limit for the whole call; None: `send_timeout` at the primary, then twice that at the
            backlog.
    """

    __slots__ = (
        "_again_at",
        "_attempt_at",
        "_avoided",
        "_budget",
        "_deadline",
        "_enough",
        "_last",
        "_limit",
        "_on_backlog",
        "_pauses",
        "_policy",
        "_refused",
        "_rested",
        "_round",
        "_rounds",
        "_sender",
        "_tried",
        "_waits_since",
        "waited",
    )

    def __init__(self, sender: SenderMemory, policy: Policy, *, at: float, timeout: float | None = None) -> None:
        self._sender = sender
        self._policy = policy
        self._budget = timeout
        self._deadline = at + (policy.send_timeout if timeout is None else timeout)
        self._enough = min(MIN_ATTEMPT_SECONDS, MIN_ATTEMPT_SHARE * policy.send_timeout)
        self._limit = min(policy.send_timeout, max(inf if timeout is None else timeout, self._enough))
        """The limit of one attempt that nothing has shortened."""
        self._on_backlog = False
        self._last: Verdict | None = None
        self._rested = False
        """Whether the call has waited."""
        self._refused = False
        """Whether the primary caused the latest counted failure. The caller never sees a backlog queue's."""
        self._pauses = list(sender.retry_pauses)
        self._again_at: float | None = None
        """Time of the next attempt at the primary over a fresh link; None: none is due."""
        self._attempt_at = at
        """When the latest attempt began."""
        self._avoided: set[int] = set()
        """Backlog queues that this call uses no more, though they are in the rotation."""
        self._tried: dict[int, float] = {}
        """The backlog queues that failed in this call, and when the attempt at each began."""
        self._round: set[int] | None = None
        """The queues that need no try in this call's round over all of them; None: it has no round."""
        self._rounds: int | None = None
        """The rounds over all queues that had failed when this call began to wait for one; None: it does not wait."""
        self._waits_since = 0.0
        self.waited = 0.0
        """Seconds that the call waited for another call's round over the queues."""
        sender.lapse(at)

    def first(self) -> Try:
        """Return the first attempt of a call that goes to the primary without a question."""
        timeout = min(self._policy.send_timeout, inf if self._budget is None else self._budget)
        return Try(PRIMARY, timeout, timeout < _SHORT * self._limit)

    def next(self, entity: Entity, rotation: Rotation, *, at: float, draw: float) -> Next:
        """Return the next step."""
        if not (entity.diverting and rotation.is_all_out):
            self._round = None
            rotation.turn.release(self)
        step = self._backlog(rotation, at, draw) if entity.diverting else self._direct(entity, at, draw)
        self._rested = self._rested or isinstance(step, Wait)
        return step

    def ended(self, route: Route, verdict: Verdict, *, at: float, is_cut: bool = False) -> None:
        """Record that an attempt on `route` failed with `verdict` at `at`. is_cut: its link was lost."""
        self._last = verdict
        self._refused = verdict is Verdict.COUNTS and route == PRIMARY
        self._again_at = at + self._pauses.pop(0) if self._refused and is_cut and self._pauses else None
        if route == PRIMARY:
            self._sender.trial.release(self)
        if verdict is Verdict.THROTTLED:
            self._sender.busy[route] = at + self._policy.throttle_wait
            return
        if route.queue is not None:
            self._tried[route.queue] = self._attempt_at
            if self._round is not None:
                self._round.add(route.queue)
        if self._sender.queue == route.queue:
            self._sender.queue = None

    def waits_for_busy(self, at: float) -> bool:
        """Return whether a wait of this call is one for a busy route."""
        return any(self._sender.rests(route, at) for route in self._sender.busy)

    def avoid(self, route: Route) -> None:
        """Use a backlog queue no more in this call; it stays in the rotation."""
        if route.queue is not None:
            self._avoided.add(route.queue)

    def leave(self, rotation: Rotation) -> bool:
        """Give up the turns of this call; return whether others may have waited for the one over all queues."""
        self._sender.trial.release(self)
        return rotation.turn.release(self)

    # -- the primary ------------------------------------------------------------------------------------------

    def _direct(self, entity: Entity, at: float, draw: float) -> Next:
        if not self._refused:
            return self._attempt(PRIMARY, at)
        holds = self._policy.hold_until_failover
        if entity.state in _PROVEN:
            may_retry = holds or self._again_at is not None
            return self._attempt(PRIMARY, at) if may_retry else GiveUp.FAILED
        if holds and entity.state is State.SUSPECT:  # only a suspect entity changes by itself
            return self._hold(entity, at, draw)
        if self._again_at is None or self._deadline - self._again_at < self._enough:
            return GiveUp.FAILED
        return Wait(self._again_at) if at < self._again_at else self._attempt(PRIMARY, at)

    def _hold(self, entity: Entity, at: float, draw: float) -> Next:
        """Wait for a change of state; meanwhile one held call of the entity tries the primary each second."""
        if at >= self._deadline:
            return GiveUp.FAILED
        trial = self._sender.trial
        due = trial.due_at(entity.since, at + HOLD_SECONDS * (0.75 + draw / 2))
        ends = min(self._deadline, inf if entity.fails_over_at is None else entity.fails_over_at)
        if ends - max(at, due) < self._enough:  # a try would end after the change, and leave its message in doubt
            return Wait(self._deadline)
        if at >= due and trial.take(self):
            return self._attempt(PRIMARY, at, ends=ends)
        return Wait(min(self._deadline, due if at < due else at + LOOK_SECONDS))

    # -- the backlog ------------------------------------------------------------------------------------------

    def _backlog(self, rotation: Rotation, at: float, draw: float) -> Next:
        if not self._on_backlog:
            self._on_backlog = True
            if self._budget is None:
                self._deadline = at + BACKLOG_TRIES * self._policy.send_timeout
        queue = self._sender.queue
        resting = {r.queue for r in self._sender.busy if r.queue is not None and self._sender.rests(r, at)}
        resting |= self._avoided
        if queue is None or not rotation.holds(queue) or queue in resting:
            queue = rotation.pick(draw, avoid=resting)
        if queue is not None:
            self._stop_waiting(at)
            self._sender.queue = queue
            return self._attempt(Route(queue), at)
        if rotation.is_all_out:
            return self._probe(rotation, at, resting)
        return self._wait_for_queue(rotation, at)

    def _probe(self, rotation: Rotation, at: float, resting: Collection[int]) -> Next:
        """Go round the queues, all of which are out, the one that failed longest ago first; or wait for who does."""
        if self._rounds is not None and self._rounds != rotation.turn.failures:
            self._stop_waiting(at)
            return GiveUp.NO_BACKLOG
        if not rotation.turn.take(self):
            return self._wait_for_round(rotation, at)
        self._stop_waiting(at)
        if self._round is None:  # what failed just now in this call is not tried again
            self._round = {index for index, began in self._tried.items() if began >= at - PROBE_SECONDS}
        queue = rotation.first_out(avoid=self._round.union(resting))
        if queue is not None:
            return self._attempt(Route(queue), at, limit=min(self._limit, PROBE_SECONDS))
        rotation.turn.fail(self)
        return GiveUp.NO_BACKLOG

    def _wait_for_round(self, rotation: Rotation, at: float) -> Next:
        if self._rounds is None:
            self._rounds, self._waits_since = rotation.turn.failures, at
        if at >= self._deadline:
            self._stop_waiting(at)
            return GiveUp.NO_BACKLOG
        return Wait(min(self._deadline, at + LOOK_SECONDS))

    def _stop_waiting(self, at: float) -> None:
        if self._rounds is not None:
            self._rounds, self.waited = None, self.waited + at - self._waits_since

    def _wait_for_queue(self, rotation: Rotation, at: float) -> Next:
        """Return a wait for a busy queue, or give up if no queue is merely busy."""
        busy = [until for route, until in self._sender.busy.items() if until > at and self._in(rotation, route)]
        if not busy:
            return GiveUp.NO_BACKLOG
        return Wait(min(*busy, self._deadline)) if at < self._deadline else GiveUp.BUSY

    @staticmethod
    def _in(rotation: Rotation, route: Route) -> bool:
        return route.queue is not None and rotation.holds(route.queue)

    def _attempt(self, route: Route, at: float, *, ends: float = inf, limit: float | None = None) -> Next:
        """Return an attempt, if enough of the call's time is left for an answer.

        ends: when it has to end at the latest. limit: its own; None: the usual one.
        """
        left, is_resting = self._deadline - at, self._sender.rests(route, at)
        if is_resting and left > 0:
            return Wait(min(self._sender.busy[route], self._deadline))
        if left <= 0 or (left < self._enough and (self._rested or self._last is not None)):
            if is_resting or self._last is Verdict.THROTTLED:
                return GiveUp.BUSY
            return GiveUp.NO_BACKLOG if route.queue is not None else GiveUp.FAILED
        own = self._limit if limit is None else limit
        self._attempt_at = at
        timeout = min(own, left, ends - at, self._policy.send_timeout)
        return Try(route, timeout, timeout < _SHORT * own)
