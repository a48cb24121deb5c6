"""Queries beside each other: while one is planned and compiled, which takes one processor, another one's tasks run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

T = TypeVar("T")
AT_ONCE: Final = 2
"""More would only wait for each other: Spark plans in this process."""


def side_by_side(spark: Any, queries: Iterable[Callable[[], T]]) -> list[T]:
    """Run queries, each in a thread of its own, and return their results in the same order.

    They have the tags of the calling thread, so that what interrupts its jobs interrupts theirs. All have ended when
    this returns. Raises the first error, in the order of the queries.
    """
    tags = spark.getTags()

    def tagged(query: Callable[[], T]) -> T:
        for tag in tags:
            spark.addTag(tag)
        return query()

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="query") as threads:
        return [done.result() for done in [threads.submit(tagged, query) for query in queries]]
