"""What is asked of one view several times is computed once."""

from __future__ import annotations

from paired_servicebus.ui.state.row_order import for_newest


def test_an_answer_is_kept_for_the_newest_object_only() -> None:
    asked: list[list[int]] = []

    @for_newest
    def total(numbers: list[int]) -> int:
        asked.append(numbers)
        return sum(numbers)

    first, equal = [1, 2], [1, 2]
    assert [total(first), total(first), total(equal), total(equal), total(first)] == [3] * 5
    assert [one is first for one in asked] == [True, False, True]
