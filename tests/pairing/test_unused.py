"""Backlog queues that are unused, missing or deleted: nothing is deleted without proof (SPEC.md section 4.3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import MessagingEntityDisabledError

from paired_servicebus.core.backlog.depth_readings import GrowthDetector, QueueUsage
from paired_servicebus.core.backlog.queue_settings import (
    LOCK,
    MAX_DELIVERIES,
    MAX_SIZE_MB,
    Depth,
    QueueStatus,
    QueueWanted,
)
from paired_servicebus.core.errors import BacklogUnavailableError, CleanUpError, IllegalEventError, WireLinkError
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.pairing_events import DeadLettered, Diverted, Moved, QueuePulled, QueueRead, Warned
from paired_servicebus.core.operator.targets import Scope
from paired_servicebus.core.pump.pump_machine import PumpProgress
from paired_servicebus.engine.commands.guard import CommandContext, StandingOrder, StandingOrders
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.management import backlog_queues
from paired_servicebus.pairing.management.management_port import Management, management_of
from paired_servicebus.pairing.monitoring import backlog_inspection as module
from paired_servicebus.pairing.sending.paired_sender import PairedSender
from paired_servicebus.pairing.syphon import syphon as redrive
from paired_servicebus.pairing.syphon.syphon import DEAD_LETTERS
from servicebus_sandbox import Behavior, NamespaceSpec, QueueSpec, Sandbox
from servicebus_sandbox.amqp_server.message_codec import read_message
from servicebus_sandbox.broker.entity_settings import EntityStatus
from servicebus_sandbox.broker.queues.message_queue import Consumer, MessageQueue, Settlement, Settling

from .backlogs import lying_in, parked, put, queue_path
from .conftest import PATIENCE, World, until

SPARE = queue_path(7)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.01)
    monkeypatch.setattr(module, "RECEIVE_SECONDS", 0.01)
    monkeypatch.setattr(backlog_queues, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(redrive, "QUIET", 0.5)


async def paired_beside(world: World, *paths: str, **options: Any) -> Any:
    """A pairing of two queues, and others that are there besides; all of them quiet."""
    async with world.admin("secondary") as admin:
        for path in paths or (SPARE,):
            await admin.create_queue(path)
    paired = await world.pair(**{"quiet_period": 1.0} | options)
    paired.looks.ask()
    await until(lambda: paired.unused_view().read_at is not None)
    return paired


def quiet(world: World, path: str, seconds: float = 3600.0) -> None:
    """As if nobody had used the queue for so long."""
    queue = world.sandbox["secondary"].node.namespace.queue(path)
    for part in (queue.messages, queue.dead_letters):
        part.accessed_at -= seconds
    queue.intake.last_send_at -= seconds
    queue.created_at -= 2 * seconds  # an unused one has no time of use


async def status_of(world: World, path: str) -> str:
    async with world.admin("secondary") as admin:
        return str((await admin.get_queue(path)).status)


def exists(world: World, path: str) -> bool:
    return path in [one.path for one in world.sandbox["secondary"].node.namespace.queues()]


async def test_unused_are_integer_indices_that_no_known_engine_uses_and_nothing_else(world: World) -> None:
    """Section 4.3: "*Unused* = under the prefix, an integer index that no known engine uses …; anything else under the
    namespace is none of our business"."""
    others = ("primary/x-servicebus-transfer/old", "primary/x-servicebus-transfer/08", "other/7")
    paired = await paired_beside(world, SPARE, queue_path(12), queue_path(13), *others)
    paired.know_usage(QueueUsage(frozenset({0, 13})))
    assert [one.index for one in paired.unused_view().queues] == [7, 12]
    one = paired.unused_view().queues[0]
    assert (one.path, one.status, one.messages, one.dead_lettered) == (SPARE, "Active", 0, 0)
    assert one.created_at is not None
    assert any("MaxDeliveryCount" in text for text in one.differences)


