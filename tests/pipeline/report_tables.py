"""Tables of schema.py in memory, made and judged from records: what a report reads, without files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from itertools import count
from pathlib import Path
from typing import Any, Final

from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.pipeline.journal_tables import JournalTables
from paired_servicebus.pipeline.judging.judge import derive, judge
from paired_servicebus.pipeline.report.report_command import report_from
from paired_servicebus.pipeline.table_store.schema import TABLES
from paired_servicebus.pipeline.table_store.sql_engine import DuckdbEngine
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.pipeline.judged import end_of, event_rows, load

Row = Mapping[str, object]
WRITTEN_AT: Final = 1_700_100_000.0
TIMES: Final = ("event_time", "minute", "first_at")
"""Columns that a row's date is made of."""


_COPIES: Final = count()


class MemoryTables(JournalTables):
    """Tables as of batch 7. A table of `rows` has these instead; their times are seconds since the epoch.

    Each is a view of the table `made_TABLE`, for tests to change.
    """

    def __init__(
        self,
        records: Sequence[Record] = (),
        *,
        rows: Mapping[str, Sequence[Row]] | None = None,
        batch: int = 7,
        written_at: float = WRITTEN_AT,
    ) -> None:
        super().__init__((Path("/made/tables"),), "")
        self._connection.execute("set memory_limit = '4GB'")  # it has all copies, too
        self.batch = batch
        self.written_at = self.read_at = written_at
        self.queries = 0
        engine = DuckdbEngine(self._connection)
        load(self._connection, "events", event_rows(records))
        derive(engine)
        judge(engine, now=end_of(records))
        for name, given in (rows or {}).items():
            load(self._connection, name, [_in_micros(row, TABLES[name]) for row in given])
        self._shape()

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        self.queries += 1
        return self.fetched(query, parameters)

    def again(self, **rows: Sequence[Row]) -> MemoryTables:
        """A copy of the same tables, with other rows in some of them."""
        other, name = copy(self), f"copy_{next(_COPIES)}"
        other._ending, other.queries, other._connection = ExitStack(), 0, self._connection.cursor()
        other._connection.execute(f"attach ':memory:' as {name}; copy from database memory to {name}; use {name}")
        for table, given in rows.items():
            load(other._connection, table, [_in_micros(row, TABLES[table]) for row in given], name="given")
            other._connection.execute(f"delete from made_{table}; insert into made_{table} from given")
        return other


def _in_micros(row: Row, columns: Mapping[str, str]) -> dict[str, object]:
    return {
        name: round(value * 1e6) if columns[name] == "TIMESTAMP" and isinstance(value, int | float) else value
        for name, value in row.items()
    }


def run_report(folder: Path, **options: Any) -> int:
    """Print the report of the tables in `folder`, or write it into `out` and print where."""
    with Tables.open(folder) as tables:
        return report_from(tables, **options)
