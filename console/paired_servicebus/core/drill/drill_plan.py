"""The plan of a drill: its entities, its times, its promises, its bounds and its cost. Times are seconds."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Self

from paired_servicebus.core.accounting.billing import PARKED_MESSAGE_OPERATIONS
from paired_servicebus.core.accounting.ledger import Ledger
from paired_servicebus.core.model.namespace_info import ServiceTier
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import day_and_clock

# The names of a drill's entities, and the note in each that identifies it as a drill's.
#
# A drill is called `x-paired-drill-ID`, with 12 hexadecimal digits. Its entities are under this name: in the primary
# namespace one for each part of its plan, in the secondary a marker queue and the backlog queues of its pairing. All
# but the backlog queues carry a note in their UserMetadata. Backlog queues have exactly the settings of SPEC.md section
# 4.2, hence no note: the marker queue beside them, made before and deleted after them, identifies them.

PREFIX: Final = "x-paired-drill-"
MARKER: Final = "marker"
BACKLOG: Final = "x-servicebus-transfer"
_ID: Final = r"[0-9a-f]{12}"
_TIME: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"
_STRFTIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_NAME: Final = re.compile(rf"{PREFIX}({_ID})")
_PATH: Final = re.compile(rf"{PREFIX}({_ID})/(disabled|deleted|untouched|{MARKER}|{BACKLOG}/(?:0|[1-9][0-9]{{0,8}}))")
_NOTE: Final = re.compile(
    rf"made by paired drill ({_ID}) at ({_TIME}); over by ({_TIME}); deleted by paired drill --clean"
)


class DrillRole(StrEnum):
    """The fate of an entity in a drill; also the last part of its path."""

    DISABLED = "disabled"
    DELETED = "deleted"
    UNTOUCHED = "untouched"


def drill_name(run: str) -> str:
    """Return the name of a drill, by its id."""
    return f"{PREFIX}{run}"


def role_path(run: str, role: DrillRole) -> str:
    """Return the path of an entity in the primary namespace."""
    return f"{drill_name(run)}/{role}"


def marker_path(run: str) -> str:
    """Return the path of the marker queue in the secondary namespace."""
    return f"{drill_name(run)}/{MARKER}"


def run_of(path: str) -> str:
    """Return the id of the drill whose entity may have this path; "" for any other path."""
    found = _PATH.fullmatch(path)
    return found[1] if found is not None else ""


def run_called(name: str) -> str:
    """Return the id of the drill with this name; "" if no drill can have it."""
    found = _NAME.fullmatch(name)
    return found[1] if found is not None else ""


def is_backlog(path: str) -> bool:
    """Return whether the path is one of a drill's backlog queues."""
    return bool(run_of(path)) and f"/{BACKLOG}/" in path


@dataclass(frozen=True, slots=True)
class DrillNote:
    """The note in a drill's entity. made, until: seconds since the epoch; the drill is over by `until`."""

    run: str
    made: float
    until: float

    def __str__(self) -> str:
        made, until = (datetime.fromtimestamp(at, UTC).strftime(_STRFTIME) for at in (self.made, self.until))
        return f"made by paired drill {self.run} at {made}; over by {until}; deleted by paired drill --clean"

    @classmethod
    def read(cls, metadata: str) -> Self | None:
        """Return the note in an entity's UserMetadata; None if it has no valid one."""
        found = _NOTE.fullmatch(metadata)
        if found is None:
            return None
        try:
            made, until = (datetime.strptime(text, _STRFTIME).replace(tzinfo=UTC) for text in found.groups()[1:])
        except ValueError:
            return None
        return cls(found[1], made.timestamp(), until.timestamp())


# Which entities of a namespace a drill has left, and which stay: by name, by note, and by age.
#
# An entity that lacks one of a drill's marks is never deleted, whatever its name.

