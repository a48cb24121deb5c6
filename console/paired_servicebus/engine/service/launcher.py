"""Starts and ends an engine's process from a command, with a time limit and one sentence on failure.

The engine gets its own session, so that no terminal ends it, and its own log file. It reports readiness or failure
through a pipe. Until then the starter owns the process and kills it if the wait ends otherwise.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn, Self

import msgspec

from paired_servicebus.config import PairingConfig
from paired_servicebus.core.errors import EngineRunningError, EngineStartError, UnreadableError
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.instance.lock import held, running
from paired_servicebus.engine.instance.logs import new_log_file
from paired_servicebus.foreign_json import read_json
from paired_servicebus.interpreter import python_command, python_environment

START_TIMEOUT: Final = 180.0
"""Seconds; listing the backlog queues may take two minutes (SPEC.md section 4.4)."""
STOP_TIMEOUT: Final = 10.0
MODULE: Final = "paired_servicebus.engine.service.main"
READ_ONLY: Final = "read-only"
"""The argument that has an engine start so."""
FOREGROUND: Final = "foreground"
"""The argument in place of log and report, for an engine under a process manager."""
_MOST_REPORT: Final = 64 * 1024

log = logging.getLogger(__name__)


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The engine serves: its process, its control socket, its log, the backlog queues found or created, its alarms."""

    pid: int
    socket: str
    log: str
    backlog_queues: int
    alarms: tuple[str, ...] = ()


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The engine ends before it was ready; `text` is a sentence for a person."""

    text: str
    running: bool = False
    """Because another one runs."""


class Step(msgspec.Struct, frozen=True, kw_only=True, tag="step"):
    """One step of a start, for the person who waits: reported when it begins, and again when it ends.

    text: what came of it; while it is not over, what it waits for.
    """

    name: str
    text: str
    is_over: bool = False
    is_good: bool = True


Outcome = Ready | Failed | Step
Told = Callable[[Step | None], None]
"""Called with each step, and with None about once a second while none is reported."""
TICK_SECONDS: Final = 1.0
_REPORT: Final[msgspec.json.Decoder[Outcome]] = msgspec.json.Decoder(Outcome)


class Launch:
    """An engine on its way. Made by `begin`; `wait` must follow, or leaving the context ends it."""

    def __init__(self, process: subprocess.Popen[bytes], report: int, log: Path) -> None:
        self._process = process
        self._report = report
        self._log = log
        self._handed_over = False

    @classmethod
    def begin(cls, config: PairingConfig, places: EnginePaths, *, read_only: bool = False) -> Self:
        """Start the process and return immediately. `read_only` overrides the file.

        Raises:
            EngineRunningError: an engine for this pairing runs already.
            EngineStartError: no process can be started.
        """
        other = running(places.lock)
        if other is not None:
            raise EngineRunningError(
                f"an engine for the pairing {config.name} runs already (pid {other.pid}, socket {other.socket}): "
                "attach to it with paired attach, or end it with paired down"
            )
        log = _make_log_file(places)
        reading, writing = os.pipe()
        try:
            process = _spawn(
                [str(config.path), str(log), str(writing), *([READ_ONLY] if read_only else [])], log, writing
            )
        except OSError as error:
            os.close(reading)
            raise EngineStartError(f"the engine's process cannot be started: {error}") from error
        finally:
            os.close(writing)
        return cls(process, reading, log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._report)
        if self._handed_over:  # reaped when it ends, should this process still be there
            threading.Thread(target=self._process.wait, name="reaper", daemon=True).start()
        else:
            self._end()

    def wait(self, timeout: float = START_TIMEOUT, *, told: Told = lambda _: None) -> Ready:
        """Wait until the engine serves.

        Raises:
            EngineRunningError, EngineStartError: it ended instead; the text is its own sentence.
        """
        report = self._read(timeout, told)
        if isinstance(report, Ready):
            self._handed_over = True
            return report
        raise EngineRunningError(report.text) if report.running else EngineStartError(report.text)

    def _read(self, timeout: float, told: Told) -> Ready | Failed:
        data = b""
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self._report], [], [], min(left, TICK_SECONDS))[0]:
                told(None)
                continue
            chunk = os.read(self._report, 4096)
            data += chunk
            *lines, data = data.split(b"\n") if chunk else (data, b"")
            for line in lines:
                try:
                    outcome = read_json(_REPORT, line)
                except UnreadableError:
                    return Failed(text=f"the engine ended before it was ready; its log {self._log} says why")
                if not isinstance(outcome, Step):
                    return outcome
                told(outcome)
            if not chunk or len(data) > _MOST_REPORT:
                return Failed(text=f"the engine ended before it was ready; its log {self._log} says why")
        return Failed(text=f"the engine was not ready within {timeout:g} s; its log is {self._log}")

    def _end(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.terminate()
            self._process.wait(STOP_TIMEOUT)
            return
        self._process.kill()
        self._process.wait()


def become_engine(config_path: Path, *, read_only: bool = False) -> NoReturn:
    """Replace this process by an engine in the foreground, which has no modules of the command line: 3 MB less.

    Raises:
        EngineStartError: the interpreter cannot be run.
    """
    command = python_command(MODULE, str(config_path), FOREGROUND, *([READ_ONLY] if read_only else []))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    try:
        os.execve(command[0], command, python_environment())
    except OSError as error:
        raise EngineStartError(f"the engine cannot be started: {command[0]}: {error.strerror or error}") from error


def report(fd: int, outcome: Outcome) -> None:
    """Write a step, or the engine's report, which closes the pipe. Raises BrokenPipeError: the starter has gone."""
    try:
        os.write(fd, msgspec.json.encode(outcome) + b"\n")
    finally:
        if not isinstance(outcome, Step):
            os.close(fd)


def notify_systemd(state: str) -> None:
    """Report a service's state to the systemd that started it, if any (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # a name without a file
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as telling:
            telling.connect(address)
            telling.send(state.encode())
    except OSError as error:  # systemd reports its own timeout; the engine serves anyway
        log.warning("systemd was not notified of %s: %s", state, error)


def wait_until_gone(places: EnginePaths, timeout: float) -> bool:
    """Wait for the end of the engine's process, which releases its lock; return whether it ended."""
    deadline = time.monotonic() + timeout
    while held(places.lock):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _make_log_file(places: EnginePaths) -> Path:
    """Make the engine's log; /dev/null where no file can be made, of which the engine's own alarm gives the reason."""
    try:
        places.prepare_state()
        path = new_log_file(places.logs)
        path.touch(mode=0o600, exist_ok=False)
    except OSError:
        return Path(os.devnull)
    return path


def _spawn(arguments: list[str], log: Path, report: int) -> subprocess.Popen[bytes]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND  # the engine's own log is appended
    with open(os.open(log, flags, 0o600), "wb") as output:  # noqa: PTH123  a descriptor, not a path
        return subprocess.Popen(
            python_command(MODULE, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(report,),
            start_new_session=True,
            env=python_environment(),
        )
