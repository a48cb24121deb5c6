"""What can be copied, that it reaches the terminal's clipboard, and that a file is never written over."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus import cli
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import (
    DeadLettersView,
    Finding,
    FindingVerdict,
    OldestView,
    ParkedView,
    Readiness,
    SyphonStatus,
    TroubleKind,
)
from paired_servicebus.engine.control.discovery import EngineStatus
from paired_servicebus.ui.commands.action_table import (
    CONSOLE_BY_ID,
    MAX_CLIPBOARD_BYTES,
    CopyItem,
    copy_items,
    file_name,
    write_new,
)
from paired_servicebus.ui.shell import app
from paired_servicebus.ui.shell.app import PairedApp
from paired_servicebus.ui.state.view import CommandAnswer, Page, Records, View, apply_news
from paired_servicebus.verbs.status_text import Health, alarms_in, as_json, as_lines, health
from tests import fleet_views, gateway_views
from tests.alarm_views import remarks, trouble
from tests.approval import Approve

from .conftest import AT

SECRET = "Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey=c4n4ry"


def view_of(snapshot: Any, **changes: Any) -> View:
    return replace(apply_news(View(pairing="orders"), snapshot), **changes)


def texts(view: View) -> dict[str, str]:
    return {piece.label: piece.text for piece in copy_items(view)}


def test_every_command_is_one_that_the_command_line_takes(made: Any) -> None:
    unused = "contoso/x-servicebus-transfer/11"
    views = [
        view_of(made.outage(), selected="payments"),
        view_of(made.backlog(), page=Page.BACKLOG, queue="8"),
        view_of(made.backlog(), page=Page.BACKLOG, on_unused=True, unused=unused),
    ]
    lines = [text for view in views for label, text in texts(view).items() if label.startswith("command")]
    assert len(lines) >= 6
    for text in lines:
        words = shlex.split(text)
        assert words[0] == "paired"
        cli.app.parse_args(words[1:], exit_on_error=False, print_error=False)


def test_a_name_that_moves_cursors_is_written_out_and_is_part_of_no_command(made: Any) -> None:
    view = view_of(made.snapshot(made.entity("a\x1b]0;x\a\n$(b)")))
    found = texts(view)
    assert all(character.isprintable() or character == "\n" for text in found.values() for character in text)
    assert not any(label.startswith("command") for label in found)
    quoted = texts(view_of(made.snapshot(made.entity("$(b) 'c'"))))["command: pin"]
    assert shlex.split(quoted)[2] == "$(b) 'c'"


def test_no_secret_is_copied(made: Any) -> None:
    found = texts(view_of(made.snapshot(made.entity("orders", why=f"refused: {SECRET}"))))
    assert "c4n4ry" not in str(found)


def test_where_nothing_is_there_is_nothing_to_copy() -> None:
    view = View(pairing="orders")
    assert copy_items(view) == ()
    assert CONSOLE_BY_ID["copy"].why_not(view).startswith("nothing here")


def test_a_file_is_new_and_its_name_needs_no_quotes(tmp_path: Path) -> None:
    name = file_name(CopyItem("name of ../a b/$(x)", ""), 0.0)
    assert name == "paired-19700101T000000Z-name-of-a-b.txt"
    path = tmp_path / name
    assert write_new(path, "one") == path
    with pytest.raises(FileExistsError):
        write_new(path, "two")
    assert path.read_text() == "one\n"


async def test_the_palette_copies_to_the_terminal(open_console: Any, outage_news: Any, monkeypatch: Any) -> None:
    copied: list[str] = []
    monkeypatch.setattr(PairedApp, "copy_to_clipboard", lambda self, text: copied.append(text))
    async with open_console(*outage_news) as console:
        await console.press("y")
        await console.pilot.pause(0.2)
        assert console.screen().count("name of") == 1
        await console.press(*"command release")
        await console.pilot.pause(0.3)
        await console.press("enter")
        await console.pilot.pause(0.1)
        if not copied:  # the first enter chose, the second does it
            await console.press("enter")
            await console.pilot.pause(0.1)
        assert copied == ["paired release payments --yes payments --engine orders"]
        assert "54 bytes" in console.screen()


async def test_tab_copies_to_a_new_file(open_console: Any, outage_news: Any) -> None:
    async with open_console(*outage_news) as console:
        await console.press("y", "down", "tab")
        await console.pilot.pause()
        assert "paired-20261120T140215Z-row-of-payments.txt" in console.screen()


async def test_what_is_too_long_for_a_clipboard_says_so(open_console: Any, outage_news: Any) -> None:
    async with open_console(*outage_news) as console:
        console.app.copy_text("timeline", "x" * (MAX_CLIPBOARD_BYTES + 1))
        assert "74,995 bytes" in console.screen()


async def test_a_file_is_asked_for_written_once_and_named(
    open_console: Any, outage_news: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    piece = CopyItem("name of payments", "payments")
    async with open_console(*outage_news, size=(140, 40)) as console:
        for expected in (f"name of payments: written to {tmp_path}", "exists; it was not changed"):
            app.ask_file(console.app, piece)
            await console.pilot.pause()
            await console.press("enter")
            await until(console, expected)
        app.ask_file(console.app, piece)
        await console.pilot.pause()
        await console.press(*["backspace"] * 60, *"none/x", "enter")
        await until(console, "none/x cannot be written: No such file or directory")
        app.ask_file(console.app, piece)
        await console.pilot.pause()
        await console.press("escape")
    (written,) = tmp_path.iterdir()
    assert written.read_text() == "payments\n"


@pytest.fixture
def until() -> Any:
    async def wait(console: Any, text: str) -> None:
        for _ in range(500):
            if text in console.screen():
                return
            await console.pilot.pause(0.02)
        raise AssertionError(console.screen())

    return wait


def test_what_is_copied_is_as_approved(made: Any, approve: Approve) -> None:
    outage, pages = made.outage(), view_of(made.backlog(), page=Page.BACKLOG)
    answer = CommandAnswer("clean up 2 targets: 1 of 2 done: x was deleted; y holds 3 messages", good=False, at=made.AT)
    events = apply_news(view_of(outage, page=Page.TIMELINE, each_ping=True), Records(made.records()))
    filtered = replace(events, timeline_position=replace(events.timeline_position, filter="not accepting"))
    views = {
        "an entity": view_of(outage, selected="payments"),
        "two marked ones": view_of(outage, marks=frozenset({"orders", "payments"})),
        "a queue": replace(pages, queue="8"),
        "an unused queue": replace(pages, on_unused=True, unused="contoso/x-servicebus-transfer/11"),
        "the timeline": events,
        "what is listed of it": filtered,
        "an answer": view_of(outage, answer=answer),
    }
    shown = "\n\n".join(
        "\n".join((name, *(f"  {label}:\n    {text}" for label, text in texts(view).items())))
        for name, view in views.items()
    )
    assert texts(views["an entity"])["name of payments"] == "payments"
    assert texts(views["two marked ones"])["command: pin"].split()[-4:] == ["--yes", "2", "--engine", "orders"]
    assert texts(views["a queue"])["command: re-drive"].split()[:5] == ["paired", "redrive", "8", "--yes", "8"]
    assert [text.count("\n") for label, text in texts(events).items() if "4 events" in label] == [3]
    approve(shown, "copied texts")


# -- How engines stand, without a screen: a table, a JSON object, an exit status.


def standing(snapshot: Any) -> EngineStatus:
    return EngineStatus(pairing=snapshot.pairing, snapshot=snapshot)


GONE = EngineStatus(pairing="billing", trouble="the engine (pid 7) did not end cleanly; its log is /l")


def test_an_engine_with_nothing_wrong_is_healthy(made: Any) -> None:
    unknown = made.snapshot(made.entity("orders"), made.entity("audit", State.UNKNOWN))
    assert health([standing(unknown)], made.AT) is Health.HEALTHY


@pytest.mark.parametrize("state", [State.SUSPECT, State.FAILED_OVER, State.FORCED, State.PINNED])
def test_an_entity_that_is_not_on_its_primary_by_rule_is_a_complaint(made: Any, state: State) -> None:
    found = made.snapshot(made.entity("orders"), made.entity("payments", state, why="because"))
    assert [one.sentence for one in alarms_in(found, made.AT)] == [f"payments {state}: because"]
    assert health([standing(found)], made.AT) is Health.DEGRADED


def test_the_worst_of_all_is_the_exit_status(made: Any) -> None:
    healthy, degraded = standing(made.snapshot()), standing(made.outage())
    assert health([healthy, degraded], made.AT) == 1
    assert health([healthy, GONE, degraded], made.AT) == 3
    assert health([], made.AT) == 3


def test_the_object_has_its_documented_names(made: Any) -> None:
    said = json.loads(as_json([standing(made.outage()), GONE], made.AT))
    assert (said["status"], said["exit"], said["at"]) == ("unreachable", 3, made.AT)
    degraded, gone = said["engines"]
    assert set(degraded) == set(gone) == {
        "pairing", "engine", "status", "trouble", "alarms", "backlog", "over_all_engines", "snapshot",
    }  # fmt: skip
    assert (degraded["status"], degraded["backlog"]["parked"]) == ("degraded", 1_221)
    assert degraded["snapshot"]["entities"][1]["state"] == "failed over"
    assert (gone["engine"], gone["snapshot"], gone["alarms"], gone["trouble"]) == (None, None, None, GONE.trouble)


UNKNOWN = trouble(TroubleKind.SYPHON_UNKNOWN, reason="3 messages are parked, and no syphon is known here")


def test_the_gateway_is_a_line_of_the_status_and_whole_in_its_json(made: Any) -> None:
    found = [standing(made.snapshot(gateway=gateway_views.outage()))]
    line = "  gateway   127.0.0.1:5673, 6 clients, 1 failing, 80 sends/s, 0.4 refused/s"
    assert line in as_lines(found, made.AT)
    said = json.loads(as_json(found, made.AT))["engines"][0]["snapshot"]["gateway"]
    assert (said["count"], said["port"], said["clients"][0]["sdk"]) == (6, 5673, ".NET")
    assert said["clients"][0]["links"] == [
        {"entity": "payments", "direction": "sends", "goes": "backlog", "links": 1, "accepted": 0, "refused": 0}
    ]
    assert not [line for line in as_lines([standing(made.snapshot())], made.AT) if "gateway" in line]


def _dead(made: Any) -> Any:
    queues = list(made.outage().queues)
    dead = DeadLettersView(read_at=made.AT, looked_at=3, reasons=(("TTL\x1bExpired", 2), ("of the owner", 1)))
    oldest = OldestView(read_at=made.AT, enqueued_at=made.at("13:58:01"))
    queues[3] = replace(queues[3], dead_letters=dead, oldest=oldest)
    queues[8] = replace(queues[8], oldest=replace(oldest, enqueued_at=made.at("13:59:00")))
    return replace(made.outage(), queues=tuple(queues))


def _pulled(made: Any) -> Any:
    first, second = made.queues(number=2)
    queues = (first, replace(second, in_rotation=False, pulled_reason="timeout"))
    return made.snapshot(queues=queues, syphon=made.syphon(SyphonStatus.PAUSED, text="paused by kim"))


def _ready(made: Any) -> Any:
    finding = Finding(what="syphon", verdict=FindingVerdict.WARN, evidence="one")
    readiness = Readiness(at=made.at("14:02:00"), findings=(finding,))
    return made.outage(readiness=readiness, troubles=remarks("an alarm"))


def _unread(made: Any) -> Any:
    return made.snapshot(
        queues=tuple(replace(queue, depth=None, dead_lettered=None, read_at=None) for queue in made.queues())
    )


OWN = ParkedView(messages=353, read_at=AT - 4, known=10, queues=10)
STANDING: dict[str, tuple[Callable[[Any], Any], str, int, tuple[str, ...]]] = {
    "an outage": (_ready, "degraded", 1, ("1,221", "22 msg/s", "8,112", "1 to check", "14:02:00")),
    "a pulled queue and a paused syphon": (_pulled, "degraded", 1, ("1 of 2",)),
    "a queue and a destination are paused": (
        lambda made: made.snapshot(syphon=made.syphon(paused_queues=(3,), paused_destinations=("payments",))),
        "degraded", 1, ("backlog/3, payments",),
    ),
    "dead letters and the oldest message": (_dead, "degraded", 1, ("13:58:01", "2 TTL\\x1bExpired")),
    "nothing is read yet": (_unread, "healthy", 0, ("unknown",)),
    "the engine's own figure": (lambda made: made.outage(parked=OWN), "degraded", 1, ("353", "14:02:07")),
    "at least the engine's own figure": (
        lambda made: made.outage(parked=replace(OWN, read_at=None, known=0)), "degraded", 1, ("least 353",)
    ),
    "a warning": (
        lambda made: made.snapshot(troubles=(UNKNOWN,), syphon=made.syphon(SyphonStatus.OFF)),
        "healthy", 0, ("3 messages",),
    ),
    "nothing is sent": (
        lambda made: made.snapshot(made.entity("orders", state=State.UNKNOWN)), "unknown", 0, ()
    ),
    "nothing is sent to one of two": (
        lambda made: made.snapshot(made.entity("orders"), made.entity("audit", state=State.UNKNOWN)),
        "healthy", 0, ("1 of 2",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STANDING)
def test_an_engine_stands_as_approved(made: Any, approve: Approve, name: str) -> None:
    """Section 12: "what nobody here can know is "unknown", never "none" or "healthy"."""
    make, status, exit_status, figures = STANDING[name]
    found = [standing(make(made))]
    lines = as_lines(found, made.AT)
    said = json.loads(as_json(found, made.AT))
    assert (said["engines"][0]["status"], health(found, made.AT)) == (status, exit_status)
    assert [figure for figure in figures if figure not in "\n".join(lines)] == []
    assert max(map(len, lines)) <= 100
    approve.part("\n".join(lines), "paired status", name)


