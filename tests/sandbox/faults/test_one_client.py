"""Faults for one client, by container id or by the rule whose key it has; every other client notices nothing."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox
from servicebus_sandbox.broker.entity_settings import AuthorizationRule, Right
from servicebus_sandbox.faults import Caller, FaultBoard, FaultError

RULES = [
    AuthorizationRule(name=name, rights=frozenset({Right.SEND, Right.LISTEN}), primary_key=name, secondary_key="2")
    for name in ("one", "two")
]
Begin = Callable[..., Awaitable[str]]


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox.start([NamespaceSpec("primary", [QueueSpec("orders"), QueueSpec("other")], rules=RULES)]) as it:
        yield it


@pytest.fixture
async def begin(sandbox: Sandbox) -> AsyncIterator[Begin]:
    async with aiohttp.ClientSession(sandbox.control_url + "/") as session:

        async def begin(fault: str, **terms: Any) -> str:
            async with session.post("faults", json={"namespace": "primary", "fault": fault, **terms}) as answer:
                assert answer.status == 201, await answer.text()
                told: str = (await answer.json())["id"]
            async with session.get("faults") as answer:
                (listed,) = (await answer.json())["faults"]
                assert {name: listed.get(name) for name in terms} == terms
            return told

        yield begin


def client_with(sandbox: Sandbox, key: str) -> ServiceBusClient:
    text = sandbox["primary"].connection_string_for(key, key)
    return ServiceBusClient.from_connection_string(text, retry_total=0)


@pytest.mark.parametrize("entity", [None, "orders"])
async def test_a_key(sandbox: Sandbox, begin: Begin, entity: str | None) -> None:
    async with (
        both(sandbox) as (one, two),
        one.get_queue_sender("orders") as struck,
        two.get_queue_sender("orders") as spared,
    ):
        await struck.send_messages(ServiceBusMessage("before"))
        terms = {"entity": entity} if entity else {}
        fault = await begin("busy", key="one", **terms)
        await spared.send_messages(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusServerBusyError):
            await struck.send_messages(ServiceBusMessage("x"))
        sandbox["primary"].node.faults.remove(fault)
        await struck.send_messages(ServiceBusMessage("after"))
    assert sandbox["primary"].node.namespace.queue("orders").counts().active == 3


async def test_a_key_cuts_living_links_and_refuses_new_ones(sandbox: Sandbox, begin: Begin) -> None:
    async with (
        both(sandbox) as (one, two),
        one.get_queue_receiver("orders") as struck,
        two.get_queue_receiver("orders") as spared,
    ):
        assert await struck.peek_messages() == []
        await begin("refused", key="one")
        assert await spared.receive_messages(max_wait_time=0.2) == []
        with pytest.raises(ServiceBusError):
            await struck.receive_messages(max_wait_time=5)
        with pytest.raises(ServiceBusError):
            await one.get_queue_sender("orders").__aenter__()
        async with two.get_queue_sender("orders"):
            pass


async def test_a_key_is_refused_at_the_token_node(sandbox: Sandbox, begin: Begin) -> None:
    await begin("unauthorized", key="one", operations=["contact"])
    async with both(sandbox) as (one, two):
        with pytest.raises(ServiceBusError):
            await one.get_queue_sender("orders").__aenter__()
        async with two.get_queue_sender("orders"):
            pass


async def test_requests_to_the_management_node_have_a_key(sandbox: Sandbox, begin: Begin) -> None:
    await begin("busy", key="one", operations=["manage"])
    async with (
        both(sandbox) as (one, two),
        one.get_queue_receiver("orders") as struck,
        two.get_queue_receiver("orders") as spared,
    ):
        assert await spared.peek_messages() == []
        with pytest.raises(ServiceBusServerBusyError):
            await struck.peek_messages()


async def test_administration_over_http_has_no_such_client(sandbox: Sandbox, begin: Begin) -> None:
    await begin("refused", key="RootManageSharedAccessKey", operations=["manage"])
    text = sandbox["primary"].connection_string
    async with ServiceBusAdministrationClient.from_connection_string(
        text, connection_verify=str(sandbox.ca_file)
    ) as admin:
        assert (await admin.get_queue("orders")).name == "orders"


@asynccontextmanager
async def both(sandbox: Sandbox) -> AsyncIterator[tuple[ServiceBusClient, ServiceBusClient]]:
    async with client_with(sandbox, "one") as one, client_with(sandbox, "two") as two:
        yield one, two


def container_of(sandbox: Sandbox) -> str:
    (connection,) = sandbox["primary"].node.connections
    assert connection.container_id
    return connection.container_id


@pytest.mark.parametrize(
    ("fault", "terms", "seen"),
    [
        ("busy", {}, ServiceBusServerBusyError),
        ("reset", {}, ServiceBusError),
        ("refused", {"entity": "orders"}, ServiceBusError),
        ("disconnected", {"entity": "orders", "operations": ["send"]}, ServiceBusError),
        ("unauthorized", {}, ServiceBusError),
    ],
)
async def test_a_container_id(
    sandbox: Sandbox, begin: Begin, fault: str, terms: dict[str, Any], seen: type[Exception]
) -> None:
    async with client_with(sandbox, "one") as client, client.get_queue_sender("orders") as struck:
        name = container_of(sandbox)
        async with client.get_queue_sender("orders") as spared:
            await begin(fault, client=name, **terms)
            await spared.send_messages(ServiceBusMessage("x"))
            with pytest.raises(seen):
                await struck.send_messages(ServiceBusMessage("x"), timeout=3)
            await spared.send_messages(ServiceBusMessage("x"))
    assert sandbox["primary"].node.namespace.queue("orders").counts().active == 2


async def test_one_client_is_slow(sandbox: Sandbox, begin: Begin) -> None:
    async with client_with(sandbox, "one") as client, client.get_queue_sender("orders") as struck:
        name = container_of(sandbox)
        async with client.get_queue_sender("orders") as spared:
            await begin("latency", client=name, delay_s=1.5)
            began = time.perf_counter()
            await spared.send_messages(ServiceBusMessage("x"))
            assert time.perf_counter() - began < 1.4
            began = time.perf_counter()
            await struck.send_messages(ServiceBusMessage("x"))
            assert time.perf_counter() - began > 1.4


# ---------------------------------------------------------------------- the board alone


def test_other_callers_are_served() -> None:
    board = FaultBoard("contoso", lambda: ["orders"])
    board.add("busy", client="c", key="k")
    both = Caller(container_id="c", keys=frozenset({"j", "k"}))
    strikes = [fault.concerns("orders", both) for fault in board.active()]
    assert strikes == [True]
    for caller in (Caller(), Caller(container_id="c"), Caller(keys=frozenset({"k"})), Caller(container_id="C")):
        assert not board.active()[0].concerns("orders", caller)


def test_what_cannot_be_told_from_a_client_serves_all() -> None:
    board = FaultBoard("contoso", lambda: ["orders"])
    for kind in ("reset", "refused", "black-holed", "half-open"):
        board.add(kind, client="c")
    assert (board.connection_verdict().value, board.half_open, board.refuses_connections) == (
        "serve",
        frozenset(),
        False,
    )


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({"client": ""}, "client is ''; allowed is 1 to 256 characters"),
        ({"key": "x" * 257}, "key is 257 characters long; allowed is 1 to 256 characters"),
    ],
)
def test_names_have_a_length(terms: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FaultError, match=sentence):
        FaultBoard("contoso", list).add("busy", **terms)


def test_half_open_connections_have_no_key() -> None:
    with pytest.raises(FaultError, match="key is 'k'; allowed is nothing with 'half-open'; use client"):
        FaultBoard("contoso", list).add("half-open", key="k")


@pytest.mark.parametrize("value", [3, True, [], {}])
@pytest.mark.parametrize("name", ["client", "key"])
async def test_names_are_strings(sandbox: Sandbox, name: str, value: object) -> None:
    body = {"namespace": "primary", "fault": "busy", name: value}
    async with (
        aiohttp.ClientSession(sandbox.control_url + "/") as session,
        session.post("faults", json=body) as answer,
    ):
        assert answer.status == 400
        assert (await answer.json())["error"].startswith(f"{name} has to be a string, not ")
