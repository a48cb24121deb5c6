"""The first lines answer what is wrong, since when, why, whether callers fail, whether it heals, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from paired_servicebus.core.backlog.backlog_totals import empty_at, sum_backlog
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetEntity
from paired_servicebus.core.model.pairing_events import KINDS
from paired_servicebus.core.model.snapshot import (
    Finding,
    FindingVerdict,
    OldestView,
    ParkedView,
    Readiness,
    SyphonStatus,
)
from paired_servicebus.core.operator.actions import BY_ID
from paired_servicebus.core.text import number_format
from paired_servicebus.core.text.number_format import BARS, sparkline
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.ui.render.spans import Role, name_list, pack, shortenable
from paired_servicebus.ui.state import log_entries
from paired_servicebus.ui.state.log_entries import event_role, has_sentence, sentence
from paired_servicebus.ui.state.summary import Level, summary, why_now
from paired_servicebus.ui.state.view import Silent, Unreachable, View, apply_news
from tests import fleet_views
from tests.alarm_views import obstacle, remarks
from tests.approval import Approve


def view_of(snapshot: Any) -> View:
    return apply_news(View(pairing="orders"), snapshot)


def rows(snapshot: Any, width: int = 77, height: int = 4) -> list[str]:
    return [text for text, _ in summary(view_of(snapshot)).lines(width, height)]


def ten(made: Any, *failed: int, **changes: Any) -> list[Any]:
    names = ["orders", "payments", "audit", "invoices", "shipping", "returns", "emails", "webhooks", "crm", "stock"]
    return [
        made.failed_over(name, **changes) if place in failed else made.entity(name)
        for place, name in enumerate(names, start=1)
    ]


def total_loss(made: Any, **changes: Any) -> Any:
    """Both namespaces down: every entity failed over, and no backlog queue takes anything."""
    lost = {
        "route": "nowhere",
        "refused": 1_886,
        "refused_per_second": 18.7,
        "refused_since": made.at("14:00:29"),
        "refusals": (("BacklogUnavailableError", 1_886),),
        "first_failure_at": made.at("14:00:20"),
    }
    queues = tuple(
        replace(one, in_rotation=False, pulled_since=made.at("14:00:29"), pulled_reason="connection lost")
        for one in made.queues()
    )
    entities = [made.failed_over(name, **lost | changes) for name in ("orders", "payments", "audit")]
    readiness = obstacle(made.AT, "the secondary namespace does not answer: connection lost")
    return made.snapshot(*entities, queues=queues, readiness=readiness)


@pytest.mark.parametrize("width", range(57, 141, 7))
def test_names_are_cut_by_name_and_never_the_sentence(made: Any, width: int) -> None:
    long = "a-very-long-entity-name-for-the-warehouse-stock-levels-emea-production"
    entities = [made.failed_over(name) for name in (long, "payments", "stock-audit-01", "b", "c")]
    first = rows(made.snapshot(*entities, made.entity("fine")), width=width)[0]
    assert first.startswith("OUTAGE for")
    assert cell_len(first) <= width
    assert first.endswith(("more", "failed over")) or first.count(",") + 2 == 5, first


def test_parts_are_shortened_from_the_last_one_on() -> None:
    parts = (("all of the first", "first"), shortenable("a stranger's long reason", least=4), ("last", ""))
    assert pack(parts, 60) == "all of the first · a stranger's long reason · last"
    assert pack(parts, 45) == "all of the first · a stranger's long reason"
    assert pack(parts, 30) == "all of the first · a stran…"
    assert pack(parts, 12) == "first · a s…" or cell_len(pack(parts, 12)) <= 12
    assert pack((name_list(["a" * 40 + "z" * 40, "y"]),), 30) == "aaaaaaa…zzzzzzzz and 1 more"


@pytest.mark.parametrize(
    ("state", "level"),
    [
        (State.HEALTHY, Level.WELL),
        (State.UNKNOWN, Level.WELL),
        (State.PINNED, Level.NOTABLE),
        (State.SUSPECT, Level.NOTABLE),
        (State.FORCED, Level.NOTABLE),
        (State.FAILED_OVER, Level.WRONG),
    ],
)
def test_each_state_has_its_level(made: Any, state: State, level: Level) -> None:
    assert summary(view_of(made.snapshot(made.entity("orders", state)))).level is level


def test_a_row_beside_its_time_names_the_cause_without_it(made: Any) -> None:
    """The time has a column of its own; what led to it is left without the word for it."""
    lasting = {"since": made.AT - 4, "fails_over_at": made.AT + 6}
    for first in ("timeout", "timeout since"):
        why = f"{first} {clock(made.AT - 4)}; fails over at {clock(made.AT + 6)} unless a send succeeds"
        suspect = made.entity("orders", State.SUSPECT, why=why, **lasting)
        assert why_now(suspect, made.AT) == "timeout; fails over in 6 s unless a send succeeds"


def test_stranded_messages_are_said_once(made: Any) -> None:
    assert summary(view_of(made.snapshot(unused=made.unused()))).text.count("messages are stranded") == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            "restart: paired up · applications go on by themselves, failover too · its syphon moves nothing",
        ),
        ({"own_process": False}, "it ran inside an application: look at that process; its end stops its own sends"),
    ],
)
def test_after_the_end_of_an_engine_it_is_said_what_that_means(made: Any, changes: dict[str, Any], said: str) -> None:
    lost = apply_news(view_of(made.outage(**changes)), Unreachable(made.AT + 4, "the engine ended"))
    assert summary(lost).lines(120, 4)[2][0] == said


def test_an_old_depth_says_how_old_it_is(made: Any) -> None:
    old = tuple(replace(queue, read_at=made.at("14:01:00")) for queue in made.queues({1: 7}))
    snapshot = made.snapshot(queues=old)
    assert sum_backlog(snapshot).old
    assert "1m11s old" in summary(view_of(snapshot)).text


def test_a_depth_read_more_seldom_gets_old_later(made: Any) -> None:
    slow = tuple(replace(queue, read_at=made.at("14:01:00"), read_every=60.0) for queue in made.queues({1: 7}))
    assert not sum_backlog(made.snapshot(queues=slow)).old


def test_the_engines_own_figure_is_the_one_that_is_shown(made: Any) -> None:
    """It counts what was diverted and moved since the depths were read."""
    told_by_engine = ParkedView(messages=40, read_at=made.AT - 3, known=10, queues=10, empty_at=made.AT + 4)
    snapshot = made.snapshot(
        queues=made.queues({1: 767}), parked=told_by_engine, syphon=made.syphon(SyphonStatus.RUNNING, text="moving")
    )
    assert sum_backlog(snapshot).messages == 40
    assert "40 parked" in summary(view_of(snapshot)).text


def test_without_draining_the_engine_tells_no_end_and_none_is_made_up(made: Any) -> None:
    """Seen: an hour later, from the average of 10 s that include the idle ones, over an old depth."""
    told = ParkedView(messages=40, read_at=made.AT - 3, known=10, queues=10)
    moving = made.syphon(SyphonStatus.RUNNING, text="moving", per_second=20.0, history=(20.0,) * 60)
    snapshot = made.snapshot(queues=made.queues({1: 767}), parked=told, syphon=moving)
    assert empty_at(snapshot) is None
    assert "syphon running" in summary(view_of(snapshot)).text
    assert "empty" not in summary(view_of(snapshot)).text


def test_a_time_of_emptiness_is_said_only_where_it_is_no_guess(made: Any) -> None:
    """The engine's own estimate is shown; without one there is none."""
    told = ParkedView(messages=200, read_at=made.AT - 1, known=10, queues=10, empty_at=made.AT + 9)
    syphon = made.syphon(SyphonStatus.RUNNING, text="moving", per_second=20.0, history=(20.0,) * 60)
    draining = made.snapshot(queues=made.queues({1: 200}), parked=told, syphon=syphon)
    assert empty_at(draining) == made.AT + 9
    assert "in 9 s" in summary(view_of(draining)).text
    assert empty_at(replace(draining, parked=replace(told, empty_at=None))) is None
    assert empty_at(replace(draining, parked=None)) is None


