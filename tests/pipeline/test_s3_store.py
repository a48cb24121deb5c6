"""Journals and tables on a store: an S3 server on loopback, Spark by hadoop-aws, this process by pyarrow.

`python -m tests.long s3-store` runs it: the jars come from Maven, some 600 MB.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from paired_servicebus.cli import main
from paired_servicebus.core.errors import PipelineError
from paired_servicebus.engine.journal.spool import CLOSED
from paired_servicebus.pipeline.journal_tables import JournalTables
from paired_servicebus.pipeline.table_store.lake import Change, Lake
from paired_servicebus.pipeline.table_store.store_path import StorePath, _opened, place_of
from tests.bench.spark.synthetic_journal import write_journal
from tests.pipeline.batches import begin, finish
from tests.pipeline.maven import HADOOP_AWS, jars
from tests.pipeline.test_spark_judges import compare_tables
from tests.ports import free_port

READY = 60.0
EVENTS = 6_000
needs_spark = pytest.mark.skipif(os.environ.get("PAIRED_SPARK") != "all", reason="python -m tests.long s3-store")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An S3 server."""
    port = free_port()
    with (tmp_path_factory.mktemp("s3") / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        end = time.monotonic() + READY
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert time.monotonic() < end, "the S3 server does not listen"
            assert process.poll() is None
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StorePath:
    """A new bucket, in an environment that leads to it."""
    from pyarrow.fs import S3FileSystem

    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "kim")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-kim")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    _opened.cache_clear()
    name = f"b{abs(hash(str(tmp_path))):x}"
    S3FileSystem(endpoint_override=endpoint, region="us-east-1", allow_bucket_creation=True).create_dir(name)
    found = place_of(f"s3a://{name}/pairing")
    assert isinstance(found, StorePath)
    return found


def upload(journal: Path, target: StorePath) -> None:
    for path in sorted((journal / CLOSED).iterdir()):
        (target / CLOSED / path.name).write_bytes(path.read_bytes())


def test_a_path_in_a_store_is_used_as_one_of_this_machine(bucket: StorePath) -> None:
    one = bucket / "a" / "x.json"
    with pytest.raises(FileNotFoundError):
        one.read_bytes()
    one.write_bytes(b"12")
    (bucket / "a" / "b" / "y.json").write_bytes(b"3")
    assert (one.read_bytes(), one.stat().st_size, one.name, one.parent.name) == (b"12", 2, "x.json", "a")
    assert sorted(path.name for path in (bucket / "a").iterdir()) == ["b", "x.json"]
    assert sorted(path.name for path in bucket.rglob("*.json")) == ["x.json", "y.json"]
    assert one.is_file()
    assert (bucket / "a").is_dir()
    assert not (bucket / "c").exists()
    one.move_to(bucket / "z.json")
    assert not one.exists()
    assert (bucket / "z.json").read_bytes() == b"12"
    (bucket / "z.json").unlink()
    (bucket / "z.json").unlink(missing_ok=True)


def test_the_last_writer_that_began_writes_and_an_earlier_one_ends(bucket: StorePath) -> None:
    with Lake(bucket / "tables") as earlier:
        earlier.commit(lambda _: Change())
        with Lake(bucket / "tables") as later:
            with pytest.raises(PipelineError, match="another writer by now"):
                earlier.commit(lambda _: Change())
            assert later.commit(lambda _: Change()).batch == 2


def test_a_journal_in_a_store_is_judged_without_spark(bucket: StorePath, tmp_path: Path) -> None:
    write_journal(tmp_path / "j", 2_000)
    upload(tmp_path / "j", bucket / "journal")
    with JournalTables.open([bucket / "journal"]) as stored, JournalTables.open([tmp_path / "j"]) as local:
        query = "select * from audit order by message_id"
        assert stored.rows(query) == local.rows(query) != []


@needs_spark
@pytest.mark.timeout(3600)
def test_the_pipeline_reads_and_writes_a_store(
    bucket: StorePath, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_journal(tmp_path / "j", EVENTS, lines=EVENTS // 4)
    files = sorted((tmp_path / "j" / CLOSED).iterdir())
    late = files[-1].rename(tmp_path / files[-1].name)
    upload(tmp_path / "j", bucket / "journal")
    settings = {"spark.jars": jars(tmp_path / "jars", *HADOOP_AWS)}

    def make(journal: object, tables: object) -> None:
        finish(begin(Path(str(journal)), tables=Path(str(tables)), settings=settings))

    make(bucket / "journal", bucket / "tables")
    (bucket / "journal" / CLOSED / late.name).write_bytes(late.read_bytes())
    make(bucket / "journal", bucket / "tables")
    late.rename(tmp_path / "j" / CLOSED / late.name)
    compare_tables(bucket / "tables", tmp_path / "j")
    url = str(bucket / "tables")
    assert main(["tables", "query", "--tables", url, "select count(*) as n from events", "--format", "csv"]) == 0
    assert capsys.readouterr().out.split() == ["n", str(EVENTS)]
    assert main(["report", "--tables", url, "--since", "2026-01-01 00:00"]) == 0
    assert "contoso" in capsys.readouterr().out
