"""The verdict of a report: one value, whose sentence never comforts while its table counts otherwise."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paired_servicebus.pipeline.report.report_queries import last_report, report_since
from paired_servicebus.pipeline.report.sentences import Clock, customer_sentences
from paired_servicebus.pipeline.report.verdict import (
    DOUBT,
    FATES,
    LOSS,
    UNDELIVERED,
    Counts,
    Judgement,
    count_rows,
    verdict_sentence,
    verdict_word,
)
from tests.pipeline.report_tables import MemoryTables
from tests.pipeline.test_report import T, made

BAD = (*LOSS, *UNDELIVERED, *DOUBT)
NUMBERS = st.one_of(st.just(0), st.just(0), st.integers(1, 2_000_000))
COUNTS = st.builds(Counts, **{field.name: NUMBERS for field in fields(Counts)})


def judged(incident: Counts, recorded: Counts | None = None, *, journals: int = 2, whole: int = 2) -> Judgement:
    found = Judgement(
        incident=incident, recorded=recorded or incident, findings=(), receivers=("orders",), silent=(), rests_on=(),
        journals=journals, journals_complete=whole, complete_to=T, judged_at=T, syphon_known=True,
    )  # fmt: skip
    return replace(found, verdict=verdict_word(found, has_receipts=True))


@settings(max_examples=500, deadline=None)
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
        assert (f"{number:,} {word}" in said) or not number
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
        (Counts(diverted=9, home=9), "nothing lost", "No parked message was lost, by the receivers' records. Direct"),
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
    found = judged(Counts(direct=9), whole=1)
    said = "Whether messages were lost is UNKNOWN. 1 of 2 journals is complete, to 2023-11-14 22:13:20 UTC."
    assert (found.verdict, verdict_sentence(found)) == ("unknown", said)
    drained = replace(judged(Counts(diverted=3, parked=3)), syphon_known=False)
    assert verdict_word(drained, has_receipts=True) == "unknown"


def test_receipts_that_came_after_the_judgement_leave_it_open() -> None:
    found = replace(judged(Counts(direct=9)), unjudged=7)
    assert verdict_word(found, has_receipts=True) == "open"
    assert "7 receipts of this time came after the judgement." in verdict_sentence(replace(found, verdict="open"))


# -- at risk -----------------------------------------------------------------------------------------------------------

RECEIVED = "update made_audit set receivers_told = true, accepted_at = first_at, received_at = {}, status = 'delivered'"
"""Messages d1 to d60 were accepted before the report's time begins at T + 32, or in it."""


def tables(*statements: str) -> MemoryTables:
    found = made()
    for statement in statements:
        found.rows(statement)
    return found


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
    base = last_report(tables(RECEIVED.format("first_at"))).judgement.incident
    incident = last_report(found).judgement.incident
    assert incident.attempted - base.attempted == at_risk
    if status != "delivered":
        assert getattr(incident, status.replace(" ", "_")) == 1
        assert "1 " + status in verdict_sentence(last_report(found).judgement)


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


# -- customers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (Counts(direct=9), "No message was lost."),
        (Counts(diverted=9), "None of the late messages was lost."),
        (Counts(direct=9, lost=2, missing=1, unknown=4), "MESSAGES WERE LOST: 3; 4 are being looked into."),
        (Counts(direct=9, dead_lettered=2, expired=1), "MESSAGES WERE NOT DELIVERED: 3 were not delivered."),
        (Counts(direct=9, unknown=4), "It is NOT YET KNOWN whether messages were lost; 4 are being looked into."),
        (Counts(direct=9, in_flight=1, parked=1), "No message is known to be lost; 2 are still on their way."),
        (Counts(), "It is NOT YET KNOWN whether messages were lost."),
    ],
)
def test_customers_read_three_sentences(counts: Counts, said: str) -> None:
    report = replace(last_report(made()), judgement=judged(counts))
    sentences = customer_sentences(report, Clock(report.since, report.until))
    assert len(sentences) == 3
    assert sentences[2] == said
