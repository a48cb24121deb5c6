"""The source of the screen's news: an engine's control socket, or a test.

`EngineFeed` reconnects with growing pauses and continues the events where it left off. It reports every loss
immediately.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from paired_servicebus.core.errors import ControlError, EngineNotRunningError
from paired_servicebus.core.fleet.fleet_documents import Order
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.message_view import MessageContent, MessageKind, MessagePage
from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.series.graphs import Graphs
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.protocol import Armed, Goodbye, Position, Skipped
from paired_servicebus.ui.render.sentences import ROUTINE
from paired_servicebus.ui.state.view import Missed, News, Reached, Records, Unreachable

RETRY_DELAYS_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Between attempts to connect; the last one repeats."""

Emit = Callable[[News], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FireRequest:
    """The operator's answer to the question before a dangerous command."""

    token: str = ""
    typed: str = ""
    why: str = ""


NOT_ARMED: Final = FireRequest()


class MessageSource(Protocol):
    """Messages of the engine's backlog queues, by peek."""

    async def look_at_messages(
        self, queue: str, kind: MessageKind, *, from_number: int = 1, wanted: str = "", by: str
    ) -> MessagePage:
        """Return a page of messages from a sequence number on. Raises ControlError: the text is a sentence."""

    async def look_at_message(
        self, queue: str, kind: MessageKind, number: int, *, from_byte: int = 0, by: str
    ) -> MessageContent:
        """Return one message, its body from a byte on. Raises ControlError: as `look_at_messages`."""


class Feed(MessageSource, Protocol):
    """One engine's news, and the way to its guard."""

    async def run(self, emit: Emit) -> None:
        """Send news to `emit` until cancelled. Called once."""

    async def arm(self, command: Command) -> Armed:
        """Arm a dangerous command; return the text to type, and the deadline. Raises ControlError: as `execute`."""

    async def execute(self, command: Command, fired: FireRequest = NOT_ARMED) -> str:
        """Send a command and return the outcome as a sentence.

        Raises ControlError: the guard refused, or the engine is unreachable; the text is a sentence.
        """

    async def post_order(self, order: Order, *, by: str) -> str:
        """Have the engine post a signed order over the fleet; return its answer. Raises ControlError: as `execute`."""


class EngineFeed:
    """The news of the engine behind a control socket. `read_only`: the engine then refuses commands, too."""

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

    async def run(self, emit: Emit) -> None:
        while True:
            reason = await self._until_lost(emit)
            if self._lost_at is None:
                self._lost_at = self._now()
            emit(Unreachable(self._lost_at, reason))
            pause = RETRY_DELAYS_SECONDS[min(self._failures, len(RETRY_DELAYS_SECONDS) - 1)]
            self._failures += 1
            await self._sleep(pause)

    async def arm(self, command: Command) -> Armed:
        return await self._reached(command.action_id).arm(command)

    async def execute(self, command: Command, fired: FireRequest = NOT_ARMED) -> str:
        client = self._reached(command.action_id)
        return (await client.execute(command, token=fired.token, typed=fired.typed)).text

    async def post_order(self, order: Order, *, by: str) -> str:
        client = self._reached(order.text.verb)
        return (await client.post_order(signed=order.signed, signature=order.signature, by=by)).text

    async def look_at_messages(
        self, queue: str, kind: MessageKind, *, from_number: int = 1, wanted: str = "", by: str
    ) -> MessagePage:
        client = self._looked_at()
        return await client.look_at_messages(queue, kind, from_number=from_number, wanted=wanted, by=by)

    async def look_at_message(
        self, queue: str, kind: MessageKind, number: int, *, from_byte: int = 0, by: str
    ) -> MessageContent:
        return await self._looked_at().look_at_message(queue, kind, number, from_byte=from_byte, by=by)

    def _looked_at(self) -> ControlClient:
        if self._client is None:
            raise EngineNotRunningError("unknown: the engine is unreachable")
        return self._client

    def _reached(self, action_id: str) -> ControlClient:
        if self._client is None:
            raise EngineNotRunningError(f"{action_id} was not sent: the engine is unreachable")
        return self._client

    async def _until_lost(self, emit: Emit) -> str:
        """Follow the engine; return why it is unreachable now. While nothing answers, that is its farewell."""
        try:
            self._farewell = await self._follow(emit)
        except EngineNotRunningError as error:
            return self._farewell or str(error)
        except ControlError as error:
            return str(error)
        return self._farewell

    async def _follow(self, emit: Emit) -> str:
        """Follow one connection; return why it ended."""
        client = await ControlClient.connect(
            self._socket, after=self._position, read_only=self._read_only, fleet=True, graphs=True
        )
        self._client = client
        try:
            emit(Reached())
            return await self._listen(client, emit)
        finally:
            self._client = None
            self._position = client.position or self._position
            await client.close()

    async def _listen(self, client: ControlClient, emit: Emit) -> str:
        reason = "the connection ended"
        async for update in client.updates():
            match update:
                case Snapshot():
                    self._failures, self._lost_at = 0, None
                    emit(update)
                case Graphs():
                    emit(update)
                case Record():
                    if type(update.event) not in ROUTINE:
                        emit(Records((update,)))
                case Skipped(count):
                    emit(Missed(count))
                case Goodbye(farewell):
                    reason = farewell
        return reason


def join_records(news: Sequence[News]) -> list[News]:
    """Join consecutive records: a history of thousands is folded in once."""
    joined: list[News] = []
    for item in news:
        before = joined[-1] if joined else None
        if isinstance(item, Records) and isinstance(before, Records):
            joined[-1] = Records((*before.records, *item.records))
        else:
            joined.append(item)
    return joined
