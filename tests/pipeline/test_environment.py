"""Spark's JVM is given no key of a pairing, and no setting of a person stands where others can read it."""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from paired_servicebus.pipeline.drain import drain_command as drain
from paired_servicebus.pipeline.drain.drain_files import DrainOrder, write
from paired_servicebus.pipeline.spark import spark_session
from paired_servicebus.pipeline.spark.spark_session import DEFAULTS, spark_variables, withheld, write_defaults
from paired_servicebus.pipeline.spark_processes import PipelineOrder, start_pipeline

WITHIN = 60.0
STRING = "Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey=c4n4ry"
SECRETS = {
    "PRIMARY": STRING,
    "SPARK_SECONDARY": STRING,
    "AZURE_CLIENT_SECRET": "c4n4ry",
    "PROXY": "http://me:c4n4ry@proxy:3128",
    "DATABASE_PASSWORD": "c4n4ry",
}
SPARKS = {"AWS_REGION": "eu-north-1", "SPARK_TESTS_OWN": "1", "HADOOP_USER_NAME": "kim", "LC_ALL": "C"}
TALKING_JAVA = """#!/bin/sh
{{ env; echo "arguments: $*"; cat "$SPARK_CONF_DIR/spark-defaults.conf"; }} >> "{home}/told"
stat -c %a "$SPARK_CONF_DIR/spark-defaults.conf" >> "{home}/mode"
exit 1
"""


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java that tells what it was given, in an environment of secrets."""
    pytest.importorskip("pyspark")
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="21.0.8"\n')
    (home / "bin" / "java").write_text(TALKING_JAVA.format(home=home))
    (home / "bin" / "java").chmod(0o700)
    for name, value in (SECRETS | SPARKS | {"JAVA_HOME": str(home)}).items():
        monkeypatch.setenv(name, value)
    return home


@pytest.fixture
def unused_master() -> Iterator[int]:
    """A port that accepts connections, as a master's does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def told(java: Path) -> tuple[str, str, str]:
    """The environment, the arguments, the file of settings."""
    environ, _, rest = (java / "told").read_text().partition("arguments: ")
    arguments, _, file = rest.partition("\n")
    return environ, arguments, file


def test_the_jvm_of_a_pipeline_has_no_key_and_its_settings_are_no_arguments(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "e-1-1.jsonl").touch()
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--properties-file /mine pyspark-shell")
    pipeline = start_pipeline(
        PipelineOrder(
            journals=(tmp_path / "journal",),
            tables=tmp_path / "tables",
            once=True,
            settings={"spark.hadoop.fs.s3a.secret.key": "s3cr3t: = x", "spark.driver.memory": "3g"},
        )
    )
    assert pipeline.wait(WITHIN) == 2
    environ, arguments, file = told(java)
    assert "c4n4ry" not in environ
    assert all(f"{name}={value}\n" in environ for name, value in SPARKS.items())
    assert "org.apache.spark" in arguments
    assert "--properties-file /mine" in arguments, "a file of a person's own"
    assert "s3cr3t" not in arguments
    assert "spark.driver.memory" not in arguments, "a person's own is not overruled by the usual one"
    assert file.startswith(r"spark.hadoop.fs.s3a.secret.key=s3cr3t\:\ \=\ x" + "\n")
    assert (java / "mode").read_text().startswith("600\n")


def drained(tmp_path: Path, master: str, settings: Mapping[str, str]) -> DrainOrder:
    """A drain as far as Java, without a namespace."""
    (tmp_path / "pairing.toml").write_text(
        '[pairing]\nname = "p"\n'
        '[primary]\nconnection_string = { env = "PRIMARY" }\n[secondary]\nconnection_string = { env = "PRIMARY" }\n'
    )
    order = DrainOrder(
        run="r", pairing="p", config=str(tmp_path / "pairing.toml"), spool=str(tmp_path / "spool"),
        queues=[], master=master, parallelism=1,
    )  # fmt: skip
    order.folder.mkdir(parents=True)
    write(order.folder / "order.json", order)
    with drain._process(order, dict(settings), tmp_path / "log") as started:
        started.wait(WITHIN)
    return order


@pytest.mark.parametrize(("master", "whole"), [("local[1]", True), ("spark://127.0.0.1:{port}", False)])
def test_the_jvm_of_a_drain_has_keys_only_where_its_tasks_run(
    java: Path, tmp_path: Path, master: str, whole: bool, unused_master: int
) -> None:
    """On this machine the tasks, which the JVM starts, read pairing.toml; elsewhere executors have their own keys."""
    master = master.format(port=unused_master)
    order = drained(tmp_path, master, {"spark.hadoop.fs.s3a.secret.key": "s3cr3t"})
    environ, arguments, file = told(java)
    assert ("c4n4ry" in environ) is whole
    assert "s3cr3t" not in arguments
    assert "s3cr3t" in file
    assert "s3cr3t" not in "".join(path.read_text() for path in order.folder.iterdir())


def test_what_is_withheld_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name, value in (SECRETS | SPARKS).items():
        monkeypatch.setenv(name, value)
    with withheld():
        assert not SECRETS.keys() & os.environ.keys()
        assert SPARKS.keys() <= os.environ.keys()
        os.environ["PYTHONHASHSEED"] = "0"
    assert (SECRETS | SPARKS).items() <= os.environ.items()
    assert os.environ.pop("PYTHONHASHSEED") == "0", "what Spark sets for itself stays"


def test_a_key_is_withheld_under_any_name() -> None:
    assert spark_variables({"SPARK_X": STRING, "AWS_Y": STRING.upper(), "PATH": "/bin"}) == {"PATH": "/bin"}


def test_the_file_of_settings_is_its_users_alone_even_where_one_was(tmp_path: Path) -> None:
    (tmp_path / DEFAULTS).write_text("old")
    (tmp_path / DEFAULTS).chmod(0o666)
    write_defaults(tmp_path, {"spark.a": "b\n#c\\"})
    assert stat.S_IMODE((tmp_path / DEFAULTS).stat().st_mode) == 0o600
    assert (tmp_path / DEFAULTS).read_text() == "spark.a=b\\n\\#c\\\\\n"


@pytest.mark.parametrize(
    ("master", "towards"),
    [("spark://10.1.2.3:7077,10.1.2.4:7077", "10.1.2.3"), ("k8s://https://10.1.2.3:6443", "10.1.2.3")],
)
def test_the_driver_listens_where_its_cluster_reaches_it_alone(
    master: str, towards: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_session, "_own_address", {towards: "10.9.9.9"}.__getitem__)
    settings = spark_session.driver_settings(master)
    assert (settings["spark.driver.host"], settings["spark.driver.bindAddress"]) == ("10.9.9.9", "10.9.9.9")


@pytest.mark.parametrize(
    ("master", "host"), [("local[*]", "127.0.0.1"), ("spark://127.0.0.1:7", "127.0.0.1"), ("yarn", None)]
)
def test_on_this_machine_it_is_loopback_and_elsewhere_no_address_is_chosen(master: str, host: str | None) -> None:
    assert spark_session.driver_settings(master).get("spark.driver.host") == host
