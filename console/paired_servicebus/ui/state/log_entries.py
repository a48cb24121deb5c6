"""Events as sentences, and the event log: the newest sentences, oldest first, made from an engine's records.

Screen and headless output share the sentences. Receipts, counts and repetitions of another event have none. A repeated
sentence is counted, and a command and its outcome are one entry. Folded, an entity's pings are counted on the change
they belong to, and a suspect that fails over is one entry.

Engines of other hosts write no record here: their entries are what changed between two states of the fleet, at the time
that they reported. An engine's own entries keep their order; those of others are put between them by time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.entity_state import WELL, State
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetEntityState, FleetOrder, FleetStatus, FleetView
from paired_servicebus.core.model.pairing_events import (
    CommandEnded,
    DeadLettered,
    Event,
    PingAccepted,
    PingFailed,
    Record,
    StateChanged,
)
from paired_servicebus.core.model.pairing_fold import MAX_NAMED
from paired_servicebus.core.operator.fleet_sentences import order_head
from paired_servicebus.core.operator.why_line import failover_cause
from paired_servicebus.core.text.number_format import milliseconds, plural
from paired_servicebus.core.text.time_format import age, clock
from paired_servicebus.core.text.untrusted_text import name, names, natural, reason
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
    """Counts entries from 1, those of other engines from -1 down; an entry that repeats keeps its number."""
    state: str = ""
    """The new state, if it is a change of state."""
    short: str = ""
    """The text in lists, if it is shorter than the sentence's."""
    pings: Pings | None = None
    """The pings that are folded onto it."""
    engine: str = ""
    """The engine that it is about; empty: none alone."""

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


def append(log: Log, records: Iterable[Record], *, fold: bool = False, engine: str = "") -> Log:
    """Return the log with the records that are not routine, at most MAX_ENTRIES entries.

    Args:
        fold: count pings on the change they belong to, and join a suspect with its failover.
        engine: the engine's name in its fleet; empty: there is none.
    """
    entries = list(log)
    for record in records:
        event = record.event
        if isinstance(event, CommandEnded):
            _add_outcome(entries, record, event)
        elif fold and isinstance(event, PingFailed | PingAccepted):
            _add_ping(entries, record, event)
        elif has_sentence(event):
            _add(entries, replace(_entry(record), engine=engine), fold=fold)
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
    return next((entry.number for entry in reversed(log) if entry.number > 0), 0) + 1


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
    place = len(entries)
    while place and entries[place - 1].number < 0 and entries[place - 1].at > new.at:
        place -= 1
    entries.insert(place, replace(new, number=number))


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
        if entry.number > 0 and entry.sentence.subject == subject and (entry.state or entry.pings is not None):
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


# -- other engines -----------------------------------------------------------------------------------------------------

MAX_AT_ONCE: Final = 100
"""Entries about other engines of one change of the fleet; anybody with Send may claim any number of engines."""
MAX_ALIKE: Final = 3
"""Engines with an entry each where they report alike."""
FLEET: Final = "fleet"


def append_fleet(log: Log, was: FleetView | None, now: FleetView, at: float) -> Log:
    """Return the log with what changed at other engines, and with new orders over the fleet; none is later than `at`.

    was: None, the fleet was not known before: then what stands now is new.
    """
    if was is not None and (was.engines, was.orders) == (now.engines, now.orders):
        return log
    known = {(one.engine, one.boot): one for one in was.engines} if was is not None else {}
    orders = {one.id for one in was.orders} if was is not None else ()
    others = (one for one in now.engines if not now.is_me(one) and not one.is_claimed)
    found = [new for one in others for new in _of_engine(known.get((one.engine, one.boot)), one, was is None)]
    found = [*_grouped(found), *(_of_order(one) for one in now.orders if one.id not in orders)]
    if left := found[MAX_AT_ONCE:]:
        many = Sentence(FLEET, f"{plural(len(left), 'more change')} of other engines at once: page 7 has the engines")
        found[MAX_AT_ONCE:] = [LogEntry(at=at, sentence=many, role=Role.MUTED)]
    entries, number = list(log), min((one.number for one in log), default=0)
    for new in sorted(found, key=lambda one: one.at):
        number = min(number, 0) - 1
        entry = replace(new, at=min(new.at, at), number=number, kind=FLEET)
        place = len(entries)
        while place and entries[place - 1].at > entry.at:
            place -= 1
        entries.insert(place, entry)
    return tuple(entries[-MAX_ENTRIES:])


