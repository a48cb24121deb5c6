"""`paired tables query` and `check` as their users type them."""

from __future__ import annotations

import json
import stat
import tempfile
from pathlib import Path

import duckdb
import pytest

from paired_servicebus.cli import main
from paired_servicebus.pipeline.table_commands import check_tables, closed_connection
from paired_servicebus.pipeline.table_store.manifest import newest
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.pipeline.made_tables import Row, make_version, utc

NOW = 1_795_600_000.0
KEY = "Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey=c4n4ry"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_version(
        tmp_path_factory.mktemp("read") / "tables",
        minutes=[
            {"engine": "e1", "entity": "orders", "minute": utc(NOW), "primary_accepted": 7, "ping_seconds": [0.5]},
            {"engine": "e1", "entity": f"\x1b[2J{KEY}\nforged", "minute": utc(NOW), "primary_accepted": 1200},
        ],
    )


def query(tables: Path, sql: str, *options: str) -> int:
    return main(["tables", "query", "--tables", str(tables), sql, *options])


def engine(name: str, *, at: float = NOW, missing: int = 0, ended: str = "running") -> Row:
    return {"engine": name, "boot": "b", "last_at": utc(at), "missing": missing, "ended": ended}


def checked(tmp_path: Path, *engines: Row, at: float = NOW + 5) -> tuple[int, tuple[str, ...]]:
    """The status of tables with these engines, and the names of the incomplete ones."""
    make_version(tmp_path / "checked", engines=engines)
    with Tables.open(tmp_path / "checked") as opened:
        found = check_tables(opened, max_age=600.0, now=at)
    return found.status, tuple(one.engine for one in found.incomplete)


ATTEMPTS = {
    "a secret": "create persistent secret s (type http, bearer_token 'x')",
    "a file of the system": "select * from read_text('/etc/passwd')",
    "the process": "select * from read_blob('/proc/self/environ')",
    "lines": "select * from read_csv('/etc/passwd')",
    "json": "select * from read_json('{beside}/secret.json')",
    "a guess at a format": "select * from sniff_csv('/etc/passwd')",
    "a name as a table": "select * from '{beside}/other.parquet'",
    "metadata of a file": "select * from parquet_metadata('{beside}/other.parquet')",
    "a folder's names": "select * from glob('/tmp/*')",
    "spill folders' names": "select * from glob('/tmp/paired-tables-*/*')",
    "the working folder's .tmp": "select * from read_text('.tmp/x')",
    "that .tmp by its path": "select * from read_text('{beside}/.tmp/x')",
    "up from the tables": "select * from read_text('{version}/../../lock')",
    "up from a data file": "select * from read_text('{file}/../../manifest.json')",
    "a file that no table lists": "select * from read_text('{version}/manifest.json')",
    "a link beside the tables": "select * from read_text('{beside}/link')",
    "a database of another": "select * from read_duckdb('{beside}/z.db')",
    "a url": "select * from read_text('https://127.0.0.1:1/x')",
    "a query in a text": "select * from query('select * from read_text(''/etc/passwd'')')",
    "stored secrets": "select * from duckdb_secrets()",
    "attached": "attach '{beside}/z.db'",
    "copied out": "copy minutes to '{beside}/out.csv'",
    "copied over a data file": "copy (select 1 as a) to '{file}'",
    "copied beside the data": "copy (select 1 as a) to '{version}/minutes/new.parquet'",
    "copied into a table": "create table t (a text); copy t from '/etc/passwd'",
    "exported": "export database '{beside}/out'",
    "imported": "import database '{beside}'",
    "installed": "install httpfs",
    "loaded": "load httpfs",
    "loaded by its path": "load '{beside}/x.duckdb_extension'",
    "opened again": "set enable_external_access = true",
    "reset": "reset enable_external_access",
    "another folder for temporary files": "set temp_directory = '{beside}'",
    "every folder allowed": "set allowed_directories = ['/']",
    "a profile": "set profiling_output = '{beside}/out.json'",
    "a log of queries": "set log_query_path = '{beside}/out.log'",
}
"""What SQL may try to leave the tables; `{beside}` is a folder beside them, and the working folder."""


