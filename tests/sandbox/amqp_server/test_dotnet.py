"""What the .NET client sends reaches its outcome: connect, send, receive, settle, manage, sessions, close."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from tests.sandbox.amqp_server.conftest import KEY, KEY_NAME
from tests.sandbox.amqp_server.dotnet import BATCH_FORMAT, DotNet, Refused
from tests.sandbox.amqp_server.dotnet_values import (
    ABANDONED,
    ACCEPTED,
    DEFERRED,
    batch,
    dead_lettered,
    lock_token,
    message,
    sections_of,
)

from servicebus_amqp.encoding.codec import Array, Int, Symbol, Timestamp, UByte, UInt
from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox
from servicebus_sandbox.broker.queues.message_queue import COMPLETE

VENDOR = "com.microsoft:"


@pytest.fixture
async def dotnet(port) -> AsyncIterator[DotNet]:
    """An open connection of the client."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
    yield await DotNet(reader, writer, "127.0.0.1", (KEY_NAME, KEY)).open()
    writer.close()


def code(outcome) -> int:
    return int(outcome.descriptor)


def body(delivery) -> bytes:
    return sections_of(delivery.payload)[0x75]


def asked(operation: str, link=None) -> dict:
    """sdk: Amqp/AmqpRequestMessage.cs, CreateRequest."""
    properties = {"operation": VENDOR + operation, VENDOR + "server-timeout": UInt(60_000), VENDOR + "tracking-id": "t"}
    return properties if link is None else properties | {"associated-link-name": link.name}


async def test_it_sends_one_message_and_batches(port, dotnet):
    link = await dotnet.sender("orders")
    assert code(await dotnet.send(link, message(b"one"))) == 0x24
    assert code(await dotnet.send(link, batch([message(b"two"), message(b"three")]), kind=BATCH_FORMAT)) == 0x24
    assert port.counts("orders").active == 3


async def test_a_message_it_sends_without_id_can_be_told_from_others(dotnet):
    sender = await dotnet.sender("orders")
    await dotnet.send(sender, batch([message(b"1"), message(b"2")]), kind=BATCH_FORMAT)
    got = await dotnet.receive(await dotnet.receiver("orders"), 2)
    assert len({sections_of(delivery.payload)[0x73][0] for delivery in got}) == 2


async def test_a_peek_lock_receiver_settles_in_every_way(port, dotnet):
    sender = await dotnet.sender("orders")
    for text in (b"complete", b"abandon", b"defer", b"bury"):
        await dotnet.send(sender, message(text))
    link = await dotnet.receiver("orders")
    assert (link.attach[3], link.attach[4]) == (UByte(2), UByte(1)), "the answer decides how the client settles"
    done, again, later, bad = await dotnet.receive(link, 4)
    assert [body(one) for one in (done, again, later, bad)] == [b"complete", b"abandon", b"defer", b"bury"]
    assert code(await dotnet.settle(done, ACCEPTED)) == 0x24
    assert code(await dotnet.settle(again, ABANDONED)) == 0x27
    assert code(await dotnet.settle(later, DEFERRED)) == 0x27
    buried = await dotnet.settle(bad, dead_lettered("why", "in detail"))
    assert (code(buried), buried.value) == (0x25, [None]), "an error would be raised as the client's failure"
    (second,) = await dotnet.receive(link, 1)
    assert (body(second), sections_of(second.payload)[0x70][4]) == (b"abandon", 1)
    await dotnet.settle(second, ACCEPTED)
    (dead,) = await dotnet.receive(await dotnet.receiver("orders/$DeadLetterQueue"), 1)
    told = sections_of(dead.payload)[0x74]
    assert (told["DeadLetterReason"], told["DeadLetterErrorDescription"]) == ("why", "in detail")
    assert code(await dotnet.settle(dead, ACCEPTED)) == 0x24
    assert (port.counts("orders").active, port.counts("orders").dead_letter) == (1, 0)


async def test_a_lock_that_is_gone_is_told_by_its_condition(port, dotnet):
    await dotnet.send(await dotnet.sender("orders"), message(b"x"))
    (delivery,) = await dotnet.receive(await dotnet.receiver("orders"), 1)
    port.namespace.queue("orders").messages.settle(delivery.fields[2], COMPLETE)
    outcome = await dotnet.settle(delivery, ACCEPTED)
    assert (code(outcome), outcome.value[0].value[0]) == (0x25, "com.microsoft:message-lock-lost")


async def test_receive_and_delete_needs_no_settling(port, dotnet):
    await dotnet.send(await dotnet.sender("orders"), message(b"x"))
    link = await dotnet.receiver("orders", deletes=True)
    (delivery,) = await dotnet.receive(link, 1)
    assert (body(delivery), delivery.fields[4]) == (b"x", True)
    assert port.counts("orders").active == 0


async def test_a_receiver_drains_its_credit_before_it_closes(dotnet):
    link = await dotnet.receiver("orders")
    link.session.flow(link, 5)
    await dotnet.drain(link)
    await dotnet.send(await dotnet.sender("orders"), message(b"x"))
    (delivery,) = await dotnet.receive(link, 1)
    assert body(delivery) == b"x"


async def test_a_message_of_several_frames_arrives_whole(dotnet):
    sender, large = await dotnet.sender("orders"), bytes(range(251)) * 200
    assert code(await dotnet.send(sender, message(large))) == 0x24
    (delivery,) = await dotnet.receive(await dotnet.receiver("orders"), 1)
    assert body(delivery) == large


