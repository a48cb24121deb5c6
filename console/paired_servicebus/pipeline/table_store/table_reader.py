"""Reads the tables, for consoles and reports: duckdb over the files of one version. No Spark, no JVM.

    with Tables.open(places.tables) as tables:
        tables.rows("select * from episodes where outcome = 'open'")

The views are the tables as they are on disk (schema.py): one row for each key. Each exists with its columns, whatever
its files have. Times are TIMESTAMP in UTC, durations are seconds. A query blocks for
tens of milliseconds: not for an event loop's thread.
"""

from __future__ import annotations

import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self

import duckdb

from paired_servicebus.core.errors import NoTablesError
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.pipeline.table_store import manifest as versions
from paired_servicebus.pipeline.table_store.manifest import Version
from paired_servicebus.pipeline.table_store.sql_engine import DuckdbEngine, as_rows
from paired_servicebus.pipeline.table_store.store_path import Place, place_of

# The questions that every reader of tables asks, whoever made them: the pipeline, or a journal without it.

MOST_NAMED: Final = 5
"""Journal files with unreadable lines that are named."""


class TableQueries(ABC):
    """Tables of one consistent state, which answer SQL of duckdb. A context manager; for one thread."""

    folders: tuple[Place, ...]
    """The tables' folder, or the journals'."""
    batch: int
    """How often the tables have changed; 0: they were made from a journal, without the pipeline."""
    written_at: float
    """When they last changed, in seconds since the epoch."""
    read_at: float
    """When they were opened, in seconds since the epoch."""
    _connection: duckdb.DuckDBPyConnection

    def __init__(self) -> None:
        self.read_at = time.time()
        self._ending = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.close()

    def _connect(self) -> None:
        """Open a connection in place of the present one."""
        self._ending.close()
        self._connection = self._ending.enter_context(connected())

    @abstractmethod
    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return the result of a query, a dict for each row; `?` is a parameter. Raises NoTablesError."""

    def fetched(self, query: str, parameters: Sequence[object]) -> list[dict[str, Any]]:
        """Return the result of a query, a dict for each row. Raises duckdb's errors."""
        return as_rows(self._connection.execute(query, list(parameters)))

    def row(self, query: str, parameters: Sequence[object] = ()) -> dict[str, Any] | None:
        """Return the first row; None where there is none. Raises as `rows`."""
        found = self.rows(query, parameters)
        return found[0] if found else None

    def verdicts(self) -> list[dict[str, Any]]:
        """Return the verdict on each pairing as a whole, by name; empty: not judged yet. Raises as `rows`."""
        return self.rows("select * from verdicts where pairing <> '' and entity = '' order by pairing")

    def verdict(self) -> dict[str, Any] | None:
        """Return the verdict on everything; None: not judged yet. Raises as `rows`."""
        return self.row("select * from verdicts where pairing = '' and entity = ''")

    def unreadable(self) -> tuple[int, str]:
        """How many lines of the journal could not be read, and how many in which file. Raises as `rows`."""
        found = self.rows(
            "select file, count(*) as lines from events where trouble is not null group by file "
            "order by lines desc, file"
        )
        named = [f"{row['lines']:,} in {repeated(row['file'] or 'a file')}" for row in found[:MOST_NAMED]]
        rest = len(found) - len(named)
        return sum(row["lines"] for row in found), ", ".join([*named, *([f"the rest in {rest} more"] if rest else [])])


MEMORY: Final = "512MB"
SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": 1,
    "memory_limit": MEMORY,
    "autoinstall_known_extensions": False,
}


@contextmanager
def connected(**settings: str | bool | float) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield duckdb with a folder for what does not fit into its memory.

    Only its user reads the folder, and its name is unknown before. Without a place for temporary files there is none,
    and a query that needs one fails for want of memory.

    Args:
        settings: duckdb's, on top of SETTINGS.
    """
    with ExitStack() as ending:
        spill = ""  # not duckdb's default, ./.tmp, which is anybody's
        with suppress(OSError):
            folder = tempfile.TemporaryDirectory(prefix="paired-tables-", ignore_cleanup_errors=True)
            spill = ending.enter_context(folder)
        yield ending.enter_context(duckdb.connect(config=SETTINGS | settings | {"temp_directory": spill}))


@contextmanager
def opened_engine(version: Version) -> Iterator[DuckdbEngine]:
    """Yield duckdb with a version's tables as the stored ones, for statements that add to them. Raises OSError."""
    with connected() as connection:
        yield DuckdbEngine(connection, version)


class Tables(TableQueries):
    """The tables as of one batch.

    `manifest` names the files, `note` is a sentence about a damaged newer version (empty without one).
    """

    def __init__(self, folder: Place, version: Version) -> None:
        super().__init__()
        self.folder = folder
        self.folders = (folder,)
        self._take(version)

    @classmethod
    def open(cls, folder: Place) -> Self:
        """Return the tables in `folder`, which may be a URL. Raises NoTablesError, ConfigurationError."""
        folder = place_of(folder)
        return cls(folder, versions.newest(folder))

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return the result of a query, a dict for each row; `?` is a parameter.

        Raises NoTablesError: a file of the tables is missing or broken.
        """
        try:
            return self._rows_or_error(query, parameters)
        except NoTablesError:
            if versions.commit_path(self.folder, self.batch).exists():
                raise
        self._take(versions.newest(self.folder))  # that which was opened long ago is removed
        return self._rows_or_error(query, parameters)

    def _take(self, version: Version) -> None:
        self.path, self.manifest, self.note = version.path, version.manifest, version.note
        self.batch, self.written_at = version.manifest.batch, version.manifest.written_at
        self._connect()
        DuckdbEngine(self._connection, version, schema="main")

    def _rows_or_error(self, query: str, parameters: Sequence[object]) -> list[dict[str, Any]]:
        try:
            return self.fetched(query, parameters)
        except duckdb.Error as error:
            if not isinstance(error, _BROKEN) and type(error) is not duckdb.Error:
                raise  # the query's own mistake
            raise NoTablesError(f"the tables in {self.folder} cannot be read: {error}") from error


_BROKEN: Final = (duckdb.IOException, duckdb.InvalidInputException)
"""Errors about files; some damage is the base class alone."""
