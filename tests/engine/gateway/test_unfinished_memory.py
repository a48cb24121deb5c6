"""Floods at a gateway and at the sandbox, each in a process of its own: its memory, and what other keys notice."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, LocalKey
from servicebus_amqp.encoding.performatives import ACCEPTED
from servicebus_sandbox import AuthorizationRule, NamespaceSpec, QueueSettings, QueueSpec, Right, Sandbox
from tests.engine.gateway.rough_clients import RoughClient, client_of, gateway_of
from tests.engine.gateway.test_key_budgets import begin_message

LINKS: Final = 1500
STRANGERS: Final = 4000
SIZE: Final = 258_000
MOST: Final = 64 * 1024 * 1024
FLOODING: Final = LocalKey("flooding", frozenset([GatewayRight.SEND]), "f" * 40)
OTHER: Final = LocalKey("other", frozenset([GatewayRight.SEND]), "o" * 40)


@asynccontextmanager
async def gateway() -> AsyncIterator[int]:
    async with gateway_of(None, FLOODING, OTHER) as running:
        yield running.port


@asynccontextmanager
async def sandbox() -> AsyncIterator[int]:
    rules = [
        AuthorizationRule(name=key.name, rights=frozenset({Right.SEND}), primary_key=key.key, secondary_key=key.key)
        for key in (FLOODING, OTHER)
    ]
    orders = QueueSpec("orders", QueueSettings(default_ttl=timedelta(seconds=1)))
    async with Sandbox.start([NamespaceSpec("shop", [orders], rules=rules)]) as running:
        yield running["shop"].amqp_port


SERVERS: Final[dict[str, Callable[[], AbstractAsyncContextManager[int]]]] = {"gateway": gateway, "sandbox": sandbox}


async def serve(name: str) -> None:
    """Run a server until the end of the input; print its port."""
    async with SERVERS[name]() as port:
        print(json.dumps(port), flush=True)
        await asyncio.to_thread(sys.stdin.read)


@asynccontextmanager
async def server_process(name: str) -> AsyncIterator[tuple[Any, int]]:
    """Yield a server, as clients see it, and its process id."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, name, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = json.loads(await process.stdout.readline())
        yield SimpleNamespace(port=port, clock=time.time), process.pid
    finally:
        process.stdin.close()
        await process.wait()


def resident(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * 4096


async def begin_messages(server: Any) -> None:
    """Begin 1,500 messages on one connection, a link each; end with the connection."""
    async with client_of(server) as client:
        await client.prove(server, FLOODING)
        links = []
        for number in range(LINKS):
            if number % 250 == 0:
                client.session = client.amqp.begin()  # a session has 256 links
            links.append(await client.attach("orders"))
        with suppress(ConnectionError):
            for number, link in enumerate(links):
                begin_message(link, SIZE, number)
                client.flush()
                await asyncio.sleep(0)
                if client.is_lost:
                    break
        await client.until_lost()


async def time_sends(client: RoughClient, link: Any, seconds: float, until: asyncio.Task[Any] | None) -> list[float]:
    found: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or not (until is None or until.done()):
        began = time.perf_counter()
        assert await client.send(link) == ACCEPTED
        found.append(time.perf_counter() - began)
        client.events.clear()
    return sorted(found)


async def check_flood(name: str, flood: str) -> None:
    """Check that a flood costs at most 64 MB, which come back, and refuses no send of another key."""
    async with server_process(name) as (server, pid), client_of(server) as client:
        await client.prove(server, OTHER)
        link = await client.attach("orders")
        calm = await time_sends(client, link, 2.0, None)
        idle = peak = resident(pid)
        floods = await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, flood, str(server.port))
        flooding = asyncio.ensure_future(floods.wait())
        sending = asyncio.create_task(time_sends(client, link, 0.0, flooding))
        while not flooding.done():
            peak = max(peak, resident(pid))
            await asyncio.sleep(0.01)
        assert await flooding == 0
        busy = await sending
        for _ in range(100):
            left = resident(pid)
            if left - idle < MOST // 4:
                break
            await asyncio.sleep(0.1)
    p99 = [times[int(len(times) * 0.99)] * 1000 for times in (calm, busy)]
    print(f"{name}: idle {idle >> 20} MB, peak +{(peak - idle) >> 20}, after +{(left - idle) >> 20}, p99 {p99} ms")
    assert peak - idle <= MOST
    assert left - idle <= MOST // 4


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
async def test_1500_unfinished_messages_of_258_kb_on_two_connections_of_one_key(name: str) -> None:
    """At most 64 MB above idle, the memory back after close; sends of another key are all accepted."""
    await check_flood(name, "messages")


OPENINGS: Final = (
    *(b"", b"AMQP\x03\x01\x00\x00", b"GET / HTTP/1.1\r\nHo", b"\x16\x03\x01\x02\x00"),
    *(b"AMQP\x00\x00\x09\x01", b"SSH-2.0-x\r\n", b"PRI * HTTP/2.0\r\n\r\n", b"\x10\x0c\x00\x04MQTT"),
)
"""Silence, half of AMQP, of HTTP and of TLS, and the first bytes of other protocols."""


async def crowd(server: Any) -> None:
    """Open 4,000 connections by these first bytes, and keep those that the server keeps until all are open."""
    opened: list[asyncio.StreamWriter] = []

    async def open_one(opening: bytes) -> None:
        with suppress(ConnectionError):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            opened.append(writer)
            writer.write(opening)

    for _ in range(STRANGERS // len(OPENINGS) // 10):
        await asyncio.gather(*(open_one(opening) for opening in OPENINGS * 10))
    for writer in opened:
        writer.transport.abort()


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
async def test_4000_connections_that_prove_nothing(name: str) -> None:
    """At most 64 MB above idle, the memory back after close; sends of another key are all accepted."""
    await check_flood(name, "strangers")


async def flood_with_messages(server: Any) -> None:
    await asyncio.gather(begin_messages(server), begin_messages(server))


FLOODS: Final = {"messages": flood_with_messages, "strangers": crowd}


if __name__ == "__main__":
    if sys.argv[1] in SERVERS:
        asyncio.run(serve(sys.argv[1]))
    else:
        asyncio.run(FLOODS[sys.argv[1]](SimpleNamespace(port=int(sys.argv[2]), clock=time.time)))
