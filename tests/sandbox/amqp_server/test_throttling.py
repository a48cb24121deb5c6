"""A namespace without credits, over AMQP: what is refused, by which condition, and that it passes."""

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError
from tests.sandbox.amqp_server.conftest import KEY, KEY_NAME, Clock, open_port

from servicebus_amqp.encoding.codec import Int
from servicebus_amqp.encoding.message_sections import Sections, write_value
from servicebus_amqp.protocol.links import Detached
from servicebus_sandbox.access.authorization import root_rule
from servicebus_sandbox.amqp_server.namespace_server import NamespaceServer
from servicebus_sandbox.broker.message import Message
from servicebus_sandbox.specs import NamespaceSpec

PAYLOAD = Sections(body=write_value("x"))
LATER = datetime.now(UTC) + timedelta(hours=1)
BUSY = "com.microsoft:server-busy"
TEXT = "The request was terminated because the namespace contoso is being throttled. Error code : 50009."


class StillClock(Clock):
    """Stands, until it is set forward."""

    def __init__(self) -> None:
        super().__init__()
        self.at = super().__call__()

    def __call__(self) -> float:
        return self.at + self.ahead


@pytest.fixture
async def port():
    clock = StillClock()
    node = NamespaceServer(
        NamespaceSpec("contoso", rules=[root_rule(KEY_NAME, KEY)], credits_per_second=20), clock=clock
    )
    node.namespace.create_queue("orders")
    node.namespace.create_topic("audit")
    node.namespace.create_subscription("audit", "all")
    async with open_port(node, clock) as opened:
        yield opened


def spend_all(port):
    port.namespace.charge(20)


def next_second(port):
    port.clock.ahead += 1


async def test_a_send_is_refused_until_the_next_second(port, client):
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages([ServiceBusMessage("x") for _ in range(20)])
        with pytest.raises(ServiceBusServerBusyError, match=TEXT):
            await sender.send_messages(ServiceBusMessage("refused"))
        next_second(port)
        await sender.send_messages(ServiceBusMessage("later"))
    assert port.counts("orders").active == 21


async def test_a_receiver_is_detached_and_loses_nothing(port, peer):
    port.namespace.queue("orders").intake.send([Message(PAYLOAD, 1) for _ in range(20)])
    await peer.authorize("orders")
    link = await peer.attached(peer.receiver("orders"))
    link.flow(5)
    peer.flush()
    error = (await peer.next(Detached)).error
    assert (error.condition, TEXT in error.description) == (BUSY, True)
    next_second(port)
    assert len(port.namespace.queue("orders").messages.waiting()) == 20


async def test_the_sdk_receives_after_a_while(port):
    port.namespace.queue("orders").intake.send([Message(PAYLOAD, 1) for _ in range(20)])
    async with port.client() as client, client.get_queue_receiver("orders") as receiver:
        with pytest.raises(ServiceBusServerBusyError):
            await receiver.receive_messages(1, max_wait_time=5)


@pytest.mark.parametrize(
    ("path", "operation", "body", "cost"),
    [
        ("orders", "peek-message", {"from-sequence-number": 0, "message-count": Int(5)}, 3),
        ("orders", "peek-message", {"from-sequence-number": 100, "message-count": Int(5)}, 1),
        ("audit/Subscriptions/all", "enumerate-rules", {"top": Int(1), "skip": Int(0)}, 10),
    ],
)
async def test_management_has_its_price(port, peer, path, operation, body, cost):
    port.namespace.queue("orders").intake.send([Message(PAYLOAD, 1) for _ in range(3)])
    await peer.authorize(path)
    next_second(port)
    bucket = port.namespace._agenda.credits
    asked = {"operation": f"com.microsoft:{operation}"}
    answer, _ = await peer.request(f"{path}/$management", asked, body)
    assert answer["statusCode"] in (200, 204)
    assert bucket.balance == 20 - cost
    bucket.balance = 0
    answer, _ = await peer.request(f"{path}/$management", asked, body)
    assert (answer["statusCode"], answer["errorCondition"]) == (503, BUSY)
    assert answer["statusDescription"].startswith(TEXT)


async def test_settling_is_free(port, client):
    async with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        await sender.send_messages(ServiceBusMessage("x"))
        (message,) = await receiver.receive_messages()
        port.namespace._agenda.credits.balance = 0
        await receiver.complete_message(message)
    assert port.counts("orders").active == 0


async def test_a_scheduled_message_costs_like_a_sent_one(port, client):
    spend_all(port)
    async with client.get_queue_sender("orders") as sender:
        with pytest.raises(ServiceBusError, match="50009"):
            await sender.schedule_messages(ServiceBusMessage("x"), LATER)
