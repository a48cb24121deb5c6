"""What happened: the one vocabulary that state machine, journal, pipeline and screen share.

Rules: an event is a fact in the past tense, frozen, with the time it happened (`at`, seconds since the epoch, UTC).
Entities are named by path as configured; a `route` is "primary" or "backlog/N". Events that would cost the healthy
path (one per send) are told to the machine but not journalled; `SendsCounted` sums them up once a second.
`Record` is an event with its place in an engine's history; (engine, boot, seq) has no gaps.

Not here: what follows from an event (entity.py, engine.py), and how it is written down (paired_servicebus.engine.journal.writer).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paired_servicebus.core.model.verdict import FailureKind

KINDS: dict[str, type[Event]] = {}
"""Every journalled kind by its name, for readers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened at `at` (seconds since the epoch)."""

    at: float
    kind: ClassVar[str] = ""

    def __init_subclass__(cls, *, kind: str = "") -> None:
        # slots=True makes each class twice, the second time from the first one's attributes and without arguments.
        kind = kind or cls.__dict__.get("kind", "")
        if kind:
            cls.kind = kind
            KINDS[kind] = cls


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An event in an engine's history: seq counts from 1 within a boot."""

    engine: str
    boot: str
    seq: int
    event: Event


# -- told to the machine, summed up before they are journalled ---------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked(Event):
    """Time passed; deadlines up to `at` are due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAccepted(Event):
    """One attempt was accepted. `queue` is the backlog queue's index, None for the primary."""

    entity: str
    queue: int | None = None
    messages: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFailed(Event):
    """One attempt ended with a failure, the SDK's own retries included."""

    entity: str
    queue: int | None = None
    failure: FailureKind
    reason: str
    messages: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProbed(Event):
    """A pulled backlog queue was tried again."""

    queue: int
    accepted: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityProbed(Event):
    """A probe of an entity that nothing is sent to ended after `took` seconds; `failure` None: it was accepted."""

    entity: str
    took: float
    failure: FailureKind | None = None
    reason: str = ""


# -- journalled ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStarted(Event, kind="engine-started"):
    """An engine paired `primary` with `secondary` and found or made `backlog_queues` queues."""

    pairing: str
    primary: str
    secondary: str
    backlog_queues: int
    syphon: bool
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStopped(Event, kind="engine-stopped"):
    """An engine ended in order."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged(Event, kind="state-changed"):
    """An entity went from one state to another; `why` is a sentence for a person."""

    entity: str
    was: str
    now: str
    why: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PingSent(Event, kind="ping-sent"):
    """Ping `number` of this failover left for the primary."""

    entity: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PingAccepted(Event, kind="ping-accepted"):
    """The primary accepted a ping after `took` seconds."""

    entity: str
    number: int
    took: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PingFailed(Event, kind="ping-failed"):
    """A ping was refused, throttled or not answered."""

    entity: str
    number: int
    reason: str
    took: float
    throttled: bool = False
    """The namespace was busy: the next ping leaves it alone for `throttle_wait`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendsCounted(Event, kind="sends"):
    """Sends of one entity over one route since the last such event (about a second)."""

    entity: str
    route: str
    accepted: int
    failed: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailuresCounted(Event, kind="failures"):
    """Of the failed sends in a `SendsCounted` of the same time: those that failed in one way, in messages."""

    entity: str
    route: str
    failure: FailureKind
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsCounted(Event, kind="operations"):
    """Billed operations by cause since the last such event, and the bytes that went with them: of bodies for sends, of
    whole messages for what the syphon moved."""

    sends: int
    parked: int
    pings: int
    receives: int
    moves: int
    settlements: int
    sent_bytes: int
    parked_bytes: int
    moved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRead(Event, kind="queue-read"):
    """The depth of a backlog queue, when it was read and found changed."""

    queue: int
    depth: int
    size_bytes: int
    dead_lettered: int
    scheduled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePulled(Event, kind="queue-pulled"):
    """A backlog queue left the rotation."""

    queue: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRestored(Event, kind="queue-restored"):
    """A backlog queue is in the rotation again."""

    queue: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diverted(Event, kind="diverted"):
    """Receipt: a message was accepted by a backlog queue."""

    entity: str
    message_id: str
    queue: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered(Event, kind="delivered"):
    """Receipt: the primary accepted a message directly (journal = "all")."""

    entity: str
    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt(Event, kind="in-doubt"):
    """Receipt: an attempt ended without an answer; the message may have arrived."""

    entity: str
    message_id: str
    route: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Event, kind="refused"):
    """Receipt: the caller was told that this message was not accepted, and that is certain (journal = "all")."""

    entity: str
    message_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Received(Event, kind="received"):
    """Receipt: a receiver was given a message, once for each delivery. Applications that want their messages audited to
    the end record it; `stream` is what order is kept in, `number` the sender's own count within it, if it has one.
    `subscription`: of a topic, the one that it was received from."""

    entity: str
    message_id: str
    stream: str = ""
    number: int | None = None
    subscription: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved(Event, kind="moved"):
    """Receipt: the syphon's destination accepted a message; written before the backlog's copy is completed."""

    entity: str
    message_id: str
    queue: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettered(Event, kind="dead-lettered"):
    """Receipt: the syphon put a message into its backlog queue's dead-letter queue."""

    entity: str
    message_id: str
    queue: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationFailed(Event, kind="destination-failed"):
    """The syphon could not deliver to a destination; its messages wait until `retry_at`."""

    entity: str
    reason: str
    retry_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationHealed(Event, kind="destination-healed"):
    """A destination takes messages again."""

    entity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PumpStopped(Event, kind="pump-stopped"):
    """A pump could not go on with its backlog queue and starts a new cycle at `retry_at`."""

    queue: int
    reason: str
    retry_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Commanded(Event, kind="commanded"):
    """The audit line of an operator's act, written before the act: who, what, on what, why."""

    command: str
    target: str
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnded(Event, kind="command-ended"):
    """What came of the act that stands at `command_seq` in the same boot."""

    command_seq: int
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced(Event, kind="forced"):
    """An operator failed an entity over by hand."""

    entity: str
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned(Event, kind="pinned"):
    """An operator pinned an entity to the primary."""

    entity: str
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(Event, kind="released"):
    """An operator gave an entity back to the rules."""

    entity: str
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonPaused(Event, kind="syphon-paused"):
    """An operator paused the syphon: for one queue, for one destination, or altogether where neither is named."""

    by: str
    why: str = ""
    queue: int | None = None
    destination: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonResumed(Event, kind="syphon-resumed"):
    """The syphon moves messages again: out of one queue, to one destination, or altogether. What was paused one by
    one stays paused until it is resumed one by one."""

    by: str
    why: str = ""
    queue: int | None = None
    destination: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Event, kind="warned"):
    """Something a person should know that changes no state."""

    about: str
    text: str
