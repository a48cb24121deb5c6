"""Links as another client than the SDK may use them: addresses, tokens, refusals, drains, settlement."""

import asyncio
import time
from collections import Counter
from datetime import timedelta
from uuid import UUID

import pytest
from tests.sandbox.amqp_server.conftest import KEY, KEY_NAME, Clock, open_port

from servicebus_amqp.access import NodeAddress, NodeKind, covers, parse_address, path_of, sign
from servicebus_amqp.encoding.codec import Array, Described, Int, Symbol, UInt
from servicebus_amqp.encoding.message_sections import (
    BATCH_FORMAT,
    Properties,
    Sections,
    batch,
    read_header,
    read_map,
    split,
    write_data,
    write_properties,
)
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Error,
    Modified,
    Rejected,
    Source,
)
from servicebus_amqp.protocol.links import (
    Attached,
    DeliveryReceived,
    Detached,
    DispositionReceived,
    FlowReceived,
)
from servicebus_sandbox.access.authorization import root_rule
from servicebus_sandbox.amqp_server.namespace_server import TURN_BYTES, AmqpServerProtocol, NamespaceServer
from servicebus_sandbox.broker.entity_settings import Behavior, EntityStatus, QueueSettings, Tier, TopicSettings
from servicebus_sandbox.specs import NamespaceSpec

MESSAGE = Sections(body=write_data(b"hello")).join()


@pytest.fixture
async def sender(peer):
    await peer.authorize("orders")
    return await peer.attached(peer.sender("orders"))


@pytest.fixture
async def receive(peer, sender):
    """Sends one message and receives it: (link, delivery)."""

    async def receive(address="orders", **attach):
        await peer.outcome(sender, MESSAGE)
        link = await peer.attached(peer.receiver(address, **attach))
        link.flow(1)
        peer.flush()
        return link, await peer.next(DeliveryReceived)

    return receive


# ---------------------------------------------------------------- attaching


@pytest.mark.parametrize("address", ["orders", "ORDERS", "/orders", "amqps://anything:5671/Orders", "sb://host/orders"])
async def test_an_address_may_be_written_in_several_ways(peer, address):
    await peer.authorize("orders")
    link = await peer.attached(peer.sender(address))
    assert link.remote.target.address == address


async def test_a_link_is_answered_as_the_service_does(peer):
    await peer.authorize("orders")
    link = await peer.attached(peer.sender("orders"))
    assert link.remote.max_message_size == 256 * 1024
    assert link.remote.properties is None
    assert link.remote.source.address == "here"
    assert (await peer.next(FlowReceived)).credit == 1000


@pytest.mark.parametrize(
    ("address", "condition"),
    [
        ("nowhere", "amqp:not-found"),
        ("$unknown", "amqp:not-found"),
        ("nowhere/$management", "amqp:not-found"),
        ("audit/Subscriptions/all", "amqp:not-allowed"),
        ("orders/$DeadLetterQueue", "amqp:not-allowed"),
    ],
)
async def test_senders_are_refused_by_condition(peer, refused, address, condition):
    await peer.authorize("")
    with pytest.raises(refused, match=condition):
        await peer.attached(peer.sender(address))


@pytest.mark.parametrize(
    ("address", "condition"),
    [("nowhere", "amqp:not-found"), ("audit", "amqp:not-allowed"), ("payments", "amqp:not-allowed")],
)
async def test_receivers_are_refused_by_condition(peer, refused, address, condition):
    await peer.authorize("")
    with pytest.raises(refused, match=condition):
        await peer.attached(peer.receiver(address))


async def test_disabled_entities_take_no_links(port, peer, refused):
    await peer.authorize("orders")
    port.namespace.update(port.namespace.queue("orders"), QueueSettings(status=EntityStatus.DISABLED))
    for link in (peer.sender("orders"), peer.receiver("orders")):
        with pytest.raises(refused, match="entity-disabled"):
            await peer.attached(link)