def test_duckdb_itself_refuses_what_leaves_the_tables(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without our own look at the statement: the settings alone hold."""
    monkeypatch.chdir(tmp_path)
    for place in (tmp_path / ".tmp" / "x", tmp_path / "secret.json"):
        place.parent.mkdir(exist_ok=True)
        place.write_text('{"a": "c4n4ry"}')
    (tmp_path / "link").symlink_to("/etc/passwd")
    duckdb.sql("select 1 as a").write_parquet(str(tmp_path / "other.parquet"))
    before = {path: path.read_bytes() for path in (*tables.rglob("*"), *tmp_path.rglob("*")) if path.is_file()}
    version = newest(tables)
    place = version.path.resolve()
    names = {"beside": tmp_path, "version": place, "file": place / "minutes" / version.manifest.of("minutes")[0].name}
    refused = "disabled|locked|permission|not allowed|does not exist|only one|already registered"
    with closed_connection(version) as connection:
        for attempt, sql in ATTEMPTS.items():
            with pytest.raises(duckdb.Error, match=refused):
                pytest.fail(f"{attempt}: {connection.execute(sql.format(**names)).fetchall()}")
            assert connection.execute("select count(*) from minutes").fetchall() == [(2,)], attempt
    after = {path: path.read_bytes() for path in (*tables.rglob("*"), *tmp_path.rglob("*")) if path.is_file()}
    assert after == before


def test_tables_are_read_from_a_folder_with_quotes_and_dollars(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_version(tmp_path / 'it\'s "$HOME" {x}', minutes=[{"engine": "e1", "minute": utc(NOW)}])
    assert query(folder, "select engine from minutes", "--format", "csv") == 0
    assert capsys.readouterr().out == "engine\ne1\n"


def test_no_verb_that_only_reads_needs_a_pairing(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert query(tables, "select 1 as a", "--format", "csv") == 0
    assert capsys.readouterr().out == "a\n1\n"
    assert main(["tables", "check", "--tables", str(tables)]) == 1
    assert "NOT fresh" in capsys.readouterr().out


def test_what_a_query_spills_is_its_users_alone_and_removed(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Tables.open(tables) as opened:
        (spill,) = tmp_path.glob("paired-tables-*")
        assert opened.rows("select current_setting('temp_directory') as it") == [{"it": str(spill)}]
        assert stat.S_IMODE(spill.stat().st_mode) == 0o700
    with Tables.open(tables):
        (other,) = tmp_path.glob("paired-tables-*")
        assert other != spill, "nobody can make it before"
    assert not list(tmp_path.glob("paired-tables-*"))


def test_tables_are_read_without_a_place_for_temporary_files(
    tables: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tables / "is not there"))
    assert query(tables, "select count(*) as n from minutes", "--format", "csv") == 0
    assert capsys.readouterr().out == "n\n2\n"


# -- query -------------------------------------------------------------------------------------------------------------


def test_rows_are_aligned_columns(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "select entity, minute, primary_accepted, ping_seconds from minutes where entity = 'orders'"
    assert query(tables, sql) == 0
    assert capsys.readouterr().out.splitlines() == [
        "entity  minute                primary_accepted  ping_seconds",
        "──────  ────────────────────  ────────────────  ────────────",
        "orders  2026-11-25T09:46:40Z                 7  [0.5]",
        "1 row",
    ]


def test_rows_are_one_json_object(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        query(tables, "select entity, minute, date, ping_seconds from minutes where entity = 'orders'", "--json") == 0
    )
    assert json.loads(capsys.readouterr().out) == {
        "batch": 1,
        "rows": [{"entity": "orders", "minute": "2026-11-25T09:46:40Z", "date": "2026-11-25", "ping_seconds": [0.5]}],
    }


def test_rows_are_csv(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "select engine, ping_seconds, primary_accepted from minutes order by primary_accepted"
    assert query(tables, sql, "--format", "csv") == 0
    assert capsys.readouterr().out == "engine,ping_seconds,primary_accepted\ne1,[0.5],7\ne1,,1200\n"


@pytest.mark.parametrize("options", [(), ("--json",), ("--format", "csv")])
def test_a_strangers_text_has_no_secret_and_moves_nothing(
    tables: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    assert query(tables, "select entity from minutes", *options) == 0
    out = capsys.readouterr().out
    assert "c4n4ry" not in out
    assert "\x1b" not in out
    assert not any(line.startswith("forged") for line in out.splitlines())


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("copy minutes to '{out}'", "COPY"),
        ("create table x as select 1", "CREATE"),
        ("select 1; copy minutes to '{out}'", "2 statements"),
        ("", "0 statements"),
        ("select * from '{tables}/lock'", "refused"),
        ("select * from connection", "does not exist"),
        ("select nothing from minutes", "nothing"),
        ("select error('boom')", "boom"),
    ],
)  # fmt: skip
def test_a_query_that_does_more_than_read_the_tables_is_refused(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], sql: str, reason: str
) -> None:
    out = tmp_path / "out"
    assert query(tables, sql.format(out=out, tables=tables)) == 2
    said = capsys.readouterr().err
    assert said.startswith("paired: ")
    assert reason in said
    assert said.count("\n") == 1
    assert not out.exists()
    assert not (tables / "data" / "x.parquet").exists()


# -- check -------------------------------------------------------------------------------------------------------------


def test_fresh_and_whole_tables(tmp_path: Path) -> None:
    assert checked(tmp_path, engine("e1"), engine("e2", at=NOW - 60)) == (0, ())


def test_tables_older_than_the_limit_are_stale(tmp_path: Path) -> None:
    assert checked(tmp_path, engine("e1"), at=NOW + 601) == (1, ())


def test_tables_without_a_record_are_not_fresh(tmp_path: Path) -> None:
    assert checked(tmp_path) == (1, ())


def test_an_engine_with_missing_records_or_late_ones_is_named(tmp_path: Path) -> None:
    found = checked(tmp_path, engine("e1"), engine("e2", missing=3), engine("e3", at=NOW - 700), engine("e4", at=NOW))
    assert found == (1, ("e2", "e3"))


def test_an_engine_that_ended_or_left_long_ago_is_not_late(tmp_path: Path) -> None:
    stopped = engine("e2", at=NOW - 7000, ended="stopped")
    assert checked(tmp_path, engine("e1"), stopped, engine("e3", at=NOW - 90_000, ended="silent")) == (0, ())


def test_a_restarted_engine_is_judged_by_its_latest_boot(tmp_path: Path) -> None:
    before = {**engine("e1", at=NOW - 7000, ended="restarted"), "boot": "a"}
    assert checked(tmp_path, before, engine("e1")) == (0, ())


def test_events_without_a_judgement_for_long_are_told(tmp_path: Path) -> None:
    row = {"engine": "e1", "boot": "b", "seq": 1, "event_time": utc(NOW), "kind": "delivered"}
    make_version(tmp_path / "checked", events=[row])
    assert checked(tmp_path, engine("e1"))[0] == 1


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_check_says_what_it_rests_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    gap = {"engine": "e2", "boot": "b", "first_seq": 1, "last_seq": 4, "missing": 4}
    make_version(tmp_path / "t", engines=[engine("e1"), engine("e2", missing=4)], gaps=[gap])
    assert main(["tables", "check", "--tables", str(tmp_path / "t"), *options]) == 1
    out = capsys.readouterr().out
    if options:
        found = json.loads(out)
        assert (found["engines"], found["complete"], found["missing"], found["newest_at"]) == (2, 1, 4, NOW)
        assert found["incomplete"][0]["engine"] == "e2"
    else:
        assert "1 of 2 engines' journals are complete; 4 records missing" in out
        assert "e2: 4 records missing; its newest record is of 2026-11-25 09:46:40 UTC" in out
        assert "the newest record is of 2026-11-25 09:46:40 UTC" in out


@pytest.mark.parametrize(
    "command", [("check",), ("query", "select 1"), ("publish", "--to", "/tmp/never-made-by-paired")]
)
def test_no_tables_and_those_of_others_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    status = 3 if command[0] == "check" else 2
    later = tmp_path / "later" / "commits" / "c0000000001.json"
    later.parent.mkdir(parents=True)
    later.write_text('{"version": 99}')
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "notes.txt").write_text("theirs")
    for folder, reason in (("none", "there are no tables"), ("later", "has format 99"), ("theirs", "no tables")):
        verb, *rest = command
        words = [word.format(out=tmp_path / "out") for word in rest]
        assert main(["tables", verb, *words, "--tables", str(tmp_path / folder)]) == status
        said = capsys.readouterr().err
        assert reason in said
        assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "none").exists()
    assert (tmp_path / "theirs" / "notes.txt").read_text() == "theirs"


def test_a_limit_that_is_no_time_is_refused(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", "check", "--tables", str(tables), "--max-age", "soon"]) == 2
    assert "--max-age is 'soon'; it is a time, as in \"10m\"" in capsys.readouterr().err
