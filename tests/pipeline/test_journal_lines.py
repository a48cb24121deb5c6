"""Journal lines as rows: every field of an event in its column, and every kind of bad line as a row that says so.

The pipeline reads lines by Spark, and a report without Spark by duckdb: both give the same row.
"""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from paired_servicebus.cli import main
from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.engine.journal import records
from paired_servicebus.pipeline.ingest.journal_lines import LONGEST, LONGEST_LINE
from paired_servicebus.pipeline.table_store.schema import COLUMN_OF
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.bench.spark.synthetic_journal import events
from tests.damaged import UNREADABLE, flipped
from tests.damaged import write as write_journal
from tests.pipeline.batches import MINUTES_OF_SPARK
from tests.pipeline.journal_lines import NAME, WHOLE, Row, blocks, duckdb_rows, fuzzed, spark_rows
from tests.pipeline.made_tables import event_rows, utc

GOOD: Final[dict[str, Any]] = {
    "v": 1, "engine": "e", "boot": "b", "seq": 7, "ts": 9, "kind": "ping-accepted", "entity": "orders",
    "number": 3, "took": 0.5,
}  # fmt: skip
ROW: Final[Row] = {name: value for name, value in GOOD.items() if name != "ts"} | {"event_time": utc(9e-6)}
RETRY: Final = {**GOOD, "kind": "destination-failed", "reason": "busy", "retry_at": 1.5}
STARTED: Final = {
    "v": 1, "engine": "e", "boot": "b", "seq": 7, "ts": 9, "kind": "engine-started", "pairing": "o", "primary": "p",
    "secondary": "s", "backlog_queues": 4, "syphon": True, "version": "0",
}  # fmt: skip


