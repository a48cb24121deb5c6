"""The first lines answer what is wrong, since when, why, whether callers fail, whether it heals, and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len

from paired_servicebus.core.backlog.backlog_totals import empty_at, sum_backlog
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetEntity
from paired_servicebus.core.model.snapshot import (
    Finding,
    FindingVerdict,
    OldestView,
    ParkedView,
    Readiness,
    SyphonStatus,
)
from paired_servicebus.core.operator.actions import BY_ID
from paired_servicebus.ui.render.spans import name_list, pack, shortenable
from paired_servicebus.ui.state.summary import Level, summary
from paired_servicebus.ui.state.view import Page, Silent, Unreachable, View, apply_news
from tests import fleet_views


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
    alarm = "not ready to fail over: the secondary namespace does not answer: connection lost; check the network"
    return made.snapshot(*entities, queues=queues, alarms=("sends are refused: 56/s at callers", alarm))


def test_before_the_first_snapshot_it_says_what_it_waits_for() -> None:
    said = summary(View(pairing="orders"))
    assert (said.level, said.text) == (Level.NOTABLE, "connecting to the engine of orders")


def test_an_engine_that_was_never_reached_is_looked_for(made: Any) -> None:
    said = summary(apply_news(View(pairing="orders"), Unreachable(made.AT, "no engine answers")))
    assert (said.level, said.text) == (Level.NOTABLE, "no engine of orders yet, retrying since 14:02:11")


def test_all_well(made: Any) -> None:
    said = summary(view_of(made.snapshot()))
    assert (said.level, said.glyph) == (Level.WELL, "●")
    assert rows(made.snapshot()) == [
        "all 3 entities healthy · nothing parked · syphon idle",
        "callers ok: 0 refused",
        "nothing to do",
    ]


def test_an_outage_answers_the_six_questions_in_four_lines(made: Any) -> None:
    entities = ten(made, 8, 10, first_failure_at=made.at("14:00:28"), refused=19)
    assert summary(view_of(made.snapshot(*entities))).level is Level.WRONG
    assert rows(made.snapshot(*entities, parked=ParkedView(messages=1_204, read_at=made.AT, known=10, queues=10))) == [
        "OUTAGE for 1m43s: 2 of 10 failed over: webhooks and stock",
        "first failure 14:00:28: timeout · callers ok: 0 refused now, 38 errors before",
        "heals itself: next ping in 52 s, home after 1 accepted · 1,204 parked",
        "do: nothing now",
    ]


def test_total_loss_goes_before_everything_else(made: Any) -> None:
    """Errors at callers are what an outage costs; "failed over" would read as protection."""
    said = summary(view_of(total_loss(made)))
    assert (said.level, said.glyph) == (Level.LOST, "✗")
    first, why, heals, do = rows(total_loss(made))
    assert first == "SENDS ARE BEING REFUSED: 56/s for 1m42s, 5,658 at callers, all 3 entities"
    assert why == "primary: timeout since 14:00:20 · all 10 backlog queues refuse since 14:00:29"
    assert heals.startswith("heals itself")
    assert do.startswith("do: check contoso-backup from here (paired check)")
    assert "all 3 entities failed over" in "".join(rows(total_loss(made), width=300))


def test_an_engine_that_counts_no_refusals_shows_a_closed_backlog_as_loss(made: Any) -> None:
    """One of an older release tells neither refusals nor a route that leads nowhere."""
    silent = {"refused": 0, "refused_per_second": 0.0, "refused_since": None, "refusals": (), "route": "backlog"}
    said = summary(view_of(total_loss(made, **silent)))
    assert said.level is Level.LOST
    assert said.text.startswith("NO SEND CAN BE ACCEPTED: no namespace accepts all 3 entities")


def test_errors_before_a_failover_are_said_with_the_time_until_it(made: Any) -> None:
    suspect = made.entity(
        "orders",
        State.SUSPECT,
        since=made.AT - 12,
        why="timeout 14:01:59; fails over at 14:02:59 unless a send succeeds",
        fails_over_at=made.AT + 48,
        refused=31,
        refused_per_second=2.6,
        refused_since=made.AT - 12,
        first_failure_at=made.AT - 12,
    )
    first, why, heals, do = rows(made.snapshot(suspect, made.entity("audit")))
    assert first == "SENDS ARE BEING REFUSED: 2.6/s for 12 s, 31 errors at callers, orders"
    assert why.startswith("primary: timeout since 14:01:59")
    assert heals.startswith("fails over in 48 s unless a send succeeds")
    assert do.startswith("do: nothing yet")


def test_single_refused_messages_are_no_loss(made: Any) -> None:
    """A message that is too large is its sender's affair; the others pass."""
    entity = made.entity(
        "orders", refused=1, refused_per_second=0.1, refused_since=made.AT, refusals=(("too large", 1),)
    )
    said = summary(view_of(made.snapshot(entity)))
    assert (said.level, said.glyph) == (Level.NOTABLE, "!")
    assert "callers: 0.1/s fail for 0 s, 1 total: too large" in said.text


