"""How an engine stands at one moment: the frozen values that dashboard, status and metrics show.

Rules: every number that was read somewhere carries when (`read_at`, seconds since the epoch, UTC); None means not
known, never zero. An engine is named in each snapshot, so that one console can watch many. Sentences are made here or
in why_line.py, in one place, so that screen, log and tests read the same words.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteView:
    """What one entity sent over one route, in messages, since the engine started."""

    route: str
    """"primary" or "backlog/N"."""
    accepted: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityView:
    """One entity: its state, its one-sentence why-line, and what this engine sent."""

    path: str
    state: State
    since: float
    why: str
    route: str
    """Where a send goes now: "primary", "backlog", "backlog/N" where one queue took the latest sends, or "nowhere"."""
    sends_per_second: float
    accepted: int
    """Messages accepted by the primary, since the engine started."""
    diverted: int
    """Messages accepted by backlog queues."""
    failed: int
    """Attempts that failed."""
    last_ping_at: float | None = None
    last_ping_good: bool | None = None
    last_ping_text: str = ""
    next_ping_at: float | None = None
    pings: int = 0
    """Pings sent since the entity left the primary."""
    pings_sent: int = 0
    """Since the engine started."""
    pings_accepted: int = 0
    too_large: int = 0
    """Messages the primary accepted that would not fit into a backlog queue, since the engine started."""
    failovers: int = 0
    failbacks: int = 0
    seconds_failed_over: float = 0.0
    """The running episode included."""
    fails_over_at: float | None = None
    """When a suspect entity fails over unless a send succeeds."""
    pings_in_a_row: int = 0
    """Accepted, up to the latest one."""
    recent_pings: tuple[float | None, ...] = ()
    """Seconds that each of the latest pings took, newest last, at most 20; None: it was not accepted."""
    sends: tuple[RouteView, ...] = ()
    """The routes that were used, the primary first."""
    refused: int = 0
    """Messages of calls that ended in an error at their caller, since the engine started."""
    refused_per_second: float = 0.0
    """The same over the last seconds."""
    refused_since: float | None = None
    """When the running series of refused calls began; None: the latest call did not end in an error."""
    refusals: tuple[tuple[str, int], ...] = ()
    """Why calls were refused, and how many messages; the most frequent reasons."""
    first_failure_at: float | None = None
    """When the failure was that the present episode began with; None: there is none."""
    carried: bool | None = None
    """Whether this engine's process has a sender for the entity. Without one, an order diverts no sender. None: an
    engine that does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettersView:
    """What a peek at the first dead letters of a backlog queue found, whoever put them there."""

    read_at: float | None = None
    """None: not looked yet, or there are none."""
    looked_at: int = 0
    """Dead letters that were read, the first ones; there may be more."""
    reasons: tuple[tuple[str, int], ...] = ()
    """Why those are dead, and how many; the most frequent reasons."""
    trouble: str = ""
    """Why the latest look failed; empty when it did not. The figures are then of an earlier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestView:
    """What a peek at the first message of a backlog queue found: one set aside or set to appear later, too."""

    read_at: float | None = None
    """None: not looked yet, or nothing is parked."""
    enqueued_at: float | None = None
    """When it came into the queue. None: none was there, or it does not say."""
    trouble: str = ""
    """Why the latest look failed; empty when it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """One backlog queue."""

    index: int
    """The number in its path. An older engine counts its queues instead: where the two differ, `path` is right."""
    path: str
    in_rotation: bool
    pulled_since: float | None = None
    pulled_reason: str = ""
    depth: int | None = None
    """Active messages when last read."""
    dead_lettered: int | None = None
    size_bytes: int | None = None
    read_at: float | None = None
    read_every: float = 5.0
    """Seconds between two readings just now; what is older than twice this is old."""
    moved: int = 0
    """Messages the syphon moved out of it, since the engine started."""
    pump_text: str = ""
    """What its pump last had to say; empty without a syphon."""
    scheduled: int | None = None
    """Of `depth`: set to appear later, as those are that the syphon copied aside."""
    set_aside: int = 0
    """Held by this engine's pump just now until their destinations take them; `depth` may have been read before."""
    growth: float | None = None
    """Messages a second by which the depth grew over the last readings, negative while it drains; None: too few."""
    bytes_growth: float | None = None
    limit_bytes: int | None = None
    """The queue's size limit, by its owner's settings."""
    parked: int | None = None
    """Parked in it now: `depth`, and what this engine diverted and moved since. None: not known."""
    differences: tuple[str, ...] = ()
    """In what its settings differ from what the pairing would have created."""
    dead_reasons: tuple[tuple[str, int], ...] = ()
    """Why this engine dead-lettered messages of it since it started, and how many; the most frequent reasons."""
    dead_letters: DeadLettersView = DeadLettersView()
    oldest: OldestView = OldestView()


