"""The other engines of this machine, beside the news of the one that is shown: how they stand, and orders for them.

Looked at slowly. An order for several engines goes to each one's own guard, which arms and fires it by itself; what
came of it is said engine by engine, and one that cannot be reached holds no other up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from paired_servicebus.core.errors import ControlError, EngineNotRunningError
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.discovery import EngineStatus, find_socket, local_engines, query_engines
from paired_servicebus.engine.control.protocol import Armed
from paired_servicebus.ui.engines.feed import NOT_ARMED, EngineFeed, FireRequest, Tell
from paired_servicebus.ui.engines.health import Health, health_of
from paired_servicebus.ui.state.view import Neighbour, Neighbours

EVERY: Final = 10.0
"""Seconds between two looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReply:
    """What one other engine said to an order, or to its arming. `armed`: how it can be fired there."""

    name: str
    ok: bool
    text: str
    armed: Armed | None = None


class OtherEngines(Protocol):
    """The engines beside the one that is shown."""

    async def attend(self, name: str) -> None:
        """Has the feed tell of that engine from now on, and of the one before as a neighbour.

        Raises:
            EngineNotRunningError: none of that name runs here.
        """

    async def arm_at(
        self, names: Sequence[str], verb: str, *, targets: tuple[str, ...], scope: str, by: str
    ) -> tuple[EngineReply, ...]:
        """Arms the dangerous `verb` at each of them, at the same time; what each said. Never raises for one's sake."""

    async def command_at(
        self, ready: Sequence[EngineReply], verb: str, *, targets: tuple[str, ...], scope: str, by: str, why: str = ""
    ) -> tuple[EngineReply, ...]:
        """Orders `verb` from each of them, fired with what it wants typed; one that was not armed stays as it is."""


class MultiEngineFeed:
    """A feed that tells of the engines beside its own, too, and can take another for its own.

    Args:
        feed: the news of the engine that is shown.
        socket: that engine's.
        read_only: look, don't touch.
        now: seconds since the epoch.
    """

    def __init__(
        self, feed: EngineFeed, socket: Path, *, read_only: bool = False, now: Callable[[], float] = time.time
    ) -> None:
        self._feed = feed
        self._socket = socket
        self._read_only = read_only
        self._now = now
        self._turning: asyncio.Future[None] | None = None
        """Set while another engine is taken; done when nothing more comes from the one before."""
        self._wake = asyncio.Event()
        self._soon = asyncio.Event()
        """Set when something was done at a neighbour, which shows how it stands then."""

    async def run(self, tell: Tell) -> None:
        """Tells both until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(tell))
            tasks.create_task(self._look_around(tell))

    async def arm(self, verb: str, *, targets: tuple[str, ...], scope: str = "", by: str) -> Armed:
        """Arms `verb`; see Feed."""
        return await self._feed.arm(verb, targets=targets, scope=scope, by=by)

    async def command(
        self, verb: str, *, targets: tuple[str, ...], scope: str = "", by: str, fired: FireRequest = NOT_ARMED
    ) -> str:
        """Orders `verb`; see Feed."""
        return await self._feed.command(verb, targets=targets, scope=scope, by=by, fired=fired)

    async def attend(self, name: str) -> None:
        """Takes that engine for its own; see OtherEngines."""
        self._socket = _socket_of(name)
        self._feed = EngineFeed(self._socket, read_only=self._read_only, now=self._now)
        self._turning = asyncio.get_running_loop().create_future()
        self._wake.set()
        await self._turning

    async def arm_at(
        self, names: Sequence[str], verb: str, *, targets: tuple[str, ...], scope: str, by: str
    ) -> tuple[EngineReply, ...]:
        """Arms at the others; see OtherEngines."""

        async def arm(client: ControlClient, name: str) -> EngineReply:
            armed = await client.arm(verb, targets=targets, scope=scope, by=by)
            return EngineReply(name=name, ok=True, text="armed", armed=armed)

        return tuple(await asyncio.gather(*(self._at(name, arm) for name in names)))

    async def command_at(
        self, ready: Sequence[EngineReply], verb: str, *, targets: tuple[str, ...], scope: str, by: str, why: str = ""
    ) -> tuple[EngineReply, ...]:
        """Orders from the others; see OtherEngines."""

        async def command(one: EngineReply, client: ControlClient) -> EngineReply:
            token, typed = (one.armed.token, one.armed.to_type) if one.armed is not None else ("", "")
            done = await client.command(verb, targets=targets, scope=scope, by=by, why=why, token=token, typed=typed)
            return replace(one, text=done.text)

        async def ordered(one: EngineReply) -> EngineReply:
            return await self._at(one.name, lambda client, _: command(one, client)) if one.ok else one

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

    async def _follow(self, tell: Tell) -> None:
        while True:
            self._wake.clear()
            following = asyncio.create_task(self._feed.run(tell), name="the news of the engine that is shown")
            turned = asyncio.create_task(self._wake.wait(), name="whether another engine is wanted")
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

    async def _look_around(self, tell: Tell) -> None:
        told = Neighbours(())
        while True:
            self._soon.clear()
            others = [places for places in local_engines() if find_socket(places) not in (self._socket, None)]
            found = Neighbours(tuple(self._neighbour(standing) for standing in await query_engines(others)))
            if found != told:
                told = found
                tell(found)
            try:
                async with asyncio.timeout(EVERY):
                    await self._soon.wait()
            except TimeoutError:
                continue

    def _neighbour(self, standing: EngineStatus) -> Neighbour:
        health = health_of(standing, self._now())
        trouble = "" if health is Health.HEALTHY else str(health)
        return Neighbour(standing.pairing, trouble, standing.snapshot, standing.trouble)


def _socket_of(name: str) -> Path:
    for places in local_engines():
        socket = find_socket(places)
        if places.name == name and socket is not None:
            return socket
    raise EngineNotRunningError(f"no engine called {name} runs here now")
