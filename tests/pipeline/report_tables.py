"""Tables of schema.py in memory, made from records: what a report reads, without the pipeline and without files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import duckdb

from paired_servicebus.core.model.pairing_events import EngineStarted, Record
from paired_servicebus.pipeline.table_store.schema import DATED, TABLES
from tests.pipeline.made_tables import make_version

Row = Mapping[str, object]
WRITTEN_AT: Final = 1_700_100_000.0
TIMES: Final = ("event_time", "minute", "first_at")
"""Columns that a row's date is made of."""


class MemoryTables:
    """Tables as of batch 7. Rows give times as seconds since the epoch."""

    def __init__(
        self,
        records: Sequence[Record] = (),
        *,
        rows: Mapping[str, Sequence[Row]] | None = None,
        batch: int = 7,
        written_at: float = WRITTEN_AT,
    ) -> None:
        self.folders = (Path("/made/tables"),)
        self.batch = batch
        self.written_at = self.read_at = written_at
        self.queries = 0
        self._connection = duckdb.connect(config={"threads": 1})
        given = {"events": [_event(record) for record in records], **(rows or {})}
        for name in TABLES:
            self._make(name, given.get(name, ()))
        self._derive(given, records)

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        self.queries += 1
        done = self._connection.execute(query, list(parameters))
        names = [column[0] for column in done.description or ()]
        return [dict(zip(names, row, strict=True)) for row in done.fetchall()]

    def row(self, query: str, parameters: Sequence[object] = ()) -> dict[str, Any] | None:
        found = self.rows(query, parameters)
        return found[0] if found else None

    def store(self, folder: Path) -> Path:
        """Write the same rows as tables on disk."""
        rows = {name: self.rows(f'select * from "made_{name}"') for name in TABLES}
        found: dict[str, Any] = {name: listed for name, listed in rows.items() if listed}
        return make_version(folder, **found)

    def __enter__(self) -> MemoryTables:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _make(self, name: str, rows: Iterable[Row]) -> None:
        columns = TABLES[name]
        read = {column: "BIGINT" if kind == "TIMESTAMP" else kind for column, kind in columns.items()}
        told = ", ".join(
            f'make_timestamp("{column}") as "{column}"' if kind == "TIMESTAMP" else f'"{column}"'
            for column, kind in columns.items()
        )
        with tempfile.NamedTemporaryFile("w", suffix=".json") as lines:
            for row in rows:
                values = {column: _value(row.get(column), kind) for column, kind in columns.items()}
                lines.write(json.dumps(values, default=str) + "\n")
            lines.flush()
            self._connection.execute(
                f'create table "made_{name}" as select {told} from read_json(?, columns = {read!r}, '
                "format = 'newline_delimited')",
                [lines.name],
            )
        day = next((f', cast("{time}" as date) as date' for time in TIMES if name in DATED and time in columns), "")
        self._connection.execute(f'create view "{name}" as select *{day} from "made_{name}"')

    def _derive(self, given: Mapping[str, Sequence[Row]], records: Sequence[Record]) -> None:
        pairing = next((one.event.pairing for one in records if isinstance(one.event, EngineStarted)), "shop")
        for name, query in _DERIVED.items():
            if name not in given:
                self._connection.execute(f'insert into "made_{name}" by name {query}', [pairing] * query.count("?"))


def _value(value: object, kind: str) -> object:
    return round(value * 1e6) if kind == "TIMESTAMP" and isinstance(value, int | float) else value


def _column(field: str) -> str:
    return "event_time" if field == "at" else field


def _event(record: Record) -> Row:
    event = record.event
    values = {_column(field.name): getattr(event, field.name) for field in fields(event)}
    return {**values, "v": 1, "engine": record.engine, "boot": record.boot, "seq": record.seq, "kind": event.kind}


