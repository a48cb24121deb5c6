"""The checks of an outage fail for what they are about; `python -m tests.gateway_processes` makes the outages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paired_servicebus.core.accounting.ledger import Arrival, balance
from paired_servicebus.demo.languages.sender_process import SenderProcess
from tests.examples.sender_programs import python_program
from tests.gateway_processes.engine import Counted, Figures
from tests.gateway_processes.outage import Outage, check_connections, check_failover, check_lists, check_progress
from tests.gateway_processes.stage import Broken, Stage

FIGURES: Mapping[str, Any] = {
    "opened": 7, "closed": 0, "in_hand": 0, "states": {}, "diverted": 5, "failovers": 1, "moved": 0,
}  # fmt: skip
BEGUN = 100.0


def figures(**changes: Any) -> Figures:
    return Figures(**FIGURES | changes)


def check(lines: str, arrived: str, *, begun: float = BEGUN) -> None:
    """Check the lists of one sender; each line is a time and what it wrote then, `arrived` are ids."""
    sender = SenderProcess(python_program(), "python", Path("log"))
    for line in lines.splitlines():
        at, *words = line.split()
        sender.take("\t".join(words), float(at))
    twice = [name for name in set(arrived) if arrived.count(name) > 1]
    world: Any = SimpleNamespace(senders=[sender], duplicates=lambda: twice)
    world.was_under_way = lambda *asked: Stage.was_under_way(world, *asked)
    ledger = balance(answers=sender.answers, arrivals=[Arrival(name, name, 0) for name in arrived])
    check_lists(world, ledger, begun)
    check_progress(world, {"Python": sender.accepted}, begun, 10.0)


GOOD = "99 begun a\n109 accepted a 1\n109 begun b\n109 accepted b 1\n"


def test_lists_that_agree_hold_also_with_a_duplicate_of_what_was_under_way_as_the_outage_began() -> None:
    check(GOOD, "ab")
    check(GOOD, "aab")


@pytest.mark.parametrize(
    ("lines", "arrived", "words"),
    [
        (GOOD, "a", "1 lost"),
        (GOOD, "abz", "1 unexpected"),
        (GOOD + "110 begun c\n", "abc", "1 in doubt"),
        (GOOD + "110 begun c\n111 failed c OutOfOrder", "abc", "1 errors from send, the first for c: OutOfOrder"),
        (GOOD, "abb", "duplicates of messages that were not under way"),
        ("99 begun a\n101 accepted a 1\n", "a", "late in the outage"),
    ],
)
def test_each_promise_to_the_senders_breaks_by_its_name(lines: str, arrived: str, words: str) -> None:
    with pytest.raises(Broken, match=words):
        check(lines, arrived)


def test_lost_connections_and_an_outage_without_a_failover_break() -> None:
    check_connections(figures(), figures(diverted=9))
    with pytest.raises(Broken, match="lost 1 connections and opened 1 more"):
        check_connections(figures(), figures(opened=8, closed=1))
    check_failover(Outage(fault="reset", seconds=1), figures())
    with pytest.raises(Broken, match="0 failovers"):
        check_failover(Outage(fault="reset", seconds=1), figures(failovers=0, diverted=0))
    with pytest.raises(Broken, match="1 failovers"):
        check_failover(Outage(fault="busy", seconds=1, fails_over=False), figures())


def test_connections_are_counted_as_they_come_and_go() -> None:
    counted, one, other = Counted(), object(), object()
    for connection in (one, other):
        counted.add(connection)  # type: ignore[arg-type]
    counted.discard(one)  # type: ignore[arg-type]
    assert (counted.opened, counted.closed, len(counted)) == (2, 1, 1)
