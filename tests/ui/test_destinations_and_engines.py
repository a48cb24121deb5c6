"""Parked messages by destination (page 3), and one timeline of all engines (page 4).

SPEC.md section 12: "What is parked is shown by destination: what syphons hold back for it, 'part of' all parked
messages where none has met them, and the oldest message that a peek saw." "The timeline is the pairing's: what engines
of other hosts reported, and who ordered what over the fleet until when and why, is among this engine's events by its
time, with the engine's name, by which a filter finds it."
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetEntityState, FleetOrder, FleetStatus, FleetView
from paired_servicebus.core.model.snapshot import DestinationView, OldestView, ParkedView, Snapshot, SyphonStatus
from paired_servicebus.ui.state import selection
from paired_servicebus.ui.state.log_entries import MAX_AT_ONCE, LogEntry, append_fleet
from paired_servicebus.ui.state.view import Records, TimelinePosition, View, apply_news
from paired_servicebus.ui.widgets.queue_table import DestinationTable
from paired_servicebus.ui.widgets.timeline_list import TimelineRows
from tests.fleet_views import engine, outage

from .conftest import AT, MadeUp

MADE: Final = MadeUp()
EVIL: Final = "\x1b[2J\u202e[bold]x\n"


def parked(messages: int = 1_205, *held: tuple[str, int], oldest: str = "payments", **changes: Any) -> Snapshot:
    """An outage of payments, with what this engine's syphon holds back, by destination."""
    views = tuple(DestinationView(path=path, set_aside=number, moved=0) for path, number in held)
    first = OldestView(read_at=AT - 2, enqueued_at=AT - 230, destination=oldest)
    queues = tuple(replace(one, oldest=first if one.index == 3 else one.oldest) for one in MADE.queues({3: messages}))
    base = {
        "queues": queues, "parked": ParkedView(messages=messages, read_at=AT - 2, known=10, queues=10),
        "syphon": MADE.syphon(SyphonStatus.WAITING, destinations=views),
    }  # fmt: skip
    return MADE.snapshot(MADE.failed_over("payments"), MADE.entity("orders"), **base | changes)


@pytest.mark.parametrize(
    ("snapshot", "rows"),
    [
        (parked(), ["payments part of all oldest 3 min"]),
        (parked(1_205, ("Payments", 213)), ["payments at least 213 oldest 3 min"]),
        (parked(213, ("payments", 213)), ["payments 213 oldest 3 min"]),
        (parked(213, ("payments", 300)), ["payments 213 oldest 3 min"]),
        (parked(213, ("payments", 200), ("orders", 20)), ["payments at most 200 oldest 3 min", "orders at most 20"]),
        (parked(213, ("payments", 200), ("gone", 13)), ["payments 200 oldest 3 min", "gone 13"]),
        (parked(213, ("orders", 3), oldest="orders"), ["orders at least 3 oldest 3 min", "payments part of all"]),
        (replace(parked(), parked=None), ["payments an unknown number oldest 3 min"]),
        (MADE.snapshot(parked=ParkedView(messages=0, read_at=AT, known=10, queues=10)), ["nothing is parked"]),
        (
            MADE.snapshot(parked=ParkedView(messages=7, read_at=AT, known=10, queues=10)),
            ["7 for destinations that no syphon has met yet"],
        ),
        (parked(45, *((f"e{number}", 9 - number) for number in range(9))), ["e0 9", "e1 8", "e2 7", "and 7 more"]),
    ],
)
def test_what_is_parked_for_each_destination(snapshot: Snapshot, rows: list[str]) -> None:
    shown = DestinationTable().lines(apply_news(View(pairing="orders"), snapshot), 80, 5)
    assert [" ".join(one.text.lstrip("▲● ").split()) for one in shown[1:]] == rows


def test_a_queue_that_accepts_nothing_is_beside_what_is_parked() -> None:
    out = tuple(replace(one, in_rotation=one.index != 4, pulled_reason=EVIL) for one in MADE.queues())
    shown = DestinationTable().lines(apply_news(View(pairing="orders"), parked(queues=out)), 80, 5)
    assert "queue 4 not accepting: \\x1b[2J" in shown[0].text
    assert all(one.width <= 80 and one.text.isprintable() for one in shown)


def text(entry: LogEntry) -> str:
    return f"{entry.engine} {entry.sentence}"


BAD: Final = FleetEntityState(
    path="payments", state=State.FAILED_OVER, since=AT - 13, first_failure_at=AT - 30, first_failure_kind="timeout"
)
OVER: Final = engine(2, State.FAILED_OVER, not_well=(BAD,))


def fleet(*engines: Any, **changes: Any) -> FleetView:
    return FleetView(me="web-1", my_boot="b1", engines=(engine(1), *engines), read_at=AT, **changes)


def order(**changes: Any) -> FleetOrder:
    return replace(outage().orders[0], **changes)


