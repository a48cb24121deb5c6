"""Section 12: "The sandbox ends links, limits connections and refuses as traces of the service show"."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from servicebus_amqp.access import sign
from servicebus_amqp.encoding.codec import Array, Int, Symbol, Timestamp, UInt
from servicebus_amqp.encoding.message_sections import (
    Properties,
    Sections,
    read_map,
    split,
    write_application_properties,
    write_properties,
    write_value,
)
from servicebus_amqp.encoding.performatives import Error, Rejected, Source
from servicebus_amqp.protocol.links import Closed, DeliveryReceived, Detached, DispositionReceived, FlowReceived
from servicebus_sandbox import Behavior, NamespaceSpec
from servicebus_sandbox.access.authorization import root_rule
from servicebus_sandbox.amqp_server.message_codec import AmqpPropertyCodec, show_message
from servicebus_sandbox.amqp_server.namespace_server import NamespaceServer
from servicebus_sandbox.broker.broker_errors import BatchTooLong
from servicebus_sandbox.broker.entity_settings import EntityStatus, QueueSettings, Tier
from servicebus_sandbox.broker.message import Message
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace

from .conftest import KEY, KEY_NAME, Clock, Port, open_port

MESSAGE = Sections(body=write_value("x")).join()
TAIL = re.compile(r" TrackingId:[0-9a-f-]{36}_G0, SystemTracker:([^,]+), Timestamp:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$")
SENDER_CLOSED = r"Code: publisher\(link\d+\)\. Details: AmqpMessagePublisher was closed\."
RECEIVER_CLOSED = r"Code: consumer\(link\d+\)\. Details: InnerMessageReceiver was closed\."
CLAIM = r"Unauthorized access\. '{}' claim\(s\) are required to perform this operation\. Resource: 'orders'\."


def untracked(text: str, tracker: str | None = None) -> str:
    """Return a description without its tail, which every one has; tracker: the part of the service in it."""
    found = TAIL.search(text)
    assert found is not None, text
    assert tracker in (None, found[1])
    return text[: found.start()]


def update(port: Port, status: EntityStatus) -> None:
    port.namespace.update(port.namespace.queue("orders"), QueueSettings(status=status))


ENDS = {
    "disabled": (lambda port: update(port, EntityStatus.DISABLED), (SENDER_CLOSED, RECEIVER_CLOSED)),
    "closed to senders": (lambda port: update(port, EntityStatus.SEND_DISABLED), (SENDER_CLOSED, None)),
    "closed to receivers": (lambda port: update(port, EntityStatus.RECEIVE_DISABLED), (SENDER_CLOSED, RECEIVER_CLOSED)),
    "deleted": (lambda port: port.namespace.delete("orders"), (SENDER_CLOSED, RECEIVER_CLOSED)),
    "token ended": (
        lambda port: port.jump(timedelta(seconds=61)),
        tuple(f"Code: RenewToken. Details: {CLAIM.format(right)}" for right in ("Send", "Listen")),
    ),
    "idle": (
        lambda port: port.jump(timedelta(minutes=11)),
        tuple(
            rf"Code: {code}\(link\d+\)\. Details: AmqpMessage{party}\.IdleTimerExpired: Idle timeout: 00:10:00\."
            for code, party in (("publisher", "Publisher"), ("consumer", "Consumer"))
        ),
    ),
    "a fault disables": (
        lambda port: port.node.faults.add("disabled", entity="orders"),
        (SENDER_CLOSED, RECEIVER_CLOSED),
    ),
    "a fault refuses": (
        lambda port: port.node.faults.add("not-found", entity="orders"),
        (SENDER_CLOSED, RECEIVER_CLOSED),
    ),
    "a fault revokes": (
        lambda port: port.node.faults.add("unauthorized", entity="orders"),
        tuple(f"Code: RenewToken. Details: {CLAIM.format(right)}" for right in ("Send", "Listen")),
    ),
}


@pytest.mark.parametrize("reason", ENDS)
async def test_a_link_is_force_detached_whatever_became_of_its_entity(port, peer, reason) -> None:
    """README: "A link ends with `amqp:link:detach-forced` when its entity is closed or deleted, its token has ended, or
    it was idle for ten minutes"."""
    act, expected = ENDS[reason]
    await peer.authorize("orders", seconds=60 if reason == "token ended" else 3600)
    links = [await peer.attached(peer.sender("orders")), await peer.attached(peer.receiver("orders"))]
    act(port)
    port.node.wake()
    left = {link: words for link, words in zip(links, expected, strict=True) if words is not None}
    while left:
        ended = await peer.next(Detached)
        words = left.pop(ended.link)
        assert ended.error.condition == "amqp:link:detach-forced"
        text = untracked(ended.error.description, "contoso:Queue:orders")
        assert re.fullmatch(rf"The link '{ended.link.name}' is force detached\. {words}", text), text


