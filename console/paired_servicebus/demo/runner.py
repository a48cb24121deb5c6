"""`paired demo`: starts the worker, shows the dashboard on it (or nothing but lines), and ends with the result."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import ConfigurationError, PairedError
from paired_servicebus.demo.result import DemoResult, as_lines
from paired_servicebus.demo.scenarios import ANY_LANGUAGE, LEAST_DURATION, scenario_named
from paired_servicebus.demo.worker_protocol import END, PlayDone, PlayFailed, PlayRequest, WorkerLine
from paired_servicebus.interpreter import python_command, python_environment
from paired_servicebus.pipeline.spark_processes import exit_on_signal

STOP_TIMEOUT: Final = 15.0
ENDED_BY_SIGNAL: Final = 128
"""The dashboard's exit status, above which a signal or the loss of the terminal ended it."""
CLONE: Final = Path(__file__).parents[3]
"""The folder of the project, unless this is an installation."""


def run_demo(
    *,
    scenario: str,
    duration: float,
    seed: int,
    headless: bool,
    json_line: bool,
    spark: bool = True,
    keep: Path | None = None,
) -> int:
    """Play a scenario; the exit status: 0 balanced, 1 unbalanced or cut short.

    Args:
        duration: seconds of sending; draining comes on top.
        json_line: the last line of standard output is the result as one JSON object, and the only one.
        spark: have the journal audited and an incident report written; by Spark, where it is installed.
        keep: a folder for journal, tables and report, which is new or empty; None: they go with the demo.

    Raises:
        PairedError: it could not be played; one sentence.
    """
    if scenario_named(scenario) is ANY_LANGUAGE:
        examples_clone()
    if keep is not None:
        if not spark:
            raise ConfigurationError("--keep keeps the tables of the journal, and --no-spark makes none: leave one out")
        _refuse_full(keep)
    if not duration >= LEAST_DURATION:
        raise ConfigurationError(f"--duration is {duration:g}; it must be at least {LEAST_DURATION:g} seconds")
    # A screen that is ended by a signal is none of ours: the worker clears away.
    with (
        exit_on_signal() if headless else nullcontext(),
        tempfile.TemporaryDirectory(prefix="paired-demo-", ignore_cleanup_errors=True) as name,
    ):
        folder = Path(name)
        socket = folder / "engine.sock"
        order = PlayRequest(
            scenario=scenario,
            duration=duration,
            seed=seed,
            folder=str(folder),
            socket=str(socket),
            with_tables=spark and not headless,
        )
        say = print_nothing if json_line else print
        with worker_process(order, folder) as worker:
            result = relay_lines(worker, say) if headless else _watch(worker, order)
        if result is not None and spark:
            result = _judged(result, order, say, keep)
    if result is None:
        print("the demo was left before its end: nothing to compare", file=sys.stderr)
        return 1
    print(msgspec.json.encode(result).decode() if json_line else as_lines(result))
    return 0 if result.holds else 1


def examples_clone(clone: Path = CLONE) -> Path:
    """Return the clone, which has the senders of the scenario any-language. Raises ConfigurationError: it is none."""
    if not (clone / "tests" / "examples" / "any_language.py").is_file():
        raise ConfigurationError(
            "the scenario any-language needs the senders in tests/examples, which an installation does not have; "
            "clone the project, install the clone with pip install -e, and run the scenario there"
        )
    return clone


def _refuse_full(keep: Path) -> None:
    """Raise ConfigurationError: the folder has something in it, or is none."""
    try:
        if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise ConfigurationError(f"--keep is {keep}, which is not an empty folder: name a new one")
    except OSError as error:
        raise ConfigurationError(f"--keep is {keep}, which cannot be read: {error.strerror or error}") from error


def _judged(result: DemoResult, order: PlayRequest, say: Callable[[str], object], keep: Path | None) -> DemoResult:
    """Return the result with the pipeline's audit and report."""
    from paired_servicebus.demo import pipeline_audit  # with duckdb behind it

    by = "Spark audits the journal" if pipeline_audit.is_installed() else "the journal is audited without Spark"
    say(f"{by}, and the incident report is written; Ctrl-C leaves that out")
    with exit_on_signal():
        return pipeline_audit.judged(result, order, keep)


@contextmanager
def worker_process(order: PlayRequest, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the worker's process; closing its standard input ends it and everything it started."""
    module, environment = "paired_servicebus.demo.worker", python_environment()
    if order.scenario == ANY_LANGUAGE.name:
        paths = os.pathsep.join((str(examples_clone()), os.environ.get("PYTHONPATH", "")))
        module, environment = "tests.examples.any_language", python_environment({**os.environ, "PYTHONPATH": paths})
    with (folder / "engine.log").open("ab") as log:
        process = subprocess.Popen(
            python_command(module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C is ours; the worker ends when its input does
            env=environment,
        )
    assert process.stdin is not None
    try:
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        process.stdin.flush()
        yield process
    finally:
        _order_end(process)
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _order_end(worker: subprocess.Popen[bytes]) -> None:
    """Order the worker to end, and close its input. Without the order it takes this process for killed."""
    if worker.stdin is not None and not worker.stdin.closed:
        with suppress(BrokenPipeError):  # it has ended already
            worker.stdin.write(END)
            worker.stdin.close()


def relay_lines(worker: subprocess.Popen[bytes], say: Callable[[str], object]) -> DemoResult | None:
    """Pass on the worker's lines until its result; return None if it ended earlier.

    Raises PairedError: the worker could not play.
    """
    assert worker.stdout is not None
    for raw in worker.stdout:
        line = msgspec.json.decode(raw, type=WorkerLine)
        if isinstance(line, PlayDone):
            return line.result
        if isinstance(line, PlayFailed):
            raise PairedError(line.text)
        say(line.text)
    return None


def _watch(worker: subprocess.Popen[bytes], order: PlayRequest) -> DemoResult | None:
    """Show the dashboard on the worker's engine until the operator leaves it."""
    from paired_servicebus.ui import run_dashboard

    heard: list[DemoResult | PairedError | None] = []
    said = ["the demo's own process"]
    assert worker.stdin is not None

    def listen() -> None:
        try:
            heard.append(relay_lines(worker, said.append))
        except PairedError as error:
            heard.append(error)

    listener = threading.Thread(target=listen, name="the worker's lines", daemon=True)
    listener.start()
    status = run_dashboard(
        Path(order.socket),
        config_name="demo",
        engine_stays=False,
        tables=order.tables,
        journal=order.journal,
        start_steps=lambda: tuple(said),
    )
    if status > ENDED_BY_SIGNAL:  # without the order to end, the worker clears away by itself
        worker.stdin.close()
        raise SystemExit(status)
    _order_end(worker)
    listener.join(STOP_TIMEOUT)
    outcome = heard[0] if heard else None
    if isinstance(outcome, PairedError):
        raise outcome
    return outcome


def print_nothing(text: str) -> None:
    """Discard a line."""
