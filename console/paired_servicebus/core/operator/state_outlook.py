"""The next possible changes of an entity's state, by the rules of SPEC.md section 6.

Made from a snapshot, so that screens and status agree. Data missing in the snapshot is omitted, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import Final, NamedTuple

from paired_servicebus.core.failover.inactivity import QUIET_AFTER
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import EntityView
from paired_servicebus.core.text.time_format import age, until


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


def _unknown(_entity: EntityView, _policy: Policy | None, _now: float) -> tuple[StateOutlook, ...]:
    return (
        StateOutlook(State.HEALTHY, "as soon as a send is accepted"),
        StateOutlook(State.SUSPECT, "after the first connection failure or timeout"),
    )


def _healthy(_entity: EntityView, policy: Policy | None, _now: float) -> tuple[StateOutlook, ...]:
    quiet = StateOutlook(State.UNKNOWN, f"{QUIET_AFTER / 60:g} min after its last send or probe, if none follows")
    if policy is not None and policy.failover_interval == 0:
        return (StateOutlook(State.FAILED_OVER, "after the first connection failure or timeout"), quiet)
    after = f"; fails over {policy.failover_interval:g} s later unless a send succeeds" if policy is not None else ""
    return (StateOutlook(State.SUSPECT, f"after the first connection failure or timeout{after}"), quiet)


def _suspect(entity: EntityView, _policy: Policy | None, now: float) -> tuple[StateOutlook, ...]:
    at = until(entity.fails_over_at, now) if entity.fails_over_at is not None else "when its interval ends"
    return (
        StateOutlook(State.FAILED_OVER, f"{at}, unless a send succeeds before; silence counts as failure"),
        StateOutlook(State.HEALTHY, "as soon as a send is accepted"),
    )


_GONE: Final = StateOutlook(
    State.UNKNOWN, f"{QUIET_AFTER / 60:g} min after its last send, if pings find no such entity until then"
)


def _failed_over(entity: EntityView, policy: Policy | None, now: float) -> tuple[StateOutlook, ...]:
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


def _forced(entity: EntityView, _policy: Policy | None, _now: float) -> tuple[StateOutlook, ...]:
    if entity.last_ping_good:
        return (StateOutlook(State.HEALTHY, "only when released: the last ping was accepted"),)
    why = "was not accepted" if entity.last_ping_good is False else "has no answer yet"
    back = StateOutlook(State.FAILED_OVER, f"only when released: the last ping {why}; it then fails back by itself")
    if entity.last_ping_good is False:
        return (back,)
    return (back, StateOutlook(State.UNKNOWN, "only when released, if this engine knows nothing of the primary"))


def _pinned(_entity: EntityView, _policy: Policy | None, _now: float) -> tuple[StateOutlook, ...]:
    return (
        StateOutlook(State.HEALTHY, "only when released, if the primary's last answer was good"),
        StateOutlook(State.FAILED_OVER, "only when released, if the primary's last answer was bad"),
        StateOutlook(State.UNKNOWN, f"only when released, if there was no answer for {QUIET_AFTER / 60:g} min"),
    )


_WAYS: Final[dict[State, Callable[[EntityView, Policy | None, float], tuple[StateOutlook, ...]]]] = {
    State.UNKNOWN: _unknown,
    State.HEALTHY: _healthy,
    State.SUSPECT: _suspect,
    State.FAILED_OVER: _failed_over,
    State.FORCED: _forced,
    State.PINNED: _pinned,
}
