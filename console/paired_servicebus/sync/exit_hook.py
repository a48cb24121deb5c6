"""Close open clients when the program ends.

They are closed while threads can still start, before `atexit` handlers run: a client's event loop, aiohttp and the
journal need threads to end. `concurrent.futures` uses the same hook. Hooks run in reverse order, and its hook has to
run after ours.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 # its hook is registered by this import
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

_left_open: Final[dict[Callable[[], None], None]] = {}


def close_at_exit(close: Callable[[], None]) -> None:
    """Call `close` when the program ends, unless `forget` is called before."""
    _left_open[close] = None


def forget(close: Callable[[], None]) -> None:
    """Do not call `close` at exit."""
    _left_open.pop(close, None)


def _close_all() -> None:
    with ExitStack() as stack:  # each runs, even if another raises
        for close in [*_left_open]:
            stack.callback(close)


_register: Final[Callable[[Callable[[], None]], Any]] = getattr(threading, "_register_atexit", atexit.register)
"""CPython's own hook before its threads end; where there is none, the next best moment."""
_register(_close_all)
