"""Checkpoints that are whole, that were killed at any moment, and that lack something."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from paired_servicebus.pipeline.spark.restarted_query import is_blamed, missing

BATCHES = 4


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of four batches, as Spark leaves it."""
    for name in ("metadata", *(f"{log}/{n}" for log in ("offsets", "commits", "sources/0") for n in range(BATCHES))):
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        number = f'\n{{"logOffset":{place.name}}}' if name.startswith("offsets") else ""
        place.write_text(f"v1{number}")
        (place.parent / f".{place.name}.crc").write_bytes(b"crc")
    return tmp_path


def test_a_whole_one_lacks_nothing(checkpoint: Path) -> None:
    assert missing(checkpoint) == ""


def test_none_lacks_nothing(tmp_path: Path) -> None:
    assert missing(tmp_path / "journal") == ""


@pytest.mark.parametrize("killed_before", [["commits/3"], ["commits/3", "offsets/3"], ["commits"]])
def test_one_that_was_killed_in_a_batch_lacks_nothing(checkpoint: Path, killed_before: list[str]) -> None:
    for name in killed_before:
        _remove(checkpoint / name)
    assert missing(checkpoint) == ""


def test_old_batches_that_spark_removed_are_not_missed(checkpoint: Path) -> None:
    for name in ("offsets/0", "commits/0", "sources/0/0", "sources/0/1"):
        _remove(checkpoint / name)
    (checkpoint / "sources/0/2").rename(checkpoint / "sources/0/2.compact")
    assert missing(checkpoint) == ""


@pytest.mark.parametrize(
    ("removed", "said"),
    [
        ("metadata", "metadata"),
        ("offsets", "offsets/0"),
        ("offsets/3", "offsets/3"),
        ("offsets/2", "offsets/2"),
        ("sources/0", "sources/0/0"),
        ("sources/0/1", "sources/0/1"),
        ("sources/0/3", "sources/0/3"),
    ],
)
def test_what_spark_cannot_do_without_is_missed(checkpoint: Path, removed: str, said: str) -> None:
    _remove(checkpoint / removed)
    assert missing(checkpoint) == said


@pytest.mark.parametrize("name", ["metadata", "offsets/3", "commits/3", "sources/0/3"])
def test_an_empty_file_is_a_missing_one(checkpoint: Path, name: str) -> None:
    (checkpoint / name).write_bytes(b"")
    assert missing(checkpoint) == name


@pytest.mark.parametrize(
    "reason",
    [
        "StreamingQueryException: [STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] Cannot restart",
        "StreamingQueryException: java.io.FileNotFoundException: File file:/t/checkpoints/f/story/state/0/0/1.zip",
        "StreamingQueryException: [STDS_FAILED_TO_READ_OPERATOR_METADATA] Failed to read the operator metadata",
        "StreamingQueryException: [CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.",
        "StreamingQueryException: Wrong basePath /moved/story for the root path: file:/was/story/b1.parquet",
    ],
)
def test_spark_blames_a_checkpoint(reason: str) -> None:
    assert is_blamed(reason)


@pytest.mark.parametrize(
    "reason",
    [
        "StreamingQueryException: java.io.IOException: No space left on device",
        "StreamingQueryException: Python worker failed to connect back.",
        "StreamingQueryException: org.apache.spark.SparkException: Job aborted due to stage failure",
        "StreamingQueryException: FileNotFoundException: /t/checkpoints/f/story/state/0 (No space left on device)",
        "AnalysisException: [PATH_NOT_FOUND] /home/who/.local/state/paired: does not exist. SQLSTATE: 42K03",
        "Py4JNetworkError: Error while sending or receiving",
    ],
)
def test_spark_blames_something_else(reason: str) -> None:
    assert not is_blamed(reason)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
