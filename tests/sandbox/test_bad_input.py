"""Each kind of nonsense, many times over: refused with the condition of the service, said once, nothing kept, and
others served meanwhile. `test_fuzz` draws such things at random; here each has its answer."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from tests.sandbox.fuzzing import Attacker, Client

from servicebus_amqp.encoding.frames import AMQP_HEADER, build_frame
from servicebus_amqp.encoding.performatives import Source, Target
from servicebus_amqp.protocol.links import Closed, Detached, Event
from servicebus_sandbox import AsyncSandboxCredential, NamespaceSpec, QueueSpec, Sandbox, SubscriptionSpec, TopicSpec
from servicebus_sandbox.access.authorization import RESOURCE_MANAGER

TIMES = 5
SPEC = NamespaceSpec("primary", queues=[QueueSpec("good")], topics=[TopicSpec("feed", [SubscriptionSpec("all")])])
Told = list[str]
Attack = Callable[[Attacker], Awaitable[Told]]

SPACE = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"


def entry(kind: str, inside: str) -> str:
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f'<{kind}Description xmlns="{SPACE}">{inside}</{kind}Description></content></entry>'
    )


def conditions(events: list[Event]) -> Told:
    return [event.error.condition for event in events if isinstance(event, Detached | Closed) and event.error]


async def answer(client: Client, wanted: int = 1) -> Told:
    """The conditions the client was told, when there are `wanted` or the connection is over."""
    async with asyncio.timeout(60):
        while not client.is_lost and len(conditions(client.events)) < wanted:
            client.changed.clear()
            await client.changed.wait()
    return conditions(client.events)


# ---------------------------------------------------------------------- what is sent, and what is told


async def random_bytes(attacker: Attacker) -> Told:
    async with attacker.stream(encrypted=False, port=None) as (reader, writer):
        writer.write(b"\x99" + attacker.draw.randbytes(500))
        with suppress(ConnectionError):
            return [str(await reader.read())]
    return ["b''"]


async def half_a_handshake(attacker: Attacker) -> Told:
    async with attacker.stream(encrypted=False, port=None) as (reader, writer):
        writer.write(AMQP_HEADER + build_frame(0, b"\x00\x53\x10\xc0\x20")[:9])
        writer.write_eof()
        return [str((await reader.read())[:8])]


async def half_a_tls_hello(attacker: Attacker) -> Told:
    async with attacker.stream(encrypted=False, port=None) as (reader, writer):
        writer.write(b"\x16\x03\x01\x02\x00\x01\x00")
        writer.write_eof()
        with suppress(ConnectionError):
            await reader.read()
    return []


async def oversized_frame(attacker: Attacker) -> Told:
    async with attacker.client() as client:
        client.transport.write(struct.pack(">IBBH", 2**31, 2, 0, 0) + bytes(1000))
        return await answer(client)


async def a_frame_of_nonsense(attacker: Attacker) -> Told:
    async with attacker.client() as client:
        client.transport.write(build_frame(0, b"\x00\x53\x14\xc0\xff\xff"))
        return await answer(client)


async def an_attach_to_a_dollar_name(attacker: Attacker) -> Told:
    async with attacker.client() as client:
        await attacker.authorized(client)
        client.session.attach_sender("s", Source(address="x"), Target(address="$nothing"))
        client.flush()
        return await answer(client)


async def a_dynamic_node(attacker: Attacker) -> Told:
    async with attacker.client() as client:
        client.session.attach_receiver("s", Source(), Target(address="x"))
        client.flush()
        return await answer(client)


async def malformed_xml(attacker: Attacker) -> Told:
    return [str(await attacker.managed("PUT", "/new?api-version=2021-05", "<entry><content>"))]


async def a_negative_ttl(attacker: Attacker) -> Told:
    body = entry("Queue", "<DefaultMessageTimeToLive>-PT5M</DefaultMessageTimeToLive>")
    return [str(await attacker.managed("PUT", "/new?api-version=2021-05", body))]


async def a_filter_with_an_error(attacker: Attacker) -> Told:
    xsi = 'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'
    body = entry("Rule", f'<Filter {xsi} i:type="SqlFilter"><SqlExpression>a LIKE</SqlExpression></Filter>')
    return [str(await attacker.managed("PUT", "/feed/subscriptions/all/rules/new?api-version=2021-05", body))]


async def through_arm(attacker: Attacker, path: str, body: str) -> Told:
    at = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/primary"
    headers = {"Authorization": f"Bearer {attacker.token_for_arm}"}
    url = f"{attacker.sandbox.arm_url}{at}{path}?api-version=2026-01-01"
    return [str(await attacker.asked("PUT", url, body, headers))]


async def a_negative_ttl_through_arm(attacker: Attacker) -> Told:
    return await through_arm(attacker, "/queues/new", '{"properties": {"defaultMessageTimeToLive": "-PT5M"}}')


async def a_filter_with_an_error_through_arm(attacker: Attacker) -> Told:
    body = '{"properties": {"filterType": "SqlFilter", "sqlFilter": {"sqlExpression": "a LIKE"}}}'
    return await through_arm(attacker, "/topics/feed/subscriptions/all/rules/new", body)


async def a_flood_of_attaches(attacker: Attacker) -> Told:
    async with attacker.client() as client:
        await attacker.authorized(client)
        sessions = [client.session, *(client.amqp.begin() for _ in range(10))]
        client.flush()
        for number in range(2640):
            sessions[number % 11].attach_sender(f"s{number}", Source(address="x"), Target(address="good"))
        client.flush()
        return sorted(set(await answer(client, wanted=101)))


CASES: list[tuple[Attack, Told, int]] = [
    (random_bytes, ["b''"], TIMES),
    (half_a_handshake, [str(AMQP_HEADER)], TIMES),
    (half_a_tls_hello, [], TIMES),
    (oversized_frame, ["amqp:connection:framing-error"], TIMES),
    (a_frame_of_nonsense, ["amqp:decode-error"], TIMES),
    (an_attach_to_a_dollar_name, ["amqp:not-found"], TIMES),
    (a_dynamic_node, ["amqp:not-implemented"], TIMES),
    (malformed_xml, ["400"], TIMES),
    (a_negative_ttl, ["400"], TIMES),
    (a_filter_with_an_error, ["400"], TIMES),
    (a_negative_ttl_through_arm, ["400"], TIMES),
    (a_filter_with_an_error_through_arm, ["400"], TIMES),
    (a_flood_of_attaches, ["amqp:resource-limit-exceeded"], 1),
]


# ---------------------------------------------------------------------- what it does to the sandbox


@pytest.fixture
async def attacker() -> AsyncIterator[Attacker]:
    async with Sandbox.start([SPEC]) as sandbox:
        owner = AsyncSandboxCredential(sandbox.control_url, "Data Owner")
        yield Attacker(sandbox, 1, (await owner.get_token(RESOURCE_MANAGER[0])).token)


class State:
    """What `/state` tells of the sandbox, and what another client sees of it."""

    def __init__(self, attacker: Attacker) -> None:
        self.sandbox = attacker.sandbox

    async def read(self) -> dict[str, object]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.sandbox.control_url}/state") as told,
        ):
            state = await told.json()
        (primary,) = state["namespaces"]
        return {"tasks": state["tasks"], **{name: primary[name] for name in ("connections", "links", "entities")}}

    async def returns_to(self, before: dict[str, object]) -> None:
        state: object = None
        try:
            async with asyncio.timeout(60):
                while (state := await self.read()) != before:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            assert state == before


@pytest.mark.parametrize(("attack", "told", "times"), CASES, ids=[case[0].__name__ for case in CASES])
async def test_nonsense_is_refused_said_once_and_forgotten(
    attacker: Attacker, caplog: pytest.LogCaptureFixture, attack: Attack, told: Told, times: int
) -> None:
    caplog.set_level(logging.INFO, "servicebus_sandbox")
    connection_string = attacker.namespace.connection_string
    async with (
        asyncio.timeout(60),
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_sender("good") as sender,
        client.get_queue_receiver("good") as receiver,
    ):

        async def goes_on() -> None:
            await sender.send_messages(ServiceBusMessage("x"), timeout=10)
            (message,) = await receiver.receive_messages(1, max_wait_time=10)
            await receiver.complete_message(message)

        await goes_on()
        state = State(attacker)
        await state.read()
        before = await state.read()
        answers = [attack(attacker) for _ in range(times)]
        others = asyncio.create_task(goes_on())
        assert await asyncio.gather(*answers) == [told] * times
        await others
        await state.returns_to(before)
        await goes_on()
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("servicebus_")]
    said = Counter(text for text in lines if not text.startswith("the ARM port"))  # its clients end as they like
    assert not [text for text, count in said.items() if count > 1], said
    about_it = [text for text in said if "no reply link" not in text]  # the attacker's tokens ask for no reply
    assert len(about_it) == (attack is not half_a_handshake), said
