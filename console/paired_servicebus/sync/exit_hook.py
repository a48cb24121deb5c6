"""What happens to clients that are left open when the program ends.

They are closed while threads can still be started and given work, that is before `atexit` handlers run: the event loop
of a client, aiohttp and the journal need threads to come to their end. `concurrent.futures` hooks into the same moment,
and its hook has to run after ours: hooks run in reverse order.
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
    """Do nothing about `close` any more."""
    _left_open.pop(close, None)


def _close_all() -> None:
    with ExitStack() as stack:  # calls each, whatever another raises
        for close in [*_left_open]:
            stack.callback(close)


_register: Final[Callable[[Callable[[], None]], Any]] = getattr(threading, "_register_atexit", atexit.register)
"""CPython's own hook before its threads end; where there is none, the next best moment."""
_register(_close_all)
