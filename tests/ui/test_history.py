"""The page "history": what the pipeline's tables hold, and one sentence where there are none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.model.pairing_events import StateChanged
from paired_servicebus.ui.state import incident_history, selection
from paired_servicebus.ui.state.incident_history import HistoryNews, Incident, IncidentHistory
from paired_servicebus.ui.state.view import Neighbour, Neighbours, Page, View
from paired_servicebus.ui.widgets.incident_list import IncidentList, IncidentReport
from tests.pipeline.made_tables import make_tables, micros
from tests.pipeline.test_report import EPISODE, EVENTS, records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tables with two incidents; the later one is not over."""
    later = {
        **EPISODE,
        "id": "later",
        "entity": "payments",
        "suspected_ts": micros(1_700_000_000.0 + 3600),
        "failed_over_ts": micros(1_700_000_000.0 + 3610),
        "last_ts": micros(1_700_000_000.0 + 3620),
        "failed_back_ts": None,
        "backlog_empty_ts": None,
        "outcome": "open",
    }
    end = StateChanged(at=1_700_003_700.0, entity="audit", was="unknown", now="healthy", why="a send was accepted")
    return make_tables(tmp_path / "tables", records(*EVENTS, end), episodes=[EPISODE, later])


def test_incidents_are_listed_newest_first_with_the_report_of_the_chosen_one(folder: Path) -> None:
    newest = incident_history.read_history(folder, "").history
    older = incident_history.read_history(folder, "e-one-orders-1").history

    assert newest is not None
    assert [one.entities for one in newest.incidents] == [("payments",), ("orders",)]
    assert [one.lasted for one in newest.incidents] == [None, 57.0]
    assert newest.chosen == "later"
    assert not any("–" in sentence for sentence in newest.report), "what is not known is left out"
    assert older is not None
    assert any(sentence.startswith("orders failed over at 22:14:32") for sentence in older.report)
    assert any("99.11 % of attempts accepted" in sentence for sentence in older.report)
    assert any(sentence.startswith("Nothing was lost") for sentence in older.report)


def test_absent_tables_are_one_sentence_that_says_how_to_get_them(tmp_path: Path) -> None:
    past = incident_history.read_history(tmp_path / "none", "")

    assert past.history is None
    assert "paired pipeline --once makes them" in past.trouble


NONE_YET = IncidentHistory(batch=0, written_at=0.0, read_at=0.0, incidents=())
HISTORY = IncidentHistory(
    batch=12,
    written_at=1_700_000_900.0,
    read_at=1_700_000_960.0,
    incidents=tuple(
        Incident(episode=f"episode-{number}", began_at=1_700_000_000.0 - number, lasted=60.0, entities=("a",), parked=1)
        for number in range(30)
    ),
    report=("a sentence",),
    chosen="episode-0",
)


def text_of(widget: Any, view: View, *, height: int = 10) -> list[str]:
    return [line.text for line in widget.lines(view, 100, height)]


def test_the_page_says_of_which_batch_it_is_and_when_it_was_read() -> None:
    view = View(pairing="p", page=Page.HISTORY, past=HistoryNews(HISTORY))

    assert "as of batch 12, written 22:28:20, read at 22:29:20 UTC" in text_of(IncidentList(), view)[0]
    assert text_of(IncidentReport(), view)[-1].endswith("paired report --episode episode-0 --out DIR")


def test_the_selection_stays_in_sight_and_its_old_report_is_not_shown_for_another() -> None:
    view = selection.move_selection(View(pairing="p", page=Page.HISTORY, past=HistoryNews(HISTORY)), 20)

    assert view.past is not None
    assert view.past.history is not None
    assert view.past.history.chosen == "episode-20"
    rows = IncidentList().lines(view, 100, 10)
    assert [row.ground for row in rows].count("selected") == 1
    assert "is being read" in text_of(IncidentReport(), view)[1]


def test_no_incident_and_no_tables_are_said() -> None:
    nothing = View(pairing="p", past=HistoryNews(replace(HISTORY, incidents=(), report=(), chosen="")))
    absent = View(pairing="p", past=HistoryNews(None, "there are no tables in /x: paired pipeline --once makes them"))

    assert "no failover recorded" in text_of(IncidentList(), nothing)[1]
    assert "there are no tables in /x" in text_of(IncidentList(), absent)[1]
    assert "being read" in text_of(IncidentList(), View(pairing="p"))[1]


async def until(console: Any, true: Callable[[], bool]) -> None:
    for _ in range(200):
        if true():
            return
        await console.pilot.pause(0.05)
    raise AssertionError("it did not come to that")


def history_of(console: Any) -> IncidentHistory:
    past = console.app.view.past
    return past.history if past is not None and past.history is not None else NONE_YET


async def test_turning_to_the_page_reads_the_tables(open_console: Any, folder: Path) -> None:
    async with open_console(
        size=(100, 30), past=lambda _, chosen: incident_history.read_history(folder, chosen)
    ) as console:
        await console.pilot.press("6")
        await until(console, lambda: bool(history_of(console).report))
        assert history_of(console).chosen == "later"
        await console.pilot.press("down")
        await until(console, lambda: any("orders failed over at" in one for one in history_of(console).report))
        assert history_of(console).chosen == "e-one-orders-1"


async def test_few_incidents_leave_the_report_the_room_that_they_do_not_need(open_console: Any) -> None:
    few = HistoryNews(replace(HISTORY, incidents=HISTORY.incidents[:2]))
    async with open_console(size=(100, 40), past=lambda *_: few) as console:
        await console.pilot.press("6")
        listed = console.app.screen.query_one(IncidentList)
        await until(console, lambda: listed.size.height == 5)
        assert console.app.screen.query_one(IncidentReport).size.height > 25


class Elsewhere:
    """Another engine, of which nothing is told."""

    async def attend(self, name: str) -> None:
        pass


def trouble_of(console: Any) -> str:
    past = console.app.view.past
    return past.trouble if past is not None else ""


async def test_of_another_engine_its_own_tables_are_read(open_console: Any, made: Any) -> None:
    """The bug: from then on no engine's were, not even the first one's."""
    news = (made.snapshot(), Neighbours((Neighbour("two", "", made.snapshot()),)))

    def past(pairing: str, _: str) -> HistoryNews:
        return HistoryNews(None, f"no tables of {pairing}")

    async with open_console(*news, others=Elsewhere(), past=past) as console:
        await console.press("6")
        await until(console, lambda: trouble_of(console) == "no tables of orders")
        await console.press("7", "down", "enter", "6")
        await until(console, lambda: trouble_of(console) == "no tables of two")
        assert console.app.view.pairing == "two"


async def test_what_is_read_late_is_not_shown_as_another_engine_s(open_console: Any, made: Any) -> None:
    news = (made.snapshot(), Neighbours((Neighbour("two", "", made.snapshot()),)))
    go_on, read = threading.Event(), threading.Event()

    def past(pairing: str, _: str) -> HistoryNews:
        if pairing == "orders":
            assert go_on.wait(30)
            threading.Timer(0.0, read.set).start()
        return HistoryNews(None, f"no tables of {pairing}")

    async with open_console(*news, others=Elsewhere(), past=past) as console:
        told: list[object] = []
        tell = console.app.receive
        console.app.receive = lambda one: (told.append(one), tell(one))
        await console.press("6")
        await console.press("7", "down", "enter")
        assert console.app.view.pairing == "two"
        go_on.set()
        await until(console, read.is_set)
        await console.press("6")
        await until(console, lambda: trouble_of(console) == "no tables of two")
    assert told == [HistoryNews(None, "no tables of two")]