DISABLED = r"Messaging entity 'orders' is currently disabled\."
ATTACHES = {
    "disabled sender": (EntityStatus.DISABLED, "sender", "com.microsoft:entity-disabled", DISABLED),
    "disabled receiver": (EntityStatus.DISABLED, "receiver", "com.microsoft:entity-disabled", DISABLED),
    "closed to receivers": (EntityStatus.RECEIVE_DISABLED, "receiver", "com.microsoft:entity-disabled", DISABLED),
    "closed to senders": (
        EntityStatus.SEND_DISABLED,
        "sender",
        "com.microsoft:entity-disabled",
        r"'orders' is currently disabled for Send operations\.",
    ),
    "missing": (
        None,
        "sender",
        "amqp:not-found",
        r"The messaging entity 'orders' could not be found\. To know more visit https://",
    ),
}


@pytest.mark.parametrize("case", ATTACHES)
async def test_the_next_attach_says_what_became_of_the_entity(port, peer, refused, case) -> None:
    """README: "The next attach is refused with the reason"."""
    status, party, condition, words = ATTACHES[case]
    await peer.authorize("")
    if status is None:
        port.namespace.delete("orders")
    else:
        update(port, status)
    with pytest.raises(refused) as raised:
        await peer.attached(getattr(peer, party)("orders"))
    assert raised.value.condition == condition
    assert re.match(words, untracked(raised.value.description)), raised.value.description


SESSION = Symbol("com.microsoft:session-filter")
TIMEOUT = {Symbol("com.microsoft:timeout"): UInt(20)}
SESSIONS = {
    "no session named": (
        "payments",
        "absent",
        {},
        "amqp:not-allowed",
        "It is not possible for an entity that requires",
    ),
    "a session where there are none": (
        "orders",
        "a",
        {},
        "amqp:not-allowed",
        "A sessionful message receiver cannot be created on an entity that does not require sessions",
    ),
    "taken": (
        "payments",
        "taken",
        {},
        "com.microsoft:session-cannot-be-locked",
        "The requested session 'taken' cannot be accepted. It may be locked by another receiver.",
    ),
    "none free": (
        "payments",
        None,
        TIMEOUT,
        "com.microsoft:timeout",
        "The operation did not complete within the allotted timeout of 00:00:00.",
    ),
}


async def test_a_session_is_not_shared(peer, refused) -> None:
    """.NET raises NotSupportedException by this condition."""
    await peer.authorize("")
    wanted = {Symbol("com.microsoft:non-exclusive-session-filter"): ["a", None]}
    with pytest.raises(refused, match="amqp:not-implemented"):
        await peer.attached(peer.receiver("payments", Source(address="payments", filter=wanted)))


