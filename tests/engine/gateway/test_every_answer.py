"""SPEC.md section 7: "Every request has an answer before the client's own limit"."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.envelope import PING_CONTENT_TYPE
from paired_servicebus.core.model.gateway_view import TurnedAway
from paired_servicebus.engine.gateway.front_links import seconds_for
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing, new_key
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from paired_servicebus.engine.gateway.relayed_links import RelayedReplies
from paired_servicebus.pairing.sending.encoded_sender import EncodedSender
from servicebus_amqp.encoding.amqp_types import Symbol, UInt
from servicebus_amqp.encoding.codec import described, encode
from servicebus_sandbox import Sandbox
from tests.engine.gateway.test_dotnet_front import LATER, Place, asked, code, condition
from tests.pairing.backlogs import queue_path
from tests.pairing.conftest import World
from tests.sandbox.amqp_server.dotnet import Refused
from tests.sandbox.amqp_server.dotnet_values import composite, message

KEY = new_key("web", GatewayRight)
ENTRY = {"message": message(b"x", {Symbol("x-opt-scheduled-enqueue-time"): LATER}), "message-id": None}
CONDITION = Symbol("errorCondition")


class Odd(Exception):
    """An error of a kind that no table knows."""


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
        world = World(sandbox, stack)
        paired = await world.pair(
            backlog_queue_count=1, send_timeout=1.0, failover_interval=0.5, hold_until_failover=True
        )
        gateway = Gateway(paired, KeyRing([KEY]))
        await gateway.listen(0)
        stack.push_async_callback(gateway.close, 0.1)
        yield Place(world, paired, gateway, KEY)


def unknown(place: Place) -> int:
    turned = place.gateway.view(()).turned_away
    return next((one.times for one in turned if one.why is TurnedAway.UNKNOWN_ERROR), 0)


async def test_a_schedule_at_a_busy_primary_ends_with_that_reason_within_the_clients_limit(place: Place) -> None:
    client = await place.connect()
    link, manage = await client.sender("orders"), await client.management("orders")
    place.world.fault("busy", entity="orders")
    wanted = asked("schedule-message", link) | {"com.microsoft:server-timeout": UInt(2_000)}
    began = asyncio.get_running_loop().time()
    answer, _ = await manage.ask(wanted, {"messages": [ENTRY]})
    assert (answer["statusCode"], answer["errorCondition"]) == (503, "com.microsoft:server-busy")
    assert asyncio.get_running_loop().time() - began >= 1.5, "it waits for a namespace that recovers"


async def test_a_call_that_does_not_end_by_itself_is_answered(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    client = await place.connect()
    link, manage = await client.sender("orders"), await client.management("orders")
    monkeypatch.setattr(EncodedSender, "schedule", never)
    wanted = asked("schedule-message", link) | {"com.microsoft:server-timeout": UInt(200)}
    answer, _ = await manage.ask(wanted, {"messages": [ENTRY]})
    assert (answer["statusCode"], answer["errorCondition"]) == (408, "com.microsoft:timeout")


async def test_an_error_that_no_table_knows_is_retried_counted_and_named_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise Odd("no one knows it")

    client = await place.connect()
    link, manage = await client.sender("orders"), await client.management("orders")
    for name in ("schedule", "go_straight"):
        monkeypatch.setattr(EncodedSender, name, fail)
    monkeypatch.setattr(RelayedReplies, "open", fail)
    with caplog.at_level(logging.ERROR):
        for operation in ("schedule-message", "peek-message"):
            answer, _ = await manage.ask(asked(operation, link), {"messages": [ENTRY]})
            assert (answer["statusCode"], answer["errorCondition"]) == (408, "com.microsoft:timeout")
        assert condition(await client.send(link, message(b"x")))[0] == "com.microsoft:timeout"
        monkeypatch.setattr(type(place.paired), "find_entity", fail)
        monkeypatch.setattr(type(place.paired), "delivery_receipts", fail)
        for attach in (client.sender, client.receiver):
            with pytest.raises(Refused, match=r"Odd\): try again"):
                await attach("orders")
    assert unknown(place) == 5
    assert [record.exc_info is not None for record in caplog.records if record.levelno == logging.ERROR] == [True]
    monkeypatch.undo()
    assert code(await client.send(link, message(b"x"))) == 0x24, "its connection and its links live"


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(None, 25.0), (1, 0.0009), (10_000, 9.0), (60_000, 25.0), (86_400_000, 25.0), (0, 25.0), (-5, 25.0), ("9", 25.0)],
)
def test_the_time_of_a_request_is_less_than_the_clients_limit(given: object, seconds: float) -> None:
    properties = {} if given is None else {"com.microsoft:server-timeout": given}
    assert seconds_for(properties, 25.0) == pytest.approx(seconds)


async def test_a_primary_that_refuses_the_engine_is_counted_as_that(place: Place) -> None:
    client = await place.connect()
    place.world.fault("unauthorized", entity="orders")
    for attach in (client.sender, client.receiver):
        with pytest.raises(Refused):
            await attach("orders")
    turned = {one.why: (one.count, one.times) for one in place.gateway.view(()).turned_away}
    assert turned == {TurnedAway.ENGINE_REFUSED: (1, 2)}


async def test_a_ping_in_an_outage_fails_nothing_over_and_is_never_parked(place: Place) -> None:
    client = await place.connect()
    link = await client.sender("orders")
    ping = composite(0x73, None, None, None, None, None, None, Symbol(PING_CONTENT_TYPE)) + described(0x75, encode(b""))
    assert code(await client.send(link, ping)) == 0x24
    assert place.world.ids_in("orders") == []
    place.world.fault("disabled", entity="orders")
    assert condition(await client.send(link, ping))[0]
    (entity,) = [one for one in place.paired.entity_views() if one.path.casefold() == "orders"]
    assert entity.state is State.UNKNOWN, "no send of an application has told anything"
    assert place.world.ids_in(queue_path(0), namespace="secondary") == []


async def test_a_session_that_another_holds_is_no_line_for_the_operator(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    client, other = await place.connect(), await place.connect()
    await client.receiver("payments", session_id="a")
    with pytest.raises(Refused):
        await other.receiver("payments", session_id="a")
    assert "refused a client's link" not in caplog.text
    assert place.gateway.view(()).turned_away == ()


async def test_dotnets_receivers_see_the_end_of_their_session_when_the_primarys_connection_is_lost(
    place: Place,
) -> None:
    client = await place.connect()
    sender, receiver = await client.sender("orders"), await client.receiver("orders")
    place.world.fault("disconnected")
    with pytest.raises(AssertionError, match=r"the session was ended.*detach-forced"):  # what the stand-in makes of it
        await client.until(lambda: receiver.is_detached, "the end of the receiver's session")
    assert not receiver.is_detached
    assert not sender.session.is_ended
    assert not sender.is_detached
