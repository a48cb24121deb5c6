"""A promise is broken by a late or missing event, a failover of a healthy entity, or a message without its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.approval import Approve

from paired_servicebus.core.accounting.ledger import Arrival, Ledger, SendOutcome, balance
from paired_servicebus.core.drill.drill_plan import PARTS, DrillPlan, Phase
from paired_servicebus.core.drill.drill_report import (
    MAX_NAMED,
    DrillMeasures,
    DrillOutcome,
    LastDrill,
    PartResult,
    broken_promises,
    time_rows,
)
from paired_servicebus.core.model.namespace_info import ServiceTier
from paired_servicebus.core.model.policy import Policy

PLAN = DrillPlan.of(Policy(), ServiceTier.STANDARD, as_configured=False)
KEPT = {"detect": 15.0, "divert": 11.0, "returned": 7.0, "return_promise": 7.0, "failovers": 1}


def ledger(**answers: SendOutcome) -> Ledger:
    answers = answers or {"a-0": SendOutcome.ACCEPTED}
    return balance(answers=answers, arrivals=[Arrival("a-0", "a", 0)])


def measures(part: dict[str, Any] | None = None, **more: Any) -> DrillMeasures:
    """One with kept promises; part: other values of the first entity."""
    results = [PartResult(part=one, **KEPT) if one.fails else PartResult(part=one) for one in PARTS]
    results[0] = replace(results[0], **part or {})
    values = {"ledger": ledger(), "drain": 500.0, "diverted": 3, "operations": 400, "seconds": 30.0} | more
    return DrillMeasures(parts=tuple(results), **values)


def test_times_up_to_the_promise_hold_and_a_drain_may_take_any_time() -> None:
    assert broken_promises(PLAN, measures()) == ()
    rows = time_rows(PLAN, measures())
    assert [row.phase for row in rows] == [Phase.DETECT] * 2 + [Phase.DIVERT] * 2 + [Phase.RETURN] * 2 + [Phase.DRAIN]


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ({"detect": 15.1}, "disabled failed over after 15.1 s; promised: 15 s"),
        ({"detect": None}, "disabled did not fail over"),
        ({"divert": 11.5}, "disabled had its first send in the backlog after 11.5 s; promised: 11 s"),
        ({"divert": None}, "disabled had no send accepted by a backlog queue"),
        ({"returned": 8.0}, "disabled failed back after 8.0 s; promised: 7 s"),
        ({"returned": None}, "disabled did not fail back"),
    ],
)
def test_a_late_or_missing_event_is_named_with_its_promise(part: dict[str, Any], sentence: str) -> None:
    assert broken_promises(PLAN, measures(part)) == (sentence,)


def test_messages_that_stay_parked_break_it(approve: Approve) -> None:
    approve.part(broken_promises(PLAN, measures(drain=None)), "drill")


def test_a_failover_of_the_healthy_entity_breaks_it(approve: Approve) -> None:
    found = measures()
    parts = (*found.parts[:2], replace(found.parts[2], failovers=2))
    approve.part(broken_promises(PLAN, replace(found, parts=parts)), "drill", has=("2 times",))


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ({"a-0": SendOutcome.ACCEPTED, "a-1": SendOutcome.ACCEPTED}, "1 message accepted and lost: a-1"),
        ({"a-0": SendOutcome.REFUSED}, "1 message delivered and never accepted: a-0"),
        ({"a-0": SendOutcome.ACCEPTED, "a-1": SendOutcome.REFUSED}, "1 message refused to the end"),
        ({"a-0": SendOutcome.ACCEPTED, "a-1": SendOutcome.IN_DOUBT}, "1 message in doubt to the end"),
    ],
)
def test_a_message_without_its_place_is_named(answers: dict[str, SendOutcome], sentence: str) -> None:
    assert sentence in broken_promises(PLAN, measures(ledger=ledger(**answers)))


def test_a_message_in_doubt_that_arrived_breaks_nothing() -> None:
    assert broken_promises(PLAN, measures(ledger=ledger(**{"a-0": SendOutcome.IN_DOUBT}))) == ()


def test_many_lost_ids_are_cut(approve: Approve) -> None:
    answers = {f"a-{number}": SendOutcome.ACCEPTED for number in range(MAX_NAMED + 6)}
    (sentence,) = broken_promises(PLAN, measures(ledger=ledger(**answers)))
    approve.part(sentence, "drill", has=("15 messages",))
    assert sentence.endswith(" and 5 more")


def test_the_last_drill_says_when_and_how_it_ended(approve: Approve) -> None:
    began = LastDrill(began=1_800_000_000.0)
    approve.part(began.sentence, "drill", has=("2027-01-15", "08:00:00"))
    ended = replace(began, ended=1_800_000_030.0, outcome=DrillOutcome.HELD, text="balanced", configured=True)
    approve.part(ended.sentence, "drill", has=("2027-01-15", "08:00:00"))