async def test_deleting_an_entity_detaches_its_links(port, peer, sender):
    port.namespace.delete("orders")
    port.node.wake()
    assert (await peer.next(Detached)).error.condition == "amqp:link:detach-forced"


# ---------------------------------------------------------------- tokens


async def test_no_link_without_a_token(peer, refused):
    for address in ("orders", "orders/$management"):
        with pytest.raises(refused, match="amqp:unauthorized-access"):
            await peer.attached(peer.sender(address))


async def test_a_token_opens_its_entity_and_what_lies_below(peer, refused):
    await peer.authorize("audit")
    await peer.attached(peer.sender("audit"))
    await peer.attached(peer.receiver("audit/subscriptions/ALL"))
    await peer.attached(peer.receiver("audit/Subscriptions/all/$DeadLetterQueue"))
    with pytest.raises(refused, match="amqp:unauthorized-access"):
        await peer.attached(peer.sender("orders"))


async def test_tokens_belong_to_a_connection(peer, connect, refused):
    await peer.authorize("orders")
    other = await connect()
    with pytest.raises(refused, match="amqp:unauthorized-access"):
        await other.attached(other.sender("orders"))


@pytest.mark.parametrize(
    ("resource", "key_name", "key", "ends_in"),
    [
        ("sb://127.0.0.1/orders", "Root", "wrong", 60),
        ("sb://127.0.0.1/orders", "nobody", "a key", 60),
        ("sb://127.0.0.1/orders", "Root", "a key", -60),
        ("sb://127.0.0.1/payments", "Root", "a key", 60),
        ("sb://127.0.0.1/order", "Root", "a key", 60),
        ("sb://elsewhere/orders", "Root", "a key", 60),
    ],
)
async def test_bad_tokens_get_401_and_a_reason(peer, refused, resource, key_name, key, ends_in):
    token = sign(resource, key_name, key, time.time() + ends_in)
    status, reason = await peer.put_token("sb://127.0.0.1/orders", token)
    assert status == 401
    assert reason
    assert key not in reason
    with pytest.raises(refused, match="amqp:unauthorized-access"):
        await peer.attached(peer.sender("orders"))


async def test_what_is_no_token_gets_an_answer_too(peer):
    assert (await peer.put_token("sb://127.0.0.1/orders", "eyJhbGciOi"))[0] == 401
    assert (await peer.request("$cbs", {"operation": "put-token"}, "x"))[0]["status-code"] == 400
    assert (await peer.request("$cbs", {"operation": "take-token", "name": "sb://h/q"}, "x"))[0]["status-code"] == 400


async def test_links_end_with_their_token_and_renewing_keeps_them(port, peer):
    await peer.authorize("orders", seconds=60)
    await peer.authorize("audit", seconds=60)
    orders = await peer.attached(peer.sender("orders"))
    audit = await peer.attached(peer.sender("audit"))
    await peer.authorize("orders", seconds=600)
    port.jump(timedelta(seconds=61))
    ended = await peer.next(Detached)
    assert (ended.link, ended.error.condition) == (audit, "amqp:link:detach-forced")
    assert isinstance(await peer.outcome(orders, MESSAGE), Accepted)


@pytest.mark.real_time
async def test_a_token_that_ends_by_itself_is_noticed(peer):
    await peer.authorize("orders", seconds=2)
    link = await peer.attached(peer.sender("orders"))
    assert (await peer.next(Detached)).link is link


# ---------------------------------------------------------------- sending


async def test_what_is_no_message_is_rejected(peer, sender):
    state = await peer.outcome(sender, b"not a message")
    assert isinstance(state, Rejected)
    assert state.error.condition == "com.microsoft:argument-error"
    assert isinstance(await peer.outcome(sender, MESSAGE), Accepted)


async def test_a_settled_message_gets_no_answer(port, peer, sender):
    peer.send(sender, MESSAGE, settled=True)
    await port.until(lambda: port.counts("orders").active == 1)
    assert isinstance(await peer.outcome(sender, MESSAGE), Accepted)
    assert len([e for e in peer.history if isinstance(e, DispositionReceived) and e.link is sender]) == 1


