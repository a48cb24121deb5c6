"""The tables to a report's values: plain SQL of duckdb over the columns of table_store/schema.py.

    scope     the part of the tables that a report is about, with the parameters of its queries
    episodes  incidents, engines, the recorded time, an incident's cost and figures, and the facts that the tables lack
    messages  the results of sends by entity, and the verdict on the messages at risk, with messages by name

At risk in a report are the messages that were first seen in its time, and those that were accepted before and not
received by then. The statements of judging/verdict_sql.py count and judge them, beside the journals of that time.

Times leave SQL as seconds since the epoch, since a TIMESTAMP may be outside of Python's calendar.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.pipeline.judging.audit_sql import CLOCKS, IN_FLIGHT
from paired_servicebus.pipeline.judging.verdict_sql import COUNTED, SUBSCRIBED, VERDICTS
from paired_servicebus.pipeline.report import report_values
from paired_servicebus.pipeline.report.verdict import Counts, Finding, Judgement, outside_of, verdict_word
from paired_servicebus.pipeline.table_store.table_reader import TableQueries

Row = dict[str, Any]
FUTURE: Final = 86_400.0
"""Seconds after the reading from which a time is impossible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The part of the tables that a report is about: engines of some pairings, from one time to another."""

    tables: TableQueries
    pairings: tuple[str, ...]
    engines: tuple[str, ...]
    since: float
    until: float

    def rows(self, query: str, **more: object) -> list[Row]:
        """Return the rows of a query with the parameters $engines, $pairings, $since and $until, and `more`.

        The query names the parameters that it needs, each in braces. Raises NoTablesError.
        """
        known = {
            "engines": list(self.engines),
            "pairings": list(self.pairings),
            "since": micros(self.since),
            "until": micros(self.until),
            **more,
        }
        return self.tables.rows(*positional(query, known))

    def count(self, query: str, **more: object) -> int:
        """Return the number in the column `number` of a query's only row; 0 if it is null."""
        found = self.rows(query, **more)
        return int(found[0]["number"] or 0) if found else 0


def positional(query: str, known: dict[str, Any]) -> tuple[str, list[object]]:
    """Return the query with `?` for each name in braces, and the values in that order.

    A name of FRAGMENTS stands for its text; times become TIMESTAMPs.
    """
    for name, fragment in FRAGMENTS.items():
        query = query.replace(name, fragment)
    parts, values = query.split("{"), []
    text = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition("}")
        values.append(known[name])
        text.append(("make_timestamp(?::bigint)" if name in _TIMES else "?") + rest)
    return "".join(text), values


FRAGMENTS: Final = {
    "{mine}": "event_time between {since} and {until} and list_contains({engines}, engine) "
    "and date between cast({since} as date) and cast({until} as date)",
    "{plotted}": "event_time >= {begin} and event_time < {end} and trouble is null "
    "and list_contains({engines}, engine) "
    "and date between cast({begin} as date) and cast({end} as date)",
    "{at_risk}": "list_contains({pairings}, pairing) and first_at <= {until} and date <= cast({until} as date) "
    "and (first_at >= {since} or (accepted_at < {since} "
    "and coalesce(received_at, case when receivers_told then null else reached_at end, {until}) >= {since} "
    "and coalesce(dead_lettered_at, {until}) >= {since}))",
}
"""Conditions of a scope's events, of its plots' events, and of its messages at risk: those first seen in its time, and
those accepted before and not received by then. Where no receiver records, a message is received when its destination
accepted it. The date chooses the files."""
_TIMES: Final = frozenset({"since", "until", "begin", "end", "latest"})


def micros(at: float) -> int:
    """Return a time in microseconds."""
    return round(at * 1_000_000)


def limit_of(tables: TableQueries) -> float:
    """Return the latest time that a record may have: clocks of other hosts may be ahead, but not by a day."""
    return max(tables.written_at, tables.read_at) + FUTURE


# Episodes, engines and the recorded time, from the tables `episodes` and `engines`.