def test_the_first_selection_is_the_fleet_s_worst_entity(made: Any) -> None:
    assert view_of(made.snapshot(fleet=fleet_views.outage())).selected == "payments"


def test_in_a_total_loss_the_action_is_whole_and_counts_of_states_give_way(made: Any) -> None:
    todo = "check the network, and the section [secondary] in pairing.toml, please"
    finding = Finding(what="secondary reachable", verdict=FindingVerdict.NO, evidence="no", todo=todo)
    lost = {"refused": 9, "refused_per_second": 3.0, "refused_since": made.AT - 9}
    entities = [made.failed_over("orders", **lost), made.failed_over("payments", **lost), made.entity("audit")]
    last = rows(made.snapshot(*entities, readiness=Readiness(at=made.AT, findings=(finding,))))[3]
    assert last == f"do: {todo}"


def test_in_a_fleet_entities_on_which_engines_disagree_come_first(made: Any) -> None:
    states = {"orders": ((State.FAILED_OVER, 3),), "audit": ((State.FAILED_OVER, 2), (State.HEALTHY, 1))}
    fleet = replace(
        fleet_views.calm(), entities=tuple(FleetEntity(path=path, states=of) for path, of in states.items())
    )
    snapshot = made.snapshot(made.failed_over("orders"), made.entity("audit"), fleet=fleet)
    assert [one.path for one in view_of(snapshot).listed] == ["audit", "orders"]


