"""The verdict of a report: one value, whose sentence never comforts while its table counts otherwise."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from functools import cache
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paired_servicebus.pipeline.judging.verdict_sql import FINDING
from paired_servicebus.pipeline.report.report_queries import last_report, report_since
from paired_servicebus.pipeline.report.sentences import Clock, customer_sentences
from paired_servicebus.pipeline.report.verdict import (
    FATES,
    LOSS,
    Counts,
    Judgement,
    VerdictWord,
    count_rows,
    outside_of,
    verdict_sentence,
    verdict_word,
    without_engines,
)
from tests.pipeline.report_tables import MemoryTables
from tests.pipeline.test_report import T, made, whole

BAD = (*LOSS, "expired", "dead_lettered", "unknown", "unexpected", "unsent")
NUMBERS = st.one_of(st.just(0), st.just(0), st.integers(1, 2_000_000))
COUNTS = st.builds(Counts, **{field.name: NUMBERS for field in fields(Counts)})


@cache
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


def judged(incident: Counts, recorded: Counts | None = None, *, whole: int = 2) -> Judgement:
    """The judgement with these numbers, by the rule of the tables; `whole` of 2 journals are."""
    attempted = incident.attempted or int(bool(incident))
    more = {"attempted": attempted, "recovered": 0, "syphon": 1, "journals": 2, "journals_complete": whole}
    columns = ", ".join(f"{number} as {name}" for name, number in {**asdict(incident), **more}.items())
    (finding,) = connection().execute(f"select {FINDING} from (select {columns})").fetchone() or ("",)
    outside = outside_of(incident, recorded or incident)
    return Judgement(
        verdict=verdict_word(finding, outside, is_judged=True, unjudged=0), incident=incident,
        recorded=recorded or incident, findings=(), receivers=("orders",), silent=(), rests_on="", judged_at=T,
    )  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(COUNTS, COUNTS, st.integers(0, 2))
def test_the_headline_has_every_number_of_the_table_that_is_no_good_end(
    incident: Counts, recorded: Counts, whole: int
) -> None:
    """SPEC 11: Each of dead-lettered, expired, lost, missing, in flight and unknown is a number in the headline, zero
    or not said; what is lost outside of it is said too."""
    found = judged(incident, recorded, whole=whole)
    said = verdict_sentence(found)
    rows = {row.words: row for row in count_rows(found)}
    for name, word, line in FATES:
        number = getattr(incident, name)
        assert (f"{number:,} {word}" in said) or not number or found.verdict == "not recorded"
        assert rows[line].incident == number if number else True
    for name in LOSS:
        outside = getattr(recorded, name) - getattr(incident, name)
        assert outside <= 0 or f"{outside:,} {name}" in said.partition("Outside of this report: ")[2]
    bad = any(getattr(incident, name) for name in BAD) or found.outside or whole < 2
    assert not (bad and ("othing was lost" in said or "o parked message was lost" in said)), said
    assert ("WERE LOST" in said) == bool(incident.lost or incident.missing or found.outside)


@pytest.mark.parametrize(
    ("counts", "word", "said"),
    [
        (Counts(direct=9, delivered=9), "nothing lost", "Nothing was lost, by the receivers' records."),
        (Counts(diverted=9, home=9), "nothing lost", "No parked message was lost, by the receivers' records."),
        (Counts(direct=9, unconfirmed=9), "accepted", "Accepted, but receipt is NOT CONFIRMED: 9 without a receiver's"),
        (Counts(direct=9, unconfirmed=9, parked=1), "accepted", "Accepted, but receipt is NOT CONFIRMED: 9 without"),
        (Counts(direct=9, lost=1), "lost", "MESSAGES WERE LOST: 1 lost."),
        (Counts(direct=9, missing=1, in_flight=2), "lost", "MESSAGES WERE LOST: 1 missing and 2 in flight."),
        (Counts(direct=9, dead_lettered=100), "not delivered", "MESSAGES WERE NOT DELIVERED: 100 dead-lettered."),
        (Counts(direct=9, expired=60), "not delivered", "MESSAGES WERE NOT DELIVERED: 60 expired."),
        (Counts(direct=9, unknown=3), "unknown", "Whether messages were lost is UNKNOWN: 3 unknown."),
        (Counts(direct=9, unexpected=3), "unknown", "Whether messages were lost is UNKNOWN: 3 unexpected."),
        (Counts(direct=9, unsent=3), "unknown", "Whether messages were lost is UNKNOWN: 3 without a sender here."),
        (Counts(direct=9, in_flight=10), "open", "Nothing was lost so far, by the receivers' records: 10 in flight."),
        (Counts(direct=9, in_doubt=1), "open", "Nothing was lost so far, by the receivers' records: 1 in doubt."),
        (Counts(), "not recorded", "No message of this time was recorded one by one"),
    ],
)
def test_a_verdict_in_a_word_and_a_sentence(counts: Counts, word: str, said: str) -> None:
    found = judged(counts)
    assert found.verdict == word
    assert verdict_sentence(found).startswith(said)


def test_what_is_lost_outside_is_in_the_headline() -> None:
    found = judged(Counts(direct=9), Counts(direct=99, lost=26))
    assert verdict_sentence(found) == (
        "MESSAGES WERE LOST, none of them known in this report. Outside of this report: 26 lost."
    )


def test_a_journal_that_is_not_whole_makes_it_unknown() -> None:
    found = replace(judged(Counts(direct=9), whole=1), rests_on="1 of 2 journals is complete: e lacks 3 records.")
    said = "Whether messages were lost is UNKNOWN. 1 of 2 journals is complete: e lacks 3 records."
    assert (found.verdict, verdict_sentence(found)) == ("unknown", said)


@pytest.mark.parametrize(
    ("finding", "outside", "unjudged", "is_judged", "word"),
    [
        ("nothing lost", 0, 7, True, "open"),
        ("not recorded", 0, 7, False, "not judged"),
        ("not recorded", 0, 7, True, "not judged"),
        ("not recorded", 0, 0, False, "not recorded"),
        ("unknown", 0, 7, True, "unknown"),
        ("not delivered", 2, 0, True, "lost"),
    ],
)
def test_other_messages_forbid_comfort(
    finding: VerdictWord, outside: int, unjudged: int, is_judged: bool, word: str
) -> None:
    found = verdict_word(finding, Counts(lost=outside), is_judged=is_judged, unjudged=unjudged)
    assert found == word
    judgement = replace(judged(Counts(direct=9)), verdict=found, unjudged=unjudged)
    assert unjudged == 0 or "7 receipts of this time came after" in verdict_sentence(judgement) or "not judged" in word


@pytest.mark.parametrize(("counts", "word"), [
    (Counts(direct=9), "unknown"), (Counts(direct=9, unconfirmed=9), "unknown"), (Counts(direct=9, lost=1), "lost"),
    (Counts(direct=9, expired=1), "not delivered"), (Counts(), "not recorded"),
])  # fmt: skip
def test_without_the_journal_of_an_expected_engine_nothing_comforts(counts: Counts, word: str) -> None:
    found = without_engines(judged(counts), tuple(f"vm-{number}" for number in range(7)))
    assert found.verdict == word
    assert word == "not recorded" or verdict_sentence(found).endswith(
        "No journal of these engines is here: vm-0, vm-1, vm-2, vm-3, vm-4 and 2 more."
    )
    assert without_engines(judged(counts), ()) == judged(counts)


# -- at risk -----------------------------------------------------------------------------------------------------------

RECEIVED = "update made_audit set receivers_told = true, accepted_at = first_at, received_at = {}, status = 'delivered'"
"""Messages d1 to d60 were accepted before the report's time begins at T + 32, or in it."""


