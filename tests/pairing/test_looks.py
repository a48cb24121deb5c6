"""When management is asked for the depths, and what a console sees of parked messages."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.backlog import depth_readings
from paired_servicebus.core.backlog.queue_settings import Depth
from paired_servicebus.core.errors import CommandRefusedError, MessagesUnknownError, PairingClosedError
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.message_view import MAX_BODY_BYTES, MAX_PAGE_BYTES, MAX_ROWS, MessageKind
from paired_servicebus.core.model.pairing_events import BodyShown, QueueRead, Record, StateChanged
from paired_servicebus.core.model.snapshot import DestinationView, Snapshot, SyphonStatus
from paired_servicebus.engine.commands.message_requests import HIDDEN
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.discovery import first_snapshot
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.service.engine_host import EngineHost
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.management import backlog_queues
from paired_servicebus.pairing.management.management_port import Management, management_of
from paired_servicebus.pairing.monitoring import message_looks as module
from paired_servicebus.ui.screens.messages_screen import MessageScreen, MessagesScreen
from paired_servicebus.ui.screens.pick_list import PickList
from servicebus_amqp.encoding.message_sections import (
    Properties,
    Sections,
    write_application_properties,
    write_properties,
    write_value,
)
from servicebus_sandbox.atom import management_api as atom

from .backlogs import lying_in, parked, put, queue_path
from .conftest import World, until
from .test_console import Seat, seated
from .test_outage import state, view

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
    monkeypatch.setattr("paired_servicebus.pairing.monitoring.backlog_inspection.LIST_SECONDS", 300 / FASTER)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def hosted(paired: PairedServiceBusClient, folder: Path) -> EngineHost:
    identity = EngineIdentity.of("test")
    return EngineHost(identity, spool=folder / "journal", socket=folder / "s", policy=paired._steering.policy)


async def minutes(number: float) -> None:
    """Let so many of them pass, at the rows' pace."""
    await asyncio.sleep(number * 60 / FASTER)


async def asked_at_the_start(paired: PairedServiceBusClient) -> None:
    """Wait until pairing itself has asked which queues are unused: that may come after the pairing is made."""
    await until(lambda: paired.unused_view().read_at is not None)


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
        await asked_at_the_start(paired)
        asked.clear()
        await sender.send_messages(ServiceBusMessage(b"x"))
        await minutes(3)
        await until(lambda: host.latest() is not None and host.latest().readiness is not None)
        assert asked == []
        assert [queue.depth for queue in host.latest().queues] == [None] * 10


@pytest.mark.usefixtures("faster")
async def test_a_failed_over_sender_asks_for_one_list_a_minute(world: World, asked: list[str]) -> None:
    """It was 120 reads a minute failed over, at 10 credits each."""
    paired = await world.pair(backlog_queue_count=10, failover_interval=0)
    await asked_at_the_start(paired)
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
        await asked_at_the_start(paired)
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


@pytest.mark.parametrize("ping", ["message", "link"])
@pytest.mark.parametrize("entity", ["orders", "payments", "audit"])  # a queue, one with sessions, a topic
async def test_a_probe_finds_out_what_a_send_would_and_leaves_nothing(world: World, ping: str, entity: str) -> None:
    """A random session id so that a session-enabled entity accepts it; link = attach only."""
    paired = await world.pair(ping=ping)
    paired.watch(entity, probe=True)
    await until(lambda: state(paired, entity) is State.HEALTHY)
    if entity != "audit":
        assert world.depth(entity) == 0
    assert paired.billed().pings >= 1


async def test_an_outage_that_only_probes_can_see_fails_over_and_back(world: World) -> None:
    paired = await world.pair()
    paired.watch("orders", probe=True)
    await until(lambda: state(paired, "orders") is State.HEALTHY)
    heal = world.fault("refused", entity="orders")
    await until(lambda: state(paired, "orders") is State.FAILED_OVER)
    heal()
    await until(lambda: state(paired, "orders") is State.HEALTHY)
    states = [State(event.now) for event in world.told(StateChanged)]
    assert states == [State.HEALTHY, State.SUSPECT, State.FAILED_OVER, State.HEALTHY]
    assert paired.billed().sends == 0


# -- An engine that sends nothing, beside an application: what it steers, what it says and cannot know (SPEC.md 12).