def test_the_object_has_the_figures_of_the_table(made: Any) -> None:
    dead, own, unread, warned = (
        json.loads(as_json([standing(snapshot)], made.AT))["engines"][0]
        for snapshot in (_dead(made), made.outage(parked=OWN), _unread(made), made.snapshot(troubles=(UNKNOWN,)))
    )
    assert dead["backlog"]["oldest_at"] == made.at("13:58:01")
    assert (own["backlog"]["parked"], own["backlog"]["read_at"]) == (353, made.AT - 4)
    assert unread["backlog"]["parked"] is None
    assert [(one["name"], one["severity"]) for one in warned["alarms"]] == [("syphon_unknown", "notice")]


def test_engines_and_their_fleet_stand_as_approved(made: Any, approve: Approve) -> None:
    """Figures of long ago are never healthy, and the fleet is added where it is wanted."""
    found = [standing(made.snapshot(fleet=fleet_views.outage())), GONE]
    old = [standing(made.snapshot())]
    texts = {
        "with its fleet": as_lines(found, made.AT, fleet=True),
        "without it": as_lines(found, made.AT),
        "a minute later": as_lines(old, made.AT + 60),
        "a fleet that is off": as_lines(old, made.AT, fleet=True),
        "no engine": as_lines([], made.AT),
    }
    approve.part("\n\n".join("\n".join((f"-- {name}", *lines)) for name, lines in texts.items()), "paired status")
    said = json.loads(as_json(found[:1], made.AT, fleet=True))
    assert (said["status"], said["exit"], said["engines"][0]["fleet"]["status"]) == ("degraded", 1, "degraded")
    assert said["engines"][0]["snapshot"]["fleet"]["entities"][0]["path"] == "payments"
    assert (health(found[:1], made.AT), health(found[:1], made.AT, fleet=True)) == (1, 1)
    assert json.loads(as_json(old, made.AT, fleet=True))["engines"][0]["fleet"] is None
    assert (len(alarms_in(made.snapshot(), made.AT)), len(alarms_in(made.snapshot(), made.AT + 60))) == (0, 1)
