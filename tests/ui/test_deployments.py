"""For each deployment of a pairing: the words that answer a person on call, and every place gives the same answer.

SPEC.md section 12: "One fold over all engines of the pairing answers what state an entity is in, since when, why,
whether callers fail, what is parked, what stands. Screen, `status`, `check`, `fleet`, metrics, alarms and reports
render it; two of them never differ but by their age, which they show."
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from typing import Any, Final, NamedTuple

import pytest

from paired_servicebus.core.model.entity_state import DIVERTING
from paired_servicebus.core.model.fleet_view import WORST_FIRST
from paired_servicebus.core.model.pairing_condition import condition_of
from paired_servicebus.core.model.pairing_fold import PairingView, pairing_of
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.operator.alarms import alarms, fleet_alarms
from paired_servicebus.core.operator.fleet_sentences import entity_counts, fleet_lines
from paired_servicebus.engine.control.discovery import EngineStatus
from paired_servicebus.engine.service.metrics import families
from paired_servicebus.ui.state.incident_history import IncidentHistory
from paired_servicebus.ui.state.view import View, apply_news
from paired_servicebus.ui.widgets.incident_list import IncidentList
from paired_servicebus.verbs.fleet_verb import fleet_object
from paired_servicebus.verbs.status_text import as_json, as_lines

from .conftest import AT, screens
from .deployments import DEPLOYMENTS, JUMP

CONSOLES: Final = ("web-1", JUMP)
"""An application's engine, and that of `paired up` on the jump host."""


class Answers(NamedTuple):
    """What has to be read on the first page, by whichever console; an empty answer has none there."""

    callers: str
    what: str
    since_and_why: str
    heals: str
    lost: str
    do: str
    never: str = "– never –"


OVER: Final = "OUTAGE for 4m30s: "
OK: Final = "callers ok at all engines"
AFTER: Final = f"{OK} since 13:58:22"
TIMEOUT: Final = "timeout since 13:57:41"
PING: Final = "heals itself: next ping in 12 s, home after 1 accepted"
PARKED: Final = "213 parked"
NOTHING: Final = "do: nothing now"
HEALTHY: Final = "all 3 entities healthy at 4 engines"
AT_REST: Final = "sends go to the primary"

