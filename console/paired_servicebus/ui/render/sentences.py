"""Events as sentences: a subject, and what happened. Screen and headless output share them.

Every journalled kind has its sentence. ROUTINE are kinds that the screen omits: receipts, counts, and repetitions of
another event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.text.number_format import duration, milliseconds, plural
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.ui.render.spans import LOOKS, Role


class Sentence(NamedTuple):
    """`subject` is an entity, a queue or the source; `text` continues the sentence."""

    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.subject} {self.text}"


ROUTINE: Final[frozenset[type[e.Event]]] = frozenset(
    {
        e.PingSent,
        e.SendsCounted,
        e.Diverted,
        e.Delivered,
        e.InDoubt,
        e.Moved,
        e.Refused,
        e.MessageReceived,
        e.FailuresCounted,
        e.OperationsCounted,
        e.QueueRead,
        e.Forced,  # StateChanged contains it
        e.Pinned,
        e.EntityReleased,
    }
)


def sentence(event: e.Event) -> Sentence:
    """Return the event as a sentence. Raises KeyError: the event is not of a journalled kind."""
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


def _counted(event: e.SendsCounted) -> Sentence:
    failed = f", {event.failed:,} failed" if event.failed else ""
    accepted = f"{event.accepted:,} accepted{failed}"
    return Sentence(event.entity, f"{accepted} by {event.route} in {duration(event.seconds)}")


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
    e.PingSent: lambda it: Sentence(it.entity, f"ping {it.number} sent"),
    e.PingAccepted: lambda it: Sentence(it.entity, f"ping {it.number} accepted after {milliseconds(it.took)}"),
    e.PingFailed: lambda it: Sentence(it.entity, f"ping {it.number} failed: {it.reason} ({milliseconds(it.took)})"),
    e.SendsCounted: _counted,
    e.FailuresCounted: lambda it: Sentence(it.entity, f"{it.count:,} failed by {it.route}: {it.failure}"),
    e.OperationsCounted: lambda it: Sentence("cost", f"{it.sends + it.parked:,} sends, {it.moves:,} moves billed"),
    e.QueueRead: lambda it: Sentence(_queue(it.queue), f"holds {it.depth:,}, {it.dead_lettered:,} dead-lettered"),
    e.QueuePulled: lambda it: Sentence(_queue(it.queue), f"not accepting: {it.reason}"),
    e.QueueRestored: lambda it: Sentence(_queue(it.queue), "accepting again"),
    e.Diverted: lambda it: Sentence(it.entity, f"message {it.message_id} parked in {_queue(it.queue)}"),
    e.Delivered: lambda it: Sentence(it.entity, f"message {it.message_id} accepted by the primary"),
    e.InDoubt: lambda it: Sentence(it.entity, f"message {it.message_id} in doubt at {it.route}: {it.reason}"),
    e.Moved: lambda it: Sentence(it.entity, f"message {it.message_id} moved here from {_queue(it.queue)}"),
    e.Refused: lambda it: Sentence(it.entity, f"message {it.message_id} refused: {it.reason}"),
    e.MessageReceived: lambda it: Sentence(it.entity, f"message {it.message_id} received"),
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
    e.Forced: lambda it: Sentence(it.entity, f"forced by {it.by}{_reason(it.why)}"),
    e.Pinned: lambda it: Sentence(it.entity, f"pinned by {it.by}{_reason(it.why)}"),
    e.EntityReleased: lambda it: Sentence(it.entity, f"released by {it.by}{_reason(it.why)}"),
    e.SyphonPaused: lambda it: Sentence("syphon", f"{_part(it)}paused by {it.by}{_reason(it.why)}"),
    e.SyphonResumed: lambda it: Sentence("syphon", f"{_part(it)}resumed by {it.by}{_reason(it.why)}"),
    e.Warned: lambda it: Sentence(it.about, it.text),
}
