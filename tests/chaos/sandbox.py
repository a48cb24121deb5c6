"""The sandbox's process: two namespaces made for chaos, and its control URL."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
from azure.servicebus import ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from tests.chaos.plan import BACKLOG, DEDUP, PLAIN, PRIMARY, SECONDARY, SESSIONS, TOPIC, Strike
from tests.chaos.receiver import SUBSCRIPTION

START: Final = 30.0
STOP: Final = 10.0
CALL: Final = 10.0
PEEK: Final = 30.0
LOCK_SECONDS: Final = 10
LOCK: Final = f"PT{LOCK_SECONDS}S"
"""A backlog queue that its owner made with shorter locks than ours: what a killed syphon held comes again soon."""

_PLAIN: Final = f'lock_duration = "{LOCK}", max_delivery_count = 2147483647'
_DETECTS: Final = 'requires_duplicate_detection = true, duplicate_detection_history_time_window = "PT24H"'
_CONFIG: Final = f"""
[[namespace]]
name = "{PRIMARY}"
queues = [
  {{ name = "{DEDUP}", {_DETECTS}, {_PLAIN} }},
  {{ name = "{SESSIONS}", requires_session = true, {_PLAIN} }},
  {{ name = "{PLAIN}", {_PLAIN} }},
]
topics = [{{ name = "{TOPIC}", subscriptions = [{{ name = "{SUBSCRIPTION}", {_PLAIN} }}] }}]

[[namespace]]
name = "{SECONDARY}"
queues = [{", ".join(f'{{ name = "{path}", {_PLAIN} }}' for path in BACKLOG)}]
"""


class _Namespace(msgspec.Struct, frozen=True):
    name: str
    connection_string: str


class _Announced(msgspec.Struct, frozen=True):
    namespaces: list[_Namespace]
    ca_file: str
    control_url: str


class _Active(msgspec.Struct, frozen=True):
    faults: list[dict[str, Any]]


class Sandbox:
    """Both namespaces: how to reach them, how to break them, what lies in them."""

    def __init__(self, announced: _Announced, session: aiohttp.ClientSession) -> None:
        self.ca_file = announced.ca_file
        self.connection_string = {one.name: one.connection_string for one in announced.namespaces}
        self._url = announced.control_url + "/faults"
        self._clock = announced.control_url + "/clock"
        self._session = session

    async def strike(self, strike: Strike) -> None:
        """Begin a fault."""
        async with self._session.post(self._url, json=strike.order()) as answer:
            if answer.status != 201:
                raise RuntimeError(f"{strike}: {await answer.text()}")

    async def mend(self) -> None:
        """End every fault; one may end by itself meanwhile."""
        async with self._session.get(self._url) as answer:
            active = msgspec.json.decode(await answer.read(), type=_Active)
        for fault in active.faults:
            async with self._session.delete(f"{self._url}/{fault['id']}") as answer:
                if answer.status not in (200, 404):
                    raise RuntimeError(f"a fault was not ended: {await answer.text()}")

    async def age(self, seconds: float) -> None:
        """Set the clock of both namespaces forward."""
        async with self._session.post(self._clock, json={"advance_s": seconds}) as answer:
            if answer.status != 200:
                raise RuntimeError(f"the clock was not set: {await answer.text()}")

    async def parked(self) -> dict[str, list[str]]:
        """The ids of what lies in the backlog queues, by path."""
        async with self._client(SECONDARY) as client:
            return await _all_peeked({path: client.get_queue_receiver(path) for path in BACKLOG})

    async def dead(self) -> dict[str, list[str]]:
        """The ids of all dead letters, by path."""
        sub = ServiceBusSubQueue.DEAD_LETTER
        async with self._client(PRIMARY) as primary, self._client(SECONDARY) as secondary:
            receivers = {path: primary.get_queue_receiver(path, sub_queue=sub) for path in (DEDUP, SESSIONS, PLAIN)}
            receivers[TOPIC] = primary.get_subscription_receiver(TOPIC, SUBSCRIPTION, sub_queue=sub)
            receivers |= {path: secondary.get_queue_receiver(path, sub_queue=sub) for path in BACKLOG}
            return await _all_peeked(receivers)

    def _client(self, name: str) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.connection_string[name])


async def _all_peeked(receivers: dict[str, ServiceBusReceiver]) -> dict[str, list[str]]:
    found = await asyncio.gather(*map(_peeked, receivers.values()))
    return dict(zip(receivers, found, strict=True))


async def _peeked(receiver: ServiceBusReceiver) -> list[str]:
    """The ids of every message there, whatever its state."""
    ids: list[str] = []
    number = 1
    async with asyncio.timeout(PEEK), receiver:
        while messages := await receiver.peek_messages(250, sequence_number=number):
            ids += [str(message.message_id) for message in messages]
            number = max((message.sequence_number or 0) for message in messages) + 1
    return ids


@asynccontextmanager
async def sandbox(folder: Path) -> AsyncIterator[Sandbox]:
    """A running sandbox process, gone in the end; its log goes into the folder."""
    config = folder / "namespaces.toml"
    config.write_text(_CONFIG)
    with (folder / "sandbox.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "paired_servicebus", "sandbox", "--json", "--config", str(config)),
            stdin=DEVNULL, stdout=PIPE, stderr=log, start_new_session=True,
        )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START):
            announced = msgspec.json.decode(await process.stdout.readline(), type=_Announced)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL)) as session:
            yield Sandbox(announced, session)
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(STOP):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
