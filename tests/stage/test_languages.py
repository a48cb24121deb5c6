"""The checks of an outage behind a gateway fail for what they are about; the plays make the outages."""

from __future__ import annotations

from pathlib import Path

import pytest

from paired_servicebus.core.accounting.ledger import balance
from tests.examples.any_language import SenderProcess
from tests.examples.sender_programs import python_program
from tests.stage.ledger import Broken
from tests.stage.plays.languages import Figures, check_connections, check_failover, check_progress, check_senders

BEGUN = 100.0
GOOD = "99 begun a\n109 accepted a 1\n109 begun b\n109 accepted b 1\n110 ended"


def check(lines: str) -> None:
    """Check the list of one sender; each line is a time and what it wrote then."""
    sender = SenderProcess(python_program(), "python", Path("log"))
    for line in lines.splitlines():
        at, *words = line.split()
        sender.take("\t".join(words), float(at))
    check_senders([sender], balance(answers=sender.answers, arrivals=[]))
    check_progress([sender], BEGUN, 10.0)


def test_answers_without_errors_and_late_in_the_outage_hold() -> None:
    check(GOOD)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (f"{GOOD}\n110 begun c", "1 in doubt"),
        (f"{GOOD}\n110 begun c\n111 failed c OutOfOrder", "1 errors from send, the first for c: OutOfOrder"),
        ("99 begun a\n101 accepted a 1\n102 ended", "late in the outage"),
        ("99 begun a\n109 accepted a 1", "calls did not return"),
    ],
)
def test_each_promise_to_the_senders_breaks_by_its_name(lines: str, words: str) -> None:
    with pytest.raises(Broken, match=words):
        check(lines)


def test_lost_connections_and_an_outage_without_a_failover_break() -> None:
    before = Figures(opened=7, closed=0, failovers=0, diverted=0)
    during = Figures(opened=7, closed=0, failovers=1, diverted=5)
    check_connections(before, during)
    with pytest.raises(Broken, match="lost 1 connections and opened 1 more"):
        check_connections(before, Figures(opened=8, closed=1, failovers=0, diverted=0))
    check_failover("reset", during, fails_over=True)
    with pytest.raises(Broken, match="0 failovers"):
        check_failover("reset", before, fails_over=True)
    with pytest.raises(Broken, match="1 failovers"):
        check_failover("busy", during, fails_over=False)
