"""A real Spark cluster on loopback: one master and some workers, from the package alone; all of it ended for certain.

Every daemon is told by the kernel to end when the process that started it does, has a group of its own that is killed
in the end, and writes to a file.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from paired_servicebus.interpreter import python_environment
from paired_servicebus.pipeline.spark.spark_session import find_java
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
START = 90.0
_PDEATHSIG = 1
_DAEMON = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "4s",
}
"""For sessions on it: small executors, and a dead one is noticed soon."""


@dataclass
class Cluster:
    """`master` is its URL; workers by their process."""

    master: str
    workers: list[subprocess.Popen[bytes]]

    def kill_worker(self, index: int) -> None:
        """A machine that dies: the worker, its executor and their Python processes, with kill -9, at once."""
        for pid in with_descendants(self.workers[index].pid):
            _kill(pid)
        self.workers[index].wait()

    def executors(self, index: int) -> list[int]:
        """The processes of a worker beside itself."""
        return with_descendants(self.workers[index].pid)[1:]


@contextmanager
def cluster(folder: Path, *, workers: int) -> Iterator[Cluster]:
    """Raises TimeoutError: it did not start."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []
    try:
        address = ["--host", "127.0.0.1", "--webui-port", "0"]
        started.append(_daemon(folder, "master", ["master.Master", *address, "--port", str(port)]))
        _until_open(port, started[0], folder / "master.log")
        for number in range(workers):
            wanted = ["worker.Worker", *address, "--port", "0", "-c", "1", "-m", "1g", "-d", str(folder / f"w{number}")]
            started.append(_daemon(folder, f"worker-{number}", [*wanted, url]))
        for number, process in enumerate(started[1:]):
            _until_said(folder / f"worker-{number}.log", "Successfully registered with master", process)
        yield Cluster(url, started[1:])
    finally:
        for process in started:
            for pid in with_descendants(process.pid) if process.poll() is None else ():
                _kill(pid)
            process.wait()


def _daemon(folder: Path, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    home = Path(found.origin).parent
    environment = {
        **python_environment(),
        "JAVA_HOME": str(find_java(shims=folder)),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _DAEMON,
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
    }
    with _log(folder / f"{name}.log") as log:
        return subprocess.Popen(
            [home / "bin" / "spark-class", f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )


def _log(path: Path) -> IO[bytes]:
    return path.open("ab")


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


def _until_open(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"no master: {log.read_text()[-2000:]}")


def _until_said(log: Path, words: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end and process.poll() is None:
        if words in log.read_text():
            return
        time.sleep(0.1)
    raise TimeoutError(f"no worker: {log.read_text()[-2000:]}")


def with_descendants(pid: int) -> list[int]:
    """A process and all below it, parents first."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
