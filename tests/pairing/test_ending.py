"""How a pairing ends, how every wait on the SDK ends, and a credential that never answers (SPEC.md sections 5, 9)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

import paired_servicebus.sync
from paired_servicebus import Namespace, pair_namespaces
from paired_servicebus.core.errors import PairedClientError, PairingClosedError
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import InDoubt, Warned
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.runtime.deadlines import CANCEL_SECONDS, TaskOwner, Watch, bounded, end_all, overlapped
from servicebus_sandbox import AsyncSandboxCredential, SandboxCredential

from .conftest import World, until


def clients(paired: PairedServiceBusClient) -> dict[str, Any]:
    return {"primary": paired._primary, "secondary": paired.secondary_client}


async def close_under(client: Any) -> None:
    """The SDK walks over its handlers while a pump makes new ones, and stumbles: again, then."""
    for _ in range(3):
        with suppress(RuntimeError):
            await client.close()


@pytest.mark.parametrize(("closed", "syphon"), [("primary", False), ("secondary", True)])
async def test_a_client_that_is_closed_alone_faults_its_partner_after_the_grace(
    world: World, closed: str, syphon: bool
) -> None:
    """Section 9: "Once the primary or secondary faults or is closed without its partner also being faulted or closed,
    and the syphon detects this state, the syphon acts: the other has close_grace (5 s) to be closed too; then it is
    faulted (PairedClientError, naming both)"."""
    paired = await world.pair(close_grace=0.2, enable_syphon=syphon, send_timeout=30.0)
    sender = paired.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage(b"before"))
    await close_under(clients(paired)[closed])
    await until(lambda: paired._steering.ended is not None)
    with pytest.raises(PairedClientError) as refused:
        await sender.send_messages(ServiceBusMessage(b"after"))
    assert f"the client of {getattr(paired, closed + '_name')} was closed" in str(refused.value)
    assert paired.primary_name in str(refused.value)
    assert paired.secondary_name in str(refused.value)
    assert any(text.startswith(str(refused.value)) for text in paired.alarms())
    assert [warned.about for warned in world.told(Warned)].count("pairing") == 1
    await paired.close()
    assert await paired._client_watch.primary.is_closed()
    assert await paired._client_watch.secondary.is_closed()


async def test_a_partner_closed_within_the_grace_is_an_orderly_end(world: World) -> None:
    """Section 9: "the other has close_grace (5 s) to be closed too"."""
    paired = await world.pair(close_grace=60)
    sender = paired.get_queue_sender("orders")
    await close_under(clients(paired)["primary"])
    assert paired._steering.ended is None
    await close_under(clients(paired)["secondary"])
    await until(lambda: paired._steering.ended is not None)
    with pytest.raises(PairingClosedError, match="both namespaces' clients were closed"):
        await sender.send_messages(ServiceBusMessage(b"after"))


async def test_an_outage_of_both_namespaces_is_not_a_fault(world: World) -> None:
    """Section 9: "never a namespace's outage, which is what the pairing is for"."""
    paired = await world.pair(close_grace=0, enable_syphon=True, send_timeout=30.0)
    heal = [world.fault("refused"), world.fault("refused", namespace="secondary")]
    await until(lambda: any("receive" in queue.pump_text for queue in paired.queue_views()))
    for _ in range(3):
        assert not await paired._client_watch.primary.is_closed()
        assert not await paired._client_watch.secondary.is_closed()
    assert paired._steering.ended is None
    for mend in heal:
        mend()
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"after"))


async def test_a_crashed_task_of_ours_faults_both(world: World) -> None:
    """Section 9: "or a task of ours that owned it crashed"."""

    async def crash() -> None:
        raise KeyError("a bug")

    paired = await world.pair()
    paired._steering.tasks.start(crash(), name="crash")
    await until(lambda: paired._steering.ended is not None)
    with pytest.raises(PairedClientError, match=r"is faulted: a task of its own crashed \(KeyError\)") as refused:
        paired.get_queue_sender("orders")
    assert "a bug" in repr(refused.value.__cause__)
    await paired.close()
    assert await paired._client_watch.primary.is_closed()


async def test_closing_the_pairing_closes_both_sides_and_nothing_is_sent_after_it(world: World) -> None:
    """Section 9: "Closing the pairing closes both sides"."""
    paired = await world.pair(enable_syphon=True, send_timeout=30.0)
    sender = paired.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage(b"before"))
    await asyncio.gather(paired.close(), paired.close())
    assert await paired._client_watch.primary.is_closed()
    assert await paired._client_watch.secondary.is_closed()
    calls: list[Any] = [
        lambda: sender.send_messages(ServiceBusMessage(b"after")),
        lambda: sender.schedule_messages(ServiceBusMessage(b"after"), None),  # type: ignore[arg-type]
        lambda: sender.cancel_scheduled_messages(1),
    ]
    for call in calls:
        with pytest.raises(PairingClosedError, match="the pairing was closed"):
            await call()
    for get in (paired.get_queue_sender, paired.get_topic_sender, paired.get_queue_receiver):
        with pytest.raises(ValueError, match="the pairing was closed"):
            get("orders")
    assert world.depth("orders") == 1


