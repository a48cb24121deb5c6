"""How engines stand, without a screen: a table, a JSON object, an exit status."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import (
    DeadLettersView,
    Finding,
    FindingVerdict,
    OldestView,
    ParkedView,
    Readiness,
    SyphonStatus,
)
from paired_servicebus.engine.control.discovery import EngineStatus
from paired_servicebus.ui.engines.health import Health, as_json, as_lines, complaints, health
from tests import fleet_views, gateway_views


def standing(snapshot: Any) -> EngineStatus:
    return EngineStatus(pairing=snapshot.pairing, snapshot=snapshot)


GONE = EngineStatus(pairing="billing", trouble="the engine (pid 7) did not end cleanly; its log is /l")


def test_an_engine_with_nothing_wrong_is_healthy(made: Any) -> None:
    unknown = made.snapshot(made.entity("orders"), made.entity("audit", State.UNKNOWN))
    assert health([standing(unknown)], made.AT) is Health.HEALTHY


@pytest.mark.parametrize("state", [State.SUSPECT, State.FAILED_OVER, State.FORCED, State.PINNED])
def test_an_entity_that_is_not_on_its_primary_by_rule_is_a_complaint(made: Any, state: State) -> None:
    found = made.snapshot(made.entity("orders"), made.entity("payments", state, why="because"))
    assert complaints(found, made.AT) == (f"payments {state}: because",)
    assert health([standing(found)], made.AT) is Health.DEGRADED


def test_alarms_pulled_queues_and_a_syphon_that_does_not_move_are_complaints(made: Any) -> None:
    queues = made.queues(number=2)
    pulled = replace(queues[1], in_rotation=False, pulled_reason="timeout")
    syphon = made.syphon(SyphonStatus.PAUSED, text="paused by kim")
    found = made.snapshot(queues=(queues[0], pulled), alarms=("an alarm",), syphon=syphon)
    assert complaints(found, made.AT) == (
        "an alarm",
        "backlog/1 accepts no sends: timeout",
        "syphon paused: paused by kim",
    )


def test_a_queue_or_destination_that_is_paused_is_a_complaint(made: Any) -> None:
    found = made.snapshot(syphon=made.syphon(paused_queues=(3,), paused_destinations=("payments",)))
    assert complaints(found, made.AT) == ("syphon paused by an operator: backlog/3, payments",)


def test_figures_of_long_ago_are_never_healthy(made: Any) -> None:
    """Numbers on the screen carry when they were read."""
    assert complaints(made.snapshot(), made.AT + 60) == ("these figures are of 14:02:11: the engine sends no new ones",)


def test_the_worst_of_all_is_the_exit_status(made: Any) -> None:
    healthy, degraded = standing(made.snapshot()), standing(made.outage())
    assert health([healthy, degraded], made.AT) == 1
    assert health([healthy, GONE, degraded], made.AT) == 3
    assert health([], made.AT) == 3


def test_the_table_has_engines_entities_backlog_syphon_alarms_and_readiness(made: Any) -> None:
    finding = Finding(what="syphon", verdict=FindingVerdict.WARN, evidence="one")
    ready = Readiness(at=made.at("14:02:00"), findings=(finding,))
    lines = as_lines([standing(made.outage(readiness=ready, alarms=("an alarm",))), GONE], made.AT)
    text = "\n".join(lines)
    assert lines[0] == "orders@web-1: degraded (contoso with contoso-backup, production), 14:02:11"
    assert "! an alarm" in text
    assert "! payments failed over: connection lost since 14:01:58" in text
    row = next(line for line in lines if line.startswith("  payments"))
    assert row.split() == ["payments", "failed", "over", "14:01:58", "backlog/3", "38", "412,000", "1,204"]
    assert "backlog   1,221 parked in 10 queues, read 14:02:10" in text
    assert "syphon    running, 22 msg/s, moved 8,112" in text
    assert "failover  would work, 1 to check, checked 14:02:00 (paired check)" in text
    assert "billing: unreachable\n  the engine (pid 7) did not end cleanly; its log is /l" in text
    assert max(map(len, lines)) <= 100


def test_why_dead_letters_are_dead_and_since_when_the_oldest_message_waits(made: Any) -> None:
    queues = list(made.outage().queues)
    dead = DeadLettersView(read_at=made.AT, looked_at=3, reasons=(("TTL\x1bExpired", 2), ("of the owner", 1)))
    oldest = OldestView(read_at=made.AT, enqueued_at=made.at("13:58:01"))
    queues[3] = replace(queues[3], dead_letters=dead, oldest=oldest)
    queues[8] = replace(queues[8], oldest=replace(oldest, enqueued_at=made.at("13:59:00")))
    found = [standing(replace(made.outage(), queues=tuple(queues)))]
    text = "\n".join(as_lines(found, made.AT))
    assert "oldest    parked since 13:58:01 in backlog/3\n" in text
    assert r"dead      backlog/3: 2 TTL\x1bExpired, 1 of the owner" in text
    assert json.loads(as_json(found, made.AT))["engines"][0]["backlog"]["oldest_at"] == made.at("13:58:01")


def test_unknown_is_not_zero(made: Any) -> None:
    queues = tuple(replace(queue, depth=None, dead_lettered=None) for queue in made.queues())
    found = standing(made.snapshot(queues=queues))
    text = "\n".join(as_lines([found], made.AT))
    assert "backlog   10 queues, parked messages unknown" in text
    assert "not checked yet" in text
    assert json.loads(as_json([found], made.AT))["engines"][0]["backlog"]["parked"] is None


def test_the_engines_own_figure_is_in_the_table_and_in_the_object(made: Any) -> None:
    """Summary, syphon line, page 3's total, status command, metrics take this one figure (finding C7)."""
    told = ParkedView(messages=353, read_at=made.AT - 4, known=10, queues=10)
    found = standing(made.outage(parked=told))
    assert "backlog   353 parked in 10 queues, read 14:02:07" in "\n".join(as_lines([found], made.AT))
    backlog = json.loads(as_json([found], made.AT))["engines"][0]["backlog"]
    assert (backlog["parked"], backlog["read_at"]) == (353, made.AT - 4)
    least = standing(made.outage(parked=replace(told, read_at=None, known=0)))
    assert "backlog   at least 353 parked in 10 queues, not read yet" in "\n".join(as_lines([least], made.AT))