async def test_management_peeks_renews_schedules_and_settles(port, dotnet):
    sender = await dotnet.sender("orders")
    manage = await dotnet.management("orders")
    await dotnet.send(sender, message(b"x"))
    peek = {"from-sequence-number": 1, "message-count": Int(10)}
    answer, found = await manage.ask(asked("peek-message"), peek)
    assert type(answer["statusCode"]) is Int
    assert answer["statusCode"] == 200
    (entry,) = found["messages"]  # a list: sdk, Amqp/AmqpResponseMessage.cs, GetListValue
    assert sections_of(entry["message"])[0x75] == b"x"
    link = await dotnet.receiver("orders")
    (delivery,) = await dotnet.receive(link, 1)
    tokens = {"lock-tokens": Array.of(UUID, [lock_token(delivery.fields[2])])}
    answer, renewed = await manage.ask(asked("renew-lock", link), tokens)
    assert answer["statusCode"] == 200
    assert isinstance(renewed["expirations"], Array), "it is cast to DateTime[]"
    assert type(renewed["expirations"].values[0]) is Timestamp
    answer, _ = await manage.ask(asked("update-disposition", link), tokens | {"disposition-status": "defered"})
    assert answer["statusCode"] == 200
    numbers = Array.of(int, [1])
    asked_for = {"sequence-numbers": numbers, "receiver-settle-mode": UInt(1)}
    answer, deferred = await manage.ask(asked("receive-by-sequence-number", link), asked_for)
    (entry,) = deferred["messages"]
    completed = {"lock-tokens": Array.of(UUID, [entry["lock-token"]])}
    answer, _ = await manage.ask(asked("update-disposition", link), completed | {"disposition-status": "completed"})
    assert (answer["statusCode"], port.counts("orders").active) == (200, 0)
    answer, _ = await manage.ask(asked("renew-lock", link), tokens)
    assert answer["statusCode"] == 410
    assert type(answer["errorCondition"]) is Symbol


async def test_management_schedules_and_cancels(port, dotnet):
    sender = await dotnet.sender("orders")
    manage = await dotnet.management("orders")
    later = Timestamp(4_000_000_000_000)
    annotations = {Symbol("x-opt-scheduled-enqueue-time"): later}
    entry = {"message": message(b"x", annotations), "message-id": None}
    answer, given = await manage.ask(asked("schedule-message", sender), {"messages": [entry]})
    assert answer["statusCode"] == 200
    assert isinstance(given["sequence-numbers"], Array), "it is cast to long[]"
    assert port.counts("orders").scheduled == 1
    answer, _ = await manage.ask(asked("cancel-scheduled-message", sender), given)
    assert (answer["statusCode"], port.counts("orders").scheduled) == (200, 0)


async def test_request_links_never_run_out_of_credit(dotnet):
    """They attach without initial-delivery-count; a flow that does not count from 0 would grant nothing new."""
    manage = await dotnet.management("orders")
    for _ in range(130):
        answer, _ = await manage.ask(asked("peek-message"), {"from-sequence-number": 1, "message-count": Int(1)})
        assert answer["statusCode"] == 204


@pytest.mark.parametrize("session_id", ["s", None])
async def test_sessions_are_accepted_by_name_or_as_the_next(dotnet, session_id):
    await dotnet.send(await dotnet.sender("payments"), message(b"x", group_id="s"))
    link = await dotnet.receiver("payments", session_id=session_id)
    assert link.attach[5].value[7] == {Symbol("com.microsoft:session-filter"): "s"}
    assert link.attach[13][Symbol("com.microsoft:locked-until-utc")] > 621_355_968_000_000_000
    (delivery,) = await dotnet.receive(link, 1)
    assert code(await dotnet.settle(delivery, ACCEPTED)) == 0x24
    manage = await dotnet.management("payments")
    answer, renewed = await manage.ask(asked("renew-session-lock", link), {"session-id": "s"})
    assert answer["statusCode"] == 200
    assert type(renewed["expiration"]) is Timestamp
    answer, _ = await manage.ask(asked("set-session-state", link), {"session-id": "s", "session-state": b"step 2"})
    answer, state = await manage.ask(asked("get-session-state", link), {"session-id": "s"})
    assert state == {"session-state": b"step 2"}


async def test_a_session_that_is_taken_is_refused_by_its_condition(dotnet):
    await dotnet.receiver("payments", session_id="s")
    with pytest.raises(Refused) as refused:
        await dotnet.receiver("payments", session_id="s")
    assert refused.value.condition == "com.microsoft:session-cannot-be-locked"


async def test_links_sessions_and_connection_close_without_waiting(port, dotnet):
    """sdk: Amqp/AmqpConnectionScope.cs, CloseLink ends the session with the link in it."""
    link = await dotnet.sender("orders")
    link.session.close()
    await dotnet.until(lambda: link.session.is_ended and link.is_detached, "the end of the session")
    await dotnet.receiver("orders")
    await dotnet.close()
    await port.until(lambda: not port.node.connections)


async def test_it_connects_over_tls():
    """sdk: Amqp/AmqpConnectionScope.cs, CreateTransportSettingsforTcp: TLS, then SASL inside it."""
    async with Sandbox.start([NamespaceSpec("contoso", queues=[QueueSpec("orders")])]) as sandbox:
        namespace = sandbox["contoso"]
        tls, name = ssl.create_default_context(cafile=sandbox.ca_file), namespace.fully_qualified_name
        settings = dict(part.split("=", 1) for part in namespace.connection_string.split(";") if part)
        key = settings["SharedAccessKeyName"], settings["SharedAccessKey"]
        connected = asyncio.open_connection("127.0.0.1", namespace.amqp_port, ssl=tls, server_hostname=name)
        reader, writer = await connected
        client = await DotNet(reader, writer, name, key).open()
        assert code(await client.send(await client.sender("orders"), message(b"x"))) == 0x24
        await client.close()
        writer.close()
