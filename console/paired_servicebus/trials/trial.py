"""The means of one experiment: queues, connections and links, all removed at its end.

A queue is recorded on disk before it is made, so that `--clean` finds it after a kill.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Final, Self

from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.backlog.queue_settings import BACKLOG_QUEUE, QueueWanted
from paired_servicebus.core.errors import WireError
from paired_servicebus.engine.clients.client_factory import close_quietly
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection, WireReceiver, WireSender, failure_of
from paired_servicebus.pairing.amqp_client.client_connection import AttachFields
from paired_servicebus.trials.temporary_entities import ManagedNamespace, RunRecord, Side
from servicebus_amqp.encoding.message_sections import (
    Header,
    Properties,
    Sections,
    read_properties,
    split,
    write_data,
    write_header,
    write_properties,
)
from servicebus_amqp.encoding.performatives import ACCEPTED, Coordinator, DeliveryState
from servicebus_amqp.protocol.links import DeliveryReceived, DispositionReceived

# Links of our own AMQP for an experiment: a send with its outcome, a receipt with a time limit.

ANSWER_SECONDS: Final = 20.0
"""Seconds for an outcome, or the confirmation of a settlement."""


class _TrialLink:
    """The common part: the end of the link as a future."""

    def __init__(self) -> None:
        self.lost: asyncio.Future[WireError] = asyncio.get_running_loop().create_future()

    def on_lost(self, error: WireError) -> None:
        if not self.lost.done():
            self.lost.set_result(error)


class TrialSender(_TrialLink):
    """Sends encoded messages, each with its outcome."""

    link: WireSender

    def __init__(self, path: str) -> None:
        super().__init__()
        self._pending: dict[bytes, asyncio.Future[DeliveryState | None]] = {}
        self._sent = 0
        self._path = path

    @classmethod
    async def attach(cls, wire: ReconnectingConnection, path: str, target: Coordinator | None = None) -> TrialSender:
        """Attach a sender to a queue, or to a coordinator with the token of one. Raises WireError."""
        sender, fields = cls(path), AttachFields(target=target)
        sender.link = await wire.sender(path, on_outcome=sender._on_outcome, on_lost=sender.on_lost, fields=fields)
        return sender

    async def ask(
        self, payload: bytes, *, message_format: int = 0, state: DeliveryState | None = None
    ) -> DeliveryState | WireError | None:
        """Send one message; return the first answer, or the end of the link. Raises WireError, TimeoutError.

        state: such as that of a transaction.
        """
        self._sent += 1
        tag = str(self._sent).encode()
        answer: asyncio.Future[DeliveryState | None] = asyncio.get_running_loop().create_future()
        self._pending[tag] = answer
        self.link.send(payload, tag, message_format=message_format, state=state)
        await asyncio.wait((answer, self.lost), timeout=ANSWER_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        if self.lost.done():
            return self.lost.result()
        raise TimeoutError(f"a send was not answered within {ANSWER_SECONDS:g} s")

    async def offer(self, payload: bytes, *, message_format: int = 0) -> WireError | None:
        """Send one message; return the reason why it was not accepted. Raises WireError, TimeoutError."""
        answer = await self.ask(payload, message_format=message_format)
        return answer if isinstance(answer, WireError) else failure_of(answer, self._path)

    async def send(self, *payloads: bytes) -> None:
        """Send messages that have to be accepted. Raises WireError, TimeoutError."""
        for payload in payloads:
            refused = await self.offer(payload)
            if refused is not None:
                raise refused

    def _on_outcome(self, event: DispositionReceived) -> None:
        answer = self._pending.pop(event.tag, None)
        if answer is not None and not answer.done():
            answer.set_result(event.state)


class TrialReceiver(_TrialLink):
    """Receives with peek-lock, one credit for each requested message."""

    link: WireReceiver

    def __init__(self) -> None:
        super().__init__()
        self._arrived: asyncio.Queue[DeliveryReceived] = asyncio.Queue()
        self._settling: dict[int, asyncio.Future[DeliveryState | None]] = {}

    @classmethod
    async def attach(cls, wire: ReconnectingConnection, path: str) -> TrialReceiver:
        """Attach a receiver without credit. Raises WireError."""
        receiver = cls()
        receiver.link = await wire.receiver(
            path,
            on_delivery=receiver._arrived.put_nowait,
            on_lost=receiver.on_lost,
            on_settled=receiver._on_settled,
        )
        return receiver

    async def receive(self, count: int, seconds: float = ANSWER_SECONDS) -> list[DeliveryReceived]:
        """Return up to `count` messages that arrive within some seconds."""
        self.link.grant(count)
        found: list[DeliveryReceived] = []
        end = asyncio.get_running_loop().time() + seconds
        while len(found) < count and (left := end - asyncio.get_running_loop().time()) > 0:
            try:
                found.append(await asyncio.wait_for(self._arrived.get(), left))
            except TimeoutError:
                break
        return found

    async def one(self, seconds: float = ANSWER_SECONDS) -> DeliveryReceived:
        """Return the next message. Raises TimeoutError."""
        found = await self.receive(1, seconds)
        if not found:
            raise TimeoutError(f"no message arrived within {seconds:g} s")
        return found[0]

    async def settle(self, delivery: DeliveryReceived, state: DeliveryState = ACCEPTED) -> None:
        """Settle a message, and wait for the confirmation. Raises TimeoutError."""
        confirmed = self._settling[delivery.delivery_id] = asyncio.get_running_loop().create_future()
        self.link.settle(delivery.delivery_id, state, settled=False)
        await asyncio.wait((confirmed,), timeout=ANSWER_SECONDS)
        if not confirmed.done():
            raise TimeoutError(f"a settlement was not confirmed within {ANSWER_SECONDS:g} s")

    def _on_settled(self, event: DispositionReceived) -> None:
        confirmed = self._settling.pop(event.delivery_id, None)
        if confirmed is not None and not confirmed.done():
            confirmed.set_result(event.state)


# Encoded messages of the experiments.


def letter(message_id: str, *, ttl_ms: int | None = None, content_type: str | None = None, body: bytes = b"x") -> bytes:
    """Return an encoded message."""
    return Sections(
        header=write_header(Header(ttl=ttl_ms)) if ttl_ms is not None else None,
        properties=write_properties(Properties(message_id=message_id, content_type=content_type)),
        body=write_data(body),
    ).join()


def id_of(payload: bytes) -> str:
    """Return a message's id as text."""
    return str(read_properties(split(payload).properties).message_id)


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

    async def queue(self, wanted: QueueWanted | None = None, *, side: Side = Side.SECONDARY, path: str = "") -> str:
        """Make a queue for this experiment. Raises NotPermittedError, and azure-core's errors."""
        namespace, path, settings = self.namespaces[side], path or self.name(), wanted or QueueWanted()
        if not namespace.refused:
            self._record.note(str(side), namespace.host, path)
        self._stack.push_async_callback(self.remove, path, side=side)
        await namespace.make(lambda: namespace.admin.create_queue(path, settings))
        return path

    async def backlog_queue(self) -> str:
        """Make a queue with the settings of a backlog queue. Raises as `queue`."""
        return await self.queue(BACKLOG_QUEUE)

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


# An experiment: an assumption about Service Bus, its reason, and the function that tests it.

DEADLINE: Final = 60.0
"""Seconds for an experiment, without the removal of its queues."""


class ExperimentResult(StrEnum):
    """A result, as in the JSON file."""

    HOLDS = "holds"
    DIFFERS = "differs"
    NOT_PERMITTED = "not permitted"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Observation:
    """The evidence of an experiment: whether the assumption holds, and one sentence."""

    holds: bool
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """name: a stable key. why: the part of the project that relies on the assumption. is_slow: needs `--slow`."""

    name: str
    assumption: str
    why: str
    run: Callable[[Trial], Awaitable[Observation]]
    deadline: float = DEADLINE
    is_slow: bool = False
    needs_standard: bool = False
    """Whether the tier Basic lacks the feature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentReport:
    """An experiment's result. seen: one sentence, without secrets, hosts and names of namespaces."""

    experiment: Experiment
    result: ExperimentResult
    seen: str
    seconds: float
