"""The report of an incident, of a time, or of all that is recorded, from one state of the tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.untrusted_text import one_line, repeated
from paired_servicebus.pipeline.report import table_queries
from paired_servicebus.pipeline.report.plots import read_curves
from paired_servicebus.pipeline.report.report_values import Chain, Report, Source, TimelineEntry
from paired_servicebus.pipeline.table_store.table_reader import TableQueries

# The timeline, with the operators' orders: sentences from the table `timeline`, with repeats folded.

MAX_ROWS: Final = 20_000
"""Events of a timeline that are read."""
MAX_REASON: Final = 160
"""Characters of a reason."""
NEAR: Final = 5.0
"""Seconds within which the same event of several entities or engines is one line."""
ORDER_NEAR: Final = 30.0
"""The same of an order, which reaches the engines of a fleet one after the other."""
CYCLE: Final = 900.0
"""Seconds within which an event that recurs belongs to the same trouble."""
SHOWN: Final = 3
NO_OUTCOME: Final = "unknown: the engine ended first"


def read_timeline(scope: table_queries.Scope) -> tuple[tuple[TimelineEntry, ...], int]:
    """Return the timeline, and how many events beyond MAX_ROWS it leaves out."""
    rows = scope.rows(_TIMELINE, most=MAX_ROWS)
    total = scope.count(_EVENTS) if len(rows) == MAX_ROWS else len(rows)
    dead = scope.rows(_DEAD_LETTERS, most=MAX_ROWS)
    entries = (*timeline_of(rows), *map(_dead_lettered, dead))
    return tuple(sorted(entries, key=lambda one: one.at)), total - len(rows)


def _dead_lettered(row: table_queries.Row) -> TimelineEntry:
    return TimelineEntry(
        at=row["event_time"],
        until=row["until"],
        about=(row["entity"],),
        engines=(row["engine"],),
        text=f"dead-lettered in the backlog: {_short(row['reason'])}",
        times=row["number"],
    )


def timeline_of(rows: Sequence[table_queries.Row]) -> tuple[TimelineEntry, ...]:
    """Return a line for each event in order of time.

    The same event of several entities or engines within NEAR is one line, and so are repetitions without news.
    """
    entries: list[TimelineEntry] = []
    latest: dict[tuple[str, str], int] = {}
    newest: dict[str, int] = {}
    for row in rows:
        write = _SENTENCES.get(row["kind"])
        text = write(row) if write is not None else None
        if text is None:
            continue
        about, engine, at = _about(row), row["engine"], row["event_time"]
        is_order = row["kind"] == "commanded"
        names = (about,) if about else ()
        entry = TimelineEntry(at=at, until=at, about=names, engines=(engine,), text=text, is_order=is_order)
        place, own = newest.get(text), latest.get((engine, about))
        if row["kind"] in _REPEATING and own is not None and entries[own].text == text:
            place = own
        elif place is not None and (at - entries[place].until > (ORDER_NEAR if is_order else NEAR) or own == place):
            place = None
        if place is None:
            place = len(entries)
            entries.append(entry)
        else:
            entries[place] = _extended(entries[place], entry)
        newest[text] = latest[engine, about] = place
    return _without_cycles(entries)


def _without_cycles(entries: Sequence[TimelineEntry]) -> tuple[TimelineEntry, ...]:
    """Return the entries; an event that recurs within CYCLE has SHOWN lines, and the last one counts the rest."""
    found: list[TimelineEntry] = []
    lines: dict[str, list[int]] = {}
    for entry in entries:
        mine = lines.get(entry.text, [])
        if mine and entry.at - found[mine[-1]].until > CYCLE:
            mine = []
        if len(mine) < SHOWN:
            lines[entry.text] = [*mine, len(found)]
            found.append(entry)
        else:
            found[mine[-1]] = _extended(found[mine[-1]], entry)
    return tuple(found)


def _extended(one: TimelineEntry, other: TimelineEntry) -> TimelineEntry:
    return replace(
        one,
        until=max(one.until, other.until),
        about=tuple(dict.fromkeys((*one.about, *other.about))),
        engines=tuple(dict.fromkeys((*one.engines, *other.engines))),
        times=one.times + other.times,
    )


def _about(row: table_queries.Row) -> str:
    if row["entity"] or row["target"]:
        return str(row["entity"] or row["target"])
    return f"backlog/{row['queue']}" if row["queue"] is not None else ""


def _short(text: object) -> str:
    return one_line(str(text or ""), most=MAX_REASON)


def _state(row: table_queries.Row) -> str:
    by = f" (by {_short(row['operator'])})" if row["operator"] else ""
    return f"{row['was']} → {row['now']}: {_short(row['why'])}{by}"


def _order(what: str) -> Callable[[table_queries.Row], str]:
    def write(row: table_queries.Row) -> str:
        why = f': "{_short(row["why"])}"' if row["why"] else ""
        return f"{what} by {_short(row['operator'])}{why}"

    return write


def _ping_failed(row: table_queries.Row) -> str:
    return f"a ping was {'throttled' if row['throttled'] else 'not accepted'}: {_short(row['reason'])}"


def _commanded(row: table_queries.Row) -> str:
    why = f': "{_short(row["why"])}"' if row["why"] else ""
    return f"order {_short(row['command'])} by {_short(row['operator'])}{why}: {_short(row['outcome'])}"


_SENTENCES: Final[dict[str, Callable[[table_queries.Row], str | None]]] = {
    "engine-started": lambda row: f"the engine started with {row['backlog_queues']} backlog queues",
    "engine-stopped": lambda row: f"the engine stopped: {_short(row['reason'])}",
    "state-changed": _state,
    "ping-accepted": lambda _: "a ping was accepted",
    "ping-failed": _ping_failed,
    "queue-pulled": lambda row: f"left the rotation: {_short(row['reason'])}",
    "queue-restored": lambda _: "is in the rotation again",
    "destination-failed": lambda row: f"the syphon could not deliver: {_short(row['reason'])}",
    "destination-healed": lambda _: "the syphon delivers again",
    "pump-stopped": lambda row: f"its pump stopped: {_short(row['reason'])}",
    "commanded": _commanded,
    "forced": _order("forced"),
    "pinned": _order("pinned"),
    "released": _order("released"),
    "syphon-paused": _order("the syphon was paused"),
    "syphon-resumed": _order("the syphon was resumed"),
    "warned": lambda row: f"warning about {_short(row['about'])}: {_short(row['text'])}",
}
_REPEATING: Final = frozenset({"ping-accepted", "ping-failed", "destination-failed", "pump-stopped", "warned"})

_KINDS: Final = ", ".join(f"'{kind}'" for kind in _SENTENCES)
_WHERE: Final = f"{{mine}} and kind in ({_KINDS})"
_TIMELINE: Final = f"""
select engine, epoch_us(events.event_time) / 1e6 as event_time, kind, entity, queue, was, now, why, operator, reason,
       throttled, backlog_queues, command, target, about, text,
       coalesce(nullif(ends.outcome, ''), '{NO_OUTCOME}') as outcome
