"""What the relay does with frames, seen by a client of our own AMQP (GATEWAY.md section 3, 6 to 9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import inf
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusMessage,
)

from paired_servicebus.core.errors import WireLinkError, WireRequestError, WireTimeoutError
from paired_servicebus.engine.gateway.relay_connection import ATTACHING_SECONDS, HOLDING_SECONDS, RelayConnection
from paired_servicebus.engine.gateway.relayed_links import SESSION_FILTER
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.pairing.amqp_client.client_links import OURS, AttachFields
from servicebus_amqp.encoding.amqp_types import Int, Symbol, UInt
from servicebus_amqp.encoding.messaging_types import Modified, Source
from servicebus_amqp.node_address import parse_address
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived, FlowReceived
from tests.engine.gateway.relay_setting import ROOT, Setting, ignore, relay_setting
from tests.pairing.conftest import until


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    async with relay_setting() as found:
        yield found


@pytest.mark.slow
@pytest.mark.real_time
async def test_receivers_are_back_within_ten_seconds_of_the_primary(setting: Setting) -> None:
    setting.gateway.holding = HOLDING_SECONDS
    line, lost = setting.wire(), asyncio.Event()
    await setting.put("a")
    await line.receiver("orders", on_delivery=ignore, on_lost=lambda _: lost.set())
    ended = setting.world.fault("refused")
    await asyncio.wait_for(lost.wait(), 60)
    got: list[DeliveryReceived] = []
    attach = asyncio.create_task(line.receiver("orders", on_delivery=got.append, on_lost=ignore))
    done, _ = await asyncio.wait({attach}, timeout=3)
    assert not done, "JavaScript waits 30 seconds after a refusal"
    ended()
    async with asyncio.timeout(10):
        link = await attach
        link.grant(1)
        await until(lambda: got)


@pytest.mark.parametrize("session", [False, True], ids=["receiver", "next session"])
async def test_an_attach_waits_no_longer_than_its_client_says(setting: Setting, session: bool) -> None:
    """Section 7: "Every request has an answer before the client's own limit"."""
    setting.gateway.holding = HOLDING_SECONDS
    setting.world.fault("black-holed")
    queue = "payments" if session else "orders"
    source = Source(address=queue, filter={Symbol(SESSION_FILTER): None} if session else None)
    fields = AttachFields(source=source, passed_on={"properties": {Symbol("com.microsoft:timeout"): UInt(500)}})
    async with asyncio.timeout(HOLDING_SECONDS / 2):
        with pytest.raises(WireLinkError) as caught:
            await setting.wire().receiver(queue, on_delivery=ignore, on_lost=ignore, fields=fields, timeout=60)
    assert caught.value.condition == "com.microsoft:timeout"


class TimedLoop:
    """The loop of a relay whose tries take as long as they may."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("timeout", "patience", "least", "most"),
    [
        (ATTACHING_SECONDS, inf, HOLDING_SECONDS, HOLDING_SECONDS + 1),
        (5.0, 5.0, 5.0, 6.0),
        (70.0, inf, 70.0, 71.0),
        (65.0, 60.0, 60.0, 66.0),
        (15.0, 10.0, 10.0, 16.0),
    ],
    ids=["a receiver", "an impatient receiver", "the next session", "a session in a minute", "a session in 10 s"],
)
@pytest.mark.parametrize("connects", [4.0, 5.0, 9.9], ids=str)
async def test_an_attach_to_a_silent_primary_is_answered_in_its_clients_time(
    monkeypatch: pytest.MonkeyPatch, timeout: float, patience: float, least: float, most: float, connects: float
) -> None:
    """Section 7: "Every request has an answer before the client's own limit".

    connects: after how many seconds a try fails that has more.
    """
    loop = TimedLoop()
    relay = RelayConnection(None)  # type: ignore[arg-type] # no try reaches it
    tries: list[float] = []

    async def silent(_act: object, seconds: float, name: str) -> None:
        tries.append(seconds)
        loop.now += min(seconds, connects if seconds <= ATTACHING_SECONDS or tries[1:] else seconds)
        raise WireTimeoutError(f"{name} was not answered")

    monkeypatch.setattr(relay, "_do", silent)
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    monkeypatch.setattr(asyncio, "sleep", loop.sleep)
    address = parse_address("orders")
    with pytest.raises(WireTimeoutError):
        await relay.relayed_receiver(
            address, OURS, on_delivery=ignore, on_settled=ignore, on_lost=ignore, timeout=timeout,
            patience=patience,
        )  # fmt: skip
    assert least <= loop.now - 1000.0 <= most


async def test_a_client_that_reads_nothing_is_not_read_for(setting: Setting) -> None:
    """A slow reader's flow is not forwarded rather than buffered."""
    count, size = 60, 240_000
    async with setting.world.client("primary") as own, own.get_queue_sender("orders") as sender:
        for _ in range(count):
            await sender.send_messages(ServiceBusMessage(bytes(size)))
    got: list[DeliveryReceived] = []
    line = setting.wire()
    link = await line.receiver("orders", on_delivery=got.append, on_lost=ignore)
    (connection,) = setting.gateway.connections
    line._line.hold_reading(True)  # type: ignore[union-attr] # as a client that is busy elsewhere
    link.grant(count)
    await until(lambda: connection.relay._full)
    await asyncio.sleep(0.1)
    assert connection._transport.get_write_buffer_size() < 1_000_000
    line._line.hold_reading(False)  # type: ignore[union-attr]
    await until(lambda: len(got) == count)
    assert not connection.relay._full


