"""The library's log: one line for each fact about a failover that an operator needs (SPEC.md section 12).

The logger is `paired_servicebus.pairing`. It reports changes of an entity's state, backlog queues that leave or rejoin
the rotation, the beginning and end of refused calls, and warnings. No line is written per message or per call.

The rate is bounded. A subject gets MAX_LINES a minute; further lines are counted, and the last of them is written with
their number after the minute. Warnings of one kind are collected for a second, then for a minute.

The SDK warns of each connection that a namespace ends, for every link on it. The pairing receives the same failures,
judges them and logs the consequences, so a filter drops these records. Records at INFO and below, of an application's
receivers, and of its senders outside the pairing are unchanged.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from weakref import WeakSet, WeakValueDictionary

from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.accounting.refused_calls import RefusalEpisode
from paired_servicebus.core.model.entity_state import DIVERTING, State
from paired_servicebus.core.model.pairing_events import Event, QueuePulled, QueueRestored, StateChanged, Warned
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.core.operator.alarms import ALARM, OVER, Severity
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pairing import sdk_internals

MAX_LINES: Final = 6
"""Lines of one subject in FOLD_SECONDS: two failovers, each with its beginning and its end."""
FOLD_SECONDS: Final = 60.0
COLLECT_SECONDS: Final = 1.0
MAX_CHARACTERS: Final = 500
"""Characters of a line."""
MAX_REASONS: Final = 3
"""Reasons in the line about the end of refused calls."""

log = logging.getLogger("paired_servicebus.pairing")


@dataclass(slots=True)
class _Subject:
    """One subject's written and pending lines."""

    due: float
    """When the pending lines are written; without any, when the count starts again."""
    left: int
    """Lines that may still be written immediately."""
    waiting: int = 0
    level: int = logging.INFO
    text: str = ""
    """The first pending warning, else the latest line."""


