"""The pipeline's process as its starter sees it, with a Java that never says anything."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paired_servicebus.pipeline.spark_processes import PipelineOrder, PipelineProcess, start_pipeline

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
