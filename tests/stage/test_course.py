"""The course of chaos: one for each seed, complete in each round, and nothing in it that the sandbox refuses."""

from __future__ import annotations

from itertools import islice

import pytest

from servicebus_sandbox.faults import Fault, FaultKind
from servicebus_sandbox.faults.fault_terms import FIELDS, read_order
from tests.stage.course import SECONDARY, Act, Episode, Strike, episodes

SPECIALS = 7
ROUND = SPECIALS + 6


def plan(seed: int, count: int = ROUND) -> list[Episode]:
    return list(islice(episodes(seed), count))


def test_a_seed_has_one_plan() -> None:
    assert plan(1, 50) == plan(1, 50)
    assert plan(1) != plan(2)


@pytest.mark.parametrize("seed", range(20))
def test_a_round_has_every_kind_of_fault_and_every_special_case(seed: int) -> None:
    for start in (0, ROUND):
        round_ = plan(seed, 2 * ROUND)[start : start + ROUND]
        assert {strike.fault for episode in round_ for strike in episode.strikes} >= set(FaultKind)
        assert {episode.act for episode in round_} == set(Act)
        titles = {episode.title for episode in round_}
        assert {"both namespaces are down", "the secondary fails while the primary is down"} <= titles


def test_the_sandbox_accepts_every_fault_that_is_drawn() -> None:
    for seed in range(100):
        for strike in (strike for episode in plan(seed) for strike in episode.strikes):
            order = strike.order()
            assert set(order) <= set(FIELDS)
            read = read_order(order)
            Fault(id="1", kind=FaultKind(read.kind or ""), entities=read.entities, terms=read.terms)


def test_faults_that_are_answered_open_no_window() -> None:
    assert not Strike(namespace=SECONDARY, fault="busy").opens
    assert Strike(namespace=SECONDARY, fault="busy", operations=("settle",)).opens
    assert Strike(namespace=SECONDARY, fault="reset").opens
