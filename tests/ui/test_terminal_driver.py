"""A terminal's modes, flags and attributes are restored at every end; without a terminal the dashboard ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from textual.drivers.linux_driver import LinuxDriver

from paired_servicebus.engine.control.control_server import ControlServer
from paired_servicebus.ui.display.terminal_driver import ENDS_WITHIN_SECONDS, LEAVE, TerminalDriver

from .terminals import Modes, Open, Terminal

READY: Final = "failed over: payments"
PLACES: Final = {
    **{f"page {number}": (str(number), "") for number in range(1, 9)},
    "help": ("?", "Keys (arr"),
    "readiness": ("!", "Would a failover work"),
    "filter": ("/", "filter"),
    "acts": ("x", "Acts"),
    "commands": (":", "Commands"),
    "copies": ("y", "Copy"),
    "question": ("S", "Pause all of it"),
    "dangerous order": ("F", "Type"),
    "messages": ("3\r", "asking the engine"),
}
"""Keys from the first page, and what is shown then; empty: something new."""


def by_signal(number: int) -> Callable[[Terminal], Awaitable[int]]:
    async def end(terminal: Terminal) -> int:
        terminal.process.send_signal(number)
        return 128 + number

    return end


async def by_key(terminal: Terminal) -> int:
    for _ in range(3):  # a dialog, a page, the first page
        terminal.type("\x1b")
        await asyncio.sleep(0.2)  # an escape is a key of its own after Textual's pause
    terminal.type("q")
    return 0


async def by_error(terminal: Terminal) -> int:
    for _ in range(3):
        terminal.type("\x1b")
        await asyncio.sleep(0.2)
    terminal.type("Z")
    return 1


async def hung(terminal: Terminal) -> int:
    for _ in range(3):
        terminal.type("\x1b")
        await asyncio.sleep(0.2)
    terminal.type("X")
    terminal.process.send_signal(signal.SIGTERM)
    return 128 + signal.SIGTERM


WAYS: Final[dict[str, Callable[[Terminal], Awaitable[int]]]] = {
    "key": by_key,
    "SIGTERM": by_signal(signal.SIGTERM),
    "SIGQUIT": by_signal(signal.SIGQUIT),
    "SIGHUP": by_signal(signal.SIGHUP),
    "SIGINT": by_signal(signal.SIGINT),
    "error": by_error,
    "hung": hung,
}
FEW: Final = (
    ("page 1", "key"), ("dangerous order", "SIGTERM"), ("page 4", "error"), ("page 2", "hung"),
)  # fmt: skip
ALL: Final = [(place, way) for place in PLACES for way in WAYS if (place, way) not in FEW]


async def opened_at(place: str, server: ControlServer, open_terminal: Open, made: Any) -> tuple[Terminal, object]:
    server.publish_snapshot(made.outage())
    terminal = await open_terminal(FAILS="1")
    before = terminal.attributes()
    await terminal.until(lambda text: READY in text)
    await terminal.quiet()
    keys, shown = PLACES[place]
    terminal.type(keys)
    await terminal.until(lambda text: shown in text)
    await terminal.quiet()
    return terminal, before


@pytest.mark.parametrize(("place", "way"), [*FEW, *(pytest.param(*one, marks=pytest.mark.slow) for one in ALL)])
async def test_every_end_restores_the_terminal(
    place: str, way: str, server: ControlServer, open_terminal: Open, made: Any
) -> None:
    """A terminal is after every end as it was before: modes, attributes, flags, and nothing left to read."""
    terminal, before = await opened_at(place, server, open_terminal, made)
    assert terminal.modes != Modes()
    assert terminal.attributes() != before
    terminal.late = b"\x1b[<35;10;10M\x1b[?2026;2$y"
    status = await WAYS[way](terminal)
    assert await terminal.ended() == status
    await terminal.quiet()
    assert terminal.modes == Modes()
    assert terminal.attributes() == before
    assert terminal.unread() == b""
    assert "Traceback" not in terminal.text


async def test_ctrl_z_gives_the_terminal_back_until_the_shell_continues(
    server: ControlServer, open_terminal: Open, made: Any
) -> None:
    """Ctrl+z stops the dashboard with the terminal as it was; then it goes on where it was."""
    terminal, before = await opened_at("dangerous order", server, open_terminal, made)
    terminal.type("\x1a")
    left = LEAVE.encode()
    async with asyncio.timeout(60):
        while left not in terminal.written:
            await terminal.more()
        stopped = terminal.written.index(left) + len(left)
        assert Modes().after(bytes(terminal.written[:stopped])) == Modes()
        # Its group is an orphan here: the kernel stops nobody, and it goes on at once.
        while terminal.modes == Modes() or terminal.attributes() == before:
            await terminal.more()
    await terminal.quiet()
    shown = len(terminal.text)
    terminal.type("paym")
    await terminal.until(lambda text: "paym" in text[shown:])
    terminal.process.send_signal(signal.SIGTERM)
    await terminal.ended()
    await terminal.quiet()
    assert (terminal.modes, terminal.attributes()) == (Modes(), before)


@pytest.mark.parametrize("place", ["page 1", *(pytest.param(one, marks=pytest.mark.slow) for one in PLACES)])
@pytest.mark.parametrize("ignored", [pytest.param(False, marks=pytest.mark.slow), True], ids=["SIGHUP", "nohup"])
async def test_without_a_terminal_it_ends(
    place: str, ignored: bool, server: ControlServer, open_terminal: Open, made: Any
) -> None:
    """A terminal that is gone ends the dashboard within 2 seconds, also where SIGHUP is ignored."""
    assert ENDS_WITHIN_SECONDS < 2.0
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN) if ignored else None
    try:
        terminal, _ = await opened_at(place, server, open_terminal, made)
    finally:
        if ignored:
            signal.signal(signal.SIGHUP, former)
    terminal.hang_up()
    assert await terminal.ended() == 128 + signal.SIGHUP


def test_the_driver_of_textual_has_what_is_overridden() -> None:
    """Textual's driver calls these; a version without them needs another guard."""
    for name in (
        "start_application_mode", "stop_application_mode", "disable_input", "_sigtstp_application",
        "_sigcont_application", "_run_input_thread", "run_input_thread", "process_message", "write",
    ):  # fmt: skip
        assert callable(getattr(LinuxDriver, name)), name
        assert name in vars(TerminalDriver), name


