"""Connections in the director's own loop: idle ones by the hundred, and clients that behave badly with a good key."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

from paired_servicebus.core.accounting.ledger import SendOutcome
from paired_servicebus.engine.gateway.gateway_keys import LocalKey
from servicebus_amqp.access import sign
from servicebus_amqp.encoding.frames import EMPTY_FRAME
from servicebus_amqp.encoding.performatives import Accepted
from servicebus_amqp.protocol.links import DispositionReceived, SenderLink
from tests.engine.gateway.rough_clients import Refused, RoughClient
from tests.stage.course import PLAIN
from tests.stage.ledger import Answered, Attempted, FactFile, now
from tests.stage.letters import LARGE, letter

AGAIN: Final = 1.0
KEEP_ALIVE: Final = 60.0
LARGE_COUNT: Final = 330
"""Messages of 200 KB: more than the 64 MB that a gateway has in hand."""


@dataclass(frozen=True)
class Entry:
    """The gateway's port and key."""

    port: int
    key: LocalKey

    @asynccontextmanager
    async def client(self) -> AsyncIterator[RoughClient]:
        """Return a connection that has shown its token."""
        _, client = await asyncio.get_running_loop().create_connection(RoughClient, "127.0.0.1", self.port)
        try:
            audience = f"sb://127.0.0.1:{self.port}/"
            reply = await client.put_token(audience, sign(audience, self.key.name, self.key.key, time.time() + 86_400))
            if reply["status-code"] != 202:
                raise ConnectionError(f"the gateway refused a good token: {reply}")
            yield client
        finally:
            client.transport.abort()


class Crowd:
    """Idle connections with a sender each; a lost one is made again."""

    def __init__(self, entry: Entry, count: int) -> None:
        self._entry = entry
        self._count = count
        self._tasks: list[asyncio.Task[None]] = []
        self.up = 0

    @property
    def is_whole(self) -> bool:
        return self.up == self._count

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._hold()) for _ in range(self._count)]

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hold(self) -> None:
        while True:
            await asyncio.sleep(random.uniform(0.1, 3) * AGAIN)
            with suppress(OSError, TimeoutError, Refused):
                async with self._entry.client() as client:
                    await client.attach(PLAIN)
                    self.up += 1
                    try:
                        await self._stay(client)
                    finally:
                        self.up -= 1

    async def _stay(self, client: RoughClient) -> None:
        while not client.is_lost:
            client.changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(client.changed.wait(), KEEP_ALIVE)
            client.transport.write(EMPTY_FRAME)


class Flood:
    """One connection that sends large messages as fast as its credit allows, and notes each answer."""

    def __init__(self, entry: Entry, facts: FactFile, name: str) -> None:
        self._entry = entry
        self._facts = facts
        self._name = f"{LARGE}{name}"

    async def run(self) -> None:
        """Send LARGE_COUNT messages; end when each has its answer, or the connection is lost."""
        with suppress(OSError, TimeoutError, Refused):
            async with self._entry.client() as client:
                link = await client.attach(PLAIN)
                await self._send(client, link)

    async def _send(self, client: RoughClient, link: SenderLink) -> None:
        ids = [f"{self._name}.{number}" for number in range(LARGE_COUNT)]
        for name in ids:
            self._facts.write(Attempted(at=now(), entity=PLAIN, ids=[name]))
            link.send(encoded(name), tag=name.encode())
        client.flush()
        left = set(ids)
        while left and not client.is_lost:
            await asyncio.wait_for(client.changed.wait(), 60)
            client.changed.clear()
            answered = [event for event in client.events if isinstance(event, DispositionReceived)]
            client.events.clear()
            for event in answered:
                name = event.tag.decode()
                if name not in left:  # the token's
                    continue
                left.discard(name)
                outcome = SendOutcome.ACCEPTED if isinstance(event.state, Accepted) else SendOutcome.IN_DOUBT
                self._facts.write(Answered(at=now(), ids=[name], answer=outcome))


async def be_deaf(entry: Entry, facts: FactFile, name: str, seconds: float) -> None:
    """Send many small messages and read no answer."""
    with suppress(OSError, TimeoutError, Refused):
        async with entry.client() as client:
            link = await client.attach(PLAIN)
            client.transport.pause_reading()
            for number in range(200):
                each = f"deaf-{name}.{number}"
                facts.write(Attempted(at=now(), entity=PLAIN, ids=[each]))
                link.send(encoded(each), tag=each.encode())
            client.flush()
            await asyncio.sleep(seconds)


async def send_half(entry: Entry, name: str) -> None:
    """Vanish in the middle of a transfer: its message must not arrive."""
    with suppress(OSError, TimeoutError, Refused):
        async with entry.client() as client:
            link = await client.attach(PLAIN)
            link.send(encoded(f"{LARGE}half-{name}"), tag=b"half")
            data = client.amqp.data_to_send()
            client.transport.write(data[: len(data) // 2])
            await asyncio.sleep(0.2)


async def be_silent(entry: Entry, count: int, seconds: float) -> None:
    """Open connections without a key, and say half a header."""

    async def one() -> None:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", entry.port)
            writer.write(b"AMQ")
            await asyncio.sleep(seconds)
            writer.transport.abort()

    await asyncio.gather(*(one() for _ in range(count)))


def encoded(name: str) -> bytes:
    """Return a letter's bytes, as the SDK writes them."""
    out = bytearray()
    encode_payload(out, PyamqpTransport.to_outgoing_amqp_message(letter(PLAIN, name, 0).raw_amqp_message))
    return bytes(out)
