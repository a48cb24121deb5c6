"""Keys of a person's own: what of them is taken, what is left as it was, and that every screen shows them."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest
from textual import events

from paired_servicebus.core.operator.actions import ACTIONS
from paired_servicebus.ui.commands.action_table import CONSOLE_ACTIONS, CONSOLE_BY_ID, key_text, own_keys, read_key
from paired_servicebus.ui.display.terminal_driver import EscapeParser, TerminalDriver
from paired_servicebus.ui.screens.questions import ArmDialog, Prompt
from paired_servicebus.ui.shell.preferences import load_preferences
from paired_servicebus.ui.state.view import OwnKeys, Page


def own(**values: object) -> tuple[OwnKeys, tuple[str, ...]]:
    return own_keys({name.replace("_", "-"): value for name, value in values.items()}, CONSOLE_ACTIONS)


def test_without_any_the_table_counts() -> None:
    keymap, wrong = own()
    assert wrong == ()
    assert [action.names(keymap) for action in CONSOLE_ACTIONS] == [action.keys for action in CONSOLE_ACTIONS]


@pytest.mark.parametrize(
    ("text", "name", "shown"),
    [
        ("F", "F", "F"),
        ("ctrl+g", "ctrl+g", "^g"),
        ("f5", "f5", "f5"),
        ("?", "question_mark", "?"),
        ("slash", "slash", "/"),
        ("pagedown", "pagedown", "PgDn"),
    ],
)
def test_keys_are_written_as_people_write_them(text: str, name: str, shown: str) -> None:
    assert read_key(text) == name
    assert key_text(name) == shown


@pytest.mark.parametrize("text", ["", "FF", "f13", "ctrl+F", "ctrl+alt+x", "\x1b", "漢", 7, None])
def test_what_is_no_key_is_none(text: object) -> None:
    assert read_key(text) == ""


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"forse": "F"}, "unknown action forse; did you mean force"),
        ({"force": "FF"}, "force: 'FF' is not a key"),
        ({"force": 3}, "force: 3 is not a key"),
        ({"help": "ctrl+c"}, "help: ctrl+c is reserved"),
        ({"help": "escape"}, "help: escape is reserved"),
        ({"help": "enter"}, "help: enter is reserved"),
        ({"force": "f"}, "force changes the system, so that only a capital letter can be its key, not f"),
        ({"force": "f5"}, "only a capital letter can be its key, not f5"),
        ({"release": "ctrl+b"}, "only a capital letter can be its key, not ctrl+b"),
        ({"force": "U"}, "U would be the key of force failover and release"),
        ({"help": "j"}, "j would be the key of next and help"),
        ({"force": "X", "pin": "X"}, "X would be the key of force failover and pin"),
    ],
)
def test_what_cannot_be_used_stays_as_it_was(values: dict[str, object], said: str) -> None:
    keymap, wrong = own_keys(values, CONSOLE_ACTIONS)
    assert keymap == {}
    assert len(wrong) == 1
    assert said in wrong[0]


def test_one_mistake_leaves_the_others_alone() -> None:
    keymap, wrong = own(force="U", pin="Z")
    assert CONSOLE_BY_ID["force"].names(keymap) == ("F",)
    assert CONSOLE_BY_ID["pin"].names(keymap) == ("Z",)
    assert len(wrong) == 1


def test_keys_can_be_exchanged() -> None:
    keymap, wrong = own(force="U", release="F")
    assert wrong == ()
    assert (CONSOLE_BY_ID["force"].key(keymap), CONSOLE_BY_ID["release"].key(keymap)) == ("U", "F")


def test_a_double_that_comes_of_taking_another_back_is_found_too() -> None:
    keymap, wrong = own(force="U", release="I", pin="X", mark="X")
    assert keymap == {}
    assert len(wrong) >= 2


def test_actions_that_share_a_key_go_together() -> None:
    keymap, wrong = own_keys({"pause syphon": "Y"}, CONSOLE_ACTIONS)
    assert wrong == ()
    assert CONSOLE_BY_ID["pause-syphon"].names(keymap) == CONSOLE_BY_ID["resume-syphon"].names(keymap) == ("Y",)
    _, wrong = own_keys({"pause syphon": "Y", "resume syphon": "Z"}, CONSOLE_ACTIONS)
    assert wrong == ("resume syphon shares its key with another action, which has a key of its own here",)


def test_a_persons_file_says_what_is_wrong_in_one_notice(tmp_path: Path) -> None:
    (tmp_path / "console.toml").write_text('bell = 3\n[keys]\n"force failover" = "X"\nnonsense = "x"\n')
    found = load_preferences(tmp_path)
    assert found.keys == {"force": "X"}
    assert "action nonsense" in found.notice
    (tmp_path / "console.toml").write_text('keys = "vi"\n')
    assert "a section" in load_preferences(tmp_path).notice


async def test_key_line_help_palette_and_question_show_the_new_key(open_console: Any, outage_news: Any) -> None:
    keymap, _ = own(force="X", release="B", quit="Q", help="f1")
    async with open_console(*outage_news, keys=keymap) as console:
        assert "X force" in console.rows()[-1]
        assert "B release" in console.rows()[-1]
        assert "Q quit" in console.rows()[-1]
        await console.press("ctrl+c")
        assert "Q quits" in console.screen()
        await console.press("down", "F")
        assert not isinstance(console.app.screen, ArmDialog), "the old key does nothing any more"
        await console.press("X")
        assert isinstance(console.app.screen, ArmDialog)
        assert "key B" in console.screen()
        await console.press("escape", "f1")
        assert "X     force" in console.screen()
        await console.press("escape", "colon")
        await console.pilot.pause(0.2)
        assert "│ X      force" in console.screen()
        await console.press("escape", "q")
        assert console.app.return_value is None
        await console.press("Q")
    assert console.app.return_value == 0


# -- Keys typed ahead go to the page or line that the key before them opened.


def type_at_once(app: Any, text: str) -> None:
    for character in text:
        app.post_message(events.Key("slash" if character == "/" else character, character))


async def test_what_comes_with_the_key_that_opens_a_line_is_typed_into_it(open_console: Any, made: Any) -> None:
    """Each of f, p and q would do something on the page behind."""
    async with open_console(made.snapshot()) as console:
        type_at_once(console.app, "/fpq/")
        await console.pilot.pause()
        assert isinstance(console.app.screen, Prompt)
        await console.press("x")
        assert console.app.view.filter == "fpq/x"
        assert console.feed.armed == []
        assert console.feed.orders == []


async def test_what_is_pasted_is_no_key(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        before = console.app.view
        console.app.post_message(events.Paste("p/q\nf5"))
        await console.pilot.pause()
        assert console.app.view == before
        assert console.feed.orders == []
        await console.press("slash")
        console.app.post_message(events.Paste("orders/audit"))
        await console.pilot.pause()
        assert console.app.view.filter == "orders/audit"


# -- Contract of Textual's parser of keys, and what is read differently here.


def keys(text: str) -> list[str]:
    parser = EscapeParser()
    return [event.key for event in (*parser.feed(text), *parser.feed("")) if isinstance(event, events.Key)]


@pytest.mark.parametrize(
    ("second", "key"),
    [("/", "slash"), ("1", "1"), ("j", "j"), ("F", "F"), (" ", "space"), ("\r", "enter"), ("?", "question_mark"),
     (":", "colon"), ("=", "equals_sign"), ("é", "é")],
)  # fmt: skip
def test_escape_and_the_next_key_are_both_keys(second: str, key: str) -> None:
    assert keys(f"\x1b{second}") == ["escape", key]


def test_escape_twice_is_two_keys() -> None:
    assert keys("\x1b\x1b") == ["escape", "escape"]


@pytest.mark.parametrize(
    ("text", "key"),
    [("\x1b", "escape"), ("\x1b[A", "up"), ("\x1bOP", "f1"), ("\x1b[6~", "pagedown"), ("\x1b[1;3D", "alt+left"),
     ("\x1bf", "ctrl+right"), ("\x1b\x7f", "ctrl+w"), ("1", "1")],
)  # fmt: skip
def test_the_sequence_of_a_key_is_that_key(text: str, key: str) -> None:
    assert keys(text) == [key]


async def test_the_terminals_driver_reads_keys_so(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        assert console.app.get_driver_class() is TerminalDriver


async def test_a_key_right_after_escape_goes_to_the_page_behind_the_line(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        await console.press("slash", "x")
        assert isinstance(console.app.screen, Prompt)
        for event in EscapeParser().feed("\x1b3"):
            console.app.post_message(event)
        await console.pilot.pause()
        assert console.app.view.filter == ""
        assert console.app.view.page is Page.BACKLOG


# -- Only capital letters and the menu change anything: every other key is pressed on every page, and nothing is
# asked.


LOOKING = sorted(
    {*string.ascii_lowercase, *string.digits, *(key for action in CONSOLE_ACTIONS for key in action.keys)}
    - set(string.ascii_uppercase)
    - {"q"}
)


def test_every_order_has_a_capital_letter() -> None:
    assert all(action.key in string.ascii_uppercase for action in ACTIONS)


def test_no_other_key_is_that_of_an_order() -> None:
    assert not [action.id for action in CONSOLE_ACTIONS if action.changes and set(action.keys) & set(LOOKING)]


@pytest.mark.slow
@pytest.mark.parametrize("page", Page)
async def test_no_other_key_orders_or_asks_anything(open_console: Any, made: Any, page: Page) -> None:
    async with open_console(made.backlog()) as console:
        for key in LOOKING:
            await console.pilot.press(str(list(Page).index(page) + 1), key, "escape", "escape")
        await console.press("1")
        assert console.feed.orders == []
        assert console.feed.armed == []


async def test_the_keys_of_less_move_in_a_list(open_console: Any, made: Any) -> None:
    entities = tuple(made.entity(f"e-{number:02}") for number in range(40))
    async with open_console(made.snapshot(*entities)) as console:
        for key, place in (("G", 39), ("g", 0), ("ctrl+f", 12), ("ctrl+d", 18), ("ctrl+u", 12), ("ctrl+b", 0)):
            await console.press(key)
            listed = [entity.path for entity in console.app.view.listed]
            assert listed.index(console.app.view.selected) == place, key