CLOCK_MARGIN: Final = 600.0
"""Seconds by which the clocks of two machines may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEntity:
    """An entity whose path begins as a drill's does.

    differences: of a queue from the settings of a new backlog queue, a text each.
    """

    path: str
    is_topic: bool = False
    metadata: str = ""
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillKnowledge:
    """The knowledge about drills outside of the namespaces.

    now: seconds since the epoch. running, ended: the ids of drills with a record on this machine. named: the id of the
    drill that the operator declares as ended.
    """

    now: float
    running: Collection[str] = ()
    ended: Collection[str] = ()
    named: str = ""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """leftover: to delete, a drill's marker queue last. young: a sentence each for entities that may be in use.

    running: the ids of drills that run on this machine. foreign: a sentence each for entities of other origin.
    """

    leftover: tuple[FoundEntity, ...]
    young: tuple[str, ...]
    running: tuple[str, ...]
    foreign: tuple[str, ...]


def sort_entities(found: Sequence[FoundEntity], known: DrillKnowledge) -> Leftovers:
    """Sort the entities of one namespace."""
    markers = {one.path: note for one in found if not one.is_topic and (note := _own_note(one)) is not None}
    leftover: list[FoundEntity] = []
    young: dict[str, str] = {}
    running: dict[str, None] = {}
    foreign: list[str] = []
    for one in found:
        note = _note_of(one, markers)
        if note is None:
            foreign.append(f"{one.path} was not made by a drill, or its note is gone: it stays")
        elif note.run in known.running:
            running[note.run] = None
        elif known.named == note.run or note.run in known.ended or known.now > note.until + CLOCK_MARGIN:
            leftover.append(one)
        else:
            young[note.run] = _young(note)
    leftover.sort(key=lambda one: one.path == marker_path(run_of(one.path)))
    return Leftovers(tuple(leftover), tuple(young.values()), tuple(running), tuple(foreign))


def _note_of(one: FoundEntity, markers: dict[str, DrillNote]) -> DrillNote | None:
    """Return the note about an entity: its own, or its marker queue's; None: it is of other origin."""
    if not is_backlog(one.path):
        return _own_note(one)
    is_as_made = not (one.is_topic or one.metadata or one.differences)
    return markers.get(marker_path(run_of(one.path))) if is_as_made else None


def _own_note(one: FoundEntity) -> DrillNote | None:
    run, note = run_of(one.path), DrillNote.read(one.metadata)
    return note if run and note is not None and note.run == run else None


def _young(note: DrillNote) -> str:
    name = drill_name(note.run)
    return (
        f"{name} may still run, on another machine or for another user: it is over by "
        f"{day_and_clock(note.until)} UTC; if it has ended, paired drill --clean --yes {name} deletes it now"
    )


SENDS_PER_SECOND: Final = 2.0
"""Messages a second to each entity."""
EMPTY_RECEIVES_PER_SECOND: Final = 2.0
"""Calls a second of the receivers of an entity without messages."""
QUIET_SECONDS: Final = 4.0
"""Expected seconds of the receivers without messages, before the first and after the last one."""
RECEIVED_OPERATIONS: Final = 2
"""Billed operations of a receiver for a message: the receive and its settlement."""
WARM_UP_SECONDS: Final = 3.0
"""Expected seconds until every entity has delivered a message."""
AFTER_SECONDS: Final = 2.0
"""Seconds of sending after the last failback."""
OUTAGE_SECONDS: Final = 3.0
"""Seconds of an outage after the first refused ping."""
MAKING_SECONDS: Final = 10.0
"""Expected seconds for making and deleting the entities, and for the drain."""
MAX_SETUP_SECONDS: Final = 180.0
"""Seconds for making the entities, and for pairing."""
MAX_WARM_UP_SECONDS: Final = 60.0
EFFECT_SECONDS: Final = 60.0
"""Seconds in which a namespace has to apply a change of an entity."""
PATIENCE: Final = 30.0
"""Seconds beyond a promise that the drill waits, so that a late event has its time in the report."""
MAX_DRAIN_SECONDS: Final = 120.0
MAX_REMOVAL_SECONDS: Final = 120.0
ATTEMPT_GRACE: Final = 1.0
"""Seconds after send_timeout in which the pairing ends an attempt whatever the SDK does (SPEC.md section 3)."""


class EntityKind(StrEnum):
    """The kind of an entity in the primary namespace."""

    QUEUE = "queue"
    SESSION_QUEUE = "session queue"
    TOPIC = "topic"


class Phase(StrEnum):
    """A part of an outage whose time is measured."""

    DETECT = "detect"
    DIVERT = "divert"
    RETURN = "return"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class DrillPart:
    """An entity of the drill."""

    role: DrillRole
    kind: EntityKind

    @property
    def fails(self) -> bool:
        """Return whether the drill makes it fail."""
        return self.role is not DrillRole.UNTOUCHED


PARTS: Final = (
    DrillPart(DrillRole.DISABLED, EntityKind.QUEUE),
    DrillPart(DrillRole.DELETED, EntityKind.SESSION_QUEUE),
    DrillPart(DrillRole.UNTOUCHED, EntityKind.TOPIC),
)
BASIC_PARTS: Final = tuple(replace(part, kind=EntityKind.QUEUE) for part in PARTS)
"""The tier Basic has neither sessions nor topics."""


