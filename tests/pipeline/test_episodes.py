"""Episodes: one per failover, whatever the order in which its rows come, and however they are cut into batches."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from paired_servicebus.pipeline.ingest.episodes import HORIZON, WITHDRAWN, EpisodeHistory, as_row
from paired_servicebus.pipeline.table_store.schema import EPISODES
from tests.pipeline.rows import SECOND, T0, Row, Told, outage


def told(rows: list[Row], *, batches: int = 1) -> dict[str, dict[str, Any]]:
    """The episodes after all rows, in so many batches; each batch knows what the one before left, and no more."""
    text: str | None = None
    kept: dict[str, dict[str, Any]] = {}
    size = max(1, -(-len(rows) // batches))
    for start in range(0, len(rows), size):
        history = EpisodeHistory(text)
        history.add(rows[start : start + size])
        text = history.text()
        for name, episode in history.episodes.items():
            if name not in kept or episode["version"] >= kept[name]["version"]:
                kept[name] = as_row(episode, EPISODES)
    return {name: episode for name, episode in kept.items() if episode["outcome"] != WITHDRAWN}


def the_one(rows: list[Row], **how: int) -> dict[str, Any]:
    (episode,) = told(rows, **how).values()
    return episode


def seconds(episode: dict[str, Any], *names: str) -> list[float | None]:
    return [None if episode[f"{name}_ts"] is None else (episode[f"{name}_ts"] - T0) / SECOND for name in names]


def test_an_outage_from_its_first_failure_to_the_empty_backlog() -> None:
    episode = the_one(outage())
    times = seconds(episode, "suspected", "failed_over", "first_ping", "failed_back", "backlog_empty")
    assert times == [0, 1, 20, 20, 40]
    assert (episode["pings_sent"], episode["pings_accepted"], episode["pings_failed"]) == (2, 1, 1)
    assert (episode["parked"], episode["moved"], episode["dead_lettered"]) == (30, 29, 1)
    assert (episode["outcome"], episode["forced"], episode["late"]) == ("failed back", False, 0)
    assert episode["cause"] == 'no send accepted for 1 s after "timeout"'
    assert episode["why_back"] == "a ping was accepted"


@pytest.mark.parametrize("batches", [2, 3, 11])
def test_batches_make_no_difference(batches: int) -> None:
    whole, cut = the_one(outage()), the_one(outage(), batches=batches)
    assert {**cut, "version": 0} == {**whole, "version": 0}


@pytest.mark.parametrize("seed", range(10))
def test_the_order_of_arrival_makes_no_difference(seed: int) -> None:
    mixed = outage()
    random.Random(seed).shuffle(mixed)
    assert {**the_one(mixed, batches=4), "version": 0} == {**the_one(outage()), "version": 0}


def test_rows_that_come_too_late_are_counted_and_break_nothing() -> None:
    later = Told(boot="b2")
    rows = [
        *outage(),
        later.ping(HORIZON / SECOND + 100, "sent"),
        later.changed(HORIZON / SECOND + 200, "healthy", "suspect"),
    ]
    episodes = told([*rows, Told().ping(15, "failed")], batches=len(rows) + 1)
    assert len(episodes) == 2
    assert [one["late"] for one in episodes.values()] == [0, 1]


def test_a_suspicion_that_passes_is_no_failover() -> None:
    it = Told()
    episode = the_one([it.changed(0, "healthy", "suspect"), it.changed(2, "suspect", "healthy", "a send was accepted")])
    assert episode["outcome"] == "recovered"
    assert seconds(episode, "failed_over", "failed_back", "backlog_empty") == [None, None, None]


def test_nothing_parked_is_an_empty_backlog_at_once() -> None:
    rows = [row for row in outage() if row["kind"] != "tally"]
    assert seconds(the_one(rows), "failed_back", "backlog_empty") == [20, 20]


def test_an_episode_goes_on_until_it_is_over() -> None:
    episode = the_one(outage()[:5])
    assert episode["outcome"] == "open"
    assert seconds(episode, "failed_back") == [None]


def test_an_operators_acts_belong_to_their_episode() -> None:
    it = Told()
    rows = [
        it.act(0, "forced", "ada", "rehearsal"),
        it.changed(0.001, "healthy", "forced"),
        it.act(60, "released", "bob", "done"),
        it.changed(60.001, "forced", "healthy"),
    ]
    episode = the_one(rows)
    assert episode["forced"]
    assert [(act["what"], act["by"], act["why"]) for act in json.loads(episode["acts"])] == [
        ("forced", "ada", "rehearsal"),
        ("released", "bob", "done"),
    ]


def test_a_killed_engines_episode_ends_when_it_starts_again() -> None:
    it = Told()
    rows = [
        it.changed(0, "healthy", "suspect"),
        it.changed(1, "suspect", "failed over"),
        it.engine(30, "started", "b2"),
    ]
    assert the_one(rows)["outcome"] == "engine ended"


def test_engines_fail_over_each_by_itself_and_share_the_backlog() -> None:
    """The syphon of one moves what the other has parked."""
    one, other = Told("e1"), Told("e2")
    rows = [
        one.changed(0, "healthy", "failed over"),
        other.changed(1, "healthy", "failed over"),
        one.tally(2, "diverted", 5),
        other.tally(3, "diverted", 7),
        one.changed(10, "failed over", "healthy"),
        other.changed(11, "failed over", "healthy"),
        one.tally(20, "moved", 12),
    ]
    episodes = told(rows)
    assert sorted((e["engine"], e["parked"]) for e in episodes.values()) == [("e1", 5), ("e2", 7)]
    assert {(e["backlog_empty_ts"] - T0) / SECOND for e in episodes.values()} == {20}


def test_every_failover_is_an_episode_of_its_own() -> None:
    it = Told()
    second = [{**row, "ts": row["ts"] + 100 * SECOND} for row in outage(it)]
    assert len(told([*outage(it), *second], batches=5)) == 2


def test_what_is_kept_does_not_grow_with_history() -> None:
    it = Told()
    text, sizes = None, []
    for hour in range(6):
        history = EpisodeHistory(text)
        history.add({**row, "ts": row["ts"] + hour * 3600 * SECOND} for row in outage(it))
        text = history.text()
        sizes.append(len(text))
    assert sizes[-1] <= sizes[1] * 1.1
