"""`paired pipeline`: the pipeline's process, watched from a terminal until it is done or the person has had enough."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from console.core.errors import PipelineError
from console.pipeline.launch import start_pipeline
from console.pipeline.tables import Tables


def run_pipeline(
    *, journal: Path, tables: Path, once: bool, master: str | None, trigger: float, java_home: Path | None
) -> int:
    """Make the tables, or keep them up with the journal until Ctrl-C; the exit status.

    Raises:
        PipelineError: it failed; one sentence.
        KeyboardInterrupt: by Ctrl-C, before all tables were made `once`.
    """
    if trigger <= 0:
        raise PipelineError(f"--trigger is {trigger:g}; it must be more than 0 seconds")
    pipeline = start_pipeline(
        journal=journal, tables=tables, once=once, master=master, trigger=trigger, java_home=java_home
    )
    if not once:
        _tell(f"following {journal} into {tables} (log: {pipeline.log}); Ctrl-C ends it, and nothing is lost by it")
    try:
        status = pipeline.wait()
    except KeyboardInterrupt:
        if once:
            raise
        status = 0
    finally:
        if pipeline.running:
            pipeline.stop()
    if status:
        raise PipelineError(
            pipeline.trouble() or f"the pipeline was ended with status {status}; {pipeline.log} has what it said"
        )
    if note := pipeline.note():
        _tell(note)
    _tell(*summary(tables))
    return 0


def summary(folder: Path) -> list[str]:
    """The tables in a few lines. Raises NoTablesError."""
    with Tables.open(folder) as tables:
        counted = tables.row(
            "select count(*) as events, count(*) filter (trouble is not null and kind is distinct from 'gap') as bad, "
            "count(*) filter (kind = 'gap') as gaps from events"
        )
        episodes = tables.row("select count(*) as all_of, count(*) filter (open) as open from episodes")
        verdict = tables.verdict()
        at = datetime.fromtimestamp(tables.written_at, UTC)
        assert counted is not None, "a count has a row"
        assert episodes is not None, "a count has a row"
        lines = [
            f"tables in {folder} as of batch {tables.batch}, written {at:%Y-%m-%d %H:%M:%S} UTC",
            f"  {counted['events']:,} events; {counted['bad']:,} unreadable lines, {counted['gaps']:,} gaps; "
            f"{tables.manifest.repeated:,} came twice and were taken once",
            f"  {episodes['all_of']:,} episodes, {episodes['open']:,} open",
        ]
    if verdict is not None:
        named = ("accepted", "lost", "unexpected", "duplicates", "out_of_order", "parked")
        lines.append("  audit: " + ", ".join(f"{verdict[name]:,} {name.replace('_', ' ')}" for name in named))
    return lines


def _tell(*lines: str) -> None:
    sys.stdout.write("".join(line + "\n" for line in lines))
    sys.stdout.flush()
