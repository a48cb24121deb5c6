"""The tables as a report reads them, and the part of them that one report is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from paired_servicebus.core.text.time_format import is_possible

Row = dict[str, Any]
FUTURE: Final = 86_400.0
"""Seconds after the reading from which a time is impossible."""


class TableSource(Protocol):
    """The tables of schema.py as views of one consistent state, made by the pipeline or from a journal."""

    @property
    def folders(self) -> tuple[Path, ...]:
        """The tables' folder, or the journals'."""
        ...

    @property
    def batch(self) -> int:
        """The number of the tables' state; 0: made from a journal, without the pipeline."""
        ...

    @property
    def written_at(self) -> float:
        """When this state was made (seconds since the epoch)."""
        ...

    @property
    def read_at(self) -> float:
        """When it was opened (seconds since the epoch)."""
        ...

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Return the rows of a query of duckdb's SQL; `?` is a parameter. Raises NoTablesError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The part of the tables that a report is about: engines of some pairings, from one time to another."""

    tables: TableSource
    pairings: tuple[str, ...]
    engines: tuple[str, ...]
    since: float
    until: float

    def rows(self, query: str, **more: object) -> list[Row]:
        """Return the rows of a query with the parameters $engines, $pairings, $since and $until, and `more`.

        The query names the parameters that it needs, each in braces. Raises NoTablesError.
        """
        known = {
            "engines": list(self.engines),
            "pairings": list(self.pairings),
            "since": micros(self.since),
            "until": micros(self.until),
            **more,
        }
        return self.tables.rows(*positional(query, known))

    def count(self, query: str, **more: object) -> int:
        """Return the number in the column `number` of a query's only row; 0 if it is null."""
        found = self.rows(query, **more)
        return int(found[0]["number"] or 0) if found else 0


def positional(query: str, known: dict[str, Any]) -> tuple[str, list[object]]:
    """Return the query with `?` for each name in braces, and the values in that order.

    A name of FRAGMENTS stands for its text; times become TIMESTAMPs.
    """
    for name, fragment in FRAGMENTS.items():
        query = query.replace(name, fragment)
    parts, values = query.split("{"), []
    text = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition("}")
        values.append(known[name])
        text.append(("make_timestamp(?::bigint)" if name in _TIMES else "?") + rest)
    return "".join(text), values


FRAGMENTS: Final = {
    "{mine}": "event_time between {since} and {until} and list_contains({engines}, engine) "
    "and date between cast({since} as date) and cast({until} as date)",
    "{plotted}": "event_time >= {begin} and event_time < {end} and trouble is null "
    "and list_contains({engines}, engine) "
    "and date between cast({begin} as date) and cast({end} as date)",
    "{at_risk}": "list_contains({pairings}, pairing) and first_at <= {until} and date <= cast({until} as date) "
    "and (first_at >= {since} or (accepted_at < {since} "
    "and coalesce(received_at, case when receivers_told then null else reached_at end, {until}) >= {since} "
    "and coalesce(dead_lettered_at, {until}) >= {since}))",
}
"""Conditions of a scope's events, of its plots' events, and of its messages at risk: those first seen in its time, and
those accepted before and not received by then. Where no receiver records, a message is received when its destination
accepted it. The date chooses the files."""
_TIMES: Final = frozenset({"since", "until", "begin", "end", "latest"})


def micros(at: float) -> int:
    """Return a time in microseconds."""
    return round(at * 1_000_000)


def possible(at: float | None, *, before: float) -> bool:
    """Return whether a time is on the calendar and before a limit."""
    return at is not None and is_possible(at) and at <= before


def limit_of(tables: TableSource) -> float:
    """Return the latest time that a record may have: clocks of other hosts may be ahead, but not by a day."""
    return max(tables.written_at, tables.read_at) + FUTURE