async def test_an_empty_quiet_one_that_was_named_is_deleted(world: World) -> None:
    paired = await paired_beside(world)
    quiet(world, SPARE)
    said = await paired.clean_up(SPARE)
    assert f"{SPARE} was deleted" in said
    assert "closed to senders, then empty of messages and dead letters" in said
    assert not exists(world, SPARE)
    assert paired.unused_view().queues == ()


async def test_one_that_was_active_within_the_quiet_period_stays(world: World) -> None:
    """Section 4.3: "only unused queues whose last activity is older than a quiet period (default 15 min, since a sent
    message can take that long to appear)"."""
    paired = await paired_beside(world, quiet_period=900.0)
    quiet(world, SPARE, 600.0)
    with pytest.raises(CleanUpError, match="a sent message can take 900 s to appear"):
        await paired.clean_up(SPARE)
    assert "ACTIVE" in (await status_of(world, SPARE)).upper()


async def test_one_that_is_used_while_it_is_looked_at_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    paired = await paired_beside(world)
    quiet(world, SPARE)
    wait = asyncio.sleep

    async def meanwhile(seconds: float, result: Any = None) -> Any:
        if seconds == module.SETTLE_SECONDS:
            world.sandbox["secondary"].node.namespace.queue(SPARE).messages.accessed_at += 60
        return await wait(min(seconds, 0.05), result)

    monkeypatch.setattr(module.asyncio, "sleep", meanwhile)
    with pytest.raises(CleanUpError, match="it was used"):
        await paired.clean_up(SPARE)
    assert await status_of(world, SPARE) == QueueStatus.ACTIVE


async def test_while_it_is_looked_at_nobody_can_send_to_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 4.3: "set to SendDisabled, waited, looked into"."""
    paired = await paired_beside(world)
    quiet(world, SPARE)
    seen: list[str] = []
    prove = paired._unused._prove_empty

    async def watching(wire: Any, path: str, before: Depth) -> None:
        seen.append(await status_of(world, path))
        await prove(wire, path, before)

    monkeypatch.setattr(paired._unused, "_prove_empty", watching)
    await paired.clean_up(SPARE)
    assert seen == [QueueStatus.SEND_DISABLED]


async def test_where_management_fails_it_stays_and_is_open(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 10: "unable to manage: … clean-up refused"."""
    paired = await paired_beside(world)
    for call in ("queues", "depth", "set_status", "delete_queue"):
        quiet(world, SPARE)
        real = getattr(paired.secondary_admin, call)

        async def fails(*arguments: Any, call: str = call, real: Any = real) -> Any:
            if call != "set_status" or arguments[1] is QueueStatus.SEND_DISABLED:
                raise ServiceRequestError("no route")
            return await real(*arguments)

        with monkeypatch.context() as broken:
            broken.setattr(paired.secondary_admin, call, fails)
            with pytest.raises(CleanUpError, match=f"{SPARE} stays"):
                await paired.clean_up(SPARE)
        assert await status_of(world, SPARE) == QueueStatus.ACTIVE, call


async def test_a_listing_that_fails_is_said_and_keeps_what_was_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    paired = await paired_beside(world)

    async def fails(prefix: str) -> Any:
        raise ServiceRequestError("no route")

    monkeypatch.setattr(paired.secondary_admin, "queues", fails)
    before = paired.unused_view()
    await paired._unused.look()
    assert paired.unused_view().trouble
    assert (paired.unused_view().queues, paired.unused_view().read_at) == (before.queues, before.read_at)


async def test_one_that_another_engine_uses_stays(world: World) -> None:
    """Section 4.3: "*Unused* = under the prefix, an integer index that no known engine uses"; also one that an engine
    began to use while the queue was looked into. Indices with a gap leave it unused."""
    paired = await paired_beside(world)
    for asked in (1, 2):  # at the start, and right before the deletion
        quiet(world, SPARE)
        answers = iter([frozenset({3, 8})] * (asked - 1) + [frozenset({7})])

        async def elsewhere(answers: Any = answers) -> frozenset[int]:
            return next(answers)

        with pytest.raises(CleanUpError, match=f"{SPARE} stays: another engine on this machine uses it"):
            await paired.clean_up(SPARE, elsewhere=elsewhere)
        assert not [*answers]
        assert await status_of(world, SPARE) == QueueStatus.ACTIVE

    async def with_a_gap() -> frozenset[int]:
        return frozenset(range(20)) - {7}

    quiet(world, SPARE)
    assert "was deleted" in await paired.clean_up(SPARE, elsewhere=with_a_gap)


