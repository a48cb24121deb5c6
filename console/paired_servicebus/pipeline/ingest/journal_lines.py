"""Journal lines as typed events: one statement of SQL over text, for Spark and for duckdb.

The engines' own JSON readers differ on `1.5`, `"7"` and `true` in a field of whole numbers, on names that are there
twice, on what follows an object and on half a surrogate. So regular expressions that both engines have decide whether
a line is an object and whether our fields have values of their types. Only then is it read, and every field as text:
of such a line both readers say the same.

An unreadable line becomes a row with its text and the reason in `trouble`:

    torn          no JSON object of at most LONGEST_LINE characters, a name twice, or a field of another type
    foreign       a field of our records is missing
    impossible    a time or a number out of range
    other format, unknown kind    of a later release; they keep their number and count as seen
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Final

import duckdb

from paired_servicebus.core.model.pairing_events import KINDS
from paired_servicebus.engine.journal.records import LATEST, VERSION
from paired_servicebus.pipeline.table_store.schema import COLUMN_OF, EVENT_FIELDS, HEADER, TABLES
from paired_servicebus.pipeline.table_store.store_path import Place

LONGEST_LINE: Final = 1024 * 1024
"""Characters of a line. An engine's own lines are shorter by far: a text of an event has some hundred characters."""
LONGEST: Final = 64 * 1024
"""Characters of a bad line that its row has."""
_MOST: Final = 2**53
"""No count reaches it: sums of counts stay within 64 bits, and a double holds them."""
_DEPTH: Final = 2
"""Levels of lists and objects in a field of a later release. Our own fields have none."""

_TIME: Final = next(name for name, kind in HEADER.items() if kind == "TIMESTAMP")
"""The column of a record's time, which is `ts` in a line, in microseconds. A field's time is in seconds."""
_FIELD_OF: Final = {column: field for field, column in COLUMN_OF.items()}
_FIELDS: Final = {
    **{"ts" if name == _TIME else name: "BIGINT" if name == _TIME else kind for name, kind in HEADER.items()},
    **{_FIELD_OF.get(name, name): kind for name, kind in EVENT_FIELDS.items()},
}
"""The fields of a line, each with the type of its column. This table makes the whole statement."""
_HEADER: Final = ["ts" if name == _TIME else name for name in HEADER]


def _of(*kinds: str) -> list[str]:
    return [name for name, kind in _FIELDS.items() if kind in kinds]


# -- regular expressions, for Java's engine and RE2: a "+" that gives nothing back is written «+», and is "+" for RE2

_WRITTEN: Final = r"[^ \t\r\x0b\x0c\x{FEFF}]"
_SPACE: Final = r"[ \t\r\n]*«"
_ESCAPE: Final = (
    r'\\(?:["\\/bfnrt]|u(?:[0-9abcefABCEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}'
    r"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))"
)
_TEXT: Final = rf'"(?:[^"\\\x00-\x1f]+«|{_ESCAPE})*«"'
_NUMBER: Final = r"-?(?:0|[1-9][0-9]*«)(?:\.[0-9]+«)?(?:[eE][+-]?[0-9]+«)?"


def _value(depth: int) -> str:
    """Return the pattern of a value with lists and objects down to a depth."""
    if not depth:
        return rf"(?:{_TEXT}|{_NUMBER}|true|false|null)"
    item = rf"{_value(depth - 1)}{_SPACE}"
    pair = rf"{_TEXT}{_SPACE}:{_SPACE}{item}"
    list_ = rf"\[{_SPACE}(?:{item}(?:,{_SPACE}{item})*«)?\]"
    return rf"(?:{_value(0)}|{list_}|\{{{_SPACE}(?:{pair}(?:,{_SPACE}{pair})*«)?\}})"


_PAIR: Final = rf"{_TEXT}{_SPACE}:{_SPACE}{_value(_DEPTH)}{_SPACE}"
_OBJECT: Final = rf"^{_SPACE}\{{{_SPACE}(?:{_PAIR}(?:,{_SPACE}{_PAIR})*«)?\}}{_SPACE}$"


def _wrong(names: Sequence[str], value: str) -> str:
    return rf'(?:{"|".join(names)})"{_SPACE}:{_SPACE}(?:{value})'


