"""The tables as Delta tables elsewhere: what is written, what is refused, what stays as it was."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.pipeline.publishing import delta_tables
from paired_servicebus.pipeline.table_store import lake
from paired_servicebus.pipeline.table_store.manifest import HELD
from paired_servicebus.pipeline.table_store.schema import TABLES
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.approval import Approve
from tests.pipeline.made_tables import Row, make_version, utc

DAY = 86_400.0
MONDAY = 1_795_478_400.0  # 2026-11-24
KEYS = {"AZURE_STORAGE_ACCOUNT_KEY": "c4n4ry"}


def minute(day: int, accepted: int) -> Row:
    return {"engine": "e1", "entity": "orders", "minute": utc(MONDAY + day * DAY), "primary_accepted": accepted}


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tables of two days. Of all tables three are published: a Delta table takes some 30 ms of a processor."""
    monkeypatch.setattr(delta_tables, "TABLES", {name: TABLES[name] for name in ("engines", "minutes", "verdicts")})
    return make_version(
        tmp_path / "tables", minutes=[minute(0, 1), minute(1, 2)], engines=[{"engine": "e1", "boot": "b1"}]
    )


def publish(tables: Path, to: Path) -> dict[str, delta_tables.PublishedTable]:
    """Publish to a folder of Delta tables; what was done, by table, without those that had not changed."""
    pytest.importorskip("deltalake", reason="the extra `publish` is not installed")
    with delta_tables.held(tables) as version:
        done = delta_tables.publish_delta(version, delta_tables.find_target(str(to), {}), shown=lambda *_: None)
    return {one.table: one for one in done if one.dates}


def delta(to: Path, table: str) -> Any:
    return pytest.importorskip("deltalake").DeltaTable(str(to / table))


def rows(to: Path, table: str, columns: str) -> list[tuple[Any, ...]]:
    """Rows of a Delta table, as duckdb reads the files that its log names."""
    files = [uri.removeprefix("file://") for uri in delta(to, table).file_uris()]
    if not files:
        return []
    with duckdb.connect() as connection:
        found = connection.execute(
            f"select {columns} from read_parquet(?, hive_partitioning = true, union_by_name = true) order by all",
            [files],
        )
        return found.fetchall()


# -- Delta -------------------------------------------------------------------------------------------------------------


def test_a_first_publish_has_every_table_and_a_second_one_changes_nothing(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_tables, "TABLES", TABLES)
    to = tmp_path / "delta"
    done = publish(tables, to)
    assert done["minutes"] == delta_tables.PublishedTable(table="minutes", dates=("2026-11-24", "2026-11-25"), rows=2)
    assert rows(to, "minutes", "primary_accepted, date::varchar") == [(1, "2026-11-24"), (2, "2026-11-25")]
    assert rows(to, "engines", "engine, boot") == [("e1", "b1")]
    assert {field.name for field in delta(to, "audit").schema().fields} >= {"message_id", "status", "date"}
    assert str(next(f for f in delta(to, "minutes").schema().fields if f.name == "minute").type) == (
        'PrimitiveType("timestamp")'
    )

    assert publish(tables, to) == {}
    assert delta(to, "minutes").version() == 0


def test_only_dates_whose_files_changed_are_replaced(tables: Path, tmp_path: Path) -> None:
    to = tmp_path / "delta"
    publish(tables, to)
    before = {uri for uri in delta(to, "minutes").file_uris() if "2026-11-25" in uri}
    with_another = [minute(0, 10), minute(1, 2), minute(2, 3)]
    make_version(tables, minutes=with_another)

    done = publish(tables, to)

    assert list(done) == ["minutes"]
    assert rows(to, "minutes", "primary_accepted") == [(2,), (3,), (10,)]
    assert "2026-11-26" in done["minutes"].dates
    assert len(before) == 1


