"""The real thing: `run_dashboard` on a pseudo-terminal, in its own process, over a real control socket."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import random
import re
import struct
import termios
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.series.graphs import KEPT, Curves, Graphs
from paired_servicebus.engine.control.control_server import ControlServer
from paired_servicebus.engine.control.protocol import Welcome
from paired_servicebus.ui.display.profile import PROFILES, ProfileName, profile_for
from paired_servicebus.ui.display.terminal_app import notification_sequence, title_sequence
from paired_servicebus.ui.shell.screenshot import draw_page
from paired_servicebus.ui.state.summary import headline, window_title
from paired_servicebus.ui.state.view import (
    EngineLink,
    Page,
    Records,
    Silent,
    Unreachable,
    View,
    apply_news,
    should_ring,
)
from paired_servicebus.ui.widgets.graph_parts import NONE_YET
from tests.alarm_views import remarks
from tests.graph_views import graphs

from .emulator import Emulator
from .terminals import Open, Terminal

FIRST_PAINT = {"full": 60_000, "slow": 60_000, "plain": 12_000}
"""Bytes of the first paint with its first snapshot, 140x40, 256 colours."""
A_SECOND = {"full": 2_000, "slow": 500, "plain": 2_000}
"""Bytes a second of 30 entities at 140x40 and 256 colours, a tenth of them changing every second."""
SECOND_OF_CLOCK = 50
"""Bytes of a second in which nothing happens but that it passes."""
SECOND_OF_OUTAGE = 250
"""The same with an entity failed over, its ages and the countdown to its next ping."""
SECOND_OF_GRAPHS = {(80, 24): 60, (140, 40): 100, (200, 50): 250}
"""What uneven traffic adds to it, at a step each five seconds."""


async def test_shown_steered_and_left(server: ControlServer, terminal: Terminal, orders_taken: Any, made: Any) -> None:
    server.publish_snapshot(made.outage())
    await terminal.until(lambda text: "failed over: payments" in text and "queue 6 not accepting" in text)
    await terminal.quiet()
    painted = len(terminal.written)
    server.publish_snapshot(made.outage())
    await terminal.quiet()
    assert len(terminal.written) <= painted + 2 * SECOND_OF_OUTAGE, "clock and ages alone"
    assert "\a" not in terminal.text, "what was so when it was opened rings no bell"
    server.publish_snapshot(made.snapshot())
    await terminal.until(lambda text: "all 3 entities healthy" in text)
    assert terminal.text.count("\a") == 1
    terminal.type("S")
    await terminal.until(lambda text: "Pause all of it" in text)
    terminal.type("\t\r")
    await terminal.until(lambda text: "pause syphon:  is told" in text)
    assert [order.action_id for order in orders_taken] == ["pause-syphon"]
    terminal.type("q")
    async with asyncio.timeout(60):
        assert await terminal.process.wait() == 0
    assert "Traceback" not in terminal.text


@pytest.mark.slow
async def test_what_is_copied_goes_to_the_terminals_clipboard(
    server: ControlServer, terminal: Terminal, made: Any
) -> None:
    server.publish_snapshot(made.outage())
    await terminal.until(lambda text: "failed over: payments" in text)
    terminal.type("y")
    await terminal.until(lambda text: "row of payments" in text)
    terminal.type("name of payments")
    await terminal.quiet()
    terminal.type("\r")
    await terminal.until(lambda text: "sent to the terminal" in text)
    assert b"\x1b]52;c;" + base64.b64encode(b"payments") + b"\a" in bytes(terminal.written)


async def test_an_engine_that_is_not_there_is_said_and_found_later(
    terminal: Terminal, tmp_path: Path, made: Any
) -> None:
    await terminal.until(lambda text: "no engine of orders yet" in text and "retrying: no engine answers" in text)
    welcome = Welcome(engine="e", boot="b1", pid=1, pairing="orders", environment="", read_only=False)
    async with ControlServer(tmp_path / "s", welcome=welcome, execute=None) as late:  # type: ignore[arg-type]
        late.publish_snapshot(made.snapshot())
        await terminal.until(lambda text: "all 3 entities healthy" in text)
        assert terminal.process.returncode is None


def thirty(made: Any, second: int) -> Any:
    """30 healthy entities, of which another tenth sent more in each second."""
    entities = [made.entity(f"queue-{place:02}") for place in range(30)]
    for past in range(second + 1):
        for place in ((past * 7) % 30, (past * 7 + 11) % 30, (past * 7 + 19) % 30):
            entities[place] = made.entity(
                f"queue-{place:02}", sends_per_second=97.0 + past, accepted=412_000 + past * 97
            )
    return made.snapshot(*entities, at=made.AT + second)


@pytest.mark.parametrize("profile", ["full", *(pytest.param(one, marks=pytest.mark.slow) for one in ("slow", "plain"))])
async def test_a_tenth_of_30_rows_changing_is_within_the_budget(
    server: ControlServer, open_terminal: Open, made: Any, profile: str
) -> None:
    server.publish_snapshot(thirty(made, 0))
    terminal = await open_terminal(size=(140, 40), profile=profile)
    await terminal.until(lambda text: "all 30 entities healthy" in text and "quit" in text)
    await terminal.quiet()
    before, seconds = len(terminal.written), 5
    assert before <= FIRST_PAINT[profile]
    for second in range(1, seconds + 1):
        server.publish_snapshot(thirty(made, second))
        await asyncio.sleep(1.0)  # the budget is one of bytes a second
    assert before < len(terminal.written) <= before + seconds * A_SECOND[profile]


@pytest.mark.slow
@pytest.mark.parametrize("size", SECOND_OF_GRAPHS, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_graphs_of_uneven_traffic_are_within_the_budget(
    server: ControlServer, open_terminal: Open, made: Any, size: tuple[int, int]
) -> None:
    draw = random.Random(1)
    server.publish_snapshot(made.snapshot())
    server.all_graphs = lambda: _uneven(draw, made.AT, KEPT)
    terminal = await open_terminal(size=size)
    await terminal.until(lambda text: "to primary" in text or "send time in ms" in text)
    await terminal.quiet()
    before, steps, pause = len(terminal.written), 24, 0.25
    for step in range(1, steps + 1):
        server.publish_graphs(_uneven(draw, made.AT + 5.0 * step, 1))
        await asyncio.sleep(pause)  # each is painted
    clock = SECOND_OF_CLOCK * pause * steps
    assert before < len(terminal.written) <= before + clock + SECOND_OF_GRAPHS[size] * 5.0 * steps


def _uneven(draw: random.Random, at: float, number: int) -> Graphs:
    """Traffic that differs by a tenth from one value to the next, with the worst call anywhere."""

    def about(middle: float) -> tuple[float, ...]:
        return tuple(round(middle * draw.uniform(0.9, 1.1), 1) for _ in range(number))

    total = Curves(
        to_primary=about(412.0),
        to_backlog=about(43.0),
        refused=(0.0,) * number,
        p50=about(4.0),
        p99=tuple(round(10 ** draw.uniform(1, 3), 1) for _ in range(number)),
        parked=about(1_204.0),
        moved=about(22.0),
    )
    return Graphs(at=at, whole=number > 1, total=total)


@pytest.mark.slow
async def test_time_passing_writes_the_clock_alone(server: ControlServer, open_terminal: Open, made: Any) -> None:
    server.publish_snapshot(made.snapshot())
    terminal = await open_terminal(size=(140, 40))
    await terminal.until(lambda text: "all 3 entities healthy" in text)
    await terminal.quiet()
    before, began = len(terminal.written), time.monotonic()
    for second in range(1, 6):
        queues = made.queues(read_at=made.AT + second)
        server.publish_snapshot(made.snapshot(at=made.AT + second, seq=12 + second, queues=queues))
        await terminal.quiet()
    seconds = time.monotonic() - began + 1
    assert before < len(terminal.written) <= before + seconds * SECOND_OF_CLOCK


async def test_a_stalled_link_holds_nobody_up_and_catches_up(
    server: ControlServer, open_terminal: Open, made: Any
) -> None:
    server.publish_snapshot(made.snapshot())
    terminal = await open_terminal()
    await terminal.until(lambda text: "all 3 entities healthy" in text)
    terminal.stall()
    for second in range(1, 2_000):  # far more than terminal and socket hold
        server.publish_snapshot(made.snapshot(made.entity("orders", accepted=second * 7_919), at=made.AT + second))
        if second % 50 == 0:
            await asyncio.sleep(0.005)
    server.publish_snapshot(made.outage(at=made.AT + 2_000))
    terminal.listen()
    await terminal.until(lambda text: "failed over: payments" in text)
    terminal.type("q")
    async with asyncio.timeout(60):
        assert await terminal.process.wait() == 0


async def test_a_terminal_that_shrinks_and_grows_shows_all_of_it_again(
    server: ControlServer, open_terminal: Open, made: Any
) -> None:
    server.publish_snapshot(made.outage())
    terminal = await open_terminal(size=(140, 40))
    await terminal.until(lambda text: "failed over: payments" in text)
    for width, height, shown in ((50, 10, "50 columns and 10 rows"), (140, 40, "by destination")):
        await terminal.quiet()
        before = len(terminal.written)
        fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("4H", height, width, 0, 0))
        async with asyncio.timeout(60):
            while shown not in _made_of(bytes(terminal.written[before:]), width, height):
                await terminal.more()
    assert "over: payments" in _made_of(bytes(terminal.written[before:]), width, height)


def _made_of(written: bytes, width: int, height: int) -> str:
    """What that makes of a terminal of which nothing is known; empty where it does not fill it."""
    screen = Emulator(width, height)
    screen.write(written.decode(errors="ignore"))  # the last character may be half-way
    return "" if "�" in screen.text else screen.text


BARE: dict[str, dict[str, str]] = {
    "vt100": {"TERM": "vt100"},
    "dumb": {"TERM": "dumb"},
    "no-term": {"TERM": ""},
    "no-colour": {"NO_COLOR": "1"},
    "c-locale": {"LC_ALL": "C", "LANG": "C"},
    "linux": {"TERM": "linux"},
}
ASCII_ONLY = ("vt100", "dumb", "no-term", "c-locale", "linux")
COLOURS = re.compile(r"\x1b\[[0-9;]*?(3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")
HOSTILE = ("\u202etxt.x", "\u6f22" * 130, "e\u0301" * 130, "a\x1b]52;c;ZXZpbA==\x07b", "\u200b\u2066x", "n" * 260)


@pytest.mark.slow
@pytest.mark.parametrize("kind", BARE)
async def test_a_bare_terminal_shows_the_verdict_and_takes_keys(
    server: ControlServer, open_terminal: Open, made: Any, kind: str
) -> None:
    """A real console chosen by the terminal's variables alone: nothing crashes, and nothing unprintable is sent."""
    hostile = [made.entity(name) for name in HOSTILE]
    server.publish_snapshot(made.snapshot(made.failed_over("payments"), *hostile))
    terminal = await open_terminal(profile="", **BARE[kind])
    await terminal.until(lambda text: "failed over: payments" in text)
    for keys in ("3", "4", "5", "6", "7", "8", "!", "\x1b", "?", "\x1b", "x", "\x1b", "1"):
        terminal.type(keys)
        await terminal.quiet()
    written = bytes(terminal.written)
    assert terminal.process.returncode is None
    if kind in ASCII_ONLY:
        assert written.isascii(), [byte for byte in written if byte > 127][:10]
    if kind not in ("c-locale", "linux"):
        assert not COLOURS.search(written.decode(errors="replace"))
    assert "\u202e" not in written.decode(errors="replace")
    assert b"\x1b]52" not in written
    terminal.type("q")
    async with asyncio.timeout(60):
        assert await terminal.process.wait() == 0
    assert "Traceback" not in terminal.text