MISSED = "this engine sends nothing to it: no sender is diverted; senders elsewhere are unknown"


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
    assert view(silent).why.endswith(MISSED)
    assert (view(silent).carried, view(application).carried) == (False, True)
    assert MISSED not in application.force("orders", by="ana")


async def test_its_syphon_leaves_what_was_parked_for_a_forced_entity_and_says_so(world: World) -> None:
    """Section 6: "Pumps skip destinations that are failed over or forced in their own engine"."""
    silent = await world.forced(enable_syphon=True)
    put(world, [parked("orders", "m1")], path=queue_path(0))
    await until(lambda: silent.syphon_view().status is not SyphonStatus.RUNNING and silent.queue_views()[0].set_aside)
    assert silent.syphon_view().destinations == (DestinationView(path="orders", set_aside=1, moved=0),)
    held = "leaves what is parked for orders: forced here; release it to have that moved"
    assert silent.syphon_view().text.endswith(held)
    silent.release("orders", by="ana")
    silent.pin("orders", by="ana")
    assert held not in silent.syphon_view().text
    await until(lambda: world.depth("orders") == 1)
    await until(lambda: silent.syphon_view().destinations == (DestinationView(path="orders", set_aside=0, moved=1),))


async def test_an_entity_that_nothing_is_sent_to_is_unknown_while_its_namespace_is_down(world: World) -> None:
    """Section 12: "what nobody here can know is "unknown", never "none" or "healthy"."""
    silent = await world.pair(primary_name="primary")
    silent.watch("orders")
    world.fault("refused")
    assert view(silent).state is State.UNKNOWN
    assert view(silent).why == 'no sends by this engine; set probe = ["orders"] to watch it'
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


# -- What a console sees of parked messages: by peek, over the engine's socket, bounded, and bodies only with an audit

ACTIVE, DEAD, DEFERRED = MessageKind.ACTIVE, MessageKind.DEAD, MessageKind.DEFERRED


@asynccontextmanager
async def asking(
    world: World, *, hides_bodies: bool = False, read_only: bool = False, events: list[Record] | None = None
) -> AsyncIterator[ControlClient]:
    """A client of an engine without a syphon over the world's namespaces."""
    paired = await world.pair(backlog_queue_count=1)
    identity = EngineIdentity.of("test", hides_bodies=hides_bodies)
    with tempfile.TemporaryDirectory() as folder:
        socket, policy = Path(folder) / "s", paired._steering.policy
        note = lambda record, _line: events.append(record) if events is not None else None  # noqa: E731
        async with EngineHost(identity, spool=Path(folder) / "j", socket=socket, policy=policy, note=note) as host:
            await host.adopt(paired)
            client = await ControlClient.connect(socket, read_only=read_only)
            try:
                yield client
            finally:
                await client.close()


async def test_a_page_has_its_messages_in_rows_and_a_look_locks_and_removes_nothing(world: World) -> None:
    async with asking(world) as client:
        mine = parked("orders", "m-1", session="eu-7")
        strange = Sections(properties=write_properties(Properties(message_id="x\x1b[2J\u202ey")), body=b"").join()
        put(world, [mine, strange, *(parked("orders", f"m-{number}") for number in range(3, 6))])
        first = await client.look_at_messages(queue_path(), ACTIVE, count=3, by="kim")
        second = await client.look_at_messages(queue_path(), ACTIVE, from_number=first.next_number, count=3, by="kim")
        await client.look_at_message(queue_path(), ACTIVE, 1, by="kim")
        assert len(lying_in(world, queue_path(), namespace="secondary")) == 5
        assert (await world.received(queue_path(), 1, namespace="secondary"))[0].delivery_count == 0
    (row, other, *rest), last = first.rows, second.rows
    assert (row.destination, row.message_id, row.session, row.deliveries) == ("orders", "m-1", "eu-7", 0)
    assert row.size >= len(mine)
    assert row.enqueued_at is not None
    assert (other.destination, other.message_id) == ("", r"x\x1b[2J\u202ey")
    assert "'x-ms-path' is missing" in other.reason
    assert [one.message_id for one in (*rest, *last)] == ["m-3", "m-4", "m-5"]
    assert second.next_number == 0