_MISTYPED: Final = (
    r'[{,][ \t\r\n]*"(?:'
    + "|".join(
        (
            _wrong(_of("VARCHAR"), r'[^"n \t\r\n]'),
            _wrong(_of("BIGINT"), r"[^-0-9n \t\r\n]|-?[0-9]+[.eE]|-?[0-9]{19}"),
            _wrong(_of("DOUBLE", "TIMESTAMP"), r"[^-0-9n \t\r\n]"),
            _wrong(_of("BOOLEAN"), r"[^tfn \t\r\n]"),
        )
    )
    + ")"
)
"""A field of ours with a value that its column does not hold. Within a text no quote follows a comma or a brace without
its backslash, so only names are found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What the engines write differently; `{0}` is a line that has the shape of an object."""

    literal: str
    lazy: str
    """The end of a repetition that gives nothing back. RE2 never goes back, and has none."""
    matches: str
    names: str
    """The object's names."""
    repeats: str
    """Whether a list has an item twice."""
    texts: str
    """Our fields in the object, as texts."""
    moment: str
    """Microseconds as a time."""

    def regex(self, pattern: str) -> str:
        """Return a pattern as a literal of this engine."""
        return self.literal.format(pattern.replace("«", self.lazy))


SPARK: Final = Dialect(
    literal="r'{0}'",
    lazy="+",
    matches="({0} rlike {1})",
    names="json_object_keys({0})",
    repeats="size({0}) > size(array_distinct({0}))",
    texts="from_json({0}, '" + ", ".join(f"`{name}` string" for name in _FIELDS) + "')",
    moment="timestamp_micros({0})",
)
DUCKDB: Final = Dialect(
    literal="'{0}'",
    lazy="",
    matches="regexp_matches({0}, {1})",
    names="json_keys({0})",
    repeats="len({0}) > len(list_distinct({0}))",
    texts="json_transform({0}, '{{" + ", ".join(f'"{name}": "VARCHAR"' for name in _FIELDS) + "}}')",
    moment="make_timestamp({0})",
)


def events_sql(dialect: Dialect, lines: str = "lines") -> str:
    """Return the statement of the rows of the table `events`, one for each line that is not blank.

    Args:
        dialect: of the engine that runs it.
        lines: a relation of `line`, a text; `is_text`, whether its bytes were UTF-8; and `file`, a name.
    """
    d = dialect
    sound = f"{d.matches.format('line', d.regex(_OBJECT))} and not {d.matches.format('line', d.regex(_MISTYPED))}"
    fields = ", ".join(f"{_typed(name, kind)} as `{name}`" for name, kind in _FIELDS.items())
    columns = ", ".join(f"{_final(d, name, kind)} as `{name}`" for name, kind in TABLES["events"].items())
    statement = f"""
with written as (
    select case when substr(line, 1, 1) = '\ufeff' then substr(line, 2) else line end as line, is_text, file
    from {lines} where {d.matches.format("line", d.regex(_WRITTEN))}
),
shaped as (
    select line, file, case when is_text and length(line) <= {LONGEST_LINE} then case when {sound} then line end end
                           as object
    from written
),
named as (select *, {d.names.format("object")} as names from shaped),
read as (
    select line, file, object is null or {d.repeats.format("names")} as is_torn,
           case when not {d.repeats.format("names")} then {d.texts.format("object")} end as texts
    from named
),
typed as (select line, file, is_torn, {fields} from read),
judged as (select *, {_TROUBLE} as trouble from typed),
kept as (select *, coalesce(trouble in ({_NUMBERED}), true) as is_numbered from judged)
select {columns} from kept
"""
    return statement if d is SPARK else statement.replace("`", '"')


def _typed(name: str, kind: str) -> str:
    """Return a field's value by its text in a line; its type has been checked."""
    text = f"texts.`{name}`"
    if kind in ("DOUBLE", "TIMESTAMP"):
        number = f"try_cast({text} as double)"
        return f"case when {text} is not null and {number} is null then cast('inf' as double) else {number} end"
    return {"VARCHAR": text, "BIGINT": f"try_cast({text} as bigint)", "BOOLEAN": f"{text} = 'true'"}[kind]


