"""Makes the tables of a whole journal, one statement after the other, by an engine of SQL.

    derive(engine)            every table that is made from `events`
    judge(engine, now=…)      receipts, audit, verdicts, and the figures of episodes

An incremental reader runs the same statements over the tables that it has already (derived_sql.py).
"""

from __future__ import annotations

from paired_servicebus.pipeline.judging import audit_sql, derived_sql, verdict_sql
from paired_servicebus.pipeline.judging.audit_sql import IN_FLIGHT
from paired_servicebus.pipeline.table_store.schema import TABLES
from paired_servicebus.pipeline.table_store.sql_engine import DuckdbEngine


def empty_of(table: str) -> str:
    """Return a statement without rows, in a table's columns."""
    nulls = {"VARCHAR": "cast(null as string)", "DOUBLE[]": "array_repeat(cast(null as double), 1)"}
    columns = (f"{nulls.get(kind, f'cast(null as {kind})')} as {name}" for name, kind in TABLES[table].items())
    return f"select {', '.join(columns)} where false"


def derive(engine: DuckdbEngine) -> None:
    """Make every table that does not depend on a judgement from the view `events`."""
    engine.make("timeline", derived_sql.TIMELINE_OF_EVENTS)
    engine.make("spans", derived_sql.SPANS)
    engine.make("gaps", derived_sql.GAPS)
    engine.make("receiving", derived_sql.RECEIVING)
    engine.make("known_engines", empty_of("engines"))
    engine.make("engines", derived_sql.ENGINES)
    engine.make("sums", derived_sql.SUMS)
    engine.make("pings", derived_sql.PINGS)
    engine.make("readings", derived_sql.READINGS)
    for name, table in derived_sql.SUMMED.items():
        engine.make(f"known_{name}", empty_of(name))
        engine.make(name, table.query(name))
    engine.make("story", derived_sql.STORY)
    engine.make("ended", derived_sql.STORIES)
    engine.make("sends", derived_sql.SENDS)
    engine.make("known", empty_of("episodes"))
    engine.make("others", empty_of("episodes"))
    engine.make("episodes", derived_sql.EPISODES)


def judge(engine: DuckdbEngine, *, now: int, in_flight: int = IN_FLIGHT) -> None:
    """Make `receipts`, `audit` and `verdicts` from the derived tables, and put the figures into `episodes`.

    Args:
        now: the time of the judgement, in microseconds since the epoch.
        in_flight: microseconds that a message is in flight at least.
    """
    partials = audit_sql.PARTIAL.format(events="events")
    engine.make("receipts", audit_sql.MERGE.format(partials=f"({partials}) as partials"))
    for independent in audit_sql.parts(whole=True, now=now, in_flight=in_flight):
        for name, statement in independent.items():
            engine.make(name, statement)
    engine.make("audit", audit_sql.AUDIT)
    sum_up(engine, now=now)


def sum_up(engine: DuckdbEngine, *, now: int) -> None:
    """Make `verdicts` and the figures of `episodes` from `receipts` and `audit`."""
    for name, statement in verdict_sql.PARTS.items():
        engine.make(name, statement)
    engine.make("verdicts", verdict_sql.VERDICTS.format(now=now, journals="engines"))
    engine.make("figures", derived_sql.EPISODE_FIGURES)
    engine.make("episodes", derived_sql.EPISODES_JUDGED)
