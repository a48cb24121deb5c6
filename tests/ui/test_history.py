"""The incidents page: what journal and tables hold, and one sentence where there are none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.fleet_view import FleetView
from paired_servicebus.core.model.pairing_events import Record, SendsCounted, StateChanged
from paired_servicebus.core.series.graphs import Curves, Graphs
from paired_servicebus.engine.journal.records import encode
from paired_servicebus.pipeline.report.report_values import Figures, Stretch
from paired_servicebus.ui.shell import app as shell_app
from paired_servicebus.ui.state import incident_history, log_entries, selection
from paired_servicebus.ui.state.incident_history import Incident, IncidentHistory
from paired_servicebus.ui.state.log_entries import Log, Pings
from paired_servicebus.ui.state.view import Neighbour, Neighbours, Page, Records, TimelinePosition, View
from paired_servicebus.ui.widgets.incident_list import IncidentList, IncidentReport
from tests.pipeline.report_tables import MemoryTables
from tests.pipeline.test_report import EPISODE, EVENTS, T, records

from .conftest import AT


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables with two incidents; the later one is not over."""
    later = {
        **EPISODE,
        "id": "later",
        "entity": "payments",
        "began_at": T + 3600,
        "suspected_at": T + 3600,
        "failed_over_at": T + 3610,
        "last_at": T + 3620,
        "first_ping_at": None,
        "failed_back_at": None,
        "backlog_empty_at": None,
        "outcome": "open",
    }
    end = StateChanged(at=T + 3700, entity="audit", was="unknown", now="healthy", why="a send was accepted")
    return MemoryTables(records(*EVENTS, end), rows={"episodes": [EPISODE, later]}).store(
        tmp_path_factory.mktemp("tables") / "t"
    )


def test_incidents_are_listed_newest_first_with_the_report_of_the_chosen_one(folder: Path) -> None:
    newest = incident_history.read_history(folder, "")
    older = incident_history.read_history(folder, "e-one-orders-1")

    assert newest is not None
    assert [one.entities for one in newest.incidents] == [("payments",), ("orders",)]
    assert [one.lasted for one in newest.incidents] == [None, 57.0]
    assert newest.chosen == "later"
    assert not any("–" in sentence for sentence in newest.report), "what is not known is left out"
    assert older is not None
    assert any("22:14:32" in sentence for sentence in older.report)
    assert any("99.11 %" in sentence for sentence in older.report)
    assert any(sentence.startswith("Accepted, but receipt is NOT CONFIRMED") for sentence in older.report)
    assert older.figures is not None
    assert older.figures.during.to_backlog == 260


def test_absent_tables_are_one_sentence_that_says_how_to_get_them(tmp_path: Path) -> None:
    past = incident_history.read_history(tmp_path / "none", "")

    assert past.incidents == ()
    assert "paired pipeline" in past.trouble


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


def test_the_page_says_when_the_tables_were_written_and_how_to_get_the_whole_report() -> None:
    view = View(pairing="p", page=Page.HISTORY, past=HISTORY)

    assert "written 22:28:20" in text_of(IncidentList(), view)[0]
    assert text_of(IncidentReport(), view)[-1].endswith("--out DIR")


def test_the_selection_stays_in_sight_and_its_old_report_is_not_shown_for_another() -> None:
    view = selection.move_selection(View(pairing="p", page=Page.HISTORY, past=HISTORY), 20)

    assert view.past is not None
    assert view.past.chosen == "episode-20"
    rows = IncidentList().lines(view, 100, 10)
    assert [row.ground for row in rows].count("selected") == 1
    assert any("being read" in text for text in text_of(IncidentReport(), view))


def test_no_incident_and_no_tables_are_said() -> None:
    nothing = View(pairing="p", past=replace(HISTORY, incidents=(), report=(), chosen=""))
    absent = View(pairing="p", past=IncidentHistory(trouble="there are no tables in /x: see paired pipeline"))

    assert "no failover" in text_of(IncidentList(), nothing)[1]
    assert "no tables" in text_of(IncidentList(), absent)[1]
    assert "being read" in text_of(IncidentList(), View(pairing="p"))[1]


async def until(console: Any, true: Callable[[], bool]) -> None:
    for _ in range(200):
        if true():
            return
        await console.pilot.pause(0.05)
    raise AssertionError("it did not come to that")


def history_of(console: Any) -> IncidentHistory:
    return console.app.view.past or NONE_YET


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


def change(was: str, now: str, *, seq: int = 1) -> Records:
    event = StateChanged(at=AT, entity="payments", was=was, now=now, why="timeout")
    return Records((Record(engine="orders@web-1", boot="b1", seq=seq, event=event),))