def _grouped(found: Sequence[LogEntry]) -> list[LogEntry]:
    """Return one entry for what many engines report alike, at the time of the first, with their names."""
    alike: dict[tuple[str, str], list[LogEntry]] = {}
    for entry in found:
        alike.setdefault((entry.sentence.subject, entry.sentence.text.partition(" since ")[0]), []).append(entry)
    grouped: list[LogEntry] = []
    for (subject, text), entries in alike.items():
        if len(entries) <= MAX_ALIKE:
            grouped += entries
            continue
        first = min(entries, key=lambda one: one.at)
        who = names(sorted((one.engine for one in entries), key=natural), MAX_NAMED)
        number = f"{len(entries):,} engines"
        grouped.append(replace(first, sentence=Sentence(subject, f"{text}: {who}"), engine=number))
    return grouped


def _of_engine(was: FleetEngine | None, now: FleetEngine, is_first: bool) -> list[LogEntry]:
    """Return what an engine's documents say that those before did not."""
    found, bad = list[LogEntry](), {one.path: one for one in now.not_well if one.state not in WELL}
    text = _of_status(was, now, is_first)
    if text:
        at = now.started_at if text.startswith("started") else now.heard_at
        found.append(LogEntry(at=at, sentence=Sentence("engine", text), engine=name(now.engine)))
    before = {one.path: one for one in was.not_well if one.state not in WELL} if was is not None else {}
    for path, one in bad.items():
        old = before.get(path)
        if old is None or old.state is not one.state or abs(old.since - one.since) > SAME_SECONDS:
            found.append(_of_state(now, path, one))
    is_whole = sum(number for state, number in now.states if state not in WELL) == len(bad)
    for path in before if is_whole and now.status is FleetStatus.REPORTING else ():
        if path not in bad:
            well = Sentence(name(path), "no longer " + before[path].state)
            found.append(
                LogEntry(at=now.heard_at, sentence=well, role=LOOKS[State.HEALTHY].role, engine=name(now.engine))
            )
    return found


SAME_SECONDS: Final = 1.0
"""Between two times of one change: a presence and a report may round differently."""


def _of_status(was: FleetEngine | None, now: FleetEngine, is_first: bool) -> str:
    if was is not None and was.status is now.status:
        return ""
    if now.status is FleetStatus.SILENT:
        return "silent: no document since"
    if now.status is FleetStatus.ENDED:
        return f"ended: {reason(now.reason) or 'no reason given'}"
    if was is not None:
        return "reports again"
    return "" if is_first else f"started {name(now.version)}"


def _of_state(engine: FleetEngine, path: str, one: FleetEntityState) -> LogEntry:
    began = one.first_failure_at
    cause = f": {one.first_failure_kind or 'failure'} since {clock(began)}" if began is not None else ""
    return LogEntry(
        at=one.since, sentence=Sentence(name(path), f"{one.state}{cause}"), role=LOOKS[one.state].role,
        engine=name(engine.engine), state=one.state,
    )  # fmt: skip


def _of_order(order: FleetOrder) -> LogEntry:
    """Return who ordered what until when, and why."""
    text = f"{order_head(order, order.at)}: {reason(order.why) or 'no reason given'}"
    return LogEntry(at=order.at, sentence=Sentence("order", text), role=Role.KEY, engine=FLEET)
