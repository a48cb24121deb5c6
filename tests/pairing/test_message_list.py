"""The messages of a backlog queue at a dashboard on a running engine, over two namespaces: looked at, and re-driven."""

from __future__ import annotations

from paired_servicebus.ui.screens.arm_dialog import ArmDialog
from paired_servicebus.ui.screens.messages_screen import MessageScreen, MessagesScreen

from .backlogs import lying_in, parked, put, queue_path
from .conftest import World, until
from .test_console import Seat, seated

DEAD = queue_path() + "/$DeadLetterQueue"


async def bury(world: World, number: int = 1) -> None:
    """Dead letters in backlog queue 0: the pump cannot read where they go."""
    put(world, [parked("\x07", f"m-{each}", body=b'{"total": 41.9}') for each in range(1, number + 1)])
    await until(lambda: len(lying_in(world, DEAD, namespace="secondary")) == number)


def dead_in(world: World) -> list[str]:
    """The ids of the dead letters, in order."""
    return [str(stored.message.message_id) for stored in lying_in(world, DEAD, namespace="secondary")]


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
        assert len(lying_in(world, DEAD, namespace="secondary")) == 1


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
        assert len(lying_in(world, DEAD, namespace="secondary")) == 1


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
