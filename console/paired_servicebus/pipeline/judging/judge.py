"""Makes the tables of a journal, one statement after the other, by duckdb.

    derive(engine)            every table that is made from `events`
    judge(engine, now=…)      receipts, audit, verdicts, and the figures of episodes

Spark's batches and judgements run its parts: what is made from events and from messages is Spark's, and put into the
engine; the rest is made here, from these few rows and the stored ones.
"""

from __future__ import annotations

from paired_servicebus.pipeline.judging import audit_sql, derived_sql, verdict_sql
from paired_servicebus.pipeline.judging.audit_sql import IN_FLIGHT
from paired_servicebus.pipeline.table_store.sql_engine import DuckdbEngine


def derive(engine: DuckdbEngine) -> None:
    """Make every table that does not depend on a judgement from the table `events`."""
    for name, statement in derived_sql.FROM_EVENTS.items():
        engine.make(name, statement)
    derive_sums(engine)
    derive_episodes(engine)


def derive_sums(engine: DuckdbEngine) -> None:
    """Make the engines, their gaps, the sums by minute, and `touched`, the boots whose episodes change."""
    engine.make("gaps", derived_sql.GAPS)
    engine.make("engines", derived_sql.ENGINES)
    for name, table in derived_sql.SUMMED.items():
        dates = ", ".join(f"date '{date}'" for date in sorted(dates_of(engine, name)))
        engine.make(name, table.query(name, dates or "null"))
    engine.make("touched", derived_sql.TOUCHED)


def dates_of(engine: DuckdbEngine, table: str) -> set[str]:
    """Return the days for which `sums` has rows of a table."""
    kinds = derived_sql.words(derived_sql.SUMMED[table].kinds)
    days = f"(select distinct strftime(minute, '%Y-%m-%d') as day from sums where kind in ({kinds}))"
    return {row["day"] for row in engine.rows(days)}


def derive_episodes(engine: DuckdbEngine) -> None:
    """Make `episodes`, those of the `touched` boots anew."""
    engine.make("ended", derived_sql.STORIES)
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
    for name, statement in {**verdict_sql.PARTS, "figures": derived_sql.EPISODE_FIGURES}.items():
        engine.make(name, statement)
    engine.make("verdicts", verdict_sql.VERDICTS.format(now=now, journals="engines"))
    engine.make("episodes", derived_sql.EPISODES_JUDGED)
