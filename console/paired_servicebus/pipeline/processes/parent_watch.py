"""Ends a process with Spark when its parent has ended; without Spark itself.

The parent holds the other end of standard input and writes at most an order to it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Final

ORPHANED: Final = 3
"""Exit status of a process that did not end in order in time."""


def watch_parent(end: Callable[[], object], *, within: float) -> None:
    """Call `end` on a thread once standard input has ended.

    After `within` more seconds the process is killed, and Spark's JVM with it.
    """

    def watch() -> None:
        while os.read(0, 4096):
            pass
        end()
        time.sleep(within)
        os._exit(ORPHANED)

    threading.Thread(target=watch, name="the end of standard input", daemon=True).start()