# -- the verdict in whole scenes ------------------------------------------------------------------------------------

RELEASE = f"release ({BY_ID['release'].key})"
FULL = "backlog queue 3 is full"


def _suspect(made: Any) -> Any:
    refused = {
        "refused": 31,
        "refused_per_second": 2.6,
        "refused_since": made.AT - 12,
        "first_failure_at": made.AT - 12,
    }
    why = "timeout 14:01:59; fails over at 14:02:59 unless a send succeeds"
    return made.entity("orders", State.SUSPECT, since=made.AT - 12, why=why, fails_over_at=made.AT + 48, **refused)


def _not_ready(made: Any) -> Any:
    return made.snapshot(readiness=obstacle(made.AT, "no answer"))


def _old_age(made: Any) -> Any:
    queues = list(made.queues({3: 1_204}))
    room = {"size_bytes": 1_000_000, "bytes_growth": 1_000.0, "limit_bytes": 61_000_000}
    queues[3] = replace(queues[3], oldest=OldestView(enqueued_at=made.AT - 62), **room)
    return made.snapshot(*ten(made, 8), queues=tuple(queues))


def _unread(made: Any, first: int, **changes: Any) -> Any:
    queues = tuple(replace(queue, depth=None, read_at=None) for queue in made.queues())
    return made.snapshot(queues=(*made.queues()[:first], *queues[first:]), **changes)


def _pulled(made: Any) -> Any:
    first, *others = made.queues()
    return made.snapshot(queues=(replace(first, in_rotation=False, pulled_reason="full"), *others))


