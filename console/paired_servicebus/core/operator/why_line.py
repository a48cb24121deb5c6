"""The why-line: one sentence with the reason for an entity's state and its next change.

Screen, log, headless output and tests share the sentence. Times are UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import ceil
from typing import Final, NamedTuple

from paired_servicebus.core.accounting.billing import MONTH_DAYS
from paired_servicebus.core.failover.inactivity import QUIET_AFTER
from paired_servicebus.core.model.entity_state import Entity, State
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import EntityView
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import age, clock, until

# The next possible changes of an entity's state, by the rules of SPEC.md section 6.
#
# Made from a snapshot, so that screens and status agree. Data missing in the snapshot is omitted, never guessed.


class StateOutlook(NamedTuple):
    """One possible next state and its condition."""

    to: State
    when: str


class PingStatistics(NamedTuple):
    """The latest pings of an entity. Seconds; None: none was accepted."""

    number: int
    accepted: int
    p50: float | None
    p95: float | None


def outlook(entity: EntityView, policy: Policy | None, now: float) -> tuple[StateOutlook, ...]:
    """Return every possible next state, the most likely first. `policy`: the engine's options; None: unknown."""
    return _WAYS[entity.state](entity, policy, now)


def pings(recent: Sequence[float | None]) -> PingStatistics:
    """Return the statistics of `EntityView.recent_pings`; percentiles are of accepted pings, by nearest rank."""
    took = sorted(seconds for seconds in recent if seconds is not None)
    return PingStatistics(len(recent), len(took), percentile(took, 0.50), percentile(took, 0.95))


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank percentile of ordered values; None: there are none."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else None


def pings_needed(entity: EntityView, policy: Policy | None) -> int:
    """Return the number of accepted pings still needed for a failback, at least one."""
    return max(1, policy.failback_pings - entity.pings_in_a_row) if policy is not None else 1


def _after_unknown(_entity: EntityView, _policy: Policy | None, _now: float) -> tuple[StateOutlook, ...]:
    return (
        StateOutlook(State.HEALTHY, "as soon as a send is accepted"),
        StateOutlook(State.SUSPECT, "after the first connection failure or timeout"),
    )


def _after_healthy(_entity: EntityView, policy: Policy | None, _now: float) -> tuple[StateOutlook, ...]:
    quiet = StateOutlook(State.UNKNOWN, f"{QUIET_AFTER / 60:g} min after its last send or probe, if none follows")
    if policy is not None and policy.failover_interval == 0:
        return (StateOutlook(State.FAILED_OVER, "after the first connection failure or timeout"), quiet)
    after = f"; fails over {policy.failover_interval:g} s later unless a send succeeds" if policy is not None else ""
    return (StateOutlook(State.SUSPECT, f"after the first connection failure or timeout{after}"), quiet)


def _after_suspect(entity: EntityView, _policy: Policy | None, now: float) -> tuple[StateOutlook, ...]:
    at = until(entity.fails_over_at, now) if entity.fails_over_at is not None else "when its interval ends"
    return (
        StateOutlook(State.FAILED_OVER, f"{at}, unless a send succeeds before; silence counts as failure"),
        StateOutlook(State.HEALTHY, "as soon as a send is accepted"),
    )


_GONE: Final = StateOutlook(
    State.UNKNOWN, f"{QUIET_AFTER / 60:g} min after its last send, if pings find no such entity until then"
)


def _after_failed_over(entity: EntityView, policy: Policy | None, now: float) -> tuple[StateOutlook, ...]:
    needed = pings_needed(entity, policy)
    what = "when the next ping is accepted" if needed <= 1 else f"after {needed} more accepted pings in a row"
    following = f"; it leaves {until(entity.next_ping_at, now)}" if entity.next_ping_at is not None else ""
    calm = entity.since + policy.cool_down if policy is not None and policy.cool_down else None
    cool = f"; not for another {age(calm - now)}" if calm is not None and calm > now else ""
    return (
        StateOutlook(State.HEALTHY, f"{what}{following}{cool}"),
        *((_GONE,) if entity.missing_since is not None else ()),
        StateOutlook(State.HEALTHY, "immediately when released by an operator"),
    )


def _after_forced(entity: EntityView, _policy: Policy | None, _now: float) -> tuple[StateOutlook, ...]:
    if entity.last_ping_good:
        return (StateOutlook(State.HEALTHY, "only when released: the last ping was accepted"),)
    why = "was not accepted" if entity.last_ping_good is False else "has no answer yet"
    back = StateOutlook(State.FAILED_OVER, f"only when released: the last ping {why}; it then fails back by itself")
    if entity.last_ping_good is False:
        return (back,)
    return (back, StateOutlook(State.UNKNOWN, "only when released, if this engine knows nothing of the primary"))


def _after_pinned(_entity: EntityView, _policy: Policy | None, _now: float) -> tuple[StateOutlook, ...]:
    return (
        StateOutlook(State.HEALTHY, "only when released, if the primary's last answer was good"),
        StateOutlook(State.FAILED_OVER, "only when released, if the primary's last answer was bad"),
        StateOutlook(State.UNKNOWN, f"only when released, if there was no answer for {QUIET_AFTER / 60:g} min"),
    )


