"""Why Spark does not start: the master's port, the JVM's own words, the operator's configuration."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paired_servicebus.core.errors import ConfigurationError, SparkFailedError
from paired_servicebus.pipeline.spark import spark_session
from paired_servicebus.pipeline.spark.spark_session import (
    DEFAULTS,
    is_local,
    link_others,
    operator_defaults,
    operator_folder,
    reason_in,
    require_master,
    spark_settings,
)

JVM_TRACE = """WARNING: Using incubator modules: jdk.incubator.vector
Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or start with spark
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)
\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)
"""


@pytest.fixture
def port() -> Iterator[int]:
    """A port that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_master_that_accepts_is_enough_among_those_of_a_standby_set(port: int) -> None:
    require_master(f"spark://127.0.0.1:{port}")
    require_master(f"spark://127.0.0.1:{closed_port()},127.0.0.1:{port}")


def test_where_no_master_answers_each_is_named_with_its_reason_at_once() -> None:
    """The bug: 65 seconds of silence."""
    first, second = closed_port(), closed_port()
    began = time.monotonic()
    with pytest.raises(SparkFailedError, match="no Spark master answers at ") as caught:
        require_master(f"spark://127.0.0.1:{first},127.0.0.1:{second}")
    assert time.monotonic() - began < spark_session.PATIENCE
    assert f"127.0.0.1:{first} (Connection refused); 127.0.0.1:{second} (Connection refused)" in str(caught.value)


def test_a_master_that_takes_no_connection_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(place: tuple[str, int], timeout: float) -> socket.socket:
        raise TimeoutError(f"timed out after {timeout}")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(SparkFailedError, match=r"head:7077 \(no answer in 3 s\)"):
        require_master("spark://head:7077")


@pytest.mark.parametrize(
    "url", ["spark://head", "spark://head:0", "spark://head:99999", "spark://a:1,,b:2", "spark://"]
)
def test_a_master_without_a_port_is_refused(url: str) -> None:
    with pytest.raises(SparkFailedError, match="it is written spark://HOST:PORT"):
        require_master(url)


def test_spark_connect_is_refused_with_what_to_name_instead() -> None:
    with pytest.raises(SparkFailedError, match=r"^sc://host:15002 is a Spark Connect server, .* spark://HOST:7077"):
        require_master("sc://host:15002")


@pytest.mark.parametrize("url", ["local", "local[2,4]", "yarn", "k8s://https://host:6443", "bogus"])
def test_masters_of_other_kinds_are_for_spark_to_judge(url: str) -> None:
    require_master(url)


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("local[*]", True), ("spark://127.0.0.1:7077", True), ("spark://localhost:7077", True),
        ("spark://[::1]:7077", True), ("spark://127.0.0.1:7077,head:7077", False), ("yarn", False),
        ("spark://localhost.example.org:7077", False), ("k8s://https://127.0.0.1:6443", False),
    ],
)  # fmt: skip
def test_only_a_master_on_loopback_is_local(url: str, local: bool) -> None:
    assert is_local(url) is local


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (JVM_TRACE, "Master must either be yarn or start with spark"),
        (
            "Error occurred during initialization of VM\nCould not reserve enough space for 1048576KB object heap\n",
            "Error occurred during initialization of VM Could not reserve enough space for 1048576KB object heap",
        ),
        (
            "Unrecognized option: -Xbogus\nError: Could not create the Java Virtual Machine.\n"
            "Error: A fatal exception has occurred. Program will exit.\n/x/spark-class: line 97: CMD: bad array\n",
            "Unrecognized option: -Xbogus",
        ),
        ("java: error while loading shared libraries: x.so\n", "java: error while loading shared libraries: x.so"),
        ("\n  \nWARNING: x\n", ""),
        ("Error: a key SharedAccessKey=abcdefgh and \x1b[2J\n", "Error: a key SharedAccessKey=*** and \\x1b[2J"),
    ],
)  # fmt: skip
def test_the_reason_is_the_line_that_has_it(text: str, reason: str) -> None:
    """The bug: "Java gateway process exited before sending its port number", whatever the JVM wrote."""
    assert reason_in(text) == reason


def test_the_reason_is_of_this_start_and_not_of_an_earlier_one(tmp_path: Path) -> None:
    code = (
        "import os\nfrom paired_servicebus.pipeline.spark.spark_session import StartLog\n"
        "os.write(2, b'Error: of the start before\\n')\nlog = StartLog()\nos.write(2, b'Error: of this one\\n')\n"
        "print(log.reason())"
    )
    with (tmp_path / "log").open("ab") as log:
        ran = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=log, timeout=60, check=True)
    assert ran.stdout.decode() == "Error: of this one\n"


def test_without_a_log_there_is_no_reason_and_no_error() -> None:
    code = "from paired_servicebus.pipeline.spark.spark_session import StartLog; print(repr(StartLog().reason()))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "''\n"


# -- the operator's configuration --------------------------------------------------------------------------------------


def test_the_operators_settings_count_but_for_those_that_the_tables_depend_on(tmp_path: Path) -> None:
    (tmp_path / DEFAULTS).write_text(
        "# a comment\nspark.driver.host  10.0.0.5\nspark.eventLog.dir=hdfs:///logs\n  spark.executor.memory : 4g\n"
        "spark.master yarn\nspark.sql.session.timeZone Europe/Berlin\nnot.spark 1\nspark.alone\n"
    )
    assert operator_defaults(tmp_path) == {
        "spark.driver.host": "10.0.0.5",
        "spark.eventLog.dir": "hdfs:///logs",
        "spark.executor.memory": "4g",
    }


def test_the_operators_other_files_are_beside_ours(tmp_path: Path) -> None:
    """The bug: SPARK_CONF_DIR was replaced, and with it the addresses of a cluster's namenode."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for folder in (theirs, ours):
        folder.mkdir()
    for name in ("core-site.xml", "log4j2.properties", DEFAULTS):
        (theirs / name).write_text("theirs")
    assert link_others(theirs, ours)
    assert sorted(path.name for path in ours.iterdir()) == ["core-site.xml", "log4j2.properties"]
    assert (ours / "core-site.xml").read_text() == "theirs"
    (theirs / "log4j2.properties").unlink()
    assert not link_others(theirs, ours)


def test_a_configuration_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    assert operator_folder({}, ours=tmp_path) is None
    assert operator_folder({"SPARK_CONF_DIR": str(tmp_path)}, ours=tmp_path) is None
    with pytest.raises(SparkFailedError, match=r"SPARK_CONF_DIR is .*none, which is no folder"):
        operator_folder({"SPARK_CONF_DIR": str(tmp_path / "none")}, ours=tmp_path)


def test_a_setting_is_written_as_sparks() -> None:
    assert spark_settings(["spark.a=b=c", "spark.d="]) == {"spark.a": "b=c", "spark.d": ""}
    with pytest.raises(ConfigurationError, match=r"--conf is master=x; it is a setting of Spark's"):
        spark_settings(["master=x"])