ANSWERS: Final[dict[str, Answers]] = {
    "all well": Answers(OK, HEALTHY, AT_REST, "● orders", "nothing parked", "nothing to do"),
    "one entity down at others": Answers(
        AFTER, f"{OVER}payments failed over at 2 of 3 engines", TIMEOUT, PING, PARKED, NOTHING, "healthy       2 of 3"
    ),
    "all down everywhere": Answers(
        OK, f"{OVER}all 3 entities failed over at all 3 engines", TIMEOUT, PING, "1,205 parked", NOTHING
    ),
    "throttled": Answers(
        "CALLERS WAIT OR FAIL: 36 calls at payments (3 engines)", "● payments", "since 14:01:49",
        "ends when the namespace accepts more, or fewer sends come", "callers: 2.4/s fail", "do: send less",
        "all 3 entities healthy",
    ),
    "a black hole before its first time-out": Answers(
        "callers wait: no answer since 14:01:54", "calls have no answer since 14:01:54: orders", "14:01:54",
        "", "nothing parked", "do: nothing yet", "callers ok",
    ),
    "a black hole between time-outs": Answers(
        "callers: the last calls failed since 14:01:49", "orders suspect at 2 of 3 engines for 22 s",
        "14:01:49", "fails over in 6 s unless a send succeeds", "nothing parked", "do: see page 7", "callers ok",
    ),
    "one engine silent": Answers(
        "unknown at 1 engine since 13:58:10", "all 3 entities healthy at 3 engines",
        "silent since 13:58: pay-1", "", "nothing parked", "do: see whether pay-1 runs", "nothing to do",
    ),
    "expected never heard": Answers(
        "callers ok at 3 engines: 0 refused now; unknown at 3 never heard", HEALTHY,
        "3 of 7 expected engines never heard", "", "nothing parked", "do: see which are missing on page 7",
        "nothing to do",
    ),
    "a backlog queue refusing": Answers(
        AFTER, f"{OVER}payments failed over at all 3 engines", TIMEOUT, PING, "1 of 10 backlog queues accept no sends",
        NOTHING,
    ),
    "an engine without senders": Answers(OK, HEALTHY, AT_REST, "● orders", "nothing parked", "nothing to do"),
    "a flapping primary": Answers(
        OK, "OUTAGE for 10 s: orders failed over at 1 of 3 engines", "14:02:01", PING, "31 parked", NOTHING
    ),
    "healed a minute ago": Answers(
        OK, HEALTHY, AT_REST, "empty in 41 s", "402 parked ↓9.8/s", "nothing to do",
    ),
    "forced over the fleet": Answers(
        OK, "payments forced at 2 of 3 engines for 22 min", "why: forced", "payments forced by kim until 17:40",
        "80 parked", "do: release (U) when the work is done: payments",
    ),
    "brownout": Answers(
        OK, "slow: orders", "", "", "nothing parked", "do: a primary that accepts slowly does not fail over"
    ),
    "stranded and dead letters during an outage": Answers(
        AFTER, f"{OVER}payments failed over at all 3 engines", TIMEOUT, PING, "7 dead-lettered, 3 stranded", NOTHING
    ),
}  # fmt: skip
LOSS: Final = {
    "web-1": Answers(
        "; unknown at 3 engines since 14:01:58", "REFUSED: 10/s here",
        "primary: timeout since 14:01:57 · all 10 backlog queues refuse since 14:01:59",
        "when either namespace answers", "callers own the messages",
        "do: check contoso-backup from here (paired check)", "callers ok",
    ),
    JUMP: Answers(
        "callers unknown at 3 engines since 14:01:58", ": all 3 entities healthy",
        "board not reached: connection refused", "heals ",
        "nothing parked", "do: check contoso-backup from here (paired check)", "callers ok",
    ),
}  # fmt: skip
"""A total loss takes the board along: what a console knows then depends on its engine."""
LEAST: Final = 5
WHOLE: Final = frozenset({"throttled", "total loss with the board"})
"""Deployments whose six questions all have their answers."""
SIZES = pytest.mark.parametrize(
    "size", [(80, 24), pytest.param((140, 40), marks=pytest.mark.slow)], ids=["80x24", "140x40"]
)
CASES = pytest.mark.parametrize("console", CONSOLES)
NAMES = pytest.mark.parametrize("name", DEPLOYMENTS)


def answers_of(name: str, console: str) -> Answers:
    return LOSS[console] if name not in ANSWERS else ANSWERS[name]


def test_at_least_five_questions_have_answers_and_in_the_worst_outages_all() -> None:
    for name in DEPLOYMENTS:
        for console in CONSOLES:
            found = [text for text in answers_of(name, console)[:6] if text]
            assert len(found) >= (6 if name in WHOLE else LEAST - (name in CALM)), name


CALM: Final = frozenset({"brownout"})
"""Nothing is away, so nothing has to heal."""


@SIZES
@CASES
@NAMES
def test_the_first_page_answers(name: str, console: str, size: tuple[int, int]) -> None:
    wanted, screen = answers_of(name, console), "\n".join(_screens(size)[name, console][0])
    missing = {question: text for question, text in wanted._asdict().items()
               if question != "never" and text and text not in screen}  # fmt: skip
    assert not missing, f"{missing}\n{screen}"
    assert wanted.never not in screen, screen


@cache
def _screens(size: tuple[int, int], *keys: str) -> dict[tuple[str, str], list[list[str]]]:
    """Of each deployment and console the first page, and those of the keys."""
    seen = {(name, at): one.seen_from(at) for name, one in DEPLOYMENTS.items() for at in CONSOLES}
    return screens(seen, *keys, size=size)


# -- every place, one answer -------------------------------------------------------------------------------------------

Said = dict[str, tuple[str, int, int]]
"""Of each entity its worst state, at how many engines it is, and how many have it."""


def folded(pairing: PairingView) -> Said:
    return {one.path: (one.state.value, one.in_state, one.engines) for one in pairing.entities}


ROW: Final = re.compile(
    r"^[\s*▸]*[^\w\s]?\s*(\w+) +(failed over|forced|suspect|pinned|unknown|healthy) +(\d+) of (\d+)"
)


def said_by_rows(lines: list[str]) -> Said:
    found = (ROW.match(line) for line in lines)
    return {one[1]: (one[2], int(one[3]), int(one[4])) for one in found if one}


