"""An engine's state at one moment: the frozen values shown by dashboard, status and metrics.

A number read from a namespace has its time (`read_at`, seconds since the epoch, UTC). None means unknown, never zero.
Each snapshot names its engine, so that one console can watch many. Sentences are made here or in why_line.py only, so
that screen, log and tests agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from paired_servicebus.core.model.entity_state import EntityFacts
from paired_servicebus.core.model.fleet_view import FleetView
from paired_servicebus.core.model.gateway_view import GatewayView
from paired_servicebus.core.model.policy import Policy

PRIMARY: Final = "primary"
SECONDARY: Final = "secondary"
"""The two namespaces of a pairing, in a trouble."""
MAX_DESTINATIONS: Final = 200
"""Destinations in the view of a syphon."""
NOWHERE: Final = "nowhere"
"""The route of an entity that diverts while no backlog queue is in the rotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteView:
    """One entity's sends over one route, in messages, since the engine started."""

    route: str
    """"primary" or "backlog/N"."""
    accepted: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityView(EntityFacts):
    """One entity: its state, its why-line, and this engine's sends to it."""

    why: str
    route: str
    """The route of a send now: "primary", "backlog", "backlog/N" if one queue accepted the latest sends, or
    "nowhere"."""
    sends_per_second: float
    accepted: int
    """Messages accepted by the primary, since the engine started."""
    diverted: int
    """Messages accepted by backlog queues."""
    failed: int
    """Attempts that failed."""
    next_ping_at: float | None = None
    pings_sent: int = 0
    """Since the engine started."""
    pings_accepted: int = 0
    too_large: int = 0
    """Messages the primary accepted that would not fit into a backlog queue, since the engine started."""
    recent_pings: tuple[float | None, ...] = ()
    """Seconds of each of the latest pings, newest last, at most 20; None: not accepted."""
    sends: tuple[RouteView, ...] = ()
    """The used routes, the primary first."""
    refused: int = 0
    """Messages of calls that ended in an error at their caller, since the engine started."""
    refused_per_second: float = 0.0
    """The same, over the last seconds."""
    refused_since: float | None = None
    """Start of the present series of refused calls; None: the latest call succeeded."""
    refusals: tuple[tuple[str, int], ...] = ()
    """The most frequent reasons for refused calls, with their messages."""
    first_failure_kind: str = ""
    """What failed then, a value of `FailureKind`; empty: there is no episode."""
    refused_in_outage: int = 0
    """Messages of refused calls since the entity last left a well state; 0 in a well state."""
    refused_at: float | None = None
    """Time of the latest refused call; None: there was none."""
    carried: bool = False
    """Whether this engine's process has a sender for the entity; without one an order diverts no sender."""
    gateway_senders: int = 0
    """Senders of the gateway's clients."""
    p99: float | None = None
    """Seconds within which 99 of 100 calls of the last minute ended; None: there was none."""
    is_slow: bool = False
    """Whether that is more than a tenth of `send_timeout`."""
    throttled: int = 0
    """Calls that wait now because the namespace is busy, and those that gave up the wait in the last seconds."""
    throttled_since: float | None = None
    """When the first of these calls met it; None: there is none."""
    unanswered_since: float | None = None
    """When the oldest call without an answer began, once that is UNANSWERED_SECONDS ago; None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettersView:
    """The result of a peek at the first dead letters of a backlog queue, from any source."""

    read_at: float | None = None
    """None: not read yet, or there are none."""
    looked_at: int = 0
    """Number of dead letters read, from the first; there may be more."""
    reasons: tuple[tuple[str, int], ...] = ()
    """The most frequent reasons of those dead letters, with their number."""
    trouble: str = ""
    """Why the latest peek failed; empty: it succeeded. After a failure the figures are older."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestView:
    """The result of a peek at the first message of a backlog queue, deferred and scheduled ones included."""

    read_at: float | None = None
    """None: not read yet, or nothing is parked."""
    enqueued_at: float | None = None
    """Enqueued time of that message. None: there is no message, or no time."""
    destination: str = ""
    """The entity that it is for; empty: unknown."""
    trouble: str = ""
    """Why the latest peek failed; empty: it succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """One backlog queue."""

    index: int
    """The number in its path."""
    path: str
    in_rotation: bool
    pulled_since: float | None = None
    pulled_reason: str = ""
    is_unsafe: bool = False
    """Whether it is out of the rotation because its settings can lose a message."""
    depth: int | None = None
    """Active messages at `read_at`."""
    dead_lettered: int | None = None
    size_bytes: int | None = None
    read_at: float | None = None
    read_every: float = 5.0
    """Current seconds between two readings; a reading older than twice this is outdated."""
    moved: int = 0
    """Messages that the syphon moved out of it, since the engine started."""
    pump_text: str = ""
    """Its pump's last sentence; empty without a syphon."""
    scheduled: int | None = None
    """Scheduled messages within `depth`, including those that the syphon rescheduled."""
    set_aside: int = 0
    """Messages that this engine's pump holds back for unavailable destinations; may be newer than `depth`."""
    growth: float | None = None
    """Growth of the depth in messages a second over the last readings, negative while draining; None: too few
    readings."""
    bytes_growth: float | None = None
    limit_bytes: int | None = None
    """The queue's size limit."""
    parked: int | None = None
    """Parked messages now: `depth`, corrected by this engine's sends and moves since. None: unknown."""
    differences: tuple[str, ...] = ()
    """Settings that differ from those of a queue created by the pairing."""
    dead_reasons: tuple[tuple[str, int], ...] = ()
    """The most frequent reasons of messages that this engine dead-lettered since it started, with their number."""
    dead_letters: DeadLettersView = DeadLettersView()
    oldest: OldestView = OldestView()


