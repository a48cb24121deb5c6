"""The events shared by state machine, journal, pipeline and screen.

An event is a frozen fact in the past tense, with its time (`at`, seconds since the epoch, UTC). Entities are named by
configured path; a `route` is "primary" or "backlog/N". Events of the healthy path (one per send) reach the state
machine but not the journal; `SendsCounted` sums them up once a second. `Record` gives an event its place in an engine's
history; (engine, boot, seq) has no gaps.

Not here: an event's effects (pairing_machine.py), and its journal form (paired_servicebus.engine.journal.writer).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paired_servicebus.core.model.verdict import FailureKind

KINDS: dict[str, type[Event]] = {}
"""Every journalled kind by its name, for readers of a journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event at `at` (seconds since the epoch)."""

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
    """An event in an engine's history; `seq` counts from 1 within a boot."""

    engine: str
    boot: str
    seq: int
    event: Event


# -- for the machine; journalled as sums ---------------------------------------------------


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
    """A probe of an entity without sends ended after `took` seconds; `failure` None: it was accepted."""

    entity: str
    took: float
    failure: FailureKind | None = None
    reason: str = ""


# -- journalled ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStarted(Event, kind="engine-started"):
    """An engine paired `primary` with `secondary`; it found or created `backlog_queues` queues.

    `predecessor` is the boot before this one that its journal has, `predecessor_seq` the number of that boot's last
    record; None: it has none. So a reader knows whether it has all records of a killed boot.
    """

    pairing: str
    primary: str
    secondary: str
    backlog_queues: int
    syphon: bool
    version: str
    predecessor: str | None = None
    predecessor_seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStopped(Event, kind="engine-stopped"):
    """An engine ended cleanly."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRetired(Event, kind="engine-retired"):
    """An operator declared this record's engine gone for good: it records nothing any more."""

    by: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged(Event, kind="state-changed"):
    """An entity changed its state; `why` is a sentence for the operator."""

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
    """Whether the namespace was busy; the next ping waits for `throttle_wait`."""


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
    """The failed messages of the `SendsCounted` with the same time, for one kind of failure."""

    entity: str
    route: str
    failure: FailureKind
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsCounted(Event, kind="operations"):
    """Billed operations by cause since the last such event.

    Bytes are of bodies for sends, of whole messages for the syphon's moves.
    """

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
    """The depth of a backlog queue was read and had changed."""

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
class _Receipt(Event):
    """The fate of one message, written before anything that depends on it."""

    entity: str
    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _SendReceipt(_Receipt):
    """The fate of a message that an application sent.

    `key` is the name of the gateway's key that its client signed with; None for a sender of this process.
    `time_to_live` is the message's own, in seconds; None: it has the entity's.
    """

    key: str | None = None
    time_to_live: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diverted(_SendReceipt, kind="diverted"):
    """A message was accepted by a backlog queue. `is_scheduled`: receivers get it at a later time."""

    queue: int
    is_scheduled: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered(_SendReceipt, kind="delivered"):
    """The primary accepted a message directly (journal = "all"). `is_scheduled`: receivers get it at a later time."""

    is_scheduled: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt(_SendReceipt, kind="in-doubt"):
    """An attempt ended without an answer; the message may have arrived."""

    route: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(_SendReceipt, kind="refused"):
    """A message was certainly not accepted, and the caller was informed (journal = "all")."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived(_Receipt, kind="received"):
    """A receiver got a message, once per delivery; receivers record it where the pairing has `record_received`.

    `stream` is the unit of order: the session, or a name of the application's own. `number` is the sender's own count
    within it, if any. `subscription` is the topic's subscription that it came from. `sequence_number` is the entity's.
    `delivery_count`: earlier deliveries of the same copy, such as after an abandoned lock; None: unknown.
    """

    stream: str = ""
    number: int | None = None
    subscription: str | None = None
    session: str | None = None
    sequence_number: int | None = None
    delivery_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved(_Receipt, kind="moved"):
    """The syphon's destination accepted a message; written before the backlog's copy is completed."""

    queue: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettered(_Receipt, kind="dead-lettered"):
    """The syphon put a message into its backlog queue's dead-letter queue."""

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
    """A destination accepts messages again."""

    entity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PumpStopped(Event, kind="pump-stopped"):
    """A pump failed on its backlog queue and starts a new cycle at `retry_at`."""

    queue: int
    reason: str
    retry_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Commanded(Event, kind="commanded"):
    """The audit line of an operator's act, written before the act: operator, act, target, reason."""

    command: str
    target: str
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyShown(Event, kind="body-shown"):
    """The audit line of a look at one message's body: who, which queue, which message; never the body.

    target: the path of the queue, or of its dead letters. number: the sequence number.
    """

    by: str
    target: str
    number: int
    message_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnded(Event, kind="command-ended"):
    """The result of the act with `command_seq` in the same boot."""

    command_seq: int
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _EntityOrder(Event):
    entity: str
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced(_EntityOrder, kind="forced"):
    """An operator forced an entity's failover."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned(_EntityOrder, kind="pinned"):
    """An operator pinned an entity to the primary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityReleased(_EntityOrder, kind="released"):
    """An operator released an entity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SyphonOrder(Event):
    by: str
    why: str = ""
    queue: int | None = None
    destination: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonPaused(_SyphonOrder, kind="syphon-paused"):
    """An operator paused the syphon: for one queue, for one destination, or entirely without either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonResumed(_SyphonOrder, kind="syphon-resumed"):
    """The syphon resumed: for one queue, for one destination, or entirely. Resuming it entirely keeps single pauses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Event, kind="warned"):
    """A remark for the operator that changes no state."""

    about: str
    text: str
