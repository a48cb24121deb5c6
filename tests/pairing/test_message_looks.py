"""What a console sees of parked messages: by peek, over the engine's socket, bounded, and bodies only with an audit."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paired_servicebus.core.errors import CommandRefusedError, IllegalEventError, MessagesUnknownError
from paired_servicebus.core.model.message_view import MAX_BODY_BYTES, MAX_PAGE_BYTES, MAX_ROWS, MessageKind
from paired_servicebus.core.model.pairing_events import BodyShown, Record
from paired_servicebus.engine.commands.message_requests import HIDDEN
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.service.engine_host import EngineHost
from paired_servicebus.pairing.monitoring import message_looks as module
from paired_servicebus.ui.screens.arm_dialog import ArmDialog
from paired_servicebus.ui.screens.messages_screen import MessageScreen, MessagesScreen
from servicebus_amqp.encoding.message_sections import (
    Properties,
    Sections,
    write_application_properties,
    write_properties,
    write_value,
)

from .backlogs import lying_in, parked, put, queue_path
from .conftest import World, until
from .test_console import Seat, seated

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


async def test_a_page_has_destination_id_age_size_tries_and_session(world: World) -> None:
    async with asking(world) as client:
        data = parked("orders", "m-1", session="eu-7")
        put(world, [data])
        page = await client.look_at_messages(queue_path(), ACTIVE, by="kim")
    (row,) = page.rows
    assert (row.destination, row.message_id, row.session, row.deliveries) == ("orders", "m-1", "eu-7", 0)
    assert row.size >= len(data)
    assert row.enqueued_at is not None
    assert page.next_number == 0


async def test_a_look_locks_and_takes_nothing(world: World) -> None:
    async with asking(world) as client:
        put(world, [parked("orders", "m-1")])
        await client.look_at_messages(queue_path(), ACTIVE, by="kim")
        await client.look_at_message(queue_path(), ACTIVE, 1, by="kim")
        (stored,) = lying_in(world, queue_path(), namespace="secondary")
        assert (await world.received(queue_path(), 1, namespace="secondary"))[0].delivery_count == 0
        assert stored.message.message_id == "m-1"


async def test_pages_follow_each_other_without_a_gap(world: World) -> None:
    async with asking(world) as client:
        put(world, [parked("orders", f"m-{number}") for number in range(5)])
        first = await client.look_at_messages(queue_path(), ACTIVE, count=3, by="kim")
        second = await client.look_at_messages(queue_path(), ACTIVE, from_number=first.next_number, count=3, by="kim")
    assert [row.message_id for row in (*first.rows, *second.rows)] == [f"m-{number}" for number in range(5)]
    assert second.next_number == 0


async def test_a_page_has_at_most_its_rows_and_bytes(world: World) -> None:
    async with asking(world) as client:
        put(world, [parked("a" * 250, "i" * 120, session="s" * 120) for _ in range(MAX_ROWS + 1)])
        page = await client.look_at_messages(queue_path(), ACTIVE, count=100_000, by="kim")
    assert page.next_number == len(page.rows) + 1 <= MAX_ROWS + 1
    assert len(page.rows) * 400 <= MAX_PAGE_BYTES + 1000


async def test_messages_are_found_by_a_part_of_their_id(world: World) -> None:
    async with asking(world) as client:
        put(world, [parked("orders", f"M-{number}") for number in range(300)])
        page = await client.look_at_messages(queue_path(), ACTIVE, wanted_id="m-29", by="kim")
    assert [row.message_id for row in page.rows] == ["M-29", *(f"M-29{digit}" for digit in range(10))]
    assert page.looked_at == 300


async def test_dead_letters_have_their_reason(world: World) -> None:
    async with asking(world) as client:
        put(world, [parked("orders", "m-1")])
        async with world.client("secondary") as sdk, sdk.get_queue_receiver(queue_path()) as receiver:
            for message in await receiver.receive_messages(1, max_wait_time=5):
                await receiver.dead_letter_message(message, reason="Poison", error_description="too often")
        page = await client.look_at_messages(queue_path(), DEAD, by="kim")
        assert [(row.message_id, row.reason) for row in page.rows] == [("m-1", "Poison")]
        assert not (await client.look_at_messages(queue_path(), ACTIVE, by="kim")).rows


async def test_deferred_messages_are_listed_apart(world: World) -> None:
    async with asking(world) as client:
        put(world, [parked("orders", "m-1"), parked("orders", "m-2")])
        async with world.client("secondary") as sdk, sdk.get_queue_receiver(queue_path()) as receiver:
            for message in await receiver.receive_messages(1, max_wait_time=5):
                await receiver.defer_message(message)
            deferred = await client.look_at_messages(queue_path(), DEFERRED, by="kim")
            active = await client.look_at_messages(queue_path(), ACTIVE, by="kim")
    assert [row.message_id for row in deferred.rows] == ["m-1"]
    assert [row.message_id for row in active.rows] == ["m-2"]


async def test_a_strangers_message_is_a_row_that_says_what_is_missing(world: World) -> None:
    async with asking(world) as client:
        put(world, [Sections(properties=write_properties(Properties(message_id="x\x1b[2J\u202ey")), body=b"").join()])
        (row,) = (await client.look_at_messages(queue_path(), ACTIVE, by="kim")).rows
    assert row.destination == ""
    assert "'x-ms-path' is missing" in row.reason
    assert row.message_id == r"x\x1b[2J\u202ey"


async def test_a_message_has_its_properties_and_body(world: World) -> None:
    async with asking(world) as client:
        body = b'{"total": 41.9}'
        put(world, [parked("orders", "m-1", properties={"tenant": "ac\x07me", "n": 5}, body=body)])
        content = await client.look_at_message(queue_path(), ACTIVE, 1, by="kim")
    named = dict(content.properties)
    assert (named["message-id"], named["app: tenant"], named["app: n"]) == ("m-1", r"ac\x07me", "5")
    assert (content.body, content.body_size, content.body_note) == (body, len(body), "")


async def test_of_a_large_body_only_the_beginning_leaves_the_engine(world: World) -> None:
    async with asking(world) as client:
        put(world, [parked("orders", "m-1", body=b"ab" * 100_000)])
        content = await client.look_at_message(queue_path(), ACTIVE, 1, by="kim")
    assert (len(content.body), content.body_size) == (MAX_BODY_BYTES, 200_000)


async def test_a_body_of_text_is_its_text_and_any_other_value_is_shown_as_encoded(world: World) -> None:
    async with asking(world) as client:
        mine = write_application_properties({"x-ms-path": "orders"})
        put(world, [Sections(application_properties=mine, body=write_value(value)).join() for value in ("häl", [1, 2])])
        text = await client.look_at_message(queue_path(), ACTIVE, 1, by="kim")
        other = await client.look_at_message(queue_path(), ACTIVE, 2, by="kim")
    assert (text.body.decode(), text.body_note) == ("häl", "")
    assert other.body == write_value([1, 2])
    assert "AMQP" in other.body_note


async def test_every_look_at_a_body_is_in_the_audit_without_the_body(world: World) -> None:
    events: list[Record] = []
    async with asking(world, events=events) as client:
        put(world, [parked("orders", "m-1", body=b"secret")])
        await client.look_at_messages(queue_path(), ACTIVE, by="kim")
        assert not [one for one in events if isinstance(one.event, BodyShown)]
        await client.look_at_message(queue_path(), ACTIVE, 1, by="kim")
    (shown,) = [one.event for one in events if isinstance(one.event, BodyShown)]
    assert (shown.target, shown.number, shown.message_id) == (queue_path(), 1, "m-1")
    assert shown.by
    assert "secret" not in repr(shown)


async def test_hidden_bodies_stay_in_the_engine_and_properties_are_shown(world: World) -> None:
    events: list[Record] = []
    async with asking(world, hides_bodies=True, events=events) as client:
        put(world, [parked("orders", "m-1", body=b"secret")])
        content = await client.look_at_message(queue_path(), ACTIVE, 1, by="kim")
    assert (content.body, content.body_size, content.body_note) == (b"", 6, HIDDEN)
    assert ("message-id", "m-1") in content.properties
    assert not [one for one in events if isinstance(one.event, BodyShown)]


async def test_a_body_whose_look_cannot_be_audited_is_not_shown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_self: EngineHost) -> bool:
        return False

    async with asking(world) as client:
        put(world, [parked("orders", "m-1", body=b"secret")])
        monkeypatch.setattr(EngineHost, "sync", fails)
        content = await client.look_at_message(queue_path(), ACTIVE, 1, by="kim")
    assert content.body == b""
    assert "audit" in content.body_note


async def test_a_console_opened_to_look_only_looks(world: World) -> None:
    async with asking(world, read_only=True) as client:
        put(world, [parked("orders", "m-1", body=b"x")])
        assert (await client.look_at_messages(queue_path(), ACTIVE, by="kim")).rows
        assert (await client.look_at_message(queue_path(), ACTIVE, 1, by="kim")).body == b"x"


async def test_a_message_that_was_moved_meanwhile_is_a_sentence(world: World) -> None:
    async with asking(world) as client:
        with pytest.raises(CommandRefusedError, match="message 9 is not in the queue any more"):
            await client.look_at_message(queue_path(), ACTIVE, 9, by="kim")


async def test_only_backlog_queues_of_the_pairing_are_shown(world: World) -> None:
    async with asking(world) as client:
        with pytest.raises(CommandRefusedError, match="invoices is not a backlog queue of this pairing"):
            await client.look_at_messages("invoices", ACTIVE, by="kim")


async def test_a_secondary_that_is_silent_is_unknown_within_the_looks_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PEEK_SECONDS", 0.3)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.5)
    paired = await world.pair(backlog_queue_count=1)
    world.fault("black-holed", namespace="secondary")
    with pytest.raises(MessagesUnknownError, match=r"^unknown: .*cannot be read"):
        await paired.look_at_messages(queue_path(), ACTIVE)


async def test_a_secondary_without_the_right_is_unknown_and_not_empty(world: World) -> None:
    paired = await world.pair(backlog_queue_count=1)
    world.fault("unauthorized", namespace="secondary")
    with pytest.raises(MessagesUnknownError, match=r"^unknown: .*cannot be read"):
        await paired.look_at_messages(queue_path(), ACTIVE)


async def test_too_many_looks_at_once_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LOOKS", 1)
    paired = await world.pair(backlog_queue_count=1)
    first = asyncio.ensure_future(paired.look_at_messages(queue_path(), ACTIVE))
    await asyncio.sleep(0)
    with pytest.raises(MessagesUnknownError, match="under way"):
        await paired.look_at_messages(queue_path(), ACTIVE)
    await first


async def test_each_peek_is_counted_as_an_operation(world: World) -> None:
    paired = await world.pair(backlog_queue_count=1)
    before = paired.billed().receives
    await paired.look_at_messages(queue_path(), ACTIVE)
    assert paired.billed().receives == before + 1


async def test_an_ended_pairing_shows_nothing(world: World) -> None:
    paired = await world.pair(backlog_queue_count=1)
    await paired.look_at_messages(queue_path(), ACTIVE)
    await paired.close()
    with pytest.raises(Exception, match="closed"):
        await paired.look_at_messages(queue_path(), ACTIVE)


async def test_a_message_that_left_is_an_illegal_event_and_not_unknown(world: World) -> None:
    paired = await world.pair(backlog_queue_count=1)
    with pytest.raises(IllegalEventError):
        await paired.look_at_message(queue_path(), ACTIVE, 1)


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


async def test_a_capital_r_asks_and_the_engine_arms_the_redrive(world: World) -> None:
    async with seated(world) as seat:
        await bury(world)
        await seat.paired._poller.read()
        await seat.until_shown(lambda: seat.app.view.snapshot and seat.app.view.snapshot.queues[0].dead_lettered)
        await listed(seat)
        await seat.press("R")
        await seat.until_shown(lambda: isinstance(seat.app.screen, ArmDialog))
        await seat.press("escape")
        assert isinstance(seat.app.screen, MessagesScreen)
        assert len(lying_in(world, DEAD_LETTERS, namespace="secondary")) == 1


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


async def test_a_dead_letter_that_is_gone_is_reported(world: World) -> None:
    async with seated(world) as seat:
        await bury(world, 2)
        screen = await listed(seat)
        assert screen.choices.row is not None
        await seat.paired.redrive_letters(0, [screen.choices.row.number])
        await until(lambda: dead_in(world) == ["m-2", "m-1"])
        await seat.fire("R", "1 dead letter")
        await seat.until_shown(lambda: seat.app.view.answer and "has no such dead letter" in seat.app.view.answer.text)
        assert dead_in(world) == ["m-2", "m-1"]
