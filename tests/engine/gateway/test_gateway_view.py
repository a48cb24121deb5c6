"""The operator's view of the gateway: who is connected, with what, where sends go, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from paired_servicebus.core.model.gateway_view import (
    MAX_CLIENTS,
    MAX_REFUSALS,
    GatewayView,
    LinkDirection,
    SendsGo,
    TurnedAway,
    without_clients,
)
from paired_servicebus.engine.gateway.gateway_census import ClientTally, GatewayCensus, GatewayPlace
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing, new_key
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from servicebus_amqp.encoding.messaging_types import Error, Rejected
from servicebus_sandbox import Sandbox
from servicebus_sandbox.fixtures.sdk_sleeps import shorten_sleeps
from tests.engine.gateway.test_gateway_front import LISTEN, SEND, Setting
from tests.pairing.conftest import World, until

PLACE = GatewayPlace("127.0.0.1", 5673, 0.0)
REJECTED = Rejected(error=Error(condition="com.microsoft:timeout", description="no answer; SharedAccessKey=c2VjcmV0"))


@pytest.fixture
async def served() -> AsyncIterator[Setting]:
    with shorten_sleeps():
        async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
            world = World(sandbox, stack)
            paired = await world.pair(
                backlog_queue_count=1, send_timeout=1.0, failover_interval=0.5, hold_until_failover=True
            )
            gateway = Gateway(paired, KeyRing([SEND, LISTEN]))
            gateway.census = GatewayCensus()
            await gateway.listen(0)
            stack.push_async_callback(gateway.close, 0.1)
            yield Setting(world, paired, gateway)


def look(served: Setting) -> GatewayView:
    """The view of this moment, not that of a second ago."""
    served.gateway.census._view = None
    return served.gateway.view(served.paired.entity_views())


async def test_sdk_and_version_from_the_open_frame_key_links_and_where_their_sends_go(served: Setting) -> None:
    """Issue 21: "SDK and version from the open frame, key, links, where their sends go, sends and refusals"."""
    client = await served.client()
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x"))
        view = look(served)
        one = view.clients[0]
        assert (view.count, view.listens, view.port) == (1, True, served.gateway.port)
        assert (one.sdk, one.version[:2], one.key) == ("Python", "7.", "web")
        assert one.address.startswith("127.0.0.1:")
        link = next(link for link in one.links if link.direction is LinkDirection.SENDS)
        assert (link.entity, link.goes, link.accepted, link.refused) == ("orders", SendsGo.PRIMARY, 1, 0)
        assert view.senders == (("orders", 1),)
        served.paired.force("orders", by="kim")
        await sender.send_messages(ServiceBusMessage(b"x"))
        one = look(served).clients[0]
        assert (one.goes, one.accepted, one.bytes_in_hand) == ({SendsGo.BACKLOG}, 2, 0)
    await client.close()
    await until(lambda: look(served).count == 0)
    assert look(served).accepted == 2


async def test_a_refused_send_shows_its_condition_its_sentence_and_since_when(served: Setting) -> None:
    client = await served.client()
    async with client.get_queue_sender("orders") as sender:
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage(b"x", application_properties={"x-ms-path": "y"}))
        (refusal,) = look(served).refusals  # the SDK has closed the connection that it came on
        assert (refusal.entity, refusal.key, refusal.sdk, refusal.count) == ("orders", "web", "Python", 1)
        assert refusal.condition == "com.microsoft:argument-error"
        assert "x-ms-path" in refusal.sentence
        assert look(served).refused == 1


async def test_clients_with_a_wrong_key_are_counted(served: Setting) -> None:
    stranger = new_key("web", [GatewayRight.SEND])
    client = await served.client(served.gateway.connection_string(stranger))
    with suppress(ServiceBusError):
        await client.get_queue_sender("orders").send_messages(ServiceBusMessage(b"x"))
    turned = {one.why: one for one in look(served).turned_away}
    assert turned[TurnedAway.WRONG_KEY].count == 1
    assert turned[TurnedAway.WRONG_KEY].times >= 1
    assert "web" in turned[TurnedAway.WRONG_KEY].last_text


async def test_clients_with_a_wrong_protocol_are_counted(served: Setting) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.port)
    writer.write(b"\x16\x03\x01\x02\x00")
    await reader.read()
    writer.close()
    assert [one.why for one in look(served).turned_away] == [TurnedAway.WRONG_PROTOCOL]


class Fake:
    """A connection without a socket."""

    def __init__(self, tally: ClientTally, *entities: str) -> None:
        self.tally = tally
        self._entities = entities

    def served_links(self) -> list[tuple[str, LinkDirection]]:
        return [(entity, LinkDirection.SENDS) for entity in self._entities]


def view_of(census: GatewayCensus, *found: Fake) -> GatewayView:
    census._view = None
    return census.view(found, (), PLACE, in_hand=(0, 100), paused=frozenset())


def test_the_view_is_bounded_and_says_how_many_more() -> None:
    census = GatewayCensus()
    found = [Fake(census.enter(), "orders") for _ in range(1000)]
    found[700].tally.sends_to("orders").refuse(REJECTED, 1.0)
    view = view_of(census, *found)
    assert (view.count, len(view.clients), view.more, view.failing) == (1000, MAX_CLIENTS, 1000 - MAX_CLIENTS, 1)
    assert view.clients[0].id == 701
    assert view.senders == (("orders", 1000),)
    assert without_clients(view).count == 1000
    assert without_clients(view).clients == ()


def test_a_series_of_refusals_ends_with_an_accepted_send() -> None:
    census = GatewayCensus()
    one = Fake(census.enter(), "orders")
    sends = one.tally.sends_to("orders")
    for at in (1.0, 2.0):
        sends.refuse(REJECTED, at)
    client = view_of(census, one).clients[0]
    assert (client.refused_since, client.last_refused_at, client.refused) == (1.0, 2.0, 2)
    assert client.last_condition == "com.microsoft:timeout"
    sends.accepted += 1
    assert not view_of(census, one).clients[0].failing
    sends.refuse(REJECTED, 9.0)
    assert view_of(census, one).clients[0].refused_since == 9.0


def test_refusals_are_folded_and_bounded() -> None:
    census = GatewayCensus()
    one = census.enter()
    for number in range(100):
        one.note_refusal(str(number % 50), float(number), "amqp:not-found", "no")
    found = view_of(census).refusals
    assert len(found) == MAX_REFUSALS
    assert (found[0].entity, found[0].last_at) == ("49", 99.0)


def test_a_refusal_shows_no_secret() -> None:
    census = GatewayCensus()
    one = Fake(census.enter())
    one.tally.sends_to("orders").refuse(REJECTED, 1.0)
    assert view_of(census, one).clients[0].last_refusal == "no answer; SharedAccessKey=***"


def test_a_send_that_outlives_its_connection_is_counted_once() -> None:
    census = GatewayCensus()
    tally = census.enter()
    sends = tally.sends_to("orders")
    sends.bytes_in_hand = 5
    census.leave(tally)
    assert view_of(census).accepted == 0
    sends.bytes_in_hand, sends.accepted = 0, 1
    assert [view_of(census).accepted for _ in range(3)] == [1, 1, 1]


def test_rates_are_over_the_last_seconds() -> None:
    now = 100.0
    census = GatewayCensus(lambda: now)
    one = Fake(census.enter())
    sends = one.tally.sends_to("orders")
    rates = []
    for sent in (10, 10, 10, 10, 10, 10, 0, 0, 0, 0, 0, 0):
        now += 1.0
        sends.accepted += sent
        rates.append(round(view_of(census, one).accepted_per_second))
    assert rates[:6] == [10] * 6
    assert rates[-1] == 0