class EventLog:
    """The log of one pairing.

    Args:
        policy: the options in force, for predictions in lines.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._subjects: dict[tuple[str, str], _Subject] = {}
        self.writers: dict[type[Event], Callable[[Any], None]] = {
            StateChanged: self._state_changed,
            QueuePulled: self._queue_pulled,
            QueueRestored: self._queue_restored,
            Warned: self._warned,
        }

    def refused(self, entity: str, reason: str, at: float) -> None:
        """Write that calls begin to be refused."""
        self._write(("calls", entity), logging.WARNING, f"sends to {entity} are refused at their callers: {reason}", at)

    def refused_no_longer(self, entity: str, episode: RefusalEpisode) -> None:
        """Write the totals of refused calls."""
        reasons = ", ".join(f"{reason} {count}" for reason, count in episode.reasons.most_common(MAX_REASONS))
        messages = "1 message" if episode.messages == 1 else f"{episode.messages:,} messages"
        text = (
            f"sends to {entity} are refused no longer: {messages} in "
            f"{max(episode.latest - episode.began, 0.1):.1f} s ({reasons})"
        )
        self._write(("calls", entity), logging.INFO, text, episode.latest)

    def tick(self, at: float) -> None:
        """Write the pending lines that are due."""
        for key, subject in tuple(self._subjects.items()):
            if subject.due > at:
                continue
            if not subject.waiting:
                del self._subjects[key]
                continue
            self._write_waiting(subject)
            subject.due = at + FOLD_SECONDS

    def close(self) -> None:
        """Write the pending lines."""
        for subject in self._subjects.values():
            if subject.waiting:
                self._write_waiting(subject)
        self._subjects.clear()

    # -- events -----------------------------------------------------------------------------------------------

    def _state_changed(self, event: StateChanged) -> None:
        line = self._change(event)
        if line is not None:
            level, text = line
            self._write(("entity", event.entity), level, f"{event.entity} {text}", event.at)

    def _change(self, event: StateChanged) -> tuple[int, str] | None:
        was, now = event.was, event.now
        if now == State.SUSPECT:
            waits = f"; fails over in {self._policy.failover_interval:g} s unless a send succeeds"
            return logging.WARNING, f"is suspect: {event.why}{waits if self._policy.failover_interval else ''}"
        if now in DIVERTING and was not in DIVERTING:
            return logging.WARNING, f"{_left(now)}, sends go to the backlog: {event.why}{_advice(event.why)}"
        if was in DIVERTING and now not in DIVERTING:
            return logging.INFO, f"failed back, sends go to the primary: {event.why}"
        if was == State.SUSPECT and now == State.HEALTHY:
            return logging.INFO, f"is healthy again: {event.why}"
        return (logging.INFO, f"is {now}: {event.why}") if event.by else None

    def _queue_pulled(self, event: QueuePulled) -> None:
        text = f"backlog queue {event.queue} left the rotation: {event.reason}"
        self._write(("queue", str(event.queue)), logging.WARNING, text, event.at)

    def _queue_restored(self, event: QueueRestored) -> None:
        text = f"backlog queue {event.queue} is in the rotation again"
        self._write(("queue", str(event.queue)), logging.INFO, text, event.at)

    def _alarm(self, event: Warned) -> None:
        """Write a line for each alarm that begins or ends."""
        name = event.text.removeprefix(OVER).partition(": ")[0]
        is_mild = event.text.startswith(OVER) or name.startswith(Severity.NOTICE)
        self._write(("alarm", name), logging.INFO if is_mild else logging.WARNING, f"alarm: {event.text}", event.at)

    def _warned(self, event: Warned) -> None:
        if event.about == ALARM:
            self._alarm(event)
            return
        key = ("warning", event.about)
        subject = self._subjects.get(key)
        if subject is None:
            subject = self._subjects[key] = _Subject(due=event.at + COLLECT_SECONDS, left=0)
        if not subject.waiting:
            subject.level, subject.text = logging.WARNING, f"{event.about}: {event.text}"
        subject.waiting += 1

    # -- lines ------------------------------------------------------------------------------------------------

    def _write(self, key: tuple[str, str], level: int, text: str, at: float) -> None:
        subject = self._subjects.get(key)
        if subject is None or (subject.due <= at and not subject.waiting):
            subject = self._subjects[key] = _Subject(due=at + FOLD_SECONDS, left=MAX_LINES)
        if subject.left:
            subject.left -= 1
            _say(level, text)
        else:
            subject.waiting += 1
            subject.level, subject.text = level, text

    @staticmethod
    def _write_waiting(subject: _Subject) -> None:
        more = subject.waiting - 1
        _say(subject.level, f"{subject.text} (and {more} more like it)" if more else subject.text)
        subject.waiting = 0


def _say(level: int, text: str) -> None:
    """Write a line; an application's log handler that raises stops no send."""
    try:
        log.log(level, "%s", one_line(masked(text), most=MAX_CHARACTERS))
    except Exception:  # noqa: BLE001 - a foreign handler may raise anything
        if logging.raiseExceptions:  # as logging itself does for its own handlers
            traceback.print_exc()


def _left(now: str) -> str:
    return "was failed over by hand" if now == State.FORCED else "failed over"


def _advice(why: str) -> str:
    """Return a hint for a misspelt entity: its sends succeed from now on, without an error."""
    return "; check the name, the primary namespace has no such entity" if FailureKind.NOT_FOUND in why else ""


_links: Final[WeakValueDictionary[str, Any]] = WeakValueDictionary()
_clients: Final[WeakSet[ServiceBusClient]] = WeakSet()

Link = TypeVar("Link")


def register_link(link: Link) -> Link:
    """Register an SDK sender or receiver whose failures the pairing judges; return it."""
    name = getattr(link, "client_identifier", None)
    if isinstance(name, str):
        _links[name] = link
    return link


def register_client(client: ServiceBusClient) -> None:
    """Register a client whose links all belong to the pairing."""
    _clients.add(client)


def _is_judged(name: str) -> bool:
    return name in _links or any(name in sdk_internals.link_names(client) for client in tuple(_clients))


class _Unjudged(logging.Filter):
    """A filter that drops warnings about the pairing's connections."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is logged."""
        name = sdk_internals.connection_name(record)
        return record.levelno < logging.WARNING or name is None or not _is_judged(name)


_UNJUDGED: Final = _Unjudged()
for _name in sdk_internals.LOGGERS:
    logging.getLogger(_name).addFilter(_UNJUDGED)  # a logger's children do not inherit its filters
