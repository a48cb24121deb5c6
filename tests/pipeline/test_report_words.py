"""The words of the incident report: the impact first, fates told once, a verdict with its basis."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from paired_servicebus.core.model.pairing_events import Commanded, CommandEnded, SendsCounted, StateChanged
from paired_servicebus.pipeline.report.report_command import as_object
from paired_servicebus.pipeline.report.report_queries import last_report
from paired_servicebus.pipeline.report.report_values import Report
from paired_servicebus.pipeline.report.sentences import source_sentence
from tests.pipeline.report_tables import MemoryTables
from tests.pipeline.test_report import EPISODE, EVENTS, START, T, made, markdown, records, sends


@pytest.fixture(scope="module")
def report() -> Report:
    """One incident of orders, two of its messages still parked."""
    return last_report(made())


def test_the_impact_is_first(report: Report) -> None:
    """Who, from when to when, how long callers were refused, how many messages were parked, and the verdict."""
    title, _, _, _, impact, *_ = markdown(report).split("\n")

    assert title == "# Incident of 2023-11-14 22:14:22 UTC: orders failed over"
    assert impact == (
        "From 2023-11-14 22:14:22 to 22:15:00 UTC (38.0 s), senders to orders of pairing shop could not reach the "
        "primary namespace weu.example. Callers were refused or slow for 11.0 s at most; 8 attempts failed; 1 message "
        "refused. 20 messages were parked in the backlog of neu.example; 18 of them are home, 2 still parked. "
        "**Nothing was lost so far, by the namespaces' answers: 2 still parked.**"
    )


def test_pairing_environment_and_namespaces_are_named(report: Report) -> None:
    text = markdown(replace(report, environment="production"))
    for name, value in (
        ("pairing", "shop"),
        ("environment", "production"),
        ("primary namespace", "weu.example"),
        ("secondary namespace", "neu.example"),
    ):
        assert [line for line in text.splitlines() if line.startswith(f"| {name} ") and f" {value} " in line]


def test_cause_and_actions_are_left_to_people(report: Report) -> None:
    text = markdown(report)
    assert text.index("## Timeline") < text.index("## Cause") < text.index("## Actions")
    assert "| action | who | until |" in text


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
    (fate,), (callers,) = report.fates, report.callers
    assert fate.entities == callers.entities == ("invoices", "orders", "payments")
    (failed_over,) = (entry for entry in report.timeline if "→ failed over" in entry.text)
    assert failed_over.about == names
    assert markdown(report).count("no send accepted for 10 s") == 1


def test_entities_of_another_fate_are_another_group() -> None:
    other = {**EPISODE, "entity": "payments", "id": "p", "failed_back_at": None, "outcome": "engine ended",
             "end_reason": "the engine stopped: SIGTERM", "backlog_empty_at": None}  # fmt: skip
    report = last_report(made(episodes=[EPISODE, other]))
    assert [fate.entities for fate in report.fates] == [("orders",), ("payments",)]
    assert (
        "**payments** failed over at 22:14:32, 10.0 s after the first failure: timeout. Engine ended (the engine "
        in (markdown(report))
    )


def test_out_of_order_is_explained_beside_nothing_lost() -> None:
    tables = made()
    tables.rows("update made_audit set out_of_order = true where message_id in ('p1', 'p2')")
    text = markdown(last_report(tables))
    assert "2 messages out of order, which is no loss: while messages wait in the backlog, newer ones overtake" in text


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        ("lost", "MESSAGES WERE LOST: 2 lost."),
        ("missing", "MESSAGES WERE LOST: 2 missing."),
        ("unknown", "Whether anything was lost is unknown for 2 messages."),
        ("in flight", "Nothing was lost so far, by the namespaces' answers: 2 in flight."),
    ],
)
def test_the_verdict_names_the_messages_against_it(status: str, verdict: str) -> None:
    tables = made()
    tables.rows(f"update made_audit set status = '{status}' where message_id in ('p18', 'p19')")
    report = last_report(tables)
    assert f"**{verdict}**" in markdown(report)
    (finding,) = (one for one in report.judgement.findings if one.status == status)
    assert finding.named == ("p18 (orders)", "p19 (orders)")


def test_missing_messages_without_a_name_are_counted_as_missing() -> None:
    tables = made()
    tables.rows("update made_audit set among_missing = 1 where status = 'parked'")
    assert "**MESSAGES WERE LOST: 1 missing.**" in markdown(last_report(tables))


def test_without_receipts_of_direct_sends_only_parked_messages_are_judged() -> None:
    """journal = "parked" records no direct send, so that nothing is known of them."""
    tables = made()
    tables.rows("update made_audit set direct = 0")
    verdict = "No parked message was lost so far, by the namespaces' answers: 2 still parked."
    assert f"**{verdict} Direct sends are not recorded one by one.**" in markdown(last_report(tables))


def test_parked_messages_that_no_journal_follows_are_of_unknown_fate() -> None:
    """A sender's journal alone: another engine's syphon may have moved them, or not."""
    tables = made()
    tables.rows("update made_engines set syphon = false")
    text = markdown(last_report(tables))
    fate = "The fate of 2 parked messages is unknown: no journal of an engine with a syphon is known."
    assert f"**{fate}**" in text
    assert "still parked." not in text
    assert last_report(tables).judgement.verdict == "unknown"


def test_a_drains_journal_follows_parked_messages() -> None:
    tables = made()
    tables.rows("update made_engines set syphon = null, engine = 'shop-drain@host/1'")
    assert last_report(tables).judgement.syphon_known


@pytest.mark.parametrize(
    ("folders", "named"),
    [
        (("/a",), "/a by"),
        (("/a", "/b", "/c"), "/a, /b and /c by"),
        (("/a", "/b", "/c", "/d", "/e"), "/c and 2 more by"),
    ],
)
def test_every_journal_is_named(report: Report, folders: tuple[str, ...], named: str) -> None:
    source = replace(report.source, kind="journal", folders=folders)
    assert named in source_sentence(replace(report, source=source))


def test_the_verdict_names_its_basis() -> None:
    tables = made()
    tables.rows("update made_verdicts set receivers_told = true")
    assert "Nothing was lost so far, by the receivers' records: " in markdown(last_report(tables))
    tables.rows("insert into made_verdicts by name select pairing, 'payments' as entity from made_verdicts limit 1")
    assert "the receivers' records at 1 of 2 entities and the namespaces' answers at the others: " in (
        markdown(last_report(tables))
    )


def test_an_incomplete_journal_is_no_certainty() -> None:
    tables = made()
    tables.rows("update made_verdicts set journals = 20, journals_complete = 18")
    assert "**No loss is known, but not every journal is here. 18 of 20 journals are complete" in (
        markdown(last_report(tables))
    )


def test_the_incidents_figures_stand_beside_all_that_is_recorded(report: Report) -> None:
    """The Delivered of the first half minute are recorded, and before this incident."""
    rows = [line.split("|")[1:4] for line in markdown(report).splitlines() if line.startswith("| attempted")]
    assert [[cell.strip() for cell in row] for row in rows] == [["attempted", "50", "81"]]


def test_a_time_without_receipts_is_not_judged() -> None:
    report = last_report(MemoryTables(records(START, *(sends(at, 10) for at in range(1, 61)))))
    text = markdown(report)
    assert "# Nothing failed over from 2023-11-14 22:13:00 to 2023-11-14 22:14:20 UTC" in text
    assert "**No message of this time was recorded one by one, so none is judged" in text
    assert "## Cause" not in text
    unjudged = last_report(MemoryTables(records(*EVENTS), rows={"audit": [], "verdicts": []}))
    assert "is not judged yet: paired pipeline" in markdown(unjudged)


def test_a_forced_failover_has_no_first_failure() -> None:
    forced = {**EPISODE, "suspected_at": None, "forced": True}
    text = markdown(last_report(made(episodes=[forced])))
    assert "**orders** failed over at 22:14:32: an operator forced it. Back on the primary at 22:15:00" in text
    assert (
        "senders to orders of pairing shop were diverted from the primary namespace weu.example by an operator" in text
    )


def test_an_order_beside_an_outage_is_counted_and_not_the_cause() -> None:
    later = {**EPISODE, "id": "another", "suspected_at": None, "forced": True}
    text = markdown(last_report(made(episodes=[EPISODE, later])))
    assert "could not reach the primary namespace weu.example (1 of 2 failovers were forced by an operator)" in text


def test_an_open_episode_is_marked() -> None:
    still = {**EPISODE, "failed_back_at": None, "backlog_empty_at": None, "outcome": "open", "first_ping_at": None}
    text = markdown(last_report(made(episodes=[still])))
    assert "22:14:22 UTC, not over: orders failed over" in text
    assert "It is not over." in text
    assert "Not back on the primary yet." in text


def test_an_order_of_the_fleet_is_one_act_at_its_engines() -> None:
    """Three engines carry it out; the incident is one, and so is its timeline."""
    order = Commanded(at=T + 91, command="pause-syphon", target="", by="anna (fleet)", why="x (order 7 of the fleet)")
    done = CommandEnded(at=T + 91.5, command_seq=0, outcome="done")
    names = [f"shop@vm-{number}" for number in (1, 2, 3)]
    played = [record for name in names for record in records(START, *EVENTS[62:], order, done, engine=name)]
    episodes = [{**EPISODE, "engine": name, "id": name} for name in names]
    report = last_report(MemoryTables(played, rows={"episodes": episodes}))
    (act,) = (one for one in report.acts if one.by == "anna (fleet)")
    assert (act.engines, act.outcomes) == (tuple(names), {"done": 3})
    assert report.fates[0].engines == tuple(names)
    assert "at all 3 engines" in markdown(report)


def test_the_object_has_every_value(report: Report) -> None:
    found = json.loads(as_object(report))

    assert found["source"]["batch"] == 7
    assert found["episodes"][0]["id"] == "e-one-orders-1"
    assert found["verdict"] == "Nothing was lost so far, by the namespaces' answers: 2 still parked."
    assert found["headline"].endswith("orders failed over")
