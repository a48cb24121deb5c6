"""Receivers read the primary through the gateway, one to one (GATEWAY.md section 3, 6 to 9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from paired_servicebus.core.errors import WireLinkError, WireRequestError, WireTimeoutError
from paired_servicebus.core.model.pairing_events import Delivered, Diverted, MessageReceived, Record
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing, new_key
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from paired_servicebus.engine.gateway.relay_connection import ATTACHING_SECONDS, HOLDING_SECONDS, RelayConnection
from paired_servicebus.engine.gateway.relayed_links import SESSION_FILTER
from paired_servicebus.engine.journal import records
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.pairing.amqp_client.client_connection import AttachFields
from paired_servicebus.pairing.paired_receiver import DeliveryReceipts
from paired_servicebus.pairing.sending import pairing_links
from servicebus_amqp.encoding.codec import Int, Symbol, UInt
from servicebus_amqp.encoding.performatives import Modified, Source
from servicebus_amqp.protocol.links import DeliveryReceived, DispositionReceived, FlowReceived
from servicebus_sandbox import Sandbox
from servicebus_sandbox.amqp_server.broker_links import IncomingLink
from tests.pairing.conftest import TRUST, World, until

from .relay_setting import BOTH, LISTEN, ROOT, SEND, Setting, ignore, relay_setting


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    async with relay_setting() as found:
        yield found


async def test_a_message_arrives_as_it_is_and_each_settlement_reaches_the_primary(setting: Setting) -> None:
    await setting.put("complete", "abandon", "dead", "defer")
    client = await setting.client(LISTEN)
    async with client.get_queue_receiver("orders") as receiver:
        got = {m.message_id: m for m in await receiver.receive_messages(4, max_wait_time=2)}
        await receiver.complete_message(got["complete"])
        await receiver.abandon_message(got["abandon"])
        await receiver.dead_letter_message(got["dead"], reason="r", error_description="d")
        await receiver.defer_message(got["defer"])
        (again,) = await receiver.receive_messages(1, max_wait_time=2)
        assert (again.message_id, again.delivery_count) == ("abandon", 1)
        await receiver.complete_message(again)
        assert got["defer"].sequence_number is not None
        (deferred,) = await receiver.receive_deferred_messages(got["defer"].sequence_number)
        await receiver.complete_message(deferred)
    async with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = await receiver.receive_messages(1, max_wait_time=2)
        assert (dead.message_id, dead.dead_letter_reason, dead.dead_letter_error_description) == ("dead", "r", "d")
        await receiver.complete_message(dead)
    assert setting.world.ids_in("orders") == []


async def test_peeks_and_lock_renewals_are_passed_on(setting: Setting) -> None:
    await setting.put("a", "b")
    client = await setting.client(LISTEN)
    async with client.get_queue_receiver("orders") as receiver, AutoLockRenewer() as renewer:
        assert [m.message_id for m in await receiver.peek_messages(5)] == ["a", "b"]
        (message,) = await receiver.receive_messages(1, max_wait_time=2)
        before = message.locked_until_utc
        assert before is not None
        assert await receiver.renew_message_lock(message) > before
        renewer.register(receiver, message, max_lock_renewal_duration=60)
        await receiver.complete_message(message)


async def test_receive_and_delete_and_an_empty_queue(setting: Setting) -> None:
    """A drain is answered when the primary has answered it."""
    await setting.put("a", "b")
    client = await setting.client(LISTEN)
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    async with client.get_queue_receiver("orders", receive_mode=mode) as receiver:
        assert [m.message_id for m in await receiver.receive_messages(2, max_wait_time=2)] == ["a", "b"]
        assert await receiver.receive_messages(5, max_wait_time=0.2) == []
    assert setting.world.ids_in("orders") == []
    await setting.put("c")
    assert setting.world.ids_in("orders") == ["c"]


async def test_a_session_its_state_and_its_lock(setting: Setting) -> None:
    """The attach is answered when the primary's answer is in: it has the session's id and the end of its lock."""
    await setting.put("a", "b", queue="payments", session_id="s1")
    client = await setting.client(LISTEN)
    async with client.get_queue_receiver("payments", session_id=NEXT_AVAILABLE_SESSION) as receiver:
        session = receiver.session
        assert session is not None
        assert session.session_id == "s1"
        assert session.locked_until_utc is not None
        assert session.locked_until_utc > datetime.now(UTC)
        await session.set_state(b"half")
        assert await session.get_state() == b"half"
        assert await session.renew_lock() >= session.locked_until_utc
        for message in await receiver.receive_messages(2, max_wait_time=2):
            await receiver.complete_message(message)
    assert setting.world.ids_in("payments") == []
    async with client.get_queue_receiver("payments", session_id="s1") as receiver:
        assert receiver.session is not None
        assert await receiver.session.get_state() == b"half"


async def test_no_session_is_refused_with_the_primarys_own_words(setting: Setting) -> None:
    client = await setting.client(LISTEN)
    with pytest.raises(OperationTimeoutError):
        await client.get_queue_receiver("payments", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.2).__aenter__()
    with pytest.raises(ServiceBusError, match="ession"):
        await client.get_queue_receiver("payments").__aenter__()


async def test_a_subscription(setting: Setting) -> None:
    client = await setting.client(LISTEN)
    async with setting.world.client("primary") as own, own.get_topic_sender("audit") as sender:
        await sender.send_messages(ServiceBusMessage(b"x", message_id="a"))
    async with client.get_subscription_receiver("audit", "all") as receiver:
        assert [m.message_id for m in await receiver.peek_messages(5)] == ["a"]
        (message,) = await receiver.receive_messages(1, max_wait_time=2)
        await receiver.complete_message(message)


async def test_senders_of_many_entities_share_as_many_connections_as_the_service_wants(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection to the primary carries the senders of 800 entities; those of more begin another one.

    With one entity of a connection here: the answers of the second are written too.
    """
    monkeypatch.setattr(pairing_links, "ENTITIES_OF_A_CONNECTION", 1)
    client = await setting.client(SEND)
    async with client.get_queue_sender("orders") as orders, client.get_topic_sender("audit") as audit:
        for number in range(3):
            for sender in (audit, orders):
                await sender.send_messages(ServiceBusMessage(b"x", message_id=str(number)), timeout=20)
    served = [
        {link.path for link in connection.links.values() if isinstance(link, IncomingLink)}
        for connection in setting.world.sandbox["primary"].node.connections
    ]
    assert sorted(map(sorted, filter(None, served))) == [["audit"], ["orders"]]
    assert setting.world.ids_in("orders") == ["0", "1", "2"]