class SyphonStatus(StrEnum):
    """The syphon's status, derived from moved messages, not from running tasks (SPEC.md section 8)."""

    OFF = "off"
    PAUSED = "paused"
    RUNNING = "running"
    IDLE = "idle"
    WAITING = "waiting"
    """Parked messages cannot be moved now, for a reason that is known or possible."""
    STUCK = "stuck"


MOVING_STATUSES: Final = frozenset({SyphonStatus.IDLE, SyphonStatus.WAITING, SyphonStatus.RUNNING})
"""Those that would move a parked message."""
BUSY_STATUSES: Final = frozenset({SyphonStatus.WAITING, SyphonStatus.RUNNING})


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationView:
    """What an engine's syphon did with the messages for one entity."""

    path: str
    set_aside: int
    """Messages that it holds back in the backlog queues now."""
    moved: int
    """Messages that it moved there, since the engine started."""


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
    """Other known engines with a syphon for the same namespaces."""
    paused_queues: tuple[int, ...] = ()
    """Backlog queues that an operator paused singly."""
    paused_destinations: tuple[str, ...] = ()
    destinations: tuple[DestinationView, ...] = ()
    """Those with the most messages held back, then moved; at most MAX_DESTINATIONS."""

    @property
    def paused_parts(self) -> str:
        """Return the singly paused queues and destinations as a sentence; empty: none."""
        parts = (*(f"backlog/{index}" for index in self.paused_queues), *self.paused_destinations)
        return f"paused by an operator: {', '.join(parts)}" if parts else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedView:
    """The number of parked messages now: the last readings, corrected by this engine's sends and moves since."""

    messages: int
    read_at: float | None
    """Time of the oldest reading in the figure. None: only this engine's own counts, so there may be more."""
    known: int
    """Backlog queues with a known depth."""
    queues: int
    draining_since: float | None = None
    """Time since which the backlog shrinks; None: it does not."""
    drained_per_second: float | None = None
    """Messages a second since then; None: unknown."""
    empty_at: float | None = None
    """Expected end of the backlog at that rate; None: it does not shrink, or the rate is too uncertain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedQueue:
    """A backlog queue under the pairing's prefix that no known engine uses (SPEC.md section 4.3)."""

    path: str
    index: int
    status: str
    messages: int | None = None
    """Messages by the namespace's count, without dead letters; None: unknown. Zero does not prove that it is empty."""
    dead_lettered: int | None = None
    size_bytes: int | None = None
    created_at: float | None = None
    last_active: float | None = None
    """Time of the last send or receive request."""
    differences: tuple[str, ...] = ()
    """Settings that differ from those of a queue created by the pairing."""
    is_moved: bool = False
    """Whether a known engine's syphon moves its messages."""
    grows: bool = False
    """Whether an application parks there, and no syphon known to this engine's syphon moves it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedView:
    """The unused backlog queues, listed periodically; stranded messages are in them."""

    queues: tuple[UnusedQueue, ...] = ()
    read_at: float | None = None
    """Time of the listing; None: not listed yet."""
    read_every: float = 300.0
    trouble: str = ""
    """Why the latest listing failed; empty: it succeeded."""


@dataclass(slots=True)
class Meter:
    """Operations by cause, since the engine started. A snapshot has a copy of it."""

    sends: int = 0
    """Attempts on the primary."""
    parked: int = 0
    pings: int = 0
    receives: int = 0
    """Messages that the syphon received from backlog queues, calls without a message (the three below), and each peek
    into a backlog queue."""
    waits: int = 0
    """Receive windows without a message, within `receives`."""
    searches: int = 0
    """Peeks for deferred messages, within `receives`."""
    attaches: int = 0
    """Attached links, within `receives`; includes links attached again after an idle detach."""
    moves: int = 0
    """Attempts of the syphon on destinations."""
    settlements: int = 0
    """Messages that the syphon completed, deferred or dead-lettered."""
    sent_bytes: int = 0
    """Bytes of bodies accepted by the primary."""
    parked_bytes: int = 0
    """Bytes of bodies accepted by backlog queues."""
    received_bytes: int = 0
    """Bytes of messages that the syphon received: whole ones by our own AMQP, but only forwarded bodies by the SDK."""
    moved_bytes: int = 0
    """Bytes of messages sent to destinations by the syphon. Pings and settlements have no body."""
    fleet: int | None = None
    """Operations on the boards of the fleet; None: it is off, or not counted here."""

    @property
    def total(self) -> int:
        """Return the sum of all operations."""
        own = self.sends + self.parked + self.pings + self.receives + self.moves + self.settlements
        return own + (self.fleet or 0)

    def waited(self) -> None:
        """Count a receive window without a message."""
        self.receives += 1
        self.waits += 1

    def searched(self) -> None:
        """Count a peek for deferred messages."""
        self.receives += 1
        self.searches += 1

    def attached(self) -> None:
        """Count a link attached to a backlog queue."""
        self.receives += 1
        self.attaches += 1

    def carried(self, queue: int | None, size: int) -> None:
        """Count accepted bodies of `size` bytes; `queue` None: accepted by the primary."""
        if queue is None:
            self.sent_bytes += size
        else:
            self.parked_bytes += size


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalView:
    """The journal of one engine, since it started."""

    lines: int = 0
    lost: int = 0
    """Events that could not be written, within `lines`."""
    trouble: str = ""
    """Why it is not being written; empty while it is."""


class TroubleKind(StrEnum):
    """What a component observed. The values are the names of the rows of core/operator/alarms.py."""

    NAMESPACE_UNREACHABLE = "namespace_unreachable"
    CREDENTIAL_REFUSED = "credential_refused"
    CREDENTIAL_SILENT = "credential_silent"
    ENTITY_MISSING = "entity_missing"
    ENTITY_UNAUTHORIZED = "entity_unauthorized"
    CLIENT_CLOSED = "client_closed"
    STARTED_DEGRADED = "started_degraded"
    OTHER_NAME = "other_name"
    BACKLOG_LINK = "backlog_link"
    BACKLOG_UNREAD = "backlog_unread"
    BACKLOG_STALLED = "backlog_stalled"
    SYPHON_UNKNOWN = "syphon_unknown"
    PORT_IN_USE = "port_in_use"
    GATEWAY_CLOSED = "gateway_closed"
    SIGNERS = "signers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something wrong that a component observed, and that no other part of a snapshot has."""

    kind: TroubleKind
    what: str = ""
    """Which namespace, entity, queue or port."""
    reason: str
    since: float | None = None
    """None: unknown."""