_DERIVED: Final = {
    "timeline": """
        select * exclude (trouble, line, file, date) from events
        where trouble is null and kind not in ('sends', 'failures', 'operations', 'queue-read', 'delivered', 'diverted',
            'in-doubt', 'refused', 'moved', 'dead-lettered', 'received')
    """,
    "engines": """
        select coalesce(any_value(pairing) filter (kind = 'engine-started'), ?) as pairing, engine, boot,
               min(event_time) filter (kind = 'engine-started') as started_at, min(event_time) as first_at,
               max(event_time) as last_at,
               min(seq) as first_seq, max(seq) as last_seq, count(*) as records, max(seq) - count(*) as missing,
               case when min(seq) = 1 then max(event_time) end as complete_to,
               case when bool_or(kind = 'engine-stopped') then 'stopped' else 'running' end as ended,
               any_value(reason) filter (kind = 'engine-stopped') as end_reason,
               any_value("primary") filter (kind = 'engine-started') as "primary",
               any_value(secondary) filter (kind = 'engine-started') as secondary,
               any_value(version) filter (kind = 'engine-started') as version,
               any_value(syphon) filter (kind = 'engine-started') as syphon,
               bool_or(kind = 'received') as receives
        from events where trouble is null group by engine, boot
    """,
    "cost": """
        select engine, date_trunc('minute', event_time) as minute, cause, sum(operations)::bigint as operations,
               sum(bytes)::bigint as bytes
        from (
            select engine, event_time,
                   unnest(['sends', 'parked', 'pings', 'receives', 'moves', 'settlements']) as cause,
                   unnest([sends, parked, pings, receives, moves, settlements]) as operations,
                   unnest([sent_bytes, parked_bytes, 0, 0, moved_bytes, 0]) as bytes
            from events where kind = 'operations'
        ) where operations > 0 group by all
    """,
    "audit": """
        select *, case when received > 0 then 'delivered' when moved > 0 then 'delivered'
                       when dead_lettered > 0 then 'dead-lettered' when diverted > 0 then 'parked'
                       when direct > 0 then 'accepted' when refused > 0 then 'refused' else 'in doubt' end as status,
               case when direct + diverted > 0 then 'accepted' when refused > 0 then 'refused' else 'in doubt' end
                   as answer,
               greatest(received - 1, 0) as duplicates, false as out_of_order,
               (epoch_us(moved_at) - epoch_us(diverted_at)) / 1e6 as dwell
        from (
            select coalesce(any_value(engines.pairing), ?) as pairing, entity, message_id,
                   count(*) filter (kind = 'delivered') as direct, count(*) filter (kind = 'diverted') as diverted,
                   count(*) filter (kind = 'in-doubt') as in_doubt, count(*) filter (kind = 'refused') as refused,
                   count(*) filter (kind = 'moved') as moved, count(*) filter (kind = 'received') as received,
                   count(*) filter (kind = 'dead-lettered') as dead_lettered, min(event_time) as first_at,
                   min(event_time) filter (kind = 'diverted') as diverted_at,
                   max(event_time) filter (kind = 'moved') as moved_at
            from events left join engines using (engine, boot) where message_id is not null group by all
        )
    """,
    "verdicts": """
        select pairing, '' as entity, '' as subscription, count(*) as attempted, count(*) as accepted,
               count(*) filter (status = 'delivered' or status = 'accepted') as delivered,
               count(*) filter (status = 'parked') as parked, count(*) filter (status = 'lost') as lost,
               count(*) filter (status = 'missing') as missing, count(*) filter (status = 'unknown') as unknown,
               count(*) filter (status = 'in flight') as in_flight, sum(duplicates)::bigint as duplicates,
               count(*) filter (out_of_order) as out_of_order, bool_or(received > 0) as receivers_told,
               (select count(*) from engines) as journals,
               (select count(*) from engines where missing = 0) as journals_complete,
               (select min(complete_to) from engines) as complete_to, (select max(event_time) from events) as judged_at,
               'the journals of ' || (select count(distinct engine) from engines) || ' engines' as rests_on
        from audit group by pairing
        union all by name
        select any_value(pairing) as pairing, entity, '' as subscription, bool_or(received > 0) as receivers_told
        from audit group by entity
    """,
}
