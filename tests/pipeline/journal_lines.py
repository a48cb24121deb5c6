"""Journal lines as rows, by each of the two engines."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import duckdb

from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.engine.journal import records
from paired_servicebus.pipeline.ingest.journal_lines import load_events
from tests.bench.spark.synthetic_journal import events
from tests.damaged import UNREADABLE

NAME = "f.jsonl"
Row = dict[str, Any]


def duckdb_rows(folder: Path, lines: Sequence[bytes]) -> list[Row]:
    """Every column of every line, in order, as duckdb has it."""
    with _file(folder, lines) as path, duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'; set threads = 1")
        load_events(connection, [path])
        done = connection.execute("select * from events")
        names = [column[0] for column in done.description or ()]
        return [_plain(dict(zip(names, row, strict=True))) for row in done.fetchall()]


def spark_rows(spark: Any, folder: Path, lines: Sequence[bytes]) -> list[Row]:
    """The same, as Spark has it."""
    from paired_servicebus.pipeline.ingest.batch_tables import journal_events
    from paired_servicebus.pipeline.spark.spark_session import spark_path

    with _file(folder, lines) as path:
        read = spark.read.option("lineSep", "\n").text(spark_path(path))
        return [
            _plain(row)
            for row in journal_events(read.select("value", "_metadata.file_name")).drop("date").toArrow().to_pylist()
        ]


@contextmanager
def _file(folder: Path, lines: Sequence[bytes]) -> Iterator[Path]:
    path = folder / NAME
    path.write_bytes(b"\n".join(lines) + b"\n")
    try:
        yield path
    finally:
        path.unlink()


def _plain(row: Row) -> Row:
    return {name: _moment(value) for name, value in row.items() if value is not None}


def _moment(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


BLOCKS: Final = 12
LINES: Final = 40
SECONDS: Final = float(os.environ.get("PAIRED_FUZZ_SECONDS", "0"))
WHOLE: Final = [
    records.encode(Record(engine="e", boot="b", seq=seq, event=event))
    for seq, event in enumerate(events(300, per_second=12, start=1_790_000_000.0), start=1)
]
STRANGE: Final = [line.replace(b'"engine":"e"', b'"engine":"x"') for line in WHOLE]
"""What is changed: a changed record of "e" might have the number of a whole one."""
VALUES: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 1 << 63, 1 << 64, 1e308, 0.5, "", "\x00", "\ud800", "é" * 50, [], [None], {}, {"v": {"v": 1}},
)  # fmt: skip
TEXTS: Final = (
    b"null", b"nul", b"NaN", b"Infinity", b"1e999", b"\\u0000", b"\\ud800", b"\xff", b"\x00", b"\xef\xbb\xbf", b"{",
    b"}", b"[", b"]", b'"', b",", b":", b" ", b"\t", b"\r", b"//", b"\x1b[2J", b"\xe2\x80\xae", b"9" * 400,
)  # fmt: skip


def fuzzed(chance: random.Random) -> bytes:
    """A line that nobody would write; now and then it is whole."""
    line = chance.choice(STRANGE)
    for _ in range(chance.randint(1, 3)):
        line = chance.choice((_cut, _put, _flipped, _other_value, _twice, _shuffled, _evil))(chance, line)
    return line.replace(b"\n", b" ")


def _cut(chance: random.Random, line: bytes) -> bytes:
    return line[chance.randrange(len(line) + 1) :] if chance.random() < 0.3 else line[: chance.randrange(len(line) + 1)]


def _put(chance: random.Random, line: bytes) -> bytes:
    place = chance.choice((0, chance.randrange(len(line) + 1), len(line)))
    return line[:place] + chance.choice(TEXTS) + line[place:]


def _flipped(chance: random.Random, line: bytes) -> bytes:
    if not line:
        return line
    place = chance.randrange(len(line))
    return line[:place] + bytes([line[place] ^ (1 << chance.randrange(8))]) + line[place + 1 :]


def _other_value(chance: random.Random, line: bytes) -> bytes:
    try:
        found = json.loads(line)
        name = chance.choice(list(found))
    except (ValueError, TypeError, IndexError, KeyError):
        return line
    if not isinstance(found, dict):
        return line
    if chance.random() < 0.2:
        del found[name]
    else:
        found[chance.choice((name, "kind", "seq", "ts", "v", "engine", "of tomorrow"))] = chance.choice(VALUES)
    return json.dumps(found).encode(errors="surrogatepass")


def _twice(chance: random.Random, line: bytes) -> bytes:
    return line + chance.choice((b"", b" ", b",")) + line


def _shuffled(chance: random.Random, line: bytes) -> bytes:
    parts = line.split(b",")
    chance.shuffle(parts)
    return b",".join(parts)


def _evil(chance: random.Random, line: bytes) -> bytes:
    found = chance.choice(list(UNREADABLE.values()))
    return found if len(found) < 10_000 else line


def blocks(chance: random.Random) -> Iterator[list[bytes]]:
    end = time.monotonic() + SECONDS
    made = 0
    while made < BLOCKS or time.monotonic() < end:
        made += 1
        yield [fuzzed(chance) if chance.random() < 0.7 else chance.choice(WHOLE) for _ in range(LINES)]