async def test_one_whose_status_its_owner_set_stays(world: World) -> None:
    """… and what is used, or is no backlog queue, is never touched."""
    paired = await paired_beside(world)
    for path in (queue_path(0), "primary/x-servicebus-transfer/old", "orders"):
        with pytest.raises(IllegalEventError):
            await paired.clean_up(path)
    async with world.admin("secondary") as admin:
        queue = await admin.get_queue(SPARE)
        queue.status = "ReceiveDisabled"
        await admin.update_queue(queue)
    quiet(world, SPARE)
    with pytest.raises(CleanUpError, match="its status is ReceiveDisabled"):
        await paired.clean_up(SPARE)


async def test_what_is_stranded_is_moved_on_order_and_the_queue_can_go_then(world: World) -> None:
    """Section 4.3: "Stranded messages are moved on an operator's order, never silently"."""
    async with world.admin("primary") as admin:
        await admin.create_queue("stranded-for")
    paired = await paired_beside(world, enable_syphon=True)
    put(world, [parked("stranded-for", "m1")], path=SPARE)
    paired._unused._growing = GrowthDetector()  # it was there before this engine
    await paired._unused.look()
    (alarm,) = [text for text in paired.alarms() if "stranded" in text]
    index = int(SPARE.rpartition("/")[2])
    assert alarm.startswith(f"1 message is stranded in backlog queue {index}, which no engine known here uses -> move")
    assert f"set backlog_queue_count to {index + 1} or more" in alarm
    assert world.depth(SPARE, namespace="secondary") == 1
    assert "1 messages" in await paired.move_stranded(SPARE)
    await paired._unused.look()
    assert not [text for text in paired.alarms() if "stranded" in text]
    quiet(world, SPARE)
    await paired.clean_up(SPARE)
    (message,) = await world.received("stranded-for", 1)
    assert message.message_id == "m1"


