"""A ledger that does not balance ends the demo with status 1 and names the ids."""

from __future__ import annotations

from paired_servicebus.core.accounting.ledger import SendOutcome, balance
from paired_servicebus.demo.result import DemoResult, EntityResult, MessageCounts, PingCounts, SyphonResult, as_lines


def test_a_lost_message_unbalances_the_result_and_is_named() -> None:
    ledger = balance(answers={"a-1": SendOutcome.ACCEPTED}, arrivals=[])
    result = DemoResult(
        scenario="datacenter-outage",
        seed=1,
        messages=MessageCounts.of(ledger),
        entities={"orders": EntityResult(failovers=0, failbacks=0, seconds_failed_over=0.0)},
        pings=PingCounts(sent=0, accepted=0),
        syphon=SyphonResult(moved=0),
        billed_operations=0,
        verdict=ledger.verdict,
        lost_ids=list(ledger.lost_ids),
    )
    assert not result.balanced
    assert "LOST a-1" in as_lines(result)