STEPS: Final = (
    "last_good_at", "suspected_at", "failed_over_at", "first_diverted_at", "first_ping_at", "failed_back_at",
    "backlog_empty_at",
)  # fmt: skip
_WORDS: Final = ("id", "pairing", "engine", "boot", "entity", "cause", "end_reason", "outcome")


def read_incidents(tables: TableQueries, *, pairing: str | None = None) -> list[report_values.Chain]:
    """Return every incident with a failover, of one pairing or of all; the oldest first."""
    return report_values.incidents(
        one for one in read_episodes(tables, pairing=pairing) if one.failed_over_at is not None
    )


def read_episodes(tables: TableQueries, *, pairing: str | None = None) -> list[report_values.IncidentEpisode]:
    """Return all episodes of possible times, of one pairing or of all."""
    rows = tables.rows(_EPISODES, [micros(limit_of(tables))])
    return [report_values.IncidentEpisode(**row) for row in rows if pairing in (None, row["pairing"])]


def recorded_span(tables: TableQueries, engines: Sequence[str]) -> tuple[float, float]:
    """Return the first and the last possible time of the engines' records.

    Raises ConfigurationError: there is none.
    """
    (found,) = tables.rows(_RECORDS, [micros(limit_of(tables)), list(engines)])
    if found["first"] is None:
        raise ConfigurationError(f"the tables in {tables.folders[0]} are empty: no journal has been read into them yet")
    return found["first"], found["last"]


def read_pairings(tables: TableQueries) -> dict[str, tuple[str, ...]]:
    """Return the pairings of the tables, each with its engines."""
    found: dict[str, dict[str, None]] = {}
    for row in tables.rows("select distinct pairing, engine from engines order by pairing, engine"):
        found.setdefault(row["pairing"] or "", {})[row["engine"]] = None
    return {pairing: tuple(engines) for pairing, engines in found.items()}


def known_as(pairings: dict[str, tuple[str, ...]], name: str) -> str | None:
    """Return the pairing of this name, or the one with an engine that calls it so; None: there is none."""
    if name in pairings:
        return name
    return next(
        (pairing for pairing, engines in pairings.items() if any(one.rpartition("@")[0] == name for one in engines)),
        None,
    )


def read_engines(scope: Scope) -> tuple[report_values.EngineBoot, ...]:
    """Return the boots of the scope's engines with records in its time, and the incomplete ones before its end."""
    return tuple(report_values.EngineBoot(**row) for row in scope.rows(_ENGINES))


def count_recovered(scope: Scope) -> int:
    """Return how often an entity was suspect and recovered without a failover."""
    return scope.count(_RECOVERED)


def _times(*names: str) -> str:
    return ", ".join(f"epoch_us({name}) / 1e6 as {name}" for name in names)


_POSSIBLE: Final = "case when {0} >= timestamp '1970-01-01' and {0} < latest then epoch_us({0}) / 1e6 end as {0}"
_EPISODES: Final = f"""
with times as (
    select {", ".join(_POSSIBLE.format(name) for name in ("began_at", "last_at", *STEPS))},
           {", ".join(f"coalesce({name}, '') as {name}" for name in _WORDS)}, coalesce(forced, false) as forced, parked,
           coalesce(moved, 0) as moved, coalesce(episodes.dead_lettered, 0) as dead_lettered,
           coalesce(pings_sent, 0) as pings, coalesce(pings_accepted, 0) as pings_accepted
    from episodes cross join (select make_timestamp(?::bigint) as latest)
)
select * replace (coalesce(began_at, {", ".join(STEPS)}) as began_at,
                  greatest(last_at, coalesce(began_at, {", ".join(STEPS)})) as last_at)
from times where coalesce(began_at, {", ".join(STEPS)}) is not null order by times.began_at, id
"""
"""Impossible times of an episode's steps are unknown; one without any possible time is left out."""
_RECORDS: Final = """
select epoch_us(min(event_time)) / 1e6 as first, epoch_us(max(event_time)) / 1e6 as last from events
where trouble is null and event_time >= timestamp '1970-01-01' and event_time < make_timestamp(?::bigint)
  and list_contains(?, engine)
"""
_TEXTS: Final = ", ".join(
    f"""coalesce({column}, '') as "{column.removesuffix("_namespace")}\""""
    for column in (
        "pairing", "engine", "boot", "ended", "end_reason", "primary_namespace", "secondary_namespace", "version",
    )
)  # fmt: skip
_ENGINES: Final = f"""
select {_TEXTS}, coalesce(records, 0) as records, coalesce(missing, 0) as missing,
       {_times("started_at", "last_at", "complete_to")}
from engines
where list_contains({{engines}}, engine) and coalesce(started_at, first_at, last_at) <= {{until}}
  and (last_at >= {{since}} or missing > 0)
order by pairing, engine, coalesce(started_at, first_at), boot
"""
_RECOVERED: Final = """
select count(*) as number from episodes
where list_contains({engines}, engine) and failed_over_at is null and began_at between {since} and {until}
"""