class SyphonStatus(StrEnum):
    """Derived from messages moved, never from a task being alive (SPEC.md section 8)."""

    OFF = "off"
    PAUSED = "paused"
    RUNNING = "running"
    IDLE = "idle"
    WAITING = "waiting"
    """Messages are parked that cannot be moved now, for a reason that is known or not to be excluded."""
    STUCK = "stuck"


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonView:
    """The syphon of one engine."""

    status: SyphonStatus
    text: str
    per_second: float = 0.0
    history: tuple[float, ...] = ()
    """Messages moved in each of the last seconds, newest last, at most 60."""
    moved: int = 0
    dead_lettered: int = 0
    elsewhere: tuple[str, ...] = ()
    """Other engines known to run a syphon for the same namespaces."""
    paused_queues: tuple[int, ...] = ()
    """Backlog queues that an operator paused one by one."""
    paused_destinations: tuple[str, ...] = ()

    @property
    def paused_parts(self) -> str:
        """What an operator paused one by one, as a sentence; empty where nothing is."""
        parts = (*(f"backlog/{index}" for index in self.paused_queues), *self.paused_destinations)
        return f"paused by an operator: {', '.join(parts)}" if parts else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedView:
    """How many messages are parked now: the last readings, and what this engine diverted and moved since."""

    messages: int
    read_at: float | None
    """The oldest of the readings that the figure rests on. None: it rests on what this engine diverted and moved, and
    there may be more."""
    known: int
    """Backlog queues whose depth was read at all."""
    queues: int
    draining_since: float | None = None
    """When the backlog began to shrink; None: it does not."""
    drained_per_second: float | None = None
    """Messages a second since then; None: not known."""
    empty_at: float | None = None
    """When it is empty at that rate; None: it does not shrink, or that would be a guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedQueue:
    """A backlog queue under the pairing's prefix that no known engine uses (SPEC.md section 4.3)."""

    path: str
    index: int
    status: str
    messages: int | None = None
    """All but dead letters, as the namespace counted them; None: it did not say. No proof that it is empty."""
    dead_lettered: int | None = None
    size_bytes: int | None = None
    created_at: float | None = None
    last_active: float | None = None
    """When it was last sent to or asked for messages."""
    differences: tuple[str, ...] = ()
    """In what its settings differ from what the pairing would have created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedView:
    """The unused backlog queues, read now and then; stranded messages lie in them."""

    queues: tuple[UnusedQueue, ...] = ()
    read_at: float | None = None
    """When they were listed; None: not yet."""
    read_every: float = 300.0
    trouble: str = ""
    """Why the latest listing failed; empty when it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledView:
    """Operations since the engine started, by cause."""

    sends: int = 0
    parked: int = 0
    pings: int = 0
    receives: int = 0
    waits: int | None = None
    """Of the receives: windows without a message. None, here and below: an engine that does not count them."""
    searches: int | None = None
    """Of the receives: peeks for what is set aside."""
    attaches: int | None = None
    """Of the receives: links that the syphon attached."""
    moves: int = 0
    settlements: int = 0
    sent_bytes: int | None = None
    """Of the bodies that the primary accepted."""
    parked_bytes: int | None = None
    """Of the bodies that backlog queues accepted."""
    received_bytes: int | None = None
    """Of the messages that the syphon was given."""
    moved_bytes: int | None = None
    """Of the messages that destinations were sent by the syphon. Pings and settlements carry no body."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.sends + self.parked + self.pings + self.receives + self.moves + self.settlements


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalView:
    """The journal of one engine, since it started."""

    lines: int = 0
    lost: int = 0
    """Of these: events that the disk did not take."""
    trouble: str = ""
    """Why it is not written at present; empty while it is."""


class FindingVerdict(StrEnum):
    """What looking found out about one thing that a failover rests on."""

    OK = "ok"
    WARN = "warn"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a failover rests on (readiness.py has the rules)."""

    what: str
    verdict: FindingVerdict
    evidence: str
    """What was seen, as a sentence."""
    read_at: float | None = None
    """When; the oldest of several readings. None: it was not looked at."""
    todo: str = ""
    """What a person can do about it; empty where there is nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Would a failover work now? Looked at `at`."""

    at: float
    findings: tuple[Finding, ...]

    @property
    def ready(self) -> bool:
        """Whether nothing that was found says no."""
        return not self.of(FindingVerdict.NO)

    def of(self, *verdicts: FindingVerdict) -> tuple[Finding, ...]:
        """The findings with one of these verdicts."""
        return tuple(finding for finding in self.findings if finding.verdict in verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainView:
    """Whether the backlog is drained by Spark beside this engine, and whether this engine could start that."""

    text: str = ""
    """How far the drain that runs is; empty: none does."""
    trouble: str = ""
    """Why this engine can start none; empty if it can."""
    place: str = ""
    """Where its tasks would run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One engine at `at`."""

    engine: str
    boot: str
    pid: int
    seq: int
    """The newest event's number in this boot."""
    at: float
    pairing: str
    environment: str
    primary: str
    secondary: str
    read_only: bool
    entities: tuple[EntityView, ...]
    queues: tuple[QueueView, ...]
    syphon: SyphonView
    billed: BilledView
    times: str
    """The times in force, as one line: send, failover, ping."""
    alarms: tuple[str, ...] = ()
    caption: str = ""
    """What a demo is showing; empty otherwise."""
    readiness: Readiness | None = None
    """None: not looked yet."""
    unused: UnusedView = UnusedView()
    started_at: float | None = None
    """When this engine started."""
    policy: Policy | None = None
    """The options in force."""
    journal: JournalView | None = None
    own_process: bool = True
    """Whether the engine has a process of its own, which can be told to end; not so inside an application."""
    require_reason: bool = False
    """Whether an act needs a reason."""
    drain: DrainView | None = None
    """None: this engine starts none, and does not look."""
    reading: bool = False
    """Somebody asked for the depths, and they are being read: the next snapshots have newer ones."""
    parked: ParkedView | None = None
    """None: no depth was read yet, and nothing else is known."""
    warnings: tuple[str, ...] = ()
    """What a person may want to look at, and what no engine can judge; unlike alarms it degrades nothing."""
