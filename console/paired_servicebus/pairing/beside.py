"""Work of ours done while somebody else is waited for.

A healthy send waits for its answer for most of its time. What we have to do for it costs nothing then, but all of it
if it is done before the message leaves, or after the answer came.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


@coroutine
def beside(waiting: Coroutine[Any, Any, T], work: Callable[[], object]) -> Generator[Any, Any, T]:
    """Await `waiting`; `work` is called once, as soon as that has to wait for the first time, or has ended without.

    Raises: what `waiting` raises. `work` must not.
    """
    try:
        awaited = waiting.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return] # what a coroutine returns comes as its end's value
    finally:
        work()
    while True:
        try:
            yield awaited
        except BaseException as thrown:  # noqa: BLE001 - a cancellation, as a rule: `waiting` decides what it means
            try:
                awaited = waiting.throw(thrown)
            except StopIteration as ended:
                return ended.value  # type: ignore[no-any-return]
        else:
            return (yield from waiting)  # type: ignore[no-any-return]
