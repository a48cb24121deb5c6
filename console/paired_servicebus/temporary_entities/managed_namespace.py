"""A namespace in which a command makes entities: each request within a deadline, each refusal once."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeVar

from azure.core.exceptions import AzureError, ResourceNotFoundError

from paired_servicebus.core.model.namespace_info import ServiceTier
from paired_servicebus.pairing.management.management_port import TopicManagement, is_refusal, is_transient
from paired_servicebus.pairing.runtime.deadlines import bounded

# Signals that end a command after its entities are deleted.

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


MANAGING: Final = 20.0
"""Seconds for one management request."""
DELETE_TRIES: Final = 3
RETRY_PAUSE: Final = 1.0

log = logging.getLogger(__name__)


class Side(StrEnum):
    """A namespace of the pairing; its name in all results."""

    PRIMARY = "primary"
    SECONDARY = "secondary"


class NotPermittedError(Exception):
    """The credential lacks a right that the command needs."""


@dataclass(slots=True)
class ManagedNamespace:
    """One namespace. refused: why no entity can be made there, once known."""

    side: Side
    host: str
    admin: TopicManagement
    tier: ServiceTier = field(default=ServiceTier.UNKNOWN, kw_only=True)
    refused: str = field(default="", kw_only=True)
    making: asyncio.Lock = field(default_factory=asyncio.Lock, kw_only=True)

    async def make(self, act: Callable[[], Any]) -> None:
        """Create an entity. Raises NotPermittedError, and azure-core's errors."""
        async with self.making:  # a refusal is learned once, not by each caller
            if self.refused:
                raise NotPermittedError(self.refused)
            try:
                await bounded(act(), MANAGING, "making an entity")
            except AzureError as error:
                if is_refusal(error):
                    self.refused = f"the credential of the {self.side} namespace lacks Manage, which queues need"
                    raise NotPermittedError(self.refused) from error
                raise

    async def delete(self, path: str, *, is_topic: bool = False) -> bool:
        """Delete a queue or topic if it exists; return whether it is certainly gone."""
        act = self.admin.delete_topic if is_topic else self.admin.delete_queue
        for attempt in range(DELETE_TRIES):
            try:
                await bounded(act(path), MANAGING, "deleting an entity")
                return True
            except ResourceNotFoundError:
                return True
            except (AzureError, OSError, TimeoutError) as error:
                log.info("an entity was not deleted: %s", type(error).__name__)
                if isinstance(error, AzureError) and not is_transient(error):
                    return False
            await asyncio.sleep(RETRY_PAUSE * attempt)
        return False
