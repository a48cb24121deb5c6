"""The questions that every reader of tables asks, whoever made them: the pipeline, or a journal without it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.text.untrusted_text import repeated

MOST_NAMED: Final = 5
"""Journal files with unreadable lines that are named."""


class TableQueries(ABC):
    """Tables, which answer SQL of duckdb."""

    @abstractmethod
    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return the result of a query, a dict for each row; `?` is a parameter. Raises NoTablesError."""

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

    def cost(self, price: Price | None = None) -> list[dict[str, Any]]:
        """Operations and bytes by cause over all time, with `price` and `currency` where a price is known."""
        found = self.rows(
            "select cause, sum(operations)::bigint as operations, sum(bytes)::bigint as bytes from cost group by cause "
            "order by operations desc, cause"
        )
        if price is None:
            return found
        return [{**row, "price": price.of(row["operations"]), "currency": price.currency} for row in found]
