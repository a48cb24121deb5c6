"""The same program on three sides at once: the plain SDK, the pairing, and the pairing that holds.

Each side has a namespace of its own in one sandbox, so that a fault on one hits no other. Programs are asynchronous;
the synchronous clients are called through threads, so that one program serves both kinds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

from azure.servicebus import ServiceBusClient as SyncClient
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

import paired_servicebus
import paired_servicebus.sync
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.pairing import tls_context
from servicebus_sandbox import AsyncSandboxCredential, NamespaceSpec, QueueSpec, Sandbox, SandboxCredential
from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.faults import FaultTerms

QUEUE: Final = "orders"
SESSIONS: Final = "carts"
QUEUES: Final = [QueueSpec(QUEUE), QueueSpec(SESSIONS, QueueSettings(requires_session=True))]
OPTIONS: Final = {"failover_interval": 6.0, "send_timeout": 20.0, "backlog_queue_count": 2}
END: Final = object()


class Threaded:
    """A synchronous object of the SDK or the pairing with asynchronous methods."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found = getattr(self._inner, name)
        if name.startswith("get_"):
            return lambda *args, **options: Threaded(found(*args, **options))

        async def call(*args: Any, **options: Any) -> Any:
            return await asyncio.to_thread(found, *args, **options)

        return call

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._inner.__enter__)
        return self

    async def __aexit__(self, *reason: Any) -> None:
        await asyncio.to_thread(self._inner.__exit__, *reason)

    async def __aiter__(self) -> AsyncIterator[Any]:
        messages = await asyncio.to_thread(iter, self._inner)
        while (message := await asyncio.to_thread(next, messages, END)) is not END:
            yield message


class ShortLived:
    """A credential whose tokens live a few seconds, and the end of the newest."""

    def __init__(self, inner: SandboxCredential | AsyncSandboxCredential) -> None:
        self._inner = inner
        self.expires_on = 0.0

    def _noted(self, token: Any) -> Any:
        self.expires_on = token.expires_on
        return token


class ShortLivedSync(ShortLived):
    """For the synchronous clients."""

    def get_token(self, *scopes: str, **_: object) -> Any:
        return self._noted(self._inner.get_token(*scopes))

    def close(self) -> None:
        """Nothing is held."""


class ShortLivedAsync(ShortLived):
    """For the asynchronous clients."""

    async def get_token(self, *scopes: str, **_: object) -> Any:
        return self._noted(await self._inner.get_token(*scopes))  # type: ignore[misc]

    async def close(self) -> None:
        """Nothing is held."""


@dataclass
class Side:
    """One namespace with a client, and a fault of it that lasts a moment. credential: None for a key."""

    name: str
    client: Any
    sandbox: Sandbox
    strike: Callable[[Side], Awaitable[None]]
    credential: ShortLived | None = None
    striking_s: float = 0.0

    @property
    def node(self) -> Any:
        return self.sandbox[self.name].node

    def depth(self) -> int:
        return int(self.node.namespace.queue(QUEUE).counts().active)

    def fault(self, kind: str, *, entity: str | None = None, **terms: Any) -> Callable[[], None]:
        begun = self.node.faults.add(kind, entity=entity, terms=FaultTerms(**terms))
        return lambda: self.node.faults.remove(begun.id)

    async def put(self, *bodies: str, path: str = QUEUE, **fields: Any) -> None:
        """Send from outside, over a connection of its own."""
        text = self.sandbox[self.name].connection_string
        client = ServiceBusClient.from_connection_string(text, ssl_context=tls_context())
        async with client, client.get_queue_sender(path) as sender:
            await sender.send_messages([ServiceBusMessage(body, **fields) for body in bodies])

    async def struck(self) -> float:
        """Strike, and return the time. striking_s counts how long that takes: a token's end may be seconds away."""
        begun = time.monotonic()
        await self.strike(self)
        self.striking_s += time.monotonic() - begun
        return time.monotonic()


@dataclass(frozen=True)
class Outcome:
    """What a program came to: its results, the error that ended it, and the seconds since its first fault.

    They end with its last result or its error: closing waits up to a second for the SDK's keep-alive, on every side.
    The seconds in which a later fault is prepared are not among them.
    """

    results: list[Any]
    raised: str
    seconds: float


