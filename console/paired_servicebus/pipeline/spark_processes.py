"""The processes that run Spark: their start, log and end, seen from processes without it.

A child has no terminal: its input is its order, its output a log file. It leads its own session, so Ctrl-C does not
reach it. It ends with its input or its parent, and Spark's JVM ends with it. The log's last line that begins with
TROUBLE has the reason for a failure.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, Literal

import msgspec
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from paired_servicebus.core.errors import PipelineError, UnreadableError
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.foreign_json import read_json
from paired_servicebus.interpreter import python_command, python_environment
from paired_servicebus.ownership import foreign_access
from paired_servicebus.pipeline.table_store.manifest import commit_paths, newest, whose
from paired_servicebus.pipeline.table_store.store_path import own_folder, place_of

TRIGGER: Final = 5.0
"""Seconds between two looks for new journal files."""
TROUBLE: Final = "paired: "
"""The beginning of the log line with the reason for a process's end."""
NOTE: Final = "note: "
"""The beginning of a log line for the operator while the process goes on."""
TOOK: Final = "took: "
"""The beginning of the log line with the outcome of a process as JSON."""
PROGRESS: Final = "progress: "
"""The beginning of a log line with a Progress as JSON."""
PROGRESS_EVERY: Final = 0.5
"""Seconds between two such lines."""
STOP: Final = 20.0
ORPHANED: Final = 3
"""Exit status of a process that did not end in order in time."""
SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
_TAIL: Final = 16 * 1024


# -- any of them -----------------------------------------------------------------------------------------------------


def start_process(module: str, *arguments: str, log: Path, order: bytes = b"") -> subprocess.Popen[bytes]:
    """Start a process with `order` as the first line of its input: arguments are for all to see. Raises OSError."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            python_command(module, *arguments),
            stdin=subprocess.PIPE,  # its end ends the process
            stdout=file,
            stderr=file,
            start_new_session=True,
            env=python_environment(),
        )
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has ended already, and its log says why
        process.stdin.write(order + b"\n")
        process.stdin.flush()
    return process


def wait_for(process: subprocess.Popen[bytes], timeout: float | None = None) -> int | None:
    """Return a process's exit status, its JVM ended too; None: it runs on after `timeout` seconds."""
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    return end_process(process)


def end_process(process: subprocess.Popen[bytes]) -> int:
    """Kill a process that has not ended, with its JVM; return its exit status."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)  # the JVM alone would go on for a second or two
    status = process.wait()
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()
    return status


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


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a process is; without a total, how much it has done."""

    what: str
    done: int = 0
    total: int | None = None


class ProgressLines:
    """Writes the progress of a process to its log, for the terminal of its parent."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._what = ""
        self._written_at = 0.0

    def show(self, what: str, done: int = 0, total: int | None = None) -> None:
        """Write how far `what` is: at its begin and its end, and every half second between."""
        now = self._clock()
        if what == self._what and done != total and now - self._written_at < PROGRESS_EVERY:
            return
        self._what, self._written_at = what, now
        write_line(PROGRESS + msgspec.json.encode(Progress(what=what, done=done, total=total)).decode())


def watch_parent(end: Callable[[], object], *, within: float) -> None:
    """Call `end` on a thread once standard input has ended: the parent holds its other end.

    After `within` more seconds the process is killed, and Spark's JVM with it.
    """

    def watch() -> None:
        while os.read(0, 4096):
            pass
        end()
        time.sleep(within)
        os._exit(ORPHANED)

    threading.Thread(target=watch, name="the end of standard input", daemon=True).start()


@contextmanager
def exit_on_signal() -> Iterator[None]:
    """Raise SystemExit in the block on SIGTERM or SIGHUP, so that files are cleared away. Main thread only.

    An ignored signal (nohup) or an existing handler is kept.
    """
    usual = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, _: FrameType | None) -> None:
        for one in usual:
            signal.signal(one, signal.SIG_IGN)  # clearing away takes seconds, and is done once
        raise SystemExit(128 + number)

    for number in usual:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in usual:
            signal.signal(number, signal.SIG_DFL)


# -- the pipeline ----------------------------------------------------------------------------------------------------


class PipelineOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The order of a pipeline: all of its input."""

    journals: tuple[Path, ...]
    """Each a journal, a folder of whole files, or a tree of either: see ingest.journal_files; or a URL (place_of)."""
    tables: Path
    """A folder, or a URL."""
    once: bool = False
    """Make the tables of the present files, and end; otherwise follow the journal until stopped."""
    master: str | None = None
    """A Spark master URL; None: this machine, two tasks at a time."""
    trigger: float = TRIGGER
    """Seconds between two polls for new files."""
    java_home: Path | None = None
    """The Java to use; None: find one."""
    settings: dict[str, str] = {}
    """Spark's own, on top of ours."""
    format: Literal["parquet", "delta"] = "parquet"
    """delta: Delta tables too, by the Delta of the Spark session."""

    @classmethod
    def read(cls, line: bytes) -> PipelineOrder:
        """Return the order in a line of input."""
        return msgspec.json.decode(line, type=cls, dec_hook=lambda kind, value: kind(value))


class PipelineTimes(msgspec.Struct, frozen=True):
    """The duration of `--once` in seconds: Spark's start, then the tables."""

    start: float
    tables: float


_TOOK: Final = msgspec.json.Decoder(PipelineTimes)