from (select * exclude (outcome) from timeline where {_WHERE}) as events
left join (select engine, boot, command_seq as seq, outcome from timeline where kind = 'command-ended') as ends
  using (engine, boot, seq)
order by events.event_time, engine, boot, seq limit {{most}}
"""
_DEAD_LETTERS: Final = """
select engine, entity, reason, count(*)::bigint as number, epoch_us(min(event_time)) / 1e6 as event_time,
       epoch_us(max(event_time)) / 1e6 as until
from events
where kind = 'dead-lettered' and trouble is null and {mine}
group by engine, entity, reason order by event_time limit {most}
"""
_EVENTS: Final = f"select count(*) as number from timeline where {_WHERE}"
BEFORE = 30.0
"""Seconds of normal operation before an incident that its report includes."""
AFTER = 15.0
KNOWN = 3
"""Incidents that an unknown episode's error names."""

Choice = Callable[[TableQueries], Report]


def last_report(tables: TableQueries, *, pairing: str | None = None) -> Report:
    """Return the report of the latest incident; of all that is recorded, if nothing failed over.

    Raises ConfigurationError: nothing is recorded, or the pairing is unknown.
    """
    pairing = _known(tables, pairing)
    found = table_queries.read_incidents(tables, pairing=pairing)
    if found:
        return _of_chain(tables, found, max(found, key=lambda chain: max(one.began_at for one in chain)))
    recorded = _recorded(tables, pairing)
    return _report(recorded, (), recorded.since, recorded.until, before=None)


