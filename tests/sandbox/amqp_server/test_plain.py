"""SASL PLAIN at the sandbox, by the bytes of clients that put no token."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.amqp.plain_client import WRONG, init, plain_client, response

from servicebus_amqp.encoding.performatives import ACCEPTED
from servicebus_amqp.protocol import links as e
from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox
from servicebus_sandbox.broker.entity_settings import ALL_RIGHTS, AuthorizationRule, QueueSettings, Right
from servicebus_sandbox.sandbox_host import SandboxNamespace

WEB = AuthorizationRule(name="web", rights=frozenset({Right.SEND}), primary_key="right", secondary_key="second")
ENTITY = AuthorizationRule(name="one", rights=ALL_RIGHTS, primary_key="own", secondary_key="own")


@pytest.fixture
async def namespace() -> AsyncIterator[SandboxNamespace]:
    queues = [QueueSpec("orders", QueueSettings(authorization_rules=(ENTITY,))), QueueSpec("billing")]
    async with Sandbox.start([NamespaceSpec("shop", queues, rules=(WEB,))]) as running:
        yield running["shop"]


@pytest.mark.parametrize("key", ["right", "second"])
async def test_either_key_of_a_rule_opens_what_its_rights_allow(namespace: SandboxNamespace, key: str) -> None:
    async with plain_client(namespace.amqp_port, init(response("web", key))) as client:
        assert client.offered is not None
        assert "PLAIN" in client.offered.sasl_server_mechanisms
        assert client.outcome is not None
        assert (client.outcome.code, client.outcome.additional_data) == (0, b"Welcome!")
        client.open()
        assert await client.send("orders") == ACCEPTED
        refused = await client.attach_receiver("orders")
        assert isinstance(refused, e.Detached)
        assert refused.error is not None
        assert refused.error.condition == "amqp:unauthorized-access"


async def test_the_key_of_an_entity_opens_that_entity_alone(namespace: SandboxNamespace) -> None:
    async with plain_client(namespace.amqp_port, init(response("one", "own"))) as client:
        client.open()
        assert await client.send("orders") == ACCEPTED
        assert isinstance(await client.attach_receiver("orders"), e.Attached)
        refused = await client.attach_receiver("billing")
        assert isinstance(refused, e.Detached)


@pytest.mark.parametrize("sent", [each for _, each in WRONG], ids=[name for name, _ in WRONG])
async def test_what_is_no_key_is_refused(namespace: SandboxNamespace, sent: bytes | None) -> None:
    async with plain_client(namespace.amqp_port, init(sent)) as client:
        assert client.outcome is not None
        assert client.outcome.code == 1
        assert await client.is_closed()


async def test_a_password_of_64_kb_ends_its_connection_alone(namespace: SandboxNamespace) -> None:
    async with plain_client(namespace.amqp_port, init(response("web", "x" * 65536))) as client:
        assert client.outcome is None
        assert await client.is_closed()
    async with plain_client(namespace.amqp_port, init(response("web", "right"))) as client:
        client.open()
        assert await client.send("orders") == ACCEPTED