@dataclass(frozen=True, slots=True)
class PipelineProcess:
    """A pipeline's process."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.poll() is None

    def wait(self, timeout: float | None = None) -> int | None:
        """Its exit status: 0 done, 2 failed with a sentence, negative: killed. None: it runs on after `timeout` s."""
        return wait_for(self.process, timeout)

    def stop(self, within: float = STOP) -> int:
        """End it cleanly, or kill it after `within` seconds; return its exit status.

        The next start repeats unfinished work.
        """
        if self.running:
            self.process.send_signal(signal.SIGTERM)
            self.wait(within)
        return end_process(self.process)

    def trouble(self) -> str:
        """Return the reason for its failure as one sentence; empty without one."""
        return said(self.log, TROUBLE)

    def took(self) -> PipelineTimes | None:
        """How long `--once` took; None before it is done."""
        took = said(self.log, TOOK)
        return read_json(_TOOK, took) if took else None


def start_pipeline(order: PipelineOrder) -> PipelineProcess:
    """Start the pipeline without waiting for it.

    Raises PipelineError: the folder has other things in it, another user can change it, or the log or the process
    cannot be created; NoTablesError: its tables are of a later program, or none of them is whole.
    """
    tables = place_of(order.tables)
    own = own_folder(tables)
    log = own / "logs" / "pipeline.log"
    try:
        if why := whose(tables):
            raise PipelineError(why)
        if commit_paths(tables):
            newest(tables)
        _refuse_foreign(own)
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        text = msgspec.json.encode(order, enc_hook=str)
        return PipelineProcess(start_process("paired_servicebus.pipeline.pipeline_main", log=log, order=text), log)
    except OSError as error:
        raise PipelineError(f"the pipeline cannot be started in {tables}: {error.strerror or error}") from error


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


# How far a process with Spark is, on standard error: a bar, or a line from time to time where that is no terminal.

POLL_SECONDS: Final = 0.25
"""Seconds between two looks into a log."""
RATE_SECONDS: Final = 10.0
"""Seconds over which a rate is taken."""
FIRST_LINE: Final = 3.0
"""Seconds until the first line without a terminal: shorter work needs none."""
LINE_EVERY: Final = 10.0
"""Seconds between two lines without a terminal."""
MAX_READ_BYTES: Final = 1024 * 1024
"""Bytes of a log that are looked into at a time."""
_PROGRESS: Final = msgspec.json.Decoder(Progress)


class Bar:
    """quiet: show nothing."""

    def __init__(self, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = Console(stderr=True, quiet=quiet, highlight=False)
        self._progress = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[count]}"),
            TimeRemainingColumn(compact=True),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
            speed_estimate_period=RATE_SECONDS,
            get_time=clock,
        )
        self._clock = clock
        self._task: TaskID | None = None
        self._what = ""
        self._next_line = 0.0

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(harmless(text), markup=False, soft_wrap=True)

    @contextmanager
    def shown(self, what: str, total: int | None = None) -> Iterator[None]:
        """Show the bar until the block ends."""
        self._next_line = self._clock() + FIRST_LINE
        with self._progress:
            self._task = self._progress.add_task(harmless(what), total=total, count="")
            yield
        self._task = None

    def show(self, what: str, done: int, total: int | None = None) -> None:
        """How far it is now."""
        if self._task is None:
            return
        if what != self._what:
            self._what = what
            self._progress.reset(self._task, total=total)
        rate = self._progress.tasks[0].speed or 0.0
        counted = f"{done:,}{'' if total is None else f' of {total:,}'} · {rate:,.0f}/s" if done or total else ""
        self._progress.update(self._task, completed=done, total=total, description=harmless(what), count=counted)
        if not self._console.is_terminal and self._clock() >= self._next_line:
            self._next_line = self._clock() + LINE_EVERY
            self.say(f"{what}: {counted}" if counted else what)


class LogReader:
    """Shows the notes and the progress of a process by its log, each line once."""

    def __init__(self, log: Path, bar: Bar) -> None:
        self._log = log
        self._bar = bar
        self._place = 0
        self._shown: set[str] = set()
        self._latest = Progress(what="starting Spark")

    def look(self) -> None:
        """Show the lines that are new, and the latest progress."""
        latest = self.read()
        self._bar.show(latest.what, latest.done, latest.total)

    def read(self) -> Progress:
        """Show the notes that are new; return the latest progress."""
        for line in self._new():
            if line.startswith(NOTE) and line not in self._shown:
                self._shown.add(line)
                self._bar.say(masked(line.removeprefix(NOTE)))
            elif line.startswith(PROGRESS):
                with suppress(UnreadableError):  # two processes wrote at once: the next line follows
                    self._latest = read_json(_PROGRESS, line.removeprefix(PROGRESS))
        return self._latest

    def _new(self) -> list[str]:
        try:
            with self._log.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self._place, end - MAX_READ_BYTES))
                data = file.read()
        except OSError:  # it is the process's business to complain
            return []
        whole, line_end, _ = data.rpartition(b"\n")
        self._place = max(self._place, end - MAX_READ_BYTES) + len(whole) + len(line_end)
        return whole.decode(errors="replace").splitlines() if line_end else []


def wait_shown(wait: Callable[[float], int | None], log: Path, bar: Bar) -> int:
    """Wait for a process with Spark and show how far it is; return its exit status.

    Args:
        wait: waits for some seconds; None: the process runs on.
        log: the process's.
        bar: where to show it.
    """
    reader = LogReader(log, bar)
    with bar.shown("starting Spark"):
        while (status := wait(POLL_SECONDS)) is None:
            reader.look()
        reader.look()
    return status
