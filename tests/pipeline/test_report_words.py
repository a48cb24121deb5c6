"""The words of the incident report: the impact first, fates told once, a verdict with its basis."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from paired_servicebus.core.model.pairing_events import Commanded, CommandEnded, SendsCounted, StateChanged
from paired_servicebus.pipeline.report.report_command import as_object
from paired_servicebus.pipeline.report.report_queries import last_report
from paired_servicebus.pipeline.report.report_values import Report
from paired_servicebus.pipeline.report.sentences import Clock, source_sentence
from tests.approval import Approve
from tests.pipeline.report_tables import MemoryTables
from tests.pipeline.test_report import EPISODE, EVENTS, START, T, made, records, sends, text_of, whole


@pytest.fixture
def report() -> Report:
    return whole()


def changed(tables: MemoryTables) -> list[str]:
    """The lines of the latest incident's report that the report of `made()` does not have."""
    known = set(text_of(whole()).split("\n"))
    return [line for line in text_of(last_report(tables)).split("\n") if line not in known]


def test_a_whole_report_of_one_incident(report: Report, approve: Approve) -> None:
    """The impact is first; cause and actions are left to people."""
    figures = (
        "22:14:22 to 22:15:00 UTC, for 38 s", "11 s at most", "8 attempts", "20 messages",
        "18 of them", "2 parked, the oldest for 1 min 49 s: p18 (orders), p19 (orders)",
        "62 billed operations", "(3 times)",
    )  # fmt: skip
    approve.part(text_of(report), "incident report", has=figures)
    assert [line.split() for line in text_of(report).splitlines() if line.startswith("attempted")] == [
        ["attempted", "50", "81"]
    ]
    named = [line for line in text_of(replace(report, environment="production")).splitlines() if "environment" in line]
    assert named[0].split() == ["environment", "production"]


OTHER = {**EPISODE, "entity": "payments", "id": "p", "failed_back_at": None, "outcome": "engine ended",
         "end_reason": "the engine stopped: SIGTERM", "backlog_empty_at": None}  # fmt: skip
FORCED = {**EPISODE, "id": "another", "suspected_at": None, "forced": True}
OPEN = {**EPISODE, "failed_back_at": None, "backlog_empty_at": None, "outcome": "open", "first_ping_at": None}
EPISODES: dict[str, tuple[list[Mapping[str, object]], tuple[str, ...]]] = {
    "another fate": ([EPISODE, OTHER], ("payments", "22:14:32", "10 s", "SIGTERM")),
    "forced": ([FORCED], ("22:14:32", "22:15:00", "an operator")),
    "one of two forced": ([EPISODE, FORCED], ("1 of 2 failovers",)),
    "not over": ([OPEN], ("22:14:22 UTC, not over",)),
}


@pytest.mark.parametrize("case", EPISODES)
def test_a_report_of_other_episodes(case: str, approve: Approve) -> None:
    episodes, figures = EPISODES[case]
    approve.part(changed(made(episodes=episodes)), "incident report", has=figures)


FATE = "update made_audit set status = '{}' where message_id in ('p18', 'p19')"
SECOND = """insert into made_audit
select * replace ('payments' as entity, 'x1' as message_id) from made_audit where message_id = 'd40'"""
TOLD = """update made_audit set receivers_told = true, received = 1, received_at = reached_at, status = 'delivered'
where entity = 'orders' and status = 'accepted'"""
GAP = """update made_engines set missing = 3, complete_to = make_timestamp(1700000060000000),
complete_from = make_timestamp(1700000070000000)"""
TABLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "lost": ((FATE.format("lost"),), ("LOST: 2 lost and ", "p18 (orders), p19 (orders)")),
    "missing": ((FATE.format("missing"),), ("LOST: 2 missing and ", "p18 (orders), p19 (orders)")),
    "unknown": ((FATE.format("unknown"),), ("UNKNOWN: 2 unknown and ", "p18 (orders), p19 (orders)")),
    "in flight": ((FATE.format("in flight"),), ("2 in flight", "p18 (orders), p19 (orders)")),
    "missing without a name": (
        ("update made_audit set among_missing = 1 where status = 'parked'",), ("LOST: 1 missing, ", "1 still parked"),
    ),
    "out of order": (
        ("update made_audit set out_of_order = true where message_id in ('p1', 'p2')",), ("2 messages out of order",),
    ),
    "no direct send is recorded": (("update made_audit set direct = 0",), ("Direct sends are not",)),
    "no journal of a syphon": (("update made_engines set syphon = false",), ("UNKNOWN: ", "2 still parked")),
    "receivers report": ((TOLD,), ("the receivers' records",)),
    "receivers of one entity report": ((SECOND, TOLD), ("1 without a receiver's", "Receivers of 1 of 2 entities")),
    "records are missing": ((GAP,), ("303        3  22:14:20", "e lacks 3 records")),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLES)
