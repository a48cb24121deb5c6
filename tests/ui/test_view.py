"""News change the view, and nothing is shown before the engine says it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.ui.state import selection, view
from paired_servicebus.ui.state.view import EngineLink, Missed, Reached, Records, Silent, Unreachable, View

EMPTY = View(pairing="orders")


def test_reaching_the_engine_is_not_yet_news_of_it() -> None:
    assert view.apply_news(EMPTY, Reached()).link is EngineLink.CONNECTING


def test_a_snapshot_makes_it_live_and_selects_the_first_entity(made: Any) -> None:
    seen = view.apply_news(EMPTY, made.snapshot())
    assert seen.fresh
    assert seen.selected == "orders"


def test_a_lost_engine_keeps_the_last_figures_and_says_since_when(made: Any) -> None:
    lost = view.apply_news(view.apply_news(EMPTY, made.snapshot()), Unreachable(made.AT + 1, "gone"))
    assert (lost.link, lost.link_since, lost.link_reason) == (EngineLink.UNREACHABLE, made.AT + 1, "gone")
    assert lost.snapshot is not None
    assert view.apply_news(lost, Reached()).link is EngineLink.UNREACHABLE, "only a snapshot makes it live again"
    assert view.apply_news(lost, made.snapshot()).fresh


def test_silence_of_an_engine_that_is_lost_anyway_is_no_news(made: Any) -> None:
    lost = view.apply_news(EMPTY, Unreachable(made.AT, "gone"))
    assert view.apply_news(lost, Silent(made.AT)) == lost


def test_the_selection_is_kept_by_path_when_entities_come_and_go(made: Any) -> None:
    seen = selection.move_selection(view.apply_news(EMPTY, made.snapshot()), 1)
    assert seen.selected == "payments"
    more = made.snapshot(made.entity("new"), made.entity("orders"), made.entity("payments"))
    assert view.apply_news(seen, more).selected == "payments"
    assert view.apply_news(seen, made.snapshot(made.entity("audit"))).selected == "audit"


def test_the_selection_stops_at_both_ends(made: Any) -> None:
    seen = view.apply_news(EMPTY, made.snapshot())
    assert selection.move_selection(seen, -1).selected == "orders"
    assert selection.move_selection(seen, 99).selected == "audit"
    assert selection.move_selection(EMPTY, 1) == EMPTY


def test_read_only_is_the_consoles_or_the_engines(made: Any) -> None:
    seen = view.apply_news(EMPTY, made.snapshot(read_only=True))
    assert seen.read_only
    assert not view.apply_news(seen, made.snapshot()).read_only, (
        "an engine started anew may allow what the old one did not"
    )
    assert view.apply_news(replace(EMPTY, viewer=True), made.snapshot()).read_only


def test_missing_events_are_said_in_their_place(made: Any) -> None:
    seen = view.apply_news(view.apply_news(EMPTY, made.snapshot()), Missed(3))
    seen = view.apply_news(seen, Records((made.record(e.Warned(at=made.AT, about="a", text="b")),)))
    assert "3 events" in seen.log[0].text
    assert len(seen.log) == 2