async def test_an_entity_in_failover_is_still_read_from_the_primary(setting: Setting) -> None:
    """Upstream is the primary."""
    await setting.put("a")
    setting.paired.watch("orders")
    setting.paired.force("orders", by="kim")
    client = await setting.client(LISTEN)
    async with client.get_queue_receiver("orders") as receiver:
        (message,) = await receiver.receive_messages(1, max_wait_time=2)
        assert message.message_id == "a"
        await receiver.complete_message(message)


async def test_rights_of_local_keys_are_enforced(setting: Setting) -> None:
    """Upstream everybody is the gateway."""
    await setting.put("a")
    sender = await setting.client(SEND)
    with pytest.raises(ServiceBusAuthorizationError, match="Listen"):
        await sender.get_queue_receiver("orders").__aenter__()
    reader = await setting.client(LISTEN)
    with pytest.raises(ServiceBusAuthorizationError, match="Send"):
        await reader.get_queue_sender("orders").__aenter__()
    with pytest.raises(MessagingEntityNotFoundError):
        await reader.get_queue_receiver("nowhere").__aenter__()


async def test_an_outage_ends_receivers_and_no_connection(setting: Setting) -> None:
    """Receivers are detached with amqp:link:detach-forced; they are back within 10 s of the primary."""
    await setting.put("a")
    client = await setting.client(BOTH, retry_total=50, retry_backoff_factor=0.05, retry_backoff_max=0.2)
    async with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        (message,) = await receiver.receive_messages(1, max_wait_time=2)
        await receiver.complete_message(message)
        await sender.send_messages(ServiceBusMessage(b"x", message_id="b"))
        connections = set(setting.gateway.connections)
        ended = setting.world.fault("refused")
        waiting = asyncio.create_task(receiver.receive_messages(1, max_wait_time=10))
        with pytest.raises(OperationTimeoutError):
            await (await setting.client(LISTEN)).get_queue_receiver("orders").__aenter__()
        assert connections & setting.gateway.connections
        ended()
        await setting.put("c")
        assert [m.message_id for m in await waiting] in (["b"], ["c"])


