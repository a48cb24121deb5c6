"""Episodes, engines and the recorded time, from the tables `episodes` and `engines`."""

from __future__ import annotations

from typing import Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.pipeline.report.queries.table_source import Row, Scope, TableSource, limit_of, micros, possible
from paired_servicebus.pipeline.report.report_values import Chain, EngineBoot, IncidentEpisode, incidents

STEPS: Final = (
    "last_good_at", "suspected_at", "failed_over_at", "first_diverted_at", "first_ping_at", "failed_back_at",
    "backlog_empty_at",
)  # fmt: skip


def read_incidents(tables: TableSource, *, pairing: str | None = None) -> list[Chain]:
    """Return every incident with a failover, of one pairing or of all; the oldest first."""
    return incidents(one for one in read_episodes(tables, pairing=pairing) if one.failed_over_at is not None)


def read_episodes(tables: TableSource, *, pairing: str | None = None) -> list[IncidentEpisode]:
    """Return all episodes of possible times, of one pairing or of all."""
    before = limit_of(tables)
    found = [_episode(row, before) for row in tables.rows(_EPISODES)]
    return [one for one in found if one is not None and pairing in (None, one.pairing)]


def _episode(row: Row, before: float) -> IncidentEpisode | None:
    """Return the episode; None if it has no possible time. Impossible times of its steps are unknown."""
    steps = {step: row[step] if possible(row[step], before=before) else None for step in STEPS}
    began = next((at for at in (row["began_at"], *steps.values()) if possible(at, before=before)), None)
    if began is None:
        return None
    last = row["last_at"] if possible(row["last_at"], before=before) else None
    values: Row = {
        **{name: str(row[name] or "") for name in ("id", "pairing", "engine", "boot", "entity", "cause", "end_reason")},
        **steps,
    }
    return IncidentEpisode(
        **values,
        outcome=row["outcome"] or "",
        forced=bool(row["forced"]),
        began_at=began,
        last_at=max(at for at in (last, began) if at is not None),
        parked=row["parked"],
        moved=row["moved"] or 0,
        dead_lettered=row["dead_lettered"] or 0,
        pings=row["pings_sent"] or 0,
    )


def recorded_span(tables: TableSource, engines: tuple[str, ...] | None = None) -> tuple[float, float]:
    """Return the first and the last possible time of the engines' records.

    Raises ConfigurationError: there is none.
    """
    before = limit_of(tables)
    chosen = [row for row in tables.rows(_SPANS) if engines is None or row["engine"] in engines]
    firsts = [row["first_at"] for row in chosen if possible(row["first_at"], before=before)]
    lasts = [row["last_at"] for row in chosen if possible(row["last_at"], before=before)]
    if not firsts or not lasts or len(lasts) < len(chosen):
        return _exact_span(tables, before, engines)
    return min(firsts), max(lasts)


def _exact_span(tables: TableSource, before: float, engines: tuple[str, ...] | None) -> tuple[float, float]:
    """Look at the records themselves, where an engine's last time is impossible."""
    names = [row["engine"] for row in tables.rows(_SPANS)] if engines is None else list(engines)
    found = tables.rows(_RECORDS, [micros(before), names])
    if not found or found[0]["first"] is None:
        raise ConfigurationError(f"the tables in {tables.folders[0]} are empty: no journal has been read into them yet")
    return found[0]["first"], found[0]["last"]


def read_pairings(tables: TableSource) -> dict[str, tuple[str, ...]]:
    """Return the pairings of the tables, each with its engines."""
    found: dict[str, dict[str, None]] = {}
    for row in tables.rows("select distinct pairing, engine from engines order by pairing, engine"):
        found.setdefault(row["pairing"] or "", {})[row["engine"]] = None
    return {pairing: tuple(engines) for pairing, engines in found.items()}


def read_engines(scope: Scope) -> tuple[EngineBoot, ...]:
    """Return the boots of the scope's engines with records in its time, and the incomplete ones before its end."""
    return tuple(_boot(row) for row in scope.rows(_ENGINES))


def _boot(row: Row) -> EngineBoot:
    words = ("pairing", "engine", "boot", "ended", "end_reason", "primary", "secondary", "version")
    values: Row = {name: str(row[name] or "") for name in words}
    return EngineBoot(
        **values,
        started_at=row["started_at"],
        last_at=row["last_at"],
        complete_to=row["complete_to"],
        records=row["records"] or 0,
        missing=row["missing"] or 0,
    )


def count_recovered(scope: Scope) -> int:
    """Return how often an entity was suspect and recovered without a failover."""
    return scope.count(_RECOVERED)


def _times(*names: str) -> str:
    return ", ".join(f"epoch_us({name}) / 1e6 as {name}" for name in names)


_EPISODES: Final = f"""
select id, pairing, engine, boot, entity, cause, end_reason, outcome, forced, parked, moved, dead_lettered, pings_sent,
       {_times("began_at", "last_at", *STEPS)}
from episodes order by began_at, id
"""
_SPANS: Final = f"select engine, {_times('first_at', 'last_at')} from engines"
_RECORDS: Final = """
select epoch_us(min("at")) / 1e6 as first, epoch_us(max("at")) / 1e6 as last from events
where trouble is null and "at" >= timestamp '1970-01-01' and "at" < make_timestamp(?::bigint)
  and list_contains(?, engine)
"""
_ENGINES: Final = f"""
select pairing, engine, boot, ended, end_reason, "primary", secondary, version, records, missing,
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