async def test_credit_is_renewed(port, peer, sender):
    await peer.next(FlowReceived)
    for index in range(1500):
        sender.send(MESSAGE, tag=b"%d" % index)
    peer.flush()
    await port.until(lambda: port.counts("orders").active == 1500)
    assert sender.credit >= 500


# ---------------------------------------------------------------- receiving


async def test_a_delivery_carries_what_clients_need(peer, receive):
    link, delivery = await receive()
    found = split(delivery.payload)
    annotations = read_map(found.message_annotations)
    assert read_header(found.header).delivery_count == 0
    assert annotations["x-opt-sequence-number"] == 1
    assert annotations["x-opt-locked-until"] - annotations["x-opt-enqueued-time"] >= 60_000
    assert (len(delivery.tag), found.body) == (16, write_data(b"hello"))
    assert link.remote.role is False


@pytest.mark.parametrize(
    ("state", "left", "dead"),
    [
        (ACCEPTED, 0, 0),
        (RELEASED, 1, 0),
        (Modified(delivery_failed=True), 1, 0),
        (Modified(), 1, 0),
        (Modified(undeliverable_here=True), 1, 0),
        (Rejected(error=Error(condition="com.microsoft:dead-letter")), 0, 1),
        (Rejected(), 0, 1),
    ],
)
async def test_every_outcome_is_confirmed_with_its_own_kind(port, peer, receive, state, left, dead):
    link, delivery = await receive()
    link.settle(delivery.delivery_id, state, settled=False)
    peer.flush()
    answer = await peer.next(DispositionReceived)
    assert answer.settled
    assert type(answer.state) is type(state)
    if isinstance(answer.state, Rejected):
        assert answer.state.error is None
    counts = port.counts("orders")
    assert (counts.active, counts.dead_letter) == (left, dead)


async def test_settling_after_the_lock_is_lost_is_refused_with_the_condition(port, peer, receive):
    link, delivery = await receive()
    port.jump(timedelta(seconds=61))
    link.settle(delivery.delivery_id, ACCEPTED, settled=False)
    peer.flush()
    answer = await peer.next(DispositionReceived)
    assert answer.state.error.condition == "com.microsoft:message-lock-lost"


async def test_settled_outright_needs_no_answer(port, peer, receive):
    link, delivery = await receive()
    link.settle(delivery.delivery_id, ACCEPTED, settled=True)
    peer.flush()
    await port.until(lambda: port.counts("orders").total == 0)
    peer.sender("orders")  # answered after whatever would be said of the settlement
    await port.until(lambda: any(isinstance(event, Attached) for event in peer.events))
    assert not any(isinstance(event, DispositionReceived) for event in peer.events)


async def test_properties_of_an_abandon_and_of_a_dead_letter_stay(port, peer, receive):
    link, delivery = await receive()
    link.settle(delivery.delivery_id, Modified(message_annotations={Symbol("tries"): 3}))
    link.flow(1)
    peer.flush()
    again = await peer.next(DeliveryReceived)
    assert read_map(split(again.payload).application_properties) == {"tries": 3}
    info = {"DeadLetterReason": "bad", "DeadLetterErrorDescription": "line 3", "line": 3}
    error = Error(condition="com.microsoft:dead-letter", info=info)
    link.settle(again.delivery_id, Rejected(error=error))
    dead = await peer.attached(peer.receiver("orders/$DeadLetterQueue"))
    dead.flow(1)
    peer.flush()
    delivery = await peer.next(DeliveryReceived)
    assert read_map(split(delivery.payload).application_properties) == {
        "tries": 3,
        "line": 3,
        "DeadLetterReason": "bad",
        "DeadLetterErrorDescription": "line 3",
    }


async def test_draining_gives_what_is_there_and_takes_the_credit_back(peer, sender):
    for _ in range(3):
        await peer.outcome(sender, MESSAGE)
    link = await peer.attached(peer.receiver("orders"))
    link.flow(10, drain=True)
    peer.flush()
    for _ in range(3):
        await peer.next(DeliveryReceived)
    flow = await peer.next(FlowReceived)
    assert (flow.link, flow.drain, link.credit) == (link, True, 0)


