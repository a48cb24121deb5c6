"""Reading in the timeline: filter, a time; and that the reader is left where he reads."""

from __future__ import annotations

from typing import Any

import pytest

from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.ui.state import log_entries, selection
from paired_servicebus.ui.state.log_entries import Log
from paired_servicebus.ui.state.view import TimelinePosition


@pytest.fixture
def story(made: Any) -> Log:
    warned = [
        e.Warned(
            at=made.at(f"14:{minute:02}:00"), about="payments" if minute % 2 else "orders", text=f"number {minute}"
        )
        for minute in range(10)
    ]
    return log_entries.append((), [made.record(event, seq) for seq, event in enumerate(warned, start=1)])


def selected(entries: Log, where: TimelinePosition) -> str:
    shown = selection.entries(entries, where.filter)
    return shown[selection.place_of(shown, where.cursor)].text


def test_without_a_selection_the_newest_is_followed(story: Log, made: Any) -> None:
    assert selected(story, TimelinePosition()) == "number 9"
    more = log_entries.append(story, [made.record(e.Warned(at=made.AT, about="orders", text="new"), 11)])
    assert selected(more, TimelinePosition()) == "new"


def test_a_selected_event_stays_selected_when_others_come(story: Log, made: Any) -> None:
    up = selection.move_cursor(story, TimelinePosition(), -3)
    assert selected(story, up) == "number 6"
    more = log_entries.append(story, [made.record(e.Warned(at=made.AT, about="orders", text="new"), 11)])
    assert selected(more, up) == "number 6"
    assert selection.move_cursor(story, up, 99).cursor is None, "at the end it follows again"


def test_a_selection_whose_event_was_forgotten_goes_to_the_oldest(story: Log) -> None:
    first = selection.move_cursor(story, TimelinePosition(), -99)
    assert selected(story[4:], first) == "number 4"


def test_a_filter_keeps_the_reader_at_the_same_time(story: Log) -> None:
    up = selection.set_filter(selection.move_cursor(story, TimelinePosition(), -4), "payments")
    assert selection.entries(story, up.filter)[0].text == "number 1"
    assert selected(story, up) == "number 5"


def test_a_time_is_gone_to(story: Log, made: Any) -> None:
    assert selected(story, selection.go_to_time(story, TimelinePosition(), made.at("14:03:30"))) == "number 4"
    assert selection.go_to_time(story, TimelinePosition(), made.at("15:00:00")).cursor is None


def test_a_clock_that_jumps_back_loses_nobody(story: Log, made: Any) -> None:
    jumped = log_entries.append(
        story, [made.record(e.Warned(at=made.at("13:00:00"), about="clock", text="earlier"), 11)]
    )
    assert selected(jumped, TimelinePosition()) == "earlier"
    assert selected(jumped, selection.go_to_time(jumped, TimelinePosition(), made.at("14:03:30"))) == "number 4"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("14:01", "14:01:00"),
        ("14:01:30", "14:01:30"),
        ("2026-11-20 14:01", "14:01:00"),
        ("2026-11-20T9:01", "09:01:00"),
    ],
)
def test_a_time_as_a_person_writes_it(made: Any, text: str, said: str) -> None:
    assert selection.parse_time(text, made.AT) == made.at(said)


def test_a_time_that_is_ahead_is_of_yesterday(made: Any) -> None:
    assert selection.parse_time("14:03", made.AT) == made.at("14:03:00") - 24 * 3600


@pytest.mark.parametrize("text", ["", "noon", "25:00", "14", "2026-13-01 10:00", "14:01:99"])
def test_what_is_no_time_is_said_to_be_none(made: Any, text: str) -> None:
    assert selection.parse_time(text, made.AT) is None


def test_the_log_keeps_so_many_and_numbers_go_on(made: Any) -> None:
    many = [made.record(e.Warned(at=made.AT, about="a", text=str(number)), number) for number in range(1, 6001)]
    kept = log_entries.append((), many)
    assert len(kept) == log_entries.MAX_ENTRIES
    assert kept[-1].number == 6000
    assert log_entries.append_missed(kept, 3, at=made.AT)[-1].number == 6001
