"""Journal lines as typed events, in Arrow: blocks of lines at a time, no Python for each. Nothing here knows Spark.

A line that cannot be read becomes a row that says so in `trouble`, with its text: "torn" (no JSON object, or fields of
other types), "foreign" (an object, no record of ours), "newer version", "unknown kind". The last two have their number
and are counted as seen; what they hold is for the program that knows them, which makes the tables anew.

Spark's own from_json took three times the processor for the same, with a journal of a million events.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from console.core.events import KINDS
from console.engine.records import VERSION
from console.pipeline.schema import EVENT_FIELDS, EVENTS, HEADER, Columns

TYPES: Final = {"VARCHAR": pa.string(), "BIGINT": pa.int64(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_()}


def _schema(columns: Columns) -> pa.Schema:
    return pa.schema([(name, TYPES[kind]) for name, kind in columns.items()])


_LINE: Final = _schema({**HEADER, **EVENT_FIELDS})
_ROW: Final = _schema(EVENTS)
_KINDS: Final = pa.array(sorted(KINDS))
_NUMBERED: Final = pa.array(["newer version", "unknown kind"])
"""Troubles of lines that have a number nevertheless."""


def events_of(lines: list[bytes], files: list[str]) -> Any:
    """A table of schema.EVENTS, a row for each line that is not blank. `files`: of each line, its file's name."""
    kept = [(line, file) for line, file in zip(lines, files, strict=True) if line.strip()]
    lines = [line for line, _ in kept]
    if not lines:
        return _ROW.empty_table()
    parts = _parsed(lines)
    table = pa.concat_tables([part if part is not None else _TORN for part in parts]).combine_chunks()
    torn = pa.array([part is None for part in parts for _ in range(1 if part is None else part.num_rows)])
    trouble = _trouble(table, torn)
    if trouble.null_count == len(trouble):
        return _rows(table, trouble, pa.nulls(len(lines), pa.string()), pa.nulls(len(lines), pa.string()))
    troubled = pc.is_valid(trouble)
    texts = pa.array([line.decode(errors="replace") for line in lines])
    names = pa.array([file for _, file in kept])
    return _rows(table, trouble, _where(troubled, texts), _where(troubled, names))


def _parsed(lines: list[bytes]) -> list[Any]:
    """The lines as tables, in order; None is a line that is torn, found by halving."""
    data = b"\n".join(lines)
    try:
        data.decode()  # Arrow does not look
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(explicit_schema=_LINE, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        table = None
    if table is not None and table.num_rows == len(lines):
        return [table]
    if len(lines) == 1:
        return [None]
    half = len(lines) // 2
    return _parsed(lines[:half]) + _parsed(lines[half:])


def _trouble(table: Any, torn: Any) -> Any:
    """What is wrong with each row; null: nothing."""
    ours = pc.greater(table["seq"], 0)
    for name in HEADER:
        ours = pc.and_kleene(pc.is_valid(table[name]), ours)
    known = pc.is_in(table["kind"], value_set=_KINDS)
    found = pc.if_else(known, pa.scalar(None, pa.string()), "unknown kind")
    found = pc.if_else(pc.greater(pc.fill_null(table["v"], 0), VERSION), "newer version", found)
    found = pc.if_else(pc.fill_null(ours, fill_value=False), found, "foreign")
    return pc.if_else(torn, "torn", found)


def _rows(table: Any, trouble: Any, line: Any, file: Any) -> Any:
    numbered = pc.or_(pc.is_null(trouble), pc.is_in(trouble, value_set=_NUMBERED))
    columns = {
        **{name: _where(numbered, table[name]) for name in HEADER},
        **{name: table[name] for name in EVENT_FIELDS},
        "trouble": trouble,
        "line": line,
        "file": file,
    }
    return pa.table([columns[name] for name in EVENTS], schema=_ROW)


def _where(condition: Any, values: Any) -> Any:
    return pc.if_else(condition, values, pa.scalar(None, values.type))


_TORN: Final = pa.table([pa.nulls(1, field.type) for field in _LINE], schema=_LINE)
