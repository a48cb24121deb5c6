"""How the pytest processes that run Microsoft's tests are fed, read, waited for and ended; none of their tests runs."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.conformance import running
from tests.conformance.expected import Outcome, Result
from tests.conformance.running import batches, read_report


def test_a_report_may_be_cut_off_while_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "results"
    ended = {"event": "ended", "id": "a", "outcome": "passed", "phase": "call", "seconds": 1.0, "detail": ""}
    started = {"event": "started", "id": "b"}
    file.write_text(f'{json.dumps(ended)}\n{json.dumps(started)}\n{{"event": "en')
    report = read_report(file)
    assert report.results == {"a": Result(Outcome.PASS, 1.0)}
    assert report.running == "b"


def test_a_test_that_passed_and_could_not_clean_up_has_failed(tmp_path: Path) -> None:
    file = tmp_path / "results"
    passed = {"event": "ended", "id": "a", "outcome": "passed", "phase": "call", "seconds": 1.0, "detail": ""}
    failed = passed | {"outcome": "failed", "phase": "teardown", "seconds": 0.5, "detail": "why"}
    file.write_text(f"{json.dumps(passed)}\n{json.dumps(failed)}\n")
    assert read_report(file).results == {"a": Result(Outcome.FAIL, 1.5, "why")}


def test_batches_keep_every_test_once_and_the_administration_together() -> None:
    tests = [f"test_a.py::{n}" for n in range(30)] + [f"mgmt_tests/test_{n}.py::t" for n in range(30)]
    found = batches(tests)
    assert sorted(test for batch in found for test in batch) == sorted(tests)
    assert [test for test in tests if test.startswith("mgmt_tests/")] in found


async def test_a_process_that_has_run_its_tests_and_does_not_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_ENDING_SECONDS", 0.02)
    monkeypatch.setattr(running, "_LOOK_SECONDS", 0.01)
    file = tmp_path / "results"
    ended = {"event": "ended", "id": "a", "outcome": "passed", "phase": "call", "seconds": 1.0, "detail": ""}
    file.write_text(f"{json.dumps(ended)}\n")
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    async with running.own_process(sleeping, tmp_path, tmp_path / "said") as process:
        await running.until_done(process, file, tests=1, limit=3600)
        assert process.returncode is None
    assert process.returncode == -15


async def test_a_process_that_does_not_want_to_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_ENDING_SECONDS", 0.1)
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    said = tmp_path / "said"
    async with running.own_process([sys.executable, "-c", deaf], tmp_path, said) as process:
        async with asyncio.timeout(20):
            while "deaf" not in said.read_text():
                await asyncio.sleep(0.01)
    assert process.returncode == -9
