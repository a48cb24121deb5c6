"""The consequences of a dangerous command, shown before it is fired: a table of facts from the newest snapshot.

A fact is recomputed from each snapshot while the dialog is open; an unknown figure is never guessed. The command line's
previews use the same sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from paired_servicebus.core.backlog.backlog_totals import sum_backlog
from paired_servicebus.core.backlog.depth_trend import seconds_until
from paired_servicebus.core.model.entity_state import DIVERTING, State
from paired_servicebus.core.model.snapshot import EntityView, QueueView, Snapshot, SyphonStatus, UnusedQueue
from paired_servicebus.core.operator.actions import Scope, entity_at, queue_at
from paired_servicebus.core.operator.command_reach import PAUSED_HERE, USERS_UNKNOWN, carries, not_reached
from paired_servicebus.core.operator.state_outlook import pings
from paired_servicebus.core.text.number_format import in_time, percent, plural, rate
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.ui.commands.action_table import CONSOLE_BY_ID, ActionTarget
from paired_servicebus.ui.render.state_looks import LOOKS
from paired_servicebus.ui.state.keymap import DEFAULT_KEYMAP, Keymap
from paired_servicebus.ui.state.view import Neighbour


class Fact(NamedTuple):
    """A label and a sentence."""

    label: str
    text: str


NOT_KNOWN: Final = "unknown"
REACHES: Final = "Reaches"


def facts(
    action_id: str,
    snapshot: Snapshot | None,
    aim: ActionTarget,
    keys: Keymap = DEFAULT_KEYMAP,
    others: Sequence[Neighbour] = (),
) -> tuple[Fact, ...]:
    """Return the consequences of `action_id` for its targets now, and how to undo it with the keys in force.

    Args:
        others: engines that also receive it.

    Raises:
        KeyError: the action is never armed.
    """
    table = _FACTS[action_id]
    if snapshot is None or not _all_there(snapshot, aim):
        return tuple(Fact(label, NOT_KNOWN) for label in (*(label for label, _ in table), "Undo"))
    by, more = _UNDO[action_id]
    undo = CONSOLE_BY_ID[by] if by else None
    key = f"key {keys.label(undo)}, {undo.label}" if undo else ""
    found = (Fact(label, one(snapshot, aim)) for label, one in table)
    if others:
        found = (Fact(it.label, _reaches_all(snapshot, others, aim)) if it.label == REACHES else it for it in found)
    return (*found, Fact("Undo", key + more(snapshot, aim)))


def _all_there(snapshot: Snapshot, aim: ActionTarget) -> bool:
    found = {
        Scope.ENTITY: lambda: len(_entities(snapshot, aim)),
        Scope.QUEUE: lambda: len(_queues(snapshot, aim)),
        Scope.UNUSED: lambda: len(_unused(snapshot, aim)),
    }.get(aim.scope)
    return found is None or found() == len(aim.targets) > 0


def _entities(snapshot: Snapshot, aim: ActionTarget) -> list[EntityView]:
    return [one for path in aim.targets if (one := entity_at(snapshot, path)) is not None]


def _queues(snapshot: Snapshot, aim: ActionTarget) -> list[QueueView]:
    return [one for index in aim.targets if (one := queue_at(snapshot, index)) is not None]


def _unused(snapshot: Snapshot, aim: ActionTarget) -> list[UnusedQueue]:
    wanted = {path.casefold() for path in aim.targets}
    return [one for one in snapshot.unused.queues if one.path.casefold() in wanted]


# -- entities --------------------------------------------------------------------------------------------------------


def _sends(snapshot: Snapshot, aim: ActionTarget) -> str:
    entities = _entities(snapshot, aim)
    now = rate(sum(one.sends_per_second for one in entities))
    return f"sends for {_named(entities)}, now {now}/s"


def _named(entities: list[EntityView]) -> str:
    return entities[0].path if len(entities) == 1 else f"{len(entities)} entities"


def title(action_id: str, label: str, snapshot: Snapshot | None, aim: ActionTarget, pairing: str) -> str:
    """Return the dialog's first line: the command, its targets, and the senders that it does not reach."""
    asked = f"{label}: {str(aim) or pairing}"
    missed = not_reached(action_id, _entities(snapshot, aim)) if snapshot is not None else ""
    return f"{asked} — {missed}" if missed else asked


def _carried(entities: Sequence[EntityView]) -> list[EntityView]:
    return [one for one in entities if carries(one)]


def _for_carried(action_id: str, text: Text) -> Text:
    """Limit a sentence to the entities that this engine sends to, and add the senders that it does not reach."""

    def of_carried(snapshot: Snapshot, aim: ActionTarget) -> str:
        entities = _entities(snapshot, aim)
        missed = not_reached(action_id, entities)
        if not missed:
            return text(snapshot, aim)
        carried = _carried(entities)
        parts = [text(snapshot, ActionTarget(aim.scope, tuple(one.path for one in carried)))] if carried else []
        return "; ".join([*parts, missed])

    return of_carried