# An incident beside the minutes around it.

AROUND: Final = 300.0
"""Seconds before and after an incident that it is compared with, at most."""
COUNTED_SECONDS: Final = 1.0
"""Seconds before its time that a count is of."""
LEAST: Final = 5.0
"""Seconds that a rate needs."""


def read_figures(sources: Sequence[TableQueries], chain: report_values.Chain) -> report_values.Figures:
    """Return the figures of an incident by that source which has its begin, and then the most after it."""
    began, ended = chain[0].began_at, max(one.closed_at or one.last_at for one in chain)
    mine, found = {one.engine for one in chain}, []
    for one in sources:
        engines = tuple(name for names in read_pairings(one).values() if mine & {*names} for name in names)
        if engines:
            found.append((one, engines, *recorded_span(one, engines)))
    source, engines, first, last = max(found, key=lambda it: (it[2] <= began, it[3]))
    is_open = any(one.open for one in chain)
    scope = Scope(tables=source, pairings=(), engines=engines, since=began, until=last if is_open else ended)
    names = sorted({one.entity.lower() for one in chain})
    after = None
    if not is_open and last - ended >= LEAST:
        after = _stretch(replace(scope, since=ended, until=min(last, ended + AROUND)), names)
    before = _stretch(replace(scope, since=max(first - COUNTED_SECONDS, began - AROUND), until=began), names)
    return report_values.Figures(before=before, during=_stretch(scope, names), after=after)


def _stretch(scope: Scope, names: list[str]) -> report_values.Stretch:
    """Return the figures after a scope's begin to its end: a count is of the second before its time."""
    enough = scope.until - scope.since >= LEAST
    figures = scope.rows(_STRETCH, names=names)[0] if enough else {}
    return report_values.Stretch(since=scope.since, until=scope.until, **figures)


_STRETCH: Final = """
select sum(case when route = 'primary' then accepted else 0 end) filter (is_named)::bigint as to_primary,
       sum(case when route = 'primary' then 0 else accepted end) filter (is_named)::bigint as to_backlog,
       sum(failed) filter (is_named)::bigint as failed,
       sum(sends + parked + pings + receives + moves + settlements) filter (kind = 'operations')::bigint as operations,
       sum(parked + pings + receives + moves + settlements) filter (kind = 'operations')::bigint as added
from (select *, kind = 'sends' and list_contains({names}, lower(entity)) as is_named from events
      where kind in ('sends', 'operations') and trouble is null and {mine} and event_time > {since})
"""


# The facts that a report cannot have, each with its reason. Those about journals are in the verdict's evidence.


def read_unknowns(scope: Scope) -> Iterator[str]:
    """Yield a sentence for each fact that the tables lack."""
    total, files = scope.tables.unreadable()
    if total:
        yield f"{plural(total, 'line')} of the journals could not be read: {files}"
    impossible = scope.count(_IMPOSSIBLE, latest=micros(limit_of(scope.tables)))
    if impossible:
        yield f"{plural(impossible, 'record')} with an impossible time: not in any figure by time"
    if not scope.count(_COUNTS):
        yield "no sends were counted in this time: failures at callers are unknown"


