"""The event log: the newest sentences, oldest first, made from an engine's records.

Routine events are omitted, a repeated sentence is counted, and a command and its outcome are one entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from paired_servicebus.core.model.pairing_events import CommandEnded, DeadLettered, Record
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.ui.render.sentences import ROUTINE, Sentence, event_role, sentence
from paired_servicebus.ui.render.spans import Role

MAX_ENTRIES: Final = 5000
"""Entries; about an hour of a busy outage. The journal is complete."""


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

    @property
    def text(self) -> str:
        """The sentence after its subject, with the number of repetitions."""
        return f"{self.sentence.text} (×{self.times:,})" if self.times > 1 else self.sentence.text


Log = tuple[LogEntry, ...]


def append(log: Log, records: Iterable[Record]) -> Log:
    """Return the log with the records that are not routine, at most MAX_ENTRIES entries."""
    entries = list(log)
    for record in records:
        if isinstance(record.event, CommandEnded):
            _add_outcome(entries, record, record.event)
        elif type(record.event) not in ROUTINE:
            _add(entries, _entry(record))
    return tuple(entries[-MAX_ENTRIES:])


def append_missed(log: Log, count: int, *, at: float) -> Log:
    """Return the log with an entry for `count` missing events."""
    missing = Sentence("console", f"{plural(count, 'event')} not shown: too many at a time, or too old")
    return (*log, LogEntry(at=at, sentence=missing, role=Role.MUTED, number=_next(log)))[-MAX_ENTRIES:]


def _next(log: Sequence[LogEntry]) -> int:
    return log[-1].number + 1 if log else 1


def _entry(record: Record) -> LogEntry:
    event = record.event
    text = sentence(event)
    if isinstance(event, DeadLettered):  # without the id, equal ones are counted; the journal has each
        text = Sentence(event.entity, f"dead-lettered in backlog/{event.queue}: {event.reason}")
    return LogEntry(
        at=event.at, sentence=text, role=event_role(event), kind=event.kind, place=(record.boot, record.seq)
    )


def _add(entries: list[LogEntry], new: LogEntry) -> None:
    number = _next(entries)
    if entries and (entries[-1].kind, entries[-1].sentence) == (new.kind, new.sentence):
        before = entries.pop()
        new, number = replace(new, times=before.times + 1), before.number
    entries.append(replace(new, number=number))


def _add_outcome(entries: list[LogEntry], record: Record, event: CommandEnded) -> None:
    act = (record.boot, event.command_seq)
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if entry.place == act:
            text = f"{entry.sentence.text}: {event.outcome}"
            entries[index] = replace(entry, sentence=Sentence(entry.sentence.subject, text))
            return
