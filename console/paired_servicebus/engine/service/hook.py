"""The operator's `on_change` command, run for events that need attention.

The engine runs it even if no console is attached. It receives the event's journal line on standard input and a few
variables. It gets nothing else of the engine's environment, which may contain secrets. No shell is involved unless the
command is one.

It cannot block the engine. One call runs at a time, changes wait in a bounded queue, and the oldest are dropped and
counted. After CALL_TIMEOUT a call is killed with its process group; a process in its own session escapes that. A failed
call is an event, but causes no further call.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from paired_servicebus.core.model.pairing_events import Record, StateChanged, Warned
from paired_servicebus.core.operator.alarms import calls
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import escape_json, one_line
from paired_servicebus.engine.instance.identity import EngineIdentity

CALL_TIMEOUT: Final = 30.0
"""Seconds that one call may take."""
MAX_WAITING_CALLS: Final = 32
"""Changes that wait for their turn."""
MAX_OUTPUT_BYTES: Final = 300
"""The last bytes of its standard error to keep."""
MAX_VARIABLE_CHARS: Final = 2000
"""Maximum characters of a variable: the kernel starts no program with too long ones."""
KILL_TIMEOUT: Final = 1.0
"""Seconds that a killed process may take to go."""
INHERITED_ENVIRONMENT: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""Of the engine's environment."""

Say = Callable[[str], object]
Started = tuple[asyncio.SubprocessTransport, "_Call"]

log = logging.getLogger(__name__)


class Hook:
    """Calls the command for each noted change while `run` runs.

    Args:
        command: the program and its arguments.
        folder: its working folder, and the base of a relative path to it.
        identity: the engine, for the variables.
        environ: the engine's environment.
        timeout: seconds for one call.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        *,
        folder: Path,
        identity: EngineIdentity,
        environ: Mapping[str, str] = os.environ,
        timeout: float = CALL_TIMEOUT,
    ) -> None:
        self._command = command
        self._folder = folder
        self._identity = identity
        self._environ = {name: environ[name] for name in INHERITED_ENVIRONMENT if name in environ}
        self._timeout = timeout
        self._waiting: deque[tuple[bytes, dict[str, str]]] = deque()
        self._noted = asyncio.Event()
        self._dropped = 0

    def note(self, record: Record, line: bytes) -> None:
        """Queue a call if the change needs attention. Never waits."""
        if not calls(record.event):
            return
        if len(self._waiting) == MAX_WAITING_CALLS:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append((line, self._variables(record)))
        self._noted.set()

    async def run(self, say: Say) -> None:
        """Make calls until cancelled; `say` receives a sentence about each failure."""
        if self._missing():
            say(f"on_change names {self._command[0]}, which is no program here: it will not be run")
        while True:
            await self._noted.wait()
            self._noted.clear()
            while self._waiting:
                wrong = await self._call(*self._waiting.popleft())
                if wrong:
                    say(f"on_change ({self._command[0]}) {wrong}")
                dropped, self._dropped = self._dropped, 0
                if dropped:
                    say(f"on_change is too slow: {dropped} waiting changes were dropped, the oldest first")

    def _missing(self) -> bool:
        program = self._command[0]
        where = str(self._folder / program) if os.sep in program else program
        return shutil.which(where, path=self._environ.get("PATH")) is None

    def _variables(self, record: Record) -> dict[str, str]:
        match record.event:
            case StateChanged() as event:
                subject, state, text = event.entity, event.now, f"{event.entity} {event.now}: {event.why}"
            case Warned() as event:
                subject, state, text = event.about, "", event.text
            case event:
                subject, state, text = "", "", event.kind
        told = {
            "PAIRED_PAIRING": self._identity.pairing,
            "PAIRED_ENVIRONMENT": self._identity.environment,
            "PAIRED_ENGINE": self._identity.engine,
            "PAIRED_SUBJECT": subject,
            "PAIRED_STATE": state,
            "PAIRED_TEXT": masked(text),
        }
        return {name: one_line(value, most=MAX_VARIABLE_CHARS) for name, value in told.items()}

    async def _started(self, variables: dict[str, str]) -> Started:
        starting = asyncio.get_running_loop().subprocess_exec(
            _Call,
            *self._command,
            stdout=asyncio.subprocess.DEVNULL,
            cwd=self._folder,
            env=self._environ | variables,
            start_new_session=True,
        )
        return await _await_start(asyncio.ensure_future(starting))

    async def _call(self, line: bytes, variables: dict[str, str]) -> str:
        """Call the command once; return the failure as the end of a sentence, or ""."""
        try:
            transport, call = await self._started(variables)
        except (OSError, ValueError) as error:
            return f"could not be run: {error}"
        try:
            told = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
            told.write(escape_json(masked(line.decode())).encode() + b"\n")
            told.close()
            async with asyncio.timeout(self._timeout):
                await call.ended.wait()
        except TimeoutError:
            return f"was killed: it had not ended after {self._timeout:g} s"
        finally:
            await _sweep(transport, call)
        status = transport.get_returncode()
        return f"ended with exit status {status}: {call.said}" if status else ""


async def _await_start(starting: asyncio.Task[Started]) -> Started:
    """Wait for the started process even if cancelled; otherwise the loop would wait for every holder of its pipes."""
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError, ValueError):  # it could not be run, and the hook has ended
            await _sweep(*await starting)
        raise


class _Call(asyncio.SubprocessProtocol):
    """One call, as far as it is listened to."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.silent = asyncio.Event()
        self._tail = b""

    @property
    def said(self) -> str:
        """The end of its standard error, as one line."""
        return masked(one_line(self._tail.decode(errors="replace"))) or "it said nothing"

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep the end of the data."""
        self._tail = (self._tail + data)[-MAX_OUTPUT_BYTES:]

    def process_exited(self) -> None:
        """Handle the program's exit; its children may still run."""
        self.ended.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the program and of all its pipes."""
        self.silent.set()


async def _sweep(transport: asyncio.SubprocessTransport, call: _Call) -> None:
    """Kill its process group and close its pipes."""
    with suppress(ProcessLookupError, PermissionError):  # all have ended; macOS raises the second
        os.killpg(transport.get_pid(), signal.SIGKILL)
    try:
        async with asyncio.timeout(KILL_TIMEOUT):
            await call.silent.wait()
    except TimeoutError:
        log.warning("on_change left something running in a session of its own")
    finally:
        transport.close()
