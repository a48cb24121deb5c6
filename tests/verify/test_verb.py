"""The verb in processes of its own: exit status, file, interrupts, kills."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from paired_servicebus import cli
from tests.stage.plays.verbs import Verb, verb

VERIFY = ("verify", "paired-verify-")


def test_mistakes_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", "--clean", "--slow"]) == 2
    assert "--clean runs no experiments" in capsys.readouterr().err
    assert cli.main(["verify", "--config", str(tmp_path / "missing.toml")]) == 2
    assert "missing.toml is not a file" in capsys.readouterr().err


@pytest.mark.slow
async def test_the_file_is_written_and_the_status_tells_of_differences(tmp_path: Path) -> None:
    async with verb(tmp_path, *VERIFY) as found:
        file = tmp_path / "results.json"
        status, out = await found.finish(await found.start("--json", str(file)))
        results = {one["result"] for one in json.loads(file.read_text())["results"]}
        assert status == int("differs" in results), out
        for secret in found.secrets:
            assert secret not in file.read_text() + out
        assert found.left() == []


@pytest.mark.slow
async def test_an_unwritable_file_and_a_silent_namespace_are_one_sentence_each(tmp_path: Path) -> None:
    async with verb(tmp_path, *VERIFY) as found:
        status, out = await found.finish(await found.start("--json", str(tmp_path / "no" / "file")))
        assert (status, "cannot be written" in out) == (2, True), out
    status, out = await found.finish(await found.start())
    assert (status, "does not answer" in out) == (2, True), out
    assert out.count("\n") == 1, out


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_an_interrupted_run_deletes_its_queues(tmp_path: Path, number: signal.Signals, status: int) -> None:
    async with verb(tmp_path, *VERIFY) as found:
        process = await found.start()
        await _working(found)
        process.send_signal(number)
        assert (await found.finish(process))[0] == status
        assert found.left() == []
        assert found.records() == []


async def test_a_killed_run_is_reported_and_cleaned(tmp_path: Path) -> None:
    async with verb(tmp_path, *VERIFY) as found:
        process = await found.start()
        await _working(found)
        process.kill()
        await found.finish(process)
        assert found.left()
        assert await found.clean() == (0, [])
        assert found.left() == []


async def _working(found: Verb) -> None:
    while len(found.left()) < 3:
        await asyncio.sleep(0.02)
