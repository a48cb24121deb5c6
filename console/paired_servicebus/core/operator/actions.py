"""The operator's actions on an engine: one table for guard, keys, palette, help, previews and command line.

To add an order, add a row here; paired_servicebus.engine.commands.guard executes it. A row has an order's names,
targets, danger, preview, and the reason why it is impossible now; action_row.py explains the columns. Pure.

Not here: a screen's own actions (paired_servicebus.ui.commands.action_table).
"""

from __future__ import annotations

from typing import Final

from paired_servicebus.core.fleet.order_rules import FleetVerbs
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import DIVERTING, State
from paired_servicebus.core.model.snapshot import QueueView, Snapshot, SyphonStatus, UnusedQueue
from paired_servicebus.core.operator import consequences
from paired_servicebus.core.operator.action_row import Action
from paired_servicebus.core.operator.consequences import (
    EVIDENCE,
    EVIDENCE_OF_UNUSED,
    FROM_NOW_ON,
    NOW,
    ORDER,
    PARKED,
    REACHES_QUEUE,
    REACHES_SENDERS,
    REACHES_SYPHON,
    USERS,
)
from paired_servicebus.core.operator.targets import (
    NONE_DIVERTED,
    NONE_PINNED,
    NONE_RETURNS,
    Scope,
    entities_of,
    entity_at,
    named,
    queue_at,
    queues_of,
    unused_of,
)
from paired_servicebus.core.text.number_format import join_names, plural
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.core.text.untrusted_text import one_line

# What an operator should know before typing: what an order will be refused for, and where it does not help.
#
# An order that is impossible by the snapshot is refused when it is armed (action_row.py). Here are the outcomes that
# only the namespaces decide, but that the newest readings already show. An unknown figure gives no sentence. Pure.

MAX_REASON: Final = 120
"""Characters of a reason for dead-lettering."""


def refused_sends(snapshot: Snapshot, _aim: Command) -> str:
    """Return that callers get errors, if no backlog queue takes messages."""
    if not snapshot.queues or any(queue.in_rotation for queue in snapshot.queues):
        return ""
    return f"callers get errors: none of {plural(len(snapshot.queues), 'backlog queue')} takes messages now"


def failing_primary(snapshot: Snapshot, aim: Command) -> str:
    """Return that callers get errors, if the primary failed for an entity at the last try."""
    failing = [one.path for one in entities_of(snapshot, aim) if one.state in DIVERTING and one.last_ping_good is False]
    if not failing:
        return ""
    return f"callers get errors: {snapshot.primary} did not accept the last ping for {join_names(failing)}"


def kept_queues(snapshot: Snapshot, aim: Command) -> str:
    """Return which unused queues will not be deleted, since they held messages at the last listing."""
    full = [one for one in unused_of(snapshot, aim) if (one.messages or 0) + (one.dead_lettered or 0)]
    if not full:
        return ""
    read = f" at {clock(snapshot.unused.read_at)}" if snapshot.unused.read_at is not None else ""
    held = "; ".join(f"…/{one.index} holds {_content(one)}" for one in full)
    return f"refused, only an empty queue is deleted: {held}{read}"


def nothing_stranded(snapshot: Snapshot, aim: Command) -> str:
    """Return that there is nothing to move, if the last listing counted no message."""
    empty = [f"…/{one.index}" for one in unused_of(snapshot, aim) if one.messages == 0]
    return f"nothing to move: {join_names(empty)} held no message at the last listing" if empty else ""


def same_dead_letters(snapshot: Snapshot, aim: Command) -> str:
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


# -- reasons against an action now -----------------------------------------------------------------------------------


def _no_force(snapshot: Snapshot, _scope: str, path: str) -> str:
    entity = entity_at(snapshot, path)
    return f"{path} is forced already" if entity is not None and entity.state is State.FORCED else ""


def _no_pin(snapshot: Snapshot, _scope: str, path: str) -> str:
    entity = entity_at(snapshot, path)
    return f"{path} is pinned already" if entity is not None and entity.state is State.PINNED else ""