_IMPOSSIBLE: Final = """
select count(*) as number from events
where trouble is null and (event_time is null or event_time < timestamp '1970-01-01' or event_time > {latest})
"""
_COUNTS: Final = """
select count(*) as number from events
where kind = 'sends' and trouble is null and {mine}
"""


# The operations that an incident caused: those in its minutes, less the rate of the minutes before.

BASE: Final = 3600.0
"""Seconds before the incident that the base rate is from."""
MINUTE: Final = 60.0
CAUSED: Final = ("parked", "moves", "pings", "settlements", "receives")
"""Causes of an incident. Sends to the primary are none: the application makes them anyway."""


def read_cost(scope: Scope, begin: float, end: float, base_since: float | None) -> report_values.IncidentCost:
    """Return the operations of a time's minutes, and those that an incident caused.

    base_since: the begin of the time before that has the base rate, an hour at most; None: nothing failed over that
    could have caused them, and all are counted.
    """
    first, last = begin // MINUTE * MINUTE, (end // MINUTE + 1) * MINUTE
    minutes, base_minutes = max(1, round((last - first) / MINUTE)), 0
    base: dict[str, Row] = {}
    if base_since is not None:
        since = max(first - BASE, ceil(base_since / MINUTE) * MINUTE)
        base_minutes = max(0, round((first - since) / MINUTE))
        base = {row["cause"]: row for row in _sums(scope, since, first)} if base_minutes else {}
    share = minutes / base_minutes if base_minutes else 0.0
    causes = []
    for row in _sums(scope, first, last):
        usual = base.get(row["cause"], {"operations": 0, "bytes": 0})
        is_caused = base_since is None or row["cause"] in CAUSED
        beyond = {name: max(0, round(row[name] - usual[name] * share)) * is_caused for name in ("operations", "bytes")}
        causes.append(report_values.CauseCost(row["cause"], row["operations"], beyond["operations"], beyond["bytes"]))
    return report_values.IncidentCost(minutes=minutes, base_minutes=base_minutes, causes=tuple(causes))


def _sums(scope: Scope, since: float, until: float) -> list[Row]:
    return scope.rows(_COST, begin=round(since * 1e6), end=round(until * 1e6))


_COST: Final = """
select cause, sum(operations)::bigint as operations, coalesce(sum(bytes), 0)::bigint as bytes
from cost where minute >= {begin} and minute < {end}
  and date between cast({begin} as date) and cast({end} as date) and list_contains({engines}, engine)
group by cause order by operations desc, cause
"""


SHOWN: Final = 10
"""Message ids of each fate that are named."""
NAMED: Final = (
    "lost", "missing", "expired", "unknown", "in flight", "unexpected", "dead-lettered", "parked", "in doubt",
)  # fmt: skip
"""Fates with named messages, the worst first."""


def read_messages(scope: Scope, episodes: report_values.Chain) -> tuple[tuple[report_values.EntityRow, ...], Judgement]:
    """Return each entity's row, and the verdict on all messages at risk."""
    judged = scope.rows(_AT_RISK)
    by_entity: dict[str, list[Row]] = {}
    for row in judged:
        if row["pairing"] and row["entity"]:
            by_entity.setdefault(row["entity"].lower(), []).append(row)
    (whole,) = (row for row in judged if not row["pairing"])
    return _entities(scope, by_entity, episodes), _judgement(scope, whole, by_entity)


def _entities(
    scope: Scope, by_entity: dict[str, list[Row]], episodes: report_values.Chain
) -> tuple[report_values.EntityRow, ...]:
    found: dict[str, Row] = {name: _of_messages(Counts.of(*rows)) for name, rows in by_entity.items()}
    for row in (*scope.rows(_SENDS), *scope.rows(_FAILURES), *scope.rows(_WAITED)):
        found.setdefault(row.pop("entity"), {}).update(row)
    refused = {row["entity"]: row for row in scope.rows(_REFUSED)}
    if any(row["recorded"] for row in refused.values()):  # else refusals are unknown
        for name, row in found.items():
            row["refused"] = refused.get(name, {}).get("refused", 0)
    for one in report_values.failovers(episodes):
        found.setdefault(one.entity.lower(), {})["failover"] = one
    rows = [report_values.EntityRow(entity=name, **row) for name, row in found.items()]
    return tuple(sorted(rows, key=lambda one: (one.failover is None, -one.failed, one.entity)))


