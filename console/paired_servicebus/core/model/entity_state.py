"""The state machine of one entity under a pairing (SPEC.md section 6).

TABLE has every transition. An event first becomes a `Trigger`, with its guards checked (such as "enough pings"); the
table then gives the next state. A pair outside the table raises `IllegalEventError` and changes nothing.

    unknown ──send accepted──▶ healthy ◀──send accepted── suspect ◀──a failure that counts── healthy, unknown
                                  ▲                          │
                                  └──enough pings── failed over ◀──the interval ended, no send accepted
    any ──force──▶ forced      any ──pin──▶ pinned      forced, pinned, failed over ──release──▶ by the last answer
    healthy ──neither send, probe nor ping for long──▶ unknown ◀──deleted, and not sent to for long── failed over

Only sends, pings, operators and silence change the state. This module knows no clock, timer or other entity.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Final

from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.model.verdict import FailureKind


class State(StrEnum):
    """The state of an entity. The values are the words on the screen."""

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    SUSPECT = "suspect"
    FAILED_OVER = "failed over"
    FORCED = "forced"
    PINNED = "pinned"


GLYPHS: Final = {
    State.HEALTHY: "●",
    State.UNKNOWN: "○",
    State.PINNED: "◆",
    State.SUSPECT: "◐",
    State.FORCED: "■",
    State.FAILED_OVER: "▲",
}
"""Its sign before an entity, on screens and in previews."""

DIVERTING: Final = frozenset({State.FAILED_OVER, State.FORCED})
"""States without sends to the primary and with pings."""

WELL: Final = frozenset({State.HEALTHY, State.UNKNOWN})
"""States without evidence against the primary."""

PROBED: Final = frozenset({State.UNKNOWN, State.HEALTHY, State.SUSPECT})
"""States in which an entity without sends may be probed."""


class Trigger(StrEnum):
    """An event of an entity, with its guards checked."""

    SEND_ACCEPTED = "a send was accepted by the primary"
    SEND_FAILED = "a send failed with a failure that counts"
    INTERVAL_ENDED = "the failover interval ended with no send accepted"
    PING_ACCEPTED = "a ping was accepted, and more are needed"
    PINGS_ENOUGH = "enough pings in a row were accepted"
    PING_FAILED = "a ping was not accepted"
    FORCE = "an operator forced the failover"
    PIN = "an operator pinned it to the primary"
    RELEASE = "an operator released it; the primary's last answer was good"
    RELEASE_UNPROVEN = "an operator released it; the primary's last answer was not good, or no ping was answered yet"
    RELEASE_UNKNOWN = "an operator released it; the primary was never asked, or not for long"
    QUIET = "neither a send nor a probe or ping for long"
    GONE = "pings found no such entity for long, and nothing was sent to it for long"

    @property
    def words(self) -> str:
        """Return its name for error texts: "ping accepted"."""
        return self.name.replace("_", " ").lower()


_UNKNOWN, _HEALTHY, _SUSPECT, _FAILED_OVER, _FORCED, _PINNED = State

TABLE: Final[dict[tuple[State, Trigger], State]] = {
    (_UNKNOWN, Trigger.SEND_ACCEPTED): _HEALTHY,
    (_UNKNOWN, Trigger.SEND_FAILED): _SUSPECT,
    (_UNKNOWN, Trigger.FORCE): _FORCED,
    (_UNKNOWN, Trigger.PIN): _PINNED,
    (_HEALTHY, Trigger.SEND_ACCEPTED): _HEALTHY,
    (_HEALTHY, Trigger.SEND_FAILED): _SUSPECT,
    (_HEALTHY, Trigger.QUIET): _UNKNOWN,
    (_HEALTHY, Trigger.FORCE): _FORCED,
    (_HEALTHY, Trigger.PIN): _PINNED,
    (_SUSPECT, Trigger.SEND_ACCEPTED): _HEALTHY,
    (_SUSPECT, Trigger.SEND_FAILED): _SUSPECT,  # later failures don't restart the timer
    (_SUSPECT, Trigger.INTERVAL_ENDED): _FAILED_OVER,
    (_SUSPECT, Trigger.FORCE): _FORCED,
    (_SUSPECT, Trigger.PIN): _PINNED,
    (_FAILED_OVER, Trigger.SEND_ACCEPTED): _FAILED_OVER,  # one in flight at failover: recorded, nothing more
    (_FAILED_OVER, Trigger.SEND_FAILED): _FAILED_OVER,
    (_FAILED_OVER, Trigger.PING_ACCEPTED): _FAILED_OVER,
    (_FAILED_OVER, Trigger.PINGS_ENOUGH): _HEALTHY,
    (_FAILED_OVER, Trigger.PING_FAILED): _FAILED_OVER,
    (_FAILED_OVER, Trigger.FORCE): _FORCED,
    (_FAILED_OVER, Trigger.PIN): _PINNED,
    (_FAILED_OVER, Trigger.RELEASE): _HEALTHY,  # "fails back now"
    (_FAILED_OVER, Trigger.RELEASE_UNPROVEN): _HEALTHY,
    (_FAILED_OVER, Trigger.GONE): _UNKNOWN,  # deleted and unused: nobody's outage
    (_FORCED, Trigger.SEND_ACCEPTED): _FORCED,
    (_FORCED, Trigger.SEND_FAILED): _FORCED,
    (_FORCED, Trigger.PING_ACCEPTED): _FORCED,
    (_FORCED, Trigger.PINGS_ENOUGH): _FORCED,  # shown, no automatic failback
    (_FORCED, Trigger.PING_FAILED): _FORCED,
    (_FORCED, Trigger.PIN): _PINNED,
    (_FORCED, Trigger.RELEASE): _HEALTHY,
    (_FORCED, Trigger.RELEASE_UNPROVEN): _FAILED_OVER,
    (_FORCED, Trigger.RELEASE_UNKNOWN): _UNKNOWN,  # without evidence against the primary
    (_PINNED, Trigger.SEND_ACCEPTED): _PINNED,
    (_PINNED, Trigger.SEND_FAILED): _PINNED,
    (_PINNED, Trigger.FORCE): _FORCED,
    (_PINNED, Trigger.RELEASE): _HEALTHY,
    (_PINNED, Trigger.RELEASE_UNPROVEN): _FAILED_OVER,
    (_PINNED, Trigger.RELEASE_UNKNOWN): _UNKNOWN,
}
"""State and trigger to the next state. A ping answered after the failback is illegal here, as is an interval that ends
twice. Callers filter these by `Entity.pinging` and `Entity.fails_over_at`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityFacts:
    """What an engine's machine and a snapshot have of an entity. Times are seconds since the epoch."""

    path: str
    state: State = State.UNKNOWN
    since: float
    fails_over_at: float | None = None
    """Time at which a suspect entity fails over unless a send succeeds."""
    first_failure_at: float | None = None
    """Time of the failure that began the present episode; None: there is none."""
    pings: int = 0
    """Pings since it left the primary."""
    pings_in_a_row: int = 0
    """Accepted pings in a row, up to the latest one."""
    last_ping_at: float | None = None
    """Time of the latest ping's answer; the next two fields describe it."""
    last_ping_good: bool | None = None
    last_ping_text: str = ""
    missing_since: float | None = None
    """Time since which every ping found no such entity; None: the last one was answered otherwise."""
    failovers: int = 0
    failbacks: int = 0
    seconds_failed_over: float = 0.0
    """Total over the finished episodes; a view's has the present one as well."""


