"""The manifest: spans of numbers, the gaps between them, and what is held of them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as some

from paired_servicebus.pipeline.table_store.manifest import Gap, Manifest, RecordSpan, merged


def span(first: int, last: int, boot: str = "b") -> RecordSpan:
    return RecordSpan("e", boot, first, last)


def numbers(spans: tuple[RecordSpan, ...]) -> set[int]:
    return {number for one in spans for number in range(one.first, one.last + 1)}


SPANS = some.lists(some.tuples(some.integers(1, 60), some.integers(0, 9)).map(lambda it: span(it[0], sum(it))))


@given(SPANS)
def test_merged_spans_hold_the_same_numbers_and_do_not_touch(spans: list[RecordSpan]) -> None:
    found = merged(tuple(spans))
    assert numbers(found) == numbers(tuple(spans))
    assert all(later.first > earlier.last + 1 for earlier, later in pairwise(found))


@given(SPANS)
def test_gaps_are_what_is_missing_up_to_the_last(spans: list[RecordSpan]) -> None:
    found = Manifest(seen=merged(tuple(spans)))
    missing = {number for gap in found.gaps() for number in range(gap.first, gap.last + 1)}
    there = numbers(tuple(spans))
    assert missing == set(range(1, max(there, default=0) + 1)) - there


def test_boots_have_gaps_of_their_own() -> None:
    found = Manifest(seen=(span(1, 5), span(8, 9), span(3, 4, "c")))
    assert found.gaps() == (Gap("e", "b", 6, 7), Gap("e", "c", 1, 2))


def test_merged_spans_keep_the_times_of_their_ends() -> None:
    one, two, inner = (
        RecordSpan("e", "b", 1, 5, 10, 50),
        RecordSpan("e", "b", 6, 9, 60, 90),
        RecordSpan("e", "b", 2, 3, 20, 30),
    )
    assert merged((two, inner, one)) == (RecordSpan("e", "b", 1, 9, 10, 90),)
