"""For each of the demo's scenarios: the words that answer a person who just sat down in front of the screen.

The table is written from the scripts, at a moment while the fault is on. Every word has to be on the screen at both
sizes, and what an answer must never be there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

import pytest

from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.demo.scenarios import SCENARIOS, scenario_named
from paired_servicebus.ui.state.summary import summary
from paired_servicebus.ui.state.view import View, apply_news
from tests import gateway_views

from .conftest import AT, MadeUp, screens
from .scripted import snapshot_of


class Words(NamedTuple):
    """What has to be read, at `share` of the duration; "…" is where sizes differ."""

    share: float
    wrong: str
    since: str
    why: str
    callers: str
    heals: str
    do: str
    never: str = "– never –"


ALL_OVER = "3 entities failed over"
PING = "next ping in 1 s, home after 1 accepted"
OK = "{} errors before"
NOTHING = "do: nothing now"
ALL_REFUSE = "all 5 backlog queues refuse since 14:02:03"
EITHER = "callers own the messages … when either namespace answers"
CHECK = "do: check contoso-backup from here (paired check)"

WORDS: dict[str, Words] = {
    "datacenter-outage": Words(
        0.45, ALL_OVER, "OUTAGE for 17 s", "first failure 14:01:54: timeout", OK.format(108), PING, NOTHING
    ),
    "node-outage": Words(
        0.45,
        "1 of 3 failed over: orders",
        "OUTAGE for 17 s",
        "first failure 14:01:54: connection refused",
        OK.format(36),
        PING,
        NOTHING,
    ),
    "throttling": Words(
        0.45,
        "all 3 entities healthy",
        "healthy",
        "server busy",
        "callers ok: 0 refused",
        "primary",
        "nothing to do",
        "▲",
    ),
    "node-restart": Words(
        0.4,
        "2 of 3 failed over: orders and payments",
        "OUTAGE for 14 s",
        "first failure 14:01:57: connection refused",
        OK.format(72),
        PING,
        NOTHING,
    ),
    "entity-outage": Words(
        0.45,
        ALL_OVER,
        "OUTAGE for 18 s",
        "quota exceeded since 14:01:55",
        "108 errors",
        PING,
        NOTHING,
    ),
    "namespace-refused": Words(
        0.18,
        "SENDS ARE BEING REFUSED: 36/s",
        "for 0 s",
        "primary: connection refused",
        "/s at callers … all 3 entities",
        "fails over in 3 s unless a send succeeds",
        "do: nothing yet",
    ),
    "namespace-reset": Words(
        0.45, ALL_OVER, "OUTAGE for 17 s", "first failure 14:01:54: connection lost", OK.format(108), PING, NOTHING
    ),
    "cannot-receive": Words(
        0.45,
        "all 3 entities healthy",
        "healthy",
        "orders are taken, none processed: no reason to fail over",
        "callers ok: 0 refused",
        "primary",
        "nothing to do",
        "▲",
    ),
    "cannot-manage": Words(
        0.45,
        "1 of 3 failed over: orders",
        "OUTAGE for 14 s",
        "connection refused",
        OK.format(36),
        "next ping in 1 s, home after 1 accepted · 132 parked, 21 s old",
        NOTHING,
    ),
    "both-down": Words(
        0.45,
        "SENDS ARE BEING REFUSED: 36/s",
        "for 7 s",
        f"primary: timeout since 14:01:52 · {ALL_REFUSE}",
        "/s at callers … all 3 entities",
        EITHER,
        CHECK,
        "OUTAGE",
    ),
    "secondary-outage": Words(
        0.45,
        "! all 5 backlog queues refuse sends: connection refused",
        "not accepting since 14:01:53: connection refused",
        "failover NOT ready",
        "callers ok: 0 refused",
        "all 3 entities healthy",
        "do: check the network to the secondary",
        "OUTAGE",
    ),
    "accepted-but-late": Words(
        0.45,
        "1 of 3 failed over: orders",
        "OUTAGE for 17 s",
        "connection refused",
        OK.format(36),
        PING,
        NOTHING,
        "nothing parked",
    ),
    "backlog-queue-outage": Words(
        0.45,
        "2 of 3 failed over: orders and audit",
        "OUTAGE for 18 s",
        "queue 2 not accepting since 14:02:05: connection refused",
        OK.format(72),
        PING,
        NOTHING,
    ),
    "dying-backlog-queue": Words(
        0.55,
        "2 of 3 failed over: orders and payments",
        "OUTAGE for 24 s",
        "queue 2 not accepting since 14:02:08: entity disabled",
        OK.format(72),
        PING,
        NOTHING,
    ),
    "flapping": Words(
        0.5,
        ALL_OVER,
        "OUTAGE for 5 s",
        "first failure 14:02:06: connection refused",
        OK.format(108),
        "next ping in 1 s, home after 2 accepted",
        NOTHING,
    ),
    "poison-messages": Words(
        0.45, "1 of 3 failed over: orders", "OUTAGE for 18 s", "connection refused", OK.format(36), PING, NOTHING
    ),
}


def test_every_scenario_has_its_words() -> None:
    assert set(WORDS) == {scenario.name for scenario in SCENARIOS}


@pytest.mark.parametrize("size", [(80, 24), pytest.param((140, 40), marks=pytest.mark.slow)], ids=["80x24", "140x40"])
@pytest.mark.parametrize("name", WORDS)
def test_the_screen_answers_the_six_questions(name: str, size: tuple[int, int]) -> None:
    words, screen = WORDS[name], "\n".join(_screens(size)[name])
    assert not _missing(words, screen), screen
    assert words.never not in screen


@cache
def _screens(size: tuple[int, int]) -> dict[str, list[str]]:
    snapshots = {name: snapshot_named(name) for name in (*WORDS, *MADE)}
    return {name: rows for name, (rows,) in screens(snapshots, size=size).items()}


def snapshot_named(name: str) -> Snapshot:
    return MADE[name][0]() if name in MADE else snapshot_of(scenario_named(name), WORDS[name].share)


def _missing(words: Words, screen: str) -> dict[str, str]:
    return {
        question: text
        for question, text in words._asdict().items()
        if isinstance(text, str) and question != "never" and any(part not in screen for part in text.split(" … "))
    }


# -- a gateway, 300 entities ------------------------------------------------------------------------------------

FAILED: Final = {"first_failure_at": AT - 73, "refused": 19, "next_ping_at": AT + 5}


def gateway() -> Snapshot:
    """An outage with a gateway whose clients' sends are turned away."""
    made, view = MadeUp(), gateway_views.outage(turned_away=(gateway_views.wrong_key(),))
    entities = (made.entity("orders"), made.failed_over("payments", **FAILED), made.entity("audit"))
    return made.snapshot(*entities, gateway=view)