VERDICTS: dict[str, tuple[Callable[[Any], Any], Level, tuple[str, ...]]] = {
    "all well": (lambda made: made.snapshot(), Level.WELL, ("3 entities", "0 refused")),
    "two of ten failed over": (
        lambda made: made.snapshot(
            *ten(made, 8, 10, first_failure_at=made.at("14:00:28"), refused=19),
            parked=ParkedView(messages=1_204, read_at=made.AT, known=10, queues=10),
        ),
        Level.WRONG,
        ("1m43s", "2 of 10", "14:00:28", "38 errors", "in 52 s", "1 accepted", "1,204 parked"),
    ),
    "total loss": (
        total_loss,
        Level.LOST,
        ("56/s", "1m42s", "5,658", "14:00:20", "all 10", "14:00:29", "paired check", "REFUSED"),
    ),
    "a closed backlog": (
        lambda made: total_loss(
            made, refused=0, refused_per_second=0.0, refused_since=None, refusals=(), route="backlog"
        ),
        Level.LOST,
        ("NO SEND", "all 3"),
    ),
    "errors before a failover": (
        lambda made: made.snapshot(_suspect(made), made.entity("audit")),
        Level.LOST,
        ("2.6/s", "12 s", "31 errors", "14:01:59", "in 48 s", "nothing yet"),
    ),
    "one message is too large": (
        lambda made: made.snapshot(
            made.entity(
                "orders", refused=1, refused_per_second=0.1, refused_since=made.AT, refusals=(("too large", 1),)
            )
        ),
        Level.NOTABLE,
        ("0.1/s", "too large"),
    ),
    "three alarms in an outage": (
        lambda made: made.snapshot(
            *ten(made, 8, 10), readiness=obstacle(made.AT, FULL), troubles=remarks("b", "c")
        ),
        Level.WRONG,
        ("2 of 10", "check the network", "2 more", "queue 3"),
    ),
    "not ready": (_not_ready, Level.WRONG, ("not ready", "the network")),
    "not ready, and its queue is named": (
        lambda made: made.snapshot(readiness=obstacle(made.AT, FULL)), Level.WRONG, ("queue 3",)
    ),
    "more failed than fit": (
        lambda made: made.snapshot(
            *(made.failed_over(name) for name in ("payments", "stock-audit-01", "crm-outbound-02")),
            *(made.entity(f"e{number}") for number in range(7)),
        ),
        Level.WRONG,
        ("3 of 10", "1 more"),
    ),
    "a deleted entity": (
        lambda made: made.snapshot(
            made.failed_over("orders", last_ping_text="entity not found", missing_since=made.at("14:02:03"))
        ),
        Level.WRONG,
        ("entity not found", "created again", "nothing sends to it", "do: create again", "orders"),
    ),
    "a stuck syphon": (
        lambda made: made.snapshot(syphon=made.syphon(SyphonStatus.STUCK, text="nothing moves")), Level.WRONG, ()
    ),
    "a paused syphon": (
        lambda made: made.snapshot(syphon=made.syphon(SyphonStatus.PAUSED, text="paused by kim")),
        Level.NOTABLE,
        (f"syphon ({BY_ID['resume-syphon'].key})",),
    ),
    "forced": (
        lambda made: made.snapshot(made.entity("a", State.FORCED)), Level.NOTABLE, (RELEASE,)
    ),
    "pinned": (
        lambda made: made.snapshot(made.entity("a", State.PINNED)), Level.NOTABLE, (RELEASE,)
    ),
    "a pulled queue": (_pulled, Level.NOTABLE, ("1 of 10", "full")),
    "stranded messages": (
        lambda made: made.snapshot(unused=made.unused()), Level.NOTABLE, ("3 messages", "queue 12", "page 3 M")
    ),
    "depths are not read": (lambda made: _unread(made, 0), Level.WELL, ("unknown",)),
    "depths are read in part": (lambda made: _unread(made, 4), Level.WELL, ("4 of 10",)),
    "depths are not read, and the engine diverted some": (
        lambda made: _unread(made, 0, parked=ParkedView(messages=14, read_at=None, known=0, queues=10)),
        Level.WELL,
        ("least 14",),
    ),
    "the age of the oldest message, and the room left": (
        _old_age, Level.WRONG, ("1m02s", "16h40m", "nothing now")
    ),
    "nothing is known of the backlog": (lambda made: made.snapshot(*ten(made, 8)), Level.WRONG, ("nothing now",)),
}  # fmt: skip


@pytest.mark.parametrize("name", VERDICTS)
def test_a_verdict_has_its_level_and_its_figures(made: Any, approve: Approve, name: str) -> None:
    make, level, figures = VERDICTS[name]
    said = summary(view_of(make(made)))
    assert said.level is level
    assert [figure for figure in figures if figure not in "\n".join((said.text, *rows(make(made))))] == []
    approve.part(f"{said.glyph} " + "\n  ".join(rows(make(made))), "verdicts", name)