async def test_a_page_has_at_most_its_rows_and_bytes(world: World) -> None:
    paired = await world.pair(backlog_queue_count=1)
    put(world, [parked("a" * 250, "i" * 120, session="s" * 120) for _ in range(MAX_ROWS + 1)])
    before = paired.billed().receives
    page = await paired.look_at_messages(queue_path()).page(queue_path(), ACTIVE, count=100_000)
    assert paired.billed().receives == before + 1
    assert page.next_number == len(page.rows) + 1 <= MAX_ROWS + 1
    assert len(page.rows) * 400 <= MAX_PAGE_BYTES + 1000
    await paired.close()
    with pytest.raises(PairingClosedError):
        await paired.look_at_messages(queue_path()).page(queue_path(), ACTIVE)


async def test_a_search_reads_ids_properties_and_bodies_of_the_whole_queue(world: World) -> None:
    """Section 12: "A search in messages and an export change nothing." They peek."""
    searches = {
        "m-29": ["m-29", *(f"m-29{digit}" for digit in range(10))],
        "tenant-7.": ["m-7"],
        "ORDER 12 ": ["m-12"],
        "$.order.id = 3": ["m-3"],
        "$.order.id = 999": [],
        "$.order": [f"m-{number}" for number in range(MAX_ROWS)],
    }
    async with asking(world) as client:
        bodies = [b'{"order": {"id": %d}, "text": "order %d "}' % (number, number) for number in range(300)]
        put(world, [
            parked("orders", f"m-{number}", properties={"who": f"tenant-{number}."}, body=body)
            for number, body in enumerate(bodies)
        ])  # fmt: skip
        for wanted, found in searches.items():
            page = await client.look_at_messages(queue_path(), ACTIVE, wanted=wanted, by="kim")
            assert [row.message_id for row in page.rows] == found
            assert page.looked_at == min(300, MAX_ROWS if len(found) == MAX_ROWS else 300)
        with pytest.raises(CommandRefusedError, match="JSON path"):
            await client.look_at_messages(queue_path(), ACTIVE, wanted="$.a b", by="kim")
        assert len(lying_in(world, queue_path(), namespace="secondary")) == 300


async def test_a_large_body_is_shown_part_by_part(world: World) -> None:
    async with asking(world) as client:
        body = bytes(range(256)) * 700
        put(world, [parked("orders", "m-1", body=body)])
        read = b""
        while len(read) < len(body):
            part = await client.look_at_message(queue_path(), ACTIVE, 1, from_byte=len(read), by="kim")
            assert (len(part.body), part.body_size) == (min(MAX_BODY_BYTES, len(body) - len(read)), len(body))
            read += part.body
    assert read == body


@pytest.mark.parametrize(("kind", "reason"), [(DEAD, "Poison"), (DEFERRED, "")])
async def test_dead_letters_with_their_reason_and_deferred_messages_are_listed_apart(
    world: World, kind: MessageKind, reason: str
) -> None:
    async with asking(world) as client:
        put(world, [parked("orders", "m-1"), parked("orders", "m-2")])
        async with world.client("secondary") as sdk, sdk.get_queue_receiver(queue_path()) as receiver:
            for message in await receiver.receive_messages(1, max_wait_time=5):
                if kind is DEAD:
                    await receiver.dead_letter_message(message, reason=reason, error_description="too often")
                else:
                    await receiver.defer_message(message)
            apart = await client.look_at_messages(queue_path(), kind, by="kim")
            active = await client.look_at_messages(queue_path(), ACTIVE, by="kim")
    assert [(row.message_id, row.reason) for row in apart.rows] == [("m-1", reason)]
    assert [row.message_id for row in active.rows] == ["m-2"]


async def test_a_body_is_shown_to_whoever_may_only_look_and_each_look_at_one_is_in_the_audit(world: World) -> None:
    events: list[Record] = []
    async with asking(world, read_only=True, events=events) as client:
        secret = parked("orders", "m-1", properties={"tenant": "ac\x07me", "n": 5}, body=b"secret")
        mine = write_application_properties({"x-ms-path": "orders"})
        values = (Sections(application_properties=mine, body=write_value(value)).join() for value in ("häl", [1, 2]))
        put(world, [secret, *values])
        assert (await client.look_at_messages(queue_path(), ACTIVE, by="kim")).rows
        assert not [one for one in events if isinstance(one.event, BodyShown)]
        content, text, other = [
            await client.look_at_message(queue_path(), ACTIVE, number, by="kim") for number in (1, 2, 3)
        ]
    named = dict(content.properties)
    assert (named["message-id"], named["app: tenant"], named["app: n"]) == ("m-1", r"ac\x07me", "5")
    assert (content.body, content.body_size, content.body_note) == (b"secret", 6, "")
    assert (text.body.decode(), text.body_note) == ("häl", "")
    assert other.body == write_value([1, 2])
    assert "AMQP" in other.body_note
    shown = [one.event for one in events if isinstance(one.event, BodyShown)]
    assert [(one.target, one.number, bool(one.by)) for one in shown] == [(queue_path(), n, True) for n in (1, 2, 3)]
    assert shown[0].message_id == "m-1"
    assert "secret" not in repr(shown)


