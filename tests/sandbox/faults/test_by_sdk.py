"""Every fault ordered as data at the control URL, and what the SDK's clients see of it: the class they raise, by
the SDK's tables of errors, and what the queue holds afterwards. What else keeps working is asked beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox

IN_TIME = 1.0
"""For what is to have no answer. What is to have one waits longer: a machine may be busy."""


def in_time(seen: type[Exception]) -> float:
    return IN_TIME if seen is OperationTimeoutError else 60.0


MESSAGING = ["attach", "send", "receive", "settle"]


@dataclass
class Broken:
    """A sandbox and what breaks it; `client` retries nothing."""

    sandbox: Sandbox
    session: aiohttp.ClientSession
    client: ServiceBusClient
    admin: ServiceBusAdministrationClient
    senders: list[ServiceBusSender] = field(default_factory=list)

    async def by(self, fault: str, **terms: Any) -> str:
        """Begin a fault of the primary namespace; its id."""
        body = {"namespace": "primary", "fault": fault, **terms}
        async with self.session.post(f"{self.sandbox.control_url}/faults", json=body) as answer:
            told = await answer.json()
            assert answer.status == 201, told
            return str(told["id"])

    async def mend(self, fault: str) -> None:
        async with self.session.delete(f"{self.sandbox.control_url}/faults/{fault}") as answer:
            assert answer.status == 200

    async def advance(self, seconds: float) -> None:
        async with self.session.post(f"{self.sandbox.control_url}/clock", json={"advance_s": seconds}) as answer:
            assert answer.status == 200

    async def sender(self, entity: str = "orders") -> ServiceBusSender:
        """One whose links are open."""
        sender = await self.client.get_queue_sender(entity).__aenter__()
        self.senders.append(sender)
        return sender

    async def send(
        self, sender: ServiceBusSender | None = None, entity: str = "orders", *, within: float = 60.0
    ) -> None:
        sender = sender or self.client.get_queue_sender(entity)
        async with asyncio.timeout(60):
            try:
                await sender.send_messages(ServiceBusMessage("x"), timeout=within)
            finally:
                if sender not in self.senders:
                    await sender.close()

    def receiver(self) -> ServiceBusReceiver:
        return self.client.get_queue_receiver("orders")

    async def receive_and_complete(self) -> int:
        async with asyncio.timeout(60), self.receiver() as receiver:
            messages = await receiver.receive_messages(1, max_wait_time=5)
            for message in messages:
                await receiver.complete_message(message)
            return len(messages)

    async def peek(self, *, within: float = 60.0) -> int:
        async with asyncio.timeout(60), self.receiver() as receiver:
            return len(await receiver.peek_messages(1, timeout=within))

    @property
    def held(self) -> int:
        return self.sandbox["primary"].node.namespace.queue("orders").counts().total


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox.start([NamespaceSpec("primary", queues=[QueueSpec("orders"), QueueSpec("payments")])]) as begun:
        yield begun


@pytest.fixture
async def broken(sandbox: Sandbox) -> AsyncIterator[Broken]:
    connection_string = sandbox["primary"].connection_string
    admin = ServiceBusAdministrationClient.from_connection_string(
        connection_string, connection_verify=str(sandbox.ca_file), retry_total=0
    )
    client = ServiceBusClient.from_connection_string(connection_string, retry_total=0)
    async with aiohttp.ClientSession() as session, client, admin:
        broken = Broken(sandbox, session, client, admin)
        yield broken
        for sender in broken.senders:
            await sender.close()


LIVING: list[tuple[str, dict[str, Any], type[Exception], int]] = [
    ("busy", {"entity": "orders"}, ServiceBusServerBusyError, 0),
    ("busy", {"operations": ["send"]}, ServiceBusServerBusyError, 0),
    ("unanswered", {"entity": "orders"}, OperationTimeoutError, 1),
    ("acknowledgement-lost", {"entity": "orders"}, ServiceBusConnectionError, 1),
    ("detached", {"entity": "orders", "operations": ["send"]}, ServiceBusConnectionError, 0),
    ("disconnected", {"entity": "orders", "operations": ["send"]}, ServiceBusConnectionError, 0),
    ("disabled", {"entity": "orders", "operations": ["send"]}, ServiceBusConnectionError, 0),  # detached
    ("not-found", {"entity": "orders", "operations": ["send"]}, ServiceBusConnectionError, 0),  # detached
    ("unauthorized", {"entity": "orders", "operations": ["send"]}, ServiceBusConnectionError, 0),  # detached
    ("full", {"entity": "orders"}, ServiceBusQuotaExceededError, 0),
    ("reset", {"entity": "orders", "operations": ["send"]}, ServiceBusConnectionError, 0),
    ("latency", {"entity": "orders", "delay_s": 4.0}, OperationTimeoutError, 1),
    ("refused", {}, ServiceBusConnectionError, 0),
    ("reset", {}, ServiceBusConnectionError, 0),
    ("black-holed", {}, OperationTimeoutError, 0),
    ("black-holed", {"direction": "out"}, OperationTimeoutError, 1),
    ("black-holed", {"entity": "orders", "operations": ["send"]}, OperationTimeoutError, 0),
    ("half-open", {}, OperationTimeoutError, 0),
]


@pytest.mark.parametrize(("fault", "terms", "seen", "held"), LIVING, ids=lambda value: str(value)[:40])
async def test_a_living_sender(
    broken: Broken, fault: str, terms: dict[str, Any], seen: type[Exception], held: int
) -> None:
    sender = await broken.sender()
    begun = await broken.by(fault, **terms)
    with pytest.raises(seen) as caught:
        await broken.send(sender, within=in_time(seen))
    assert type(caught.value) is seen
    assert broken.held == held
    if "entity" in terms:
        await broken.send(entity="payments")
    await broken.mend(begun)
    await broken.send()


NEW: list[tuple[str, dict[str, Any], type[Exception]]] = [
    ("disabled", {"entity": "orders"}, MessagingEntityDisabledError),
    ("not-found", {"entity": "orders"}, MessagingEntityNotFoundError),
    ("unauthorized", {"entity": "orders"}, ServiceBusAuthorizationError),
    ("refused", {"entity": "orders"}, ServiceBusError),
    ("busy", {"entity": "orders", "operations": ["attach"]}, ServiceBusServerBusyError),
    ("black-holed", {"entity": "orders"}, OperationTimeoutError),
    ("refused", {}, ServiceBusConnectionError),
    ("reset", {}, ServiceBusConnectionError),
    ("black-holed", {}, OperationTimeoutError),
    ("refused", {"operations": ["contact"]}, ServiceBusConnectionError),
    ("unauthorized", {"operations": ["contact"]}, ServiceBusAuthenticationError),
    (
        "node-restart",
        {"entities": ["orders", "payments"], "duration_s": 60, "slow_s": 60, "delay_s": 1},
        ServiceBusError,
    ),
]


@pytest.mark.parametrize(("fault", "terms", "seen"), NEW, ids=lambda value: str(value)[:40])
async def test_a_new_sender(broken: Broken, fault: str, terms: dict[str, Any], seen: type[Exception]) -> None:
    begun = await broken.by(fault, **terms)
    with pytest.raises(seen) as caught:
        await broken.send(within=in_time(seen))
    assert type(caught.value) is seen
    assert broken.held == 0
    await broken.mend(begun)
    await broken.send()
    assert broken.held == 1


async def test_sending_alone_fails(broken: Broken) -> None:
    await broken.send()
    await broken.by("disabled", operations=["send"])
    with pytest.raises(MessagingEntityDisabledError):
        await broken.send()
    assert await broken.peek() == 1
    assert await broken.receive_and_complete() == 1
    assert (await broken.admin.get_queue("orders")).name == "orders"


async def test_receiving_alone_fails(broken: Broken) -> None:
    await broken.by("disabled", operations=["receive"])
    await broken.send()
    with pytest.raises(MessagingEntityDisabledError):
        await broken.receive_and_complete()
    assert broken.held == 1
    assert (await broken.admin.get_queue("orders")).name == "orders"


@pytest.mark.parametrize(
    ("fault", "seen", "over_http"),
    [
        ("busy", ServiceBusServerBusyError, HttpResponseError),
        ("unauthorized", ServiceBusError, ClientAuthenticationError),
        ("black-holed", OperationTimeoutError, None),
        ("refused", ServiceBusError, (ServiceRequestError, ServiceResponseError)),
    ],
)
async def test_managing_alone_fails(broken: Broken, fault: str, seen: type[Exception], over_http: Any) -> None:
    await broken.by(fault, operations=["manage"])
    await broken.send()
    with pytest.raises(seen):
        await broken.peek(within=in_time(seen))
    with pytest.raises(over_http or TimeoutError):
        async with asyncio.timeout(60.0 if over_http else IN_TIME):
            await broken.admin.get_queue("orders")
    assert await broken.receive_and_complete() == 1


async def test_making_contact_alone_fails(broken: Broken) -> None:
    """Who is connected goes on where only the tokens of new connections are refused."""
    sender = await broken.sender()
    await broken.by("unauthorized", operations=["contact"])
    with pytest.raises(ServiceBusAuthenticationError):
        await broken.send()
    await broken.send(sender)
    assert broken.held == 1


@pytest.mark.parametrize(
    ("fault", "seen"), [("disabled", MessagingEntityDisabledError), ("black-holed", OperationTimeoutError)]
)
async def test_managing_works_while_messaging_fails(broken: Broken, fault: str, seen: type[Exception]) -> None:
    await broken.by(fault, operations=MESSAGING)
    with pytest.raises(seen):
        await broken.send(within=in_time(seen))
    assert (await broken.admin.get_queue("orders")).name == "orders"
    assert [queue.name async for queue in broken.admin.list_queues()] == ["orders", "payments"]


async def test_settling_alone_fails_and_the_message_stays_locked(broken: Broken) -> None:
    await broken.send()
    await broken.by("busy", entity="orders", operations=["settle"])
    async with asyncio.timeout(60), broken.receiver() as receiver:
        (message,) = await receiver.receive_messages(1, max_wait_time=5)
        with pytest.raises(ServiceBusError):
            await receiver.complete_message(message)
    assert broken.held == 1