def _force_room(snapshot: Snapshot, aim: ActionTarget) -> str:
    """Return the effect of a force on parked messages, if no sender here is diverted."""
    entities = _entities(snapshot, aim)
    if _carried(entities):
        return _room(snapshot, aim)
    if snapshot.syphon.status is SyphonStatus.OFF:
        return "this engine parks nothing, and runs no syphon"
    return (
        f"this engine parks nothing; its syphon leaves messages parked for {_named(entities)} until release, even if "
        "the primary is healthy"
    )


def _force_cost(snapshot: Snapshot, aim: ActionTarget) -> str:
    if _carried(_entities(snapshot, aim)):
        return "4 billed operations a message instead of 2, and a ping an interval"
    return "a ping an interval; this engine diverts no message"


def _force_from_now(snapshot: Snapshot, aim: ActionTarget) -> str:
    sends = _sends(snapshot, aim)
    if not any(queue.in_rotation for queue in snapshot.queues):
        return f"{sends}, go to a backlog that accepts nothing now: no queue of {snapshot.secondary} is in rotation"
    return f"{sends}, go to the backlog on {snapshot.secondary}; nothing is sent to {snapshot.primary}"


def _pin_from_now(snapshot: Snapshot, aim: ActionTarget) -> str:
    away = [one for one in _entities(snapshot, aim) if one.state in (State.FAILED_OVER, State.FORCED)]
    back = f"; {_named(away)} returns to it immediately, regardless of pings" if away else ""
    return f"{_sends(snapshot, aim)}, go to {snapshot.primary} even while it fails: callers then get the errors{back}"


def _release_from_now(snapshot: Snapshot, aim: ActionTarget) -> str:
    return "; ".join(dict.fromkeys(_released(snapshot, aim, entity) for entity in _entities(snapshot, aim)))


def _released(snapshot: Snapshot, aim: ActionTarget, entity: EntityView) -> str:
    sends = _sends(snapshot, ActionTarget(aim.scope, (entity.path,)))
    if entity.state is State.PINNED:
        return f"{sends}, fail over by themselves again; immediately, if {snapshot.primary} refused the last one"
    if entity.state is State.FORCED and not entity.last_ping_good:
        return f"{entity.path} stays failed over, since no ping was accepted; it fails back by itself after one is"
    if entity.last_ping_good:
        return f"{sends}, go to {snapshot.primary} immediately; it accepted the last ping"
    return f"{sends}, go to {snapshot.primary} immediately, although it has not accepted a ping"


def _now(snapshot: Snapshot, aim: ActionTarget) -> str:
    entities = _entities(snapshot, aim)
    if len(entities) == 1:
        one = entities[0]
        return f"{LOOKS[one.state].glyph} {one.state} since {clock(one.since)}: {one.why}"
    return ", ".join(f"{LOOKS[one.state].glyph} {one.path}" for one in entities)


def _evidence(snapshot: Snapshot, aim: ActionTarget) -> str:
    entities = _entities(snapshot, aim)
    sends = (
        f"{sum(one.accepted for one in entities):,} accepted, {sum(one.diverted for one in entities):,} parked, "
        f"{plural(sum(one.failed for one in entities), 'failed attempt')}"
    )
    return f"{_pings(entities)}; sends: {sends}"


def _pings(entities: list[EntityView]) -> str:
    answered = [one for one in entities if one.last_ping_at is not None and one.last_ping_good is not None]
    if not answered:
        return f"last ping: {NOT_KNOWN}, none was answered"
    if len(entities) > 1:
        good = sum(bool(one.last_ping_good) for one in answered)
        return f"last ping accepted by {good} of {len(entities)}, {NOT_KNOWN} of {len(entities) - len(answered)}"
    one = answered[0]
    outcome = "accepted" if one.last_ping_good else f"not accepted ({one.last_ping_text})"
    row = f", {one.pings_in_a_row} in a row" if one.pings_in_a_row else ""
    latest = pings(one.recent_pings)
    times = f"; p50 {_ms(latest.p50)} p95 {_ms(latest.p95)}" if latest.accepted else ""
    return f"last ping {clock(one.last_ping_at or 0)} {outcome}{row}{times}"


def _ms(seconds: float | None) -> str:
    return NOT_KNOWN if seconds is None else f"{seconds * 1000:.0f} ms"


# -- the engine, the backlog, the syphon ----------------------------------------------------------------------------


