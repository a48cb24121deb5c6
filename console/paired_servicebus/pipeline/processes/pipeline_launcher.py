"""Starts the pipeline as its own process, from a process without Spark.

The child has no terminal: its input is its order, its output a log file. It is nice, and leads its own session, so
Ctrl-C does not reach it. It ends with its input or its parent, and Spark's JVM ends with it. `Pipeline.trouble` returns
the reason for a failure, from the log's last line.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.foreign_json import read_json
from paired_servicebus.interpreter import python_command, python_environment
from paired_servicebus.ownership import foreign_access

TRIGGER: Final = 5.0
"""Seconds between two looks for new journal files."""
TROUBLE: Final = "paired: "
"""The beginning of the log line with the reason for a pipeline's end."""
NOTE: Final = "note: "
"""The beginning of a log line for the operator while the pipeline goes on."""
TOOK: Final = "took: "
STOP: Final = 20.0
_TAIL: Final = 16 * 1024


class PipelineOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The order of a pipeline: all of its input."""

    journal: str
    """The journal's folder, or a folder with whole journal files."""
    tables: str
    once: bool = False
    """Make the tables of the present files, and end."""
    master: str | None = None
    """A Spark master URL; None: this machine, two tasks at a time."""
    trigger: float = TRIGGER
    java_home: str | None = None
    settings: dict[str, str] = {}
    """Spark's own, on top of ours."""


class PipelineTimes(msgspec.Struct, frozen=True):
    """The duration of `--once` in seconds: Spark's start, then the tables."""

    start: float
    tables: float


_TOOK: Final = msgspec.json.Decoder(PipelineTimes)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline's process."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.poll() is None

    def wait(self, timeout: float | None = None) -> int | None:
        """Its exit status: 0 done, 2 failed with a sentence, negative: killed. None: it runs on after `timeout` s."""
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        self._let_go()
        return status

    def stop(self, within: float = STOP) -> int:
        """End it cleanly, or kill it after `within` seconds; return its exit status.

        The next start repeats unfinished work.
        """
        if self.running:
            self.process.send_signal(signal.SIGTERM)
            if self.wait(within) is None:
                os.killpg(self.process.pid, signal.SIGKILL)  # its JVM would go on for a second or two
        status = self.process.wait()
        self._let_go()
        return status

    def _let_go(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()

    def trouble(self) -> str:
        """Return the reason for its failure as one sentence; empty without one."""
        return said(self.log, TROUBLE)

    def note(self) -> str:
        """Return its note for the operator as one sentence; empty without one."""
        return said(self.log, NOTE)

    def took(self) -> PipelineTimes | None:
        """How long `--once` took; None before it is done."""
        took = said(self.log, TOOK)
        return read_json(_TOOK, took) if took else None


def write_line(line: str) -> None:
    """Write a separate line to the log on standard output, after any unfinished line of Spark."""
    sys.stdout.write(f"\n{line}\n")
    sys.stdout.flush()


def said(log: Path, beginning: str) -> str:
    """Return the last line near a log's end that begins so, without the beginning; empty: there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.removeprefix(beginning) for line in reversed(lines) if line.startswith(beginning)), "")


def start_pipeline(
    *,
    journal: Path,
    tables: Path,
    once: bool = False,
    master: str | None = None,
    trigger: float = TRIGGER,
    java_home: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> Pipeline:
    """Start the pipeline without waiting for it.

    Args:
        once: make the tables of the present files and end; otherwise follow the journal until stopped.
        master: a Spark master URL; None: this machine.
        trigger: seconds between two polls for new files.
        java_home: the Java to use; None: find one.
        settings: Spark settings on top of ours.

    Raises:
        PipelineError: another user can change the folder, or the log or the process cannot be created.
    """
    order = PipelineOrder(
        journal=str(journal),
        tables=str(tables),
        once=once,
        master=master,
        trigger=trigger,
        java_home=None if java_home is None else str(java_home),
        settings=dict(settings or {}),
    )
    log = tables / "logs" / "pipeline.log"
    try:
        _refuse_foreign(tables)
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with log.open("wb") as file:
            process = subprocess.Popen(
                python_command("paired_servicebus.pipeline.pipeline_main"),
                stdin=subprocess.PIPE,  # what Spark is told may be secret, and arguments are for all to see
                stdout=file,
                stderr=file,
                start_new_session=True,
                env=python_environment(),
            )
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        process.stdin.flush()
    except OSError as error:
        raise PipelineError(f"the pipeline cannot be started in {tables}: {error.strerror or error}") from error
    return Pipeline(process, log)


def _refuse_foreign(tables: Path) -> None:
    """Spark's configuration, which may be a script, and a `java` of ours stand below the tables."""
    work = tables / "work"
    for place in (tables, tables / "logs", work, work / "conf", work / "java-home"):
        how = foreign_access(place) if place.exists() else ""
        if how:
            raise PipelineError(
                f"the pipeline does not run in {place}, since it {how} and Spark runs files in it: "
                "chmod go-w it, or name another folder with --tables"
            )