async def test_a_request_to_a_primary_that_is_away_is_answered_with_408(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """management answers 408 within 10 s"""
    monkeypatch.setattr("paired_servicebus.engine.gateway.front_links.REPLY_SECONDS", 0.3)
    client = await setting.client(LISTEN)
    async with client.get_queue_receiver("orders") as receiver:
        assert await receiver.peek_messages(1) == []
        setting.world.fault("black-holed")
        with pytest.raises(OperationTimeoutError, match="408"):
            await receiver.peek_messages(1)


# -- `record_received` on a gateway: a receipt for each message that it relays to a client's receiver.


async def test_each_relayed_delivery_has_a_receipt_and_looks_have_none() -> None:
    async with relay_setting(record_received=True) as setting:
        async with setting.world.admin("primary") as admin:
            await admin.create_topic("news")
            await admin.create_subscription("news", "all")
            await admin.create_queue("by-session", requires_session=True)
        await setting.put("a")
        await setting.put("s", queue="by-session", session_id="kim")
        async with setting.world.client("primary") as own, own.get_topic_sender("news") as sender:
            await sender.send_messages(ServiceBusMessage(b"x", message_id="t"))
        client = await setting.client(LISTEN)
        async with client.get_queue_receiver("orders") as receiver:
            await receiver.peek_messages(5)
            (message,) = await receiver.receive_messages(1, max_wait_time=2)
            await receiver.abandon_message(message)
            (message,) = await receiver.receive_messages(1, max_wait_time=2)
            await receiver.dead_letter_message(message)
        async with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            assert len(await receiver.receive_messages(1, max_wait_time=2)) == 1
        async with client.get_queue_receiver("by-session", session_id="kim") as receiver:
            assert len(await receiver.receive_messages(1, max_wait_time=2)) == 1
        async with client.get_subscription_receiver("news", "all") as receiver:
            assert len(await receiver.receive_messages(1, max_wait_time=2)) == 1
    told: list[MessageReceived] = setting.world.told(MessageReceived)
    assert [(each.message_id, each.entity, each.subscription, each.session, each.delivery_count) for each in told] == [
        ("a", "orders", None, None, 0),
        ("a", "orders", None, None, 1),
        ("s", "by-session", None, "kim", 0),
        ("t", "news", "all", None, 0),
    ]
    assert all(each.sequence_number is not None for each in told)


async def test_without_the_option_nothing_is_read_nor_recorded() -> None:
    async with relay_setting() as setting:
        await setting.put("a")
        client = await setting.client(LISTEN)
        async with client.get_queue_receiver("orders") as receiver:
            assert len(await receiver.receive_messages(1, max_wait_time=2)) == 1
    assert setting.world.told(MessageReceived) == []


async def test_bytes_that_are_no_message_are_relayed_without_a_receipt() -> None:
    async with relay_setting(record_received=True) as setting:
        receipts = setting.paired.delivery_receipts("orders")
        assert isinstance(receipts, DeliveryReceipts)
        for strange in (b"", b"\x00", b"\x00Ss\xc0\xff\xff", b"\x00Sr\xc1\x01", bytes(range(256))):
            receipts.write_encoded(strange)
    assert setting.world.told(MessageReceived) == []


# -- What the relay does with frames, seen by a client of our own AMQP (GATEWAY.md section 3, 6 to 9) ----------------


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

    monkeypatch.setattr(relay, "run", silent)
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    monkeypatch.setattr(asyncio, "sleep", loop.sleep)
    with pytest.raises(WireTimeoutError):
        await relay.persist(
            lambda seconds: relay.receiver("orders", on_delivery=ignore, on_lost=ignore, timeout=seconds),
            timeout, patience,
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
    assert len(connection.relay._full) == 1
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
            assert "my-own-name" in [each.link.name for each in upstream._links.values()]
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
    assert (relayed.status, relayed.condition) == (direct.status, direct.condition)
    assert str(relayed).partition(" TrackingId:")[0] == str(direct).partition(" TrackingId:")[0]
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


# -- The journal names the key of each message that came through the gateway -----------------------------------------

WEB, BATCH = new_key("web", [GatewayRight.SEND]), new_key("batch", [GatewayRight.SEND])


async def test_who_sent_what_is_in_the_journal_by_key_name() -> None:
    # "who sent what, by key name (journal = "all" or the diverted ones)"
    async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
        world = World(sandbox, stack)
        paired = await world.pair(backlog_queue_count=1, journal="all")
        gateway = Gateway(paired, KeyRing([WEB, BATCH]))
        await gateway.listen(0)
        stack.push_async_callback(gateway.close, 0.1)
        for key in (WEB, BATCH):
            string = gateway.connection_string(key)
            client = await stack.enter_async_context(
                ServiceBusClient.from_connection_string(string, retry_total=0, ssl_context=TRUST)
            )
            async with client.get_queue_sender("orders") as sender:
                await sender.send_messages(ServiceBusMessage(b"x", message_id=f"{key.name} direct"))
                paired.force("orders", by="kim")
                await sender.send_messages(ServiceBusMessage(b"x", message_id=f"{key.name} parked"))
                later = datetime.now(UTC) + timedelta(hours=1)
                await sender.schedule_messages(ServiceBusMessage(b"x", message_id=f"{key.name} scheduled"), later)
                paired.release("orders", by="kim")
                paired.pin("orders", by="kim")
        async with paired.get_queue_sender("orders") as own:
            await own.send_messages(ServiceBusMessage(b"x", message_id="own"))
    receipts = [*world.told(Delivered), *world.told(Diverted)]
    assert {(receipt.message_id, receipt.key) for receipt in receipts} == {
        ("web direct", "web"),
        ("batch direct", "batch"),
        ("web parked", "web"),
        ("batch parked", "batch"),
        ("web scheduled", "web"),
        ("batch scheduled", "batch"),
        ("own", None),
    }
    for receipt in receipts:
        line = records.encode(Record(engine="e", boot="b", seq=1, event=receipt))
        assert (b'"key"' in line) == (receipt.key is not None), "lines of other senders are as before"
        assert records.decode(line) is not None
        assert WEB.key.encode() not in line
