"""The other engines on this machine: their state, and commands for them.

They are polled slowly. A command for several engines goes to the guard of each, which arms and fires it; each
answer is reported separately, and an unreachable engine delays no other.
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
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.discovery import EngineStatus, find_socket, local_engines, query_engines
from paired_servicebus.engine.control.protocol import Armed
from paired_servicebus.ui.engines.feed import NOT_ARMED, Emit, EngineFeed, FireRequest
from paired_servicebus.ui.engines.health import Health, health_of
from paired_servicebus.ui.state.view import Neighbour, Neighbours

POLL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReply:
    """The answer of one other engine to a command or its arming. `armed`: how to fire it there."""

    name: str
    ok: bool
    text: str
    armed: Armed | None = None


class OtherEngines(Protocol):
    """The engines beside the one on screen."""

    async def attend(self, name: str) -> None:
        """Let the feed follow that engine, and the present one become a neighbour.

        Raises EngineNotRunningError: no engine of that name runs here.
        """

    async def arm_at(self, names: Sequence[str], command: Command) -> tuple[EngineReply, ...]:
        """Arm a dangerous command at each concurrently; return each answer. Never raises for one engine."""

    async def execute_at(self, ready: Sequence[EngineReply], command: Command) -> tuple[EngineReply, ...]:
        """Send a command to each, fired with its own text; one that is not armed is skipped."""


class MultiEngineFeed:
    """A feed that also reports the other engines, and can follow another one. `socket`: of the engine on screen."""

    def __init__(
        self, feed: EngineFeed, socket: Path, *, read_only: bool = False, now: Callable[[], float] = time.time
    ) -> None:
        self._feed = feed
        self._socket = socket
        self._read_only = read_only
        self._now = now
        self._turning: asyncio.Future[None] | None = None
        """Set while it changes the engine; done after the last news of the one before."""
        self._wake = asyncio.Event()
        self._soon = asyncio.Event()
        """Set after a command at a neighbour, to poll its new state."""

    async def run(self, emit: Emit) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(emit))
            tasks.create_task(self._poll_neighbours(emit))

    async def arm(self, command: Command) -> Armed:
        return await self._feed.arm(command)

    async def execute(self, command: Command, fired: FireRequest = NOT_ARMED) -> str:
        return await self._feed.execute(command, fired)

    async def post_order(self, order: Order, *, by: str) -> str:
        return await self._feed.post_order(order, by=by)

    async def look_at_messages(
        self, queue: str, kind: MessageKind, *, from_number: int = 1, wanted: str = "", by: str
    ) -> MessagePage:
        return await self._feed.look_at_messages(queue, kind, from_number=from_number, wanted=wanted, by=by)

    async def look_at_message(
        self, queue: str, kind: MessageKind, number: int, *, from_byte: int = 0, by: str
    ) -> MessageContent:
        return await self._feed.look_at_message(queue, kind, number, from_byte=from_byte, by=by)

    async def attend(self, name: str) -> None:
        self._socket = _socket_of(name)
        self._feed = EngineFeed(self._socket, read_only=self._read_only, now=self._now)
        self._turning = asyncio.get_running_loop().create_future()
        self._wake.set()
        await self._turning

    async def arm_at(self, names: Sequence[str], command: Command) -> tuple[EngineReply, ...]:
        async def arm(client: ControlClient, name: str) -> EngineReply:
            armed = await client.arm(command)
            return EngineReply(name=name, ok=True, text="armed", armed=armed)

        return tuple(await asyncio.gather(*(self._at(name, arm) for name in names)))

    async def execute_at(self, ready: Sequence[EngineReply], command: Command) -> tuple[EngineReply, ...]:
        async def execute(one: EngineReply, client: ControlClient) -> EngineReply:
            token, typed = (one.armed.token, one.armed.to_type) if one.armed is not None else ("", "")
            return replace(one, text=(await client.execute(command, token=token, typed=typed)).text)

        async def ordered(one: EngineReply) -> EngineReply:
            return await self._at(one.name, lambda client, _: execute(one, client)) if one.ok else one

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

    async def _follow(self, emit: Emit) -> None:
        while True:
            self._wake.clear()
            following = asyncio.create_task(self._feed.run(emit), name="news of the engine on screen")
            turned = asyncio.create_task(self._wake.wait(), name="change of engine")
            try:
                await asyncio.wait((following, turned), return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    following.result()
            finally:
                following.cancel()
                turned.cancel()
                await asyncio.gather(following, turned, return_exceptions=True)
            if self._turning is not None and not self._turning.done():
                self._turning.set_result(None)
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
        health = health_of(engine, self._now())
        trouble = "" if health is Health.HEALTHY else str(health)
        return Neighbour(engine.pairing, trouble, engine.snapshot, engine.trouble)


def _socket_of(name: str) -> Path:
    for places in local_engines():
        socket = find_socket(places)
        if places.name == name and socket is not None:
            return socket
    raise EngineNotRunningError(f"no engine called {name} runs here now")