def _no_release(snapshot: Snapshot, _scope: str, path: str) -> str:
    entity = entity_at(snapshot, path)
    if entity is None or entity.state in (State.FORCED, State.PINNED, State.FAILED_OVER):
        return ""
    return f"{entity.path} is {entity.state}: nothing to release"


def _no_pause(snapshot: Snapshot, scope: str, target: str) -> str:
    return f"{_what(scope, target)} is paused already" if _is_paused(snapshot, scope, target) else ""


def _no_resume(snapshot: Snapshot, scope: str, target: str) -> str:
    return "" if _is_paused(snapshot, scope, target) else f"{_what(scope, target)} is not paused"


def _what(scope: str, target: str) -> str:
    return "the syphon" if scope == Scope.ALL else named(scope, target)


def _is_paused(snapshot: Snapshot, scope: str, target: str) -> bool:
    syphon = snapshot.syphon
    if scope == Scope.QUEUE:
        return target in map(str, syphon.paused_queues)
    if scope == Scope.DESTINATION:
        return target.casefold() in (path.casefold() for path in syphon.paused_destinations)
    return syphon.status is SyphonStatus.PAUSED


def _no_redrive(snapshot: Snapshot, _scope: str, index: str) -> str:
    queue = queue_at(snapshot, index)
    return f"backlog/{index} had no dead letters at the last reading" if queue and queue.dead_lettered == 0 else ""


def _no_clean_up(snapshot: Snapshot, _scope: str, _path: str) -> str:
    trouble = snapshot.unused.trouble
    return f"the secondary namespace cannot be managed now: {trouble}" if trouble else ""


def _no_move(snapshot: Snapshot, _scope: str, _path: str) -> str:
    return "the syphon is paused: resume it first" if snapshot.syphon.status is SyphonStatus.PAUSED else ""


def _no_drain(snapshot: Snapshot, _scope: str, _target: str) -> str:
    drain, depths = snapshot.drain, [queue.depth for queue in snapshot.queues]
    if drain is None:
        return "this engine cannot start one; use: paired drain"
    if drain.text or drain.trouble:
        return f"a drain runs already: {drain.text}" if drain.text else drain.trouble
    if snapshot.syphon.status not in (SyphonStatus.OFF, SyphonStatus.PAUSED):
        return "the syphon moves the same messages: pause it first"
    return "nothing was parked at the last reading" if depths and not any(depths) and None not in depths else ""


def _no_end_drain(snapshot: Snapshot, _scope: str, _target: str) -> str:
    return "" if snapshot.drain is not None and snapshot.drain.text else "no drain of this pairing runs"


def _no_lock(snapshot: Snapshot, _scope: str, _target: str) -> str:
    return "this engine is read-only already" if snapshot.read_only else ""


def _no_unlock(snapshot: Snapshot, _scope: str, _target: str) -> str:
    return "" if snapshot.read_only else "this engine is not read-only"


def _no_stop(snapshot: Snapshot, _scope: str, _target: str) -> str:
    return "" if snapshot.own_process else "this engine runs inside an application and stops with it"


VERB_GROUPS: Final = {
    "syphon": "Pause and resume the syphon: all of it, one queue, one destination.",
    "read-only": "Make an engine read-only, or writable again.",
}
"""The help of the first words of verbs of two words."""

