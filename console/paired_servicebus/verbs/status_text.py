"""The health of engines, without a screen: a table for people, one JSON object for programs, an exit status for both.

An engine is healthy if it answers without an alarm of the table (core/operator/alarms.py); notices degrade nothing. An
engine without a healthy entity is unknown.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import msgspec

from paired_servicebus.core.backlog.backlog_totals import empty_at, sum_backlog
from paired_servicebus.core.gateway.gateway_sentences import status_lines
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_condition import condition_of
from paired_servicebus.core.model.pairing_fold import PairingEntity, pairing_of
from paired_servicebus.core.model.snapshot import FindingVerdict, Snapshot, SyphonStatus
from paired_servicebus.core.operator.alarms import Alarm, alarms, degrading, fleet_alarms
from paired_servicebus.core.operator.fleet_sentences import fleet_health, fleet_lines, fleet_word
from paired_servicebus.core.text.number_format import count, plural, rate, time_or_day
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.engine.control.discovery import EngineStatus
from paired_servicebus.ui.render.spans import fit

WIDTH: Final = 100
UNKNOWN: Final = "unknown"


class Health(IntEnum):
    """The exit status; 2 is invalid input."""

    HEALTHY = 0
    DEGRADED = 1
    UNREACHABLE = 3

    def __str__(self) -> str:
        return self.name.lower()


def health(engines: Sequence[EngineStatus], now: float, *, fleet: bool = False) -> Health:
    """Return the worst health of all, and of their fleets if `fleet`; UNREACHABLE without engines."""
    found = [health_of(engine, now) for engine in engines]
    for one in (each.snapshot for each in engines if fleet and each.snapshot is not None):
        if one.fleet is not None:
            found.append(Health(fleet_health(one.fleet, fleet_alarms(alarms_in(one, now)))))
    return max(found, default=Health.UNREACHABLE)


def health_of(engine: EngineStatus, now: float) -> Health:
    """Return the health of one engine."""
    if engine.snapshot is None:
        return Health.UNREACHABLE
    return Health.DEGRADED if degrading(alarms_in(engine.snapshot, now)) else Health.HEALTHY


def alarms_in(snapshot: Snapshot, now: float) -> tuple[Alarm, ...]:
    """Return the alarms of a snapshot that is read now."""
    return alarms(condition_of(snapshot, now))


def word_for(engine: EngineStatus, now: float) -> str:
    """Return the health in a word: "unknown" for an engine without alarms and without a healthy entity."""
    found, known = health_of(engine, now), engine.snapshot
    if found is Health.HEALTHY and known is not None and not _healthy_entities(known):
        return UNKNOWN
    return str(found)


def _healthy_entities(snapshot: Snapshot) -> int:
    return sum(entity.state is State.HEALTHY for entity in pairing_of(snapshot).entities)


def _title_word(engine: EngineStatus, snapshot: Snapshot, now: float) -> str:
    """Return the word, with the number of unknown entities beside healthy ones."""
    entities = pairing_of(snapshot).entities
    word, total = word_for(engine, now), len(entities)
    unknown = sum(entity.state is State.UNKNOWN for entity in entities)
    return f"{word}, {unknown} of {total} entities unknown" if unknown and _healthy_entities(snapshot) else word


# -- for people --------------------------------------------------------------------------------------------------------


def as_lines(engines: Sequence[EngineStatus], now: float, *, fleet: bool = False) -> list[str]:
    """Return a block for each engine, plain text, times in UTC. `fleet`: with its pairing's engines on every host."""
    if not engines:
        return ["no engine runs here: start one with paired up"]
    blocks = [_block(engine, now) + (_fleet(engine, now) if fleet else []) for engine in engines]
    return [line for number, block in enumerate(blocks) for line in ([""] if number else []) + block]