def _final(d: Dialect, name: str, kind: str) -> str:
    """Return a column of the rows by the fields of a line."""
    if name == _TIME:
        return f"case when is_numbered and ts between 0 and {LATEST - 1} then {d.moment.format('ts')} end"
    if name in HEADER:
        return f"case when is_numbered then `{name}` end"
    if name in ("line", "file"):
        return f"case when trouble is not null then substr({name}, 1, {LONGEST}) end"
    if kind == "TIMESTAMP":
        micros = d.moment.format(f"cast(`{name}` * 1e6 as bigint)")
        return f"case when `{name}` >= 0 and `{name}` < {_LATEST_SECONDS} then {micros} end"
    if kind == "DOUBLE":
        return f"case when `{name}` between {-_MOST} and {_MOST} then `{name}` end"
    return f"`{_FIELD_OF.get(name, name)}`"


def _any(conditions: Iterable[str]) -> str:
    return f"({' or '.join(conditions)})"


def _out_of(names: Sequence[str], least: str, most: str) -> str:
    """Whether one of some numbers, of those that are there, is out of bounds."""
    listed = ", ".join(f"`{name}`" for name in names)
    return f"least({listed}) < {least} or greatest({listed}) > {most}"


def _lacking() -> Iterator[str]:
    """Yield the conditions for a record that lacks what its kind cannot do without."""
    for name, kind in KINDS.items():
        required = [one.name for one in fields(kind) if one.name != "at" and one.default is MISSING]
        if required:
            yield f"when '{name}' then {_any(f'`{field}` is null' for field in required)}"


_NUMBERED: Final = "'other format', 'unknown kind'"
"""Troubles of lines that have a number nevertheless."""
_LATEST_SECONDS: Final = f"{LATEST // 1_000_000}"
_COUNTS: Final = [name for name in _of("BIGINT") if name != "ts"]
_TROUBLE: Final = f"""
case when is_torn then 'torn'
     when {_any(f"`{name}` is null" for name in _HEADER)} or seq <= 0 then 'foreign'
     when v <> {VERSION} then 'other format'
     when kind not in ({", ".join(f"'{kind}'" for kind in sorted(KINDS))}) then 'unknown kind'
     when case kind {" ".join(_lacking())} else false end then 'foreign'
     when ts < 0 or ts >= {LATEST} or {_out_of(_COUNTS, str(-_MOST), str(_MOST))}
          or {_out_of(_of("DOUBLE"), f"cast({-_MOST} as double)", f"cast({_MOST} as double)")}
          or coalesce({_any(f"`{name}` < 0 or `{name}` >= {_LATEST_SECONDS}" for name in _of("TIMESTAMP"))}, false)
          then 'impossible' end"""


FILE_BYTES: Final = 64 * 1024 * 1024
"""Of journal files that duckdb reads at once."""


def load_events(connection: duckdb.DuckDBPyConnection, files: Iterable[Place], *, kinds: Sequence[str] = ()) -> None:
    """Make the table `events` of journal files in duckdb, one for each line.

    Args:
        kinds: of the records that are read, as our engines write them; by default every line is.

    Raises OSError.
    """
    connection.execute("create or replace table lines (line varchar, is_text boolean, file varchar)")
    connection.execute(f"create or replace table events as {events_sql(DUCKDB)}")
    size = 0
    for path in files:
        data = path.read_bytes()
        size += len(data)
        _insert_lines(connection, path.name, data)
        if size >= FILE_BYTES:
            _insert_events(connection, kinds)
            size = 0
    _insert_events(connection, kinds)
    connection.execute("drop table lines")


def _insert_events(connection: duckdb.DuckDBPyConnection, kinds: Sequence[str]) -> None:
    if kinds:
        listed = ", ".join(f'\'"kind":"{kind}"\'' for kind in kinds)
        connection.execute(f'delete from lines where regexp_extract(line, \'"kind":"[^"]*"\') not in ({listed})')
    connection.execute(f"insert into events {events_sql(DUCKDB)}")
    connection.execute("truncate lines")


def _insert_lines(connection: duckdb.DuckDBPyConnection, name: str, data: bytes) -> None:
    """Add the lines of a file to the table `lines`."""
    try:
        connection.execute(_OF_TEXT, [data.decode(), name])
    except UnicodeDecodeError:
        lines = data.split(b"\n")
        decoded = [line.decode(errors="replace") for line in lines]
        connection.execute(_OF_BYTES, [decoded, [_is_text(line) for line in lines], name])


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


_OF_TEXT: Final = "insert into lines select unnest(string_split(?, chr(10))), true, ?"
_OF_BYTES: Final = "insert into lines select unnest(?::varchar[]), unnest(?::boolean[]), ?"
