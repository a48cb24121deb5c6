"""No call outlives its deadline: a namespace that answers nothing, and every public call with a timeout."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError
from hypothesis import given, settings
from hypothesis import strategies as st

from paired_servicebus.core.errors import PairedError
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import FindingVerdict
from paired_servicebus.pairing import PairedReceiver, PairedSender, PairedServiceBusClient, paired_receiver
from paired_servicebus.pairing.runtime.deadlines import CLOSING, GRACE
from servicebus_sandbox import NamespaceSpec, QueueSettings, QueueSpec, Sandbox

from .conftest import TRUST, World

TIMEOUT: Final = 0.5
PATIENCE: Final = 20.0
"""Seconds after which a call outlives its deadline on any machine; without an end it takes a minute at least."""
EXAMPLES: Final = int(os.environ.get("DEADLINE_EXAMPLES", "2"))
LOCK: Final = timedelta(seconds=5)
LATER: Final = datetime.now(UTC) + timedelta(hours=1)
DOCUMENTED: Final = AzureError | PairedError | TimeoutError
"""What `send_messages` and the others say that they raise when a namespace does not answer."""
SPECS: Final = (
    NamespaceSpec(
        "primary",
        queues=[
            QueueSpec("orders", QueueSettings(lock_duration=LOCK)),
            QueueSpec("sessions", QueueSettings(requires_session=True)),
        ],
    ),
    NamespaceSpec("secondary"),
)


@dataclass(frozen=True)
class Calls:
    """The objects of an application. locked: a message in hand, or None; number: of a scheduled message."""

    paired: PairedServiceBusClient
    sender: PairedSender
    receiver: PairedReceiver
    sessions: PairedReceiver
    locked: ServiceBusReceivedMessage | None
    number: int


Call = Callable[[Calls, float], Awaitable[Any]]
ANY: Final[dict[str, Call]] = {
    "send_messages": lambda the, seconds: the.sender.send_messages(ServiceBusMessage("x"), timeout=seconds),
    "send_messages of many": lambda the, seconds: the.sender.send_messages(
        [ServiceBusMessage("x"), ServiceBusMessage("y")], timeout=seconds
    ),
    "schedule_messages": lambda the, seconds: the.sender.schedule_messages(
        ServiceBusMessage("x"), LATER, timeout=seconds
    ),
    "cancel_scheduled_messages": lambda the, seconds: the.sender.cancel_scheduled_messages(the.number, timeout=seconds),
    "create_message_batch": lambda the, _: the.sender.create_message_batch(),
    "receive_messages": lambda the, seconds: the.receiver.receive_messages(max_wait_time=seconds),
    "peek_messages": lambda the, seconds: the.receiver.peek_messages(timeout=seconds),
    "receive_deferred_messages": lambda the, seconds: the.receiver.receive_deferred_messages([1], timeout=seconds),
    "list_queue_sessions": lambda the, seconds: _first(the.paired.list_queue_sessions("sessions", timeout=seconds)),
    "find_entity": lambda the, seconds: the.paired.find_entity("orders", seconds),
    "encoded send": lambda the, seconds: the.paired.get_encoded_sender("orders").ping(PING, timeout=seconds),
    "encoded cancel": lambda the, seconds: the.paired.get_encoded_sender("orders").cancel([1], timeout=seconds),
    "encoded schedule": lambda the, seconds: the.paired.get_encoded_sender("orders").schedule([], timeout=seconds),
}
"""Calls that an application can also make first thing in the silence."""
HELD: Final[dict[str, Call]] = {
    "renew_message_lock": lambda the, seconds: the.receiver.renew_message_lock(_held(the), timeout=seconds),
    "get_state": lambda the, seconds: _session(the).get_state(timeout=seconds),
    "set_state": lambda the, seconds: _session(the).set_state("x", timeout=seconds),
    "renew_lock": lambda the, seconds: _session(the).renew_lock(timeout=seconds),
}
"""Calls about a lock that was given before it."""
SETTLEMENTS: Final[dict[str, Call]] = {
    "complete_message": lambda the, _: the.receiver.complete_message(_held(the)),
    "abandon_message": lambda the, _: the.receiver.abandon_message(_held(the)),
    "defer_message": lambda the, _: the.receiver.defer_message(_held(the)),
    "dead_letter_message": lambda the, _: the.receiver.dead_letter_message(_held(the)),
}
"""Calls without a timeout of their own."""
CLOSINGS: Final[dict[str, Call]] = {
    "close a sender": lambda the, _: the.sender.close(),
    "close a receiver": lambda the, _: the.receiver.close(),
    "close a session": lambda the, _: the.sessions.close(),
    "close the pairing": lambda the, _: the.paired.close(),
}
PING: Final = b"\x00\x53\x75\xa0\x01x"


async def _first(pages: AsyncIterator[str]) -> str | None:
    return await anext(aiter(pages), None)


def _held(the: Calls) -> ServiceBusReceivedMessage:
    assert the.locked is not None
    return the.locked


def _session(the: Calls) -> Any:
    session = the.sessions.session
    assert session is not None
    return session


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with Sandbox.start(SPECS) as sandbox, AsyncExitStack() as stack:
        yield World(sandbox, stack)


async def pair(world: World) -> PairedServiceBusClient:
    string = world.sandbox["primary"].connection_string
    client = ServiceBusClient.from_connection_string(string, retry_total=0, timeout=TIMEOUT, ssl_context=TRUST)
    return await world.pair(primary_client=client, send_timeout=60.0, failover_interval=600.0, close_grace=TIMEOUT)


async def prepared(paired: PairedServiceBusClient, *, warm: bool, session: str = "a") -> Calls:
    """Return an application's objects; open every link and lock a message of each queue, if `warm`."""
    sender, receiver = paired.get_queue_sender("orders"), paired.get_queue_receiver("orders")
    sessions = paired.get_queue_receiver("sessions", session_id=session)
    locked, number = None, 1
    if warm:
        await sender.send_messages(ServiceBusMessage("x"))
        (number,) = await sender.schedule_messages(ServiceBusMessage("x"), LATER)
        async with paired.get_queue_sender("sessions") as other:
            await other.send_messages(ServiceBusMessage("x", session_id=session))
        (locked,) = await receiver.receive_messages(max_wait_time=60)
        await sessions.receive_messages(max_wait_time=60)
    return Calls(paired, sender, receiver, sessions, locked, number)


