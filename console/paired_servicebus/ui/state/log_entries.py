"""Events as sentences, and the event log: the newest sentences, oldest first, made from an engine's records.

Screen and headless output share the sentences. Receipts, counts and repetitions of another event have none. A repeated
sentence is counted, and a command and its outcome are one entry. Folded, an entity's pings are counted on the change
they belong to, and a suspect that fails over is one entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import (
    CommandEnded,
    DeadLettered,
    Event,
    PingAccepted,
    PingFailed,
    Record,
    StateChanged,
)
from paired_servicebus.core.operator.why_line import failover_cause
from paired_servicebus.core.text.number_format import milliseconds, plural
from paired_servicebus.core.text.time_format import age, clock
from paired_servicebus.ui.render.spans import LOOKS, Role


class Sentence(NamedTuple):
    """`subject` is an entity, a queue or the source; `text` continues the sentence."""

    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.subject} {self.text}"


def has_sentence(event: e.Event) -> bool:
    """Return whether it is shown: not a receipt, a count, or a repetition of another event."""
    return type(event) in _SENTENCES


def sentence(event: e.Event) -> Sentence:
    """Return the event as a sentence. Raises KeyError: the event has none."""
    return _SENTENCES[type(event)](event)


def event_role(event: e.Event) -> Role:
    """Return the role of the event's sentence."""
    if isinstance(event, e.StateChanged):
        state = next((state for state in State if state == event.now), State.UNKNOWN)
        return LOOKS[state].role
    return _ROLES.get(type(event), Role.TEXT)


_ROLES: Final[dict[type[e.Event], Role]] = {
    e.PingAccepted: Role.HEALTHY,
    e.QueuePulled: Role.SUSPECT,
    e.QueueRestored: Role.HEALTHY,
    e.DeadLettered: Role.SUSPECT,
    e.DestinationFailed: Role.SUSPECT,
    e.DestinationHealed: Role.HEALTHY,
    e.PumpStopped: Role.SUSPECT,
    e.Warned: Role.SUSPECT,
    e.Commanded: Role.KEY,
    e.SyphonPaused: Role.FORCED,
    e.SyphonResumed: Role.HEALTHY,
}


def _started(event: e.EngineStarted) -> Sentence:
    queues = plural(event.backlog_queues, "backlog queue")
    syphon = "with" if event.syphon else "without"
    return Sentence(
        "engine", f"started {event.version}: {event.primary} with {event.secondary}, {queues}, {syphon} a syphon"
    )


def _changed(event: e.StateChanged) -> Sentence:
    by = f" by {event.by}" if event.by and event.by not in event.why else ""
    return Sentence(event.entity, f"{event.now}{by}: {event.why}")


def _commanded(event: e.Commanded) -> Sentence:
    target = f" {event.target}" if event.target else ""
    return Sentence(event.by, f"ordered {event.command}{target}{_reason(event.why)}")


def _part(event: e.SyphonPaused | e.SyphonResumed) -> str:
    """Return the queue or destination, unless the whole syphon is meant."""
    part = f"backlog/{event.queue}" if event.queue is not None else event.destination
    return f"{part}: " if part else ""


def _reason(why: str) -> str:
    return f' "{why}"' if why else ""


def _queue(index: int) -> str:
    return f"backlog/{index}"


_SENTENCES: Final[dict[type[e.Event], Callable[[Any], Sentence]]] = {
    e.EngineStarted: _started,
    e.EngineStopped: lambda it: Sentence("engine", f"ended: {it.reason}"),
    e.EngineRetired: lambda it: Sentence("engine", f"declared gone for good by {it.by}{_reason(it.why)}"),
    e.StateChanged: _changed,
    e.PingAccepted: lambda it: Sentence(it.entity, f"ping {it.number} accepted after {milliseconds(it.took)}"),
    e.PingFailed: lambda it: Sentence(it.entity, f"ping {it.number} failed: {it.reason} ({milliseconds(it.took)})"),
    e.QueuePulled: lambda it: Sentence(_queue(it.queue), f"not accepting: {it.reason}"),
    e.QueueRestored: lambda it: Sentence(_queue(it.queue), "accepting again"),
    e.DeadLettered: lambda it: Sentence(
        it.entity, f"message {it.message_id} dead-lettered in {_queue(it.queue)}: {it.reason}"
    ),
    e.DestinationFailed: lambda it: Sentence(
        it.entity, f"accepts nothing from the syphon: {it.reason}; retried {clock(it.retry_at)}"
    ),
    e.DestinationHealed: lambda it: Sentence(it.entity, "accepts messages from the syphon again"),
    e.PumpStopped: lambda it: Sentence(
        _queue(it.queue), f"pump stopped: {it.reason}; starts again {clock(it.retry_at)}"
    ),
    e.Commanded: _commanded,
    e.BodyShown: lambda it: Sentence(
        "messages", f"{it.by} looked at the body of message {it.message_id or it.number} in {it.target}"
    ),
    e.CommandEnded: lambda it: Sentence("command", f"{it.command_seq} ended: {it.outcome}"),
    e.SyphonPaused: lambda it: Sentence("syphon", f"{_part(it)}paused by {it.by}{_reason(it.why)}"),
    e.SyphonResumed: lambda it: Sentence("syphon", f"{_part(it)}resumed by {it.by}{_reason(it.why)}"),
    e.Warned: lambda it: Sentence(it.about, it.text),
}


MAX_ENTRIES: Final = 5000
"""Entries; about an hour of a busy outage. The journal is complete."""