def tables(*statements: str) -> MemoryTables:
    found = made()
    for statement in statements:
        found.rows(statement)
    return found


@cache
def all_received() -> int:
    """The messages at risk where each was received at once."""
    return last_report(tables(RECEIVED.format("first_at"))).judgement.incident.attempted


@pytest.mark.parametrize(
    ("received_at", "status", "at_risk"),
    [
        ("first_at", "delivered", False),
        ("make_timestamp(1700000080000000)", "delivered", True),
        ("null", "lost", True),
        ("null", "unknown", True),
        ("null", "in flight", True),
        ("null", "expired", True),
        ("null", "missing", True),
    ],
)
def test_what_was_accepted_before_and_not_received_by_then_is_at_risk(
    received_at: str, status: str, at_risk: bool
) -> None:
    """SPEC 11: At risk in an incident: messages accepted before its begin and not received by then."""
    one = "where message_id = 'd3'"
    found = tables(
        RECEIVED.format("first_at"),
        f"update made_audit set received_at = {received_at}, status = '{status}' {one}",
    )
    judgement = last_report(found).judgement
    assert judgement.incident.attempted - all_received() == at_risk
    if status != "delivered":
        assert getattr(judgement.incident, status.replace(" ", "_")) == 1
        assert "1 " + status in verdict_sentence(judgement)


