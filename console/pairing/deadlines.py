"""Our own end to every wait on the SDK, whatever the SDK does, and a clock that never jumps.

`timeout=` of the SDK does not cover all of its waits, so each is also cut off from outside, `GRACE` seconds later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Final, TypeVar

GRACE: Final = 1.0
"""Seconds the SDK has to keep its own time before we end the wait (SPEC.md section 3, send_timeout)."""
CLOSING: Final = 3.0
"""Seconds an SDK object has to close."""

T = TypeVar("T")


async def bounded(wait: Awaitable[T], seconds: float, what: str) -> T:
    """`wait`, ended after `seconds`.

    Raises:
        TimeoutError: naming what did not end.
    """
    try:
        async with asyncio.timeout(seconds):
            return await wait
    except TimeoutError as error:
        raise TimeoutError(f"{what} did not end within {seconds:g} s") from error


class Clock:
    """Seconds since the epoch that never go back or jump: the wall clock at the start, and what has passed since."""

    def __init__(self) -> None:
        self._base = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._base + time.monotonic()
