"""Keys of a person's own: what of them is taken, what is left as it was, and that every screen shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.ui.commands.action_table import CONSOLE_ACTIONS, CONSOLE_BY_ID
from paired_servicebus.ui.screens.arm_dialog import ArmDialog
from paired_servicebus.ui.shell.preferences import load_preferences
from paired_servicebus.ui.state.keymap import Keymap, key_text, keymap_of, read_key


def own(**values: object) -> tuple[Keymap, tuple[str, ...]]:
    return keymap_of({name.replace("_", "-"): value for name, value in values.items()}, CONSOLE_ACTIONS)


def test_without_any_the_table_counts() -> None:
    keymap, wrong = own()
    assert wrong == ()
    assert [keymap.names(action) for action in CONSOLE_ACTIONS] == [action.keys for action in CONSOLE_ACTIONS]


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
    keymap, wrong = keymap_of(values, CONSOLE_ACTIONS)
    assert keymap == Keymap()
    assert len(wrong) == 1
    assert said in wrong[0]


def test_one_mistake_leaves_the_others_alone() -> None:
    keymap, wrong = own(force="U", pin="Z")
    assert keymap.names(CONSOLE_BY_ID["force"]) == ("F",)
    assert keymap.names(CONSOLE_BY_ID["pin"]) == ("Z",)
    assert len(wrong) == 1


def test_keys_can_be_exchanged() -> None:
    keymap, wrong = own(force="U", release="F")
    assert wrong == ()
    assert (keymap.label(CONSOLE_BY_ID["force"]), keymap.label(CONSOLE_BY_ID["release"])) == ("U", "F")


def test_a_double_that_comes_of_taking_another_back_is_found_too() -> None:
    keymap, wrong = own(force="U", release="I", pin="X", mark="X")
    assert keymap == Keymap()
    assert len(wrong) >= 2


def test_actions_that_share_a_key_go_together() -> None:
    keymap, wrong = keymap_of({"pause syphon": "Y"}, CONSOLE_ACTIONS)
    assert wrong == ()
    assert keymap.names(CONSOLE_BY_ID["pause-syphon"]) == keymap.names(CONSOLE_BY_ID["resume-syphon"]) == ("Y",)
    _, wrong = keymap_of({"pause syphon": "Y", "resume syphon": "Z"}, CONSOLE_ACTIONS)
    assert wrong == ("resume syphon shares its key with another action, which has a key of its own here",)


def test_a_persons_file_says_what_is_wrong_in_one_notice(tmp_path: Path) -> None:
    (tmp_path / "console.toml").write_text('bell = 3\n[keys]\n"force failover" = "X"\nnonsense = "x"\n')
    found = load_preferences(tmp_path)
    assert found.keys.own == {"force": "X"}
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
        await console.press("down", "f", "F")
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