async def test_a_repeated_flow_keeps_the_credit(port, peer, sender):
    link = await peer.attached(peer.receiver("orders"))
    link.flow(5)
    link.flow(5)
    peer.flush()
    for _ in range(2):
        peer.send(sender, MESSAGE)
    for _ in range(2):
        await peer.next(DeliveryReceived)
    assert link.credit == 3


async def test_a_lost_connection_frees_its_session_but_not_its_locks(port, peer, connect):
    await peer.authorize("")
    wanted = Source(address="payments", filter={Symbol("com.microsoft:session-filter"): "a"})
    await peer.attached(peer.receiver("payments", wanted))
    peer.transport.abort()
    await port.until(lambda: port.namespace.queue("payments").messages.consumers == 0)
    other = await connect()
    await other.authorize("")
    link = await other.attached(other.receiver("payments", wanted))
    assert link.remote.source.filter == {"com.microsoft:session-filter": "a"}


# ---------------------------------------------------------------- sessions


async def test_a_session_receiver_is_answered_when_there_is_a_session(port, peer):
    await peer.authorize("")
    sender = await peer.attached(peer.sender("payments"))
    wanted = Source(address="payments", filter={Symbol("com.microsoft:session-filter"): None, Symbol("other"): "kept"})
    waiting = peer.receiver("payments", wanted)
    await peer.authorize("orders")  # a round trip behind the attach
    assert not waiting.is_attached
    message = Sections(properties=write_properties(Properties(group_id="s1")), body=write_data(b"x"))
    peer.send(sender, message.join())
    link = await peer.attached(waiting)
    assert link.remote.source.filter == {"com.microsoft:session-filter": "s1", "other": "kept"}
    ends = (link.remote.properties["com.microsoft:locked-until-utc"] - 621_355_968_000_000_000) / 10_000_000
    assert 50 < ends - time.time() <= 60


async def test_waiting_for_a_session_ends_after_the_time_asked_for(peer, refused):
    await peer.authorize("payments")
    wanted = Source(address="payments", filter={Symbol("com.microsoft:session-filter"): None})
    link = peer.receiver("payments", wanted, properties={Symbol("com.microsoft:timeout"): UInt(50)})
    with pytest.raises(refused, match="the allotted timeout"):
        await peer.attached(link)


async def test_a_described_session_filter_is_answered_described(peer):
    await peer.authorize("payments")
    value = Described(Symbol("com.microsoft:session-filter"), "a")
    wanted = Source(address="payments", filter={Symbol("com.microsoft:session-filter"): value})
    link = await peer.attached(peer.receiver("payments", wanted))
    assert link.remote.source.filter == {"com.microsoft:session-filter": value}


# ---------------------------------------------------------------- management requests


async def operate(peer, operation, body, address="orders/$management"):
    answer, value = await peer.request(address, {"operation": f"com.microsoft:{operation}"}, body)
    return answer["statusCode"], answer.get("errorCondition"), value


async def test_unknown_operations_and_bad_arguments_are_answered(peer):
    await peer.authorize("orders")
    assert await operate(peer, "make-coffee", {}) == (501, "amqp:not-implemented", None)
    bad = "com.microsoft:argument-error"
    assert await operate(peer, "renew-lock", {"lock-tokens": "x"}) == (400, bad, None)
    assert await operate(peer, "renew-lock", {}) == (400, bad, None)
    assert await operate(peer, "peek-message", {"from-sequence-number": "x"}) == (400, bad, None)
    assert await operate(peer, "peek-message", "text") == (400, bad, None)
    assert await operate(peer, "schedule-message", {"messages": [{"message": b"junk"}]}) == (400, bad, None)
    tokens = Array.of(UUID, [UUID(int=1)])
    assert await operate(peer, "update-disposition", {"disposition-status": "eaten", "lock-tokens": tokens}) == (
        400,
        bad,
        None,
    )
    assert await operate(peer, "get-session-state", {"session-id": "a"}) == (400, "amqp:not-allowed", None)


