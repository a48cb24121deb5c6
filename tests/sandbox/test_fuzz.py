"""Whatever is sent to a namespace's port, it goes on serving others, keeps nothing of it, and says it once.

Runs 1.5 seconds, or as many as PAIRED_FUZZ_SECONDS says; PAIRED_FUZZ_SEED repeats a run's draws.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from tests.sandbox.fuzzing import Attacker, attack, open_files

from servicebus_sandbox import (
    AsyncSandboxCredential,
    NamespaceSpec,
    QueueSettings,
    QueueSpec,
    Sandbox,
    SubscriptionSpec,
    TopicSpec,
)
from servicebus_sandbox.access.authorization import RESOURCE_MANAGER

SECONDS = float(os.environ.get("PAIRED_FUZZ_SECONDS", "1.5"))
SEED = int(os.environ.get("PAIRED_FUZZ_SEED", random.randrange(2**32)))
AT_ONCE = 8
PATIENCE = 60.0
SPEC = NamespaceSpec(
    "primary",
    queues=(QueueSpec("good"), QueueSpec("victim"), QueueSpec("sessions", QueueSettings(requires_session=True))),
    topics=(TopicSpec("feed", (SubscriptionSpec("all"),)),),
)


class Log(logging.Handler):
    """Counts what is logged, by level and text."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: Counter[tuple[str, int, str]] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage() + (self.format(record) if record.exc_info else "")
        self.said[record.name, record.levelno, text] += 1


@pytest.fixture
def log() -> Iterator[Log]:
    gc.collect()  # what an earlier test of this process left open is its own, and complains now
    handler = Log()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


async def round_trips(sandbox: Sandbox, first: asyncio.Event, stop: asyncio.Event) -> tuple[int, float]:
    """What another client does all the while: how many messages went there and back, and the longest that one took."""
    done, longest = 0, 0.0
    async with (
        ServiceBusClient.from_connection_string(sandbox["primary"].connection_string, retry_total=0) as client,
        client.get_queue_sender("good") as sender,
        client.get_queue_receiver("good") as receiver,
    ):
        while not stop.is_set():
            started = time.monotonic()
            async with asyncio.timeout(PATIENCE):
                await sender.send_messages(ServiceBusMessage(str(done)))
                (message,) = await receiver.receive_messages(1, max_wait_time=PATIENCE)
                assert str(message) == str(done)
                await receiver.complete_message(message)
            done, longest = done + 1, max(longest, time.monotonic() - started)
            first.set()
    return done, longest


async def emptied(sandbox: Sandbox) -> int:
    """How many objects there are once all that was sent is deleted and every connection is over."""
    node = sandbox["primary"].node
    async with asyncio.timeout(PATIENCE):
        while node.connections:
            await asyncio.sleep(0.01)
    for path in [path for path in node.namespace.paths() if "/" not in path]:
        node.namespace.delete(path)
    SPEC.fill(node.namespace)
    node.wake()
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.timeout(SECONDS + 120)
async def test_nothing_that_is_sent_harms_anybody_else(log: Log) -> None:
    count: Counter[str] = Counter()
    async with Sandbox.start([SPEC]) as sandbox:
        owner = AsyncSandboxCredential(sandbox.control_url, "Data Owner")
        token = (await owner.get_token(RESOURCE_MANAGER[0])).token
        attackers = [Attacker(sandbox, SEED + number, token) for number in range(AT_ONCE)]
        for act in attackers[0].attacks:  # once each: whatever is loaded or cached at first use is there from now on
            with suppress(ConnectionError, aiohttp.ClientConnectionError):
                await act()
        await emptied(sandbox)
        tasks, files, objects = len(asyncio.all_tasks()), open_files(), await emptied(sandbox)

        first, stop = asyncio.Event(), asyncio.Event()
        good = asyncio.create_task(round_trips(sandbox, first, stop))
        async with asyncio.timeout(PATIENCE):
            await first.wait()
        until = time.monotonic() + SECONDS
        outcomes = await asyncio.gather(
            *(attack(attacker, until, count) for attacker in attackers), return_exceptions=True
        )
        stop.set()
        done, longest = await good

        left = await emptied(sandbox)
        async with asyncio.timeout(PATIENCE):
            while len(asyncio.all_tasks()) > tasks or open_files() > files:
                await asyncio.sleep(0.05)
    told = f"seed {SEED}: {count.total()} attacks {dict(count)}, {done} round trips, longest {longest:.2f} s"
    assert not any(outcomes), f"{told}; {outcomes}"
    assert done > 1, told
    assert left < objects * 1.05 + 2000, f"{told}; {left - objects} objects more than the {objects} before"
    assert not [said for said in log.said if said[1] >= logging.ERROR], f"{told}; {log.said}"
    assert max(log.said.values(), default=0) <= 1, f"{told}; {log.said}"
