"""A link that stays: attached again whenever it is lost, with growing pauses that no two engines share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from console.core.errors import WireError
from console.pairing.wire.failures import is_idle_detach
from console.pairing.wire.links import WireReceiver, WireSender

FIRST: Final = 1.0
MOST: Final = 30.0
HEALTHY: Final = 30.0
"""Seconds after which a link or a connection that lived so long counts as a success."""


class Backoff:
    """Pauses in seconds that double from `first` to `most`, each of them shortened by up to a half by chance.

    draw: a number from 0 up to, not including, 1.
    """

    def __init__(self, draw: Callable[[], float], *, first: float = FIRST, most: float = MOST) -> None:
        self._draw = draw
        self._first = first
        self._most = most
        self._next = first

    def next(self) -> float:
        pause = self._next * (1.0 - self._draw() / 2)
        self._next = min(self._most, 2 * self._next)
        return pause

    def reset(self) -> None:
        """The next pause is the first one again."""
        self._next = self._first


async def keep(
    attach: Callable[[], Awaitable[WireReceiver | WireSender]],
    *,
    backoff: Backoff,
    on_failure: Callable[[WireError, float], None],
) -> None:
    """Keep a link attached until cancelled; it is detached in order then.

    on_failure: told each failure and in how many seconds the next try comes. A link that was cut because it was idle is
    not told of, and attached again at once.
    """
    loop = asyncio.get_running_loop()
    while True:
        lived = 0.0
        try:
            link = await attach()
        except WireError as error:
            failure = error
        else:
            began = loop.time()
            try:
                failure = await asyncio.shield(link.lost)
            except asyncio.CancelledError:
                await link.detach()
                raise
            lived = loop.time() - began
        if lived >= HEALTHY:
            backoff.reset()
        is_expected = is_idle_detach(failure)
        pause = 0.0 if is_expected and lived >= HEALTHY else backoff.next()
        if not is_expected:
            on_failure(failure, pause)
        await asyncio.sleep(pause)