@pytest.mark.slow
async def test_a_tiny_terminal_shows_the_verdict_alone(server: ControlServer, open_terminal: Open, made: Any) -> None:
    server.publish_snapshot(made.outage())
    terminal = await open_terminal(size=(20, 5))
    await terminal.until(lambda text: "OUTAGE" in text)
    await terminal.quiet()
    for keys in ("F", "\r", "x", "\x1b", "3", "\r", "\x1b", "!", "\x1b", "1"):
        terminal.type(keys)
        await terminal.quiet()
    assert terminal.process.returncode is None
    server.publish_snapshot(made.outage())  # by now the engine is silent
    async with asyncio.timeout(60):
        while "OUTAGE" not in _made_of(bytes(terminal.written), 20, 5):
            await terminal.more()
    terminal.type("q")
    async with asyncio.timeout(60):
        assert await terminal.process.wait() == 0
    assert "Traceback" not in terminal.text


# -- When the terminal's bell rings, and when it does not.


LIVE = View(pairing="orders", link=EngineLink.LIVE)


def test_an_entity_that_leaves_the_primary_or_comes_back_rings(made: Any) -> None:
    well = apply_news(LIVE, made.snapshot())
    over = apply_news(well, made.outage())
    assert should_ring(well, over)
    assert should_ring(over, apply_news(over, made.snapshot()))
    assert not should_ring(over, apply_news(over, made.outage(seq=99)))


