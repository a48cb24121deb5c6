"""The consequences of an order, from the newest snapshot: the facts of a preview, and the sentences of a question.

The table of actions (actions.py) names them for screens and the command line. An unknown figure is never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from paired_servicebus.core.backlog.backlog_totals import sum_backlog
from paired_servicebus.core.backlog.depth_readings import seconds_until
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import DIVERTING, GLYPHS, State
from paired_servicebus.core.model.snapshot import EntityView, Snapshot, SyphonStatus, UnusedQueue
from paired_servicebus.core.operator.action_row import Action, Choice, Fact, Question, Text
from paired_servicebus.core.operator.targets import (
    PAUSED_HERE,
    USERS_UNKNOWN,
    Scope,
    all_there,
    entities_of,
    named,
    not_reached,
    queues_of,
    unused_of,
)
from paired_servicebus.core.operator.why_line import pings
from paired_servicebus.core.text.number_format import in_time, percent, plural, rate
from paired_servicebus.core.text.time_format import clock

UNKNOWN: Final = "unknown"
FROM_NOW_ON: Final = "From now on"
REACHES: Final = "Reaches"
NOT_REACHED: Final = "Not reached"
UNDO: Final = "Undo"


def preview(action: Action, snapshot: Snapshot | None, aim: Command, *, undo: str) -> tuple[tuple[str, str], ...]:
    """Return the consequences of an action for its targets now, and how to undo it.

    Args:
        undo: the key and the label of the action that undoes it; empty: there is none.
    """
    if snapshot is None or not all_there(snapshot, aim):
        return tuple((label, UNKNOWN) for label in (*(label for label, _ in action.facts), UNDO))
    found = ((label, _fact(action, label, text, snapshot, aim)) for label, text in action.facts)
    return (*found, (UNDO, undo + sentence(action.undo_note, snapshot, aim)))


def _fact(action: Action, label: str, text: Text, snapshot: Snapshot, aim: Command) -> str:
    """Return one sentence; the first one is limited to the entities with senders here, and names the others."""
    missed = not_reached(action.not_done, entities_of(snapshot, aim)) if label == FROM_NOW_ON else ""
    if not missed:
        return sentence(text, snapshot, aim)
    carried = tuple(one.path for one in _carried(entities_of(snapshot, aim)))
    parts = [sentence(text, snapshot, replace(aim, targets=carried))] if carried else []
    return "; ".join([*parts, missed])


def sentence(text: Text, snapshot: Snapshot, aim: Command) -> str:
    """Return a fact's sentence, for the newest snapshot and the targets."""
    return text if isinstance(text, str) else text(snapshot, aim)


# -- entities --------------------------------------------------------------------------------------------------------


def _sends(snapshot: Snapshot, aim: Command) -> str:
    entities = entities_of(snapshot, aim)
    now = rate(sum(one.sends_per_second for one in entities))
    return f"sends for {_named(entities)}, now {now}/s"


def _named(entities: list[EntityView]) -> str:
    return entities[0].path if len(entities) == 1 else f"{len(entities)} entities"


def _carried(entities: Sequence[EntityView]) -> list[EntityView]:
    return [one for one in entities if one.carried]


def force_room(snapshot: Snapshot, aim: Command) -> str:
    """Return the effect of a force on parked messages, if no sender here is diverted."""
    entities = entities_of(snapshot, aim)
    if _carried(entities):
        return _room(snapshot, entities)
    if snapshot.syphon.status is SyphonStatus.OFF:
        return "this engine parks nothing, and runs no syphon"
    return (
        f"this engine parks nothing; its syphon leaves messages parked for {_named(entities)} until release, even if "
        "the primary is healthy"
    )


def force_cost(snapshot: Snapshot, aim: Command) -> str:
    if _carried(entities_of(snapshot, aim)):
        return "4 billed operations a message instead of 2, and a ping an interval"
    return "a ping an interval; this engine diverts no message"


