"""Signals that end a command after its entities are deleted."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def until_signalled(work: Coroutine[Any, Any, T], signals: Sequence[signal.Signals]) -> T:
    """Await the work; each of the signals cancels it, so that its entities are deleted."""
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, task.cancel)
    try:
        return await work
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
