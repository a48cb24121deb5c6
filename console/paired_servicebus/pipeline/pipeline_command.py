"""`paired pipeline`: the pipeline's process, watched from a terminal until it is done or the person has had enough."""

from __future__ import annotations

import sys
from pathlib import Path

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.core.text.time_format import day_and_clock
from paired_servicebus.pipeline.ingest.journal_source import none_yet, require_files
from paired_servicebus.pipeline.spark_processes import PipelineOrder, start_pipeline
from paired_servicebus.pipeline.table_store.audit_sql import IN_FLIGHT
from paired_servicebus.pipeline.table_store.table_reader import Tables
from paired_servicebus.printing import print_lines


def run_pipeline(order: PipelineOrder) -> int:
    """Make the tables, or keep them up with the journal until Ctrl-C; the exit status.

    Raises:
        PipelineError: it failed, or there is no journal to read; one sentence.
        KeyboardInterrupt: by Ctrl-C, before all tables were made `once`.
    """
    if order.trigger <= 0:
        raise PipelineError(f"--trigger is {order.trigger:g}; it must be more than 0 seconds")
    if order.once:
        require_files(order.journal)
    elif missing := none_yet(order.journal):
        _tell(f"{missing} yet: waiting for an engine that writes there")
    pipeline = start_pipeline(order)
    if not order.once:
        _tell(
            f"following {order.journal} into {order.tables} (log: {pipeline.log}); Ctrl-C ends it, and nothing is lost "
            "by it"
        )
    try:
        status = pipeline.wait()
    except KeyboardInterrupt:
        if order.once:
            raise
        status = 0
    finally:
        if pipeline.running:
            pipeline.stop()
    if status:
        raise PipelineError(pipeline.trouble() or f"the pipeline was ended with status {status}; see {pipeline.log}")
    if note := pipeline.note():
        _tell(note)
    _tell(*summary(order.tables))
    return 0


def summary(folder: Path) -> list[str]:
    """Return the tables in a few lines. Raises NoTablesError."""
    with Tables.open(folder) as tables:
        counted = tables.row("select count(*) as events, count(*) filter (kind = 'gap') as gaps from events")
        episodes = tables.row("select count(*) as all_of, count(*) filter (open) as open from episodes")
        verdict = tables.verdict()
        bad, files = tables.unreadable()
        where = f" ({files})" if bad else ""
        assert counted is not None, "a count has a row"
        assert episodes is not None, "a count has a row"
        lines = [
            f"tables in {folder} as of batch {tables.batch}, written {day_and_clock(tables.written_at)} UTC",
            f"  {counted['events']:,} events; {bad:,} unreadable lines{where}, {counted['gaps']:,} gaps; "
            f"{tables.manifest.repeated:,} came twice and were taken once",
            f"  {episodes['all_of']:,} episodes, {episodes['open']:,} open",
        ]
    if verdict is not None:
        named = ("accepted", "lost", "in_flight", "unexpected", "duplicates", "out_of_order", "parked")
        lines.append("  audit: " + ", ".join(f"{verdict[name] or 0:,} {name.replace('_', ' ')}" for name in named))
        if verdict["in_flight"]:
            lines.append(
                f"  in flight: no receiver reported them yet, the oldest for {verdict['in_flight_age']:.0f} s; after "
                f"{IN_FLIGHT / 60:.0f} min they count as lost"
            )
    return lines


def _tell(*lines: str) -> None:
    print_lines(lines)
    sys.stdout.flush()