async def test_a_send_in_hand_finishes(world: World) -> None:
    """Section 9: "sends in hand finish or raise"."""
    paired = await world.pair(send_timeout=30.0)
    sender = paired.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage(b"before"))
    heal = world.fault("unanswered")
    send = asyncio.create_task(sender.send_messages(ServiceBusMessage(b"in hand")))
    closing = asyncio.create_task(paired.close())
    await until(lambda: paired._steering.ended is not None)
    heal()
    found = await asyncio.gather(send, return_exceptions=True)
    await closing
    assert found == [None] or isinstance(found[0], PairingClosedError)


@pytest.mark.parametrize("forced", [False, True], ids=["to the primary", "to the backlog"])
async def test_a_send_in_hand_that_cannot_finish_raises_and_is_in_doubt(world: World, forced: bool) -> None:
    """Section 9: "sends in hand finish or raise; nothing is lost"."""
    paired = await world.pair(send_timeout=60.0, close_grace=0, backlog_queue_count=1)
    sender = paired.get_queue_sender("orders")
    if forced:
        paired.force("orders", by="kim")
    await sender.send_messages(ServiceBusMessage(b"before"))
    world.fault("unanswered", namespace="secondary" if forced else "primary")
    send = asyncio.create_task(sender.send_messages(ServiceBusMessage(b"in hand", message_id="in hand")))
    await asyncio.sleep(0.1)
    await paired.close()
    with pytest.raises(PairingClosedError):
        await send
    assert [event.message_id for event in world.told(InDoubt)] == ["in hand"]


async def test_a_send_that_waits_for_a_change_raises_at_once(world: World) -> None:
    """Section 9: "sends in hand finish or raise"."""
    paired = await world.pair(send_timeout=60.0, failover_interval=60, hold_until_failover=True)
    sender = paired.get_queue_sender("orders")
    world.fault("refused", entity="orders")
    send = asyncio.create_task(sender.send_messages(ServiceBusMessage(b"held")))
    await until(lambda: paired.entity_views()[0].state is State.SUSPECT)
    await paired.close()
    with pytest.raises(PairingClosedError, match="the pairing was closed"):
        await send


async def test_a_closed_sender_raises_moves_no_state_and_parks_nothing(world: World) -> None:
    paired = await world.pair(failover_interval=0, send_timeout=30.0)
    sender = paired.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage(b"before"))
    await sender.close()
    with pytest.raises(ValueError, match="the sender for orders is closed"):
        await sender.send_messages(ServiceBusMessage(b"after"))
    assert paired.entity_views()[0].state is State.HEALTHY
    assert world.told(InDoubt) == []
    world.fault("refused", entity="orders")
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"parked"))
    assert world.parked() == 1
    calls: list[Coroutine[Any, Any, Any]] = [
        sender.send_messages(ServiceBusMessage(b"after")),
        sender.schedule_messages(ServiceBusMessage(b"after"), datetime.now(UTC)),
        sender.cancel_scheduled_messages(1),
        sender.__aenter__(),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="the sender for orders is closed"):
            await call
    assert world.parked() == 1
    await sender.close()


@pytest.mark.parametrize("pump", ["sdk", "amqp"])
async def test_locks_in_hand_are_released(world: World, pump: str) -> None:
    """Section 9: "locks in hand are released"."""
    paired = await world.pair(enable_syphon=True, pump=pump, backlog_queue_count=1, send_timeout=60.0, close_grace=0)
    world.fault("unanswered", entity="orders")
    async with world.to_backlog() as sender:
        await sender.send_messages(ServiceBusMessage(b"x", application_properties={"x-ms-path": "orders"}))
    backlog = world.sandbox["secondary"].node.namespace.queue("primary/x-servicebus-transfer/0")
    await until(lambda: any(stored.lock_token for stored in backlog.messages.peek(0, 1)))
    await paired.close()
    (again,) = await world.received("primary/x-servicebus-transfer/0", 1, namespace="secondary")
    assert b"".join(again.body) == b"x"


# -- Every wait on the SDK ends in our time, whatever the SDK does with a cancellation -------------------------------

SOON = 0.05


async def deaf(times: int) -> str:
    """Loses so many cancellations, then ends by the next one."""
    for _ in range(times):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(600)
    await asyncio.sleep(600)
    return "ended by itself"


async def late() -> str:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(600)
    return "a result that comes with the deadline"


