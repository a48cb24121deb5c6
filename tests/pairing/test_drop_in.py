"""Code written for the SDK's asynchronous client works with a paired one: same names, same parameters."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from paired_servicebus import Namespace, pair_namespaces
from paired_servicebus.core.errors import ConfigurationError, PairingClosedError
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.sdk_internals import retry_pauses
from servicebus_sandbox.broker.topology.namespace import QueueSettings
from tests.surface import differences, missing_parameters

from .conftest import World


async def test_every_name_and_parameter_of_the_sdks_client_is_accepted(world: World) -> None:
    paired = await world.pair()
    async with world.client("primary") as plain:
        assert differences(plain, paired, refused={"from_connection_string"}) == []
    with pytest.raises(ConfigurationError, match="pass two clients to pair_namespaces"):
        PairedServiceBusClient.from_connection_string("Endpoint=sb://contoso/", retry_total=0)


async def test_every_name_and_parameter_of_the_sdks_sender_and_receiver_is_accepted(world: World) -> None:
    paired = await world.pair()
    async with world.client("primary") as plain:
        assert differences(plain.get_queue_sender("orders"), paired.get_queue_sender("orders"), refused=set()) == []
        theirs, ours = plain.get_queue_receiver("orders"), paired.get_queue_receiver("orders")
        assert differences(theirs, ours, refused=set()) == []


def test_the_comparison_sees_what_is_missing() -> None:
    def theirs(name: str, *, timeout: float | None = None, mode: int = 0, **more: Any) -> None: ...

    def ours(*, name: str, mode: int = 1) -> None: ...

    assert missing_parameters(theirs, ours) == [
        "name is not parameter 1",
        "timeout is missing",
        "mode defaults to 1 instead of 0",
    ]
    assert "capitalize is missing" in differences("text", 5, refused=set())


async def test_the_options_of_a_sender_are_those_of_its_link_to_the_primary(world: World) -> None:
    paired = await world.pair()
    sender = paired.get_queue_sender("orders", client_identifier="checkout-7", socket_timeout=3.5)
    assert sender.client_identifier == "checkout-7"
    assert sender.fully_qualified_namespace == paired.fully_qualified_namespace
    assert "checkout-7" in str(sender)
    for _ in range(2):  # each link that is opened for it
        plain: Any = sender._primary._make()
        assert (plain.client_identifier, plain._config.socket_timeout) == ("checkout-7", 3.5)
    assert paired.get_topic_sender("orders", client_identifier="checkout-8").client_identifier == "checkout-8"


async def test_a_sender_without_options_has_an_identifier_of_its_own(world: World) -> None:
    paired = await world.pair()
    first, second = paired.get_queue_sender("orders"), paired.get_queue_sender("orders")
    assert first.client_identifier == first.client_identifier != second.client_identifier
    assert first.client_identifier == first._primary._sender.client_identifier  # type: ignore[union-attr] # made


async def test_a_link_with_a_name_of_its_own_does_not_become_another_one(world: World) -> None:
    """After a failback a sender takes the link of the ping; that has another identifier."""
    paired = await world.pair()
    named, plain = paired.get_queue_sender("orders", client_identifier="mine"), paired.get_queue_sender("orders")
    proven = paired._primaries._ping_link("orders")
    await proven.open(5.0)
    assert not named._primary.adopt(proven)
    assert plain._primary.adopt(proven)


async def test_sessions_of_the_primary_are_listed(world: World) -> None:
    world.sandbox["primary"].node.namespace.create_queue("by-session", QueueSettings(requires_session=True))
    paired = await world.pair()
    async with world.client("primary") as client, client.get_queue_sender("by-session") as sender:
        await sender.send_messages(ServiceBusMessage(b"x", session_id="a"))
    assert [name async for name in paired.list_queue_sessions("by-session", timeout=10)] == ["a"]
    await paired.close()
    for listed in (paired.list_queue_sessions, lambda path: paired.list_subscription_sessions(path, "all")):
        with pytest.raises(PairingClosedError):
            listed("by-session")


# -- A paired receiver survives whatever the SDK's receiver survives (SPEC.md section 3).


FAULTS = ["detached", "disconnected"]


def namespace(world: World, name: str, **messaging: Any) -> Namespace:
    text = world.sandbox[name].connection_string
    options = {"connection_verify": str(world.sandbox.ca_file)}
    return Namespace.from_connection_string(text, options=options, messaging=messaging)


async def pair(world: World, **messaging: Any) -> PairedServiceBusClient:
    opening = pair_namespaces(
        namespace(world, "primary", **messaging), namespace(world, "secondary"), primary_name="primary"
    )
    return await world.stack.enter_async_context(opening)


async def send(paired: PairedServiceBusClient, path: str, *bodies: str) -> None:
    async with paired.get_queue_sender(path) as sender:
        await sender.send_messages([ServiceBusMessage(body) for body in bodies])


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_iteration_goes_on_after_a_lost_link(world: World, fault: str) -> None:
    """A paired receiver survives whatever the SDK's receiver survives, in iteration."""
    paired = await pair(world)
    await send(paired, "orders", "0", "1", "2", "3")
    found = []
    async with paired.get_queue_receiver("orders", max_wait_time=3) as receiver, asyncio.timeout(20):
        async for message in receiver:
            found.append(str(message))
            await receiver.complete_message(message)
            if len(found) == 2:
                world.fault(fault)()
    assert found == ["0", "1", "2", "3"]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_waiting_receiver_goes_on_after_a_lost_link(world: World, fault: str) -> None:
    """In `receive_messages`, in waiting."""
    paired = await pair(world)
    async with paired.get_queue_receiver("orders") as receiver, asyncio.timeout(20):
        waiting = asyncio.create_task(receiver.receive_messages(1, max_wait_time=15))
        await asyncio.sleep(0)
        world.fault(fault)()
        await send(paired, "orders", "later")
        found = await waiting
        assert [str(message) for message in found] == ["later"]
        await receiver.complete_message(found[0])


@pytest.mark.parametrize(("chosen", "sends", "receives"), [({}, 0, 3), ({"retry_total": 5}, 5, 5)])
async def test_only_sends_run_without_retries(world: World, chosen: dict[str, int], sends: int, receives: int) -> None:
    """Clients that receive for the application keep the SDK's retries (or the caller's own)."""
    one = namespace(world, "primary", **chosen)
    async with one.client() as sending, one.receiving_client() as receiving:
        assert (len(retry_pauses(sending)), len(retry_pauses(receiving))) == (sends, receives)