@dataclass(frozen=True, slots=True)
class Pings:
    """An entity's pings since a change of its state."""

    failed: int = 0
    accepted: int = 0
    last_at: float = 0.0
    over: bool = False
    """Whether a later change ended them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One entry of the log. `at` is the newest of `times` equal events."""

    at: float
    sentence: Sentence
    role: Role = Role.TEXT
    times: int = 1
    kind: str = ""
    place: tuple[str, int] | None = None
    """Boot and seq of the event, to which a later outcome is added."""
    number: int = 0
    """Counts entries from 1; an entry that repeats keeps its number."""
    state: str = ""
    """The new state, if it is a change of state."""
    short: str = ""
    """The text in lists, if it is shorter than the sentence's."""
    pings: Pings | None = None
    """The pings that are folded onto it."""

    @property
    def text(self) -> str:
        """The sentence after its subject, with the number of repetitions and of pings."""
        return self._counted(self.sentence.text) + (f"; then {ping_counts(self.pings)}" if self.pings else "")

    @property
    def brief(self) -> str:
        """The text in lists, without the pings."""
        return self._counted(self.short or self.sentence.text)

    def _counted(self, text: str) -> str:
        return f"{text} (×{self.times:,})" if self.times > 1 else text


Log = tuple[LogEntry, ...]


def append(log: Log, records: Iterable[Record], *, fold: bool = False) -> Log:
    """Return the log with the records that are not routine, at most MAX_ENTRIES entries.

    Args:
        fold: count pings on the change they belong to, and join a suspect with its failover.
    """
    entries = list(log)
    for record in records:
        event = record.event
        if isinstance(event, CommandEnded):
            _add_outcome(entries, record, event)
        elif fold and isinstance(event, PingFailed | PingAccepted):
            _add_ping(entries, record, event)
        elif has_sentence(event):
            _add(entries, _entry(record), fold=fold)
    return tuple(entries[-MAX_ENTRIES:])


def append_missed(log: Log, count: int, *, at: float) -> Log:
    """Return the log with an entry for `count` missing events."""
    missing = Sentence("console", f"{plural(count, 'event')} not shown: too many at a time, or too old")
    return (*log, LogEntry(at=at, sentence=missing, role=Role.MUTED, number=_next(log)))[-MAX_ENTRIES:]


def ping_counts(pings: Pings) -> str:
    """Return the outcomes of pings: `ping ✗ ×20 ✓ ×1`; in ASCII, `x x20`."""
    counts = (("✗", pings.failed), ("✓", pings.accepted))
    return "ping " + " ".join(f"{sign} ×{number:,}" for sign, number in counts if number)


def _next(log: Sequence[LogEntry]) -> int:
    return log[-1].number + 1 if log else 1


def _entry(record: Record) -> LogEntry:
    event = record.event
    text = sentence(event)
    if isinstance(event, DeadLettered):  # without the id, equal ones are counted; the journal has each
        text = Sentence(event.entity, f"dead-lettered in backlog/{event.queue}: {event.reason}")
    return LogEntry(
        at=event.at,
        sentence=text,
        role=event_role(event),
        kind=event.kind,
        place=(record.boot, record.seq),
        state=event.now if isinstance(event, StateChanged) else "",
        short=_short(event),
    )


def _short(event: Event) -> str:
    """Return a failover in few words: its cause."""
    if not isinstance(event, StateChanged) or event.now != State.FAILED_OVER:
        return ""
    cause = failover_cause(event.why)
    return f"{event.now}: {cause}" if cause else ""


def _add(entries: list[LogEntry], new: LogEntry, *, fold: bool) -> None:
    number = _next(entries)
    if entries and (entries[-1].kind, entries[-1].sentence) == (new.kind, new.sentence):
        before = entries.pop()
        new, number = replace(new, times=before.times + 1), before.number
    elif fold and new.state:
        new = _after_last_change(entries, new)
    entries.append(replace(new, number=number))


def _after_last_change(entries: list[LogEntry], new: LogEntry) -> LogEntry:
    """End the pings of the entity's change before, or join a suspect with its failover."""
    index = _last_change(entries, new.sentence.subject)
    if index is None:
        return new
    before = entries[index]
    if before.pings is not None:
        entries[index] = replace(before, pings=replace(before.pings, over=True))
    if (before.state, new.state) != (State.SUSPECT, State.FAILED_OVER):
        return new
    del entries[index]
    cause = new.short.removeprefix(f"{new.state}: ")
    return replace(new, short=f"{new.state} after {age(new.at - before.at)}: {cause}") if cause else new


def _last_change(entries: Sequence[LogEntry], subject: str) -> int | None:
    """Return the index of the entity's latest change, or of pings whose change is not in the log."""
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if entry.sentence.subject == subject and (entry.state or entry.pings is not None):
            return index
    return None


def _add_ping(entries: list[LogEntry], record: Record, event: PingFailed | PingAccepted) -> None:
    index = _last_change(entries, event.entity)
    if index is None:
        text = Sentence(event.entity, "does not accept pings" if isinstance(event, PingFailed) else "accepts pings")
        new = LogEntry(
            at=event.at, sentence=text, kind=event.kind, place=(record.boot, record.seq), number=_next(entries)
        )
        entries.append(new)
        index = len(entries) - 1
    before = entries[index].pings or Pings()
    failed = isinstance(event, PingFailed)
    counted = Pings(before.failed + failed, before.accepted + (not failed), event.at, before.over)
    entries[index] = replace(entries[index], pings=counted)


def _add_outcome(entries: list[LogEntry], record: Record, event: CommandEnded) -> None:
    act = (record.boot, event.command_seq)
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if entry.place == act:
            text = f"{entry.sentence.text}: {event.outcome}"
            entries[index] = replace(entry, sentence=Sentence(entry.sentence.subject, text))
            return
