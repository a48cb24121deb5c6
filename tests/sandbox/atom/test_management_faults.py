"""Faults that reach the management API over HTTPS: alone, or with everything else."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from servicebus_sandbox import Sandbox
from servicebus_sandbox.faults import FaultTerms, Operation

MANAGE = FaultTerms(operations=frozenset({Operation.MANAGE}))
MESSAGING = FaultTerms(operations=frozenset(Operation) - {Operation.MANAGE, Operation.CONTACT})


async def ask(sandbox: Sandbox, path: str, seconds: float = 60.0) -> int:
    """The status of a request to the primary namespace; without a token, served ones are answered 401."""
    url = f"{sandbox['primary'].admin_url}/{path}?api-version=2021-05"
    async with asyncio.timeout(seconds), aiohttp.ClientSession() as session, session.get(url, ssl=False) as answer:
        return answer.status


async def send(sandbox: Sandbox, entity: str = "orders") -> int:
    connection_string = sandbox["primary"].connection_string
    client = ServiceBusClient.from_connection_string(connection_string, retry_total=0)
    async with asyncio.timeout(60), client, client.get_queue_sender(entity) as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    return sandbox["primary"].node.namespace.queue(entity).counts().active


@pytest.mark.parametrize(("kind", "status"), [("busy", 503), ("not-found", 404), ("unauthorized", 401)])
async def test_management_fails_with_a_status_while_messages_pass(sandbox: Sandbox, kind: str, status: int) -> None:
    sandbox["primary"].node.faults.add(kind, terms=MANAGE)
    assert await ask(sandbox, "orders") == status
    assert await send(sandbox) == 1


@pytest.mark.parametrize("kind", ["refused", "reset"])
async def test_management_is_cut_off_while_messages_pass(sandbox: Sandbox, kind: str) -> None:
    sandbox["primary"].node.faults.add(kind, terms=MANAGE)
    with pytest.raises(aiohttp.ClientError):
        await ask(sandbox, "orders")
    assert await send(sandbox) == 1


async def test_management_of_one_entity_is_swallowed_until_that_ends(sandbox: Sandbox) -> None:
    board = sandbox["primary"].node.faults
    fault = board.add("black-holed", entity="orders", terms=MANAGE)
    with pytest.raises(TimeoutError):
        await ask(sandbox, "orders", seconds=0.5)
    assert await ask(sandbox, "payments") == 401
    board.remove(fault.id)
    assert await ask(sandbox, "orders") == 401


async def test_messaging_fails_while_management_works(sandbox: Sandbox) -> None:
    sandbox["primary"].node.faults.add("disabled", terms=MESSAGING)
    assert await ask(sandbox, "orders") == 401
    with pytest.raises(Exception, match="Disabled"):
        await send(sandbox)


async def test_a_half_open_management_connection_is_dead_and_a_new_one_served(sandbox: Sandbox) -> None:
    board, url = sandbox["primary"].node.faults, f"{sandbox['primary'].admin_url}/orders?api-version=2021-05"
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        async with session.get(url, ssl=False) as answer:
            assert await answer.read()
        fault = board.add("half-open")
        held = asyncio.ensure_future(session.post(url, ssl=False))  # on the connection it kept; not tried anew
        assert await ask(sandbox, "orders") == 401
        assert not held.done()
        board.remove(fault.id)
        with pytest.raises(aiohttp.ClientError):
            await held
        async with session.get(url, ssl=False) as answer:
            assert answer.status == 401
