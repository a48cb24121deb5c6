"""Bearer tokens end to end: credentials in azure-identity's shape, the SDK's clients, roles that suffice or do not."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusClient as SyncClient
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError
from azure.servicebus.management import ServiceBusAdministrationClient as SyncAdministrationClient

from servicebus_sandbox import AsyncSandboxCredential, Sandbox, SandboxCredential
from servicebus_sandbox.access.token_credentials import CredentialError

SCOPE = "https://servicebus.azure.net//.default"
SOON = 60.0


def address(sandbox: Sandbox) -> str:
    return f"127.0.0.1:{sandbox['primary'].amqp_port}"


def client(sandbox: Sandbox, role: str, **options: Any) -> ServiceBusClient:
    credential = AsyncSandboxCredential(sandbox.control_url, role, **options)
    return ServiceBusClient(address(sandbox), credential, use_tls=False, retry_total=0)


async def send(using: ServiceBusClient) -> None:
    async with asyncio.timeout(SOON), using, using.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))


async def receive(using: ServiceBusClient) -> int:
    async with asyncio.timeout(SOON), using, using.get_queue_receiver("orders") as receiver:
        return len(await receiver.receive_messages(1, max_wait_time=0.2))


async def test_a_role_does_what_it_says_and_no_more(sandbox: Sandbox) -> None:
    await send(client(sandbox, "Data Sender"))
    with pytest.raises(ServiceBusAuthorizationError, match="'Listen'"):
        await receive(client(sandbox, "Data Sender"))
    with pytest.raises(ServiceBusAuthorizationError, match="'Send'"):
        await send(client(sandbox, "Azure Service Bus Data Receiver"))
    assert await receive(client(sandbox, "Azure Service Bus Data Receiver")) == 1
    await send(client(sandbox, "Data Owner"))


async def test_managing_takes_the_owner(sandbox: Sandbox) -> None:
    for role in ("Data Sender", "Data Receiver", "Data Owner"):
        admin = ServiceBusAdministrationClient(
            address(sandbox),
            AsyncSandboxCredential(sandbox.control_url, role),
            connection_verify=str(sandbox.ca_file),
        )
        async with asyncio.timeout(SOON), admin:
            if role == "Data Owner":
                assert [queue.name async for queue in admin.list_queues()] == ["orders", "payments"]
            else:
                with pytest.raises(ClientAuthenticationError, match="'Manage'"):
                    await admin.get_queue("orders")


async def test_synchronous_clients(sandbox: Sandbox) -> None:
    credential = SandboxCredential(sandbox.control_url, "Data Owner")

    def use() -> str:
        with credential, SyncClient(address(sandbox), credential, use_tls=False, retry_total=0) as using:
            with using.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("x"))
            with SyncAdministrationClient(
                address(sandbox), credential, connection_verify=str(sandbox.ca_file)
            ) as admin:
                return admin.get_queue_runtime_properties("orders").name

    assert await asyncio.to_thread(use) == "orders"
    assert sandbox["primary"].node.namespace.queue("orders").counts().active == 1


class Fixed:
    """Gives one token, whatever is asked for."""

    def __init__(self, token: Any) -> None:
        self._token = token

    async def get_token(self, *_: str, **__: object) -> Any:
        return self._token


async def test_the_token_of_another_sandbox(sandbox: Sandbox) -> None:
    async with Sandbox.start() as other:
        token = await AsyncSandboxCredential(other.control_url, "Data Owner").get_token(SCOPE)
    with pytest.raises(ServiceBusAuthenticationError):
        await send(ServiceBusClient(address(sandbox), Fixed(token), use_tls=False, retry_total=0))


async def test_a_token_for_something_else(sandbox: Sandbox) -> None:
    for_arm = AsyncSandboxCredential(sandbox.control_url, "Data Owner")
    token = await for_arm.get_token("https://management.azure.com/.default")
    with pytest.raises(ServiceBusAuthenticationError):
        await send(ServiceBusClient(address(sandbox), Fixed(token), use_tls=False, retry_total=0))


async def test_tokens_are_good_for_every_namespace(sandbox: Sandbox) -> None:
    name = f"127.0.0.1:{sandbox['secondary'].amqp_port}"
    sandbox["secondary"].node.namespace.create_queue("orders")
    async with AsyncSandboxCredential(sandbox.control_url, "Data Sender") as credential:
        await send(ServiceBusClient(name, credential, use_tls=False, retry_total=0))
    assert sandbox["secondary"].node.namespace.queue("orders").counts().active == 1


async def test_what_cannot_be_asked_for(sandbox: Sandbox) -> None:
    with pytest.raises(CredentialError, match="unknown role 'Emperor'"):
        await AsyncSandboxCredential(sandbox.control_url, "Emperor").get_token(SCOPE)
    with pytest.raises(CredentialError, match="lifetime has to be seconds"):
        await asyncio.to_thread(SandboxCredential(sandbox.control_url, "Data Owner", lifetime=0).get_token, SCOPE)
    for scopes in ((), (SCOPE, SCOPE)):
        with pytest.raises(ValueError, match="one scope"):
            await AsyncSandboxCredential(sandbox.control_url, "Data Owner").get_token(*scopes)


async def test_a_sandbox_that_is_gone() -> None:
    async with Sandbox.start() as sandbox:
        url = sandbox.control_url
    with pytest.raises(CredentialError, match="does the sandbox run"):
        await AsyncSandboxCredential(url, "Data Owner").get_token(SCOPE)
    with pytest.raises(CredentialError, match="does the sandbox run"):
        SandboxCredential(url, "Data Owner").get_token(SCOPE)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"role": 1, "scope": SCOPE}, "role and scope have to be strings"),
        ({"role": "Data Owner"}, "role and scope have to be strings"),
        ({"role": "Data Owner", "scope": SCOPE, "lifetime": "long"}, "lifetime has to be seconds"),
        ({"role": "Data Owner", "scope": SCOPE, "lifetime": 1e9}, "at most 86400"),
        ({"role": "Data Owner", "scope": SCOPE, "who": "me"}, "unknown field 'who'; known are role, scope, lifetime"),
        ([], "has to be an object with role, scope, lifetime"),
    ],
)
async def test_the_control_url_says_what_is_wrong(sandbox: Sandbox, body: object, sentence: str) -> None:
    async with aiohttp.ClientSession() as session, session.post(f"{sandbox.control_url}/tokens", json=body) as answer:
        assert answer.status == 400
        assert sentence in (await answer.json())["error"]