def report_of(tables: TableQueries, episode: str) -> Report:
    """Return the report of an episode's incident. Raises ConfigurationError: there is no such episode."""
    found = table_queries.read_incidents(tables)
    for chain in found:
        if any(one.id == episode for one in chain):
            return _of_chain(tables, found, chain)
    known = ", ".join(repeated(one.id) for chain in found[-KNOWN:] for one in chain[:1]) or "none"
    raise ConfigurationError(
        f"there is no episode {repeated(episode)!r} in the tables; the latest incidents begin with: {known}"
    )


def report_since(tables: TableQueries, since: float, *, pairing: str | None = None) -> Report:
    """Return the report of everything since a time (seconds since the epoch).

    Raises ConfigurationError: nothing is recorded since, or the pairing is unknown.
    """
    pairing = _known(tables, pairing)
    recorded = _recorded(tables, pairing)
    if since > recorded.until:
        raise ConfigurationError("nothing is recorded since then: the tables end earlier")
    chains = table_queries.read_incidents(tables, pairing=pairing)
    episodes = sorted(
        (one for chain in chains for one in chain if one.ended_at >= since), key=lambda one: (one.began_at, one.id)
    )
    return _report(recorded, tuple(episodes), max(since, recorded.since), recorded.until, before=None)


def scope_of(tables: TableQueries, report: Report) -> table_queries.Scope:
    """Return the messages that a report is about."""
    return table_queries.Scope(
        tables=tables, pairings=report.pairings, engines=(), since=report.since, until=report.until
    )


def _known(tables: TableQueries, pairing: str | None) -> str | None:
    """Return the pairing, as the tables call it. Raises ConfigurationError: they do not have it."""
    pairings = table_queries.read_pairings(tables)
    found = table_queries.known_as(pairings, pairing) if pairing is not None else None
    if pairing is not None and found is None:
        known = ", ".join(map(repeated, pairings)) or "none"
        raise ConfigurationError(f"the tables have no pairing {repeated(pairing)!r}; they have: {known}")
    return found


def _recorded(tables: TableQueries, pairing: str | None) -> table_queries.Scope:
    """Return all that is recorded of one pairing of the tables, or of all. Raises ConfigurationError: nothing is."""
    known = table_queries.read_pairings(tables)
    pairings = tuple(known) if pairing is None else (pairing,)
    engines = tuple(dict.fromkeys(engine for name in pairings for engine in known.get(name, ())))
    since, until = table_queries.recorded_span(tables, engines)
    return table_queries.Scope(tables=tables, pairings=pairings, engines=engines, since=since, until=until)


def _of_chain(tables: TableQueries, chains: list[Chain], chain: Chain) -> Report:
    recorded = _recorded(tables, chain[0].pairing)
    began, ended = chain[0].began_at, max(one.ended_at for one in chain)
    until = recorded.until if any(one.open for one in chain) else ended + AFTER
    earlier = [
        max(one.ended_at for one in other)
        for other in chains
        if other[0].pairing == chain[0].pairing and other[0].began_at < began
    ]
    since = max(recorded.since, began - BEFORE)
    return _report(recorded, chain, since, max(since, min(recorded.until, until)), before=max(earlier, default=None))


def _report(
    recorded: table_queries.Scope, episodes: Chain, since: float, until: float, *, before: float | None
) -> Report:
    tables, scope = recorded.tables, replace(recorded, since=since, until=until)
    began = episodes[0].began_at if episodes else since
    ended = max((one.ended_at for one in episodes), default=until)
    base_since = max(recorded.since, (before // 60 + 1) * 60 if before else 0.0)
    timeline, left_out = read_timeline(scope)
    entities, judgement = table_queries.read_messages(scope, episodes)
    more = [f"{plural(left_out, 'event')} of the timeline are left out"] if left_out else []
    return Report(
        source=_source(tables),
        pairings=scope.pairings,
        others=tuple(name for name in table_queries.read_pairings(tables) if name not in scope.pairings),
        environment="",
        since=since,
        until=until,
        episodes=episodes,
        recovered=table_queries.count_recovered(scope),
        engines=table_queries.read_engines(scope),
        entities=entities,
        cost=table_queries.read_cost(scope, began, min(ended, until), base_since if episodes else None),
        judgement=judgement,
        timeline=timeline,
        curves=read_curves(scope, episodes, timeline, (recorded.since, recorded.until)),
        unknowns=(*table_queries.read_unknowns(scope), *more),
    )


def _source(tables: TableQueries) -> Source:
    return Source(
        kind="tables" if tables.batch else "journal",
        folders=tuple(map(str, tables.folders)),
        batch=tables.batch,
        written_at=tables.written_at,
        read_at=tables.read_at,
    )