def test_a_readiness_alarm_hides_no_state(made: Any) -> None:
    alarm = "not ready to fail over: the secondary namespace does not answer: connection lost; check the network, and"
    snapshot = made.snapshot(*ten(made, 8, 10), alarms=(alarm, "b", "c"))
    first, *_, last = rows(snapshot)
    assert first.startswith("OUTAGE for 13 s: 2 of 10 failed over: webhooks and stock")
    assert last.startswith("do: nothing now · ! backlog not usable: ")
    assert last.endswith("… (and 2 more alarms)")


def test_what_is_not_ready_is_what_to_do(made: Any) -> None:
    found = Finding(
        what="secondary reachable", verdict=FindingVerdict.NO, evidence="no answer", todo="check the network"
    )
    snapshot = made.snapshot(alarms=("not ready",), readiness=Readiness(at=made.AT, findings=(found,)))
    assert rows(snapshot)[1] == "! not ready"
    assert rows(snapshot)[-1] == "do: check the network"


@pytest.mark.parametrize("width", range(57, 141, 7))
def test_names_are_cut_by_name_and_never_the_sentence(made: Any, width: int) -> None:
    long = "a-very-long-entity-name-for-the-warehouse-stock-levels-emea-production"
    entities = [made.failed_over(name) for name in (long, "payments", "stock-audit-01", "b", "c")]
    first = rows(made.snapshot(*entities, made.entity("fine")), width=width)[0]
    assert first.startswith("OUTAGE for 13 s: 5 of 6 failed over")
    assert cell_len(first) <= width
    assert first.endswith(("more", "failed over")) or first.count(",") + 2 == 5, first


def test_more_than_fit_are_counted(made: Any) -> None:
    entities = [made.failed_over(name) for name in ("payments", "stock-audit-01", "crm-outbound-02")]
    text = rows(made.snapshot(*entities, *(made.entity(f"e{number}") for number in range(7))))[0]
    assert text == "OUTAGE for 13 s: 3 of 10 failed over: payments, stock-audit-01 and 1 more"


def test_parts_are_shortened_from_the_last_one_on() -> None:
    parts = (("all of the first", "first"), shortenable("a stranger's long reason", least=4), ("last", ""))
    assert pack(parts, 60) == "all of the first · a stranger's long reason · last"
    assert pack(parts, 45) == "all of the first · a stranger's long reason"
    assert pack(parts, 30) == "all of the first · a stran…"
    assert pack(parts, 12) == "first · a s…" or cell_len(pack(parts, 12)) <= 12
    assert pack((name_list(["x" * 80, "y"]),), 30).endswith("… and 1 more")


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


def test_a_stuck_syphon_is_wrong_and_a_paused_one_notable(made: Any) -> None:
    stuck = made.snapshot(syphon=made.syphon(SyphonStatus.STUCK, text="nothing moves"))
    paused = made.snapshot(syphon=made.syphon(SyphonStatus.PAUSED, text="paused by kim"))
    assert summary(view_of(stuck)).level is Level.WRONG
    assert summary(view_of(paused)).level is Level.NOTABLE
    assert f"do: resume the syphon ({BY_ID['resume-syphon'].key})" in summary(view_of(paused)).text


@pytest.mark.parametrize("state", [State.FORCED, State.PINNED])
def test_the_key_to_release_is_the_one_of_the_order(made: Any, state: State) -> None:
    assert f"do: release ({BY_ID['release'].key}) when" in summary(view_of(made.snapshot(made.entity("a", state)))).text


def test_a_pulled_queue_is_notable_and_said(made: Any) -> None:
    queues = (replace(made.queues()[0], in_rotation=False, pulled_reason="full"), *made.queues()[1:])
    assert summary(view_of(made.snapshot(queues=queues))).level is Level.NOTABLE
    assert "1 of 10 backlog queues refuse (full)" in summary(view_of(made.snapshot(queues=queues))).text


def test_stranded_messages_are_never_green(made: Any) -> None:
    said = summary(view_of(made.snapshot(unused=made.unused())))
    assert (said.level, said.glyph) == (Level.NOTABLE, "!")
    first, *_, do = rows(made.snapshot(unused=made.unused()))
    assert "3 messages stranded in unused queue 12 (page 3)" in first
    assert do == "do: move stranded messages (page 3, M)"


def test_where_the_engine_has_an_alarm_for_stranded_messages_its_words_are_used(made: Any) -> None:
    text = summary(view_of(made.snapshot(unused=made.unused(), alarms=("3 messages are stranded in 12",)))).text
    assert text.count("stranded in") == 1


def test_an_unreachable_engine_is_never_green_and_what_was_last_known_stays(made: Any) -> None:
    lost = apply_news(view_of(made.outage()), Unreachable(made.AT + 4, "the engine ended"))
    said = summary(replace(lost, clock=made.AT + 18))
    assert said.level is Level.BLIND
    first, last, *_ = (text for text, _ in said.lines(120, 4))
    assert first == "engine unreachable since 14:02:15 (14 s): the engine ended; figures from 14:02:11"
    assert last.startswith("last known: ▲ · OUTAGE for 13 s: 1 of 3 failed over: payments")


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