FAILED: Final = "web-2 payments failed over: timeout since 14:01:41"


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        (None, fleet(OVER), [FAILED]),
        (fleet(engine(2)), fleet(OVER), [FAILED]),
        (fleet(OVER), fleet(OVER), []),
        (fleet(OVER), fleet(replace(OVER, not_well=(replace(BAD, since=BAD.since + 0.4),))), []),
        (fleet(OVER), fleet(replace(OVER, not_well=(replace(BAD, since=BAD.since + 5),))), [FAILED]),
        (fleet(OVER), fleet(engine(2)), ["web-2 payments no longer failed over"]),
        (fleet(OVER), fleet(replace(OVER, not_well=())), []),
        (fleet(), fleet(engine(2)), ["web-2 engine started 1.0"]),
        (None, fleet(engine(2)), []),
        (fleet(engine(2)), fleet(engine(2, status=FleetStatus.SILENT)), ["web-2 engine silent: no document since"]),
        (fleet(engine(2, status=FleetStatus.SILENT)), fleet(engine(2)), ["web-2 engine reports again"]),
        (
            fleet(engine(2)), fleet(engine(2, status=FleetStatus.ENDED, reason=EVIL)),
            ["web-2 engine ended: \\x1b[2J\\u202e[bold]x"],
        ),
        (fleet(), fleet(engine(2, is_claimed=True)), []),
        (fleet(), fleet(orders=(order(),)), ["fleet order audit forced by operator-a until 18:02: no reason given"]),
        (
            None, fleet(orders=(order(why=EVIL),)),
            ["fleet order audit forced by operator-a until 18:02: \\x1b[2J\\u202e[bold]x"],
        ),
        (fleet(orders=(order(),)), fleet(orders=(order(),)), []),
    ],
)  # fmt: skip
def test_what_other_engines_reported_is_an_event(was: FleetView | None, now: FleetView, said: list[str]) -> None:
    assert [text(one) for one in append_fleet((), was, now, AT)] == said


def test_an_event_of_another_engine_has_the_place_of_its_time() -> None:
    """Also before this engine's own history, which comes after its first figures."""
    snapshot = MADE.snapshot(fleet=fleet(OVER))
    history = [MADE.record(e.Warned(at=AT - back, about="a", text=str(back)), seq) for seq, back in ((1, 60), (2, 5))]
    view = apply_news(apply_news(View(pairing="orders"), snapshot), Records(history))
    assert [text(one) for one in view.log] == ["web-1 a 60", FAILED, "web-1 a 5"]
    place = selection.place_of(view.log, view.log[1].number)
    assert (place, selection.place_of(view.log, view.log[2].number), selection.place_of(view.log, None)) == (1, 2, 2)
    assert [text(one) for one in selection.entries(view.log, "web-2")] == [FAILED]
    moved = selection.move_cursor(view.log, TimelinePosition(cursor=view.log[1].number), -1)
    assert moved.cursor == view.log[0].number
    rows = TimelineRows(view, 80)
    assert [" ".join(rows.line_at(place).text.split())[:38] for place in range(3)] == [
        "14:01:11 web-1 a 60", "14:01:58 web-2 payments failed over: t", "▸14:02:06 web-1 a 5",
    ]  # fmt: skip


def test_what_many_engines_report_alike_is_one_event() -> None:
    (one,) = append_fleet((), None, fleet(*(replace(OVER, engine=f"web-{number}") for number in range(2, 17))), AT)
    assert text(one) == f"15 engines payments failed over: timeout: {', '.join(f'web-{n}' for n in range(2, 17))}"
    assert one.at == BAD.since


def test_a_flood_of_claims_is_a_bounded_number_of_events_none_of_them_in_the_future() -> None:
    """Also two engines of one name: each boot is an engine."""
    wrong = [replace(BAD, path=f"{EVIL}{number}", since=1e300) for number in range(10)]
    bad = [[replace(one, path=f"{one.path} of {number}") for one in wrong] for number in range(500)]
    claims = [engine(number + 2, engine="web-2", not_well=tuple(paths)) for number, paths in enumerate(bad)]
    shown = append_fleet((), fleet(), fleet(*claims), AT)
    assert len(shown) == MAX_AT_ONCE + 1
    assert "4,901 more changes of other engines at once" in " ".join(text(one) for one in shown)
    assert all(one.at <= AT and text(one).isprintable() for one in shown)
    assert len({one.number for one in shown}) == len(shown)
    assert max(len(text(one)) for one in shown) < 1000


def test_the_fleets_order_is_why_an_entity_is_forced_elsewhere() -> None:
    """SPEC.md section 12: "what state an entity is in, since when, why"."""
    forced = replace(outage().entities[0], states=((State.FORCED, 15),))
    ordered = order(targets=("Payments",), why="planned work")
    view = apply_news(View(pairing="orders"), MADE.snapshot(fleet=outage(entities=(forced,), orders=(ordered,))))
    entity = view.entity_at("payments")
    assert entity is not None
    assert entity.why == "forced by operator-a 14:02:00 “planned work”; stays until released"