async def test_settling_by_request_from_anywhere(port, peer, receive, connect):
    _, delivery = await receive()
    other = await connect()
    await other.authorize("orders")
    body = {"disposition-status": "completed", "lock-tokens": Array.of(UUID, [UUID(bytes_le=delivery.tag)])}
    assert (await operate(other, "update-disposition", body))[0] == 200
    assert port.counts("orders").total == 0
    assert (await operate(other, "update-disposition", body))[:2] == (410, "com.microsoft:message-lock-lost")


async def test_nothing_to_peek_is_no_content(peer):
    await peer.authorize("orders")
    assert (await operate(peer, "peek-message", {"from-sequence-number": 0, "message-count": 5}))[0] == 204


async def test_a_reply_goes_to_the_link_the_request_names(peer):
    await peer.authorize("orders")
    named = peer.session.attach_receiver("answers", Source(address="orders/$management"), None)
    peer.flush()
    await peer.attached(named)
    named.flow(1)
    properties = {"operation": "com.microsoft:peek-message"}
    await peer.request("orders/$management", properties, {"message-count": 1}, reply_to="answers")
    assert named.delivery_count == 1


async def test_other_clients_are_served_while_one_does_not_read(port, peer, connect):
    await peer.authorize("orders")
    sender = await peer.attached(peer.sender("orders"))
    large = Sections(body=write_data(b"x" * 200_000)).join()
    for _ in range(100):
        await peer.outcome(sender, large)
    deaf = await connect()
    await deaf.authorize("orders")
    link = await deaf.attached(deaf.receiver("orders"))
    deaf.transport.pause_reading()
    link.flow(100)
    deaf.flush()
    other = await connect()
    await other.authorize("orders")
    await port.until(lambda: port.namespace.queue("orders").messages.consumers == 1)
    await asyncio.sleep(0)
    link = await other.attached(other.receiver("orders"))
    link.flow(5)
    other.flush()
    assert [(await other.next(DeliveryReceived)).link for _ in range(5)] == [link] * 5
    assert not [event for event in deaf.events if isinstance(event, DeliveryReceived)]


# ---------------------------------------------------------------- clients that leave, or never arrive


async def test_whoever_floods_takes_a_small_share_of_each_turn(port, peer, sender, monkeypatch):
    """Others wait for what is read of one connection before it is their turn."""
    shares, take = [], AmqpServerProtocol.data_received
    monkeypatch.setattr(
        AmqpServerProtocol, "data_received", lambda self, data: (shares.append(len(data)), take(self, data))
    )
    for index in range(40):
        sender.send(Sections(body=write_data(bytes(50_000))).join(), tag=b"%d" % index)
    peer.flush()
    await port.until(lambda: port.counts("orders").active == 40)
    assert max(shares) <= 64 * 1024


async def test_one_who_leaves_in_the_same_breath_gets_nothing(port, peer, sender):
    await peer.outcome(sender, MESSAGE)
    link = await peer.attached(peer.receiver("orders"))
    link.flow(1, drain=True)
    link.detach()
    peer.flush()
    other = peer.receiver("orders")
    other.flow(1)
    peer.flush()
    delivery = await peer.next(DeliveryReceived)
    assert (delivery.link, read_header(split(delivery.payload).header).delivery_count) == (other, 0)


async def test_closing_the_connection_in_the_same_breath_harms_nobody(port, peer, sender, connect):
    await peer.outcome(sender, MESSAGE)
    leaving = await connect()
    await leaving.authorize("orders")
    link = await leaving.attached(leaving.receiver("orders"))
    link.flow(1)
    leaving.amqp.close()
    leaving.flush()
    await leaving.lost()
    assert port.namespace.queue("orders").messages.peek(0, 1)[0].lock_token is None
    assert isinstance(await peer.outcome(sender, MESSAGE), Accepted)


