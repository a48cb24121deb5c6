"""A drain started by this engine: `paired drain` as a separate process.

Neither this module nor the engine imports Spark. Sends and syphon continue whatever happens to that process. SIGTERM
makes it settle its messages in flight and end. Every drain reports its progress in a file.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import msgspec

from paired_servicebus.core.errors import DrainError, UnreadableError
from paired_servicebus.core.model.snapshot import DrainView, SyphonView
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.foreign_json import read_json
from paired_servicebus.interpreter import python_command, python_environment

# Progress of a drain beside its engine: one file in the journal's folder, written once a second.
#
# `paired drain` writes it; the engine reads it for its snapshot. An old file belongs to a killed drain and is ignored.

MAX_AGE_SECONDS: Final = 10.0
"""Seconds for which a report is valid."""
_NAME: Final = "drain.json"


class DrainProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress as a sentence, at seconds since 1970, with the reporting process and its host.

    Signals go to the process: a number that none can have would reach others, and one that is missing is not our own.
    """

    at: float
    text: str
    pid: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    host: str

    @classmethod
    def now(cls, text: str) -> DrainProgress:
        """Return the progress of this process."""
        return cls(at=time.time(), text=text, pid=os.getpid(), host=socket.gethostname())


_PROGRESS_DECODER: Final = msgspec.json.Decoder(DrainProgress)


def write_progress(spool: Path, news: DrainProgress) -> None:
    """Replace the last report. Raises OSError."""
    new = spool / f".{_NAME}.new"
    new.write_bytes(msgspec.json.encode(news))
    new.replace(spool / _NAME)


def clear_progress(spool: Path) -> None:
    """Remove the report. Raises OSError."""
    (spool / _NAME).unlink(missing_ok=True)


def latest(spool: Path, *, now: float) -> DrainProgress | None:
    """Return the report of a running drain; None: no drain runs."""
    try:
        found = read_json(_PROGRESS_DECODER, (spool / _NAME).read_bytes())
    except (OSError, UnreadableError):
        return None
    if abs(now - found.at) > MAX_AGE_SECONDS:
        return None
    return msgspec.structs.replace(found, text=repeated(found.text))


def add_to(syphon: SyphonView, spool: Path, *, now: float) -> SyphonView:
    """Return the syphon's view, including a drain that moves the same messages."""
    said = latest(spool, now=now)
    return replace(syphon, text=f"{syphon.text}; {said.text}") if said is not None else syphon


PROGRESS_TIMEOUT: Final = 120.0
"""Seconds until the process reports progress or an error; Spark starts slowly."""
POLL_SECONDS: Final = 0.2
STOP_TIMEOUT: Final = 10.0
"""Seconds that the engine waits for it at its own end; it then ends by itself."""
COMMAND: Final = python_command("paired_servicebus", "drain")
NO_SPARK: Final = "Spark is not installed here: the extra `spark` brings it"

Say = Callable[[str], object]


class _Outcome(msgspec.Struct, frozen=True):
    """The relevant part of the command's final report."""

    complete: bool
    moved: int
    text: str = ""


_OUTCOME: Final = msgspec.json.Decoder(_Outcome)


class DrainProcess:
    """The drains of one engine; at most one at a time.

    Args:
        config: the pairing.toml.
        pairing: its name, which confirms the drain.
        spool: the journal's folder, where drains report progress.
        say: receives a sentence when a drain has ended.
        command: starts a drain.
    """

    def __init__(self, config: Path, *, pairing: str, spool: Path, say: Say, command: Sequence[str] = COMMAND) -> None:
        self._config = config
        self._pairing = pairing
        self._spool = spool
        self._say = say
        self._command = tuple(command)
        self._trouble = "" if find_spec("pyspark") is not None else NO_SPARK
        self._process: Process | None = None
        self._watching: asyncio.Task[None] | None = None

    def view(self, now: float) -> DrainView:
        """Return the progress of the drain, if any."""
        said = latest(self._spool, now=now)
        text = said.text if said is not None else ""
        if not text and self._process is not None:
            text = f"process {self._process.pid} begins to drain"
        return DrainView(text=text, trouble=self._trouble, place=f"local[*], {os.cpu_count() or 1} processors")

    async def start(self, *, why: str) -> str:
        """Start a drain, wait until it runs, and return a sentence. Raises DrainError: it does not run."""
        if self._process is not None:
            raise DrainError(f"process {self._process.pid} drains already")
        words = ("--config", str(self._config), "--yes", self._pairing, "--why", why, "--json")
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, *words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True, env=python_environment(),
            )  # fmt: skip
        except OSError as error:
            raise DrainError(f"the drain's process cannot be started: {error}") from error
        self._process = process
        self._watching = asyncio.create_task(self._watch(process), name="the end of the drain")
        await self._under_way(process, self._watching)
        return f"process {process.pid} drains; the syphon's line shows its progress"

    def end(self) -> str:
        """End the running drain; return a sentence. Raises DrainError: there is none, or it runs elsewhere."""
        said = latest(self._spool, now=time.time())
        if self._process is not None:
            pid = self._process.pid
        elif said is None or not said.pid:
            raise DrainError("no drain of this pairing runs")
        elif said.host != socket.gethostname():
            raise DrainError(f"the drain runs on {said.host}: end it there")
        else:
            pid = said.pid
        try:
            os.kill(pid, signal.SIGTERM)
        except (ProcessLookupError, PermissionError) as error:
            raise DrainError(f"process {pid}, which drains, cannot be signalled to end: {error}") from error
        return f"process {pid} is ending: it settles its messages in flight"

    async def close(self) -> None:
        """End our drain with the engine, and wait for it briefly."""
        if self._process is None or self._watching is None:
            return
        with suppress(ProcessLookupError):
            self._process.terminate()
        await asyncio.wait((self._watching,), timeout=STOP_TIMEOUT)
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)

    async def _under_way(self, process: Process, watching: asyncio.Task[None]) -> None:
        began = time.monotonic()
        while time.monotonic() - began < PROGRESS_TIMEOUT:
            await asyncio.wait((watching,), timeout=POLL_SECONDS)
            said = latest(self._spool, now=time.time())
            if said is not None and said.pid == process.pid:
                return
            if watching.done():
                await watching
                return

    async def _watch(self, process: Process) -> None:
        """Wait until it has ended. Raises DrainError: it did not start or failed."""
        try:
            out, err = await process.communicate()
        finally:
            self._process = None
        outcome = _outcome(out)
        text = _summarize(outcome) if outcome is not None else _failed(err, process.returncode)
        self._say(text)
        if outcome is None:
            raise DrainError(text)


def _outcome(out: bytes) -> _Outcome | None:
    try:
        return read_json(_OUTCOME, out)
    except UnreadableError:
        return None


def _summarize(outcome: _Outcome) -> str:
    if outcome.complete:
        return f"the drain is done: {outcome.moved:,} messages moved"
    return f"the drain ended, and not all is drained ({outcome.text}): {outcome.moved:,} messages moved"


def _failed(err: bytes, status: int | None) -> str:
    reason = " ".join(err.decode(errors="replace").split()).removeprefix("paired: ")
    return masked(f"the drain ended with exit status {status}: {reason or 'no reason given'}")
