"""What lies in the folder that a verb is started from is never imported, by none of the processes that it starts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paired_servicebus.core.errors import PairedError, PipelineError
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.demo.runner import relay_lines, worker_process
from paired_servicebus.demo.worker_protocol import PlayRequest
from paired_servicebus.engine.commands.drain_process import COMMAND
from paired_servicebus.engine.journal.spool import SUFFIX
from paired_servicebus.interpreter import python_command, python_environment
from paired_servicebus.pipeline.drain import drain_command as drain
from paired_servicebus.pipeline.drain.drain_files import DrainOrder
from paired_servicebus.pipeline.rehearsal import rehearsal_command as rehearsal
from paired_servicebus.pipeline.rehearsal.policy_ranking import Order as Rehearsal
from paired_servicebus.pipeline.rehearsal.recorded_history import RecordedHistory
from paired_servicebus.pipeline.rehearsal.rehearsal_command import SparkChoice
from paired_servicebus.pipeline.spark_processes import Bar, PipelineOrder, start_pipeline
from paired_servicebus.sandbox_process import sandbox_process

ROOT = Path(__file__).parents[1]
WITHIN = 60.0
NAMES = ("msgspec", "random", "multiprocessing", "asyncio", "json", "paired_servicebus", "pyspark", "duckdb", "azure")
BROKEN_JAVA = "#!/bin/sh\nexit 3\n"


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """A working directory of modules that say so when they are imported; what they said."""
    folder, sprung = tmp_path / "trap", tmp_path / "sprung"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(sprung)!r}, 'a').write('{name} ')\nraise SystemExit(99)\n")
    java = tmp_path / "java"
    (java / "bin").mkdir(parents=True)
    (java / "release").write_text('JAVA_VERSION="21.0.8"\n')
    (java / "bin" / "java").write_text(BROKEN_JAVA)
    (java / "bin" / "java").chmod(0o700)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("JAVA_HOME", str(java))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return lambda: sprung.read_text() if sprung.exists() else ""


def test_the_trap_springs_for_whoever_steps_in(trap: Callable[[], str]) -> None:
    subprocess.run([sys.executable, "-c", "import random"], check=False, capture_output=True, timeout=WITHIN)
    assert "random" in trap()


def test_the_pipeline_imports_nothing_of_it(trap: Callable[[], str], tmp_path: Path) -> None:
    (tmp_path / f"1{SUFFIX}").touch()
    pipeline = start_pipeline(
        PipelineOrder(journals=(tmp_path,), tables=tmp_path / "tables", once=True, java_home=tmp_path / "no-java-here")
    )
    assert pipeline.wait(WITHIN) == 2
    assert "no-java-here" in pipeline.trouble(), "it came as far as its order"
    assert trap() == ""


def test_a_rehearsal_imports_nothing_of_it(trap: Callable[[], str]) -> None:
    order = Rehearsal(
        history=RecordedHistory(source="", seconds=1.0, entities=(), queues=1, loads=()), policies=(Policy(),), seeds=1
    )
    with pytest.raises(PipelineError, match="Spark"):
        rehearsal.run_on_spark(order, SparkChoice(master="local[1]"), bar=Bar(quiet=True))
    assert trap() == ""


def test_a_drain_imports_nothing_of_it(trap: Callable[[], str], tmp_path: Path) -> None:
    order = DrainOrder(
        run="r", pairing="p", config="c", spool=str(tmp_path), queues=[], master="local[1]", parallelism=1
    )
    log = tmp_path / "log"
    with drain._process(order, {}, log) as process:
        process.wait(WITHIN)
    assert "order.json" in log.read_text(), "it came as far as its order"
    assert trap() == ""


def test_the_demo_imports_nothing_of_it(trap: Callable[[], str], tmp_path: Path) -> None:
    order = PlayRequest(scenario="none-such", duration=9, seed=1, folder=str(tmp_path), socket=str(tmp_path / "s"))
    with worker_process(order, tmp_path) as worker, pytest.raises(PairedError, match="none-such"):
        relay_lines(worker, print)
    assert trap() == ""


async def test_the_demos_sandbox_imports_nothing_of_it(trap: Callable[[], str], tmp_path: Path) -> None:
    async with sandbox_process(tmp_path / "log") as standing:
        assert standing.namespaces
    assert trap() == ""


def test_every_process_of_ours_is_started_so() -> None:
    """One place knows the interpreter; Spark is told of it, and of PYTHONSAFEPATH."""
    files = [
        path.relative_to(ROOT) for path in (ROOT / "console").rglob("*.py") if "sys.executable" in path.read_text()
    ]
    assert sorted(map(str, files)) == [
        "console/paired_servicebus/interpreter.py",
        "console/paired_servicebus/pipeline/spark/spark_session.py",
    ]
    session = (ROOT / "console/paired_servicebus/pipeline/spark/spark_session.py").read_text()
    assert re.findall(r"sys\.executable,|PYTHONSAFEPATH=\"1\"|executorEnv\.PYTHONSAFEPATH", session) == [
        "sys.executable,", "sys.executable,", 'PYTHONSAFEPATH="1"', "executorEnv.PYTHONSAFEPATH",
    ]  # fmt: skip
    assert "-P" in python_command("x")
    assert python_command("paired_servicebus", "drain") == COMMAND


@pytest.mark.parametrize("given", ["", ":/somewhere", "/somewhere::"])
def test_an_empty_part_of_the_path_is_not_the_working_directory(given: str) -> None:
    environ = python_environment({"PYTHONPATH": given, "HOME": "/home/me"})
    assert "" not in environ.get("PYTHONPATH", "x").split(os.pathsep)
    assert ("/somewhere" in environ.get("PYTHONPATH", "")) is ("/somewhere" in given)
    assert (environ["HOME"], environ["PYTHONSAFEPATH"]) == ("/home/me", "1")