def _of_messages(counts: Counts) -> Row:
    """Return the part of an entity's row that is of its messages."""
    return {
        "parked": counts.diverted,
        "home": counts.home,
        "lost": counts.lost + counts.missing,
        "undelivered": counts.expired + counts.dead_lettered,
        "unknown": counts.unknown + counts.unexpected + counts.unsent,
    }


def _judgement(scope: Scope, whole: Row, by_entity: dict[str, list[Row]]) -> Judgement:
    told = {row["entity"]: row["receivers_told"] for rows in by_entity.values() for row in rows}
    stored = scope.rows(_STORED)
    judged_at = min((row["judged_at"] for row in stored), default=None)
    incident, recorded = Counts.of(whole), Counts.of(*stored)
    unjudged = scope.count(_UNJUDGED, latest=micros(judged_at or 0.0))
    return Judgement(
        verdict=verdict_word(
            whole["finding"], outside_of(incident, recorded), is_judged=judged_at is not None, unjudged=unjudged
        ),
        incident=incident,
        recorded=recorded,
        findings=tuple(_findings(scope)),
        receivers=tuple(sorted(name for name, is_told in told.items() if is_told)),
        silent=tuple(sorted(name for name, is_told in told.items() if not is_told)),
        rests_on=whole["rests_on"] or "",
        judged_at=judged_at,
        unjudged=unjudged,
    )


def _findings(scope: Scope) -> Iterator[Finding]:
    """Yield the messages by name, the worst first."""
    reasons: dict[str, list[str]] = {}
    for row in scope.rows(_REASONS):
        reasons.setdefault(row["status"], []).append(row["reason"])
    found = {row["status"]: row for row in scope.rows(_NAMED, statuses=list(NAMED))}
    for status in (status for status in NAMED if status in found):
        row = found[status]
        named = tuple(f"{one['id']} ({one['entity']})" for one in row["named"])
        yield Finding(
            status=status, total=row["total"], named=named, oldest_age=row["oldest_age"],
            reasons=tuple(reasons.get(status, ())),
        )  # fmt: skip


def lost_messages(scope: Scope, statuses: Sequence[str]) -> list[dict[str, Any]]:
    """Return the messages at risk of these fates, each with its times and place; the oldest first."""
    return scope.rows(_LOST, statuses=list(statuses))