# -- Links that are cut for being idle, and settling several messages by one request.


async def test_a_link_is_cut_after_ten_quiet_minutes_and_a_used_one_stays(port, peer):
    await peer.authorize("")
    used, quiet = await peer.attached(peer.sender("orders")), await peer.attached(peer.receiver("orders"))
    port.jump(timedelta(minutes=6))
    assert isinstance(await peer.outcome(used, MESSAGE), Accepted)
    port.jump(timedelta(minutes=6))
    ended = await peer.next(Detached)
    assert (ended.link, ended.error.condition) == (quiet, "amqp:link:detach-forced")
    assert isinstance(await peer.outcome(used, MESSAGE), Accepted)


async def test_a_request_on_behalf_of_a_link_keeps_it_from_idling(port, peer):
    await peer.authorize("")
    named = await peer.attached(peer.receiver("orders"))
    other = await peer.attached(peer.receiver("copies"))
    port.jump(timedelta(minutes=6))
    asked = {"operation": "com.microsoft:peek-message", "associated-link-name": named.name}
    await peer.request("orders/$management", asked, {"from-sequence-number": 0, "message-count": Int(1)})
    port.jump(timedelta(minutes=6))
    assert (await peer.next(Detached)).link is other
    assert port.node.connections
    assert named.is_attached


async def test_senders_of_an_entity_that_is_disabled_hear_it_at_once(port, peer):
    await peer.authorize("")
    orders, audit = await peer.attached(peer.sender("ORDERS")), await peer.attached(peer.sender("audit"))
    copies = await peer.attached(peer.sender("copies"))
    port.namespace.update(port.namespace.queue("orders"), QueueSettings(status=EntityStatus.RECEIVE_DISABLED))
    port.namespace.update(port.namespace.queue("orders"), QueueSettings(status=EntityStatus.SEND_DISABLED))
    port.node.wake()
    ended = await peer.next(Detached)
    assert (ended.link, ended.error.condition) == (orders, "amqp:link:detach-forced")
    port.namespace.update(port.namespace.topic("audit"), TopicSettings(status=EntityStatus.DISABLED))
    port.node.wake()
    ended = await peer.next(Detached)
    assert (ended.link, ended.error.condition) == (audit, "amqp:link:detach-forced")
    assert isinstance(await peer.outcome(copies, MESSAGE), Accepted)


@pytest.mark.parametrize("detaches", [False, True])
async def test_a_batch_has_one_megabyte_at_most_where_a_message_may_have_more(connect, detaches):
    clock, behaves = Clock(), Behavior(oversize_batch_detaches=detaches)
    rules = [root_rule(KEY_NAME, KEY)]
    node = NamespaceServer(NamespaceSpec("premium", rules=rules, tier=Tier.PREMIUM, behaves=behaves), clock=clock)
    node.namespace.create_queue("orders", QueueSettings(max_message_size_kb=100 * 1024))
    async with open_port(node, clock) as port:
        peer = await connect(port)
        await peer.authorize("")
        link = await peer.attached(peer.sender("orders"))
        assert link.remote.max_message_size == 100 * 1024 * 1024
        big = Sections(body=write_data(bytes(600 * 1024))).join()
        if detaches:
            peer.send(link, batch([big, big]), message_format=BATCH_FORMAT)
            ended = await peer.next(Detached)
            assert ended.error.condition == "amqp:link:message-size-exceeded"
            link = await peer.attached(peer.sender("orders"))
        else:
            refused = await peer.outcome(link, batch([big, big]), message_format=BATCH_FORMAT)
            assert refused.error.condition == "amqp:link:message-size-exceeded"
        assert isinstance(await peer.outcome(link, batch([big]), message_format=BATCH_FORMAT), Accepted)
        single = Sections(body=write_data(bytes(1200 * 1024))).join()
        assert isinstance(await peer.outcome(link, single), Accepted)
        assert port.counts("orders").active == 2