_WAYS: Final[dict[State, Callable[[EntityView, Policy | None, float], tuple[StateOutlook, ...]]]] = {
    State.UNKNOWN: _after_unknown,
    State.HEALTHY: _after_healthy,
    State.SUSPECT: _after_suspect,
    State.FAILED_OVER: _after_failed_over,
    State.FORCED: _after_forced,
    State.PINNED: _after_pinned,
}


def why(entity: Entity) -> str:
    return _SENTENCES[entity.state](entity)


def _unknown(entity: Entity) -> str:
    if entity.missing_since is not None:
        silence = f"; no sends by this engine since {clock(entity.quiet_since)}" if entity.quiet_since else ""
        return f"{_deleted(entity.missing_since)}{silence}; a send tries it again"
    if entity.quiet_since is not None:
        return _quiet(entity, entity.quiet_since)
    if entity.last_failure_at is None:
        probe = "the first probe is under way" if entity.probed_every is not None else _to_watch(entity)
        return f"no sends by this engine; {probe}"
    return f"no send accepted yet; last failure {_last_failure(entity, entity.last_failure_at)}"


def _quiet(entity: Entity, since: float) -> str:
    probed, watch = entity.probed_every is not None, _to_watch(entity)
    silence = f"no sends{' or probes' if probed else ''} by this engine since {clock(since)}"
    failure = entity.last_failure_at
    last = f"; last failure {_last_failure(entity, failure)}" if failure is not None else ""
    return f"{silence}{last}" if probed else f"{silence}{last}; {watch}"


def _to_watch(entity: Entity) -> str:
    return f'set probe = ["{entity.path}"] to watch it'


def _healthy(entity: Entity) -> str:
    if entity.last_failure_at is None:
        return f"sends go to the primary; no failure since the engine started{_probing(entity)}"
    return f"sends go to the primary; last failure {_last_failure(entity, entity.last_failure_at)}{_probing(entity)}"


def _suspect(entity: Entity) -> str:
    until = "at once" if entity.fails_over_at is None else f"at {clock(entity.fails_over_at)}"
    return f"{entity.first_failure} {clock(entity.since)}; fails over {until} unless a send succeeds"


def _failed_over(entity: Entity) -> str:
    if entity.missing_since is not None:
        return f"{_deleted(entity.missing_since)}; create it again, or stop its senders; {_pings(entity)}"
    if entity.first_failure_at is None:
        return f"{entity.first_failure or 'the primary accepted no send since the release'}; {_pings(entity)}"
    return f"{entity.first_failure} since {clock(entity.first_failure_at)}; {_pings(entity)}"


def _deleted(since: float) -> str:
    return f"{DELETED} since {clock(since)}"


DELETED: Final = "deleted in the primary namespace"
_CAUSE: Final = re.compile(r'no send accepted for \S+ s after "([^"]*)"|(.+?) since \d\d:\d\d:\d\d; ')
"""The first words of the event, or of the line."""


def failover_cause(text: str) -> str:
    """Return the first failure that the why-line or the event of a failover names; empty if it names none."""
    found = _CAUSE.match(text)
    return (found[1] or found[2]) if found else ""


def _forced(entity: Entity) -> str:
    return f"forced by {_operator(entity)}; {_pings(entity)}; stays until released"


def _pinned(entity: Entity) -> str:
    failures = entity.failures_while_pinned
    count = f"{plural(failures, 'failure')} since, none diverted" if failures else "no failure since"
    return f"pinned by {_operator(entity)}; {count}"


def _operator(entity: Entity) -> str:
    reason = f' "{entity.by_why}"' if entity.by_why else ""
    return f"{entity.by} {clock(entity.since)}{reason}"


def _pings(entity: Entity) -> str:
    following = f"; next {clock(entity.ping_due)}" if entity.ping_due is not None else ""
    if entity.last_ping_good is None or entity.last_ping_at is None:
        return f"no ping answered yet{following}" if entity.pings else f"first ping {clock(entity.ping_due or 0)}"
    if entity.last_ping_good:
        return f"pings accepted ({entity.pings_in_a_row} in a row){following}"
    answered = entity.pings - entity.ping_in_flight
    return f"ping {answered} failed {clock(entity.last_ping_at)} ({_with_advice(entity.last_ping_text)}){following}"


def _probing(entity: Entity) -> str:
    """Return the interval and cost of probes; empty without probes."""
    if entity.probed_every is None:
        return ""
    day, month = entity.probes_a_day, entity.probes_a_day * MONTH_DAYS
    cost = f"at most {day:,} operations a day, {month:,} in {MONTH_DAYS} days" if day else "opening a link, not billed"
    return f"; probed each {entity.probed_every:g} s without a send ({cost})"


def _last_failure(entity: Entity, at: float) -> str:
    return f"{clock(at)} ({_with_advice(entity.last_failure)})"


def _with_advice(reason: str) -> str:
    """Return the reason, with advice in case of throttling (SPEC.md section 5)."""
    busy = reason.startswith(FailureKind.BUSY)
    return f"{reason}: partitioning the entity makes throttling less likely" if busy else reason


_SENTENCES = {
    State.UNKNOWN: _unknown,
    State.HEALTHY: _healthy,
    State.SUSPECT: _suspect,
    State.FAILED_OVER: _failed_over,
    State.FORCED: _forced,
    State.PINNED: _pinned,
}
