"""One sender as a process: started with a connection string, ended by its input, and its own list of its sends."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Final

from paired_servicebus.core.accounting.ledger import SendOutcome
from paired_servicebus.demo.languages.sender_programs import SenderProgram

VARIABLE: Final = "SENDER_CONNECTION_STRING"
"""Not an argument: everybody on a machine can read those."""
END_SECONDS: Final = 5.0
LINE_BYTES: Final = 1 << 16


class SenderProcess:
    """A running sender. Its list is what it wrote, and nothing that we know better.

    Args:
        name: the prefix of its message ids.
        log: gets its standard error.
    """

    def __init__(self, program: SenderProgram, name: str, log: Path) -> None:
        self.program = program
        self.name = name
        self.answers: dict[str, SendOutcome] = {}
        """Every id it attempted; IN_DOUBT until its SDK answered, and where that raised."""
        self.errors: dict[str, str] = {}
        self.calls: dict[str, tuple[float, float]] = {}
        """When each call began and when its answer came, by this process's loop; infinite while there is none."""
        self.slowest_ms = 0.0
        self.has_ended = False
        """Whether it wrote that every call has its answer."""
        self._log = log
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def accepted(self) -> int:
        return sum(told is SendOutcome.ACCEPTED for told in self.answers.values())

    @property
    def under_way(self) -> int:
        """Messages whose call has not returned."""
        return len(self.answers) - self.accepted - len(self.errors)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self, connection_string: str, entity: str, *, lanes: int, pause: float) -> None:
        """Start it. lanes: calls at the same time; pause: seconds between two calls of a lane. Raises OSError."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.program.command,
                *(entity, self.name, str(lanes), str(round(pause * 1000))),
                env={**os.environ, **self.program.environment, VARIABLE: connection_string},
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                limit=LINE_BYTES,
                start_new_session=True,  # Ctrl-C is for whoever started us
            )
        self._reading = asyncio.create_task(self._read(self._process), name=f"the lines of {self.name}")

    async def stop(self, seconds: float) -> None:
        """Have it end its calls and itself; end it after `seconds`."""
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(seconds):
                await process.wait()
        except TimeoutError:
            await self.kill()
        if self._reading is not None:
            await self._reading

    async def kill(self) -> None:
        """End it at once."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await self._process.wait()

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.take(line.decode("utf-8", "replace").rstrip("\n"), asyncio.get_running_loop().time())

    def take(self, line: str, now: float) -> None:
        """Take one of its lines into the list."""
        word, _, rest = line.partition("\t")
        name, _, said = rest.partition("\t")
        if word == "begun":
            self.answers[name] = SendOutcome.IN_DOUBT
            self.calls[name] = now, inf
        elif word in ("accepted", "failed"):
            self.calls[name] = self.calls[name][0], now
        if word == "accepted":
            self.answers[name] = SendOutcome.ACCEPTED
            self.slowest_ms = max(self.slowest_ms, float(said))
        elif word == "failed":
            self.errors[name] = said
        elif word == "ended":
            self.has_ended = True
