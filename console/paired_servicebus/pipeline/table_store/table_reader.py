"""Reads the tables, for consoles and reports: duckdb over the files of one manifest. No Spark, no JVM.

    with Tables.open(places.tables) as tables:
        tables.rows("select * from episodes where open")

The views and their columns are in table_views.py and schema.py. Times end in `_ts` and are microseconds since the
epoch (UTC); durations are seconds. A query blocks for tens of milliseconds: not for an event loop's thread.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import duckdb

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.errors import NoTablesError
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.pipeline.table_store import manifest as manifests
from paired_servicebus.pipeline.table_store.manifest import Manifest
from paired_servicebus.pipeline.table_store.table_views import definitions

MEMORY: Final = "512MB"
MOST_NAMED: Final = 5
"""Journal files with unreadable lines that are named."""
_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": 1,
    "memory_limit": MEMORY,
    "TimeZone": "UTC",
    "autoinstall_known_extensions": False,
}


class Tables:
    """The tables as of one batch. A context manager; for one thread.

    `batch` counts the changes of the tables, `written_at` is when the last of them was made, `read_at` when they were
    opened (seconds since the epoch).
    """

    def __init__(self, folder: Path, manifest: Manifest, *, read_at: float) -> None:
        self.folder = folder
        self.read_at = read_at
        self._take(manifest)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Return the tables in `folder`. Raises NoTablesError."""
        return cls(folder, manifests.read(folder), read_at=time.time())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    @property
    def batch(self) -> int:
        """How often the tables have changed."""
        return self.manifest.batch

    @property
    def written_at(self) -> float:
        """When they last changed."""
        return self.manifest.written_at

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return the result of a query, a dict for each row; `?` is a parameter.

        Raises:
            NoTablesError: a file of the tables is missing or broken.
        """
        try:
            return self._rows(query, parameters)
        except duckdb.IOException:  # tidied away since the manifest was read
            self._connection.close()
            self._take(manifests.read(self.folder))
        try:
            return self._rows(query, parameters)
        except (duckdb.IOException, duckdb.InvalidInputException) as error:
            raise NoTablesError(
                f"the tables in {self.folder} are damaged ({error}): remove the folder and run paired pipeline --once"
            ) from error

    def row(self, query: str, parameters: Sequence[object] = ()) -> dict[str, Any] | None:
        """Return the first row; None where there is none. Raises as `rows`."""
        found = self.rows(query, parameters)
        return found[0] if found else None

    def verdict(self) -> dict[str, Any] | None:
        """Return the audit over all entities; None: not judged yet. Raises as `rows`."""
        return self.row("select * from verdicts where entity = ''")

    def unreadable(self) -> tuple[int, str]:
        """How many lines of the journal could not be read, and how many in which file. Raises as `rows`."""
        found = self.rows(
            "select file, count(*) as lines from events where trouble is not null and kind is distinct from 'gap' "
            "group by file order by lines desc, file"
        )
        named = [f"{row['lines']:,} in {repeated(row['file'] or 'a file')}" for row in found[:MOST_NAMED]]
        rest = len(found) - len(named)
        return sum(row["lines"] for row in found), ", ".join([*named, *([f"the rest in {rest} more"] if rest else [])])

    def cost(self, price: Price | None = None) -> list[dict[str, Any]]:
        """Operations and bytes by cause over all time, with `price` and `currency` where a price is known."""
        found = self.rows(
            "select cause, sum(operations)::bigint as operations, sum(bytes)::bigint as bytes from cost group by cause "
            "order by operations desc, cause"
        )
        if price is None:
            return found
        return [{**row, "price": price.of(row["operations"]), "currency": price.currency} for row in found]

    def _take(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._connection = duckdb.connect(config=_SETTINGS)
        for statement in definitions(self.folder, manifest):
            self._connection.execute(statement)

    def _rows(self, query: str, parameters: Sequence[object]) -> list[dict[str, Any]]:
        done = self._connection.execute(query, list(parameters))
        names = [column[0] for column in done.description or ()]
        return [dict(zip(names, row, strict=True)) for row in done.fetchall()]