def test_the_object_has_its_documented_names(made: Any) -> None:
    said = json.loads(as_json([standing(made.outage()), GONE], made.AT))
    assert (said["status"], said["exit"], said["at"]) == ("unreachable", 3, made.AT)
    degraded, gone = said["engines"]
    assert set(degraded) == set(gone) == {
        "pairing", "engine", "status", "complaints", "warnings", "backlog", "snapshot",
    }  # fmt: skip
    assert (degraded["status"], degraded["backlog"]["parked"]) == ("degraded", 1_221)
    assert degraded["snapshot"]["entities"][1]["state"] == "failed over"
    assert (gone["engine"], gone["snapshot"], gone["complaints"]) == (None, None, [GONE.trouble])


WARNING = "syphon unknown: 3 messages are parked, and no syphon is known here; one of another host or user may run"


def test_a_warning_is_said_and_degrades_nothing(made: Any) -> None:
    """Section 4.6: "Parked messages and no syphon known to run: "syphon unknown", a warning"."""
    found = standing(made.snapshot(warnings=(WARNING,), syphon=made.syphon(SyphonStatus.OFF)))
    lines = as_lines([found], made.AT)
    assert lines[0].startswith("orders@web-1: healthy ")
    assert (
        lines[1]
        == "  ? syphon unknown: 3 messages are parked, and no syphon is known here; one of another host or user"
    )
    assert "  syphon    unknown (this engine runs none)" in lines
    assert health([found], made.AT) == 0
    said = json.loads(as_json([found], made.AT))["engines"][0]
    assert (said["status"], said["complaints"], said["warnings"]) == ("healthy", [], [WARNING])


def test_an_engine_that_knows_of_no_healthy_entity_is_unknown_and_not_healthy(made: Any) -> None:
    """Section 12: "what nobody here can know is "unknown", never "none" or "healthy"."""
    silent = standing(made.snapshot(made.entity("orders", state=State.UNKNOWN)))
    assert as_lines([silent], made.AT)[0].startswith("orders@web-1: unknown ")
    said = json.loads(as_json([silent, standing(made.snapshot())], made.AT))
    assert (said["status"], said["exit"], said["engines"][0]["status"]) == ("unknown", 0, "unknown")
    mixed = standing(made.snapshot(made.entity("orders"), made.entity("audit", state=State.UNKNOWN)))
    assert as_lines([mixed], made.AT)[0].startswith("orders@web-1: healthy, 1 of 2 entities unknown ")


def test_without_any_engine_it_says_what_to_do(made: Any) -> None:
    assert as_lines([], made.AT) == ["no engine runs here: start one with paired up"]


def test_the_fleet_is_added_where_it_is_wanted(made: Any) -> None:
    found = [standing(made.snapshot(fleet=fleet_views.outage()))]
    assert as_lines(found, made.AT) == as_lines([standing(made.snapshot())], made.AT)
    text = "\n".join(as_lines(found, made.AT, fleet=True))
    assert "  fleet: degraded, 20 engines: 15 failed over · 3 healthy · 2 silent" in text
    said = json.loads(as_json(found, made.AT, fleet=True))
    assert (said["status"], said["exit"], said["engines"][0]["fleet"]["status"]) == ("degraded", 1, "degraded")
    assert said["engines"][0]["snapshot"]["fleet"]["entities"][0]["path"] == "payments"
    assert (health(found, made.AT), health(found, made.AT, fleet=True)) == (0, 1)
    off = [standing(made.snapshot())]
    assert as_lines(off, made.AT, fleet=True)[-1].startswith("  fleet: off")
    assert json.loads(as_json(off, made.AT, fleet=True))["engines"][0]["fleet"] is None


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