def said_by_totals(entities: list[Any]) -> Said:
    return {
        one["path"]: (
            one["states"][0][0], one["states"][0][1], sum(number for _, number in one["states"]) + one["silent"]
        )
        for one in entities
    }  # fmt: skip


def said_by_metrics(snapshot: Snapshot) -> Said:
    family = next(one for one in families(snapshot) if one.name == "paired_fleet_entity_engines")
    counts: dict[str, dict[str, int]] = {}
    for sample in family.samples:
        counts.setdefault(sample.labels["entity"], {})[sample.labels["state"]] = int(sample.value)
    order = [state.value for state in WORST_FIRST]
    return {
        path: (worst, states[worst], sum(states.values()))
        for path, states in counts.items()
        for worst in [next(state for state in order if state in states)]
    }


def said_by_fleet(pairing: PairingView, now: float) -> dict[str, str]:
    """Of each entity the engines by state, as `paired fleet` has them."""
    lines = fleet_lines(pairing, now, ())
    start = next(place for place, line in enumerate(lines) if line.lstrip().startswith("entity"))
    rows = lines[start + 1 : lines.index("", start)]
    return {row.split()[0]: row for row in rows}


@CASES
@NAMES
def test_every_place_says_the_same_of_each_entity(name: str, console: str) -> None:
    snapshot = DEPLOYMENTS[name].seen_from(console)
    pairing, status = pairing_of(snapshot), EngineStatus(pairing="orders", snapshot=snapshot)
    wanted = folded(pairing)
    found = alarms(condition_of(snapshot))
    assert said_by_rows(as_lines([status], snapshot.at)) == wanted, "paired status"
    assert said_by_metrics(snapshot) == wanted, "the metrics"
    status_object = json.loads(as_json([status], snapshot.at))["engines"][0]
    assert said_by_totals(status_object["over_all_engines"]["entities"]) == wanted, "paired status --json"
    fleet = json.loads(fleet_object(pairing, snapshot.at, fleet_alarms(found)))
    assert said_by_totals(fleet["fleet"]["entities"]) == wanted, "paired fleet --json"
    for path, row in said_by_fleet(pairing, snapshot.at).items():
        total = next(one for one in pairing.totals if one.path == path)
        assert all(f"{number} {state}" in row for state, number in entity_counts(total)), row
    overview, entity, *others = _screens((140, 40), *"2467")[name, console]
    assert said_by_rows(overview) == wanted, "\n".join(overview)
    assert {page[1] for page in (entity, *others)} == {overview[1]}, "the first line of pages 2, 4, 6 and 7"
    selected = next(row for row in entity if row.startswith("── ") and " of 3 entities" in row).split()[1]
    state, number, engines = wanted[selected]
    assert f"{state} at {number} of {engines} engine" in "\n".join(entity)


@CASES
@NAMES
def test_the_page_of_incidents_counts_what_the_header_counts(name: str, console: str) -> None:
    """Without any journal here, the incident of now is there, and of other engines the past is unknown."""
    snapshot = DEPLOYMENTS[name].seen_from(console)
    view = replace(apply_news(View(pairing="orders"), snapshot), past=IncidentHistory(journal_since=AT - 600))
    rows = [line.text for line in IncidentList().lines(view, 100, 12)]
    diverted = [one.path for one in pairing_of(snapshot).entities if one.state in DIVERTING]
    now = [row for row in rows if row.startswith(" not over, since ")]
    assert bool(now) is bool(diverted)
    assert all(path in now[0] for path in diverted)
    others = [one for one in ("web-1", "web-2", "pay-1", JUMP) if one != console]
    assert all(one in " ".join(rows) for one in others)
    assert "no failover recorded here since" in " ".join(rows)


@CASES
@NAMES
def test_old_figures_have_their_time_everywhere(name: str, console: str) -> None:
    snapshot = DEPLOYMENTS[name].seen_from(console)
    old, pairing = name == "total loss with the board", pairing_of(snapshot)
    assert (pairing.old_since is not None) is old
    lines = as_lines([EngineStatus(pairing="orders", snapshot=snapshot)], snapshot.at)
    fleet = json.loads(fleet_object(pairing, snapshot.at, ()))
    assert fleet["old_since"] == pairing.old_since
    assert any("board not reached" in line for line in lines) is old