def line(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def raw(name: str, value: str, of: dict[str, Any] = GOOD) -> bytes:
    """A line whose field has a value as it is written."""
    return json.dumps({**of, name: "@"}).replace('"@"', value).encode()


def row_of(written: dict[str, Any], **changes: Any) -> Row:
    columns = {COLUMN_OF.get(name, name): value for name, value in written.items() if name != "ts"}
    return columns | {"event_time": utc(9e-6)} | changes


READABLE: Final[dict[str, tuple[bytes, Row]]] = {
    "as written": (line(), ROW),
    "spaces around everything": (b' \t{ "v" : 1 ,' + line()[8:-1] + b" \t} \r", ROW),
    "a mark of UTF-8 before it": (b"\xef\xbb\xbf" + line(), ROW),
    "a field of tomorrow": (line(tomorrow=5), ROW),
    "a field of tomorrow, with a list of objects": (line(tomorrow=[{"a": 1}, []]), ROW),
    "a whole number as a measure": (line(took=1), {**ROW, "took": 1.0}),
    "a measure with an exponent": (raw("took", "5E-1"), ROW),
    "null as nothing": (line(subscription=None), ROW),
    "minus zero": (raw("number", "-0"), {**ROW, "number": 0}),
    "the largest count": (line(number=2**53), {**ROW, "number": 2**53}),
    "escapes": (raw("entity", r'"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"'), {**ROW, "entity": '"\\/\b\f\n\r\té😀'}),
    "a zero as an escape": (raw("entity", r'"a\u0000b"'), {**ROW, "entity": "a\0b"}),
    "letters of every plane": (raw("entity", '"né😀"'), {**ROW, "entity": "né😀"}),
    "a text like a field": (raw("entity", r'"{\"seq\":\"8\"}"'), {**ROW, "entity": '{"seq":"8"}'}),
    "a text that ends with a comma": (raw("entity", '"a, "'), {**ROW, "entity": "a, "}),
    "a dollar and a quote in a name": (raw("entity", '"$1\'s"'), {**ROW, "entity": "$1's"}),
    "a time of a field": (json.dumps(RETRY).encode(), row_of(RETRY, retry_at=utc(1.5))),
    "yes": (json.dumps(STARTED).encode(), row_of(STARTED)),
}  # fmt: skip
TROUBLED: Final[dict[str, tuple[bytes, str]]] = {
    "cut short": (line()[:40], "torn"),
    "two in one": (line() + line(), "torn"),
    "two with a comma": (line() + b"," + line(), "torn"),
    "something after it": (line() + b" x", "torn"),
    "a comma too many": (line()[:-1] + b",}", "torn"),
    "no comma": (line().replace(b",", b"", 1), "torn"),
    "single quotes": (line().replace(b'"', b"'"), "torn"),
    "a name without quotes": (line().replace(b'"v"', b"v"), "torn"),
    "a comment": (line().replace(b",", b"/* */,", 1), "torn"),
    "a text": (b'"a text"', "torn"),
    "a list": (b"[1]", "torn"),
    "a list of a record": (b"[" + line() + b"]", "torn"),
    "null": (b"null", "torn"),
    "nil": (b"nil", "torn"),
    "zeros": (b"\x00\x00\x00", "torn"),
    "a control character in a text": (raw("entity", '"a\x01b"'), "torn"),
    "an escape that is none": (raw("entity", r'"a\x41"'), "torn"),
    "half a surrogate": (raw("entity", r'"\ud800"'), "torn"),
    "the other half": (raw("entity", r'"\udc00x"'), "torn"),
    "a byte that is not UTF-8": (line(entity="@").replace(b"@", b"\xff"), "torn"),
    "UTF-16": (line().decode().encode("utf-16-le"), "torn"),
    "UTF-16 with its mark": (line().decode().encode("utf-16"), "torn"),
    "UTF-16 the other way round": (line().decode().encode("utf-16-be"), "torn"),
    "a text as a whole number": (line(seq="7"), "torn"),
    "a measure as a whole number": (line(seq=7.5), "torn"),
    "an exponent as a whole number": (raw("seq", "7e0"), "torn"),
    "true as a whole number": (line(seq=True), "torn"),
    "a list as a whole number": (line(seq=[7]), "torn"),
    "a whole number of 22 digits": (line(seq=1 << 70), "torn"),
    "a leading zero": (raw("seq", "007"), "torn"),
    "a plus": (raw("seq", "+7"), "torn"),
    "hexadecimal": (raw("seq", "0x7"), "torn"),
    "a text as a measure": (line(took="0.5"), "torn"),
    "NaN": (raw("took", "NaN"), "torn"),
    "Infinity": (raw("took", "-Infinity"), "torn"),
    "a point without digits": (raw("took", "1."), "torn"),
    "a number as a text": (line(entity=7), "torn"),
    "an object as a text": (line(entity={"a": 1}), "torn"),
    "a text as yes": (raw("syphon", '"true"', STARTED), "torn"),
    "one as yes": (raw("syphon", "1", STARTED), "torn"),
    "a name twice": (line()[:-1] + b',"seq":8}', "torn"),
    "a name of tomorrow twice": (line(x=1)[:-1] + b',"x":2}', "torn"),
    "objects in objects": (line(tomorrow=[[[[1]]]]), "torn"),
    "10,000 lists": (b"[" * 10_000, "torn"),
    "longer than any record": (line(entity="x" * LONGEST_LINE), "torn"),
    "64 MB": (b'{"v":1,"text":"' + b"x" * (64 << 20) + b'"}', "torn"),
    "an empty object": (b"{}", "foreign"),
    "somebody else's": (b'{"somebody": {"else": ["s"]}}', "foreign"),
    "no kind": (line(kind=None), "foreign"),
    "a number below 1": (line(seq=0), "foreign"),
    "a field missing": (line(took=None), "foreign"),
    "a time before 1970": (line(ts=-1), "impossible"),
    "a time after 9999": (line(ts=253_402_300_800_000_000), "impossible"),
    "a count beyond all": (line(number=2**53 + 1), "impossible"),
    "a count below all": (line(number=-(2**53) - 1), "impossible"),
    "a measure beyond all": (line(took=1e300), "impossible"),
    "1e400": (raw("took", "1e400"), "impossible"),
    "a field's time beyond all": (json.dumps({**RETRY, "retry_at": 1e300}).encode(), "impossible"),
    "a field's time of 1e400": (raw("retry_at", "1e400", RETRY), "impossible"),
    "another format": (line(v=2), "other format"),
    "another format, with lists": (line(v=2, more=[{"a": 1}, []]), "other format"),
    "another kind": (line(kind="from-tomorrow"), "unknown kind"),
}  # fmt: skip


def test_a_readable_line_is_its_event(tmp_path: Path) -> None:
    found = duckdb_rows(tmp_path, [written for written, _ in READABLE.values()])
    assert dict(zip(READABLE, found, strict=True)) == {name: row for name, (_, row) in READABLE.items()}


def test_a_bad_line_is_a_row_that_says_so_and_spoils_no_other(tmp_path: Path) -> None:
    lines = [one for bad, _ in TROUBLED.values() for one in (bad, line())]
    rows = duckdb_rows(tmp_path, lines)
    assert [row for row in rows[1::2] if row != ROW] == []
    for (name, (bad, trouble)), found in zip(TROUBLED.items(), rows[::2], strict=True):
        assert (found["trouble"], found["file"]) == (trouble, NAME), name
        assert found["line"] == bad[: 4 * LONGEST].decode(errors="replace")[:LONGEST], name
        assert ("seq" in found) == (trouble in ("other format", "unknown kind")), name


def test_an_impossible_number_is_in_no_column(tmp_path: Path) -> None:
    rows = duckdb_rows(tmp_path, [TROUBLED["1e400"][0], TROUBLED["a field's time of 1e400"][0], line(v=2, ts=-1)])
    assert ["took" in rows[0], "retry_at" in rows[1], "event_time" in rows[2]] == [False, False, False]


def test_blank_lines_are_nothing(tmp_path: Path) -> None:
    assert duckdb_rows(tmp_path, [b"", b"  ", line(), b"\r", b"\xef\xbb\xbf"]) == [ROW]


def test_what_an_engine_writes_is_what_the_tables_hold(tmp_path: Path) -> None:
    told = list(events(3000, per_second=10, start=1_790_000_000.0))
    written = [
        records.encode(Record(engine="e1", boot="b1", seq=seq, event=event)) for seq, event in enumerate(told, start=1)
    ]
    wanted = [{name: value for name, value in row.items() if value is not None} for row in event_rows(told)]
    assert duckdb_rows(tmp_path, written) == wanted


@MINUTES_OF_SPARK
def test_spark_gives_the_row_that_duckdb_gives(tmp_path: Path, spark: Any) -> None:
    chance = random.Random(1)
    lines = [one for one, _ in (*READABLE.values(), *TROUBLED.values())]
    lines += [one for _, block in zip(range(20), blocks(chance), strict=False) for one in block]
    assert _sorted(spark_rows(spark, tmp_path, lines)) == _sorted(duckdb_rows(tmp_path, lines))


def _sorted(rows: list[Row]) -> list[str]:
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)


