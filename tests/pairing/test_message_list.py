"""The messages of a backlog queue at a dashboard on a running engine, over two namespaces: looked at, and re-driven."""

from __future__ import annotations

from paired_servicebus.ui.screens.arm_dialog import ArmDialog
from paired_servicebus.ui.screens.message_screen import MessageScreen
from paired_servicebus.ui.screens.messages_screen import MessagesScreen

from .backlogs import lying_in, parked, put, queue_path
from .conftest import World, until
from .test_console import Seat, seated

DEAD = queue_path() + "/$DeadLetterQueue"


async def bury(world: World) -> None:
    """One dead letter in backlog queue 0: the pump cannot read where it goes."""
    put(world, [parked("\x07", "m-1", body=b'{"total": 41.9}')])
    await until(lambda: lying_in(world, DEAD, namespace="secondary"))


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