async def test_hidden_bodies_stay_in_the_engine_and_no_search_reads_them(world: World) -> None:
    """Section 12: a search and an export "say what they did not read, and read no body that the engine hides."."""
    events: list[Record] = []
    async with asking(world, hides_bodies=True, events=events) as client:
        put(world, [parked("orders", "m-1", body=b"secret"), parked("orders", "secret-2")])
        content = await client.look_at_message(queue_path(), ACTIVE, 1, by="kim")
        page = await client.look_at_messages(queue_path(), ACTIVE, wanted="secret", by="kim")
    assert (content.body, content.body_size, content.body_note) == (b"", 6, HIDDEN)
    assert ("message-id", "m-1") in content.properties
    assert not [one for one in events if isinstance(one.event, BodyShown)]
    assert [row.message_id for row in page.rows] == ["secret-2"]
    assert "hidden" in page.note


async def test_a_body_whose_look_cannot_be_audited_is_not_shown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_self: EngineHost) -> bool:
        return False

    async with asking(world) as client:
        put(world, [parked("orders", "m-1", body=b"secret")])
        monkeypatch.setattr(EngineHost, "sync", fails)
        content = await client.look_at_message(queue_path(), ACTIVE, 1, by="kim")
    assert content.body == b""
    assert "audit" in content.body_note


async def test_what_was_moved_meanwhile_and_an_entity_that_is_missing_are_a_sentence_each(world: World) -> None:
    async with asking(world) as client:
        with pytest.raises(CommandRefusedError, match="message 9 is not in the queue any more"):
            await client.look_at_message(queue_path(), ACTIVE, 9, by="kim")
        with pytest.raises(CommandRefusedError, match="unknown: invoices cannot be read: "):
            await client.look_at_messages("invoices", ACTIVE, by="kim")


async def test_a_message_of_an_entity_is_found_in_the_primary(world: World) -> None:
    async with asking(world) as client:
        put(world, [parked("elsewhere", "m-1", body=b"order 4711")], path="orders", namespace="primary")
        page = await client.look_at_messages("orders", MessageKind.STRANDED, wanted="4711", by="kim")
        content = await client.look_at_message("orders", MessageKind.STRANDED, page.rows[0].number, by="kim")
    assert (page.looked_at, page.rows[0].destination, content.body) == (1, "", b"order 4711")


@pytest.mark.parametrize("fault", ["black-holed", "unauthorized"])
async def test_a_secondary_that_does_not_answer_or_refuses_is_unknown_and_not_empty(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(module, "PEEK_SECONDS", 0.3 if fault == "black-holed" else 60.0)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.5 if fault == "black-holed" else 60.0)
    paired = await world.pair(backlog_queue_count=1)
    world.fault(fault, namespace="secondary")
    with pytest.raises(MessagesUnknownError, match=r"^unknown: .*cannot be read"):
        await paired.look_at_messages(queue_path()).page(queue_path(), ACTIVE)


async def test_too_many_looks_at_once_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LOOKS", 1)
    paired = await world.pair(backlog_queue_count=1)
    first = asyncio.ensure_future(paired.look_at_messages(queue_path()).page(queue_path(), ACTIVE))
    await asyncio.sleep(0)
    with pytest.raises(MessagesUnknownError, match="under way"):
        await paired.look_at_messages(queue_path()).page(queue_path(), ACTIVE)
    await first


# -- The messages of a backlog queue at a dashboard on a running engine, over two namespaces: looked at, and re-
# driven.


DEAD_LETTERS = queue_path() + "/$DeadLetterQueue"


async def bury(world: World, number: int = 1) -> None:
    """Dead letters in backlog queue 0: the pump cannot read where they go."""
    put(world, [parked("\x07", f"m-{each}", body=b'{"total": 41.9}') for each in range(1, number + 1)])
    await until(lambda: len(lying_in(world, DEAD_LETTERS, namespace="secondary")) == number)