async def test_the_open_page_is_read_again_when_an_incident_begins_or_ends(
    open_console: Any, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell_app, "READ_AGAIN_SECONDS", 0.01)
    reads: list[str] = []

    def past(pairing: str, _chosen: str) -> IncidentHistory:
        reads.append(pairing)
        return HISTORY

    async def read(times: int) -> None:
        async with asyncio.timeout(60):
            while len(reads) < times:
                await console.pilot.pause(0.01)

    async with open_console(made.snapshot(), past=past) as console:
        await console.told(change("healthy", "suspect"))
        await console.press("6")
        await read(1)
        await console.told(change("suspect", "failed over", seq=2))
        assert console.app._read_soon is None, "it has begun already"
        await console.told(change("failed over", "healthy", seq=3), change("healthy", "suspect", seq=4))
        await read(2)
        await console.press("1")
        await console.told(change("suspect", "healthy", seq=5))
        assert console.app._read_soon is None, "another page is on screen"
        assert len(reads) == 2, "one reading for all changes at a time"


async def test_few_incidents_leave_the_report_the_room_that_they_do_not_need(open_console: Any) -> None:
    few = replace(HISTORY, incidents=HISTORY.incidents[:2])
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

    def past(pairing: str, _: str) -> IncidentHistory:
        return IncidentHistory(trouble=f"no tables of {pairing}")

    async with open_console(*news, others=Elsewhere(), past=past) as console:
        await console.press("6")
        await until(console, lambda: trouble_of(console) == "no tables of orders")
        await console.press("7", "down", "enter", "6")
        await until(console, lambda: trouble_of(console) == "no tables of two")
        assert console.app.view.pairing == "two"


async def test_what_is_read_late_is_not_shown_as_another_engine_s(open_console: Any, made: Any) -> None:
    news = (made.snapshot(), Neighbours((Neighbour("two", "", made.snapshot()),)))
    go_on, read = threading.Event(), threading.Event()

    def past(pairing: str, _: str) -> IncidentHistory:
        if pairing == "orders":
            assert go_on.wait(30)
            threading.Timer(0.0, read.set).start()
        return IncidentHistory(trouble=f"no tables of {pairing}")

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
    assert told == [IncidentHistory(trouble="no tables of two")]


RECORDS = tuple(
    Record(engine="orders@web-1", boot="b1", seq=seq, event=event)
    for seq, event in enumerate(
        (
            SendsCounted(at=1_700_007_100.0, entity="orders", route="primary", accepted=100, failed=0, seconds=1.0),
            StateChanged(at=1_700_007_200.0, entity="orders", was="healthy", now="suspect", why="timeout"),
            StateChanged(at=1_700_007_230.0, entity="orders", was="suspect", now="failed over", why="no send accepted"),
            SendsCounted(at=1_700_007_240.0, entity="orders", route="backlog/1", accepted=40, failed=3, seconds=1.0),
            StateChanged(at=1_700_007_300.0, entity="orders", was="failed over", now="healthy", why="a ping came back"),
            SendsCounted(at=1_700_007_310.0, entity="orders", route="primary", accepted=90, failed=0, seconds=1.0),
        ),
        start=1,
    )
)