def test_an_engine_that_is_not_ready_after_a_failover_has_an_unusable_backlog(made: Any) -> None:
    alarm = "not ready to fail over: backlog queue 3 is full; make room"
    well = summary(view_of(made.snapshot(alarms=(alarm,)))).text
    assert "! not ready to fail over: backlog queue 3 is full" in well
    over = summary(view_of(made.outage(alarms=(alarm,)))).text
    assert "! backlog not usable: backlog queue 3 is full" in over
    assert "not ready to fail over" not in over


def test_a_silent_engine_is_said_to_be(made: Any) -> None:
    view = apply_news(view_of(made.snapshot()), Silent(made.AT))
    said = summary(replace(view, clock=made.AT + 14))
    assert said.level is Level.BLIND
    assert said.text.startswith("engine silent for 14 s (connected); figures from 14:02:11")


def test_what_is_not_known_is_not_zero(made: Any) -> None:
    unread = tuple(replace(queue, depth=None, read_at=None) for queue in made.queues())
    assert "parked messages unknown" in summary(view_of(made.snapshot(queues=unread))).text
    half = (*made.queues()[:4], *unread[4:])
    assert "nothing parked in 4 of 10 queues" in summary(view_of(made.snapshot(queues=half))).text


def test_an_old_depth_says_how_old_it_is(made: Any) -> None:
    old = tuple(replace(queue, read_at=made.at("14:01:00")) for queue in made.queues({1: 7}))
    snapshot = made.snapshot(queues=old)
    assert sum_backlog(snapshot).old
    assert "7 parked, 1m11s old" in summary(view_of(snapshot)).text


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
    assert "40 parked · syphon running, empty in 4 s" in summary(view_of(snapshot)).text


def test_what_was_never_read_is_at_least_what_the_engine_diverted(made: Any) -> None:
    """Unknown when never read and nothing known."""
    unread = tuple(replace(queue, depth=None, read_at=None) for queue in made.queues())
    least = ParkedView(messages=14, read_at=None, known=0, queues=10)
    assert "at least 14 parked" in summary(view_of(made.snapshot(queues=unread, parked=least))).text


def test_without_draining_the_engine_tells_no_end_and_none_is_made_up(made: Any) -> None:
    """Seen: an hour later, from the average of 10 s that include the idle ones, over an old depth."""
    told = ParkedView(messages=40, read_at=made.AT - 3, known=10, queues=10)
    moving = made.syphon(SyphonStatus.RUNNING, text="moving", per_second=20.0, history=(20.0,) * 60)
    snapshot = made.snapshot(queues=made.queues({1: 767}), parked=told, syphon=moving)
    assert empty_at(snapshot) is None
    assert "syphon running" in summary(view_of(snapshot)).text
    assert "empty" not in summary(view_of(snapshot)).text


def test_a_time_of_emptiness_is_said_only_where_it_is_no_guess(made: Any) -> None:
    draining = made.snapshot(
        queues=made.queues({1: 200}),
        syphon=made.syphon(SyphonStatus.RUNNING, text="moving", per_second=20.0, history=(20.0,) * 60),
    )
    assert empty_at(draining) == made.at("14:02:10") + 10
    assert "syphon running, empty in 9 s" in summary(view_of(draining)).text
    assert empty_at(replace(draining, entities=(made.failed_over("a"),))) is None
    assert empty_at(replace(draining, queues=made.queues())) is None
    assert empty_at(replace(draining, syphon=made.syphon(SyphonStatus.RUNNING, text=""))) is None


def test_the_last_line_has_the_age_of_the_oldest_message_and_the_room_left(made: Any) -> None:
    queues = list(made.queues({3: 1_204}))
    queues[3] = replace(
        queues[3],
        size_bytes=1_000_000,
        bytes_growth=1_000.0,
        limit_bytes=61_000_000,
        oldest=OldestView(enqueued_at=made.AT - 62),
    )
    last = rows(made.snapshot(*ten(made, 8), queues=tuple(queues)))[3]
    assert last == "do: nothing now · oldest parked 1m02s · full in 16h40m"


def test_what_is_unknown_about_the_backlog_is_not_in_the_last_line(made: Any) -> None:
    assert rows(made.snapshot(*ten(made, 8)))[3] == "do: nothing now"


@pytest.mark.parametrize(("page", "todo"), [(Page.PAIRING, "see every engine (7)"), (Page.ENGINES, "start with the")])
def test_the_page_of_engines_is_not_told_to_open_itself(made: Any, page: Page, todo: str) -> None:
    fleet = fleet_views.outage(orders=())
    text = summary(replace(view_of(made.snapshot(fleet=fleet)), page=page)).text
    assert f"do: {todo}" in text
    assert (text.count("(7)") == 1) == (page is Page.PAIRING)


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
    snapshot = made.snapshot(made.entity("orders"), made.entity("audit"), fleet=fleet)
    assert [one.path for one in view_of(snapshot).listed] == ["audit", "orders"]
