"""What an operator should know before typing: what an order will be refused for, and where it does not help.

An order that is impossible by the snapshot is refused when it is armed (order_checks.py). Here are the outcomes that
only the namespaces decide, but that the newest readings already show. An unknown figure gives no sentence. Pure.
"""

from __future__ import annotations

from typing import Final

from paired_servicebus.core.model.entity_state import DIVERTING
from paired_servicebus.core.model.snapshot import QueueView, Snapshot, UnusedQueue
from paired_servicebus.core.operator.targets import ActionTarget, entities_of, queues_of, unused_of
from paired_servicebus.core.text.index_ranges import join_names
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.core.text.untrusted_text import one_line

MAX_REASON: Final = 120
"""Characters of a reason for dead-lettering."""


def refused_sends(snapshot: Snapshot, _aim: ActionTarget) -> str:
    """Return that callers get errors, if no backlog queue takes messages."""
    if not snapshot.queues or any(queue.in_rotation for queue in snapshot.queues):
        return ""
    return f"callers get errors: none of {plural(len(snapshot.queues), 'backlog queue')} takes messages now"


def failing_primary(snapshot: Snapshot, aim: ActionTarget) -> str:
    """Return that callers get errors, if the primary failed for an entity at the last try."""
    failing = [one.path for one in entities_of(snapshot, aim) if one.state in DIVERTING and one.last_ping_good is False]
    if not failing:
        return ""
    return f"callers get errors: {snapshot.primary} did not accept the last ping for {join_names(failing)}"


def kept_queues(snapshot: Snapshot, aim: ActionTarget) -> str:
    """Return which unused queues will not be deleted, since they held messages at the last listing."""
    full = [one for one in unused_of(snapshot, aim) if (one.messages or 0) + (one.dead_lettered or 0)]
    if not full:
        return ""
    read = f" at {clock(snapshot.unused.read_at)}" if snapshot.unused.read_at is not None else ""
    held = "; ".join(f"…/{one.index} holds {_content(one)}" for one in full)
    return f"refused, only an empty queue is deleted: {held}{read}"


def nothing_stranded(snapshot: Snapshot, aim: ActionTarget) -> str:
    """Return that there is nothing to move, if the last listing counted no message."""
    empty = [f"…/{one.index}" for one in unused_of(snapshot, aim) if one.messages == 0]
    return f"nothing to move: {join_names(empty)} held no message at the last listing" if empty else ""


def same_dead_letters(snapshot: Snapshot, aim: ActionTarget) -> str:
    """Return why the dead letters of the queues were dead-lettered: a re-drive does not remove that reason."""
    known = [f"backlog/{one.index}: {found}" for one in queues_of(snapshot, aim) if (found := _reasons(one))]
    return f"dead-lettered again unless this is mended: {'; '.join(known)}" if known else ""


def _content(queue: UnusedQueue) -> str:
    messages = plural(queue.messages, "message") if queue.messages else ""
    dead = plural(queue.dead_lettered, "dead letter") if queue.dead_lettered else ""
    return " and ".join(filter(None, (messages, dead)))


def _reasons(queue: QueueView) -> str:
    found = queue.dead_letters.reasons or queue.dead_reasons
    return ", ".join(f"{one_line(text, most=MAX_REASON)} ({count:,})" for text, count in found[:2])
