"""The garbage collector of a process that serves clients: its collections delay all of them."""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLDS: Final = (5_000, 20, 10)
"""Messages are many small objects without cycles: Python's own thresholds walk through those in hand all the time."""


def tune_collector() -> None:
    """Exempt the present objects, such as modules, from collection: a walk through them takes 20 ms and more."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
