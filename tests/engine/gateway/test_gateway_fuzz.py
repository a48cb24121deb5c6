"""Whatever is sent to a gateway's port, its clients go on sending, nothing of it stays, and the log tells it once.

"The fuzzer of the sandbox's entry runs against the gateway's: 0 crashes, others unaffected." Runs 1.5 seconds, or as
many as PAIRED_FUZZ_SECONDS has; PAIRED_FUZZ_SEED repeats a run's draws.
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
from contextlib import AsyncExitStack

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.engine.gateway.admission import QUIET_SECONDS
from paired_servicebus.engine.gateway.front_connection import FrontConnection
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing, new_key
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from servicebus_sandbox import (
    NamespaceSpec,
    QueueSettings,
    QueueSpec,
    Sandbox,
    SubscriptionSpec,
    TopicSpec,
)
from servicebus_sandbox.fixtures.sdk_sleeps import shorten_sleeps
from tests.pairing.conftest import World, until
from tests.sandbox.fuzzing import FrameAttacker, attack, open_files

SECONDS = float(os.environ.get("PAIRED_FUZZ_SECONDS", "1.5"))
SEED = int(os.environ.get("PAIRED_FUZZ_SEED", random.randrange(2**32)))
AT_ONCE = 6
PATIENCE = 60.0
ALL_RIGHTS = new_key("all", GatewayRight)
PRIMARY = NamespaceSpec(
    "primary",
    queues=(QueueSpec("good"), QueueSpec("victim"), QueueSpec("sessions", QueueSettings(requires_session=True))),
    topics=(TopicSpec("feed", (SubscriptionSpec("all"),)),),
)
GATEWAY = "paired_servicebus.engine.gateway"


class Log(logging.Handler):
    """Collects what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def errors(self) -> list[str]:
        return [self.format(record) for record in self.records if record.levelno >= logging.ERROR]

    def kinds(self) -> Counter[str]:
        """Count the gateway's lines by their kind."""
        lines = (record for record in self.records if record.name.startswith(GATEWAY))
        return Counter(str(record.args[0]) for record in lines if isinstance(record.args, tuple))


@pytest.fixture
def log() -> Iterator[Log]:
    gc.collect()  # what an earlier test of this process left open is its own, and complains now
    handler = Log()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


async def send_on(gateway: Gateway, stop: asyncio.Event) -> tuple[int, float]:
    """Send one by one on one link, all the while; return their number and the longest time of one."""
    done, longest = 0, 0.0
    async with (
        ServiceBusClient.from_connection_string(gateway.connection_string(ALL_RIGHTS), retry_total=0) as client,
        client.get_queue_sender("good") as sender,
    ):
        while not stop.is_set():
            started = time.monotonic()
            async with asyncio.timeout(PATIENCE):
                await sender.send_messages(ServiceBusMessage(b"x", message_id=str(done)))
            done, longest = done + 1, max(longest, time.monotonic() - started)
    return done, longest


def alive(kind: type) -> int:
    gc.collect()
    return sum(isinstance(each, kind) for each in gc.get_objects())


@pytest.mark.timeout(SECONDS + 120)
async def test_nothing_that_is_sent_to_a_gateway_harms_its_clients(log: Log) -> None:
    count: Counter[str] = Counter()
    with shorten_sleeps():
        async with Sandbox.start([PRIMARY, NamespaceSpec("secondary")]) as sandbox, AsyncExitStack() as stack:
            world = World(sandbox, stack)
            paired = await world.pair(backlog_queue_count=1, hold_until_failover=True, send_timeout=10.0)
            gateway = Gateway(paired, KeyRing([ALL_RIGHTS]))
            await gateway.listen(0)
            stack.push_async_callback(gateway.close, 0)
            attackers = [
                FrameAttacker(
                    gateway.port, SEED + number, audience="sb://x/", key_name=ALL_RIGHTS.name, key=ALL_RIGHTS.key
                )
                for number in range(AT_ONCE)
            ]
            files, before = open_files(), alive(FrontConnection)  # of other tests in this process

            stop, end = asyncio.Event(), time.monotonic() + SECONDS
            good = asyncio.create_task(send_on(gateway, stop))
            outcomes = await asyncio.gather(
                *(attack(attacker, end, count) for attacker in attackers), return_exceptions=True
            )
            stop.set()
            done, longest = await good
            told = f"seed {SEED}: {count.total()} attacks {dict(count)}, {done} sends, longest {longest:.2f} s"
            assert not any(outcomes), f"{told}; {outcomes}"
            assert done > SECONDS, told
            assert world.ids_in("good") == [str(number) for number in range(done)], f"{told}; lost, or twice"

            await until(lambda: not gateway.connections and not gateway._tasks, PATIENCE)
            assert (gateway.in_hand.size, len(gateway.admission)) == (0, 0), told
            assert alive(FrontConnection) <= before, told
            assert open_files() <= files + 4, f"{told}; {files} files before"  # the pairing's own connections
    assert not log.errors(), f"{told}; {log.errors()[0]}"
    assert max(log.kinds().values(), default=0) <= 1 + SECONDS / QUIET_SECONDS, f"{told}; {log.kinds()}"
