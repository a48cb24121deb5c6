"""The means of one experiment: queues, connections and links, all removed at its end.

A queue is recorded on disk before it is made, so that `--clean` finds it after a kill.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.engine.clients.client_factory import close_quietly
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from paired_servicebus.pairing.management.management_port import QueueWanted
from paired_servicebus.temporary_entities.managed_namespace import ManagedNamespace, Side
from paired_servicebus.temporary_entities.run_record import RunRecord
from paired_servicebus.verify.trial_links import TrialReceiver, TrialSender


class SkippedError(Exception):
    """An experiment cannot be done here, for a reason that is no fault."""


@dataclass(slots=True)
class TrialNamespace(ManagedNamespace):
    """A namespace of experiments. backlog: an existing queue to attach to."""

    client: ServiceBusClient
    backlog: str = ""


class Trial:
    """The means of one experiment; an asynchronous context manager."""

    _numbers = itertools.count()

    def __init__(self, namespaces: Mapping[Side, TrialNamespace], record: RunRecord) -> None:
        self.namespaces = namespaces
        self._record = record
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    @property
    def home(self) -> TrialNamespace:
        """The secondary namespace, where the pairing has Manage."""
        return self.namespaces[Side.SECONDARY]

    def name(self) -> str:
        """Return an unused name of a queue."""
        return f"{self._record.prefix}-{next(self._numbers)}"

    async def queue(self, wanted: QueueWanted | None = None, *, side: Side = Side.SECONDARY) -> str:
        """Make a queue for this experiment. Raises NotPermittedError, and azure-core's errors."""
        settings = wanted or QueueWanted()
        return await self._make(side, lambda path: self.namespaces[side].admin.create_queue(path, settings))

    async def backlog_queue(self) -> str:
        """Make a queue with the settings of a backlog queue. Raises as `queue`."""
        return await self._make(Side.SECONDARY, self.home.admin.create_backlog_queue)

    async def _make(self, side: Side, create: Callable[[str], Any]) -> str:
        namespace, path = self.namespaces[side], self.name()
        if not namespace.refused:
            self._record.note(str(side), namespace.host, path)
        self._stack.push_async_callback(self.remove, path, side=side)
        await namespace.make(lambda: create(path))
        return path

    async def remove(self, path: str, *, side: Side = Side.SECONDARY) -> None:
        """Delete a queue of this experiment, unless it is gone already."""
        namespace = self.namespaces[side]
        if self._record.has(path) and (namespace.refused or await namespace.delete(path)):
            self._record.forget(path)

    def close_later(self, close: Callable[[], Awaitable[None]]) -> None:
        """Close an SDK object at the end of this experiment."""
        self._stack.push_async_callback(close_quietly, close, "a receiver of an experiment")

    def wire(self, *, side: Side = Side.SECONDARY, endpoint: Endpoint | None = None) -> ReconnectingConnection:
        """Return a connection of this experiment's own, so that a broken one disturbs no other experiment."""
        wire = ReconnectingConnection(endpoint or self.endpoint(side=side), name="verify")
        self._stack.push_async_callback(wire.close)
        return wire

    def endpoint(self, *, side: Side = Side.SECONDARY) -> Endpoint:
        """Return a namespace's address and credential. Raises WireUnavailableError."""
        return Endpoint.of(self.namespaces[side].client)

    async def sender(self, path: str, *, side: Side = Side.SECONDARY) -> TrialSender:
        """Attach a sender on a connection of its own. Raises WireError."""
        return await TrialSender.attach(self.wire(side=side), path)

    async def receiver(self, path: str, *, side: Side = Side.SECONDARY) -> TrialReceiver:
        """Attach a receiver on a connection of its own. Raises WireError."""
        return await TrialReceiver.attach(self.wire(side=side), path)