def test_an_engine_that_is_not_heard_is_never_green(made: Any, approve: Approve) -> None:
    """Section 12: "what nobody here can know is "unknown", never "none" or "healthy""."""
    lost = apply_news(view_of(made.outage()), Unreachable(made.AT + 4, "the engine ended"))
    silent = apply_news(view_of(made.snapshot()), Silent(made.AT))
    never = apply_news(View(pairing="orders"), Unreachable(made.AT, "no engine answers"))
    views = (lost, silent, never, View(pairing="orders"))
    texts = [summary(replace(view, clock=made.AT + 18)) for view in views]
    assert [said.level for said in texts] == [Level.BLIND, Level.BLIND, Level.NOTABLE, Level.NOTABLE]
    assert "14 s" in texts[0].text
    assert "18 s" in texts[1].text
    approve.part("\n\n".join("\n".join(text for text, _ in said.lines(120, 4)) for said in texts), "verdicts")


# -- Numbers and times in a known number of cells.


@pytest.mark.parametrize(
    ("number", "width", "shown"),
    [
        (None, 5, "–"),
        (0, 5, "0"),
        (1_204, 5, "1,204"),
        (12_345, 5, "12.3k"),
        (999_999, 5, "1000k"),
        (1_250_000, 5, "1.2M"),
        (1_250_000, 9, "1,250,000"),
    ],
)
def test_a_count_is_in_full_where_it_fits(number: int | None, width: int, shown: str) -> None:
    assert number_format.short_count(number, width) == shown


@given(st.integers(min_value=0, max_value=10**14))
def test_a_short_count_fits_a_column(number: int) -> None:
    assert len(number_format.short_count(number, 5)) <= 5


@pytest.mark.parametrize(("value", "shown"), [(0, "0"), (0.04, "0"), (0.4, "0.4"), (9.97, "10"), (1204.4, "1,204")])
def test_a_trickle_is_told_from_nothing(value: float, shown: str) -> None:
    assert number_format.rate(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (1.25, "1.2 s"), (13, "13 s"), (192, "3 min 12 s"), (3600, "1 h"), (7384, "2 h 3 min")],
)
def test_durations_name_their_two_largest_units(seconds: float, shown: str) -> None:
    assert number_format.duration(seconds) == shown


def test_a_time_older_than_a_day_is_a_day() -> None:
    now = 1_795_183_331.0  # 2026-11-20 14:02:11 UTC
    assert number_format.time_or_day(now - 60, now) == "14:01:11"
    assert number_format.time_or_day(now - 2 * number_format.DAY, now) == "18 Nov"
    assert number_format.time_or_day(None, now) == number_format.NOT_KNOWN


def test_a_sparkline_tells_nothing_known_nothing_moved_and_a_little_moved_apart() -> None:
    assert sparkline([], 4) == "    "
    assert sparkline([0, 0], 4) == f"  {BARS[0]}{BARS[0]}"
    assert sparkline([0, 0.1, 100], 3) == f"{BARS[0]}{BARS[1]}{BARS[-1]}"


@given(st.lists(st.floats(min_value=0, max_value=1e9), max_size=80), st.integers(min_value=0, max_value=60))
def test_a_sparkline_fills_its_cells(values: list[float], width: int) -> None:
    assert len(sparkline(values, width)) == width


# -- Every journalled kind has its sentence, and the log holds what a person reads.


def made_up(kind: type[e.Event]) -> e.Event:
    """An event of the kind with a telling value in every field."""
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for number, field in enumerate(fields(kind), start=3):
        values[field.name] = {str: f"<{field.name}>", bool: True, int: number, float: float(number)}.get(
            hints[field.name], f"<{field.name}>"
        )
    return kind(**values)


SHOWN = {name: kind for name, kind in KINDS.items() if has_sentence(made_up(kind))}