def short_policy(configured: Policy) -> Policy:
    """Return the pairing's options with the drill's own times, which make an outage of minutes one of seconds."""
    return replace(
        configured,
        backlog_queue_count=2,
        send_timeout=10.0,
        failover_interval=5.0,
        ping_primary_interval=2.0,
        ping_timeout=5.0,
        failback_pings=1,
        cool_down=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPlan:
    """The plan of a drill.

    policy: the options in force. configured: whether they are the pairing's own times. parts: by the primary's tier.
    """

    policy: Policy
    configured: bool
    parts: tuple[DrillPart, ...]

    @classmethod
    def of(cls, configured: Policy, tier: ServiceTier, *, as_configured: bool) -> DrillPlan:
        """Plan a drill for a pairing with these options, on a primary of this tier."""
        policy = configured if as_configured else short_policy(configured)
        policy = replace(policy, enable_syphon=True, start_degraded=False, destinations=None, journal="diverted")
        return cls(
            policy=policy,
            configured=as_configured,
            parts=BASIC_PARTS if tier is ServiceTier.BASIC else PARTS,
        )

    @property
    def failing(self) -> tuple[DrillPart, ...]:
        """Return the parts that the drill makes fail."""
        return tuple(part for part in self.parts if part.fails)

    @property
    def left_out(self) -> str:
        """Return the sentence about parts that the primary's tier lacks; "" if it has all."""
        if self.parts == PARTS:
            return ""
        return "the tier Basic of the primary has no sessions and no topics: plain queues stand in for them"

    def promise(self, phase: Phase) -> float | None:
        """Return the most seconds that SPEC.md section 3 allows; None: it promises no time.

        A drain takes as long as its backlog is deep.
        """
        policy = self.policy
        match phase:
            case Phase.DETECT:
                return policy.send_timeout + policy.failover_interval
            case Phase.DIVERT:
                return policy.send_timeout + ATTEMPT_GRACE
            case Phase.RETURN:
                return policy.failback_pings * _ping_round(policy)
        return None

    def return_promise(self, seconds_failed_over: float) -> float:
        """Return the promise for a primary that healed after this time in failover: `cool_down` may extend it."""
        plain = self.policy.failback_pings * _ping_round(self.policy)
        left = self.policy.cool_down - seconds_failed_over
        return plain if left <= 0 else max(plain, left + _ping_round(self.policy))

    @property
    def expected_seconds(self) -> float:
        """Return the expected length of the drill."""
        return MAKING_SECONDS + self._sending_seconds

    @property
    def most_seconds(self) -> float:
        """Return the length after which every drill of this plan is over."""
        policy = self.policy
        waits = (
            2 * MAX_SETUP_SECONDS,
            MAX_WARM_UP_SECONDS,
            2 * EFFECT_SECONDS + PATIENCE + policy.send_timeout + policy.failover_interval,
            PATIENCE + policy.send_timeout + ATTEMPT_GRACE,
            PATIENCE + _ping_round(policy),
            2 * EFFECT_SECONDS + PATIENCE + self.return_promise(0.0),
            AFTER_SECONDS + MAX_DRAIN_SECONDS + PATIENCE,
            MAX_REMOVAL_SECONDS,
        )
        return sum(waits)

    @property
    def expected_operations(self) -> int:
        """Return the expected billed operations: messages at every stage, receivers without messages, pings."""
        direct = len(self.parts) * self._sending_seconds - len(self.failing) * self._outage_seconds
        parked = len(self.failing) * self._outage_seconds
        messages = SENDS_PER_SECOND * (direct * (1 + RECEIVED_OPERATIONS) + parked * (PARKED_MESSAGE_OPERATIONS + 2))
        empty = EMPTY_RECEIVES_PER_SECOND * (parked + len(self.parts) * QUIET_SECONDS)
        receives = empty + 2 * self.policy.backlog_queue_count
        pings = 0.0 if self.policy.ping == "link" else parked / self.policy.ping_primary_interval
        return round(messages + receives + pings)

    @property
    def _sending_seconds(self) -> float:
        return WARM_UP_SECONDS + self.policy.failover_interval + self._outage_seconds + AFTER_SECONDS

    @property
    def _outage_seconds(self) -> float:
        """Return the expected seconds from failover to failback: a refused ping, then the accepted ones."""
        pings = (1 + self.policy.failback_pings) * self.policy.ping_primary_interval
        return max(OUTAGE_SECONDS + pings, self.policy.cool_down)


def _ping_round(policy: Policy) -> float:
    return policy.ping_timeout + policy.ping_primary_interval


# The result of a drill: measured times beside the promises, the ledger, and the verdict.

MAX_NAMED: Final = 10
"""Message ids in a sentence."""


class DrillOutcome(StrEnum):
    """The end of a drill."""

    HELD = "held"
    BROKEN = "broken"
    NOT_DONE = "not carried out"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    """The measurements of one entity; times are seconds. None: it did not happen, or not to this entity."""

    part: DrillPart
    detect: float | None = None
    divert: float | None = None
    returned: float | None = None
    return_promise: float | None = None
    """The promise for its failback, with `cool_down`."""
    failovers: int = 0
    pings_refused: int = 0
    pings_accepted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillMeasures:
    """The measurements of a drill. drain: seconds from the last failback until all parked messages had arrived."""

    parts: tuple[PartResult, ...]
    ledger: Ledger
    drain: float | None
    diverted: int
    operations: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRow:
    """One measured time beside its promise, both in seconds. took None: it did not happen."""

    phase: Phase
    role: DrillRole | None
    took: float | None
    promise: float | None

    @property
    def is_kept(self) -> bool:
        """Return whether it happened, and within its promise."""
        return self.took is not None and (self.promise is None or self.took <= self.promise)


def time_rows(plan: DrillPlan, measures: DrillMeasures) -> tuple[TimeRow, ...]:
    """Return the measured times of each failing entity beside the promises for the options in force."""
    rows: list[TimeRow] = []
    for phase in (Phase.DETECT, Phase.DIVERT, Phase.RETURN):
        for one in measures.parts:
            if one.part.fails:
                promise = one.return_promise if phase is Phase.RETURN else plan.promise(phase)
                rows.append(TimeRow(phase=phase, role=one.part.role, took=_took(one)[phase], promise=promise))
    return (*rows, TimeRow(phase=Phase.DRAIN, role=None, took=measures.drain, promise=plan.promise(Phase.DRAIN)))


def _took(one: PartResult) -> Mapping[Phase, float | None]:
    return {Phase.DETECT: one.detect, Phase.DIVERT: one.divert, Phase.RETURN: one.returned}


def broken_promises(plan: DrillPlan, measures: DrillMeasures) -> tuple[str, ...]:
    """Return a sentence for each promise that was not kept."""
    return (
        *(_late(row) for row in time_rows(plan, measures) if not row.is_kept),
        *(_failed_over(one) for one in measures.parts if not one.part.fails and one.failovers),
        *_unbalanced(measures.ledger),
    )


_DID_NOT: Final[Mapping[Phase, str]] = {
    Phase.DETECT: "did not fail over",
    Phase.DIVERT: "had no send accepted by a backlog queue",
    Phase.RETURN: "did not fail back",
    Phase.DRAIN: "not all parked messages arrived",
}
_LATE: Final[Mapping[Phase, str]] = {
    Phase.DETECT: "failed over",
    Phase.DIVERT: "had its first send in the backlog",
    Phase.RETURN: "failed back",
    Phase.DRAIN: "the backlog was empty",
}


def _late(row: TimeRow) -> str:
    subject = f"{row.role} " if row.role is not None else ""
    if row.took is None:
        return subject + _DID_NOT[row.phase]
    return f"{subject}{_LATE[row.phase]} after {row.took:.1f} s; promised: {row.promise:g} s"


def _failed_over(one: PartResult) -> str:
    return f"{one.part.role} failed over {plural(one.failovers, 'time')}, and nothing was wrong with it"


def _unbalanced(ledger: Ledger) -> list[str]:
    named = (
        (ledger.lost, "accepted and lost", ledger.lost_ids),
        (ledger.unexpected, "delivered and never accepted", ledger.unexpected_ids),
    )
    found = [f"{plural(number, 'message')} {words}: {_some(ids)}" for number, words, ids in named if number]
    counted = (
        (ledger.parked, "still parked"),
        (ledger.dead_lettered, "dead-lettered by the syphon"),
        (ledger.refused, "refused to the end"),
        (ledger.in_doubt - ledger.recovered, "in doubt to the end"),
    )
    return [*found, *(f"{plural(number, 'message')} {words}" for number, words in counted if number)]


def _some(ids: tuple[str, ...]) -> str:
    more = f" and {len(ids) - MAX_NAMED} more" if len(ids) > MAX_NAMED else ""
    return ", ".join(ids[:MAX_NAMED]) + more


# The last drill of a pairing, as far as a machine knows: when it was, and how it ended.


@dataclass(frozen=True, slots=True, kw_only=True)
class LastDrill:
    """The last drill. began, ended: seconds since the epoch; ended and outcome None: it runs, or was killed.

    text: the verdict, as a sentence. configured: whether it had the pairing's own times.
    """

    began: float
    ended: float | None = None
    outcome: DrillOutcome | None = None
    text: str = ""
    configured: bool = False

    @property
    def sentence(self) -> str:
        """Return when it was and how it ended."""
        times = "the pairing's own times" if self.configured else "short times"
        began = f"{day_and_clock(self.began)} UTC, {times}"
        if self.outcome is None or self.ended is None:
            return f"{began}: it has not ended, or was killed"
        return f"{began}: {self.outcome}{': ' if self.text else ''}{self.text}"
