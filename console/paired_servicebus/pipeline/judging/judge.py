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


def judge(engine: DuckdbEngine, *, now: int, in_flight: int = IN_FLIGHT, again: bool = False) -> None:
    """Make `receipts`, `audit` and `verdicts` from the derived tables, and put the figures into `episodes`.

    Args:
        now: the time of the judgement, in microseconds since the epoch.
        in_flight: microseconds that a message is in flight at least.
        again: the tables `receipts` and `audit` are of an earlier judgement, and the view `new_events` has what came
            since: only messages that these touch, or whose fate is open, are judged.
    """
    columns = ", ".join(TABLES["receipts"])
    partials = audit_sql.PARTIAL.format(events="new_events" if again else "events")
    if again:
        engine.make("new_receipts", partials)
        engine.make("touched", audit_sql.TOUCHED)
        engine.make("touched_before", audit_sql.TOUCHED_BEFORE.format(known="receipts"))
        engine.make("known_audit", "select * from audit")
        partials = f"select {columns} from new_receipts union all select {columns} from receipts"
    engine.make("receipts", audit_sql.MERGE.format(partials=f"({partials}) as partials"))
    for independent in audit_sql.parts(whole=not again, now=now, in_flight=in_flight):
        for name, statement in independent.items():
            engine.make(name, statement)
    audit = audit_sql.AUDIT
    if again:
        audit += f" union all select {', '.join(TABLES['audit'])} from ({audit_sql.KEPT}) as kept"
    engine.make("audit", audit)
    for name, statement in verdict_sql.PARTS.items():
        engine.make(name, statement)
    engine.make("verdicts", verdict_sql.VERDICTS.format(now=now, journals="engines"))
    engine.make("figures", derived_sql.EPISODE_FIGURES)
    engine.make("episodes", derived_sql.EPISODES_JUDGED)
