"""The other engines of this machine, beside the news of the one that is shown: how many there are, and who is not well.

`paired status` tells the rest of them. Looked at slowly, and told only when something changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from console.engine.here import Standing, engines_here, look_at, socket_of
from console.engine.protocol import Armed
from console.ui.feed import NOT_ARMED, EngineFeed, Fired, Tell
from console.ui.status import Health, health_of
from console.ui.view import Neighbour, Neighbours

EVERY: Final = 10.0
"""Seconds between two looks."""


class FeedWithNeighbours:
    """A feed that tells of the engines beside its own, too.

    Args:
        feed: the news of the engine that is shown.
        socket: that engine's.
        now: seconds since the epoch.
    """

    def __init__(self, feed: EngineFeed, socket: Path, *, now: Callable[[], float] = time.time) -> None:
        self._feed = feed
        self._socket = socket
        self._now = now

    async def run(self, tell: Tell) -> None:
        """Tells both until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._feed.run(tell))
            tasks.create_task(self._look_around(tell))

    async def arm(self, verb: str, *, targets: tuple[str, ...], scope: str = "", by: str) -> Armed:
        """Arms `verb`; see Feed."""
        return await self._feed.arm(verb, targets=targets, scope=scope, by=by)

    async def command(
        self, verb: str, *, targets: tuple[str, ...], scope: str = "", by: str, fired: Fired = NOT_ARMED
    ) -> str:
        """Orders `verb`; see Feed."""
        return await self._feed.command(verb, targets=targets, scope=scope, by=by, fired=fired)

    async def _look_around(self, tell: Tell) -> None:
        told = Neighbours(())
        while True:
            others = [places for places in engines_here() if socket_of(places) not in (self._socket, None)]
            found = Neighbours(tuple(self._neighbour(standing) for standing in await look_at(others)))
            if found != told:
                told = found
                tell(found)
            await asyncio.sleep(EVERY)

    def _neighbour(self, standing: Standing) -> Neighbour:
        health = health_of(standing, self._now())
        return Neighbour(standing.pairing, "" if health is Health.HEALTHY else str(health))
