"""`paired tables check`: whether the tables are fresh and whole, for a person and for a monitor.

Exit status 0 fresh and whole; 1 stale, with gaps, with an incomplete journal, or not judged; 3 no readable tables.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from paired_servicebus.core.errors import ConfigurationError, NoTablesError
from paired_servicebus.core.text.time_format import age, day_and_clock
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.pipeline.table_store.table_reader import Tables
from paired_servicebus.printing import print_lines, print_object, report_error
from paired_servicebus.settings import seconds_of

FRESH: Final = 0
STALE: Final = 1
NONE: Final = 3
GONE: Final = 24 * 3600.0
"""Seconds without a record after which an engine that left no end is one that was removed."""
MAX_NAMED: Final = 10
"""Engines that are named; the rest is counted."""


class EngineJournal(msgspec.Struct, frozen=True, kw_only=True):
    """The journal of one engine, over all its boots."""

    engine: str
    missing: int
    """Records that its numbers lack."""
    last_at: float
    """The time of its newest record, seconds since the epoch."""
    is_running: bool
    """Whether its latest boot has no end in it."""


class TablesCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the tables. Times are seconds since the epoch; 0: never."""

    status: int
    batch: int
    written_at: float
    newest_at: float
    """The time of the newest record."""
    age: float | None
    """Seconds from the newest record to now; None: there is no record."""
    max_age: float
    engines: int
    complete: int
    incomplete: tuple[EngineJournal, ...]
    """With missing records, or running and older than the newest record by more than `max_age`, up to a day."""
    missing: int
    unreadable: int
    """Lines that could not be read."""
    unjudged: int
    """Files of events that no judgement has taken yet."""
    judged_at: float
    note: str
    """About a damaged newer version; empty without one."""


def run_check(folder: Path, *, max_age: str, json_line: bool) -> int:
    """Print the state of the tables; return the exit status.

    Raises ConfigurationError: `max_age` is no time.
    """
    seconds = seconds_of(max_age)
    if seconds is None or seconds <= 0:
        raise ConfigurationError(f'--max-age is {max_age!r}; it is a time, as in "10m"')
    try:
        with Tables.open(folder) as tables:
            found = check_tables(tables, max_age=seconds, now=time.time())
    except NoTablesError as error:
        report_error(str(error))
        return NONE
    if json_line:
        print_object(msgspec.json.encode(found).decode())
    else:
        print_lines(as_lines(found, folder))
    return found.status


def check_tables(tables: Tables, *, max_age: float, now: float) -> TablesCheck:
    """Return the state of the tables at a time. Raises NoTablesError."""
    manifest = tables.manifest
    engines = _journals(tables)
    newest = max((one.last_at for one in engines), default=manifest.end(now) / 1e6)
    incomplete = tuple(
        one for one in engines if one.missing or (one.is_running and max_age < newest - one.last_at < GONE)
    )
    unjudged = len(manifest.unjudged())
    judged_late = bool(unjudged) and now - manifest.judged_at > max_age
    is_fresh = bool(newest) and now - newest <= max_age
    is_whole = not incomplete and not judged_late and not tables.note
    return TablesCheck(
        status=FRESH if is_whole and is_fresh else STALE,
        batch=manifest.batch,
        written_at=manifest.written_at,
        newest_at=newest,
        age=max(0.0, now - newest) if newest else None,
        max_age=max_age,
        engines=len(engines),
        complete=len(engines) - len(incomplete),
        incomplete=incomplete,
        missing=sum(gap.missing for gap in manifest.gaps()),
        unreadable=tables.unreadable()[0],
        unjudged=unjudged,
        judged_at=manifest.judged_at,
        note=tables.note,
    )


def as_lines(found: TablesCheck, folder: Path) -> list[str]:
    """Return the state as lines, the worst first."""
    fresh = "they have no record"
    if found.age is not None:
        limit = f": more than {age(found.max_age)}" if found.age > found.max_age else ""
        fresh = f"the newest record is of {_moment(found.newest_at)}, {age(found.age)} ago{limit}"
    lines = [
        f"tables in {folder}: {'fresh and whole' if found.status == FRESH else 'NOT fresh and whole'}",
        f"  {fresh}; batch {found.batch}, written {_moment(found.written_at)}",
        f"  {found.complete:,} of {found.engines:,} engines' journals are complete; {found.missing:,} records missing",
        *(f"    {line}" for line in _incomplete(found)),
    ]
    if found.unreadable:
        lines.append(
            f"  {found.unreadable:,} lines of the journals could not be read: they are in events, with trouble"
        )
    if found.unjudged:
        judged = f"the last judgement was {_moment(found.judged_at)}" if found.judged_at else "nothing is judged yet"
        lines.append(f"  not judged: {found.unjudged:,} files of events; {judged}")
    return [*lines, *([f"  {found.note}"] if found.note else [])]


def _incomplete(found: TablesCheck) -> Iterator[str]:
    for one in found.incomplete[:MAX_NAMED]:
        missing = f"{one.missing:,} records missing" if one.missing else "running, and silent"
        yield f"{repeated(one.engine)}: {missing}; its newest record is of {_moment(one.last_at)}"
    if len(found.incomplete) > MAX_NAMED:
        yield f"and {len(found.incomplete) - MAX_NAMED:,} more"


def _journals(tables: Tables) -> list[EngineJournal]:
    return [_journal(row) for row in tables.rows(_ENGINES)]


def _journal(row: dict[str, Any]) -> EngineJournal:
    last = row["last_at"]
    return EngineJournal(
        engine=row["engine"] or "",
        missing=int(row["missing"] or 0),
        last_at=last.replace(tzinfo=UTC).timestamp() if isinstance(last, datetime) else 0.0,
        is_running=bool(row["is_running"]),
    )


def _moment(at: float) -> str:
    return f"{day_and_clock(at)} UTC" if at else "never"


_ENGINES: Final = """
select engine, sum(missing)::bigint as missing, max(last_at) as last_at,
       arg_max(ended in ('running', 'silent'), last_at) as is_running
from engines group by engine order by missing desc, last_at, engine
"""