class FindingVerdict(StrEnum):
    """The verdict on one precondition of a failover, or on one right."""

    OK = "ok"
    WARN = "warn"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One precondition of a failover (failover_readiness.py), or one right (board_setup.py), with its verdict."""

    what: str
    verdict: FindingVerdict
    evidence: str
    """The evidence, as a sentence."""
    read_at: float | None = None
    """Time of the oldest reading in the evidence. None: not examined."""
    todo: str = ""
    """The remedy; empty: none is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The answer to "would a failover work now?", at `at`."""

    at: float
    findings: tuple[Finding, ...]

    @property
    def ready(self) -> bool:
        """Return whether no finding is NO."""
        return not self.of(FindingVerdict.NO)

    def of(self, *verdicts: FindingVerdict) -> tuple[Finding, ...]:
        """Return the findings with one of these verdicts."""
        return tuple(finding for finding in self.findings if finding.verdict in verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainView:
    """A drain by Spark beside this engine, and this engine's ability to start one."""

    text: str = ""
    """Progress of the running drain; empty: none runs."""
    trouble: str = ""
    """Why this engine cannot start one; empty if it can."""
    place: str = ""
    """The place where its tasks would run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingFacts:
    """What a snapshot of an engine, and a pairing's condition, have of a pairing at `at`."""

    at: float
    primary: str
    secondary: str
    entities: tuple[EntityView, ...] = ()
    """This engine's: each with its state and since when, its route, its refused and its waiting calls."""
    queues: tuple[QueueView, ...] = ()
    syphon: SyphonView
    unused: UnusedView = UnusedView()
    parked: ParkedView | None = None
    """None: no depth was read, and there are no counts."""
    troubles: tuple[Trouble, ...] = ()
    """What no other field has; core/operator/alarms.py makes the alarms of it, and of the other fields."""
    readiness: Readiness | None = None
    """None: not examined yet."""
    journal: JournalView | None = None
    """None: nothing writes one here."""
    gateway: GatewayView | None = None
    """The gateway and its clients; None: this engine has none. A report on a board has no clients."""
    fleet: FleetView | None = None
    """The pairing's engines on every host; None: the fleet is off. A report on a board has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(PairingFacts):
    """One engine at `at`."""

    engine: str
    boot: str
    pid: int
    seq: int
    """The newest event's number in this boot."""
    pairing: str
    environment: str
    read_only: bool
    entities: tuple[EntityView, ...]
    queues: tuple[QueueView, ...]
    billed: Meter
    """Operations since the engine started, as they were then."""
    times: str
    """The times in force as one line: send, failover, ping."""
    caption: str = ""
    """The caption of a demo; empty otherwise."""
    started_at: float | None = None
    """Start time of this engine."""
    policy: Policy | None = None
    """The options in force."""
    own_process: bool = True
    """Whether the engine has its own process that can be stopped; False inside an application."""
    require_reason: bool = False
    """Whether an act requires a reason."""
    drain: DrainView | None = None
    """None: this engine neither starts nor watches drains."""
    reading: bool = False
    """Whether requested depths are being read; the next snapshots contain them."""
