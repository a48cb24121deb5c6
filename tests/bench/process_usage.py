"""What a process uses, as Linux counts it: CPU time, memory, open connections."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Final

from paired_servicebus.bench.bench_plans import BenchError

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_CPU_CLOCK: Final = 2
"""The clock of a process's CPU time in Linux's clock ids."""


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process so far."""
    return time.clock_gettime((~pid << 3) | _CPU_CLOCK)


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def allow_connections(count: int) -> None:
    """Allow `count` open connections for this process and its children. Raises BenchError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 200
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise BenchError(f"{count} connections need {wanted} open files; the hard limit here is {hard} (ulimit -Hn)")
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
