"""Links that are cut for being idle, and settling several messages by one request."""

from datetime import timedelta
from uuid import UUID

import pytest
from tests.sandbox.amqp_server.conftest import KEY, KEY_NAME, Clock, open_port

from servicebus_amqp.encoding.amqp_types import Array, Int
from servicebus_amqp.encoding.message_sections import BATCH_FORMAT, Sections, batch, write_data
from servicebus_amqp.encoding.messaging_types import Accepted
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, Detached
from servicebus_sandbox.access.authorization import root_rule
from servicebus_sandbox.amqp_server.namespace_server import NamespaceServer
from servicebus_sandbox.broker.entity_settings import Behavior, EntityStatus, QueueSettings, Tier, TopicSettings

MESSAGE = Sections(body=write_data(b"hello")).join()


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
    port.namespace.update_queue("orders", QueueSettings(status=EntityStatus.RECEIVE_DISABLED))
    port.namespace.update_queue("orders", QueueSettings(status=EntityStatus.SEND_DISABLED))
    port.node.wake()
    ended = await peer.next(Detached)
    assert (ended.link, ended.error.condition) == (orders, "com.microsoft:entity-disabled")
    port.namespace.update_topic("audit", TopicSettings(status=EntityStatus.DISABLED))
    port.node.wake()
    ended = await peer.next(Detached)
    assert (ended.link, ended.error.condition) == (audit, "com.microsoft:entity-disabled")
    assert isinstance(await peer.outcome(copies, MESSAGE), Accepted)


@pytest.mark.parametrize("detaches", [False, True])
async def test_a_batch_has_one_megabyte_at_most_where_a_message_may_have_more(connect, detaches):
    clock, behaves = Clock(), Behavior(oversize_batch_detaches=detaches)
    rules = [root_rule(KEY_NAME, KEY)]
    node = NamespaceServer("premium", rules=rules, clock=clock, tier=Tier.PREMIUM, behaves=behaves)
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