def _block(engine: EngineStatus, now: float) -> list[str]:
    found = engine.snapshot
    if found is None:
        return [f"{engine.pairing}: {Health.UNREACHABLE}", *_indented(engine.trouble)]
    environment = f", {found.environment}" if found.environment else ""
    read_only = ", read-only" if found.read_only else ""
    word = _title_word(engine, found, now)
    title = f"{found.engine}: {word} ({found.primary} with {found.secondary}{environment}{read_only})"
    lines = [f"{title}, {clock(found.at)}"]
    for alarm in alarms_in(found, now):
        lines += _indented(f"{alarm.mark} {alarm}")
    rows = (
        _backlog(found),
        *_oldest(found, now),
        *_dead(found),
        _syphon(found),
        *status_lines(found.gateway),
        _ready(found),
    )
    return [*lines, *_entities(found, now), *(f"  {line}" for line in rows)]


def _fleet(engine: EngineStatus, now: float) -> list[str]:
    if engine.snapshot is None:
        return []
    found = fleet_alarms(alarms_in(engine.snapshot, now))
    lines = fleet_lines(pairing_of(engine.snapshot), now, found, lists_alarms=False)
    return [f"  {line}".rstrip() for line in lines]


def _indented(sentence: str) -> list[str]:
    first, others = "  ", "    "
    return textwrap.wrap(
        sentence, WIDTH, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )


_COLUMNS: Final = (("state", 11), ("since", 8), ("route", 10), ("send/s", 7), ("accepted", 11), ("diverted", 11))
_OF_FLEET: Final = (("state", 11), ("engines", 20), ("since", 8), ("route", 22), ("send/s", 7), ("refused/s", 9))
_NUMBERS: Final = frozenset({"send/s", "accepted", "diverted", "refused/s"})
"""Columns of numbers, on the right."""


def _entities(snapshot: Snapshot, now: float) -> list[str]:
    """Return a row for each entity of the pairing, over all its engines; accepted and diverted are this engine's."""
    found = pairing_of(snapshot)
    if not found.entities:
        return ["  entities  none known yet"]
    columns, cells = (_COLUMNS, _cells) if found.fleet is None else (_OF_FLEET, _fleet_cells)
    width = min(40, max(len("entity"), *(len(entity.path) for entity in found.entities)))
    rows = [_row("entity", tuple(name for name, _ in columns), width, columns)]
    return [*rows, *(_row(each.path, cells(each, now), width, columns) for each in found.entities)]


def _cells(entity: PairingEntity, now: float) -> tuple[str, ...]:
    sent = (rate(entity.sends_per_second), count(entity.accepted), count(entity.diverted))
    return (entity.state, time_or_day(entity.since, now), entity.route, *sent)


def _fleet_cells(entity: PairingEntity, now: float) -> tuple[str, ...]:
    silent = f" · {entity.total.silent:,} silent" if entity.total.silent else ""
    at = entity.first_failure_at if entity.first_failure_at is not None else entity.since
    where = f"{entity.in_state:,} of {entity.engines:,}{silent}"
    sent = (rate(entity.sends_per_second), rate(entity.refused_per_second))
    return (entity.state, where, time_or_day(at or None, now), entity.route, *sent)


def _row(first: str, cells: Sequence[str], width: int, columns: Sequence[tuple[str, int]]) -> str:
    texts = [
        fit(cell, size, "right" if name in _NUMBERS else "left")
        for cell, (name, size) in zip(cells, columns, strict=True)
    ]
    return f"  {fit(first, width)}  {'  '.join(texts)}".rstrip()


def _backlog(snapshot: Snapshot) -> str:
    sums = sum_backlog(snapshot)
    if not sums.is_known:
        return f"backlog   {plural(sums.queues, 'queue')}, parked messages unknown"
    if not sums.known:
        return f"backlog   at least {count(sums.messages)} parked in {plural(sums.queues, 'queue')}, not read yet"
    of = f"{sums.known} of {plural(sums.queues, 'queue')}" if sums.known < sums.queues else plural(sums.queues, "queue")
    read = f", read {clock(sums.read_at)}" if sums.read_at is not None else ""
    dead = f", {count(sums.dead_lettered)} dead-lettered" if sums.dead_lettered else ""
    return f"backlog   {count(sums.messages)} parked{dead} in {of}{read}"


def _oldest(snapshot: Snapshot, now: float) -> list[str]:
    """Return the message that waits longest, by the latest peeks."""
    filled = [queue for queue in snapshot.queues if queue.depth != 0]
    waiting = [(at, queue.index) for queue in filled if (at := queue.oldest.enqueued_at) is not None]
    return [f"oldest    parked since {time_or_day(at, now)} in backlog/{index}" for at, index in sorted(waiting)[:1]]


