"""Which rows are listed, marked and selected; and that rows keep their places when data come."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.ui.state import selection
from paired_servicebus.ui.state.row_order import SORTS
from paired_servicebus.ui.state.view import Page, View, apply_news


@pytest.fixture
def view(made: Any) -> View:
    return apply_news(View(pairing="orders"), made.backlog())


def paths(view: View) -> list[str]:
    return [entity.path for entity in view.listed]


@pytest.mark.parametrize(
    ("words", "listed"),
    [
        ("", ["payments", "orders", "audit"]),
        ("PAY", ["payments"]),
        ("healthy", ["orders", "audit"]),
        ("healthy or", ["orders"]),
        ("!healthy", ["payments"]),
        ("!healthy !failed", []),
        ("!", []),
    ],
)
def test_a_filter_is_words_that_a_row_has_or_has_not(view: View, words: str, listed: list[str]) -> None:
    assert paths(selection.apply_filter(view, words)) == listed


def test_the_selection_stays_if_it_is_still_listed(view: View) -> None:
    at_audit = selection.move_selection(view, 9)
    assert selection.apply_filter(at_audit, "audit").selected == "audit"
    assert selection.apply_filter(at_audit, "orders").selected == "orders"
    assert selection.apply_filter(at_audit, "nothing").selected == ""


def test_news_keep_filter_and_marks_but_not_the_mark_of_what_is_gone(view: View, made: Any) -> None:
    chosen = replace(selection.apply_filter(view, "healthy"), marks=frozenset({"orders", "audit"}))
    after = apply_news(chosen, made.snapshot(made.entity("audit"), made.failed_over("payments")))
    assert (after.marks, after.filter, paths(after)) == ({"audit"}, "healthy", ["audit"])


def test_marking_goes_on_to_the_next_row_and_unmarks_what_is_marked(view: View) -> None:
    marked = selection.mark(selection.mark(view))
    assert (marked.marked, marked.selected) == (("payments", "orders"), "audit")
    assert selection.mark(selection.move_selection(marked, -1)).marked == ("payments",)
    assert selection.unmark_all(marked).marked == ()


def test_what_is_marked_and_not_listed_is_no_target(view: View) -> None:
    """What a command would do must be in sight."""
    marked = selection.mark(selection.mark(view))
    assert selection.apply_filter(marked, "pay").marked == ("payments",)


def test_worst_first_is_live_and_the_selection_follows_its_entity(view: View, made: Any) -> None:
    assert (view.sort, paths(view)) == ("worst first", ["payments", "orders", "audit"])
    at_audit = selection.move_selection(view, 2)
    worse = apply_news(
        at_audit, made.snapshot(made.entity("orders"), made.entity("payments"), made.failed_over("audit"))
    )
    assert paths(worse) == ["audit", "orders", "payments"]
    assert worse.selected == "audit"


def test_an_entity_whose_sends_are_refused_comes_before_one_that_failed_over(view: View, made: Any) -> None:
    lost = made.entity("orders", State.SUSPECT, refused_per_second=2.0)
    assert paths(apply_news(view, made.snapshot(made.failed_over("payments"), lost))) == ["orders", "payments"]


def test_an_order_by_rates_is_of_its_moment(view: View, made: Any) -> None:
    """Rates move every second, and rows under a finger must not."""
    busiest = selection.next_sort_order(selection.next_sort_order(view))
    assert (busiest.sort, paths(busiest)) == ("busiest first", ["orders", "audit", "payments"])
    entities = (made.entity("audit", sends_per_second=999.0), made.entity("orders"), made.entity("new"))
    later = apply_news(busiest, made.snapshot(*entities, at=made.AT + 9))
    assert paths(later) == ["orders", "audit", "new"], "no row moves; a new one comes last"
    assert later.sorted_at == made.AT


def test_every_way_of_sorting_comes_round_again(view: View) -> None:
    again = view
    for _ in SORTS:
        again = selection.next_sort_order(again)
    assert (again.sort, paths(again)) == (view.sort, paths(view))


def test_in_the_backlog_the_selection_goes_from_queues_in_use_to_unused_ones(view: View) -> None:
    here = selection.turn_to_page(view, Page.BACKLOG)
    assert (here.queue, here.on_unused) == ("0", False)
    last = selection.move_selection(here, 99)
    assert (last.unused, last.on_unused) == (view.snapshot.unused.queues[-1].path, True)  # type: ignore[union-attr]
    back = selection.move_selection(last, -2)
    assert (back.queue, back.on_unused) == ("9", False)
    assert selection.move_selection(back, -99).queue == "0"


def test_commands_are_for_the_marked_ones(view: View) -> None:
    from paired_servicebus.ui.commands.action_table import CONSOLE_BY_ID

    assert CONSOLE_BY_ID["force"].aim(view).targets == ("payments",)
    marked = selection.mark(selection.mark(view))
    assert CONSOLE_BY_ID["force"].aim(marked).targets == ("payments", "orders")
    assert marked.entity is not None
    assert marked.entity.state is State.HEALTHY