def force_from_now(snapshot: Snapshot, aim: Command) -> str:
    sends = _sends(snapshot, aim)
    if not any(queue.in_rotation for queue in snapshot.queues):
        return f"{sends}, go to a backlog that accepts nothing now: no queue of {snapshot.secondary} accepts sends"
    return f"{sends}, go to the backlog on {snapshot.secondary}; nothing is sent to {snapshot.primary}"


def pin_from_now(snapshot: Snapshot, aim: Command) -> str:
    away = [one for one in entities_of(snapshot, aim) if one.state in (State.FAILED_OVER, State.FORCED)]
    back = f"; {_named(away)} returns to it immediately, regardless of pings" if away else ""
    return f"{_sends(snapshot, aim)}, go to {snapshot.primary} even while it fails: callers then get the errors{back}"


def release_from_now(snapshot: Snapshot, aim: Command) -> str:
    return "; ".join(dict.fromkeys(_released(snapshot, aim, entity) for entity in entities_of(snapshot, aim)))


def _released(snapshot: Snapshot, aim: Command, entity: EntityView) -> str:
    sends = _sends(snapshot, replace(aim, targets=(entity.path,)))
    if entity.state is State.PINNED:
        return f"{sends}, fail over by themselves again; immediately, if {snapshot.primary} refused the last one"
    if entity.state is State.FORCED and not entity.last_ping_good:
        return f"{entity.path} stays failed over, since no ping was accepted; it fails back by itself after one is"
    if entity.last_ping_good:
        return f"{sends}, go to {snapshot.primary} immediately; it accepted the last ping"
    return f"{sends}, go to {snapshot.primary} immediately, although it has not accepted a ping"


def _now(snapshot: Snapshot, aim: Command) -> str:
    entities = entities_of(snapshot, aim)
    if len(entities) == 1:
        one = entities[0]
        return f"{GLYPHS[one.state]} {one.state} since {clock(one.since)}: {one.why}"
    return ", ".join(f"{GLYPHS[one.state]} {one.path}" for one in entities)


def _evidence(snapshot: Snapshot, aim: Command) -> str:
    entities = entities_of(snapshot, aim)
    sends = (
        f"{sum(one.accepted for one in entities):,} accepted, {sum(one.diverted for one in entities):,} parked, "
        f"{plural(sum(one.failed for one in entities), 'failed attempt')}"
    )
    return f"{_pings(entities)}; sends: {sends}"


def _pings(entities: list[EntityView]) -> str:
    answered = [one for one in entities if one.last_ping_at is not None and one.last_ping_good is not None]
    if not answered:
        return f"last ping: {UNKNOWN}, none was answered"
    if len(entities) > 1:
        good = sum(bool(one.last_ping_good) for one in answered)
        return f"last ping accepted by {good} of {len(entities)}, {UNKNOWN} of {len(entities) - len(answered)}"
    one = answered[0]
    outcome = "accepted" if one.last_ping_good else f"failed ({one.last_ping_text})"
    row = f", {one.pings_in_a_row} in a row" if one.pings_in_a_row else ""
    latest = pings(one.recent_pings)
    times = f"; p50 {_ms(latest.p50)} p95 {_ms(latest.p95)}" if latest.accepted else ""
    return f"last ping {clock(one.last_ping_at or 0)} {outcome}{row}{times}"