async def broken() -> str:
    raise OSError("broken")


async def watched(wait: Awaitable[str], seconds: float, what: str, watch: Watch | None = None) -> str:
    """`wait`, as a link awaits the SDK."""
    loop, own = asyncio.get_running_loop(), watch or Watch("orders")
    own.begin(seconds, what, loop, loop.time())
    error: BaseException | None = None
    try:
        return await wait
    except BaseException as caught:
        error = caught
        raise
    finally:
        own.finish(error)
        if own is not watch:
            own.stop()


EITHER = pytest.mark.parametrize("within", [bounded, watched])


@EITHER
@pytest.mark.parametrize(
    ("wait", "seconds", "ends"),
    [
        (lambda: asyncio.sleep(0, "in time"), 60, "in time"),
        (late, SOON, "a result that comes with the deadline"),
        (broken, 60, r"^broken$"),
        (lambda: deaf(0), SOON, r"^the wait( on orders)? did not end within 0\.05 s$"),
        (lambda: deaf(1), SOON, r"^the wait( on orders)? did not end within 0\.05 s$"),
        (lambda: deaf(3), SOON, r"^the wait( on orders)? did not end within 0\.05 s$"),
    ],
    ids=["in time", "with the deadline", "an error", "cancelled", "loses one cancellation", "loses three"],
)
async def test_a_wait_ends_by_itself_or_in_our_time(within: Any, wait: Any, seconds: float, ends: str) -> None:
    """Ours ends it 1 s later whatever the SDK does."""
    task = asyncio.current_task()
    assert task is not None
    async with asyncio.timeout(60):
        if ends.startswith("^"):
            with pytest.raises(OSError, match=ends):  # TimeoutError is one
                await within(wait(), seconds, "the wait")
        else:
            assert await within(wait(), seconds, "the wait") == ends
    assert task.cancelling() == 0