def three_hundred() -> Snapshot:
    """Six of 300 entities failed over; no row of them comes first in the engine's list."""
    made = MadeUp()
    names = [f"stock-{number:03}" for number in range(300)]
    bad = range(7, 300, 50)
    return made.snapshot(
        *(made.failed_over(name, **FAILED) if place in bad else made.entity(name) for place, name in enumerate(names))
    )


MADE: Final[dict[str, tuple[Callable[[], Snapshot], Words]]] = {
    "gateway": (
        gateway,
        Words(0.0, "1 of 3 failed over: payments", "OUTAGE for 1m13s", "first failure 14:00:58: connection lost",
              "19 errors before", "next ping in 5 s, home after 1 accepted",
              "do: nothing now · ! the gateway turned 3 clients away"),
    ),
    "300 entities": (
        three_hundred,
        Words(0.0, "6 of 300 failed over: stock-007", "OUTAGE for 1m13s", "first failure 14:00:58: connection lost",
              "114 errors before", "next ping in 5 s, home after 1 accepted", NOTHING, "all healthy, 2 failed over"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("size", [(80, 24), (140, 40)], ids=["80x24", "140x40"])
@pytest.mark.parametrize("name", MADE)
def test_larger_systems_answer_the_six_questions(name: str, size: tuple[int, int]) -> None:
    words, screen = MADE[name][1], "\n".join(_screens(size)[name])
    assert not _missing(words, screen), screen
    assert words.never not in screen


ELLIPSIS: Final = "…"
VERDICT: Final = slice(1, 5)
"""The rows of the verdict on the dashboard."""


@pytest.mark.parametrize("name", [*WORDS, *MADE])
def test_a_screen_of_60_by_20_has_the_whole_verdict(name: str) -> None:
    """No line is cut, and state, callers, healing and action are all there."""
    rows = _screens((60, 20))[name][VERDICT]
    text = "\n".join(rows)
    assert ELLIPSIS not in "".join(row.partition("! ")[0] for row in rows), text
    assert "callers" in text, text
    assert "do: " in text or "nothing to" in text, text
    refused = "REFUSED" in text
    assert not refused or ("primary: " in text and "backlog queues refuse" in text) or "fails over" in text, text


@pytest.mark.parametrize("name", MADE)
def test_other_pages_have_the_answers_in_two_lines(name: str) -> None:
    state, answers = (text for text, _ in summary(apply_news(View(pairing="orders"), MADE[name][0]())).lines(57, 2))
    assert ELLIPSIS not in state + answers, f"{state}\n{answers}"
    assert any(words in state for words in ("OUTAGE", "SENDS ARE BEING REFUSED")), state
    first = "callers" if "OUTAGE" in state else "primary:"
    assert [part.split()[0] for part in answers.split(" · ")] == [first, "heals,", "do:"]