async def test_a_link_is_the_same_on_both_sides(setting: Setting) -> None:
    """same name, 16-byte tag, filters, properties, credit, drain and echo, two-step settlement, and the bytes"""
    await setting.put("a", "b", "c", queue="payments", session_id="s1")
    source = Source(address="payments", filter={Symbol(SESSION_FILTER): None})
    properties = {Symbol("com.microsoft:receiver-name"): "me", Symbol("com.microsoft:timeout"): UInt(1000)}
    fields = AttachFields(name="my-own-name", source=source, passed_on={"properties": properties})
    primary = setting.world.sandbox["primary"].connection_string
    seen: dict[str, tuple[Any, list[DeliveryReceived], list[DispositionReceived]]] = {}
    for where, line in (("direct", setting.wire(primary)), ("relayed", setting.wire())):
        got: list[DeliveryReceived] = []
        settled: list[DispositionReceived] = []
        link = await line.receiver(
            "payments", on_delivery=got.append, on_settled=settled.append, on_lost=ignore, fields=fields
        )
        flows: list[FlowReceived] = []
        link.passes_flow = flows.append
        link.grant(5, drain=True)
        await until(lambda flows=flows: any(flow.drain for flow in flows))
        assert link.credit == 0
        link.settle(got[0].delivery_id, Modified(delivery_failed=True), settled=False)
        await until(lambda settled=settled: settled)
        seen[where] = (link.link.remote, got, settled)
        for connection in setting.gateway.connections:
            upstream = connection.relay._line
            assert upstream is not None
            assert "my-own-name" in [each.link_name for each in upstream._links.values()]
        await link.detach()
    direct, relayed = seen["direct"], seen["relayed"]
    assert relayed[0].source.filter == direct[0].source.filter == {SESSION_FILTER: "s1"}
    assert set(relayed[0].properties) == set(direct[0].properties)
    assert relayed[0].name == "my-own-name"
    assert [len(each.tag) for each in relayed[1]] == [16] * 3
    assert relayed[1][1].payload[-20:] == direct[1][1].payload[-20:]
    assert [each.state for each in relayed[2]] == [each.state for each in direct[2]] == [Modified(delivery_failed=True)]


async def test_credit_comes_from_the_client_alone(setting: Setting) -> None:
    """never a credit of our own"""
    await setting.put(*"abcdef")
    got: list[DeliveryReceived] = []
    link = await setting.wire().receiver("orders", on_delivery=got.append, on_lost=ignore)
    await asyncio.sleep(0.1)
    queue = setting.world.sandbox["primary"].node.namespace.queue("orders")
    assert queue.counts().active == 6
    link.grant(2)
    await until(lambda: len(got) == 2)
    await asyncio.sleep(0.1)
    assert len(got) == 2
    others = await setting.world.received("orders", 4)
    assert [each.message_id for each in others] == list("cdef"), "no more than two are locked for the client"


async def test_an_unknown_operation_is_passed_on_for_a_key_that_may_do_everything(setting: Setting) -> None:
    """all other management verbatim, unknown operations too"""
    own, answers = setting.wire(setting.world.sandbox["primary"].connection_string), []
    for line in (own, setting.wire(setting.gateway.connection_string(ROOT)), setting.wire()):
        with pytest.raises(WireRequestError) as caught:
            await line.request("orders", "com.microsoft:unheard-of", {})
        answers.append(caught.value)
    direct, relayed, refused = answers
    assert (relayed.status, relayed.condition, str(relayed)) == (direct.status, direct.condition, str(direct))
    assert refused.status == 401
    assert "Manage" in str(refused)


async def test_replies_of_the_pairing_and_of_the_primary_share_a_link(setting: Setting) -> None:
    """schedule and cancel go through the pairing, everything else verbatim"""
    await setting.put("a")
    line = setting.wire()
    peek = {"from-sequence-number": 0, "message-count": Int(5)}
    tags = await tags_of_replies(line)
    for _ in range(3):
        with pytest.raises(WireRequestError, match="no list 'messages'"):
            await line.request("orders", "com.microsoft:schedule-message", {}, timeout=60)
        reply = await line.request("orders", "com.microsoft:peek-message", peek, timeout=60)
        assert len(reply.body["messages"]) == 1
    assert len(tags) == 6
    assert len(set(tags)) == len(tags)


async def tags_of_replies(line: ReconnectingConnection) -> list[bytes]:
    """The tags of the replies from orders as they come."""
    await line.request("orders", "com.microsoft:peek-message", {"from-sequence-number": 0, "message-count": Int(1)})
    tags: list[bytes] = []
    assert line._line is not None
    deliveries = line._line._deliveries
    for link, take in list(deliveries.items()):
        if "management" in link.remote.source.address:  # type: ignore[attr-defined]
            deliveries[link] = lambda event, take=take: (tags.append(event.tag), take(event))  # type: ignore[misc]
    return tags