@EITHER
async def test_somebody_elses_cancellation_is_not_taken_for_a_deadline(within: Any) -> None:
    task = asyncio.create_task(within(asyncio.sleep(60, ""), 60, "it"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_all_are_ended_and_one_that_never_does_is_told() -> None:
    good, bad = asyncio.create_task(deaf(2)), asyncio.create_task(deaf(12))
    assert await end_all([good], 10)
    assert not await end_all([good, bad], 0.6)
    assert good.cancelled()
    assert not bad.done()
    assert await end_all([bad], 10)


async def test_a_pairings_tasks_end_though_one_loses_a_cancellation() -> None:
    tasks = TaskOwner()
    await tasks.open()
    started = tasks.start(deaf(2), name="deaf")
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await tasks.close()
    assert started is not None
    assert started.done()
    assert tasks.start(deaf(0), name="too late") is None


async def test_a_task_that_crashes_faults_the_group_and_is_kept() -> None:
    """Faulted = … a task of ours that owned it crashed."""

    async def crash() -> None:
        raise RuntimeError("a bug")

    tasks = TaskOwner()
    await tasks.open()
    tasks.start(crash(), name="crash")
    async with asyncio.timeout(60):
        while tasks.failed is None:
            await asyncio.sleep(0.01)
    await tasks.close()
    assert "a bug" in repr(tasks.failed)


async def test_one_watch_gives_each_wait_its_own_time() -> None:
    watch = Watch("orders")
    assert await watched(asyncio.sleep(0, "one"), SOON, "a send", watch) == "one"
    assert await watched(asyncio.sleep(2 * SOON, "two"), 60, "a send", watch) == "two"
    with pytest.raises(TimeoutError):
        await watched(deaf(2), SOON, "a send", watch)  # shorter than what the timer was set for
    wait = asyncio.sleep(2 * CANCEL_SECONDS, "not told again")
    assert await watched(wait, 60, "a send", watch) == "not told again"
    watch.end_now()  # nobody waits
    task = asyncio.create_task(watched(asyncio.sleep(60, ""), 60, "a send", watch))
    await asyncio.sleep(0)
    watch.end_now()
    with pytest.raises(TimeoutError):
        await task
    watch.stop()


# -- A credential that never answers (SPEC.md section 5): calls end in time, and the other namespace is used ---------

OPTIONS: dict[str, Any] = {
    "backlog_queue_count": 1,
    "primary_name": "primary",
    "send_timeout": 2.0,
    "failover_interval": 0,
    "ping_primary_interval": 1.0,
    "ping_timeout": 1.0,
}
LATE = 3.0
"""Seconds for a busy machine, beyond the deadlines."""


class Hanging:
    """A credential of azure-identity's form, which hangs from when it is told to."""

    def __init__(self, url: str, *, hangs: bool) -> None:
        self._inner = AsyncSandboxCredential(url, "Data Owner")
        self.hangs = hangs

    async def get_token(self, *scopes: str, **_: object) -> Any:
        while self.hangs:
            await asyncio.sleep(0.05)
        return await self._inner.get_token(*scopes)

    async def close(self) -> None:
        """Nothing is held."""


class HangingOnThread:
    """The same for synchronous clients."""

    def __init__(self, url: str, *, hangs: bool) -> None:
        self._inner = SandboxCredential(url, "Data Owner")
        self.hangs = hangs

    def get_token(self, *scopes: str, **_: object) -> Any:
        while self.hangs:
            time.sleep(0.05)
        return self._inner.get_token(*scopes)

    def close(self) -> None:
        """Nothing is held."""


def namespaces(world: World, credential: object) -> tuple[Namespace, Namespace]:
    """Return the primary with the credential, and the secondary with its key."""
    options = {"connection_verify": str(world.sandbox.ca_file)}
    address = f"127.0.0.1:{world.sandbox['primary'].amqp_port}"
    text = world.sandbox["secondary"].connection_string
    primary = Namespace(address, credential, options, {"use_tls": False})
    return primary, Namespace.from_connection_string(text, options=options)


@pytest.mark.parametrize(("kind", "hangs"), [(Hanging, True), (HangingOnThread, False)])
async def test_every_call_ends_in_time_and_an_alarm_names_it(world: World, kind: Any, hangs: bool) -> None:
    """A credential that answers no request for a token is a timeout of the links that need one: it counts, and an
    alarm names it."""
    credential = kind(world.sandbox.control_url, hangs=hangs)
    try:
        async with pair_namespaces(*namespaces(world, credential), **OPTIONS) as paired:
            began = time.monotonic()
            async with paired.get_queue_sender("orders") as sender:
                if not hangs:
                    await sender.send_messages(ServiceBusMessage("warm"))
                    credential.hangs = True
                    world.fault("disconnected")()
                for number in range(5):
                    await sender.send_messages(ServiceBusMessage(str(number)))
                assert time.monotonic() - began <= 3 * OPTIONS["send_timeout"] + LATE
                assert world.parked(1) == 5
                await until(lambda: any(f"{kind.__name__}, has given no token" in alarm for alarm in paired.alarms()))
                assert sum(thread.name == "a credential's token" for thread in threading.enumerate()) <= 1
                credential.hangs = False
                await until(lambda: not any("no token" in alarm for alarm in paired.alarms()))
            began = time.monotonic()
        assert time.monotonic() - began <= LATE
    finally:
        credential.hangs = False


def test_the_synchronous_client(servicebus_sandbox: Any) -> None:
    """The same through the synchronous door; a thread that hangs does not hold the program's end."""
    credential = HangingOnThread(servicebus_sandbox.control_url, hangs=True)
    world = World(servicebus_sandbox, None)  # type: ignore[arg-type]
    try:
        with paired_servicebus.sync.pair_namespaces(*namespaces(world, credential), **OPTIONS) as paired:
            with paired.get_queue_sender("orders") as sender:
                began = time.monotonic()
                sender.send_messages(ServiceBusMessage("x"))
                assert time.monotonic() - began <= OPTIONS["send_timeout"] + LATE
            assert all(thread.daemon for thread in threading.enumerate() if thread.name == "a credential's token")
    finally:
        credential.hangs = False


async def in_pauses(pauses: int, end: object) -> object:
    """Pause this often, then return `end`, or raise it."""
    for _ in range(pauses):
        await asyncio.sleep(0)
    if isinstance(end, BaseException):
        raise end
    return end


@pytest.mark.parametrize("end", ["sent", ConnectionError("cut")])
@pytest.mark.parametrize("pauses", [0, 1, 3])
async def test_overlapped_work_is_done_once_in_the_first_pause_before_any_other_task(pauses: int, end: object) -> None:
    order: list[str] = []
    other = asyncio.create_task(asyncio.sleep(0))
    other.add_done_callback(lambda _: order.append("another task"))
    try:
        found = await overlapped(in_pauses(pauses, end), lambda: order.append("work"))
    except ConnectionError as error:
        found = error
    await other
    assert found is end
    assert order == (["work", "another task"] if pauses else ["another task"])


@pytest.mark.parametrize("by", ["cancellation", "work"])
async def test_what_ends_an_overlapped_wait_is_raised_inside_of_it(by: str) -> None:
    met: list[BaseException] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        except BaseException as error:
            met.append(error)
            raise

    def work() -> None:
        if by == "work":
            raise ConnectionError("of the work")

    async def both() -> None:
        await overlapped(wait(), work)

    task = asyncio.create_task(both())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError if by == "cancellation" else ConnectionError):
        await task
    assert [type(error) for error in met] == [asyncio.CancelledError if by == "cancellation" else ConnectionError]