def written(spool: Path, *more: bytes) -> Path:
    (spool / "events").mkdir(parents=True)
    lines = [encode(record) for record in RECORDS]
    (spool / "events" / "one-1-1.jsonl").write_bytes(b"\n".join([*lines, *more]))
    return spool


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A journal with one incident, a line of an unknown kind and a torn one."""
    return written(tmp_path / "spool", b'{"kind":"from-tomorrow"}', b'{"kind":"state-chan')


def test_without_tables_the_journal_has_the_incidents(spool: Path, tmp_path: Path) -> None:
    found = incident_history.read_history(tmp_path / "none", "", journals=[spool])

    assert found is not None
    assert [(one.entities, one.lasted, one.parked) for one in found.incidents] == [(("orders",), 100.0, 40)]
    assert "paired pipeline" in found.remarks[0]


def test_incidents_of_journal_and_tables_are_one_list(spool: Path, folder: Path) -> None:
    found = incident_history.read_history(folder, "", journals=[spool])

    assert found is not None
    assert [one.in_tables for one in found.incidents] == [False, True, True]


def test_an_incident_in_both_is_one_row_with_the_judged_figures(tmp_path: Path) -> None:
    """The tables have it open; the journal has its end."""
    began = RECORDS[1].event.at
    stored = {
        **EPISODE, "id": f"orders@orders@web-1@{round(began * 1e6)}", "engine": "orders@web-1", "boot": "b1",
        "began_at": began, "failed_over_at": began + 30, "last_at": began + 40, "outcome": "open", "parked": 39,
        "failed_back_at": None, "backlog_empty_at": None, "pairing": "orders",
    }  # fmt: skip
    tables = MemoryTables(RECORDS[:4], rows={"episodes": [stored]}).store(tmp_path / "tables")
    journal = written(tmp_path / "spool")
    found = incident_history.read_history(tables, "", journals=[journal], pairing="orders")
    assert found is not None
    assert [(one.lasted, one.parked, one.in_tables) for one in found.incidents] == [(100.0, 39, True)]
    assert incident_history.read_history(tables, "", journals=[journal], pairing="bank").incidents == ()


def test_a_journal_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    past = incident_history.read_history(tmp_path / "none", "", journals=[tmp_path / "no-spool"])

    assert past.incidents == ()
    assert past.trouble.startswith(f"there is no journal in {tmp_path / 'no-spool'}")


def opened(spool: Path, tmp_path: Path, **changes: Any) -> View:
    past = incident_history.read_history(tmp_path / "none", "", journals=[spool])
    return View(pairing="p", page=Page.HISTORY, past=past, incident_open=True, **changes)


def test_an_incident_compares_before_during_and_after(spool: Path, tmp_path: Path) -> None:
    text = "\n".join(text_of(IncidentReport(), opened(spool, tmp_path)))

    rows = {line[:21].strip(): line[21:].split() for line in text.split("\n") if line[21:].split()}
    assert rows["sends/s to primary"] == ["1.0", "0", "9.0"]
    assert rows["sends/s to backlog"] == ["0", "0.4", "0"]
    unknown = " ".join(text.partition(" unknown: ")[2].split())
    assert "refused/s, p50 of sends, worst p99 of sends" in unknown, "there are no curves"


def test_what_the_journal_does_not_keep_is_of_the_curves(spool: Path, tmp_path: Path) -> None:
    """The curves reach back to 40 seconds after the beginning: they say nothing of the time before."""
    refused = (*[2.0] * 12, *[0.0] * 6)
    total = Curves(refused=refused, p50=(4.0,) * 18, p99=(*[900.0] * 12, *[20.0] * 6))
    graphs = Graphs(at=1_700_007_330.0, whole=True, total=total)
    view = opened(spool, tmp_path, graphs=graphs)
    text = text_of(IncidentReport(), view)

    rows = {line[:21].strip(): line[21:].split() for line in text if line[21:].split()}
    assert rows["refused/s"] == ["unknown", "unknown", "0"]
    assert rows["worst p99 of sends"] == ["unknown", "unknown", "20", "ms"]


def test_engines_of_the_fleet_without_a_journal_here_are_named(made: Any) -> None:
    """An incident is the pairing's: whose records are not here is said."""
    fleet = FleetView(me="web-1", missing=("web-2", "web-3"))
    snapshot = replace(made.outage(), fleet=fleet)
    history = replace(HISTORY, engines=("orders@web-1", "orders@WEB-3"))
    view = View(pairing="p", page=Page.HISTORY, snapshot=snapshot, past=history, incident_open=True)
    assert text_of(IncidentReport(), view)[1].strip() == (
        "by the journals of 2 engines; those of web-2 are not here, and what they saw is unknown"
    )


def test_an_outage_that_goes_on_shows_what_it_cost_so_far(made: Any) -> None:
    incident = Incident(episode="e", began_at=made.AT - 103, lasted=None, entities=("payments",), parked=None)
    during = Stretch(since=made.AT - 103, until=made.AT)
    figures = Figures(before=Stretch(since=made.AT - 403, until=made.AT - 103), during=during, after=None)
    history = replace(NONE_YET, batch=None, incidents=(incident,), chosen="e", figures=figures)
    view = View(pairing="p", page=Page.HISTORY, snapshot=made.outage(), past=history, incident_open=True)
    text = "\n".join(text_of(IncidentReport(), view))

    assert "far, 1m43s" in text
    assert "1,221 messages" in text
    assert "operations     unknown" in text


async def test_an_opened_incident_scrolls_to_its_end_and_escape_shows_the_list(open_console: Any) -> None:
    long = replace(HISTORY, report=tuple(f"sentence {number}" for number in range(90)))
    async with open_console(size=(80, 24), past=lambda *_: long) as console:
        await console.press("6")
        await until(console, lambda: bool(history_of(console).report))
        await console.press("enter", "end")
        assert "--episode episode-0" in console.screen()
        await console.press("home")
        assert "after: being read" in console.screen()
        await console.press("escape")
        assert console.app.view.page is Page.HISTORY
        assert not console.app.view.incident_open