Program = Callable[[Side], AsyncIterator[Any]]
"""Yields the time of the fault once, and its results."""


async def play(program: Program, side: Side) -> Outcome:
    """Run a program to its end, or to its error."""
    results, raised = [], ""
    struck = ended = time.monotonic()
    striking_s = side.striking_s
    try:
        async with asyncio.timeout(60):
            async for found in program(side):
                if isinstance(found, float):
                    struck, striking_s = found, side.striking_s
                else:
                    results.append(found)
                ended = time.monotonic()
    except Exception as error:
        raised, ended = type(error).__name__, time.monotonic()
    return Outcome(results, raised, ended - struck - (side.striking_s - striking_s))


class Opening:
    """The clients of one run, which end with it. mode: "async" or "sync"."""

    def __init__(self, sandbox: Sandbox, stack: AsyncExitStack, mode: str, *, token_life: float | None) -> None:
        self._sandbox, self._stack, self._is_async = sandbox, stack, mode == "async"
        names = ("sdk", "paired", "held") if token_life else ()
        self.credentials = {name: self._credential(token_life or 0.0) for name in names}

    def _credential(self, life: float) -> ShortLived:
        kind, own = (AsyncSandboxCredential, ShortLivedAsync) if self._is_async else (SandboxCredential, ShortLivedSync)
        return own(kind(self._sandbox.control_url, "Data Owner", lifetime=life))

    def _address(self, name: str) -> str:
        return f"127.0.0.1:{self._sandbox[name].amqp_port}"

    def _namespace(self, name: str) -> paired_servicebus.Namespace:
        options = {"connection_verify": str(self._sandbox.ca_file)}
        if name in self.credentials:
            return paired_servicebus.Namespace(self._address(name), self.credentials[name], options, {"use_tls": False})
        text = self._sandbox[name].connection_string
        return paired_servicebus.Namespace.from_connection_string(text, options=options)

    async def pair(self, name: str, **options: Any) -> Any:
        """Open a pairing of the namespace with the secondary one."""
        both = self._namespace(name), self._namespace("secondary")
        options = {**OPTIONS, "primary_name": name, **options}
        if self._is_async:
            return await self._stack.enter_async_context(paired_servicebus.pair_namespaces(*both, **options))
        paired = await asyncio.to_thread(paired_servicebus.sync.pair_namespaces, *both, **options)
        return await self._stack.enter_async_context(Threaded(paired))

    async def plain(self) -> Any:
        """Open the SDK's client."""
        kind: Any = ServiceBusClient if self._is_async else SyncClient
        if (credential := self.credentials.get("sdk")) is not None:
            client = kind(self._address("sdk"), credential, use_tls=False)
        else:
            text = self._sandbox["sdk"].connection_string
            client = kind.from_connection_string(text, ssl_context=tls_context())
        return await self._stack.enter_async_context(client if self._is_async else Threaded(client))


@asynccontextmanager
async def sides(
    mode: str, strike: Callable[[Side], Awaitable[None]], *, token_life: float | None = None
) -> AsyncIterator[list[Side]]:
    """Open the three sides, the SDK's first. mode: "async" or "sync". token_life: seconds; None: a key."""
    specs = [*(NamespaceSpec(name, QUEUES) for name in ("sdk", "paired", "held")), NamespaceSpec("secondary")]
    async with Sandbox.start(specs) as sandbox, AsyncExitStack() as stack:
        opening = Opening(sandbox, stack, mode, token_life=token_life)
        plain = await opening.plain()
        paired, held = await asyncio.gather(opening.pair("paired"), opening.pair("held", hold_until_failover=True))
        clients = {"sdk": plain, "paired": paired, "held": held}
        yield [Side(name, client, sandbox, strike, opening.credentials.get(name)) for name, client in clients.items()]


async def state_of(side: Side) -> State:
    """Return the pairing's state of the queue."""
    views = side.client.entity_views()
    views = await views if asyncio.iscoroutine(views) else views
    return next((view.state for view in views if view.path == QUEUE), State.UNKNOWN)


def parked(side: Side) -> int:
    """Return the messages in the secondary namespace, of both pairings."""
    secondary = side.sandbox["secondary"].node.namespace
    return sum(
        secondary.queue(f"{name}/x-servicebus-transfer/{index}").counts().active
        for name in ("paired", "held")
        for index in range(2)
    )