@pytest.mark.parametrize("case", SESSIONS)
async def test_a_session_that_cannot_be_had_is_refused_in_the_services_words(peer, refused, case) -> None:
    address, name, properties, condition, words = SESSIONS[case]
    await peer.authorize("")
    if name == "taken":
        await peer.attached(peer.receiver(address, Source(address=address, filter={SESSION: name})))
    source = Source(address=address) if name == "absent" else Source(address=address, filter={SESSION: name})
    link = peer.session.attach_receiver("asked", source, source, properties=properties)
    peer.flush()
    with pytest.raises(refused) as raised:
        await peer.attached(link)
    assert raised.value.condition == condition
    assert raised.value.description.startswith(words)
    assert raised.value.description.count("TrackingId:") == (2 if name is None else 1)


OUTCOMES = {
    "busy": (
        "com.microsoft:server-busy",
        "the namespace contoso is being throttled. Error code : 50009. Please wait 2 ",
    ),
    "full": ("amqp:resource-limit-exceeded", "The maximum entity size has been reached or exceeded for 'orders'."),
}


@pytest.mark.parametrize("fault", OUTCOMES)
async def test_a_refused_message_is_refused_in_the_services_words(port, peer, fault) -> None:
    condition, words = OUTCOMES[fault]
    await peer.authorize("orders")
    sender = await peer.attached(peer.sender("orders"))
    port.node.faults.add(fault, entity="orders")
    outcome = await peer.outcome(sender, MESSAGE)
    assert isinstance(outcome, Rejected)
    assert outcome.error.condition == condition
    assert words in untracked(outcome.error.description, "contoso:Queue:orders")


async def test_a_lost_lock_is_said_in_the_services_words(peer) -> None:
    await peer.authorize("orders")
    answer, _ = await peer.request(
        "orders/$management",
        {"operation": "com.microsoft:renew-lock"},
        {"lock-tokens": [UUID(int=1)]},
    )
    assert (answer["statusCode"], answer["errorCondition"]) == (410, "com.microsoft:message-lock-lost")
    assert answer["statusDescription"].startswith(
        "The lock supplied is invalid. Either the lock expired, or the message"
    )


@pytest.mark.parametrize("path", ["orders", "audit"])
async def test_a_tail_names_queue_and_topic(port, peer, refused, path) -> None:
    port.node.faults.add("full", entity=path)
    await peer.authorize(path)
    outcome = await peer.outcome(await peer.attached(peer.sender(path)), MESSAGE)
    untracked(outcome.error.description, f"contoso:{'Topic' if path == 'audit' else 'Queue'}:{path}")


async def test_a_connection_and_a_session_are_answered_as_the_service_does(port, connect) -> None:
    """README: "A connection has at most 5,000 sessions, 2,500 links and 1,000 tokens"."""
    peer = await connect(max_frame_size=32768, incoming_window=777)
    opened, begun = peer.amqp.remote, peer.session.remote
    assert re.fullmatch(r"[0-9a-f]{32}_G0", opened.container_id)
    assert (opened.max_frame_size, opened.channel_max, opened.idle_time_out) == (32768, 4999, 240_000)
    assert (begun.next_outgoing_id, begun.incoming_window, begun.outgoing_window) == (1, 5000, 777)
    assert begun.handle_max == 255


@pytest.mark.parametrize(("ours", "limit"), [(None, 262_144), (100_000, 100_000), (2**64 - 1, 262_144)])
async def test_the_smaller_message_size_applies(peer, ours, limit) -> None:
    """README: "The smaller of the client's and the entity's message size applies"."""
    await peer.authorize("orders")
    link = await peer.attached(peer.sender("orders", max_message_size=ours))
    assert link.remote.max_message_size == limit


async def test_nodes_and_receivers_have_messages_of_any_size(connect) -> None:
    """A client closes a link that brings more than was announced."""
    peer = await connect(max_message_size=None)
    await peer.authorize("orders")
    for path in ("$cbs", "orders/$management"):
        assert (await peer.attached(peer.sender(path))).remote.max_message_size == 2**64 - 1
        assert (await peer.attached(peer.receiver(path))).remote.max_message_size == 2**64 - 1
    assert (await peer.attached(peer.receiver("orders"))).remote.max_message_size == 2**64 - 1