def test_a_report_of_other_tables(case: str, approve: Approve) -> None:
    statements, figures = TABLES[case]
    tables = made()
    for statement in statements:
        tables.rows(statement)
    approve.part(changed(tables), "incident report", has=figures)


def test_three_entities_with_one_fate_are_told_once() -> None:
    """A finding of the past: three identical entities made three identical paragraphs, rows and curves."""
    names = ("orders", "payments", "invoices")
    episodes = [
        {**EPISODE, "entity": name, "id": name, "failed_over_at": T + 72 + place} for place, name in enumerate(names)
    ]
    counts = [
        SendsCounted(at=T + at, entity=name, route="primary", accepted=10, failed=0, seconds=1.0)
        for name in names[1:]
        for at in range(1, 61)
    ]
    changes = [
        StateChanged(at=T + 72 + place, entity=name, was="suspect", now="failed over", why="no send accepted for 10 s")
        for place, name in enumerate(names)
        if place
    ]
    report = last_report(made(*counts, *changes, episodes=episodes))
    assert report.failed_over == names
    assert [one.entity for one in report.entities] == ["orders", "invoices", "payments"], "the most failures first"
    (failed_over,) = (entry for entry in report.timeline if "→ failed over" in entry.text)
    assert failed_over.about == names
    assert text_of(report).count("no send accepted for 10 s") == 1


def test_a_drains_journal_follows_parked_messages() -> None:
    tables = made()
    tables.rows("update made_engines set syphon = null")
    tables.rows("insert into made_engines select * replace ('shop-drain@host/1' as engine) from made_engines")
    assert "engine with a syphon" not in last_report(tables).judgement.rests_on


@pytest.mark.parametrize(
    ("folders", "named"),
    [
        (("/a",), "/a, without"),
        (("/a", "/b", "/c"), "/a, /b and /c, without"),
        (("/a", "/b", "/c", "/d", "/e"), "/c and 2 more, without"),
    ],
)
def test_every_journal_is_named(report: Report, folders: tuple[str, ...], named: str) -> None:
    source = replace(report.source, kind="journal", folders=folders)
    assert named in source_sentence(replace(report, source=source), Clock(report.since, report.until))


def test_a_time_without_receipts_is_not_judged() -> None:
    report = last_report(MemoryTables(records(START, *(sends(at, 10) for at in range(1, 61)))))
    text = text_of(report)
    assert text.startswith("Nothing failed over from 2023-11-14 22:13:00 to 2023-11-14 22:14:20 UTC\n")
    assert "No message of this time was recorded one by one, so none is judged" in text
    assert "CAUSE" not in text
    unjudged = last_report(MemoryTables(records(*EVENTS), rows={"audit": [], "verdicts": []}))
    assert "is not judged yet: paired pipeline" in text_of(unjudged)


def test_an_order_of_the_fleet_is_one_act_at_its_engines() -> None:
    """Three engines carry it out; the incident is one, and so is its timeline."""
    order = Commanded(at=T + 91, command="pause-syphon", target="", by="anna (fleet)", why="x (order 7 of the fleet)")
    done = CommandEnded(at=T + 91.5, command_seq=0, outcome="done")
    names = [f"shop@vm-{number}" for number in (1, 2, 3)]
    played = [record for name in names for record in records(START, *EVENTS[62:], order, done, engine=name)]
    episodes = [{**EPISODE, "engine": name, "id": name} for name in names]
    report = last_report(MemoryTables(played, rows={"episodes": episodes}))
    (order,) = (one for one in report.timeline if "anna (fleet)" in one.text)
    assert (order.engines, order.is_order) == (tuple(names), True)
    assert order.text.endswith(": done")
    assert report.failovers[0].engines == tuple(names)
    assert "at all 3 engines" in text_of(report)


def test_the_object_has_every_value(report: Report) -> None:
    found = json.loads(as_object(report))

    assert found["source"]["batch"] == 7
    assert found["episodes"][0]["id"] == "e-one-orders-1"
    assert found["verdict"].startswith("Accepted, but receipt is NOT CONFIRMED: 47 without a receiver's record and 2 ")
    assert found["headline"].endswith(f"orders failed over. {found['verdict']}")
    assert found["judgement"]["verdict"] == "accepted"