def dead_in(world: World) -> list[str]:
    """The ids of the dead letters, in order."""
    return [str(stored.message.message_id) for stored in lying_in(world, DEAD_LETTERS, namespace="secondary")]


async def listed(seat: Seat) -> MessagesScreen:
    """The list of backlog queue 0, with its first page."""
    await seat.press("3")
    await seat.until_shown(lambda: seat.app.view.queue == "0")
    await seat.press("enter")
    await seat.until_shown(lambda: isinstance(seat.app.screen, MessagesScreen))
    screen = seat.app.screen
    assert isinstance(screen, MessagesScreen)
    if screen.choices.tab.kind != "dead":
        await seat.press("tab", "tab")
    await seat.until_shown(lambda: screen.choices.page is not None and screen.choices.page.kind == "dead")
    return screen


@pytest.mark.slow
async def test_a_dead_letter_is_looked_at_and_stays(world: World) -> None:
    async with seated(world) as seat:
        await bury(world)
        screen = await listed(seat)
        assert screen.choices.row is not None
        assert screen.choices.row.message_id == "m-1"
        await seat.press("enter")
        await seat.until_shown(lambda: getattr(seat.app.screen, "content", None) is not None)
        message = seat.app.screen
        assert isinstance(message, MessageScreen)
        assert message.content is not None
        assert message.content.body == b'{"total": 41.9}'
        assert len(lying_in(world, DEAD_LETTERS, namespace="secondary")) == 1


async def test_a_message_is_found_wherever_it_is(world: World) -> None:
    """Section 12: "A search for a message reads every backlog queue and every entity that the pairing knows"."""
    async with seated(world) as seat:
        await bury(world)
        put(world, [parked("payments", "m-7", body=b"text of order 4711")], path="orders", namespace="primary")
        for wanted, places in (("4711", ["orders"]), ("m-1", ["backlog/0 · dead letter"])):
            await seat.press("f", *wanted, "enter")
            await seat.until_shown(lambda: isinstance(seat.app.screen, PickList))
            found = seat.app.screen
            assert isinstance(found, PickList)
            here = [one.about for one in found.listed if one.possible]
            assert [text.partition(" · since")[0].partition(" · for")[0] for text in here] == places
            assert all("is a topic" in one.about for one in found.listed if not one.possible)
            await seat.press("escape")


async def test_only_the_marked_dead_letters_are_re_driven_and_the_audit_names_them(world: World) -> None:
    """They are dead-lettered again for the same reason, behind the others: their order shows who went."""
    async with seated(world) as seat:
        await bury(world, 4)
        screen = await listed(seat)
        numbers = {row.message_id: row.number for row in screen.choices.listed}
        await seat.press("j", "space", "j", "space")
        assert screen.choices.marks == {numbers["m-2"], numbers["m-4"]}
        await seat.fire("R", "2 dead letters")
        await until(lambda: dead_in(world) == ["m-1", "m-3", "m-2", "m-4"])
        await seat.until_shown(
            lambda: seat.app.view.answer and "2 of 2 selected dead letters" in seat.app.view.answer.text
        )
        await seat.until_shown(lambda: [row.message_id for row in screen.choices.listed] == dead_in(world))
        assert not screen.choices.marks
        named = [entry.text for entry in seat.app.view.log if "re-drive" in entry.text or "redrive" in entry.text]
        assert any(f"{numbers['m-2']}, {numbers['m-4']} of backlog/0" in text for text in named), named


@pytest.mark.slow
async def test_a_dead_letter_that_is_gone_is_reported(world: World) -> None:
    async with seated(world) as seat:
        await bury(world, 2)
        screen = await listed(seat)
        assert screen.choices.row is not None
        await seat.paired.redrive(0, [screen.choices.row.number])
        await until(lambda: dead_in(world) == ["m-2", "m-1"])
        await seat.fire("R", "1 dead letter")
        await seat.until_shown(lambda: seat.app.view.answer and "has no such dead letter" in seat.app.view.answer.text)
        assert dead_in(world) == ["m-2", "m-1"]


async def test_a_console_has_the_unused_queues_listed_anew(world: World, asked: list[str]) -> None:
    """SPEC.md section 12: "A person at the console has the unused queues listed anew with one key"."""
    async with asking(world) as client:
        before = len(asked)
        await client.look_at_messages("", MessageKind.STRANDED, by="kim")
        assert any("$Resources/queues" in one for one in asked[before:]), asked[before:]