def test_each_commit_has_its_batch_as_a_transaction_of_these_tables(tables: Path, tmp_path: Path) -> None:
    to = tmp_path / "delta"
    publish(tables, to)
    make_version(tables, minutes=[minute(0, 7)])
    publish(tables, to)
    with Tables.open(tables) as opened:
        life, batch = opened.manifest.life, opened.batch
    assert delta(to, "minutes").transaction_version(f"paired/{life}") == batch == 2
    assert delta(to, "engines").transaction_version(f"paired/{life}") == 1, "it had not changed"


def test_dates_that_the_tables_dropped_by_age_stay_and_those_without_rows_are_emptied() -> None:
    before = {"1970-01-01": "a", "2026-11-01": "b", "2026-11-24": "c", "2026-11-25": "d"}
    now = {"2026-11-23": "x", "2026-11-25": "d"}
    assert delta_tables.changed_dates(now, before) == {"2026-11-23", "2026-11-24"}
    assert delta_tables.changed_dates({**now, "1970-01-01": "a"}, before) == {"2026-11-23", "2026-11-24"}
    assert delta_tables.changed_dates({}, before) == set()


def test_a_row_that_moved_to_another_date_is_there_once(tables: Path, tmp_path: Path) -> None:
    to = tmp_path / "delta"
    make_version(tables, minutes=[minute(1, 1), minute(2, 2)])
    publish(tables, to)
    make_version(tables, minutes=[minute(1, 3)])
    publish(tables, to)
    assert rows(to, "minutes", "primary_accepted") == [(3,)]