async def ends(call: Call, the: Calls, *, seconds: float = TIMEOUT, within: float = TIMEOUT + GRACE) -> None:
    """Check that a call returns or raises what is documented, in its time and what a loaded machine adds."""
    calling = asyncio.ensure_future(call(the, seconds))
    done, _ = await asyncio.wait({calling}, timeout=within + PATIENCE)
    assert done, "it outlives its deadline"
    assert isinstance(calling.exception(), DOCUMENTED | None)


NOT_YET_OPEN: Final = pytest.param(False, marks=pytest.mark.slow)


async def end_all_in_time(world: World, calls: dict[str, Call], *, warm: bool) -> dict[str, BaseException | None]:
    """Make calls at once, each with objects of its own, in a silence; return the names of those that end late."""
    paired = await pair(world)
    all_of = [await prepared(paired, warm=warm, session=name) for name in calls]
    world.fault("black-holed")
    ended = await asyncio.gather(*map(ends, calls.values(), all_of), return_exceptions=True)
    return {name: error for name, error in zip(calls, ended, strict=True) if error is not None}


@pytest.mark.parametrize("warm", [True, NOT_YET_OPEN], ids=["open", "not yet open"])
async def test_no_call_outlives_its_deadline_in_a_silence(world: World, warm: bool) -> None:
    assert await end_all_in_time(world, ANY | (HELD if warm else {}), warm=warm) == {}


async def test_a_settlement_ends_with_the_lock_in_a_silence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK waits for two minutes, and does so four times."""
    monkeypatch.setattr(paired_receiver, "SETTLING", TIMEOUT)
    paired = await pair(world)
    all_of = [await prepared(paired, warm=True, session=name) for name in SETTLEMENTS]
    world.fault("black-holed")

    async def settle(call: Call, the: Calls) -> None:
        with pytest.raises(OperationTimeoutError, match=r"its lock has ended"):
            await asyncio.wait_for(call(the, TIMEOUT), LOCK.total_seconds() + PATIENCE)

    await asyncio.gather(*map(settle, SETTLEMENTS.values(), all_of))


@pytest.mark.parametrize("name", CLOSINGS)
@pytest.mark.parametrize("warm", [True, NOT_YET_OPEN], ids=["open", "not yet open"])
async def test_nothing_takes_long_to_close_in_a_silence(world: World, name: str, warm: bool) -> None:
    """Section 9: "Closing the pairing closes both sides"."""
    the = await prepared(await pair(world), warm=warm)
    for side in ("primary", "secondary"):
        world.fault("black-holed", namespace=side)
    await ends(CLOSINGS[name], the, within=TIMEOUT + 4 * CLOSING)


async def test_a_send_to_a_silent_backlog_ends_in_its_time(world: World) -> None:
    """Section 7: "The same call goes on with it, until its timeout"."""
    the = await prepared(await pair(world), warm=True)
    the.paired.force("orders", by="kim")
    world.fault("black-holed", namespace="secondary")
    for name in ("send_messages", "schedule_messages"):
        await ends(ANY[name], the)


async def test_the_check_of_a_silent_secondary_ends_and_says_so(world: World) -> None:
    the = await prepared(await pair(world), warm=False)
    world.fault("black-holed", namespace="secondary")
    found = await asyncio.wait_for(the.paired.check(), 60)
    assert found.of(FindingVerdict.NO, FindingVerdict.UNKNOWN)


@given(calls=st.lists(st.tuples(st.sampled_from(sorted(ANY)), st.floats(-3.0, 4.936)), min_size=20, max_size=40))
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_deadline_of_a_millisecond_to_a_day_raises_nothing_unexpected(calls: list[tuple[str, float]]) -> None:
    """Healthy: each call returns or raises what is documented, and the next one works; floats are powers of ten.

    Section 7: "A time-out of less than an attempt's own limit is no silence: it pulls no queue, starts no suspicion".
    """
    asyncio.run(_call_all([(name, 10.0**power) for name, power in calls]))


async def _call_all(calls: list[tuple[str, float]]) -> None:
    async with Sandbox.start(SPECS) as sandbox, AsyncExitStack() as stack:
        world = World(sandbox, stack)
        the = await prepared(await pair(world), warm=True)
        for name, seconds in calls:
            if name == "receive_messages":  # there is a message, or it would wait for a day
                await the.sender.send_messages(ServiceBusMessage("x"))
            await ends(ANY[name], the, seconds=seconds, within=min(seconds, 10.0) + GRACE)
        await the.sender.send_messages(ServiceBusMessage("x"))
        (entity,) = (one for one in the.paired.entity_views() if one.path == "orders")
        assert (entity.state, entity.failovers, world.parked()) == (State.HEALTHY, 0, 0)
        assert all(queue.in_rotation for queue in the.paired.queue_views())
