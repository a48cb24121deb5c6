"""Signals that end a command after its entities are deleted."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class EndedBySignalError(Exception):
    """A signal has ended the work. status: the exit status that a shell expects."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"ended by {number.name}")
        self.status = 128 + number


async def until_signalled(work: Coroutine[Any, Any, T], signals: Sequence[signal.Signals]) -> T:
    """Await the work; each of the signals cancels it, so that its entities are deleted. Raises EndedBySignalError."""
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    received: list[signal.Signals] = []

    def end(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, partial(end, number))
    try:
        return await work
    except asyncio.CancelledError:
        if not received:
            raise
        raise EndedBySignalError(received[0]) from None
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


async def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Await the work to its end, whatever is cancelled meanwhile; the work has deadlines of its own.

    A cancellation is raised after its end.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result