@pytest.mark.parametrize(("path", "credit"), [("$cbs", 100), ("orders/$management", 100), ("orders", 1000)])
async def test_the_first_flow_has_the_services_credit(peer, path, credit) -> None:
    await peer.authorize("orders")
    await peer.attached(peer.sender(path))
    assert (await peer.next(FlowReceived)).credit == credit


async def test_a_request_whose_reply_has_no_link_is_refused(port, peer) -> None:
    """README: "A request whose `reply-to` names no link is refused"."""
    await peer.authorize("orders")
    link = await peer.attached(peer.sender("orders/$management"))
    await peer.attached(peer.receiver("orders/$management"))
    asked = Sections(
        properties=write_properties(Properties(message_id="1", reply_to="elsewhere")),
        application_properties=write_application_properties({"operation": "com.microsoft:peek-message"}),
        body=write_value({}),
    )
    outcome = await peer.outcome(link, asked.join())
    assert isinstance(outcome, Rejected)
    words = "The response link 'elsewhere' was not found in the entity management node $management."
    assert (outcome.error.condition, untracked(outcome.error.description)) == ("amqp:not-found", words)


async def test_a_credit_that_comes_before_the_session_counts(port, peer) -> None:
    """.NET's prefetching receivers send their flow behind the attach, and wait for the next session."""
    await peer.authorize("payments")
    link = peer.receiver("payments", Source(address="payments", filter={SESSION: None}))
    link.flow(5)
    peer.flush()
    await port.until(lambda: port.namespace.queue("payments").messages.consumers == 1)
    port.namespace.queue("payments").intake.send([Message(Sections(body=write_value("x")), 1, session_id="a")])
    port.node.wake()
    await peer.attached(link)
    await port.until(lambda: port.namespace.queue("payments").messages.peek(0, 1)[0].lock_token is not None)


@pytest.mark.parametrize("tells", [False, True])
async def test_a_batch_size_is_announced_if_the_namespace_does(connect, tells) -> None:
    clock = Clock()
    spec = NamespaceSpec("contoso", rules=[root_rule(KEY_NAME, KEY)], behaves=Behavior(tell_batch_size=tells))
    node = NamespaceServer(spec, clock=clock)
    node.namespace.create_queue("orders")
    async with open_port(node, clock) as port:
        peer = await connect(port)
        await peer.authorize("")
        link = await peer.attached(peer.sender("orders"))
        expected = {"com.microsoft:max-message-batch-size": 262_144} if tells else None
        assert link.remote.properties == expected


async def test_a_connection_has_a_thousand_tokens(port, peer) -> None:
    """README: "A connection has at most 5,000 sessions, 2,500 links and 1,000 tokens"."""
    port.namespace.create_queue("many")
    await peer.authorize("")
    (connection,) = port.node.connections
    audience = "sb://127.0.0.1/many"
    access = port.node.authorization.judge(sign(audience, KEY_NAME, KEY, time.time() + 60), audience, time.time())
    for number in range(999):
        connection.grant(replace(access, path=f"many/{number}"))
    status, text = await peer.put_token(audience, sign(audience, KEY_NAME, KEY, time.time() + 60))
    assert (status, "too many audiences" in text) == (403, True)


async def test_an_unlinked_connection_is_closed_by_its_container(port, peer) -> None:
    await peer.authorize("orders")
    port.jump(timedelta(seconds=61))
    error = (await peer.next(Closed)).error
    words = f"The connection was closed by container '{peer.amqp.remote.container_id}' because it did not have any "
    assert (error.condition, error.description.startswith(words)) == ("amqp:connection:forced", True)
    untracked(error.description, "gateway0")


# -- limits and properties that .NET's own live tests pin


def stored(session: str | None = None) -> Message:
    return Message(Sections(body=write_value("x")), 1, session_id=session)


