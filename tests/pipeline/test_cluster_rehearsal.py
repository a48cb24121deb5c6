"""A rehearsal on real clusters of one worker and of two: `python -m tests.long cluster-rehearsal`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.bench.spark.loopback_cluster import ROOT, cluster, with_descendants

pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.skipif(os.environ.get("PAIRED_SPARK") != "all", reason="python -m tests.long cluster-rehearsal"),
    pytest.mark.timeout(600),
]


def rehearsed(folder: Path, master: str) -> bytes:
    done = subprocess.run(
        [
            sys.executable, "-m", "paired_servicebus", "rehearse", "--json", "--master", master, "--seeds", "15",
            "--failover-interval", "0s,30s", "--failback-pings", "1", "--ping-interval", "60s",
        ],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_one_executor_and_two_give_the_same_bytes(tmp_path: Path) -> None:
    """The master, too: what is printed on this machine's own threads is what the clusters give."""
    found = {}
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        folder.mkdir()
        with cluster(folder, workers=workers) as standing:
            found[workers] = rehearsed(tmp_path, standing.master)
            assert len([index for index in range(workers) if standing.workers[index].poll() is None]) == workers

    assert found[1] == found[2]
    assert found[1] == rehearsed(tmp_path, "local[2]")


def test_one_that_is_ended_leaves_no_folder_and_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "paired_servicebus", "rehearse", "--seeds", "20000"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL) as rehearsal:
        while not list(tmp_path.glob("paired-rehearse-*/spark.log")):
            assert rehearsal.poll() is None
            time.sleep(0.05)
        below = with_descendants(rehearsal.pid)[1:]
        rehearsal.terminate()
    assert rehearsal.returncode == 128 + signal.SIGTERM
    assert not list(tmp_path.glob("paired-*"))
    end = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in below):
        assert time.monotonic() < end
        time.sleep(0.05)
