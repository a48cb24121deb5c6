"""A credential that never answers (SPEC.md section 5): calls end in time, and the other namespace is used."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

import paired_servicebus.sync
from paired_servicebus import Namespace, pair_namespaces
from servicebus_sandbox import AsyncSandboxCredential, SandboxCredential

from .conftest import World, until

OPTIONS: dict[str, Any] = {
    "backlog_queue_count": 1,
    "primary_name": "primary",
    "send_timeout": 2.0,
    "failover_interval": 0,
    "ping_primary_interval": 1.0,
    "ping_timeout": 1.0,
}
GRACE = 3.0
"""Seconds for a busy machine, beyond the deadlines."""


class Hanging:
    """A credential of azure-identity's form, which hangs from when it is told to."""

    def __init__(self, url: str, *, hangs: bool) -> None:
        self._inner = AsyncSandboxCredential(url, "Data Owner")
        self.hangs = hangs

    async def get_token(self, *scopes: str, **_: object) -> Any:
        while self.hangs:
            await asyncio.sleep(0.05)
        return await self._inner.get_token(*scopes)

    async def close(self) -> None:
        """Nothing is held."""


class HangingOnThread:
    """The same for synchronous clients."""

    def __init__(self, url: str, *, hangs: bool) -> None:
        self._inner = SandboxCredential(url, "Data Owner")
        self.hangs = hangs

    def get_token(self, *scopes: str, **_: object) -> Any:
        while self.hangs:
            time.sleep(0.05)
        return self._inner.get_token(*scopes)

    def close(self) -> None:
        """Nothing is held."""


def namespaces(world: World, credential: object) -> tuple[Namespace, Namespace]:
    """Return the primary with the credential, and the secondary with its key."""
    options = {"connection_verify": str(world.sandbox.ca_file)}
    address = f"127.0.0.1:{world.sandbox['primary'].amqp_port}"
    text = world.sandbox["secondary"].connection_string
    primary = Namespace(address, credential, options, {"use_tls": False})
    return primary, Namespace.from_connection_string(text, options=options)


@pytest.mark.parametrize("kind", [Hanging, HangingOnThread])
@pytest.mark.parametrize("hangs", [True, False], ids=["from the start", "later"])
async def test_every_call_ends_in_time_and_an_alarm_names_it(world: World, kind: Any, hangs: bool) -> None:
    """A credential that answers no request for a token is a timeout of the links that need one: it counts, and an
    alarm names it."""
    credential = kind(world.sandbox.control_url, hangs=hangs)
    try:
        async with pair_namespaces(*namespaces(world, credential), **OPTIONS) as paired:
            began = time.monotonic()
            async with paired.get_queue_sender("orders") as sender:
                if not hangs:
                    await sender.send_messages(ServiceBusMessage("warm"))
                    credential.hangs = True
                    world.fault("disconnected")()
                for number in range(5):
                    await sender.send_messages(ServiceBusMessage(str(number)))
                assert time.monotonic() - began <= 3 * OPTIONS["send_timeout"] + GRACE
                assert world.parked(1) == 5
                await until(lambda: any(f"{kind.__name__}, has given no token" in alarm for alarm in paired.alarms()))
                assert sum(thread.name == "a credential's token" for thread in threading.enumerate()) <= 1
                credential.hangs = False
                await until(lambda: not any("no token" in alarm for alarm in paired.alarms()))
            began = time.monotonic()
        assert time.monotonic() - began <= GRACE
    finally:
        credential.hangs = False


def test_the_synchronous_client(servicebus_sandbox: Any) -> None:
    """The same through the synchronous door; a thread that hangs does not hold the program's end."""
    credential = HangingOnThread(servicebus_sandbox.control_url, hangs=True)
    world = World(servicebus_sandbox, None)  # type: ignore[arg-type]
    try:
        with paired_servicebus.sync.pair_namespaces(*namespaces(world, credential), **OPTIONS) as paired:
            with paired.get_queue_sender("orders") as sender:
                began = time.monotonic()
                sender.send_messages(ServiceBusMessage("x"))
                assert time.monotonic() - began <= OPTIONS["send_timeout"] + GRACE
            assert all(thread.daemon for thread in threading.enumerate() if thread.name == "a credential's token")
    finally:
        credential.hangs = False