def _ms(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else f"{seconds * 1000:.0f} ms"


# -- the engine, the backlog, the syphon ----------------------------------------------------------------------------


def _reaches(snapshot: Snapshot, _aim: Command) -> str:
    return (
        f"one engine: {snapshot.engine} (process {snapshot.pid}) of the pairing {snapshot.pairing}; "
        f"senders elsewhere are not affected; their state is {UNKNOWN}"
    )


def _reaches_syphon(snapshot: Snapshot, _aim: Command) -> str:
    return (
        f"one engine: {snapshot.engine} (process {snapshot.pid}) of the pairing {snapshot.pairing}; "
        "engines elsewhere, unknown here, continue as before"
    )


def _reaches_queue(snapshot: Snapshot, _aim: Command) -> str:
    return f"the queue in {snapshot.secondary}, for all its users; only engines on this machine are asked before"


def backlog_room(snapshot: Snapshot, _aim: Command) -> str:
    """Return the room of the backlog for all engines, as this one knows it, at the present rates."""
    return _room(snapshot, ())


def _room(snapshot: Snapshot, entities: Sequence[EntityView]) -> str:
    usable = sum(queue.in_rotation for queue in snapshot.queues)
    full = _filling(snapshot, entities)
    return f"{usable} of {plural(len(snapshot.queues), 'backlog queue')} accepting{full}; {_parked(snapshot)}"


def _filling(snapshot: Snapshot, entities: Sequence[EntityView]) -> str:
    """Return how full the queues in rotation are, and when they are full at this rate with these sends.

    The text is empty if their size is unknown.
    """
    queues = [queue for queue in snapshot.queues if queue.in_rotation]
    used, limit = _total(queue.size_bytes for queue in queues), _total(queue.limit_bytes for queue in queues)
    if used is None or not limit:
        return ""
    growth = _total(queue.bytes_growth for queue in queues)
    more = sum(one.sends_per_second for one in entities if one.state not in DIVERTING)
    messages = _total(queue.depth for queue in queues)
    if growth is None or (more and not messages):
        return f", {percent(used, limit)} full (fill time {UNKNOWN})"
    left = seconds_until(used, limit, growth + (more * used / messages if messages else 0.0))
    return f", {percent(used, limit)} full" + (f", all of it in {in_time(left)} at this rate" if left else "")


def _total(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _parked(snapshot: Snapshot) -> str:
    sums = sum_backlog(snapshot)
    if not sums.known or sums.read_at is None:
        return f"parked messages: {UNKNOWN}"
    unread = "" if sums.known == sums.queues else f" in the {sums.known} queues that could be read"
    return f"{plural(sums.messages, 'message')} parked{unread} (read {clock(sums.read_at)})"


def _waiting(snapshot: Snapshot, _aim: Command) -> str:
    return f"{_parked(snapshot)}; {_syphon(snapshot)}"


def _syphon(snapshot: Snapshot) -> str:
    status = snapshot.syphon.status
    if status is SyphonStatus.OFF:
        return f"this engine runs no syphon, so parked messages wait for one elsewhere: {_elsewhere(snapshot)}"
    if status is SyphonStatus.PAUSED:
        return f"the syphon is {PAUSED_HERE}"
    if status is SyphonStatus.STUCK:
        return f"the syphon is {status}, so parked messages wait"
    return "the syphon moves parked messages once their destination accepts; order may change"


def _elsewhere(snapshot: Snapshot) -> str:
    return ", ".join(snapshot.syphon.elsewhere) or "syphon unknown"


def redrive_from_now(snapshot: Snapshot, aim: Command) -> str:
    letters = _counted([queue.dead_lettered for queue in queues_of(snapshot, aim)], "dead letter")
    where = ", ".join(f"backlog/{index}" for index in aim.targets)
    return f"{letters} of {where} are re-driven; their cause may dead-letter them again"


def _counted(counts: list[int | None], noun: str) -> str:
    known = [count for count in counts if count is not None]
    return plural(sum(known), noun) if len(known) == len(counts) else f"{noun}s ({UNKNOWN} how many)"


def redrive_letters_from_now(_snapshot: Snapshot, aim: Command) -> str:
    where = ", ".join(named(aim.scope, one) for one in aim.targets)
    return f"{where}: re-driven, unchanged; their cause may dead-letter them again"


def redrive_evidence(snapshot: Snapshot, aim: Command) -> str:
    return "; ".join(f"backlog/{one.index}: {one.pump_text or UNKNOWN}" for one in queues_of(snapshot, aim))


# -- unused backlog queues -------------------------------------------------------------------------------------------


def clean_up_from_now(snapshot: Snapshot, aim: Command) -> str:
    one = "it is" if len(aim.targets) == 1 else "each is"
    return (
        f"{one} closed to senders, waited for, and checked with a peek, dead letters too; deleted if empty, else "
        "reopened"
    )


def _unused_evidence(snapshot: Snapshot, aim: Command) -> str:
    return "; ".join(_unused_line(one) for one in unused_of(snapshot, aim))


def _unused_line(one: UnusedQueue) -> str:
    active = clock(one.last_active) if one.last_active is not None else UNKNOWN
    counts = "counts unknown"
    if one.messages is not None:
        counts = f"{plural(one.messages, 'message')}, {plural(one.dead_lettered or 0, 'dead letter')}"
    different = f"; {', '.join(one.differences)}" if one.differences else ""
    return f"…/{one.index}: {counts}, last active {active}{different}"


def move_from_now(snapshot: Snapshot, aim: Command) -> str:
    messages = _counted([one.messages for one in unused_of(snapshot, aim)], "message")
    return f"{messages} go to the destinations they were parked for, on {snapshot.primary}"


# -- drains, and the way back ----------------------------------------------------------------------------------------


def and_parked(snapshot: Snapshot, _aim: Command) -> str:
    return f"; {_syphon(snapshot)}"


def drain_from_now(snapshot: Snapshot, _aim: Command) -> str:
    place = snapshot.drain.place if snapshot.drain is not None else UNKNOWN
    return f"processes of Spark ({place}) move parked messages to {snapshot.primary}; order may change"


def queues_parked(snapshot: Snapshot, _aim: Command) -> str:
    return f"{_parked(snapshot)}, in {plural(len(snapshot.queues), 'backlog queue')}"


def beside_syphon(snapshot: Snapshot, _aim: Command) -> str:
    status = snapshot.syphon.status
    here = "runs no syphon" if status is SyphonStatus.OFF else f"has its syphon {status}"
    return f"this engine {here}; a drain beside a known syphon is refused"


def writable_from_now(snapshot: Snapshot, _aim: Command) -> str:
    return f"all users with access to {snapshot.engine} can command it again; it was made read-only for a reason"


REACHES_SENDERS: Final[Fact] = (REACHES, _reaches)
REACHES_SYPHON: Final[Fact] = (REACHES, _reaches_syphon)
REACHES_QUEUE: Final[Fact] = (REACHES, _reaches_queue)
USERS: Final[Fact] = ("Unknown", USERS_UNKNOWN)
NOW: Final[Fact] = ("Now", _now)
EVIDENCE: Final[Fact] = ("Evidence", _evidence)
EVIDENCE_OF_UNUSED: Final[Fact] = ("Evidence", _unused_evidence)
PARKED: Final[Fact] = ("Parked", _waiting)
ORDER: Final[Fact] = ("Order", "may change, also within a session; duplicates are possible")


# -- questions -------------------------------------------------------------------------------------------------------


def ask_pause(snapshot: Snapshot, aim: Command, undo_key: str) -> Question:
    """Ask before the syphon stops: the part that was aimed at, or all of it."""
    sums = sum_backlog(snapshot)
    number = plural(sums.messages, "parked message") if sums.is_known else "parked messages"
    others = snapshot.syphon.elsewhere
    elsewhere = f"Syphons elsewhere continue: {', '.join(others)}." if others else "Other engines' syphons continue."
    part = named(aim.scope, aim.target)
    choices = [Choice(f"Pause {part}", aim)] if part else []
    return Question(
        f"Pause the syphon of {snapshot.engine}",
        (
            f"{number} of {snapshot.secondary} stay where they are: this engine moves none to {snapshot.primary}.",
            f"Sends continue as now. {elsewhere}",
            f"It stays paused, also after a restart, until it is resumed (key {undo_key}).",
        ),
        (*choices, Choice("Pause all of it", replace(aim, scope=Scope.ALL, targets=()))),
    )


def ask_read_only(snapshot: Snapshot, aim: Command, undo_key: str) -> Question:
    """Ask before the engine refuses commands."""
    return Question(
        f"Make {snapshot.engine} read-only",
        (
            "It then refuses every command from any console: force, release, pin, pause, clean up, re-drive.",
            "Sends, automatic failover and the syphon continue as now.",
            "It stays read-only, also after a restart, until it is made writable "
            f"(key {undo_key}, then type {snapshot.pairing}).",
        ),
        (Choice("Make read-only", aim),),
    )
