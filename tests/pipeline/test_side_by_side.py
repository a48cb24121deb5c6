"""Queries beside each other: their results keep the order, their errors come out, an interrupt reaches them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from paired_servicebus.pipeline.spark.spark_session import side_by_side


class Session:
    """A session's tags, which belong to a thread."""

    def __init__(self) -> None:
        self.tags = threading.local()
        self.tags.now = {"judging"}

    def getTags(self) -> set[str]:
        return getattr(self.tags, "now", set())

    def addTag(self, tag: str) -> None:
        self.tags.now = {*self.getTags(), tag}


def test_results_come_in_the_order_of_the_queries_though_they_run_at_once() -> None:
    meet = threading.Barrier(2)

    def query(number: int) -> Callable[[], int]:
        def run() -> int:
            meet.wait(10)  # for the other one: one after the other they would wait in vain
            return number

        return run

    assert side_by_side(Session(), [query(1), query(2)]) == [1, 2]


def test_each_query_has_the_tags_of_its_caller() -> None:
    session = Session()
    assert side_by_side(session, [session.getTags, session.getTags, session.getTags]) == [{"judging"}] * 3


def test_an_error_is_raised_after_the_others_have_ended() -> None:
    ended: list[str] = []

    def fail() -> None:
        raise ValueError("no such column")

    with pytest.raises(ValueError, match="no such column"):
        side_by_side(Session(), [fail, lambda: ended.append("second"), lambda: ended.append("third")])
    assert sorted(ended) == ["second", "third"]
