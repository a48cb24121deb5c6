"""When management is asked for the depths, with the SDK's own client: its requests are counted where they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.backlog import depth_readings
from paired_servicebus.core.errors import WireError
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import QueueRead, StateChanged
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import EntityView, Snapshot, SyphonStatus
from paired_servicebus.core.pump.pump_machine import SOON, PumpMachine
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.discovery import first_snapshot
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.service.engine_host import EngineHost
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.management import backlog_queues
from paired_servicebus.pairing.management.atom_admin import management_of
from paired_servicebus.pairing.management.management_port import Depth, Management
from paired_servicebus.pairing.syphon import amqp_pump
from paired_servicebus.pairing.syphon.amqp_pump import DeferredScan
from servicebus_sandbox.atom import management_api as atom

from .backlogs import parked, put, queue_path
from .conftest import World, until

FASTER = 100
"""A minute of the rows in core/backlog/depth_readings.py takes 0.6 s here."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What management of any namespace was asked, in order."""
    found: list[str] = []
    answer = atom.ManagementApi.answer

    def noted(self: atom.ManagementApi, request: atom.AtomRequest) -> atom.AtomResponse:
        found.append(f"{request.method} {request.path}")
        return answer(self, request)

    monkeypatch.setattr(atom.ManagementApi, "answer", noted)
    return found


@pytest.fixture
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tuple((reasons, seconds / FASTER) for reasons, seconds in depth_readings.EVERY)
    monkeypatch.setattr(depth_readings, "EVERY", rows)
    monkeypatch.setattr("paired_servicebus.pairing.monitoring.unused_queues.LIST_SECONDS", 300 / FASTER)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def hosted(paired: PairedServiceBusClient, folder: Path) -> EngineHost:
    identity = EngineIdentity.of("test")
    return EngineHost(identity, spool=folder / "journal", socket=folder / "s", policy=paired._steering.policy)


async def minutes(number: float) -> None:
    """Let so many of them pass, at the rows' pace."""
    await asyncio.sleep(number * 60 / FASTER)


LIST = "GET /$Resources/Queues"


def lists(asked: list[str]) -> int:
    assert {one.casefold() for one in asked} <= {LIST.casefold()}, asked
    return len(asked)


# -- nobody looks --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("faster")
async def test_a_sender_only_process_in_good_health_asks_nothing(world: World, asked: list[str], folder: Path) -> None:
    """Section 12: "Management is asked only where somebody looks or a rule needs it; a sender-only process in good
    health asks nothing."."""
    paired = await world.pair(backlog_queue_count=10)
    async with hosted(paired, folder) as host, paired.get_queue_sender("orders") as sender:
        await host.adopt(paired)
        asked.clear()  # what pairing itself asked
        await sender.send_messages(ServiceBusMessage(b"x"))
        await minutes(3)
        await until(lambda: host.latest() is not None and host.latest().readiness is not None)
        assert asked == []
        assert [queue.depth for queue in host.latest().queues] == [None] * 10


@pytest.mark.usefixtures("faster")
async def test_a_failed_over_sender_asks_for_one_list_a_minute(world: World, asked: list[str]) -> None:
    """It was 120 reads a minute failed over, at 10 credits each."""
    paired = await world.pair(backlog_queue_count=10, failover_interval=0)
    world.fault("disabled", entity="orders")
    asked.clear()
    began = paired._steering.clock()
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x"))
        await until(lambda: lists(asked) >= 4)
    passed = (paired._steering.clock() - began) * FASTER / 60
    assert lists(asked) <= passed + 1  # the first one comes at once
    assert sum(event.depth for event in world.told(QueueRead)) == 1  # so "parked" has a figure


