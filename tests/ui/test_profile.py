"""How much a terminal is asked to show, by its variables, a person's file and a flag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.ui.display.profile import PROFILES, ProfileName, profile_for
from paired_servicebus.ui.display.terminal_app import ASCII_SIGNS, to_ascii
from paired_servicebus.ui.shell.preferences import Preferences, load_preferences
from paired_servicebus.ui.state.view import Records
from tests import graph_views

PLAIN = PROFILES[ProfileName.PLAIN]
SLOW = PROFILES[ProfileName.SLOW]


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"TERM": "xterm-256color", "LANG": "en_US.UTF-8"}, "full"),
        ({"TERM": "xterm-256color"}, "full"),
        ({"TERM": "linux", "LANG": "C.utf8"}, "full"),
        ({"TERM": "xterm-256color", "LANG": "C"}, "plain"),
        ({"TERM": "xterm-256color", "LANG": "en_US.UTF-8", "LC_ALL": "POSIX"}, "plain"),
        ({"TERM": "vt100", "LANG": "en_US.UTF-8"}, "plain"),
        ({"TERM": "dumb"}, "plain"),
        ({}, "plain"),
    ],
)
def test_the_terminals_variables_choose(environ: dict[str, str], name: str) -> None:
    assert profile_for(environ).name == name


def test_every_sign_has_one_of_ascii() -> None:
    assert all(len(sign) == len(letter) == 1 and letter.isascii() for sign, letter in ASCII_SIGNS.items())


def test_other_alphabets_keep_their_width() -> None:
    assert to_ascii("▲ żółw 漢字 ok") == "X ???w ???? ok"


async def test_plain_is_ascii_without_colours(open_console: Any, outage_news: Any) -> None:
    async with open_console(*outage_news, size=(140, 40), profile=PLAIN) as console:
        assert console.screen().isascii()
        assert "X payments" in console.screen()
        styles = [segment.style for strip in console.app.screen._compositor.render_strips() for segment in strip]
        assert all(style is None or (style.color is None and style.bgcolor is None) for style in styles)
        await console.press("question_mark")
        assert console.screen().isascii()


async def test_a_kernels_console_gets_ascii_with_colours(open_console: Any, outage_news: Any) -> None:
    profile = profile_for({"TERM": "linux", "LANG": "C.utf8"})
    async with open_console(*outage_news, size=(140, 40), profile=profile) as console:
        assert console.screen().isascii()
        styles = [segment.style for strip in console.app.screen._compositor.render_strips() for segment in strip]
        assert any(style is not None and style.color is not None for style in styles)


@pytest.mark.parametrize("size", [(1, 1), (20, 5), (60, 20)])
async def test_a_small_plain_terminal_is_drawn(open_console: Any, outage_news: Any, size: tuple[int, int]) -> None:
    async with open_console(*outage_news, size=size, profile=PLAIN) as console:
        assert console.screen().isascii()
        await console.press("2", "3", "6", "question_mark", "escape")
        assert console.screen().isascii()


async def test_a_tick_while_the_screens_are_taken_down_is_let_go(open_console: Any, outage_news: Any) -> None:
    async with open_console(*outage_news) as console:
        await console.press("question_mark")
        app, screen = console.app, console.app.screen
        taken_down = app._close_messages

        async def tick_late() -> None:
            app._screen_stacks["_default"].append(screen)
            app._tick()
            app._screen_stacks["_default"].clear()
            await taken_down()

        app._close_messages = tick_late
        painted = app.view
    assert app.view is painted


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_slow_lets_figures_wait_and_nothing_else(open_console: Any, made: Any) -> None:
    clock = Clock()
    async with open_console(made.snapshot(), profile=SLOW, monotonic=clock) as console:
        assert "healthy" in console.screen()
        rest = (made.entity("payments"), made.entity("audit"))
        clock.now += 1
        faster = made.entity("orders", sends_per_second=413.0)
        await console.told(made.snapshot(faster, *rest))
        assert "413" not in console.screen()
        clock.now += 1
        await console.told(made.snapshot(faster, made.failed_over("payments"), rest[1]))
        assert "failed over" in console.screen()
        assert "413" in console.screen()
        clock.now += 4.9
        faster = made.entity("orders", sends_per_second=414.0)
        await console.told(made.snapshot(faster, made.failed_over("payments"), rest[1]))
        assert "414" not in console.screen()
        clock.now += 0.1
        faster = made.entity("orders", sends_per_second=415.0)
        await console.told(made.snapshot(faster, made.failed_over("payments"), rest[1]))
        assert "415" in console.screen()


async def test_slow_lets_pings_wait_that_are_folded_onto_the_newest_event(open_console: Any, made: Any) -> None:
    clock, ping = Clock(), made.records()[-1]
    async with open_console(Records(made.records()[:2]), made.outage(), profile=SLOW, monotonic=clock) as console:
        assert "ping ✗" not in console.screen()
        clock.now += 1
        await console.told(Records((ping,)))
        assert "ping ✗" not in console.screen()
        clock.now += 5
        await console.told(made.outage())
        assert "ping ✗" in console.screen()


async def test_slow_draws_lines_and_bars_of_one_byte(open_console: Any, made: Any) -> None:
    """Section 12: "With the profile `slow` lines and bars are ASCII"."""
    async with open_console(made.backlog(), graph_views.graphs(), profile=SLOW, size=(140, 40)) as console:
        for key in ("1", "2", "3", "4", "5"):
            await console.press(key)
            assert not set("─│└┤█▓▒▁▂▃▄▅▆▇") & set(console.screen()), key
        await console.press("1")
        assert "-- " in console.screen()
        assert "▸" in console.screen()


async def test_slow_answers_keys_at_once(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(), profile=SLOW) as console:
        await console.press("down")
        assert "▸● payments" in console.screen()


def written(folder: Path, text: str) -> Preferences:
    (folder / "console.toml").write_text(text)
    return load_preferences(folder)


def test_no_file_is_no_preference(tmp_path: Path) -> None:
    assert load_preferences(tmp_path) == Preferences()


def test_a_persons_own_file(tmp_path: Path) -> None:
    found = written(tmp_path, 'theme = "light"\nprofile = "slow"\nmouse = false\nbell = false\n')
    assert found == Preferences(theme="light", profile=ProfileName.SLOW, mouse=False, bell=False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("theme = ", "cannot be read"),
        ("theme = 3", "theme is not a name"),
        ('profile = "fast"', "profile is not one of full, slow, plain"),
        ("mouse = 1", "mouse is neither true nor false"),
        ('bell = "loud"', "bell is neither true nor false"),
        ("mice = true", "unknown setting mice"),
    ],
)
def test_what_cannot_be_used_is_said_once_and_left_out(tmp_path: Path, text: str, said: str) -> None:
    found = written(tmp_path, text)
    assert said in found.notice
    assert "\n" not in found.notice
    assert found.theme is None
    assert found.profile is None
    assert found.mouse is None


async def test_the_notice_of_a_broken_file_is_shown(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(), notices=["console.toml: unknown setting mice"]) as console:
        assert "setting mice" in console.screen()


@pytest.mark.parametrize(
    "data",
    [b'theme = "\xff"', b"theme = " + b"[" * 100_000, b"theme = " + b"9" * 5000, b'"\\u001b[2J" = 1'],
    ids=["not UTF-8", "nested", "a huge number", "a key that clears the screen"],
)
def test_whatever_the_file_holds_costs_a_notice_that_can_be_shown(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "console.toml").write_bytes(data)
    found = load_preferences(tmp_path)
    assert (found.theme, found.profile) == (None, None)
    assert found.notice.startswith(str(tmp_path / "console.toml"))
    assert found.notice.isprintable()