def _reaches(snapshot: Snapshot, _aim: ActionTarget) -> str:
    return (
        f"one engine: {snapshot.engine} (process {snapshot.pid}) of the pairing {snapshot.pairing}; "
        f"senders elsewhere are not affected; their state is {NOT_KNOWN}"
    )


def _reaches_syphon(snapshot: Snapshot, _aim: ActionTarget) -> str:
    return (
        f"one engine: {snapshot.engine} (process {snapshot.pid}) of the pairing {snapshot.pairing}; "
        "engines elsewhere, unknown here, continue as before"
    )


def _reaches_queue(snapshot: Snapshot, _aim: ActionTarget) -> str:
    return f"the queue in {snapshot.secondary}, for all its users; only engines on this machine are asked before"


def _reaches_all(snapshot: Snapshot, others: Sequence[Neighbour], aim: ActionTarget) -> str:
    """Return the engines, and the affected sends at each and in total."""
    engines = [(snapshot.pairing, snapshot), *((one.name, one.snapshot) for one in others)]
    reached = [(name, found) for name, found in engines if found is not None]
    if aim.scope is not Scope.ENTITY:
        return f"{_of(len(reached), len(engines))}: {', '.join(name for name, _ in reached)}"
    rates = [(name, sum(one.sends_per_second for one in _entities(found, aim))) for name, found in reached]
    each = ", ".join(f"{name} {rate(per_second)}/s" for name, per_second in rates)
    total = f"{_of(len(reached), len(engines))}, {rate(sum(one for _, one in rates))} messages/s total"
    return f"{total}: {each}; senders elsewhere are not affected; their state is {NOT_KNOWN}"


def _of(number: int, of: int) -> str:
    return f"{number} engines" if number == of else f"{number} of {of} engines"


def _room(snapshot: Snapshot, aim: ActionTarget) -> str:
    usable = sum(queue.in_rotation for queue in snapshot.queues)
    full = _filling(snapshot, aim)
    return f"{usable} of {plural(len(snapshot.queues), 'backlog queue')} in rotation{full}; {_parked(snapshot)}"


def _filling(snapshot: Snapshot, aim: ActionTarget) -> str:
    """Return how full the queues in rotation are, and when they are full at this rate with these sends.

    The text is empty if their size is unknown.
    """
    queues = [queue for queue in snapshot.queues if queue.in_rotation]
    used, limit = _total(queue.size_bytes for queue in queues), _total(queue.limit_bytes for queue in queues)
    if used is None or not limit:
        return ""
    growth = _total(queue.bytes_growth for queue in queues)
    more = sum(one.sends_per_second for one in _entities(snapshot, aim) if one.state not in DIVERTING)
    messages = _total(queue.depth for queue in queues)
    if growth is None or (more and not messages):
        return f", {percent(used, limit)} full (when all is: {NOT_KNOWN})"
    left = seconds_until(used, limit, growth + (more * used / messages if messages else 0.0))
    return f", {percent(used, limit)} full" + (f", all of it in {in_time(left)} at this rate" if left else "")


