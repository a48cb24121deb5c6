"""The source of the screen's news: an engine's control socket, or a test; and the other engines on this machine.

`EngineFeed` reconnects with growing pauses and continues the events where it left off. It reports every loss
immediately. The other engines are polled slowly. A command for several engines goes to the guard of each, which arms
and fires it; each answer is reported separately, and an unreachable engine delays no other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from paired_servicebus.core.errors import ControlError, EngineNotRunningError
from paired_servicebus.core.fleet.fleet_documents import Order
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.message_view import MessageContent, MessageKind, MessagePage
from paired_servicebus.core.model.pairing_condition import condition_of
from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.operator.alarms import alarms, degrading
from paired_servicebus.core.series.graphs import Graphs
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.discovery import EngineStatus, find_socket, local_engines, query_engines
from paired_servicebus.engine.control.protocol import Armed, Goodbye, Position, Skipped
from paired_servicebus.ui.state.log_entries import has_sentence
from paired_servicebus.ui.state.view import Neighbour, Neighbours, News, Reached, Records, Unreachable

RETRY_DELAYS_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Between attempts to connect; the last one repeats."""
POLL_SECONDS: Final = 10.0
"""Between two polls of the other engines."""

Emit = Callable[[News], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSigner:
    """The operator's key, which signs orders over the fleet.

    key: its name for the screen; sign: raises PairedError with what to do.
    """

    key: str
    sign: Callable[[bytes], Awaitable[str]]


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

    async def execute(self, command: Command, armed: Armed | None = None) -> str:
        """Send a command, fired as it was armed, and return the outcome as a sentence.

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
        self._read_only = read_only
        self._now = now
        self._sleep = sleep
        self._turn_to(socket)

    def _turn_to(self, socket: Path) -> None:
        self._socket = socket
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
        return await self._reached(f"{command.action_id} was not sent").arm(command)

    async def execute(self, command: Command, armed: Armed | None = None) -> str:
        return await _execute(self._reached(f"{command.action_id} was not sent"), command, armed)

    async def post_order(self, order: Order, *, by: str) -> str:
        client = self._reached(f"{order.text.verb} was not sent")
        return (await client.post_order(order, by=by)).text

    async def look_at_messages(
        self, queue: str, kind: MessageKind, *, from_number: int = 1, wanted: str = "", by: str
    ) -> MessagePage:
        client = self._reached("unknown")
        return await client.look_at_messages(queue, kind, from_number=from_number, wanted=wanted, by=by)

    async def look_at_message(
        self, queue: str, kind: MessageKind, number: int, *, from_byte: int = 0, by: str
    ) -> MessageContent:
        return await self._reached("unknown").look_at_message(queue, kind, number, from_byte=from_byte, by=by)

    def _reached(self, without: str) -> ControlClient:
        if self._client is None:
            raise EngineNotRunningError(f"{without}: the engine is unreachable")
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
                case Graphs() | Skipped():
                    emit(update)
                case Record():
                    if has_sentence(update.event):
                        emit(Records((update,)))
                case Goodbye(farewell):
                    reason = farewell
        return reason


async def _execute(client: ControlClient, command: Command, armed: Armed | None) -> str:
    token, typed = (armed.token, armed.to_type) if armed is not None else ("", "")
    return (await client.execute(command, token=token, typed=typed)).text


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


# The other engines on this machine: their state, and commands for them.


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReply:
    """The answer of one other engine to a command or its arming. `armed`: how to fire it there."""

    name: str
    ok: bool
    text: str
    armed: Armed | None = None


class MultiEngineFeed(EngineFeed):
    """A feed that also reports the other engines, and can follow another one."""

    def __init__(self, socket: Path, *, read_only: bool = False, now: Callable[[], float] = time.time) -> None:
        super().__init__(socket, read_only=read_only, now=now)
        self._next: Path | None = None
        """The engine to follow instead."""
        self._turned: asyncio.Future[None] | None = None
        """Set while it changes the engine; done after the last news of the one before."""
        self._wake = asyncio.Event()
        self._soon = asyncio.Event()
        """Set after a command at a neighbour, to poll its new state."""

    async def run(self, emit: Emit) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_chosen(emit))
            tasks.create_task(self._poll_neighbours(emit))

    async def attend(self, name: str) -> None:
        """Follow that engine; the present one becomes a neighbour.

        Raises EngineNotRunningError: no engine of that name runs here.
        """
        self._next = _socket_of(name)
        self._turned = asyncio.get_running_loop().create_future()
        self._wake.set()
        await self._turned

    async def arm_at(self, names: Sequence[str], command: Command) -> tuple[EngineReply, ...]:
        """Arm a dangerous command at each concurrently; return each answer. Never raises for one engine."""

        async def arm(client: ControlClient, name: str) -> EngineReply:
            armed = await client.arm(command)
            return EngineReply(name=name, ok=True, text="armed", armed=armed)

        return tuple(await asyncio.gather(*(self._at(name, arm) for name in names)))

    async def execute_at(self, ready: Sequence[EngineReply], command: Command) -> tuple[EngineReply, ...]:
        """Send a command to each, fired with its own text; one that is not armed is skipped."""

        async def ordered(one: EngineReply) -> EngineReply:
            async def execute(client: ControlClient, _name: str) -> EngineReply:
                return replace(one, text=await _execute(client, command, one.armed))

            return await self._at(one.name, execute) if one.ok else one

        return tuple(await asyncio.gather(*(ordered(one) for one in ready)))

    async def _at(self, name: str, ask: Callable[[ControlClient, str], Awaitable[EngineReply]]) -> EngineReply:
        try:
            client = await ControlClient.connect(_socket_of(name), read_only=self._read_only, watches=False)
            try:
                return await ask(client, name)
            finally:
                await client.close()
                self._soon.set()
        except ControlError as error:
            return EngineReply(name=name, ok=False, text=str(error))

    async def _follow_chosen(self, emit: Emit) -> None:
        while True:
            self._wake.clear()
            following = asyncio.create_task(super().run(emit), name="news of the engine on screen")
            turned = asyncio.create_task(self._wake.wait(), name="change of engine")
            try:
                await asyncio.wait((following, turned), return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    following.result()
            finally:
                following.cancel()
                turned.cancel()
                await asyncio.gather(following, turned, return_exceptions=True)
            if self._next is not None and self._turned is not None:
                self._turn_to(self._next)
                self._next = None
                self._turned.set_result(None)
            self._soon.set()

    async def _poll_neighbours(self, emit: Emit) -> None:
        reported = Neighbours(())
        while True:
            self._soon.clear()
            others = [places for places in local_engines() if find_socket(places) not in (self._socket, None)]
            found = Neighbours(tuple(self._neighbour(engine) for engine in await query_engines(others)))
            if found != reported:
                reported = found
                emit(found)
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._soon.wait()
            except TimeoutError:
                continue

    def _neighbour(self, engine: EngineStatus) -> Neighbour:
        found = engine.snapshot
        is_unwell = found is None or bool(degrading(alarms(condition_of(found, self._now()))))
        trouble = ("unreachable" if found is None else "degraded") if is_unwell else ""
        return Neighbour(engine.pairing, trouble, found, engine.trouble)


def _socket_of(name: str) -> Path:
    for places in local_engines():
        socket = find_socket(places)
        if places.name == name and socket is not None:
            return socket
    raise EngineNotRunningError(f"no engine called {name} runs here now")