async def test_a_queue_that_permits_neither_stays_and_says_why(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """If neither is permitted it says that it closed the queue, opened it again, and why it stays."""
    peek = module.UnusedQueues._peek

    async def refuse_peek(unused: Any, wire: Any, path: str) -> bool:
        if await status_of(world, SPARE) == QueueStatus.SEND_DISABLED:
            raise MessagingEntityDisabledError(message="it is currently disabled for Send operations.")
        return await peek(unused, wire, path)

    async def refuse_receive(unused: Any, wire: Any, path: str) -> bool:
        raise WireLinkError(f"{path} refused a link: no", "amqp:unauthorized-access")

    monkeypatch.setattr(module.UnusedQueues, "_peek", refuse_peek)
    monkeypatch.setattr(module.UnusedQueues, "_receive", refuse_receive)
    paired = await paired_beside(world)
    quiet(world, SPARE)
    told = "stays, open again: .* neither a peek .entity disabled. nor a receive .not authorized"
    with pytest.raises(CleanUpError, match=told):
        await paired.clean_up(SPARE)
    assert await status_of(world, SPARE) == QueueStatus.ACTIVE


# -- Clean-up in random worlds: what is empty is deleted, what is not stays, whatever a closed queue permits ---------

DEAD = "/$DeadLetterQueue"
PLACES = ("active", "locked", "deferred", "dead-lettered", "late", "late and dead-lettered")
"""Where a message is; a late one arrives when the queue was looked into and is about to be closed."""


@dataclass(frozen=True)
class Content:
    """One queue of a world. lies: its counts are zeros, as those of a throttled namespace."""

    places: tuple[str, ...]
    lies: bool

    @property
    def reason(self) -> str:
        """Why it stays; without lies the counts alone say it."""
        early = [place for place in self.places if not place.startswith("late")]
        if not self.lies:
            counted = early or self.places
            dead = sum(place.endswith("dead-lettered") for place in counted)
            return f"{len(counted) - dead} messages and {dead} dead letters are in it"
        in_queue = any(not place.endswith("dead-lettered") for place in early or self.places)
        return f"a message was seen in its {'queue' if in_queue else 'dead-letter queue'}, despite its counts"

    @classmethod
    def draw(cls, random: Random) -> Content:
        places = tuple(random.choice(PLACES) for _ in range(random.choice((0, 0, 1, 2))))
        return cls(places, random.random() < 0.7)


def fill(world: World, path: str, places: tuple[str, ...], deliveries: int) -> None:
    node = world.sandbox["secondary"].node
    for place in places:
        dead = place.endswith("dead-lettered")
        queue = node.namespace.message_queue(path + DEAD * dead)
        number = queue.put(read_message(parked("orders", place)), node.clock())
        (stored,) = queue.peek(number, 1)
        stored.delivery_count = deliveries
        if place in ("locked", "deferred"):
            token = receive(queue, node.clock())
            if place == "deferred":
                queue.settle(token, Settlement(Settling.DEFER))
    node.wake()


def receive(queue: MessageQueue, now: float) -> bytes:
    """Lock the next message."""
    got: list[Any] = []
    consumer = Consumer(got.append, lambda error: None)
    queue.attach(consumer)
    queue.grant(consumer, 1)
    queue.dispatch(now)
    queue.detach(consumer)
    return got[0].lock_token  # type: ignore[no-any-return]


@asynccontextmanager
async def worlds(*, peeks: bool) -> AsyncIterator[tuple[World, Any]]:
    secondary = NamespaceSpec("secondary", behaves=Behavior(peek_when_send_disabled=peeks))
    specs = [NamespaceSpec("primary", [QueueSpec("orders")]), secondary]
    async with Sandbox.start(specs) as sandbox, AsyncExitStack() as stack:
        world = World(sandbox, stack)
        yield world, await world.pair(quiet_period=1.0, backlog_queue_count=1)


async def clean_up(world: World, paired: Any, index: int, content: Content, patch: pytest.MonkeyPatch) -> None:
    """Clean one queue up, and check what is left of it."""
    path, namespace = queue_path(index), world.sandbox["secondary"].node.namespace
    namespace.create_queue(path)
    early = tuple(place for place in content.places if not place.startswith("late"))
    fill(world, path, early, deliveries=index % 3)
    queue = namespace.queue(path)
    quiet(world, path)
    queue.updated_at = queue.created_at
    unused = paired._unused
    close, depth = unused._set, unused._admin.depth

    late = tuple(place for place in content.places if place.startswith("late"))
    filled = len(early)

    async def closing(path: str, status: Any) -> None:
        nonlocal filled
        if str(status) == "SendDisabled":
            fill(world, path, late, index % 3)
            filled += len(late)
        await close(path, status)

    async def zeros(path: str) -> Depth:
        return Depth(messages=0, dead_lettered=0, size_bytes=0, last_active=1.0)

    with patch.context() as during:
        during.setattr(unused, "_set", closing)
        during.setattr(unused._admin, "depth", zeros if content.lies else depth)
        if content.places:
            with pytest.raises(CleanUpError, match=f"{path} stays: .*{content.reason}"):
                await paired.clean_up(path)
            assert namespace.queue(path).settings.status == EntityStatus.ACTIVE
        else:
            assert "was deleted" in await paired.clean_up(path)
    assert exists(world, path) is bool(content.places), content
    if content.places:
        found = [*queue.messages.peek(0, 10), *queue.dead_letters.peek(0, 10)]
        assert len(found) == filled
        assert {stored.delivery_count for stored in found} == {index % 3}, content
        namespace.delete(path)


async def in_worlds(count: int, *, part: int = 0, peeks: bool, patch: pytest.MonkeyPatch) -> None:
    random = Random(f"{peeks} {count} {part}")
    async with worlds(peeks=peeks) as (world, paired):
        for index in range(1, count + 1):
            await clean_up(world, paired, index, Content.draw(random), patch)
            await asyncio.sleep(0)


@pytest.mark.parametrize("peeks", [False, True])
async def test_what_is_empty_is_deleted_and_what_is_not_stays(peeks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clean-up proves emptiness by what works: counts twice, and peek, else receive and release."""
    await in_worlds(5, peeks=peeks, patch=monkeypatch)


@pytest.mark.parametrize("peeks", [False, True])
@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=pytest.mark.long if part else pytest.mark.slow) for part in range(10)]
)
async def test_the_same_in_two_hundred_worlds(part: int, peeks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delivery count unchanged."""
    await in_worlds(10, part=part, peeks=peeks, patch=monkeypatch)


# -- Backlog queues whose indices have a gap, since one could not be created: every part means the index in the path

GAPPED = (0, 2, 3)
"""Of four queues that were asked for: the creation of /1 failed."""


def refusing(admin: ServiceBusAdministrationClient, path: str) -> Management:
    """The client's port, which cannot create the queue at `path`."""
    port = management_of(admin)
    create = port.create_queue

    async def failing(name: str, wanted: QueueWanted) -> None:
        if name == path:
            raise ServiceRequestError("no route")
        await create(name, wanted)

    port.create_queue = failing  # type: ignore[method-assign] # for this test
    return port


async def gapped(world: World, **options: Any) -> PairedServiceBusClient:
    admin = refusing(world.admin("secondary"), queue_path(1))
    chosen = {"backlog_queue_count": 4, "secondary_admin": admin, "quiet_period": 1.0} | options
    return await world.pair(**chosen)


async def test_a_queue_in_use_behind_a_gap_is_neither_listed_as_unused_nor_deleted(world: World) -> None:
    """Section 4.3: "an integer index that no known engine uses (its real indices, not their number: creation may leave
    gaps)"."""
    paired = await gapped(world)
    put(world, [parked("orders", str(number)) for number in range(5)], path=queue_path(3))
    await paired._unused.look()
    assert paired.unused_view().trouble == ""
    assert paired.unused_view().queues == ()
    for namespace_is_empty in (False, True):
        if namespace_is_empty:
            await world.received(queue_path(3), 5, namespace="secondary")
        quiet(world, queue_path(3))
        with pytest.raises(IllegalEventError, match="/3 is in use"):
            await paired.clean_up(queue_path(3))
    assert exists(world, queue_path(3))
    # the queue of the gap is unused once it exists
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(1))
    await paired._unused.look()
    assert [(one.index, one.path) for one in paired.unused_view().queues] == [(1, queue_path(1))]


async def test_views_readings_and_receipts_name_the_index_in_the_path(world: World) -> None:
    paired = await gapped(world, enable_syphon=True)
    assert (paired.backlog_queue_count, paired.backlog_queue_indices) == (3, GAPPED)
    assert [(one.index, one.path) for one in paired.queue_views()] == [(index, queue_path(index)) for index in GAPPED]
    await until(lambda: {event.queue for event in world.told(QueueRead)} == set(GAPPED))
    evidence = await paired.inspect()
    assert [queue.path for queue in evidence.queues] == [queue_path(index) for index in GAPPED]

    for index in GAPPED:
        put(world, [parked("orders", f"from-{index}")], path=queue_path(index))
    await until(lambda: len(world.told(Moved)) == len(GAPPED))
    assert {(event.message_id, event.queue) for event in world.told(Moved)} == {
        (f"from-{index}", index) for index in GAPPED
    }


async def disabled(messages: object, timeout: float) -> None:
    raise MessagingEntityDisabledError


async def test_a_send_is_recorded_with_the_queue_that_has_it_and_a_failure_pulls_that_queue(world: World) -> None:
    paired = await gapped(world)
    paired._steering.draw = lambda: 0.0  # type: ignore[method-assign] # the first queue in the rotation is picked
    for index in (0, 2):
        paired._standby.queues[index].link.send = disabled  # type: ignore[method-assign] # the SDK takes a second
    async with paired.get_queue_sender("orders") as sender:
        paired.force("orders", by="ada")
        await sender.send_messages(ServiceBusMessage(b"x"))
    assert world.depth(queue_path(3), namespace="secondary") == 1
    assert [event.queue for event in world.told(Diverted)] == [3]
    assert [event.queue for event in world.told(QueuePulled)] == [0, 2]
    pulled = [one.path for one in paired.queue_views() if not one.in_rotation]
    assert pulled == [queue_path(0), queue_path(2)]


async def test_orders_are_for_the_queue_with_that_index(world: World) -> None:
    """A pause, and a move of what is stranded in the gap."""
    paired = await gapped(world, enable_syphon=True)
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(1))
    put(world, [parked("audit", "m1")], path=queue_path(1))
    assert f"1 messages of {queue_path(1)} were moved" in await paired.move_stranded(queue_path(1))
    assert [event.queue for event in world.told(Moved)] == [1]
    with pytest.raises(IllegalEventError, match="/3 is in use"):
        await paired.move_stranded(queue_path(3))

    assert "backlog queue 2 is paused" in paired.pause_syphon(by="ada", queue=2)
    for index in (2, 3):
        put(world, [parked("orders", f"from-{index}")], path=queue_path(index))
    await until(lambda: world.ids_in("orders") == ["from-3"])
    assert world.depth(queue_path(2), namespace="secondary") == 1
    with pytest.raises(IllegalEventError, match="uses no backlog queue 1; it uses 0, 2, 3"):
        paired.pause_syphon(by="ada", queue=1)