def test_an_output_that_is_gone_is_said_once() -> None:
    """A closed output ends the writing, and is reported once."""
    from paired_servicebus.ui.display.terminal_driver import TerminalOutput

    reader, writer = os.pipe()
    os.close(reader)
    gone: list[bool] = []
    output = TerminalOutput(writer, lambda: gone.append(True))
    output.write("x" * 5_000)
    output.write("y")
    os.close(writer)
    assert gone == [True]


@pytest.mark.parametrize("size", [(80, 24), pytest.param((140, 40), marks=pytest.mark.slow)])
async def test_on_a_slow_link_a_key_is_answered_before_its_page(
    size: tuple[int, int], server: ControlServer, open_terminal: Open, made: Any
) -> None:
    """On a link of 2 kB/s the first answer comes within a second, and at 80x24 the page within two."""
    server.publish_snapshot(made.outage())
    terminal = await open_terminal(size=size, profile="slow")
    await terminal.until(lambda text: READY in text)
    await terminal.quiet()
    assert b"\x1b[?2026" not in terminal.written, "an update that is shown at once would be shown late"
    for key in "23456781":
        before = len(terminal.written)
        terminal.type(key)
        answer = f"[{key}".encode()
        await terminal.until(lambda _text, at=before, sought=answer: sought in terminal.written[at:])  # type: ignore[misc]
        await terminal.quiet()
        assert terminal.written.index(answer, before) - before <= 2_000
        assert size != (80, 24) or len(terminal.written) - before <= 4_000
