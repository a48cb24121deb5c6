"""SASL PLAIN at the gateway: GATEWAY.md section 4, "rights are the key's"."""

from __future__ import annotations

import pytest

from paired_servicebus.core.model.gateway_view import TurnedAway
from servicebus_amqp.encoding.performatives import ACCEPTED
from servicebus_amqp.protocol import links as e
from tests.amqp.plain_client import WRONG, init, plain_client, response
from tests.engine.gateway.rough_clients import LISTEN, SEND, gateway_of


async def test_the_name_and_the_key_open_what_the_keys_rights_allow() -> None:
    async with gateway_of() as gateway, plain_client(gateway.port, init(response(SEND.name, SEND.key))) as client:
        assert client.outcome is not None
        assert (client.outcome.code, client.outcome.additional_data) == (0, b"Welcome!")
        client.open()
        assert await client.send("orders") == ACCEPTED
        refused = await client.attach_receiver("orders")
        assert isinstance(refused, e.Detached)
        assert refused.error is not None
        assert refused.error.condition == "amqp:unauthorized-access"


async def test_a_key_that_is_removed_ends_what_it_opened() -> None:
    async with gateway_of() as gateway, plain_client(gateway.port, init(response(SEND.name, SEND.key))) as client:
        client.open()
        await client.send("orders")
        gateway.revoke(frozenset({SEND.name}))
        refused = await client.attach_receiver("orders")
        assert isinstance(refused, e.Detached)
        assert any(isinstance(event, e.Detached) and event.link.name == "to orders" for event in client.events)


@pytest.mark.parametrize("sent", [each for _, each in WRONG], ids=[name for name, _ in WRONG])
async def test_what_is_no_key_is_refused_and_counted(sent: bytes | None) -> None:
    async with gateway_of() as gateway, plain_client(gateway.port, init(sent)) as client:
        assert client.outcome is not None
        assert client.outcome.code == 1
        assert await client.is_closed()
        (turned,) = gateway.view(()).turned_away
        assert (turned.why, turned.times) == (TurnedAway.WRONG_KEY, 1)


async def test_another_keys_name_is_refused() -> None:
    async with gateway_of() as gateway, plain_client(gateway.port, init(response(SEND.name, LISTEN.key))) as client:
        assert client.outcome is not None
        assert client.outcome.code == 1


async def test_a_password_of_64_kb_ends_its_connection_alone() -> None:
    async with gateway_of() as gateway:
        async with plain_client(gateway.port, init(response(SEND.name, "x" * 65536))) as client:
            assert client.outcome is None
            assert await client.is_closed()
        async with plain_client(gateway.port, init(response(SEND.name, SEND.key))) as client:
            client.open()
            assert await client.send("orders") == ACCEPTED


async def test_a_client_with_a_key_leaves_the_strangers_with_its_open() -> None:
    async with gateway_of() as gateway, plain_client(gateway.port, init(response(SEND.name, SEND.key))) as client:
        client.open()
        await client.send("orders")
        (connection,) = gateway.connections
        assert connection._probation is None
        assert connection.tally.key == SEND.name
