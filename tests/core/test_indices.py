"""Indices of backlog queues in sentences."""

from __future__ import annotations

import pytest

from paired_servicebus.core.text.index_ranges import format_indices


@pytest.mark.parametrize(
    ("indices", "words"),
    [
        ((), "none"),
        ((7,), "7"),
        ((1, 0), "0, 1"),
        ((0, 1, 2), "0 to 2"),
        ((3, 0, 2), "0, 2, 3"),
        ((0, 10, 11, 12, 19), "0, 10 to 12, 19"),
    ],
)
def test_consecutive_indices_are_a_range(indices: tuple[int, ...], words: str) -> None:
    assert format_indices(indices) == words