async def test_a_re_drive_is_of_the_queue_with_that_index(world: World) -> None:
    paired = await gapped(world, enable_syphon=True, undeliverable_after=0, syphon_retry_interval=1)
    put(world, [parked("later", "m1")], path=queue_path(3))
    await until(lambda: [event.queue for event in world.told(DeadLettered)] == [3])
    await until(lambda: len(lying_in(world, queue_path(3) + DEAD_LETTERS, namespace="secondary")) == 1)
    world.sandbox["primary"].node.namespace.create_queue("later")
    assert queue_path(3) in await paired.redrive(3)
    await until(lambda: world.ids_in("later") == ["m1"])
    with pytest.raises(IllegalEventError, match="uses no backlog queue 1; it uses 0, 2, 3"):
        await paired.redrive(1)


async def test_a_standing_order_is_for_the_index_in_the_path_in_the_next_engine_too(
    world: World, tmp_path: Path
) -> None:
    """The engine before had all four queues; this one has a gap."""
    paired = await gapped(world, enable_syphon=True)
    standing, reach = StandingOrders(tmp_path), CommandContext(paired, end=lambda _: None)
    gone, kept = (
        StandingOrder(command=Command(action_id="pause-syphon", scope=Scope.QUEUE, targets=(index,), by="ada"), at=1.0)
        for index in ("1", "3")
    )
    assert "cannot be taken up: pause-syphon backlog/1" in await standing.take_up(gone, reach)
    assert "still stands: pause-syphon backlog/3" in await standing.take_up(kept, reach)
    assert paired.syphon_view().paused_queues == (3,)
    put(world, [parked("orders", "from-3")], path=queue_path(3))
    put(world, [parked("orders", "from-2")], path=queue_path(2))
    await until(lambda: world.ids_in("orders") == ["from-2"])
    assert world.depth(queue_path(3), namespace="secondary") == 1


