"""Which rows are listed, marked and selected; and that rows keep their places when data come."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from console.core.entity import State
from console.ui import choices
from console.ui.view import Page, View, told


@pytest.fixture
def view(made: Any) -> View:
    return told(View(pairing="orders"), made.backlog())


def paths(view: View) -> list[str]:
    return [entity.path for entity in view.listed]


@pytest.mark.parametrize(
    ("words", "listed"),
    [
        ("", ["orders", "payments", "audit"]),
        ("PAY", ["payments"]),
        ("healthy", ["orders", "audit"]),
        ("healthy or", ["orders"]),
        ("!healthy", ["payments"]),
        ("!healthy !failed", []),
        ("!", []),
    ],
)
def test_a_filter_is_words_that_a_row_has_or_has_not(view: View, words: str, listed: list[str]) -> None:
    assert paths(choices.filtered(view, words)) == listed


def test_the_selection_stays_if_it_is_still_listed(view: View) -> None:
    at_audit = choices.moved(view, 9)
    assert choices.filtered(at_audit, "audit").selected == "audit"
    assert choices.filtered(at_audit, "orders").selected == "orders"
    assert choices.filtered(at_audit, "nothing").selected == ""


def test_news_keep_filter_and_marks_but_not_the_mark_of_what_is_gone(view: View, made: Any) -> None:
    chosen = replace(choices.filtered(view, "healthy"), marks=frozenset({"orders", "audit"}))
    after = told(chosen, made.snapshot(made.entity("audit"), made.failed_over("payments")))
    assert (after.marks, after.filter, paths(after)) == ({"audit"}, "healthy", ["audit"])


def test_marking_goes_on_to_the_next_row_and_unmarks_what_is_marked(view: View) -> None:
    marked = choices.marked(choices.marked(view))
    assert (marked.marked, marked.selected) == (("orders", "payments"), "audit")
    assert choices.marked(choices.moved(marked, -1)).marked == ("orders",)
    assert choices.unmarked(marked).marked == ()


def test_what_is_marked_and_not_listed_is_no_target(view: View) -> None:
    """What a command would do must be in sight."""
    marked = choices.marked(choices.marked(view))
    assert choices.filtered(marked, "pay").marked == ("payments",)


def test_sorting_takes_the_order_of_its_moment(view: View, made: Any) -> None:
    worst = choices.sorted_next(view)
    assert (worst.sort, paths(worst)) == ("worst first", ["payments", "orders", "audit"])
    healed = told(worst, made.snapshot(made.entity("orders"), made.entity("payments"), made.entity("new")))
    assert paths(healed) == ["payments", "orders", "new"], "no row moves; a new one comes last"


def test_the_last_way_of_sorting_is_the_engines_own(view: View) -> None:
    again = view
    for _ in choices.SORTS:
        again = choices.sorted_next(again)
    assert (again.sort, paths(again)) == ("", paths(view))


def test_in_the_backlog_the_selection_goes_from_queues_in_use_to_unused_ones(view: View) -> None:
    here = choices.turned_to(view, Page.BACKLOG)
    assert (here.queue, here.on_unused) == ("0", False)
    last = choices.moved(here, 99)
    assert (last.unused, last.on_unused) == (view.snapshot.unused.queues[-1].path, True)  # type: ignore[union-attr]
    back = choices.moved(last, -2)
    assert (back.queue, back.on_unused) == ("9", False)
    assert choices.moved(back, -99).queue == "0"


def test_commands_are_for_the_marked_ones(view: View) -> None:
    from console.ui.actions import BY_ID

    assert BY_ID["force"].aim(view).targets == ("orders",)
    marked = choices.marked(choices.marked(view))
    assert BY_ID["force"].aim(marked).targets == ("orders", "payments")
    assert marked.entity is not None
    assert marked.entity.state is State.HEALTHY