async def test_scrolling_an_opened_incident_leaves_the_selection(open_console: Any) -> None:
    async with open_console(size=(80, 24), past=lambda *_: HISTORY) as console:
        await console.press("6")
        await until(console, lambda: bool(history_of(console).report))
        await console.press("enter", "down", "down")
        assert history_of(console).chosen == "episode-0"


# -- The pings of an outage are counted on the change they belong to; `P` lists each.


LOST = 'no send accepted for 60 s after "timeout"'


def changed(made: Any, clock: str, now: str, was: str = "suspect", why: str = LOST) -> e.StateChanged:
    return e.StateChanged(at=made.at(clock), entity="payments", was=was, now=now, why=why)


def failed(made: Any, clock: str, number: int = 1, entity: str = "payments") -> e.PingFailed:
    return e.PingFailed(at=made.at(clock), entity=entity, number=number, reason="timeout", took=2.0)


def folded(made: Any, *story: e.Event) -> Log:
    return log_entries.append((), [made.record(event, seq) for seq, event in enumerate(story, 1)], fold=True)


def test_pings_are_counted_on_the_failover(made: Any) -> None:
    log = folded(made, changed(made, "14:01:58", "failed over"), failed(made, "14:02:03"), failed(made, "14:02:08"))
    assert [(one.brief, one.pings) for one in log] == [("failed over: timeout", Pings(2, 0, made.at("14:02:08")))]
    assert log[0].text == f"failed over: {LOST}; then ping ✗ ×2"


def test_an_accepted_ping_is_counted_beside_the_failed_ones(made: Any) -> None:
    accepted = e.PingAccepted(at=made.at("14:02:08"), entity="payments", number=2, took=0.1)
    log = folded(made, changed(made, "14:01:58", "failed over"), failed(made, "14:02:03"), accepted)
    assert log_entries.ping_counts(log[0].pings or Pings()) == "ping ✗ ×1 ✓ ×1"


def test_a_later_change_ends_the_pings_of_the_one_before(made: Any) -> None:
    home = changed(made, "14:03:00", "healthy", "failed over", "ping 2 accepted")
    log = folded(made, changed(made, "14:01:58", "failed over"), failed(made, "14:02:03"), home)
    assert [one.pings and one.pings.over for one in log] == [True, None]


def test_a_suspect_that_fails_over_is_one_line_with_its_duration(made: Any) -> None:
    suspect = changed(made, "14:00:58", "suspect", "healthy", "timeout 14:00:58; fails over at 14:01:58")
    log = folded(made, suspect, changed(made, "14:01:58", "failed over"))
    assert [one.brief for one in log] == ["failed over after 1m00s: timeout"]


def test_pings_whose_change_was_forgotten_are_one_line(made: Any) -> None:
    log = folded(made, failed(made, "14:02:03"), failed(made, "14:02:08", 2), failed(made, "14:02:09", 1, "audit"))
    assert [(one.sentence.subject, one.pings and one.pings.failed) for one in log] == [("payments", 2), ("audit", 1)]


@pytest.mark.parametrize("key", ["1", "4"], ids=["overview", "timeline"])
async def test_the_key_lists_each_ping_and_folds_them_again(open_console: Any, made: Any, key: str) -> None:
    async with open_console(Records(made.records()), made.outage(), size=(140, 40)) as console:
        await console.press(key)
        assert "✗ ×1, last 14:02:03" in console.screen()
        await console.press("P")
        assert "ping 1 failed" in console.screen()
        await console.press("P")
        assert "ping 1 not" not in console.screen()


async def test_the_reader_of_the_timeline_stays_at_the_same_time(open_console: Any, made: Any) -> None:
    async with open_console(Records(made.records()), made.outage()) as console:
        await console.press("4", "up", "P")
        assert "▸14:01:58" in console.screen()


async def test_a_silent_engine_s_pings_have_a_time_and_no_age(open_console: Any, made: Any) -> None:
    async with open_console(Records(made.records()), made.outage(), size=(140, 40)) as console:
        console.feed.lose()
        await console.pilot.pause()
        assert "✗ ×1, last 14:02:03" in console.screen()


# -- Reading in the timeline: filter, a time; and that the reader is left where he reads.


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
    up = replace(selection.move_cursor(story, TimelinePosition(), -4), filter="payments")
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