def test_a_suspicion_does_not_ring(made: Any) -> None:
    well = apply_news(LIVE, made.snapshot())
    assert not should_ring(well, apply_news(well, made.snapshot(made.entity("orders", State.SUSPECT))))


def test_an_alarm_rings_when_it_begins_and_when_it_is_over(made: Any) -> None:
    well = apply_news(LIVE, made.snapshot())
    alarmed = apply_news(well, made.snapshot(troubles=remarks("3 messages stay")))
    assert should_ring(well, alarmed)
    assert not should_ring(alarmed, apply_news(alarmed, made.snapshot(troubles=remarks("4 messages stay"))))
    assert should_ring(alarmed, apply_news(alarmed, made.snapshot()))


def test_a_lost_engine_rings_once(made: Any) -> None:
    well = apply_news(LIVE, made.snapshot())
    lost = apply_news(well, Unreachable(1.0, "it went"))
    assert should_ring(well, lost)
    assert should_ring(apply_news(well, Silent(1.0)), lost)
    assert not should_ring(lost, apply_news(lost, Unreachable(1.0, "still")))
    assert not should_ring(LIVE, replace(LIVE, link=EngineLink.CONNECTING))


def test_what_was_there_at_first_sight_does_not_ring(made: Any) -> None:
    assert not should_ring(
        LIVE, apply_news(apply_news(LIVE, Records(made.records())), made.outage(troubles=remarks("a")))
    )


