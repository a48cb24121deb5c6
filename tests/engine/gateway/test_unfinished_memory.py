"""A flood of messages that never end, at a gateway in a process of its own: its memory, and what other keys notice."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, LocalKey
from servicebus_amqp.encoding.performatives import ACCEPTED
from tests.engine.gateway.rough_clients import RoughClient, client_of, gateway_of
from tests.engine.gateway.test_key_budgets import begin_message

LINKS: Final = 1500
SIZE: Final = 258_000
MOST: Final = 64 * 1024 * 1024
FLOODING: Final = LocalKey("flooding", frozenset([GatewayRight.SEND]), "f" * 40)
OTHER: Final = LocalKey("other", frozenset([GatewayRight.SEND]), "o" * 40)


async def serve() -> None:
    """Run a gateway until the end of the input; print its port."""
    async with gateway_of(None, FLOODING, OTHER) as gateway:
        print(json.dumps(gateway.port), flush=True)
        await asyncio.to_thread(sys.stdin.read)


@asynccontextmanager
async def gateway_process() -> AsyncIterator[tuple[Any, int]]:
    """Yield a gateway, as clients see it, and its process id."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, stdin=pipe, stdout=pipe)
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


async def flood(gateway: Any) -> None:
    """Begin 1,500 messages on one connection, a link each; end with the connection."""
    async with client_of(gateway) as client:
        await client.prove(cast(Any, gateway), FLOODING)
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


@pytest.mark.slow
async def test_1500_unfinished_messages_of_258_kb_on_two_connections_of_one_key() -> None:
    """At most 64 MB above idle, the memory back after close; sends of another key are all accepted."""
    async with gateway_process() as (gateway, pid), client_of(gateway) as client:
        await client.prove(gateway, OTHER)
        link = await client.attach("orders")
        calm = await time_sends(client, link, 2.0, None)
        idle = peak = resident(pid)
        floods = asyncio.gather(flood(gateway), flood(gateway))
        sending = asyncio.create_task(time_sends(client, link, 0.0, cast(Any, floods)))
        while not floods.done():
            peak = max(peak, resident(pid))
            await asyncio.sleep(0.01)
        await floods
        busy = await sending
        for _ in range(100):
            left = resident(pid)
            if left - idle < MOST // 4:
                break
            await asyncio.sleep(0.1)
    p99 = [times[int(len(times) * 0.99)] * 1000 for times in (calm, busy)]
    print(f"idle {idle >> 20} MB, peak +{(peak - idle) >> 20} MB, after +{(left - idle) >> 20} MB, p99 {p99} ms")
    assert peak - idle <= MOST
    assert left - idle <= MOST // 4


if __name__ == "__main__":
    asyncio.run(serve())
