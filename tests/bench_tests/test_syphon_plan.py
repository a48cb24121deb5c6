"""How much each way moves, so that the destination holds all of it."""

from __future__ import annotations

import pytest

from paired_servicebus.bench.syphon_bench import HELD, most_messages
from paired_servicebus.pairing.management.management_port import MAX_SIZE_MB


def test_what_is_usually_measured_is_not_cut_short() -> None:
    assert most_messages(1400, rounds=3) >= 50_000


@pytest.mark.parametrize("size", [1024, 65_536, 250_000, 1_000_000])
def test_the_destination_holds_what_six_laps_a_round_bring(size: int) -> None:
    assert 6 * 3 * size * most_messages(size, rounds=3) <= HELD < MAX_SIZE_MB * 1024**2