# -- A backlog queue in use that was deleted: its pump makes it again and goes on, and senders come back to it -------

PUMPS = pytest.mark.parametrize("pump", ["amqp", "sdk"])
BRISK = {"enable_syphon": True, "syphon_retry_interval": 1.0, "backlog_queue_count": 1, "send_timeout": 2.0}


class Counting:
    """A management that counts the creations after the pairing, and may refuse them."""

    def __init__(self, real: Management) -> None:
        self._real = real
        self.refusal: Exception | None = None
        self.created: list[str] = []

    async def create_queue(self, path: str, wanted: QueueWanted) -> None:
        self.created.append(path)
        if self.refusal is not None:
            raise self.refusal
        await self._real.create_queue(path, wanted)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


async def delete(world: World, path: str) -> None:
    """By the console of another host."""
    async with world.admin("secondary") as admin:
        await admin.delete_queue(path)


def warnings(world: World) -> list[str]:
    return [event.text for event in world.told(Warned) if event.about == "backlog queues"]


@PUMPS
async def test_a_pump_makes_its_deleted_queue_again_with_exact_settings_and_goes_on(world: World, pump: str) -> None:
    """Section 4.2: "create only those missing, with exactly" these settings."""
    paired = await world.pair(**BRISK, pump=pump)
    await until(lambda: paired.queue_views()[0].pump_text.startswith("receiving"))
    await delete(world, queue_path())
    said = f"{queue_path()} was gone and was made again, with the settings of a new backlog queue"
    await until(lambda: said in warnings(world))
    async with world.admin("secondary") as admin:
        found = await admin.get_queue(queue_path())
    assert (found.max_size_in_megabytes, found.max_delivery_count, found.lock_duration) == (
        MAX_SIZE_MB, MAX_DELIVERIES, LOCK,
    )  # fmt: skip
    put(world, [parked("orders", "m1")])
    await until(lambda: world.depth("orders") == 1)
    await until(lambda: paired.queue_views()[0].pump_text.startswith("receiving"))