def test_where_no_receiver_records_a_message_is_received_when_it_is_accepted() -> None:
    before = "update made_audit set accepted_at = first_at, reached_at = first_at, receivers_told = false"
    assert last_report(tables(before)).judgement.incident.attempted == 50


def test_a_dead_letter_of_an_earlier_time_is_not_at_risk_again() -> None:
    dead = (
        "update made_audit set accepted_at = first_at, dead_lettered_at = first_at, status = 'dead-lettered' where {}"
    )
    assert last_report(tables(dead.format("message_id = 'd3'"))).judgement.incident.dead_lettered == 0
    assert last_report(tables(dead.format("message_id = 'd50'"))).judgement.incident.dead_lettered == 1


def test_a_fate_of_another_name_is_unknown() -> None:
    found = report_since(tables("update made_audit set status = 'of tomorrow' where message_id = 'd3'"), 0.0)
    assert (found.judgement.incident.unknown, found.judgement.verdict) == (1, "unknown")


# -- the journals of its time --------------------------------------------------------------------------------------

MINUTES = {"complete_to": -5000, "complete_from": -4000}
JOURNALS: dict[str, tuple[dict[str, Any], str]] = {
    "a gap long before": ({"missing": 3, **MINUTES}, "2 of 2"),
    "a killed boot long before, whose end nobody knows": ({"end_known": False, **MINUTES}, "2 of 2"),
    "a gap minutes before": ({"missing": 3, "complete_to": -700, "complete_from": -600}, "1 of 2"),
    "a gap within": ({"missing": 3, "complete_to": 60, "complete_from": 70}, "1 of 2"),
    "a gap around it": ({"missing": 3, "complete_to": -5000, "complete_from": 9000}, "1 of 2"),
    "a gap after it": ({"missing": 3, "complete_to": 140, "complete_from": 150}, "2 of 2"),
    "silent since long before": ({"ended": "silent", "last_at": -5000}, "1 of 2"),
    "silent since later": ({"ended": "silent", "last_at": 150}, "2 of 2"),
    "an earlier run is not here": ({"lacks_boot": True, "first_at": 150, "complete_to": None}, "1 of 2"),
    "it ended long before": ({"ended": "stopped", "last_at": -5000}, "1 of 1"),
    "it began later": ({"first_at": 150, "complete_to": 200}, "1 of 1"),
}


@pytest.mark.parametrize("case", JOURNALS)
def test_only_the_journals_of_its_time_have_to_be_whole(case: str) -> None:
    """A pod that was killed 40 days ago says nothing about the incident of today."""
    changes, complete = JOURNALS[case]
    found = tables("insert into made_engines select * replace ('b@vm' as engine) from made_engines")
    usual = {"first_at": -9000, "last_at": 200, "complete_to": 200, "complete_from": 200}
    for column, value in (usual | changes).items():
        is_time = value is not None and column in ("first_at", "last_at", "complete_to", "complete_from")
        written = f"make_timestamp({round((T + value) * 1e6)})" if is_time else "null" if value is None else repr(value)
        found.rows(f"update made_engines set {column} = {written} where engine = 'b@vm'")
    judgement = last_report(found).judgement
    assert f"{complete} journal" in judgement.rests_on
    assert judgement.verdict == ("unknown" if complete == "1 of 2" else "accepted")
    assert ("b@vm" in judgement.rests_on) == (complete == "1 of 2"), "it is named"


# -- customers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (Counts(direct=9), "No message was lost."),
        (Counts(direct=9, unconfirmed=9), "All messages were accepted; whether they were received is NOT CONFIRMED."),
        (Counts(diverted=9), "None of the late messages was lost."),
        (Counts(direct=9, lost=2, missing=1, unknown=4), "MESSAGES WERE LOST: 3; 4 are being looked into."),
        (Counts(direct=9, dead_lettered=2, expired=1), "MESSAGES WERE NOT DELIVERED: 3 were not delivered."),
        (Counts(direct=9, unknown=4), "It is NOT YET KNOWN whether messages were lost; 4 are being looked into."),
        (Counts(direct=9, in_flight=1, parked=1), "No message is known to be lost; 2 are still on their way."),
        (Counts(), "It is NOT YET KNOWN whether messages were lost."),
    ],
)
def test_customers_read_three_sentences(counts: Counts, said: str) -> None:
    report = replace(whole(), judgement=judged(counts))
    sentences = customer_sentences(report, Clock(report.since, report.until))
    assert len(sentences) == 3
    assert sentences[2] == said