async def test_several_messages_are_settled_together_or_not_at_all(port, peer):
    await peer.authorize("")
    sender = await peer.attached(peer.sender("orders"))
    link = await peer.attached(peer.receiver("orders"))
    link.flow(3)
    for _ in range(3):
        await peer.outcome(sender, MESSAGE)
    tags = [event.tag for event in peer.history if isinstance(event, DeliveryReceived) and event.link is link]
    while len(tags) < 3:
        tags.append((await peer.next(DeliveryReceived)).tag)

    async def complete(*tokens):
        body = {"disposition-status": "completed", "lock-tokens": Array.of(UUID, list(tokens))}
        operation = {"operation": "com.microsoft:update-disposition"}
        answer, _ = await peer.request("orders/$management", operation, body)
        return answer["statusCode"], port.counts("orders").active

    held = [UUID(bytes_le=tag) for tag in tags]
    assert await complete(held[0], UUID(int=5)) == (410, 3)
    assert await complete(held[0], held[1]) == (200, 1)


# -- A fast receiver leaves the others their turns: the server writes to it in portions, one for each turn.


COUNT = 400
TURNS_MESSAGE = Sections(body=write_data(bytes(1024))).join()


async def test_what_a_receiver_gets_in_a_turn_is_limited_and_all_of_it_comes(port, connect, monkeypatch):
    peer = await connect()
    await peer.authorize("orders")
    sender = await peer.attached(peer.sender("orders"))
    await peer.next(FlowReceived)
    for number in range(COUNT):
        sender.send(TURNS_MESSAGE, tag=number.to_bytes(4, "big"), settled=True)
    peer.flush()
    await port.until(lambda: port.counts("orders").active == COUNT)
    receiver = await peer.attached(peer.receiver("orders"))

    turn, written = 0, Counter[int]()
    loop = asyncio.get_running_loop()

    def tick() -> None:
        nonlocal turn, ticking
        turn += 1
        ticking = loop.call_soon(tick)

    ticking = loop.call_soon(tick)
    (connection,) = port.node.connections
    transport = connection._transport
    write = transport.write

    def count(data: bytes) -> None:
        written[turn] += len(data)
        write(data)

    monkeypatch.setattr(transport, "write", count)
    receiver.flow(COUNT)
    peer.flush()
    for _ in range(COUNT):
        await peer.next(DeliveryReceived)
    ticking.cancel()
    assert sum(written.values()) > COUNT * len(TURNS_MESSAGE)
    assert max(written.values()) <= 1.1 * TURN_BYTES, "with frames, and the message that fills it"


# -- Addresses and audiences.


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("sb://host:5671/contoso/x/0", "contoso/x/0"),
        ("amqps://host/q/", "q"),
        ("sb://host", ""),
        ("sb://host/", ""),
        ("q", "q"),
        ("/q", "q"),
        ("a/b://c", "a/b://c"),
    ],
)
def test_the_path_of_a_uri(uri, path):
    assert path_of(uri) == path


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("$cbs", NodeAddress(NodeKind.CBS, "", "")),
        ("sb://host/$CBS", NodeAddress(NodeKind.CBS, "", "")),
        ("orders/$management", NodeAddress(NodeKind.MANAGEMENT, "orders", "orders/$management")),
        ("Orders/$Management", NodeAddress(NodeKind.MANAGEMENT, "Orders", "Orders/$Management")),
        ("amqps://h/t/Subscriptions/s", NodeAddress(NodeKind.ENTITY, "t/Subscriptions/s", "t/Subscriptions/s")),
        ("q/$DeadLetterQueue", NodeAddress(NodeKind.ENTITY, "q/$DeadLetterQueue", "q/$DeadLetterQueue")),
    ],
)
def test_what_an_address_names(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("parent", "path", "covered"),
    [
        ("q", "Q", True),
        ("q", "q/$management", True),
        ("q", "qq", False),
        ("q/a", "q", False),
        ("", "anything", True),
    ],
)
def test_whole_segments_are_covered(parent, path, covered):
    assert covers(parent, path) is covered