async def test_senders_come_back_to_a_queue_that_was_made_again_without_a_restart(world: World) -> None:
    """Section 7.1: "a pulled queue returns after a probe succeeded"."""
    await world.pair(**BRISK)
    sending = await world.pair(backlog_queue_count=1, failover_interval=0.0)
    await sending.stands_ready()
    sending.watch("orders")
    sending.force("orders", by="ana")
    await delete(world, queue_path())
    await until(lambda: any("made again" in text for text in warnings(world)))
    async with sending.get_queue_sender("orders") as sender:
        async with asyncio.timeout(PATIENCE):
            while not await is_accepted(sender):
                await sending._steering.change(sending._steering.clock() + 0.2)  # until its queue is back
    await until(lambda: world.depth(queue_path(), namespace="secondary") + world.depth("orders") == 1)


async def is_accepted(sender: PairedSender) -> bool:
    try:
        await sender.send_messages(ServiceBusMessage("x"))
    except BacklogUnavailableError:
        return False
    return True


@PUMPS
async def test_without_the_right_it_says_what_to_do_and_asks_once_a_minute(world: World, pump: str) -> None:
    """A stranded queue that is gone is not made again."""
    admin = Counting(management_of(world.admin("secondary")))
    paired = await world.pair(**BRISK, pump=pump, secondary_admin=admin)
    await until(lambda: paired.queue_views()[0].pump_text.startswith("receiving"))
    admin.created.clear()
    admin.refusal = ClientAuthenticationError("no Manage")
    await delete(world, queue_path())
    todo = "give the pairing's credential Manage on the secondary, or make the queue by hand"
    await until(lambda: paired.queue_views()[0].pump_text.endswith(todo))
    trouble = [text for text in warnings(world) if "cannot be made again" in text]
    assert trouble == [f"{queue_path()} is gone and cannot be made again (not authenticated); {todo}"]
    tries = paired._syphon._remaker  # type: ignore[union-attr]
    assert await tries.remake(0) == trouble[0]  # type: ignore[union-attr]
    assert admin.created == [queue_path()]
    stranded = paired._syphon._pump(7, queue_path(7), PumpProgress())  # type: ignore[union-attr]
    assert stranded._remake is None
    admin.refusal = None
    tries._next.clear()  # type: ignore[union-attr] # a minute later
    await until(lambda: any("made again, with" in text for text in warnings(world)))
    await until(lambda: paired.queue_views()[0].pump_text.startswith("receiving"))