def test_receipts_counts_and_repetitions_of_another_event_have_no_sentence(made: Any) -> None:
    silent = {
        "ping-sent", "sends", "diverted", "delivered", "in-doubt", "moved", "refused", "received", "failures",
        "operations", "queue-read", "forced", "pinned", "released",
    }  # fmt: skip
    assert KINDS.keys() - SHOWN.keys() == silent
    records = [made.record(made_up(KINDS[name]), seq) for seq, name in enumerate(silent, start=1)]
    assert log_entries.append((), records) == ()


@pytest.mark.parametrize("kind", SHOWN.values(), ids=SHOWN)
def test_every_other_kind_has_a_sentence_that_says_whom_and_what(kind: type[e.Event]) -> None:
    event = made_up(kind)
    said = sentence(event)
    assert said.subject.strip()
    assert said.text.strip()
    assert event_role(event) in Role
    for name in {"entity", "reason", "why", "by", "outcome", "text", "about", "message_id"}:
        if hasattr(event, name):
            assert f"<{name}>" in str(said), f"{kind.kind} does not say its {name}"


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"queue": 3}, "backlog/3: paused by ada"),
        ({"destination": "payments"}, "payments: paused by ada"),
        ({}, "paused by ada"),
    ],
)
def test_a_pause_says_of_what(part: dict[str, Any], said: str) -> None:
    assert sentence(e.SyphonPaused(at=1.0, by="ada", **part)).text == said


def test_a_change_of_state_is_as_loud_as_the_state(made: Any) -> None:
    changed = e.StateChanged(at=made.AT, entity="payments", was="suspect", now="failed over", why="silence")
    assert event_role(changed) is Role.FAILED_OVER


def test_who_did_it_is_said_once(made: Any) -> None:
    event = e.StateChanged(at=made.AT, entity="a", was="healthy", now="forced", why="forced by kim 13:40:00", by="kim")
    assert str(sentence(event)).count("kim") == 1


def test_an_outcome_of_another_boot_is_not_taken_for_this_ones(made: Any) -> None:
    act = made.record(e.Commanded(at=made.AT, command="force", target="payments", by="kim"), 7, boot="b1")
    end = made.record(e.CommandEnded(at=made.AT, command_seq=7, outcome="done"), 9, boot="b2")
    assert "done" not in str(log_entries.append((), [act, end])[0].sentence)


def test_the_log_is_bounded_and_says_what_is_missing(made: Any) -> None:
    many = [
        made.record(e.Warned(at=made.AT, about="a", text=str(n)), n + 1) for n in range(log_entries.MAX_ENTRIES + 50)
    ]
    entries = log_entries.append((), many)
    assert len(entries) == log_entries.MAX_ENTRIES
    assert "12 events" in log_entries.append_missed(entries, 12, at=made.AT)[-1].text


def test_the_log_is_as_approved(made: Any, approve: Approve) -> None:
    """One sentence of each kind; the same one again is counted, and an act has its outcome in its line."""
    stuck = [e.DeadLettered(at=made.AT + n, entity="orders", message_id=f"m{n}", queue=3, reason="x") for n in range(3)]
    act = made.record(e.Commanded(at=made.AT, command="force", target="payments", by="kim", why="works"), 7)
    other = made.record(e.Warned(at=made.AT, about="audit", text="something"), 8)
    end = made.record(e.CommandEnded(at=made.AT, command_seq=7, outcome="payments is forced"), 9)
    folded = log_entries.append((), [made.record(event, seq) for seq, event in enumerate(stuck, start=1)])
    answered = log_entries.append(log_entries.append((), [act, other]), [end])
    assert (len(folded), folded[0].at, len(answered)) == (1, made.AT + 2, 2)
    kinds = (f"{kind}: {sentence(made_up(event))}" for kind, event in sorted(SHOWN.items()))
    approve(
        "\n".join((*(f"{entry.sentence.subject} {entry.text}" for entry in (*folded, *answered)), "", *kinds)),
        "sentences of events",
    )
