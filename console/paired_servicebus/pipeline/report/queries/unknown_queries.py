"""The facts that a report cannot have, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import day_and_clock
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.pipeline.report.queries.judgement_queries import count_receipts_after
from paired_servicebus.pipeline.report.queries.table_source import Scope, limit_of, micros
from paired_servicebus.pipeline.report.report_values import EngineBoot, Judgement

MAX_NAMED: Final = 5
"""Engines or files that are named."""


def read_unknowns(scope: Scope, engines: Sequence[EngineBoot], judgement: Judgement) -> Iterator[str]:
    """Yield a sentence for each fact that the tables lack."""
    yield from _incomplete(engines)
    yield from _unreadable(scope)
    impossible = scope.count(_IMPOSSIBLE, latest=micros(limit_of(scope.tables)))
    if impossible:
        yield f"{plural(impossible, 'record')} with an impossible time: not in any figure by time"
    unjudged = count_receipts_after(scope, judgement.judged_at)
    if unjudged:
        yield f"{plural(unjudged, 'receipt')} newer than the judgement of {day_and_clock(judgement.judged_at or 0.0)}"
    if not scope.count(_COUNTS):
        yield "no sends were counted in this time: what callers met is unknown"
    if judgement.incident and judgement.silent:
        yield (
            f"no receiver reports what it got from {_listed(judgement.silent)}: there, a message counts as delivered "
            "when its destination accepted it"
        )


def _incomplete(engines: Sequence[EngineBoot]) -> Iterator[str]:
    found = [one for one in engines if one.missing]
    for one in found[:MAX_NAMED]:
        to = f"complete to {day_and_clock(one.complete_to)} UTC" if one.complete_to else "its first records are missing"
        yield f"the journal of {one.engine} lacks {plural(one.missing, 'record')} ({to}): figures may be too small"
    if len(found) > MAX_NAMED:
        rest = sum(one.missing for one in found[MAX_NAMED:])
        yield f"the journals of {len(found) - MAX_NAMED:,} more starts of engines lack {plural(rest, 'record')}"


def _unreadable(scope: Scope) -> Iterator[str]:
    rows = scope.rows(_UNREADABLE)
    if rows:
        named = [f"{row['lines']:,} in {repeated(row['file'] or 'a file')}" for row in rows[:MAX_NAMED]]
        rest = [f"the rest in {len(rows) - MAX_NAMED} more"] if len(rows) > MAX_NAMED else []
        total = sum(row["lines"] for row in rows)
        yield f"{plural(total, 'line')} of the journals could not be read: {', '.join([*named, *rest])}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_NAMED]) + (f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else "")


_UNREADABLE: Final = """
select file, count(*) as lines from events where trouble is not null and kind is distinct from 'gap'
group by file order by lines desc, file
"""
_IMPOSSIBLE: Final = """
select count(*) as number from events
where trouble is null and ("at" is null or "at" < timestamp '1970-01-01' or "at" > {latest})
"""
_COUNTS: Final = """
select count(*) as number from events
where kind = 'sends' and trouble is null and {mine}
"""
