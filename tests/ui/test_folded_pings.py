"""The pings of an outage are counted on the change they belong to; `P` lists each."""

from __future__ import annotations

from typing import Any

import pytest

from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.ui.state import log_entries
from paired_servicebus.ui.state.log_entries import Log, Pings
from paired_servicebus.ui.state.view import Records

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
