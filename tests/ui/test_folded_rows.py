"""The fold: while an entity needs attention, the quiet ones share a row that can be selected and unfolded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_fold import fold
from paired_servicebus.ui.render.spans import LOOKS, QUIET
from paired_servicebus.ui.screens.questions import ArmDialog
from paired_servicebus.ui.state.view import FOLD, Page, needs_eyes, table_rows
from paired_servicebus.ui.widgets.entity_table import EntityTable
from tests import fleet_views

from .plays import MADE, Play, fed, holds, lacks, listed, named, on, play, run, sees, table, tabled, told, viewed
from .test_rows_and_marks import SIZES

WIDE = {"size": (140, 40)}
ONE_OF_30 = MADE.snapshot(*named(30, 7))
REFUSED = [*named(9, 7), MADE.entity("queue-009", refused_per_second=3.0), *named(30)[10:]]
IDLE = [MADE.entity(f"idle-{place}", state=State.UNKNOWN, sends_per_second=0.0) for place in range(4)]
FOLDED = "shows them"

PLAYS: dict[str, Play] = {
    "what is unfolded comes into sight": play(
        MADE.snapshot(*named(300, *range(0, 300, 50))), "end", "enter",
        holds(lambda console: [row[:12].strip() for row in table(console)[1:3]] == ["● queue-00"] * 2), "up",
        tabled("▸▲ queue-250"),
    ),
    "escape folds again and the selected one keeps its row": play(
        ONE_OF_30, "down", "enter", "down", "down", "escape", listed("▲ queue-007", "▸● queue-001"),
        sees("● 28 healthy"), **WIDE,
    ),
    "marked ones keep their rows, and with every entity marked there is no fold": play(
        MADE.snapshot(*named(30)), "down", "down", "space", "home", told(MADE.snapshot(*named(30, 0))),
        listed("▸▲ queue-000", "* ● queue-002"), "end", "a", viewed(on_fold=False, selected="queue-000"), **WIDE,
    ),
    "the page of an entity shows the first folded one, and goes through entities": play(
        ONE_OF_30, "down", "2", viewed(selected="queue-000"), "down", viewed(selected="queue-001"), **WIDE
    ),
    "the fold leaves when all are well and an entity is selected": play(
        ONE_OF_30, "down", told(MADE.snapshot(*named(30))), viewed(on_fold=False, selected="queue-000"), lacks(FOLDED),
        **WIDE,
    ),
    "a list that the operator sorts has every row": play(
        ONE_OF_30, "down", "s", lacks(FOLDED), holds(lambda console: console.app.view.selected), **WIDE
    ),
    "a list that the operator filters has every row": play(
        ONE_OF_30, "down", "slash", *"queue", "enter", lacks(FOLDED), holds(lambda console: console.app.view.selected),
        **WIDE,
    ),
    "unknown ones are counted apart from healthy ones": play(
        MADE.snapshot(*named(8, 7), *IDLE), sees(f"{LOOKS[State.UNKNOWN].glyph} 4 unknown · ● 7 healthy"), **WIDE
    ),
    "a healthy entity whose sends are refused is not folded": play(
        MADE.snapshot(*REFUSED), sees("● 28 healthy"), tabled("● queue-009"), **WIDE
    ),
    "one that failed over in another engine is not folded": play(
        MADE.snapshot(MADE.entity("payments"), *named(20), fleet=fleet_views.outage()), tabled("payments"),
        sees("● 22 healthy"), **WIDE,
    ),
    "twelve quiet ones keep their rows on a high terminal": play(
        MADE.snapshot(*named(10, 7)), holds(lambda console: sum("queue-" in row[:20] for row in table(console)) == 10),
        viewed(page=Page.PAIRING), size=(200, 50),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAYS)
async def test_quiet_entities_share_a_row(open_console: Any, name: str) -> None:
    await run(open_console, PLAYS[name])


@pytest.mark.parametrize("key", ["F", "U"])
async def test_no_order_reaches_folded_entities_by_their_row(open_console: Any, key: str) -> None:
    steps = "down", key, sees("no entity"), on(ArmDialog, is_there=False), fed(armed=[])
    await run(open_console, play(ONE_OF_30, *steps, **WIDE))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_quiet_ones_share_a_row_while_one_is_failed_over(
    open_console: Any, made: Any, size: tuple[int, int]
) -> None:
    async with open_console(made.snapshot(*named(30, 7)), size=size) as console:
        rows = [row for row in table(console) if "queue-007" in row[:40] or "● 29 healthy" in row]
        assert len(rows) == 2, console.screen()
        assert "▲ queue-007" in rows[0]
        if size[0] >= 80:
            assert f"29 healthy · {29 * 96:,}" in rows[1]
            assert rows[1].rstrip().endswith("shows them")


@pytest.mark.parametrize("key", ["enter", "space"])
async def test_the_fold_is_selected_like_a_row_and_a_key_unfolds_it(open_console: Any, made: Any, key: str) -> None:
    async with open_console(made.snapshot(*named(30, 7)), size=(140, 40)) as console:
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


async def test_a_click_selects_the_fold_and_another_unfolds_it(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(*named(30)), size=(140, 40)) as console:
        await console.told(made.snapshot(*named(30, 7)))
        for wanted in (True, False):
            y = next(y for y, row in enumerate(table(console)) if "shows them" in row)
            await console.pilot.click(EntityTable, offset=(10, y))
            await console.pilot.pause()
            assert console.app.view.on_fold
            assert ("shows them" in console.screen()) is wanted, console.screen()


@pytest.mark.parametrize("key", ["2", "enter", "space", "up", "F"])
async def test_a_resize_that_ends_the_selected_fold_breaks_no_key(open_console: Any, made: Any, key: str) -> None:
    async with open_console(made.snapshot(*named(10, 7)), size=(140, 40)) as console:
        await console.press("down")
        assert console.app.view.on_fold
        console.app.show(replace(console.app.view, quiet_rows=12))  # as with_size() of a high terminal
        assert not console.app.view.rows.quiet
        await console.press(key)
        assert "10 entities" in console.screen() or console.app.view.page is Page.ENTITY


STATES = st.lists(st.sampled_from(list(State)), max_size=24)


@given(STATES, st.sets(st.integers(0, 23)), st.booleans(), st.integers(0, 12))
def test_every_entity_has_a_row_or_is_in_the_fold(
    states: list[State], kept: set[int], is_open: bool, most: int
) -> None:
    entities = [MADE.entity(f"q{place}", state=state) for place, state in enumerate(states)]
    listed = sorted(fold(entities, None, 0.0).entities, key=lambda one: one.state in QUIET)
    marked = {f"q{place}" for place in kept}
    rows = table_rows(listed, kept=marked, at_most=most, is_open=is_open)
    hidden = () if rows.is_open else rows.quiet
    assert sorted(one.path for one in (*rows.entities, *hidden)) == sorted(one.path for one in entities)
    assert not any(needs_eyes(one) or one.path in marked for one in hidden)
    assert rows.names.count(FOLD) == bool(rows.quiet)