# -- lines that nobody would write ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_no_line_stops_the_parser_or_changes_another(tmp_path: Path, seed: int) -> None:
    alone = dict(zip(WHOLE, duckdb_rows(tmp_path, WHOLE), strict=True))
    for lines in blocks(random.Random(seed)):
        rows = duckdb_rows(tmp_path, lines)
        written = [one for one in lines if one.strip(b" \t\r\x0b\x0c") not in (b"", b"\xef\xbb\xbf")]
        assert len(rows) == len(written), lines
        for one, row in zip(written, rows, strict=True):
            if one in alone:
                assert row == alone[one], (one, lines)
            else:
                assert row.get("trouble") or row["kind"], one


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return asyncio.run(write_journal(tmp_path_factory.mktemp("journal"))).read_bytes()


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=some.integers(0, 2**32), places=some.integers(1, 30))
def test_bytes_changed_at_random_places_cost_the_lines_they_are_in(
    tmp_path: Path, journal: bytes, seed: int, places: int
) -> None:
    data, sound = flipped(journal, random.Random(seed), places)
    rows = duckdb_rows(tmp_path, data.split(b"\n"))
    assert {number + 1 for number in sound} <= {row["seq"] for row in rows if "trouble" not in row}


def test_a_strange_line_is_one_wherever_in_a_file_it_is(tmp_path: Path) -> None:
    for strange in ([*UNREADABLE.values()], [*reversed(UNREADABLE.values())]):
        lines = [strange[0], *(one for bad in strange[1:] for one in (line(), bad)), strange[0], line()]
        rows = duckdb_rows(tmp_path, lines)
        assert ["trouble" in row for row in rows] == [one != line() for one in lines]


@MINUTES_OF_SPARK
def test_the_pipeline_takes_a_journal_of_such_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(4)
    (tmp_path / "j").mkdir()
    strange = [fuzzed(chance) for _ in range(2000)]
    for number in range(4):
        lines = [*WHOLE[number * 75 : (number + 1) * 75], *strange[number * 500 : (number + 1) * 500]]
        chance.shuffle(lines)
        (tmp_path / "j" / f"e-{number}.jsonl").write_bytes(b"null\n" + b"\n".join(lines) + b"\n")
    tables = tmp_path / "t"
    assert main(["pipeline", "--journal", str(tmp_path / "j"), "--tables", str(tables), "--once"]) == 0
    with Tables.open(tables) as opened:
        found = opened.row("select count(*) as lines from events where trouble is null and engine = 'e' and boot = 'b'")
        assert found is not None
        assert found["lines"] == len(WHOLE)
        assert opened.unreadable()[0] > 1000
    assert main(["tables", "query", "--tables", str(tables), "select line, trouble from events"]) == 0
    assert "\x1b" not in capsys.readouterr().out
