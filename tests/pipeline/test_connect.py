"""A Spark Connect server as the pipeline's Spark: the tables are those that duckdb makes.

`python -m tests.long connect` runs it: pyspark's own server, on loopback.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("grpc", reason="the extra `connect` is not installed")

from paired_servicebus.engine.journal.spool import CLOSED
from paired_servicebus.interpreter import python_environment
from paired_servicebus.pipeline.spark.spark_session import find_java
from paired_servicebus.pipeline.table_store import manifest
from tests.bench.spark.synthetic_journal import write_journal
from tests.pipeline.batches import LONG, begin, finish
from tests.pipeline.test_spark_judges import compare_tables
from tests.ports import free_port

pytestmark = [
    pytest.mark.skipif(os.environ.get("PAIRED_SPARK") != "all", reason="python -m tests.long connect"),
    pytest.mark.timeout(3600),
]
READY = 120.0
EVENTS = 6_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Spark Connect server."""
    import sys

    import pyspark

    folder, port = tmp_path_factory.mktemp("connect"), free_port()
    java = find_java(shims=folder)
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2,4]",
        "--driver-memory", "1g", "--conf", f"spark.connect.grpc.binding.port={port}",
        "--conf", "spark.connect.grpc.binding.address=127.0.0.1", "--conf", "spark.ui.enabled=false",
        "--conf", f"spark.local.dir={folder}", "--conf", f"spark.sql.warehouse.dir={folder}/warehouse",
        "--conf", "spark.sql.shuffle.partitions=8", "spark-internal",
    ]  # fmt: skip
    environment = {
        **python_environment(), "JAVA_HOME": str(java), "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(Path(pyspark.__file__).parent),
    }  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=folder,
            start_new_session=True,
        )  # fmt: skip
    try:
        end = time.monotonic() + READY
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert time.monotonic() < end, (folder / "log").read_text()[-3000:]
            assert process.poll() is None, (folder / "log").read_text()[-3000:]
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_connect_servers_tables_are_those_without_spark(server: str, tmp_path: Path) -> None:
    write_journal(tmp_path / "j", EVENTS, lines=EVENTS // 4)
    late = sorted((tmp_path / "j" / CLOSED).iterdir())[-1]
    late = late.rename(tmp_path / late.name)
    finish(begin(tmp_path / "j", tables=tmp_path / "there", master=server))
    late.rename(tmp_path / "j" / CLOSED / late.name)
    finish(begin(tmp_path / "j", tables=tmp_path / "there", master=server))
    compare_tables(tmp_path / "there", tmp_path / "j")


def test_a_journal_is_followed_by_a_connect_server(server: str, tmp_path: Path) -> None:
    write_journal(tmp_path / "j", EVENTS, lines=EVENTS // 4)
    late = sorted((tmp_path / "j" / CLOSED).iterdir())[-1]
    late = late.rename(tmp_path / late.name)
    pipeline = begin(tmp_path / "j", tables=tmp_path / "t", once=False, master=server, trigger=1.0)
    try:
        until(tmp_path / "t", EVENTS * 3 // 4, pipeline.log)
        late.rename(tmp_path / "j" / CLOSED / late.name)
        until(tmp_path / "t", EVENTS, pipeline.log)
    finally:
        assert pipeline.stop(60.0) == 0


def until(tables: Path, events: int, log: Path) -> None:
    end = time.monotonic() + LONG
    while True:
        if manifest.commit_paths(tables):
            found = manifest.newest(tables).manifest
            if sum(file.rows for file in found.of("events")) == events and found.of("audit"):
                return
        assert time.monotonic() < end, log.read_text()[-3000:]
        time.sleep(0.2)