def _total(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _parked(snapshot: Snapshot) -> str:
    sums = sum_backlog(snapshot)
    if not sums.known or sums.read_at is None:
        return f"parked messages: {NOT_KNOWN}"
    unread = "" if sums.known == sums.queues else f" in the {sums.known} queues that could be read"
    return f"{plural(sums.messages, 'message')} parked{unread} (read {clock(sums.read_at)})"


def _waiting(snapshot: Snapshot, _aim: ActionTarget) -> str:
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


def _redriven(snapshot: Snapshot, aim: ActionTarget) -> str:
    counts = [queue.dead_lettered for queue in _queues(snapshot, aim)]
    known = [count for count in counts if count is not None]
    letters = plural(sum(known), "dead letter") if len(known) == len(counts) else f"dead letters ({NOT_KNOWN} how many)"
    where = ", ".join(f"backlog/{index}" for index in aim.targets)
    return f"{letters} of {where} are re-driven; their cause may dead-letter them again"


def _redrive_evidence(snapshot: Snapshot, aim: ActionTarget) -> str:
    return "; ".join(f"backlog/{one.index}: {one.pump_text or NOT_KNOWN}" for one in _queues(snapshot, aim))


# -- unused backlog queues -------------------------------------------------------------------------------------------


def _cleaned(snapshot: Snapshot, aim: ActionTarget) -> str:
    one = "it is" if len(aim.targets) == 1 else "each is"
    return (
        f"{one} closed to senders, waited for, and checked with a peek, dead letters too; deleted if empty, else "
        "reopened"
    )


def _unused_evidence(snapshot: Snapshot, aim: ActionTarget) -> str:
    return "; ".join(_unused_line(one) for one in _unused(snapshot, aim))


def _unused_line(one: UnusedQueue) -> str:
    active = clock(one.last_active) if one.last_active is not None else NOT_KNOWN
    counts = "counts unknown" if one.messages is None else f"{one.messages:,} + {one.dead_lettered or 0:,} dead"
    different = f"; {', '.join(one.differences)}" if one.differences else ""
    return f"…/{one.index}: {counts}, last active {active}{different}"


def _moved(snapshot: Snapshot, aim: ActionTarget) -> str:
    counts = [one.messages for one in _unused(snapshot, aim)]
    known = [count for count in counts if count is not None]
    messages = plural(sum(known), "message") if len(known) == len(counts) else f"messages ({NOT_KNOWN} how many)"
    return f"{messages} go to the destinations they were parked for, on {snapshot.primary}"


# -- money, and the way back -----------------------------------------------------------------------------------------


def _always(text: str) -> Text:
    return lambda snapshot, aim: text


def _and_parked(snapshot: Snapshot, _aim: ActionTarget) -> str:
    return f"; {_syphon(snapshot)}"


def _drained(snapshot: Snapshot, _aim: ActionTarget) -> str:
    place = snapshot.drain.place if snapshot.drain is not None else NOT_KNOWN
    return f"processes of Spark ({place}) move parked messages to {snapshot.primary}; order may change"


def _queues_parked(snapshot: Snapshot, _aim: ActionTarget) -> str:
    return f"{_parked(snapshot)}, in {plural(len(snapshot.queues), 'backlog queue')}"


def _beside(snapshot: Snapshot, _aim: ActionTarget) -> str:
    status = snapshot.syphon.status
    here = "runs no syphon" if status is SyphonStatus.OFF else f"has its syphon {status}"
    return f"this engine {here}; a drain beside a known syphon is refused"


def _writable(snapshot: Snapshot, _aim: ActionTarget) -> str:
    return f"all users with access to {snapshot.engine} can command it again; it was made read-only for a reason"


Text = Callable[[Snapshot, ActionTarget], str]

_FACTS: Final[dict[str, tuple[tuple[str, Text], ...]]] = {
    "force": (
        ("From now on", _for_carried("force", _force_from_now)),
        (REACHES, _reaches),
        ("Now", _now),
        ("Evidence", _evidence),
        ("Room", _force_room),
        ("Cost", _force_cost),
    ),
    "release": (
        ("From now on", _for_carried("release", _release_from_now)),
        (REACHES, _reaches),
        ("Now", _now),
        ("Evidence", _evidence),
        ("Parked", _waiting),
        ("Cost", _always("none now; each parked message adds 2 operations")),
    ),
    "pin": (
        ("From now on", _for_carried("pin", _pin_from_now)),
        (REACHES, _reaches),
        ("Now", _now),
        ("Evidence", _evidence),
        ("Parked", _waiting),
        ("Cost", _always("none")),
    ),
    "clean-up": (
        ("From now on", _cleaned),
        (REACHES, _reaches_queue),
        ("Unknown", _always(USERS_UNKNOWN)),
        ("Evidence", _unused_evidence),
        ("Cost", _always("some management requests and peeks for each")),
    ),
    "redrive": (
        ("From now on", _redriven),
        (REACHES, _reaches_syphon),
        ("Evidence", _redrive_evidence),
        ("Parked", _waiting),
        ("Cost", _always("4 billed operations a message: out of the dead letters, back, and moved")),
    ),
    "move-stranded": (
        ("From now on", _moved),
        (REACHES, _reaches_syphon),
        ("Evidence", _unused_evidence),
        ("Cost", _always("2 billed operations a message that is moved")),
    ),
    "drain": (
        ("From now on", _drained),
        (REACHES, _reaches_syphon),
        ("Parked", _queues_parked),
        ("Beside", _beside),
        ("Cost", _always("each parked message adds 2 operations, as with the syphon; Java needs some 1 GB")),
    ),
    "read-write": (("From now on", _writable), (REACHES, _reaches_syphon)),
}
_UNDO: Final[dict[str, tuple[str, Text]]] = {
    "force": ("release", _and_parked),
    "release": ("force", _always("")),
    "pin": ("release", _always("")),
    "clean-up": ("", _always("none: a deleted queue is gone; the pairing creates it again if needed")),
    "redrive": ("pause-syphon", _always(", leaves them parked; undeliverable ones are dead-lettered again")),
    "move-stranded": ("", _always("none: accepted messages stay at their destination; order may change")),
    "drain": ("end-drain", _always(", cleanly; moved messages stay moved")),
    "read-write": ("read-only", _always("")),
}
"""The action that undoes it, if one does, and a remark."""
ARMABLE: Final = frozenset(_FACTS)
"""Ids of the actions with consequences."""