FACTS: Final = tuple(one.name for one in fields(EntityFacts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity(EntityFacts):
    """One entity of a pairing, as known to its engine."""

    first_failure: str = ""
    """The failure that made it suspect; empty without evidence against the primary."""
    first_failure_kind: FailureKind | None = None
    last_failure: str = ""
    last_failure_at: float | None = None
    left_primary_at: float | None = None
    """Time since which sends go to the backlog; None while they go to the primary."""
    primary_good: bool | None = None
    """Whether the primary's last answer to a send or a ping was good; None: there is none, or it is outdated."""
    quiet_since: float | None = None
    """Time of the last send, probe or ping of an entity that is unknown because of silence."""
    ping_due: float | None = None
    """Time of the next ping; None while none is planned, or during one."""
    ping_in_flight: bool = False
    ping_rests_until: float | None = None
    """Time before which no ping is sent after a throttled one, in any state (SPEC.md section 5)."""
    by: str = ""
    """The operator who forced or pinned it; `by_why` is the reason."""
    by_why: str = ""
    probed_every: float | None = None
    """Seconds between two probes without sends; None: it is not probed."""
    probes_a_day: int = 0
    """Billed operations at most."""
    failures_while_pinned: int = 0

    @property
    def diverting(self) -> bool:
        """Return whether sends go to the backlog."""
        return self.state in DIVERTING

    @property
    def settled(self) -> bool:
        """Return whether another accepted send changes nothing: proven healthy and not probed."""
        return self.state is State.HEALTHY and self.primary_good is True and self.probed_every is None

    def release_trigger(self, *, quiet: bool = False) -> Trigger:
        """Return the kind of release. `quiet`: the primary was silent for long.

        Without a recent answer the entity becomes unknown: neither healthy nor diverted without evidence.
        """
        if self.state is State.PINNED:
            return _OF_PINNED[None if quiet and self.primary_good else self.primary_good]
        if self.last_ping_good:
            return Trigger.RELEASE
        is_unknown = self.state is State.FORCED and self.primary_good is None and self.last_ping_good is None
        return Trigger.RELEASE_UNKNOWN if is_unknown else Trigger.RELEASE_UNPROVEN


_OF_PINNED: Final = {True: Trigger.RELEASE, False: Trigger.RELEASE_UNPROVEN, None: Trigger.RELEASE_UNKNOWN}
"""By the primary's last answer, since a pinned entity is not pinged."""


_REFUTING: Final = frozenset({State.HEALTHY, State.PINNED})
"""States that a deleted entity enters only by an answer or an operator that says otherwise."""


def next_state(entity: Entity, trigger: Trigger) -> State:
    """Return the next state from TABLE. Raises IllegalEventError: the trigger is impossible in the entity's state."""
    found = TABLE.get((entity.state, trigger))
    if found is None:
        raise IllegalEventError(f"invalid transition for {entity.path}: {trigger.words} while {entity.state}")
    return found


def enter(entity: Entity, state: State, *, at: float, ping_interval: float) -> Entity:
    """Return the entity in `state` since `at`, with the counts and deadlines of the change."""
    was_diverting, diverts = entity.diverting, state in DIVERTING
    is_well = state in WELL
    changed = replace(
        entity,
        state=state,
        since=at,
        fails_over_at=None,
        first_failure="" if is_well else entity.first_failure,
        first_failure_at=None if is_well else entity.first_failure_at,
        first_failure_kind=None if is_well else entity.first_failure_kind,
        by=entity.by if state in (State.FORCED, State.PINNED) else "",
        by_why=entity.by_why if state in (State.FORCED, State.PINNED) else "",
        failures_while_pinned=0,
        quiet_since=entity.quiet_since if state is State.UNKNOWN else None,
        missing_since=entity.missing_since if was_diverting and state not in _REFUTING else None,
    )
    if diverts and not was_diverting:
        return replace(
            changed,
            failovers=entity.failovers + 1,
            left_primary_at=at,
            pings=0,
            pings_in_a_row=0,
            last_ping_at=None,
            last_ping_good=None,
            last_ping_text="",
            ping_due=max(at + ping_interval, entity.ping_rests_until or 0.0),
            ping_in_flight=False,
        )
    if was_diverting and not diverts:
        left = entity.since if entity.left_primary_at is None else entity.left_primary_at
        return replace(
            changed,
            failbacks=entity.failbacks + 1,
            seconds_failed_over=entity.seconds_failed_over + (at - left),
            left_primary_at=None,
            ping_due=None,
            ping_in_flight=False,
        )
    return changed