@pytest.mark.usefixtures("faster")
async def test_an_idle_syphon_that_nobody_looks_at_asks_for_two_lists_in_five_minutes(
    world: World, asked: list[str]
) -> None:
    """Section 8: a pump's status is derived from messages moved; so a rule needs the depths now and then."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=10)
    await until(lambda: paired._poller.messages == 0 and paired.queue_views(looking=False)[9].depth == 0)
    asked.clear()
    began = paired._steering.clock()
    await until(lambda: lists(asked) >= 2)
    assert lists(asked) <= 2 * ((paired._steering.clock() - began) * FASTER / 300 + 1)


# -- somebody looks ------------------------------------------------------------------------------------------------


async def test_a_console_that_attaches_is_shown_depths_within_seconds(
    world: World, asked: list[str], folder: Path
) -> None:
    paired = await world.pair(backlog_queue_count=10)
    put(world, [parked("orders", "m1")], path=queue_path(3))
    async with hosted(paired, folder) as host:
        await host.adopt(paired)
        asked.clear()
        client = await ControlClient.connect(folder / "s")
        try:
            async with asyncio.timeout(60):
                async for update in client.updates():
                    if isinstance(update, Snapshot) and update.queues[3].depth == 1:
                        break
            assert lists(asked) <= 2  # the depths, and which queues are unused
        finally:
            await client.close()
        await until(lambda: not paired.looks.attended)


async def test_a_question_is_answered_with_depths_of_now(world: World, asked: list[str], folder: Path) -> None:
    """Such as `paired status`: one that has the depths read, and one of an engine beside it that has not."""
    paired = await world.pair(backlog_queue_count=2)
    async with hosted(paired, folder) as host:
        await host.adopt(paired)
        asked.clear()
        assert (await first_snapshot(folder / "s")).queues[0].depth is None
        assert asked == []
        put(world, [parked("orders", "m1")])
        found = await first_snapshot(folder / "s", watches=True)
        assert [queue.depth for queue in found.queues] == [1, 0]
        assert found.readiness is None or found.readiness.findings


async def test_a_scraper_that_comes_often_costs_a_list_each_thirty_seconds(
    world: World, asked: list[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    paired = await world.pair(backlog_queue_count=2)
    async with hosted(paired, folder) as host:
        await host.adopt(paired)
        asked.clear()
        for _ in range(20):
            await asyncio.to_thread(host.scraped)
        await until(lambda: host.scraped().queues[0].depth == 0)
        assert paired.looks.period == 30
        assert lists(asked) <= 2


async def test_readiness_is_judged_again_once_somebody_looks(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 12: "what nobody here can know is "unknown""; once it is known it is said."""
    paired = await world.pair(backlog_queue_count=2)
    async with hosted(paired, folder) as host:
        await host.adopt(paired)
        await until(lambda: host.latest().readiness is not None)
        assert "read only while a console is attached" in str(host.latest().readiness)
        found = await first_snapshot(folder / "s", watches=True)
        assert "GB free in 2 backlog queues" in str(found.readiness)


# -- one list ------------------------------------------------------------------------------------------------------


class Listless:
    """Management whose list fails as it is told to."""

    def __init__(self, behind: Management, error: Exception) -> None:
        self._behind, self._error = behind, error
        self.listed = 0

    async def depths(self, prefix: str, *, pages: int) -> dict[str, Depth]:
        self.listed += 1
        raise self._error

    async def depth(self, path: str) -> Depth:
        return await self._behind.depth(path)


def refused() -> HttpResponseError:
    error = HttpResponseError("(AuthorizationFailed) no list")
    error.status_code = 403
    return error


async def test_where_the_list_is_refused_queues_are_read_by_themselves(world: World) -> None:
    await world.pair(backlog_queue_count=2)
    put(world, [parked("orders", "m1")])
    behind = management_of(world.admin("secondary"))
    admin = Listless(behind, refused())
    reader = backlog_queues.CountReader(admin, {0: queue_path(0), 1: queue_path(1)})  # type: ignore[arg-type]
    for _ in range(2):
        assert [told.messages for told in (await reader.read()).values() if isinstance(told, Depth)] == [1, 0]
    assert admin.listed == 1
    await behind.close()


async def test_a_list_of_more_pages_than_there_are_queues_is_not_read_on(world: World, asked: list[str]) -> None:
    paired = await world.pair(backlog_queue_count=1)
    await until(lambda: paired.unused_view().read_at is not None)  # it lists them once at its start
    for index in range(120):  # pages hold 100
        world.sandbox["secondary"].node.namespace.create_queue(f"other{index}")
    admin = management_of(world.admin("secondary"))
    asked.clear()
    (told,) = (await backlog_queues.CountReader(admin, {0: queue_path(0)}).read()).values()
    assert isinstance(told, Depth)
    assert len(asked) <= 3
    await admin.close()


# -- An engine that sends nothing, and asks for its entities: pings or attaches on the wire (SPEC.md sections 6 and
# 8).


def state(paired: PairedServiceBusClient) -> State:
    (view,) = paired.entity_views()
    return view.state


@pytest.mark.parametrize("ping", ["message", "link"])
@pytest.mark.parametrize("entity", ["orders", "payments", "audit"])  # a queue, one with sessions, a topic
async def test_a_probe_finds_out_what_a_send_would_and_leaves_nothing(world: World, ping: str, entity: str) -> None:
    """A random session id so that a session-enabled entity accepts it; link = attach only."""
    paired = await world.pair(ping=ping)
    paired.watch(entity, probe=True)
    await until(lambda: state(paired) is State.HEALTHY)
    if entity != "audit":
        assert world.depth(entity) == 0
    assert paired.billed().pings >= 1