_PART: Final = "list_contains({pairings}, pairing)"
_COVERING: Final = f"""
select * replace (
    case when is_doubtful then missing else 0 end as missing,
    end_known or not is_doubtful as end_known,
    lacks_boot and is_doubtful as lacks_boot,
    case when ended = 'silent' and last_at > {{until}} then 'running' else ended end as ended)
from (
    select *, coalesce(unknown_from <= {{until}}, true)
              and coalesce(complete_from >= {{since}} - to_microseconds({IN_FLIGHT}), true) as is_doubtful
    from (select *, coalesce(complete_to, lag(last_at) over (partition by engine order by first_at, boot))
                        as unknown_from from engines))
where (first_at <= {{until}} and (ended = 'silent' or last_at >= {{since}} - to_microseconds({IN_FLIGHT})))
      or (is_doubtful and (missing > 0 or lacks_boot or not end_known))
"""
"""The journals that the verdict on a time needs. One that is not whole counts where its unknown part, from the last
record before its first gap to the first one after its last, reaches into that time or the moments before: messages of
then may be under way. What was recorded later decides each message's own fate in `audit`."""
_AT_RISK: Final = f"""
with audit as (select * from main.audit where {{at_risk}}),
receipts as (select * from main.receipts where {_PART} and first_at <= {{until}} and date <= cast({{until}} as date)),
engines as (select * from main.engines where {_PART}),
covering as ({_COVERING}),
clocks as ({CLOCKS}),
counted as ({COUNTED}),
subscribed as ({SUBSCRIBED}),
found as ({VERDICTS.format(now=0, journals="covering")})
select * from found where subscription = ''
"""
"""Rows of the table `verdicts` about the messages at risk: of each entity, and of all."""
_STORED: Final = f"""
select *, epoch_us(judged_at) / 1e6 as judged_at from verdicts
where entity = '' and subscription = '' and judged_at is not null and {_PART}
"""
_WAITED: Final = """
select lower(entity) as entity, quantile_cont(dwell, 0.5) as middle, quantile_cont(dwell, 0.95) as most,
       max(dwell) as longest
from audit where {at_risk} and dwell is not null group by lower(entity)
"""
_NAMED: Final = f"""
select status, count(*) as total, max(age) as oldest_age,
       arg_min(struct_pack(id := message_id, entity := entity), (first_at, message_id), {SHOWN}) as named
from audit where {{at_risk}} and list_contains({{statuses}}, status) group by status
"""
_REASONS: Final = """
select status, reason from audit where {at_risk} and coalesce(reason, '') <> '' group by status, reason
qualify row_number() over (partition by status order by count(*) desc, reason) <= 3
order by status, count(*) desc, reason
"""
_LOST: Final = """
select status, entity, message_id, accepted_at, diverted_at, moved_at, queue, stream, number, reason from audit
where {at_risk} and list_contains({statuses}, status) order by first_at, message_id
"""
_UNJUDGED: Final = """
select count(*) as number from events
where kind in ('delivered', 'diverted', 'in-doubt', 'refused', 'moved', 'dead-lettered', 'received')
  and trouble is null and {mine} and event_time > {latest}
"""

# Sends, in counts of about a second each.

_SENDS: Final = """
with counts as (
    select engine, lower(entity) as entity, epoch_us(event_time) as stop,
           epoch_us(event_time) - max(least(seconds, 3600) * 1e6)::bigint as start,
           sum(case when route = 'primary' then accepted else 0 end) as primary_accepted,
           sum(case when route = 'primary' then 0 else accepted end) as backlog_accepted, sum(failed) as failed
    from events where kind = 'sends' and trouble is null and {mine} group by engine, lower(entity), event_time
), good as (
    select engine, entity, start, stop, lag(stop) over (partition by engine, entity order by stop) as before
    from counts where primary_accepted + backlog_accepted > 0
), bad as (
    select engine, entity, start, stop from counts where primary_accepted + backlog_accepted = 0 and failed > 0
), placed as (
    select bad.*, good.start as next_start, good.before from bad asof left join good
      on bad.engine = good.engine and bad.entity = good.entity and bad.stop <= good.stop
), blocks as (
    select engine, entity, greatest(coalesce(next_start, max(stop)) - greatest(min(start), coalesce(before, 0)), 0)
        as blocked
    from placed group by engine, entity, next_start, before
), blocked as (
    select entity, max(blocked) / 1e6 as blocked
    from (select engine, entity, sum(blocked) as blocked from blocks group by engine, entity) group by entity
), longest as (
    select entity, greatest(max(start - before), 0) / 1e6 as longest_without from good group by entity
), sums as (
    select entity, sum(primary_accepted)::bigint as primary_accepted,
           sum(backlog_accepted)::bigint as backlog_accepted, sum(failed)::bigint as failed
    from counts group by entity
)
select sums.*, longest_without, blocked from sums left join longest using (entity) left join blocked using (entity)
order by entity
"""
"""Failed attempts without an accepted send beside them block until the next accepted one, or until the last of them."""
_FAILURES: Final = """
select entity, map(list(failure order by number desc, failure), list(number order by number desc, failure)) as failures
from (select lower(entity) as entity, failure, sum("count")::bigint as number from events
      where kind = 'failures' and trouble is null and {mine} group by lower(entity), failure)
group by entity
"""
_REFUSED: Final = """
select lower(entity) as entity, count(*) filter (kind = 'refused')::bigint as refused,
       bool_or(kind in ('refused', 'delivered')) as recorded
from events
where kind in ('refused', 'delivered') and trouble is null and {mine}
group by lower(entity)
"""