ACTIONS: Final[tuple[Action, ...]] = (
    Action(
        id="force",
        over_fleet=True,
        key="F",
        key_line={"overview": 2, "entity": 2},
        label="force failover",
        participle="forced",
        help="send to the backlog until released",
        verb="failover",
        scopes=(Scope.ENTITY,),
        special=_no_force,
        stands_for="entity",
        dangerous=True,
        expect=refused_sends,
        facts=(
            (FROM_NOW_ON, consequences.force_from_now),
            REACHES_SENDERS,
            NOW,
            EVIDENCE,
            ("Room", consequences.force_room),
            ("Cost", consequences.force_cost),
            ORDER,
        ),
        fleet_facts=(("Backlog", consequences.backlog_room),),
        not_done=NONE_DIVERTED,
        undo="release",
        undo_note=consequences.and_parked,
    ),
    Action(
        id="release",
        over_fleet=True,
        key="U",
        key_line={"overview": 3, "entity": 3},
        label="release",
        participle="released",
        help="return the entity to automatic failover",
        verb="release",
        scopes=(Scope.ENTITY,),
        special=_no_release,
        stands_for="entity",
        revokes=True,
        dangerous=True,
        facts=(
            (FROM_NOW_ON, consequences.release_from_now),
            REACHES_SENDERS,
            NOW,
            EVIDENCE,
            PARKED,
            ("Cost", "none now; each parked message adds 2 operations"),
            ORDER,
        ),
        not_done=NONE_RETURNS,
        undo="force",
    ),
    Action(
        id="pin",
        over_fleet=True,
        key="I",
        key_line={"entity": 5},
        label="pin",
        participle="pinned",
        help="send to the primary despite failures",
        verb="pin",
        scopes=(Scope.ENTITY,),
        special=_no_pin,
        stands_for="entity",
        dangerous=True,
        expect=failing_primary,
        facts=((FROM_NOW_ON, consequences.pin_from_now), REACHES_SENDERS, NOW, EVIDENCE, PARKED, ("Cost", "none")),
        not_done=NONE_PINNED,
        undo="release",
    ),
    Action(
        id="pause-syphon",
        over_fleet=True,
        whole="syphon",
        key="S",
        key_line={"overview": 4, "backlog": 6, "engines": 7},
        label="pause syphon",
        participle="paused",
        help="this engine moves no parked messages; others may",
        verb="syphon pause",
        verb_help="Have the asked engine move no parked messages; engines elsewhere may still move them.",
        scopes=(Scope.ALL, Scope.QUEUE, Scope.DESTINATION),
        special=_no_pause,
        needs_syphon=True,
        stands_for="syphon",
        ask=consequences.ask_pause,
        undo="resume-syphon",
    ),
    Action(
        id="resume-syphon",
        over_fleet=True,
        whole="syphon",
        key="S",
        label="resume syphon",
        participle="resumed",
        help="move parked messages again",
        verb="syphon resume",
        scopes=(Scope.ALL, Scope.QUEUE, Scope.DESTINATION),
        special=_no_resume,
        needs_syphon=True,
        stands_for="syphon",
        revokes=True,
    ),
    Action(
        id="clean-up",
        participle="cleaned up",
        key="C",
        key_line={"backlog": 3},
        label="clean up",
        help="delete an unused backlog queue that is empty",
        verb="cleanup",
        verb_help=(
            "Delete unused backlog queues that are proven to be empty; dangerous. Without a name: list them.\n\n"
            "The engine knows which queues the engines of its user on this machine use. Others are unknown to it."
        ),
        lists_targets=True,
        scopes=(Scope.UNUSED,),
        special=_no_clean_up,
        slow=True,
        dangerous=True,
        confirms="no other host uses it",
        confirms_help="You know that no engine or application of another host or user uses them.",
        expect=kept_queues,
        facts=(
            (FROM_NOW_ON, consequences.clean_up_from_now),
            REACHES_QUEUE,
            USERS,
            EVIDENCE_OF_UNUSED,
            ("Cost", "some management requests and peeks for each"),
        ),
        undo_note="none: a deleted queue is gone; the pairing creates it again if needed",
    ),
    Action(
        id="redrive",
        participle="re-driven",
        key="R",
        key_line={"backlog": 2},
        label="re-drive",
        help="return dead letters to their backlog queue",
        verb="redrive",
        scopes=(Scope.QUEUE,),
        special=_no_redrive,
        needs_syphon=True,
        slow=True,
        dangerous=True,
        expect=same_dead_letters,
        facts=(
            (FROM_NOW_ON, consequences.redrive_from_now),
            REACHES_SYPHON,
            ("Evidence", consequences.redrive_evidence),
            PARKED,
            ("Cost", "4 billed operations a message: out of the dead letters, back, and moved"),
        ),
        undo="pause-syphon",
        undo_note=", leaves them parked; undeliverable ones are dead-lettered again",
    ),
    Action(
        id="redrive-letters",
        key="R",
        label="re-drive",
        help="return some dead letters to their queue",
        verb="redrive-letters",
        verb_help="Return some dead letters of a backlog queue in use, as 3/118,121; dangerous.",
        scopes=(Scope.DEAD_LETTERS,),
        needs_syphon=True,
        slow=True,
        dangerous=True,
        expect=same_dead_letters,
        facts=(
            (FROM_NOW_ON, consequences.redrive_letters_from_now),
            REACHES_SYPHON,
            ("Evidence", consequences.redrive_evidence),
            ("Others", "older dead letters of the queue are locked meanwhile, then released"),
            ("Cost", "4 billed operations a message; 1 for each older dead letter"),
        ),
        undo="pause-syphon",
        undo_note=", leaves them parked; undeliverable ones are dead-lettered again",
    ),
    Action(
        id="move-stranded",
        participle="moved",
        key="M",
        key_line={"backlog": 5},
        label="move stranded",
        help="move the messages of an unused backlog queue",
        verb="move-stranded",
        scopes=(Scope.UNUSED,),
        special=_no_move,
        needs_syphon=True,
        slow=True,
        dangerous=True,
        expect=nothing_stranded,
        facts=(
            (FROM_NOW_ON, consequences.move_from_now),
            REACHES_SYPHON,
            EVIDENCE_OF_UNUSED,
            ("Cost", "2 billed operations a message that is moved"),
        ),
        undo_note="none: accepted messages stay at their destination; order may change",
    ),
    Action(
        id="drain",
        key="D",
        label="drain",
        help="move a large backlog with many Spark processes",
        verb="drain",
        own_verb=True,
        scopes=(Scope.ALL,),
        special=_no_drain,
        slow=True,
        dangerous=True,
        facts=(
            (FROM_NOW_ON, consequences.drain_from_now),
            REACHES_SYPHON,
            ("Parked", consequences.queues_parked),
            ("Beside", consequences.beside_syphon),
            ("Cost", "each parked message adds 2 operations, as with the syphon; Java needs some 1 GB"),
        ),
        undo="end-drain",
        undo_note=", cleanly; moved messages stay moved",
    ),
    Action(
        id="end-drain",
        key="D",
        label="end drain",
        help="finish the messages in flight, then stop",
        verb="end-drain",
        scopes=(Scope.ALL,),
        special=_no_end_drain,
    ),
    Action(
        id="read-only",
        over_fleet=True,
        whole="engines",
        key="W",
        label="make read-only",
        participle="made read-only",
        help="refuse every action that changes anything",
        verb="read-only on",
        verb_help="Refuse every order that changes something.",
        scopes=(Scope.ALL,),
        special=_no_lock,
        stands_for="orders",
        ask=consequences.ask_read_only,
        undo="read-write",
    ),
    Action(
        id="read-write",
        over_fleet=True,
        whole="engines",
        key="W",
        label="make writable",
        participle="made writable",
        help="accept orders again",
        verb="read-only off",
        verb_help="Make the engine writable again; dangerous, and named by the pairing.",
        scopes=(Scope.ALL,),
        special=_no_unlock,
        lifts_read_only=True,
        stands_for="orders",
        revokes=True,
        dangerous=True,
        facts=((FROM_NOW_ON, consequences.writable_from_now), REACHES_SYPHON),
        undo="read-only",
    ),
    Action(
        id="stop",
        label="end the engine",
        help="finish sends in flight and release locks",
        verb="down",
        own_verb=True,
        scopes=(Scope.ALL,),
        special=_no_stop,
        dangerous=True,
    ),
)
BY_ID: Final = {action.id: action for action in ACTIONS}
BY_VERB: Final = {action.verb: action for action in ACTIONS}
FLEET_VERBS: Final[FleetVerbs] = {action.id: action for action in ACTIONS if action.over_fleet}
"""The rows that can be ordered over the fleet."""