async def test_an_outage_that_only_probes_can_see_fails_over_and_back(world: World) -> None:
    paired = await world.pair()
    paired.watch("orders", probe=True)
    await until(lambda: state(paired) is State.HEALTHY)
    heal = world.fault("refused", entity="orders")
    await until(lambda: state(paired) is State.FAILED_OVER)
    heal()
    await until(lambda: state(paired) is State.HEALTHY)
    states = [State(event.now) for event in world.told(StateChanged)]
    assert states == [State.HEALTHY, State.SUSPECT, State.FAILED_OVER, State.HEALTHY]
    assert paired.billed().sends == 0


# -- A search of a queue that cannot be peeked into.


async def test_a_queue_that_cannot_be_searched_is_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: it was at each step of its pump, which waited ten seconds each time where no answer came."""

    async def refuse(*_: Any, **__: Any) -> list[bytes]:
        raise WireError("no answer")

    monkeypatch.setattr(amqp_pump, "peek", refuse)
    now = 1000.0
    steering: Any = SimpleNamespace(clock=lambda: now, judge=lambda error: SimpleNamespace(reason=str(error)))
    wire: Any = None
    machine: PumpMachine[Any] = PumpMachine(PairingMachine(Policy(), queues=(0,)), 0)
    path = "primary/x-servicebus-transfer/0"
    pump: Any = SimpleNamespace(machine=machine, known=machine.known, apply=machine.step, path=path)
    search = DeferredScan(steering, wire, pump)

    assert machine.search.due_at <= now
    await search.look()
    assert search.trouble == "cannot search for deferred messages: no answer"
    assert machine.search.due_at == now + SOON


# -- An engine that sends nothing, beside an application: what it steers, what it says and cannot know (SPEC.md 12).


MISSED = "this engine sends nothing to it: no sender is diverted; senders elsewhere are unknown"


def view_of(paired: Any, path: str = "orders") -> EntityView:
    """How the engine shows the entity."""
    return next(one for one in paired.entity_views() if one.path == path)


async def test_forcing_it_diverts_no_sender_elsewhere_and_the_answer_and_the_why_line_say_so(world: World) -> None:
    """ "Every question, page and verb says whom it reaches, whom not, and what it cannot know"."""
    application = await world.pair(primary_name="primary")
    silent = await world.pair(primary_name="primary", enable_syphon=True)
    async with application.get_queue_sender("orders") as sender:
        silent.watch("orders")
        answer = silent.force("orders", by="ana")
        await sender.send_messages(ServiceBusMessage("x"))
    assert world.depth("orders") == 1
    assert answer.endswith(MISSED)
    assert view_of(silent).why.endswith(MISSED)
    assert (view_of(silent).carried, view_of(application).carried) == (False, True)
    assert MISSED not in application.force("orders", by="ana")


async def test_its_syphon_leaves_what_was_parked_for_a_forced_entity_and_says_so(world: World) -> None:
    """Section 6: "Pumps skip destinations that are failed over or forced in their own engine"."""
    silent = await world.pair(primary_name="primary", enable_syphon=True)
    silent.watch("orders")
    silent.force("orders", by="ana")
    put(world, [parked("orders", "m1")], path=queue_path(0))
    await until(lambda: silent.syphon_view().status is not SyphonStatus.RUNNING and silent.queue_views()[0].set_aside)
    held = "leaves what is parked for orders: forced here; release it to have that moved"
    assert silent.syphon_view().text.endswith(held)
    silent.release("orders", by="ana")
    silent.pin("orders", by="ana")
    assert held not in silent.syphon_view().text
    await until(lambda: world.depth("orders") == 1)


async def test_an_entity_that_nothing_is_sent_to_is_unknown_while_its_namespace_is_down(world: World) -> None:
    """Section 12: "what nobody here can know is "unknown", never "none" or "healthy"."""
    silent = await world.pair(primary_name="primary")
    silent.watch("orders")
    world.fault("refused")
    assert view_of(silent).state is State.UNKNOWN
    assert view_of(silent).why == 'no sends by this engine; set probe = ["orders"] to watch it'
    assert (await silent.inspect()).too_large is None


async def test_a_pause_is_of_one_engine_and_says_so(world: World) -> None:
    """Section 12: "What an engine knows and steers is its own process"."""
    paused = await world.pair(primary_name="primary", enable_syphon=True)
    await world.pair(primary_name="primary", enable_syphon=True)
    here = "paused here: engines elsewhere may still move messages"
    assert paused.pause_syphon(by="ana") == f"the syphon is {here}"
    assert paused.pause_syphon(by="ana", queue=0) == f"backlog queue 0 is {here}"
    assert paused.pause_syphon(by="ana", destination="orders") == f"the syphon to orders is {here}"
    assert paused.syphon_view().text.startswith("paused here by ana ")
    assert paused.syphon_view().text.endswith(": engines elsewhere may still move messages")
    put(world, [parked("orders", "m1")], path=queue_path(0))
    await until(lambda: world.depth("orders") == 1)