def _dead(snapshot: Snapshot) -> list[str]:
    """Return the reasons for dead letters, by the latest peeks."""
    return [
        f"dead      backlog/{each.index}: " + ", ".join(f"{number:,} {harmless(why)}" for why, number in reasons)
        for each in snapshot.queues
        if (reasons := each.dead_letters.reasons)
    ]


def _syphon(snapshot: Snapshot) -> str:
    syphon, eta = snapshot.syphon, empty_at(snapshot)
    if syphon.status is SyphonStatus.OFF:
        return f"syphon    {', '.join(syphon.elsewhere) or UNKNOWN} (this engine runs none)"
    empty = f", empty about {clock(eta)}" if eta else ""
    moving = f", {rate(syphon.per_second)} msg/s{empty}" if syphon.status is SyphonStatus.RUNNING else ""
    return f"syphon    {syphon.status}{moving}, moved {count(syphon.moved)}"


def _ready(snapshot: Snapshot) -> str:
    found = snapshot.readiness
    if found is None:
        return "failover  not checked yet"
    counts = ((FindingVerdict.WARN, "to check"), (FindingVerdict.UNKNOWN, "unknown"))
    notes = [f"{len(some)} {words}" for verdict, words in counts if (some := found.of(verdict))]
    answer = "would work" if found.ready else "would NOT work"
    return f"failover  {answer}{', ' if notes else ''}{', '.join(notes)}, checked {clock(found.at)} (paired check)"


# -- for programs ------------------------------------------------------------------------------------------------------


def as_json(engines: Sequence[EngineStatus], now: float, *, fleet: bool = False) -> str:
    """Return one object. `status` and `exit` are the worst of all engines.

    With `fleet`, each engine has its fleet's `status` and `alarms`; the engines are in its snapshot's `fleet`. Each
    engine has its `status`, its `alarms` with `name`, `severity`, `subject`, `sentence`, `todo` and `page`, the sums of
    its backlog, the entities over all engines of the pairing, and its own snapshot (core.model.snapshot), whose names
    only grow. Times are seconds since the epoch; null is unknown.
    """
    worst = health(engines, now, fleet=fleet)
    words = [word_for(each, now) for each in engines]
    word = UNKNOWN if worst is Health.HEALTHY and UNKNOWN in words else str(worst)
    report = {
        "status": word,
        "exit": int(worst),
        "at": now,
        "engines": [_object(each, now) | (_fleet_object(each, now) if fleet else {}) for each in engines],
    }
    return msgspec.json.encode(report).decode()


def _object(engine: EngineStatus, now: float) -> dict[str, Any]:
    found = engine.snapshot
    head: dict[str, Any] = {"pairing": engine.pairing, "status": word_for(engine, now)}
    if found is None:
        no = {"engine": None, "trouble": engine.trouble, "alarms": None, "backlog": None}
        no |= {"over_all_engines": None, "snapshot": None}
        return head | no
    over_all = pairing_of(found)
    return head | {
        "engine": found.engine,
        "trouble": "",
        "alarms": alarms_in(found, now),
        "backlog": _sums(found),
        "over_all_engines": {"old_since": over_all.old_since, "entities": over_all.totals},
        "snapshot": found,
    }


def _fleet_object(engine: EngineStatus, now: float) -> dict[str, Any]:
    snapshot = engine.snapshot
    if snapshot is None or snapshot.fleet is None:
        return {"fleet": None}
    found = fleet_alarms(alarms_in(snapshot, now))
    return {"fleet": {"status": fleet_word(snapshot.fleet, found), "alarms": found}}


def _sums(snapshot: Snapshot) -> dict[str, Any]:
    sums = sum_backlog(snapshot)
    return {
        "parked": sums.messages if sums.is_known else None,
        "dead_lettered": sums.dead_lettered if sums.known else None,
        "queues": sums.queues,
        "queues_read": sums.known,
        "read_at": sums.read_at,
        "old": sums.old,
        "oldest_at": min((at for each in snapshot.queues if (at := each.oldest.enqueued_at) is not None), default=None),
        "empty_at": empty_at(snapshot),
    }
