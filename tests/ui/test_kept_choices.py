"""Theme, sort order and filter survive a restart; a damaged file or a read-only home costs a notice at most."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.ui.shell import kept_choices
from paired_servicebus.ui.shell.kept_choices import ChoiceKeeper
from paired_servicebus.ui.state.view import View


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "orders" / kept_choices.NAME


def opened(file: Path, usual: str = "dark", option: str | None = None) -> tuple[ChoiceKeeper, str]:
    keeper = ChoiceKeeper(file, pairing="orders")
    return keeper, keeper.theme(usual, option)


def test_what_was_chosen_is_there_after_a_restart(file: Path) -> None:
    keeper, theme = opened(file)
    assert (theme, keeper.notice()) == ("dark", "")
    assert keeper.take("light", View(pairing="orders", sort="name", filter="pay"))
    keeper.write()
    later, theme = opened(file)
    assert theme == "light"
    view = later.begin(View(pairing="orders"))
    assert (view.sort, view.filter) == ("name", "pay")
    assert later.notice().count("“pay” kept") == 1


def test_nothing_is_written_until_something_was_chosen(file: Path) -> None:
    keeper, theme = opened(file)
    assert not keeper.take(theme, View(pairing="orders"))
    assert not keeper.take("light", View(pairing="audit", filter="x")), "another pairing's choices are not kept"


@pytest.mark.parametrize(
    ("usual", "option", "expected"),
    [("dark", None, "light"), ("dark", "contrast", "contrast"), ("mono", None, "mono"), ("sixteen", None, "sixteen")],
)
def test_a_newer_wish_counts_more_than_the_kept_theme(
    file: Path, usual: str, option: str | None, expected: str
) -> None:
    """console.toml and the terminal, by another theme than at that time; and the command line, once."""
    keeper, _ = opened(file)
    keeper.take("light", View(pairing="orders"))
    keeper.write()
    again, theme = opened(file, usual, option)
    assert theme == expected
    assert not again.take(theme, View(pairing="orders")), "it starts as it is kept"


def test_the_usual_theme_is_not_kept(file: Path) -> None:
    keeper, _ = opened(file)
    keeper.take("light", View(pairing="orders"))
    keeper.write()
    again, _ = opened(file)
    assert again.take("dark", View(pairing="orders"))
    again.write()
    assert json.loads(file.read_bytes()) == {}


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"[]", b'{"sort": 3}', b"{" * 5000, b'{"theme": null}'], ids=repr
)
def test_a_damaged_file_is_reported_in_one_line_and_replaced(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    keeper, theme = opened(file)
    assert theme == "dark"
    assert keeper.begin(View(pairing="orders")) == View(pairing="orders")
    assert str(file) in keeper.notice()
    assert "\n" not in keeper.notice()
    assert keeper.take("dark", View(pairing="orders", sort="name"))
    keeper.write()
    assert opened(file)[0].begin(View(pairing="orders")).sort == "name"


def test_values_of_another_version_are_ignored(file: Path) -> None:
    file.parent.mkdir()
    file.write_text('{"sort": "by colour", "filter": "a\\u001b[2Jb", "later": 1}')
    keeper, _ = opened(file)
    view = keeper.begin(View(pairing="orders"))
    assert view.sort == "worst first"
    assert "\x1b" not in view.filter
    assert not keeper.trouble


def test_a_folder_that_cannot_be_written_is_no_crash(tmp_path: Path) -> None:
    """The state folder's place is a file: as a read-only home, but for root too."""
    (tmp_path / "home").write_text("")
    keeper, _ = opened(tmp_path / "home" / "orders" / kept_choices.NAME)
    assert keeper.take("light", View(pairing="orders"))
    keeper.write()
    assert "not kept" in keeper.new_trouble()
    keeper.write()
    assert not keeper.new_trouble(), "it is reported once"


async def test_the_dashboard_keeps_them_while_it_runs(open_console: Any, made: Any, file: Path) -> None:
    """A lost SSH connection ends it without a last word."""
    keeper, theme = opened(file)
    async with open_console(made.snapshot(), keeper=keeper, theme=theme) as console:
        await console.press("s")
        console.app._tick()
        await console.app.workers.wait_for_complete(
            [worker for worker in console.app.workers if worker.group == "keeping"]
        )
        assert json.loads(file.read_bytes()) == {"sort": "name"}
    later, theme = opened(file)
    async with open_console(made.snapshot(), keeper=later, theme=theme) as console:
        assert "3 entities, name" in console.screen()


async def test_a_frozen_order_is_frozen_again_by_the_first_figures(open_console: Any, made: Any, file: Path) -> None:
    keeper, theme = opened(file)
    keeper.take("dark", View(pairing="orders", sort="busiest first"))
    busy = made.snapshot(made.entity("a", sends_per_second=1.0), made.entity("b", sends_per_second=9.0))
    async with open_console(busy, keeper=keeper, theme=theme) as console:
        assert "of 14:02" in console.screen()
        assert [entity.path for entity in console.app.view.listed] == ["b", "a"]
