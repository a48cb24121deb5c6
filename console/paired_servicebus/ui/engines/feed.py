"""Where the screen's news come from: an engine's control socket, or whatever a test makes up.

`EngineFeed` reaches its engine by itself, again and again, with growing pauses, and takes up the events where it left
off. It tells of every loss at once; it never shows anything of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from paired_servicebus.core.errors import ControlError, EngineNotRunningError
from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.protocol import Armed, Goodbye, Position, Skipped
from paired_servicebus.ui.render.sentences import ROUTINE
from paired_servicebus.ui.state.view import Missed, News, Reached, Records, Unreachable

PAUSES: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts to reach an engine; the last one repeats."""

Tell = Callable[[News], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FireRequest:
    """How a person answered the question before a dangerous act."""

    token: str = ""
    typed: str = ""
    why: str = ""


NOT_ARMED: Final = FireRequest()


class Feed(Protocol):
    """One engine's news, and the way to its guard."""

    async def run(self, tell: Tell) -> None:
        """Tells news until cancelled. Called once."""

    async def arm(self, verb: str, *, targets: tuple[str, ...], scope: str = "", by: str) -> Armed:
        """Says that the dangerous `verb` is meant; what is to be typed to fire it, and until when.

        Raises:
            ControlError: as `command`.
        """

    async def command(
        self, verb: str, *, targets: tuple[str, ...], scope: str = "", by: str, fired: FireRequest = NOT_ARMED
    ) -> str:
        """Orders `verb` and returns the engine's sentence about what came of it.

        Raises:
            ControlError: the guard refused, or the engine cannot be reached; the text is a sentence.
        """


class EngineFeed:
    """The news of the engine behind a control socket.

    Args:
        socket: the engine's control socket.
        read_only: look, don't touch; the engine is told so too, and refuses.
        now: seconds since the epoch, for "unreachable since".
        sleep: waits between two attempts.
    """

    def __init__(
        self,
        socket: Path,
        *,
        read_only: bool = False,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._socket = socket
        self._read_only = read_only
        self._now = now
        self._sleep = sleep
        self._client: ControlClient | None = None
        self._position: Position | None = None
        self._lost_at: float | None = None
        self._failures = 0
        self._farewell = ""

    async def run(self, tell: Tell) -> None:
        """Follows the engine until cancelled."""
        while True:
            reason = await self._until_lost(tell)
            if self._lost_at is None:
                self._lost_at = self._now()
            tell(Unreachable(self._lost_at, reason))
            pause = PAUSES[min(self._failures, len(PAUSES) - 1)]
            self._failures += 1
            await self._sleep(pause)

    async def arm(self, verb: str, *, targets: tuple[str, ...], scope: str = "", by: str) -> Armed:
        """Arms `verb`; see Feed."""
        return await self._reached(verb).arm(verb, scope=scope, targets=targets, by=by)

    async def command(
        self, verb: str, *, targets: tuple[str, ...], scope: str = "", by: str, fired: FireRequest = NOT_ARMED
    ) -> str:
        """Orders `verb`; see Feed."""
        done = await self._reached(verb).command(
            verb, scope=scope, targets=targets, by=by, why=fired.why, token=fired.token, typed=fired.typed
        )
        return done.text

    def _reached(self, verb: str) -> ControlClient:
        if self._client is None:
            raise EngineNotRunningError(f"{verb} was not sent: the engine is unreachable")
        return self._client

    async def _until_lost(self, tell: Tell) -> str:
        """Why the engine cannot be reached now; while nothing answers, what it said when it left."""
        try:
            self._farewell = await self._follow(tell)
        except EngineNotRunningError as error:
            return self._farewell or str(error)
        except ControlError as error:
            return str(error)
        return self._farewell

    async def _follow(self, tell: Tell) -> str:
        """One conversation, until it ends; returns why it did."""
        client = await ControlClient.connect(self._socket, after=self._position, read_only=self._read_only)
        self._client = client
        try:
            tell(Reached())
            return await self._listen(client, tell)
        finally:
            self._client = None
            self._position = client.position or self._position
            await client.close()

    async def _listen(self, client: ControlClient, tell: Tell) -> str:
        reason = "the connection ended"
        async for update in client.updates():
            match update:
                case Snapshot():
                    self._failures, self._lost_at = 0, None
                    tell(update)
                case Record():
                    if type(update.event) not in ROUTINE:
                        tell(Records((update,)))
                case Skipped(count):
                    tell(Missed(count))
                case Goodbye(said):
                    reason = said
        return reason
