"""Clients of Microsoft's SDKs that know nothing but a connection string send through the gateway."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from paired_servicebus.bench.amqp_loads import SampleMessages
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.envelope import PATH, PING_CONTENT_TYPE
from paired_servicebus.core.model.gateway_view import (
    MAX_CLIENTS,
    MAX_REFUSALS,
    GatewayView,
    LinkDirection,
    SendsGo,
    TurnedAway,
    without_clients,
)
from paired_servicebus.engine.gateway.front_links import seconds_for
from paired_servicebus.engine.gateway.gateway_census import ClientTally, GatewayCensus, GatewayPlace
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing, LocalKey, new_key
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from paired_servicebus.engine.gateway.relay_connection import RelayConnection
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from paired_servicebus.pairing.sending.encoded_sender import EncodedSender
from servicebus_amqp import transport
from servicebus_amqp.encoding.codec import Array, Symbol, Timestamp, UInt, described, encode
from servicebus_amqp.encoding.performatives import ACCEPTED, Error, Rejected
from servicebus_sandbox import Sandbox
from servicebus_sandbox.broker.entity_settings import Behavior, QueueSettings, Tier
from servicebus_sandbox.faults import Direction, FaultTerms
from servicebus_sandbox.specs import NamespaceSpec, QueueSpec
from tests.pairing.backlogs import queue_path
from tests.pairing.conftest import TRUST, World, until
from tests.sandbox.amqp_server.dotnet import BATCH_FORMAT, DotNet, Link, Refused
from tests.sandbox.amqp_server.dotnet_values import batch, composite, message

SEND, LISTEN = new_key("web", [GatewayRight.SEND]), new_key("reader", [GatewayRight.LISTEN])
BACKLOG = queue_path(0)
ONE_READ = 256 * 1024
"""Bytes that asyncio hands over together; a flood of ten times as much has to wait in the client."""


class Setting:
    """A gateway over a pairing of two sandboxed namespaces."""

    def __init__(self, world: World, paired: PairedServiceBusClient, gateway: Gateway) -> None:
        self.world = world
        self.paired = paired
        self.gateway = gateway

    async def client(self, connection_string: str = "") -> ServiceBusClient:
        given = connection_string or self.gateway.connection_string(SEND)
        client = ServiceBusClient.from_connection_string(given, retry_total=0, ssl_context=TRUST)
        return await self.world.stack.enter_async_context(client)


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
        world = World(sandbox, stack)
        paired = await world.pair(
            backlog_queue_count=1, send_timeout=1.0, failover_interval=0.5, hold_until_failover=True
        )
        gateway = Gateway(paired, KeyRing([SEND, LISTEN]))
        await gateway.listen(0)
        stack.push_async_callback(gateway.close, 0.1)
        yield Setting(world, paired, gateway)


async def test_a_connection_string_is_all_that_a_client_needs(setting: Setting) -> None:
    client = await setting.client()
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x", message_id="single", subject="s"))
        await sender.send_messages([ServiceBusMessage(b"y", message_id=name) for name in ("a", "b")])
    assert setting.world.ids_in("orders") == ["single", "a", "b"]
    assert setting.gateway.in_hand.size == 0


async def test_a_healthy_send_starts_no_task(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await setting.client()
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x", message_id="first"))
        started: list[object] = []
        monkeypatch.setattr(setting.gateway, "start", started.append)
        await sender.send_messages(ServiceBusMessage(b"x", message_id="second"))
    assert setting.world.ids_in("orders") == ["first", "second"]
    assert (started, setting.gateway.in_hand.size) == ([], 0)


async def test_memory_is_bounded_by_bytes_and_all_arrive_when_there_is_room(setting: Setting) -> None:
    """Memory is bounded by bytes (64 MB of sends in hand an engine)."""
    in_hand, letters, count = setting.gateway.in_hand, SampleMessages(9_000), 300
    in_hand._most = 20_000
    wire = ReconnectingConnection(Endpoint.of(await setting.client()))
    answers, lost = list[object](), list[object]()
    link = await wire.sender("orders", on_outcome=lambda event: answers.append(event.state), on_lost=lost.append)
    fault = setting.world.sandbox["primary"].node.faults.add(
        "latency", terms=FaultTerms(direction=Direction.OUT, delay_s=0.2)
    )
    for number in range(count):
        link.send(letters.next(), number.to_bytes(4, "big"))
    await until(lambda: in_hand.size >= 20_000)
    await asyncio.sleep(0.1)  # more would come now
    assert in_hand.size < 20_000 + ONE_READ
    setting.world.sandbox["primary"].node.faults.remove(fault.id)
    await until(lambda: len(answers) == count)
    assert (answers, in_hand.size, lost) == ([ACCEPTED] * count, 0, [])
    assert len(setting.world.ids_in("orders")) == count
    await wire.close()


async def test_a_failover_steers_a_client_that_knows_nothing_of_it(setting: Setting) -> None:
    client = await setting.client()
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x", message_id="before"))
        setting.paired.force("orders", by="kim")
        await sender.send_messages(ServiceBusMessage(b"x", message_id="parked"))
        setting.paired.pin("orders", by="kim")
        await sender.send_messages(ServiceBusMessage(b"x", message_id="after"))
    assert setting.world.ids_in("orders") == ["before", "after"]
    assert setting.world.ids_in(BACKLOG, namespace="secondary") == ["parked"]


async def test_a_client_that_connects_during_the_outage_sends_and_the_primary_is_not_asked(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def find_entity(path: str, _: float) -> tuple[int, int]:
        asked.append(path)
        return 1, 1

    monkeypatch.setattr(setting.paired, "find_entity", find_entity)
    setting.paired.watch("orders")
    setting.paired.force("orders", by="kim")
    setting.world.fault("refused")
    client = await setting.client()
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x", message_id="parked"))
    assert setting.world.ids_in(BACKLOG, namespace="secondary") == ["parked"]
    assert asked == []


async def test_an_unknown_entity_during_an_outage_is_answered_with_what_every_sdk_retries(setting: Setting) -> None:
    setting.world.fault("refused")
    client = await setting.client()
    with pytest.raises(OperationTimeoutError):
        await client.get_queue_sender("orders").__aenter__()


async def test_a_wrong_key_and_a_missing_right_are_refused(setting: Setting) -> None:
    wrong = re.sub("SharedAccessKey=[^;]*", "SharedAccessKey=d3Jvbmc=", setting.gateway.connection_string(SEND))
    with pytest.raises(ServiceBusAuthenticationError):
        await (await setting.client(wrong)).get_queue_sender("orders").__aenter__()
    reader = await setting.client(setting.gateway.connection_string(LISTEN))
    with pytest.raises(ServiceBusAuthorizationError, match="Send"):
        await reader.get_queue_sender("orders").__aenter__()
    assert setting.paired.is_diverting("orders") is None


async def test_an_entity_that_does_not_exist_is_refused_and_never_fails_over(setting: Setting) -> None:
    client = await setting.client()
    with pytest.raises(MessagingEntityNotFoundError):
        await client.get_queue_sender("nowhere").__aenter__()
    assert setting.paired.is_diverting("nowhere") is None


async def test_a_drain_lets_clients_have_their_turn_as_long_as_there_are_any(setting: Setting) -> None:
    loop = asyncio.get_running_loop()
    client = await setting.client()
    async with client.get_queue_sender("orders"):
        assert transport._clients[loop] == len(setting.gateway.connections) == 1
    await until(lambda: not setting.gateway.connections)
    assert transport._clients[loop] == 0


async def test_only_loopback_and_a_free_port_are_bound(setting: Setting) -> None:
    other = Gateway(setting.paired, KeyRing([SEND]))
    with pytest.raises(ConfigurationError, match="not on loopback"):
        await other.listen(0, host="0.0.0.0")
    with pytest.raises(ConfigurationError, match="choose another port"):
        await other.listen(setting.gateway.port)


async def test_closing_waits_for_sends_and_ends_the_connections(setting: Setting) -> None:
    client = await setting.client()
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x", message_id="before"))
        setting.world.sandbox["primary"].node.faults.add(
            "latency", terms=FaultTerms(direction=Direction.OUT, delay_s=0.3)
        )
        under_way = asyncio.create_task(sender.send_messages(ServiceBusMessage(b"x", message_id="under way")))
        await until(lambda: setting.gateway.in_hand.size)
        await setting.gateway.close(5.0)
        await until(lambda: not setting.gateway.connections)
        assert await asyncio.gather(under_way, return_exceptions=True) == [None]
    assert setting.world.ids_in("orders") == ["before", "under way"]


# -- The operator's view of the gateway: who is connected, with what, where sends go, and what is refused.


PLACE = GatewayPlace("127.0.0.1", 5673, 0.0)
REJECTED = Rejected(error=Error(condition="com.microsoft:timeout", description="no answer; SharedAccessKey=c2VjcmV0"))


@pytest.fixture
def served(setting: Setting) -> Setting:
    setting.gateway.census = GatewayCensus()
    return setting


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
    with suppress(ConnectionResetError):
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


@pytest.mark.parametrize("detaches", [False, True])
async def test_a_batch_above_one_megabyte_is_its_senders_error_under_either_answer(detaches: bool) -> None:
    """A namespace of the tier Premium refuses it, or detaches the link: neither is an outage. SDKs send none."""
    answers = Behavior(oversize_batch_detaches=detaches)
    queue = QueueSpec("orders", QueueSettings(max_message_size_kb=100 * 1024))
    primary = NamespaceSpec("primary", [queue], tier=Tier.PREMIUM, behaves=answers)
    async with Sandbox.start([primary, NamespaceSpec("secondary")]) as sandbox, AsyncExitStack() as stack:
        world = World(sandbox, stack)
        paired = await world.pair(backlog_queue_count=1, hold_until_failover=True, failover_interval=0.5)
        gateway = Gateway(paired, KeyRing([SEND]))
        await gateway.listen(0)
        stack.push_async_callback(gateway.close, 0.1)
        wire = ReconnectingConnection(Endpoint.of(await Setting(world, paired, gateway).client()))
        stack.push_async_callback(wire.close)
        outcomes: list[object] = []
        link = await wire.sender("orders", on_outcome=lambda it: outcomes.append(it.state), on_lost=outcomes.append)
        large = batch([message(bytes(600 * 1024), message_id=name) for name in ("a", "b")])
        link.send(large, b"1", message_format=BATCH_FORMAT)
        link.send(message(bytes(1200 * 1024), message_id="after"), b"2")
        await until(lambda: len(outcomes) == 2)
        assert {type(outcome) for outcome in outcomes} == {Rejected, type(ACCEPTED)}
        (refused,) = [outcome for outcome in outcomes if isinstance(outcome, Rejected)]
        assert refused.error is not None
        assert refused.error.condition == "amqp:link:message-size-exceeded"
        assert (world.ids_in("orders"), world.parked(1)) == (["after"], 0)
        assert [view.failovers for view in paired.entity_views()] == [0]


# -- Microsoft's .NET client at the gateway, by its frames: GATEWAY.md section 1, "SASL offered: `MSSBCBS` only" -----
# Its connection string names a port: the audiences of its tokens have it too.

KEY = new_key("web", GatewayRight)
TAKEN, REFUSED = 0x24, 0x25
LATER = Timestamp(4_000_000_000_000)


class Place:
    """A gateway over two sandboxed namespaces, and clients of it."""

    def __init__(self, world: World, paired: Any, gateway: Gateway, key: LocalKey) -> None:
        self.key = key
        self.world = world
        self.paired = paired
        self.gateway = gateway

    async def connect(self, key: str = "") -> DotNet:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.gateway.port)
        self.world.stack.callback(writer.close)
        return await DotNet(
            reader, writer, f"127.0.0.1:{self.gateway.port}", (self.key.name, key or self.key.key)
        ).open()


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
        world = World(sandbox, stack)
        paired = await world.pair(
            backlog_queue_count=1, send_timeout=1.0, failover_interval=0.5, hold_until_failover=True
        )
        gateway = Gateway(paired, KeyRing([KEY]))
        await gateway.listen(0)
        stack.push_async_callback(gateway.close, 0.1)
        yield Place(world, paired, gateway, KEY)


def code(outcome: Any) -> int:
    return int(outcome.descriptor)


def condition(outcome: Any) -> tuple[str, str]:
    """The condition and the description of a rejected message."""
    assert code(outcome) == REFUSED
    error = outcome.value[0].value
    return str(error[0]), str(error[1])


def with_property(name: str) -> bytes:
    properties = composite(0x73, "reserved", *[None] * 12)
    return properties + described(0x74, encode({name: "x"})) + described(0x75, encode(b"x"))


def asked(operation: str, link: Link) -> dict[str, Any]:
    """sdk: Amqp/AmqpRequestMessage.cs, CreateRequest."""
    named = {"operation": f"com.microsoft:{operation}", "associated-link-name": link.name}
    return named | {"com.microsoft:server-timeout": UInt(60_000), "com.microsoft:tracking-id": "t"}


async def test_it_sends_messages_and_batches_and_closes(place: Place) -> None:
    client = await place.connect()
    link = await client.sender("orders")
    assert link.attach[10] == 262_144, "the client itself refuses what is larger"
    assert link.attach[13] is None, "a batch may be as large as a message, as the client assumes"
    assert code(await client.send(link, message(b"one", message_id="one"))) == TAKEN
    two = batch([message(b"x", message_id=name) for name in ("two", "three")])
    assert code(await client.send(link, two, kind=BATCH_FORMAT)) == TAKEN
    assert place.world.ids_in("orders") == ["one", "two", "three"]
    link.session.close()
    await client.until(lambda: link.session.is_ended, "the end of the session")
    await client.close()


async def test_an_outage_is_slowness_on_the_same_connection_and_link(place: Place) -> None:
    client = await place.connect()
    link = await client.sender("orders")
    assert code(await client.send(link, message(b"x", message_id="before"))) == TAKEN
    heal = place.world.fault("reset")
    assert code(await client.send(link, message(b"x", message_id="held"))) == TAKEN
    parked = batch([message(b"x", message_id=name) for name in ("a", "b")])
    assert code(await client.send(link, parked, kind=BATCH_FORMAT)) == TAKEN
    late = await client.sender("orders")
    assert code(await client.send(late, message(b"x", message_id="of a new link"))) == TAKEN
    heal()
    assert not link.is_detached
    assert len(place.gateway.connections) == 1
    assert place.world.ids_in(BACKLOG, namespace="secondary") == ["held", "a", "b", "of a new link"]


async def test_it_schedules_and_cancels_also_while_failed_over(place: Place) -> None:
    client = await place.connect()
    link, manage = await client.sender("orders"), await client.management("orders")
    entry = {"message": message(b"x", {Symbol("x-opt-scheduled-enqueue-time"): LATER}), "message-id": None}
    answer, given = await manage.ask(asked("schedule-message", link), {"messages": [entry]})
    assert answer["statusCode"] == 200
    assert isinstance(given["sequence-numbers"], Array), "it is cast to long[]"
    assert place.world.depth("orders") == 0
    assert len(place.world.ids_in("orders")) == 1
    answer, _ = await manage.ask(asked("cancel-scheduled-message", link), given)
    assert (answer["statusCode"], place.world.ids_in("orders")) == (200, [])
    answer, _ = await manage.ask(asked("cancel-scheduled-message", link), given)
    assert answer["statusCode"] == 404, "the namespace's own answer; 408 would be tried again"
    place.paired.force("orders", by="kim")
    answer, given = await manage.ask(asked("schedule-message", link), {"messages": [entry]})
    assert (answer["statusCode"], given["sequence-numbers"].values[0] < 0) == (200, True)
    answer, _ = await manage.ask(asked("cancel-scheduled-message", link), given)
    assert answer["statusCode"] == 400


async def test_what_no_namespace_may_get_is_rejected_and_the_link_lives(place: Place) -> None:
    client = await place.connect()
    link = await client.sender("orders")
    said, text = condition(await client.send(link, with_property(PATH)))
    assert (said, PATH in text) == ("com.microsoft:argument-error", True)
    assert code(await client.send(link, message(b"x", message_id="good"))) == TAKEN
    assert place.world.ids_in("orders") == ["good"]


async def test_a_message_without_an_id_gets_one(place: Place) -> None:
    client = await place.connect()
    link = await client.sender("orders")
    await client.send(link, batch([message(b"1"), message(b"2")]), kind=BATCH_FORMAT)
    names = place.world.ids_in("orders")
    assert len(set(names) - {"None"}) == 2


async def test_an_unknown_entity_and_a_wrong_key_are_refused_in_its_terms(place: Place) -> None:
    client = await place.connect()
    words = "^The messaging entity 'nowhere' could not be found"  # by which JavaScript and Java know the error
    with pytest.raises(Refused, match=words) as refused:
        await client.sender("nowhere")
    assert refused.value.condition == "amqp:not-found"
    stranger = await place.connect("d3Jvbmc=")
    answer = await stranger.put_token(f"amqp://127.0.0.1:{place.gateway.port}/orders")
    assert (answer["status-code"], "signature" in answer["status-description"]) == (401, True)


# -- SPEC.md section 7: "Every request has an answer before the client's own limit" ----------------------------------

ENTRY = {"message": message(b"x", {Symbol("x-opt-scheduled-enqueue-time"): LATER}), "message-id": None}


class Odd(Exception):
    """An error of a kind that no table knows."""


def unknown(place: Place) -> int:
    turned = place.gateway.view(()).turned_away
    return next((one.times for one in turned if one.why is TurnedAway.UNKNOWN_ERROR), 0)


async def test_a_schedule_at_a_busy_primary_ends_with_that_reason_within_the_clients_limit(place: Place) -> None:
    client = await place.connect()
    link, manage = await client.sender("orders"), await client.management("orders")
    place.world.fault("busy", entity="orders")
    wanted = asked("schedule-message", link) | {"com.microsoft:server-timeout": UInt(2_000)}
    began = asyncio.get_running_loop().time()
    answer, _ = await manage.ask(wanted, {"messages": [ENTRY]})
    assert (answer["statusCode"], answer["errorCondition"]) == (503, "com.microsoft:server-busy")
    assert asyncio.get_running_loop().time() - began >= 1.5, "it waits for a namespace that recovers"


async def test_a_call_that_does_not_end_by_itself_is_answered(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    client = await place.connect()
    link, manage = await client.sender("orders"), await client.management("orders")
    monkeypatch.setattr(EncodedSender, "schedule", never)
    wanted = asked("schedule-message", link) | {"com.microsoft:server-timeout": UInt(200)}
    answer, _ = await manage.ask(wanted, {"messages": [ENTRY]})
    assert (answer["statusCode"], answer["errorCondition"]) == (408, "com.microsoft:timeout")


async def test_an_error_that_no_table_knows_is_retried_counted_and_named_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise Odd("no one knows it")

    client = await place.connect()
    link, manage = await client.sender("orders"), await client.management("orders")
    for name in ("schedule", "go_straight"):
        monkeypatch.setattr(EncodedSender, name, fail)
    monkeypatch.setattr(RelayConnection, "exchange", fail)
    with caplog.at_level(logging.ERROR):
        for operation in ("schedule-message", "peek-message"):
            answer, _ = await manage.ask(asked(operation, link), {"messages": [ENTRY]})
            assert (answer["statusCode"], answer["errorCondition"]) == (408, "com.microsoft:timeout")
        assert condition(await client.send(link, message(b"x")))[0] == "com.microsoft:timeout"
        monkeypatch.setattr(type(place.paired), "find_entity", fail)
        monkeypatch.setattr(type(place.paired), "delivery_receipts", fail)
        for attach in (client.sender, client.receiver):
            with pytest.raises(Refused, match=r"Odd\): try again"):
                await attach("orders")
    assert unknown(place) == 5
    assert [record.exc_info is not None for record in caplog.records if record.levelno == logging.ERROR] == [True]
    monkeypatch.undo()
    assert code(await client.send(link, message(b"x"))) == 0x24, "its connection and its links live"


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(None, 25.0), (1, 0.0009), (10_000, 9.0), (60_000, 25.0), (86_400_000, 25.0), (0, 25.0), (-5, 25.0), ("9", 25.0)],
)
def test_the_time_of_a_request_is_less_than_the_clients_limit(given: object, seconds: float) -> None:
    properties = {} if given is None else {"com.microsoft:server-timeout": given}
    assert seconds_for(properties, 25.0) == pytest.approx(seconds)


async def test_a_primary_that_refuses_the_engine_is_counted_as_that(place: Place) -> None:
    client = await place.connect()
    place.world.fault("unauthorized", entity="orders")
    for attach in (client.sender, client.receiver):
        with pytest.raises(Refused):
            await attach("orders")
    turned = {one.why: (one.count, one.times) for one in place.gateway.view(()).turned_away}
    assert turned == {TurnedAway.ENGINE_REFUSED: (1, 2)}


async def test_a_ping_in_an_outage_fails_nothing_over_and_is_never_parked(place: Place) -> None:
    client = await place.connect()
    link = await client.sender("orders")
    ping = composite(0x73, None, None, None, None, None, None, Symbol(PING_CONTENT_TYPE)) + described(0x75, encode(b""))
    assert code(await client.send(link, ping)) == 0x24
    assert place.world.ids_in("orders") == []
    place.world.fault("disabled", entity="orders")
    assert condition(await client.send(link, ping))[0]
    (entity,) = [one for one in place.paired.entity_views() if one.path.casefold() == "orders"]
    assert entity.state is State.UNKNOWN, "no send of an application has told anything"
    assert place.world.ids_in(queue_path(0), namespace="secondary") == []


async def test_a_session_that_another_holds_is_no_line_for_the_operator(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    client, other = await place.connect(), await place.connect()
    await client.receiver("payments", session_id="a")
    with pytest.raises(Refused):
        await other.receiver("payments", session_id="a")
    assert "refused a client's link" not in caplog.text
    assert place.gateway.view(()).turned_away == ()


async def test_dotnets_receivers_see_the_end_of_their_session_when_the_primarys_connection_is_lost(
    place: Place,
) -> None:
    client = await place.connect()
    sender, receiver = await client.sender("orders"), await client.receiver("orders")
    place.world.fault("disconnected")
    with pytest.raises(AssertionError, match=r"the session was ended.*detach-forced"):  # what the stand-in makes of it
        await client.until(lambda: receiver.is_detached, "the end of the receiver's session")
    assert not receiver.is_detached
    assert not sender.session.is_ended
    assert not sender.is_detached