@pytest.mark.parametrize("bell", [True, False])
async def test_it_can_be_silenced(open_console: Any, made: Any, bell: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[bool] = []
    async with open_console(made.snapshot(), bell=bell) as console:
        monkeypatch.setattr(console.app, "bell", lambda: rung.append(True))
        await console.told(made.outage())
        await console.told(made.outage(seq=13))
    assert len(rung) == bell


# -- The terminal's title and notifications: what they say, where they go, and that no name breaks out of them.


@given(st.text() | st.sampled_from(["\x07\x1b]52;c;ZXZpbA==\x07", "\x1b\\\x9c\x9d2;x", "\u202egnp.x", "x" * 500]))
def test_no_text_breaks_out_of_its_sequence(text: str) -> None:
    notified = notification_sequence(f"paired {text}", text, once=False).split("\x07")
    assert notified.pop() == ""
    titled = title_sequence(text).removesuffix("\x07")
    starts = ("\x1b]2;", "\x1b]9;", "\x1b]777;notify;")
    for sequence, start in zip((titled, *notified), starts, strict=True):
        assert sequence.startswith(start)
        inside = sequence.removeprefix(start)
        assert inside.isprintable()
        assert len(inside) <= 241
    assert notified[-1].split(";")[2].startswith("paired "), "the title ends at the first semicolon, and none is in it"


def test_a_terminal_that_knows_both_sequences_gets_one() -> None:
    assert notification_sequence("paired a;b", "down", once=True) == "\x1b]9;paired a;b: down\x07"
    both = "\x1b]9;paired a;b: down\x07\x1b]777;notify;paired a,b;down\x07"
    assert notification_sequence("paired a;b", "down", once=False) == both
    utf8 = {"LANG": "C.UTF-8"}
    assert profile_for({"TERM": "xterm-kitty", **utf8}).notifies_once
    assert profile_for({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm", **utf8}).notifies_once
    assert not profile_for({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app", **utf8}).notifies_once


def test_the_title_counts_entities_in_trouble(made: Any) -> None:
    well = apply_news(LIVE, made.snapshot())
    assert window_title(well).endswith(" orders")
    assert not any(sign.isdigit() for sign in window_title(well))
    over = apply_news(well, made.snapshot(made.failed_over("payments"), made.entity("audit", State.SUSPECT)))
    assert window_title(over) == "▲2 orders"
    assert window_title(apply_news(over, Silent(1.0))) == "✗ orders"


@pytest.mark.parametrize("term", ["vt100", "dumb", "linux", ""])
def test_a_terminal_that_might_print_them_gets_none(term: str) -> None:
    assert not profile_for({"TERM": term, "LANG": "C.UTF-8"}).has_window
    assert profile_for({"TERM": "xterm-256color", "LANG": "C.UTF-8"}).has_window


@pytest.mark.parametrize(("options", "notified"), [({}, True), ({"notify": False}, False)])
async def test_what_rings_is_notified_too(
    open_console: Any, made: Any, options: dict[str, Any], notified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    async with open_console(made.snapshot(), **options) as console:
        monkeypatch.setattr(console.app, "_write_to_window", written.append)
        await console.told(made.outage())
        verdict = headline(console.app.view)
    said = [sequence for sequence in written if sequence.startswith("\x1b]9;")]
    sequences = f"\x1b]9;paired orders: {verdict}\x07\x1b]777;notify;paired orders;{verdict}\x07"
    assert said == ([sequences] if notified else [])
    assert [sequence for sequence in written if sequence.startswith("\x1b]2;")] == ["\x1b]2;▲1 orders\x07"]


async def test_the_plain_profile_has_no_window(open_console: Any, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    async with open_console(made.snapshot(), profile=PROFILES[ProfileName.PLAIN], theme="mono") as console:
        monkeypatch.setattr(console.app, "_write_to_window", written.append)
        await console.told(made.outage())
    assert written == []


# -- Pictures without a terminal.


def words(svg: str) -> str:
    return svg.replace("&#160;", " ")


@pytest.mark.parametrize("theme", ["dark", "light"])
async def test_a_picture_shows_snapshot_events_and_figures_over_time(made: Any, theme: str) -> None:
    svg = words(await draw_page(made.outage(), made.records(), size=(140, 40), theme=theme, graphs=graphs()))
    assert svg.startswith("<svg")
    for text in (
        "failed over: payments",
        "next ping in 52 s",
        "PRODUCTION",
        "not accepting",
        ">paired orders<",
        "in ms",
    ):
        assert text in svg


async def test_the_same_news_make_the_same_picture_and_no_text_in_it_starts_with_a_space(made: Any) -> None:
    first, second = [await draw_page(made.outage(), made.records(), size=(80, 24)) for _ in range(2)]
    assert first == second
    assert ">&#160;" not in first


async def test_an_unknown_theme_is_named(made: Any) -> None:
    with pytest.raises(ValueError, match="'neon'"):
        await draw_page(made.snapshot(), size=(80, 24), theme="neon")


@pytest.mark.parametrize(
    ("page", "words"),
    [(Page.PAIRING, NONE_YET), (Page.BACKLOG, "1,204"), (Page.COST, "operations"), (Page.HISTORY, "unknown")],
)
async def test_a_page_as_text(page: Page, words: str, made: Any) -> None:
    text = await draw_page(made.outage(), made.records(), page=page, size=(80, 24), as_text=True)
    assert words in text
    assert len(text.split("\n")) == 24
    assert max(map(len, text.split("\n"))) <= 80


@pytest.mark.parametrize("size", [(1, 1), (20, 5)])
async def test_a_size_too_small_for_the_dashboard_is_drawn(size: tuple[int, int], made: Any) -> None:
    text = await draw_page(made.outage(), page=Page.PAIRING, size=size, as_text=True)
    assert len(text.split("\n")) == size[1]
