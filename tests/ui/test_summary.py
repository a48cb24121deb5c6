"""One sentence says whether anything is wrong, the worst first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from console.core.entity import State
from console.core.snapshot import SyphonStatus
from console.ui.summary import Level, empty_at, parked, summary
from console.ui.view import Silent, Unreachable, View, told


def view_of(snapshot: Any) -> View:
    return told(View(pairing="orders"), snapshot)


def test_before_the_first_snapshot_it_says_what_it_waits_for() -> None:
    said = summary(View(pairing="orders"))
    assert (said.level, said.text) == (Level.NOTABLE, "connecting to the engine of orders")


def test_an_engine_that_was_never_reached_is_looked_for(made: Any) -> None:
    said = summary(told(View(pairing="orders"), Unreachable(made.AT, "no engine answers")))
    assert (said.level, said.text) == (Level.NOTABLE, "no engine of orders yet, looked for since 14:02:11")


def test_all_well(made: Any) -> None:
    said = summary(view_of(made.snapshot()))
    assert (said.level, said.glyph) == (Level.WELL, "●")
    assert said.text == "all 3 entities healthy · nothing parked · syphon idle"


def test_a_failed_over_entity_is_named(made: Any) -> None:
    said = summary(view_of(made.outage()))
    assert (said.level, said.glyph) == (Level.WRONG, "▲")
    assert said.text == "payments failed over · 1,221 parked · syphon running"


def test_the_worst_state_comes_first_and_many_are_counted(made: Any) -> None:
    entities = [made.failed_over(f"e{n}") for n in range(3)] + [made.forced("held"), made.entity("fine")]
    text = summary(view_of(made.snapshot(*entities))).text
    assert text.startswith("3 of 5 entities failed over · held forced · ")


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


def test_an_alarm_comes_before_everything_and_the_others_are_counted(made: Any) -> None:
    said = summary(view_of(made.snapshot(alarms=("1,204 messages parked and no syphon known to run", "b", "c"))))
    assert said.level is Level.WRONG
    assert said.text.startswith("1,204 messages parked and no syphon known to run (and 2 more alarms) · ")


def test_a_stuck_syphon_is_wrong_and_a_paused_one_notable(made: Any) -> None:
    stuck = made.snapshot(syphon=made.syphon(SyphonStatus.STUCK, text="nothing moves"))
    paused = made.snapshot(syphon=made.syphon(SyphonStatus.PAUSED, text="paused by kim"))
    assert summary(view_of(stuck)).level is Level.WRONG
    assert summary(view_of(paused)).level is Level.NOTABLE


def test_a_pulled_queue_is_notable(made: Any) -> None:
    queues = (replace(made.queues()[0], in_rotation=False), *made.queues()[1:])
    assert summary(view_of(made.snapshot(queues=queues))).level is Level.NOTABLE


def test_an_unreachable_engine_is_never_green(made: Any) -> None:
    lost = told(view_of(made.snapshot()), Unreachable(made.AT + 4, "the engine ended"))
    said = summary(lost)
    assert said.level is Level.BLIND
    assert said.text == "engine unreachable since 14:02:15: the engine ended; figures are of 14:02:11"


def test_a_silent_engine_is_said_to_be(made: Any) -> None:
    said = summary(told(view_of(made.snapshot()), Silent(made.AT)))
    assert said.level is Level.BLIND
    assert said.text.startswith("no news from the engine since 14:02:11: it is connected and says nothing; figures")


def test_what_is_not_known_is_not_zero(made: Any) -> None:
    unread = tuple(replace(queue, depth=None, read_at=None) for queue in made.queues())
    assert "parked messages not known" in summary(view_of(made.snapshot(queues=unread))).text
    half = (*made.queues()[:4], *unread[4:])
    assert "nothing parked in 4 of 10 queues" in summary(view_of(made.snapshot(queues=half))).text


def test_an_old_depth_says_when_it_was_read(made: Any) -> None:
    old = tuple(replace(queue, read_at=made.at("14:01:00")) for queue in made.queues({1: 7}))
    snapshot = made.snapshot(queues=old)
    assert parked(snapshot).old
    assert "7 parked at 14:01:00" in summary(view_of(snapshot)).text


def test_a_depth_read_more_seldom_gets_old_later(made: Any) -> None:
    slow = tuple(replace(queue, read_at=made.at("14:01:00"), read_every=60.0) for queue in made.queues({1: 7}))
    assert not parked(made.snapshot(queues=slow)).old


def test_a_time_of_emptiness_is_said_only_where_it_is_no_guess(made: Any) -> None:
    draining = made.snapshot(
        queues=made.queues({1: 200}),
        syphon=made.syphon(SyphonStatus.RUNNING, text="moving", per_second=20.0, history=(20.0,) * 60),
    )
    assert empty_at(draining) == made.at("14:02:10") + 10
    assert "syphon running, empty about 14:02:20" in summary(view_of(draining)).text
    assert empty_at(replace(draining, entities=(made.failed_over("a"),))) is None
    assert empty_at(replace(draining, queues=made.queues())) is None
    assert empty_at(replace(draining, syphon=made.syphon(SyphonStatus.RUNNING, text=""))) is None
