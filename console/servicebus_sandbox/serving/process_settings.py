"""Settings of a process that runs only a sandbox.

It tunes the garbage collector: messages are many small objects without cycles, and the default thresholds halve the
throughput.
"""

from __future__ import annotations

import gc
import logging
import resource

log = logging.getLogger(__name__)

_GC_THRESHOLDS = (5_000, 200, 100)
"""The youngest generation is small: its collection delays every client."""


def allow_open_files() -> None:
    """Raise the limit of open files to the maximum: each connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # a system may allow less than its limit
        log.warning("the limit of open files stays %d: %s", soft, error)


def tune_collector() -> None:
    """Exempt the present objects from collection, and collect rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()
