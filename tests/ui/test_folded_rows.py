"""The fold: while an entity needs attention, the quiet ones share a row that can be selected and unfolded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.ui.render.spans import LOOKS, QUIET
from paired_servicebus.ui.screens.arm_dialog import ArmDialog
from paired_servicebus.ui.state.row_order import FOLD, needs_eyes, table_rows
from paired_servicebus.ui.state.view import Page
from paired_servicebus.ui.widgets.entity_table import EntityTable
from tests import fleet_views

from .conftest import MadeUp
from .test_rows_and_marks import SIZES, named, table


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_quiet_ones_share_a_row_while_one_is_failed_over(
    open_console: Any, made: Any, size: tuple[int, int]
) -> None:
    async with open_console(made.snapshot(*named(made, 30, 7)), size=size) as console:
        rows = [row for row in table(console) if "queue-007" in row[:40] or "● 29 healthy" in row]
        assert len(rows) == 2, console.screen()
        assert "▲ queue-007" in rows[0]
        if size[0] >= 80:
            assert f"29 healthy · {29 * 96:,}" in rows[1]
            assert rows[1].rstrip().endswith("shows them")


@pytest.mark.parametrize("key", ["enter", "space"])
async def test_the_fold_is_selected_like_a_row_and_a_key_unfolds_it(open_console: Any, made: Any, key: str) -> None:
    async with open_console(made.snapshot(*named(made, 30, 7)), size=(140, 40)) as console:
        await console.press("down")
        assert console.app.view.on_fold
        assert any(row.startswith(" ▸● 29 healthy") for row in table(console)), console.screen()
        await console.press(key, "down", "down")
        assert console.app.view.selected == "queue-001"
        assert any("▸● queue-001" in row for row in table(console)), console.screen()
        await console.press("up", "up")
        assert "folds them" in console.screen()
        await console.press(key)
        assert "queue-001 " not in "".join(row[:20] for row in table(console))


async def test_what_is_unfolded_comes_into_sight(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(*named(made, 300, *range(0, 300, 50)))) as console:
        await console.press("end", "enter")
        assert [row[:12].strip() for row in table(console)[1:3]] == ["● queue-00"] * 2
        await console.press("up")
        assert any("▸▲ queue-250" in row for row in table(console))


async def test_escape_folds_again_and_the_selected_one_keeps_its_row(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(*named(made, 30, 7)), size=(140, 40)) as console:
        await console.press("down", "enter", "down", "down", "escape")
        rows = [row[:20].strip() for row in table(console) if "queue-" in row[:20]]
        assert rows == ["▲ queue-007", "▸● queue-001"]
        assert "● 28 healthy" in console.screen()


@pytest.mark.parametrize("key", ["F", "U"])
async def test_no_order_reaches_folded_entities_by_their_row(open_console: Any, made: Any, key: str) -> None:
    async with open_console(made.snapshot(*named(made, 30, 7)), size=(140, 40)) as console:
        await console.press("down", key)
        assert "no entity" in console.screen()
        assert not isinstance(console.app.screen, ArmDialog)
        assert console.feed.armed == []


async def test_marked_ones_keep_their_rows(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(*named(made, 30)), size=(140, 40)) as console:
        await console.press("down", "down", "space", "home")
        await console.told(made.snapshot(*named(made, 30, 0)))
        rows = [row[:20].strip() for row in table(console) if "queue-" in row[:20]]
        assert rows == ["▸▲ queue-000", "* ● queue-002"]
        await console.press("end", "a")
        assert not console.app.view.on_fold, "with every entity marked there is no fold"
        assert console.app.view.selected == "queue-000"


async def test_the_page_of_an_entity_shows_the_first_folded_one(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(*named(made, 30, 7)), size=(140, 40)) as console:
        await console.press("down", "2")
        assert console.app.view.selected == "queue-000"
        await console.press("down")
        assert console.app.view.selected == "queue-001", "that page goes through entities, not through the fold"


async def test_the_fold_leaves_when_all_are_well_and_an_entity_is_selected(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(*named(made, 30, 7)), size=(140, 40)) as console:
        await console.press("down")
        await console.told(made.snapshot(*named(made, 30)))
        assert not console.app.view.on_fold
        assert console.app.view.selected == "queue-000"
        assert "shows them" not in console.screen()


@pytest.mark.parametrize("keys", [("s",), ("slash", *"queue", "enter")], ids=["sorted", "filtered"])
async def test_a_list_that_the_operator_sorts_or_filters_has_every_row(
    open_console: Any, made: Any, keys: tuple[str, ...]
) -> None:
    async with open_console(made.snapshot(*named(made, 30, 7)), size=(140, 40)) as console:
        await console.press("down", *keys)
        assert "shows them" not in console.screen()
        assert console.app.view.selected, "an entity is selected again"


async def test_unknown_ones_are_counted_apart_from_healthy_ones(open_console: Any, made: Any) -> None:
    idle = [made.entity(f"idle-{place}", state=State.UNKNOWN, sends_per_second=0.0) for place in range(4)]
    async with open_console(made.snapshot(*named(made, 8, 7), *idle), size=(140, 40)) as console:
        assert f"{LOOKS[State.UNKNOWN].glyph} 4 unknown · ● 7 healthy" in console.screen()


async def test_a_healthy_entity_whose_sends_are_refused_is_not_folded(open_console: Any, made: Any) -> None:
    entities = named(made, 30, 7)
    entities[9] = made.entity("queue-009", refused_per_second=3.0)
    async with open_console(made.snapshot(*entities), size=(140, 40)) as console:
        assert "● 28 healthy" in console.screen()
        assert any("● queue-009" in row for row in table(console))


async def test_one_that_failed_over_in_another_engine_is_not_folded(open_console: Any, made: Any) -> None:
    entities = [made.entity("payments"), *named(made, 20)]
    async with open_console(made.snapshot(*entities, fleet=fleet_views.outage()), size=(140, 40)) as console:
        assert any("payments" in row[:20] for row in table(console)), console.screen()
        assert "● 20 healthy" in console.screen()


async def test_a_click_selects_the_fold_and_another_unfolds_it(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(*named(made, 30)), size=(140, 40)) as console:
        await console.told(made.snapshot(*named(made, 30, 7)))
        for wanted in (True, False):
            y = next(y for y, row in enumerate(table(console)) if "shows them" in row)
            await console.pilot.click(EntityTable, offset=(10, y))
            await console.pilot.pause()
            assert console.app.view.on_fold
            assert ("shows them" in console.screen()) is wanted, console.screen()


@pytest.mark.parametrize("key", ["2", "enter", "space", "up", "F"])
async def test_a_resize_that_ends_the_selected_fold_breaks_no_key(open_console: Any, made: Any, key: str) -> None:
    async with open_console(made.snapshot(*named(made, 10, 7)), size=(140, 40)) as console:
        await console.press("down")
        assert console.app.view.on_fold
        console.app.show(replace(console.app.view, quiet_rows=12))  # as with_size() of a high terminal
        assert not console.app.view.rows.quiet
        await console.press(key)
        assert "10 entities" in console.screen() or console.app.view.page is Page.ENTITY


async def test_twelve_quiet_ones_keep_their_rows_on_a_high_terminal(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(*named(made, 10, 7)), size=(200, 50)) as console:
        assert sum("queue-" in row[:20] for row in table(console)) == 10
        assert console.app.view.page is Page.PAIRING


STATES = st.lists(st.sampled_from(list(State)), max_size=24)


@given(STATES, st.sets(st.integers(0, 23)), st.booleans(), st.integers(0, 12))
def test_every_entity_has_a_row_or_is_in_the_fold(
    states: list[State], kept: set[int], is_open: bool, most: int
) -> None:
    entities = [MadeUp().entity(f"q{place}", state=state) for place, state in enumerate(states)]
    listed = sorted(entities, key=lambda one: one.state in QUIET)
    marked = {f"q{place}" for place in kept}
    rows = table_rows(listed, kept=marked, at_most=most, is_open=is_open, unwell=())
    hidden = () if rows.is_open else rows.quiet
    assert sorted(one.path for one in (*rows.entities, *hidden)) == sorted(one.path for one in entities)
    assert not any(needs_eyes(one) or one.path in marked for one in hidden)
    assert rows.names.count(FOLD) == bool(rows.quiet)
