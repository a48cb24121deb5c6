"""Namespaces that are none: the SDK's clients and management replaced, so that what is measured is ours.

Whatever is sent is accepted or refused after a moment; every backlog queue exists, and no message leaves it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import ServiceBusConnectionError

from paired_servicebus.core.backlog.queue_settings import (
    LOCK,
    MAX_DELIVERIES,
    MAX_SIZE_MB,
    Depth,
    QueueFacts,
    QueueWanted,
)
from paired_servicebus.core.model.namespace_info import UNKNOWN_NAMESPACE, NamespaceInfo

TRIP: Final = 0.005
"""Seconds until a stub answers."""


class StubSender:
    """Accepts or refuses what is sent, after a moment; opens and closes at once."""

    def __init__(self, refuses: Callable[[], bool], accepted: Callable[[], None]) -> None:
        self._refuses = refuses
        self._accepted = accepted

    async def __aenter__(self) -> StubSender:
        return self

    async def close(self) -> None:
        """Nothing is held."""

    async def cancel_scheduled_messages(self, numbers: list[int]) -> None:
        """It is not closed."""

    async def create_message_batch(self) -> ServiceBusMessageBatch:
        """As the Standard tier takes it."""
        return ServiceBusMessageBatch(max_size_in_bytes=262_144)

    async def send_messages(self, message: object, *, timeout: float) -> None:
        """Fail as a lost connection does."""
        await asyncio.sleep(TRIP)
        if self._refuses():
            raise ServiceBusConnectionError(message="refused by the stub")
        self._accepted()


class StubClient:
    """A namespace's client without a namespace."""

    def __init__(self, name: str, *, is_up: bool) -> None:
        self.fully_qualified_namespace = f"{name}.servicebus.windows.net"
        self._is_up = is_up
        self.refused: set[str] = set()
        """The paths of entities to which it refuses sends."""
        self.sent: Counter[str] = Counter()
        """Accepted sends by path."""

    def get_queue_sender(self, path: str) -> StubSender:
        """One of ours."""
        return StubSender(lambda: not self._is_up or path in self.refused, lambda: self.sent.update((path,)))

    async def close(self) -> None:
        """Nothing is held."""


class StubManagement:
    """Management of a namespace that has every queue. sent: the messages in each, by path."""

    def __init__(self, sent: Mapping[str, int] = MappingProxyType({})) -> None:
        self._sent = sent

    async def queues(self, prefix: str) -> list[QueueFacts]:
        """All that are asked for."""
        return [
            QueueFacts(
                path=f"{prefix}{index}",
                max_size_mb=MAX_SIZE_MB,
                max_deliveries=MAX_DELIVERIES,
                lock=LOCK,
                dead_letters_expired=True,
                batched=True,
                sessions=False,
                status="Active",
            )
            for index in range(10)
        ]

    async def create_queue(self, path: str, wanted: QueueWanted) -> None:
        """All of them are there."""

    async def depth(self, path: str) -> Depth:
        """What was sent to it."""
        return Depth(messages=self._sent.get(path, 0), dead_lettered=0, size_bytes=0)

    async def depths(self, prefix: str, *, pages: int) -> dict[str, Depth]:
        """The same of every queue."""
        return {f"{prefix}{index}".casefold(): await self.depth(f"{prefix}{index}") for index in range(10)}

    async def namespace(self) -> NamespaceInfo:
        """Tells nothing."""
        return UNKNOWN_NAMESPACE

    async def close(self) -> None:
        """Nothing is held."""
