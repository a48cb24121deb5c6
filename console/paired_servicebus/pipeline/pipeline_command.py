"""`paired pipeline`: the pipeline's process, watched from a terminal until it is done or the person has had enough."""

from __future__ import annotations

import sys
from typing import Final

from paired_servicebus.core.errors import NoTablesError, PipelineError
from paired_servicebus.core.text.time_format import day_and_clock
from paired_servicebus.pipeline.ingest.journal_files import find_journal_files
from paired_servicebus.pipeline.spark_processes import Bar, PipelineOrder, start_pipeline, wait_shown
from paired_servicebus.pipeline.table_store.store_path import Place, place_of
from paired_servicebus.pipeline.table_store.table_reader import Tables
from paired_servicebus.printing import print_lines

NAMED: Final = (
    "accepted", "lost", "missing", "unknown", "in_flight", "unexpected", "duplicates", "out_of_order", "parked",
)  # fmt: skip
"""Figures of a verdict in the summary."""
_COUNTED: Final = """
select (select count(*) from events) as events, (select count(distinct engine) from engines) as engines,
       (select coalesce(sum(missing), 0)::bigint from gaps) as missing,
       (select count(*) from episodes) as episodes, (select count(*) from episodes where outcome = 'open') as open
"""


def run_pipeline(order: PipelineOrder) -> int:
    """Make the tables, or keep them up with the journal until Ctrl-C; the exit status.

    Raises:
        PipelineError: it failed, or there is no journal to read; one sentence.
        KeyboardInterrupt: by Ctrl-C, before all tables were made `once`.
    """
    if order.trigger <= 0:
        raise PipelineError(f"--trigger is {order.trigger:g}; it must be more than 0 seconds")
    tables = place_of(order.tables)
    found = find_journal_files(order.journals)
    if order.once:
        found.require()
    elif missing := found.none_yet():
        _tell(f"{missing} yet: waiting for an engine that writes there")
    bar = Bar()
    for note in found.notes:
        bar.say(note)
    pipeline = start_pipeline(order)
    if not order.once:
        journals = ", ".join(str(journal) for journal in found.roots)
        _tell(f"following {journals} into {tables} (log: {pipeline.log}); Ctrl-C ends it, and nothing is lost by it")
    try:
        status = wait_shown(pipeline.wait, pipeline.log, bar)
    except KeyboardInterrupt:
        if order.once:
            raise
        status = 0
    finally:
        if pipeline.running:
            pipeline.stop()
    if status:
        raise PipelineError(pipeline.trouble() or f"the pipeline was ended with status {status}; see {pipeline.log}")
    try:
        _tell(*summary(tables))
    except NoTablesError:
        if order.once:
            raise
        _tell(f"no tables were made in {tables} yet")
    return 0


def summary(folder: Place) -> list[str]:
    """Return the tables in a few lines. Raises NoTablesError."""
    with Tables.open(folder) as tables:
        counted = tables.row(_COUNTED)
        verdicts = tables.verdicts()
        bad, files = tables.unreadable()
        where = f" ({files})" if bad else ""
        assert counted is not None, "counts have a row"
        lines = [
            f"tables in {folder} as of batch {tables.batch}, written {day_and_clock(tables.written_at)} UTC",
            f"  {counted['events']:,} events of {counted['engines']:,} engines; {bad:,} unreadable lines{where}, "
            f"{counted['missing']:,} records missing; {tables.manifest.repeated:,} came twice and were taken once",
            f"  {counted['episodes']:,} episodes, {counted['open']:,} open",
        ]
        note = tables.note
    for verdict in verdicts:
        named = ", ".join(f"{verdict[name] or 0:,} {name.replace('_', ' ')}" for name in NAMED)
        lines.append(f"  audit of {verdict['pairing']}: {verdict['finding'] or 'not judged'}; {named}")
        if verdict["rests_on"]:
            lines.append(f"    {verdict['rests_on']}")
    return [*lines, *([f"  {note}"] if note else [])]


def _tell(*lines: str) -> None:
    print_lines(lines)
    sys.stdout.flush()