def test_where_the_log_forgot_our_commit_all_present_dates_are_published_and_older_ones_stay(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "delta"
    publish(tables, to)
    make_version(tables, minutes=[minute(1, 5)])
    monkeypatch.setattr("paired_servicebus.pipeline.publishing.delta_tables._states", lambda *_: None)
    publish(tables, to)
    assert rows(to, "minutes", "primary_accepted") == [(1,), (5,)]


def test_a_column_that_is_new_is_added(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = tmp_path / "delta"
    publish(tables, to)
    monkeypatch.setitem(TABLES, "minutes", {**TABLES["minutes"], "added": "VARCHAR"})
    make_version(tables, minutes=[minute(0, 1), {**minute(1, 2), "added": "new"}])
    publish(tables, to)
    assert "added" in {field.name for field in delta(to, "minutes").schema().fields}
    assert rows(to, "minutes", "primary_accepted, added") == [(1, None), (2, "new")]


def test_somebody_elses_table_is_refused_before_anything_is_written(
    tables: Path, tmp_path: Path, approve: Approve
) -> None:
    deltalake = pytest.importorskip("deltalake")
    to = tmp_path / "delta"
    deltalake.write_deltalake(str(to / "verdicts"), duckdb.sql("select 1 as theirs"))
    with pytest.raises(PipelineError) as refused:
        publish(tables, to)
    approve.part(refused.value, "errors of the pipeline")
    assert sorted(path.name for path in to.iterdir()) == ["verdicts"]
    assert rows(to, "verdicts", "theirs") == [(1,)]


def test_files_that_are_no_delta_table_are_refused(tables: Path, tmp_path: Path, approve: Approve) -> None:
    pytest.importorskip("deltalake")
    (tmp_path / "delta" / "minutes").mkdir(parents=True)
    (tmp_path / "delta" / "minutes" / "theirs.parquet").write_text("theirs")
    with pytest.raises(PipelineError) as refused:
        publish(tables, tmp_path / "delta")
    approve.part(refused.value, "errors of the pipeline")
    assert not (tmp_path / "delta" / "engines").exists()


def test_tables_that_were_made_from_nothing_do_not_replace_a_history(
    tables: Path, tmp_path: Path, approve: Approve
) -> None:
    to = tmp_path / "delta"
    publish(tables, to)
    others = make_version(tmp_path / "others", minutes=[minute(1, 9)])
    with pytest.raises(PipelineError) as refused:
        publish(others, to)
    approve.part(refused.value, "errors of the pipeline")
    assert len(rows(to, "minutes", "primary_accepted")) == 2


def test_a_folder_that_cannot_be_written_is_one_sentence(tables: Path, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    (tmp_path / "file").write_text("a file")
    with pytest.raises(
        PipelineError, match=r"^engines was not published to .*/file/below: .* The tables there are whole"
    ) as it:
        publish(tables, tmp_path / "file" / "below")
    assert "\n" not in str(it.value)
    assert (tmp_path / "file").read_text() == "a file"


def test_a_version_that_is_replaced_meanwhile_is_kept_until_the_end(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "GRACE", -1.0)
    with delta_tables.held(tables) as version:
        for number in range(5):
            make_version(tables, minutes=[minute(0, number)])
        kept = [version.path / "minutes" / file.name for file in version.manifest.of("minutes")]
        assert all(path.exists() for path in kept)
    assert list((tables / HELD).iterdir()) == []
    make_version(tables, minutes=[minute(0, 9)])
    assert not any(path.exists() for path in kept)


@pytest.mark.parametrize("inside", ["", "copy", ".."])
def test_the_tables_own_folder_is_no_target(tables: Path, inside: str) -> None:
    with pytest.raises(PipelineError, match="in the tables' own folder or around it"):
        delta_tables.run_publish(tables, to=str(tables / inside), json_line=False)


# -- targets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["s3://bucket/x", "gs://b/x", "file:///srv/x", "https://a.blob.core.windows.net/c"])
def test_stores_that_are_not_served_are_refused_with_those_that_are(url: str) -> None:
    with pytest.raises(PipelineError, match="writes to folders and to Azure's storage: abfss://CONTAINER@ACCOUNT"):
        delta_tables.find_target(url, KEYS)


@pytest.mark.parametrize("url", ["abfss://c@a/x?sig=c4n4ry", "az://name:c4n4ry@c/x", "abfss://c@a/x#c4n4ry"])
def test_a_key_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(PipelineError, match="belongs into the environment") as caught:
        delta_tables.find_target(url, KEYS)
    assert "c4n4ry" not in str(caught.value)


@pytest.mark.parametrize(("environ", "asked"), [({}, True), (KEYS, False), ({"AZURE_STORAGE_ACCOUNT_KEY": ""}, True)])
def test_without_a_key_in_the_environment_azure_identity_is_asked(environ: Mapping[str, str], asked: bool) -> None:
    target = delta_tables.find_target("az://c/x", environ, token=lambda: "c4n4ry")
    assert (target.options.get("bearer_token") == "c4n4ry") is asked
    assert "c4n4ry" not in repr(target)


def test_the_reason_of_a_store_has_no_address_and_no_colours(approve: Approve) -> None:
    text = (
        "Generic MicrosoftAzure error\n \x1b[31m↳\x1b[0m Error performing GET https://a/b?sig=c4n4ry in 3 ms\n"
        "  \x1b[31m↳\x1b[0m error sending request https://a/b?sig=c4n4ry\n   \x1b[31m↳\x1b[0m Connection refused"
    )
    assert delta_tables.store_reason(OSError(text)) == "Connection refused"
    approve.part(delta_tables.store_reason(OSError("x https://a/b?sig=c4n4ry y")), "errors of the pipeline")
    assert delta_tables.store_reason(OSError("403 Forbidden\n<Code>AuthorizationFailure</Code><Message>")) == (
        "AuthorizationFailure, 403 Forbidden"
    )


def test_without_the_library_the_extra_is_named(tables: Path, tmp_path: Path, approve: Approve) -> None:
    import subprocess
    import sys

    from tests.test_extras import BLOCK

    code = BLOCK % ["deltalake"] + (
        "from paired_servicebus.cli import main\n"
        f"sys.exit(main(['tables', 'publish', '--tables', {str(tables)!r}, '--to', {str(tmp_path / 'to')!r}]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ)
    )
    assert ran.returncode == 2
    approve.part(ran.stderr, "errors of the pipeline", has=("[publish]",))
    assert not (tmp_path / "to").exists()