@pytest.mark.parametrize(("tier", "accepted"), [(Tier.STANDARD, False), (Tier.PREMIUM, True)])
def test_a_batch_has_4500_messages_at_most_below_premium(tier, accepted) -> None:
    """README: "A batch has at most 4,500 messages below Premium"."""
    queue = BrokerNamespace("contoso", clock=time.time, tier=tier, codec=AmqpPropertyCodec()).create_queue("orders")
    queue.intake.send([stored()] * 4500)
    if not accepted:
        with pytest.raises(BatchTooLong, match=r"4501 messages; 'orders' takes at most 4500"):
            queue.intake.send([stored()] * 4501)
        return
    queue.intake.send([stored()] * 4501)


async def test_a_peek_shows_250_messages_at_most(port, peer) -> None:
    """README: "A peek shows at most 250 messages"."""
    port.namespace.queue("orders").intake.send([stored() for _ in range(300)])
    await peer.authorize("orders")
    asked = {"operation": "com.microsoft:peek-message"}
    _, found = await peer.request("orders/$management", asked, {"from-sequence-number": 0, "message-count": Int(300)})
    assert len(found["messages"]) == 250


@pytest.mark.parametrize(("size", "status"), [(256 * 1024, 200), (256 * 1024 + 1, 403)])
async def test_a_sessions_state_is_no_larger_than_a_message(peer, size, status) -> None:
    """README: "A session's state is no larger than a message"."""
    await peer.authorize("payments")
    await peer.attached(peer.receiver("payments", Source(address="payments", filter={SESSION: "a"})))
    body = {"session-id": "a", "session-state": bytes(size)}
    answer, _ = await peer.request("payments/$management", {"operation": "com.microsoft:set-session-state"}, body)
    assert answer["statusCode"] == status


@pytest.mark.parametrize(
    ("info", "condition", "expected"),
    [
        ({"DeadLetterReason": "why"}, "com.microsoft:dead-letter", {"DeadLetterReason": "why"}),
        ({}, "com.microsoft:dead-letter", {}),
        ({"DeadLetterReason": Timestamp(1000)}, "com.microsoft:dead-letter", {"DeadLetterReason": Timestamp(1000)}),
        ({}, "own:reason", {"DeadLetterReason": "own:reason"}),
    ],
)
async def test_a_dead_letters_words_are_those_that_were_given(port, peer, info, condition, expected) -> None:
    """A date is no reason, and stays a property; missing words are missing."""
    queue = port.namespace.queue("orders")
    queue.intake.send([stored()])
    await peer.authorize("orders")
    link = await peer.attached(peer.receiver("orders"))
    link.flow(1)
    peer.flush()
    delivery = await peer.next(DeliveryReceived)
    error = Error(condition=condition, info={Symbol(name): value for name, value in info.items()} or None)
    link.settle(delivery.delivery_id, Rejected(error=error), settled=False)
    peer.flush()
    await peer.next(DispositionReceived)
    (dead,) = queue.dead_letters.peek(0, 1)
    assert read_map(split(show_message(dead)).application_properties) == expected


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_partitioned_entity_gives_the_enqueued_number(partitioned) -> None:
    namespace = BrokerNamespace("contoso", clock=time.time, codec=AmqpPropertyCodec())
    queue = namespace.create_queue("orders", QueueSettings(enable_partitioning=partitioned))
    queue.intake.send([stored()])
    (message,) = queue.messages.peek(0, 1)
    annotations = read_map(split(show_message(message)).message_annotations)
    assert ("x-opt-enqueue-sequence-number" in annotations) is partitioned


async def test_sessions_are_listed_as_an_array_of_strings(port, peer) -> None:
    """.NET reads an array of strings, also of one."""
    port.namespace.queue("payments").intake.send([stored("a")])
    await peer.authorize("payments")
    asked = {"operation": "com.microsoft:get-message-sessions"}
    _, found = await peer.request("payments/$management", asked, {"skip": Int(0), "top": Int(10)})
    assert found["sessions-ids"] == Array.of(str, ["a"])
