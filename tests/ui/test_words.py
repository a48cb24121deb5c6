"""For each of the demo's scenarios: the words that answer a person who just sat down in front of the screen.

The table is written from the scripts, at a moment while the fault is on. Every word has to be on the screen at both
sizes, and what an answer must never be there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from paired_servicebus.demo.scenarios import SCENARIOS, scenario_named

from .scripted import snapshot_of


class Words(NamedTuple):
    """What has to be read, at `share` of the duration."""

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
        'no send accepted since "quota exceeded"',
        "108 errors before",
        PING,
        NOTHING,
    ),
    "namespace-refused": Words(
        0.18,
        "SENDS ARE BEING REFUSED: 36/s",
        "for 0 s",
        "primary: connection refused",
        "at callers, all 3 entities",
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
        "primary: timeout since 14:01:52 · all 5 backlog queues refuse since 14:02:03",
        "at callers, all 3 entities",
        "heals itself when either namespace answers; next ping in 1 s",
        "do: check contoso-backup from here (paired check)",
        "OUTAGE",
    ),
    "secondary-outage": Words(
        0.45,
        "! not ready to fail over: the secondary namespace does not answer",
        "pulled for 18 s: connection refused",
        "all 5 backlog queues refuse",
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
        "2 pulled for 5 s: connection refused",
        OK.format(72),
        PING,
        NOTHING,
    ),
    "dying-backlog-queue": Words(
        0.55,
        "2 of 3 failed over: orders and payments",
        "OUTAGE for 24 s",
        "2 pulled for 3 s: entity disabled",
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


@pytest.mark.parametrize("size", [(80, 24), (140, 40)], ids=["80x24", "140x40"])
@pytest.mark.parametrize("name", WORDS)
async def test_the_screen_answers_the_six_questions(open_console: Any, name: str, size: tuple[int, int]) -> None:
    words = WORDS[name]
    async with open_console(snapshot_of(scenario_named(name), words.share), size=size) as console:
        screen = console.screen()
        missing = {
            question: text
            for question, text in words._asdict().items()
            if isinstance(text, str) and question != "never" and text not in screen
        }
        assert not missing, screen
        assert words.never not in screen
