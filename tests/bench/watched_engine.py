"""`python -m tests.bench.watched_engine CONFIG FIGURES SECONDS EVENTS [--trace]`: an engine that notes its own memory.

Each SECONDS it appends one JSON object to FIGURES: what the kernel, the C allocator and Python's allocator count. With
--trace also the lines of the program that hold more than at the first reading after WARM, and what Python's objects
hold in all; tracing needs memory of its own, so the kernel's figures are those of an engine without it. EVENTS: so many
are remembered for consoles that come back; 0: as shipped.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
import tempfile
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any, Final

import msgspec

from paired_servicebus.engine.control import control_server
from paired_servicebus.engine.service.main import run_here

WARM: Final = 600.0
"""Seconds after which every window, ring and cache of an engine is as full as it gets."""
MOST_SITES: Final = 25
FRAMES: Final = 3
KB: Final = 1024
_MALLOC_FIELDS: Final = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip


class _MallInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _MALLOC_FIELDS]


def kernel_figures(pid: int) -> dict[str, int]:
    """Return a process's memory in bytes: resident, its proportional share, and its own pages."""
    found = dict(re.findall(r"(\w+): +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text()))
    own = int(found["Private_Clean"]) + int(found["Private_Dirty"])
    return {"rss": int(found["Rss"]) * KB, "pss": int(found["Pss"]) * KB, "private": own * KB}


def malloc_figures() -> dict[str, int]:
    """Return what glibc's malloc has of the kernel, what of it is in use and what is free; nothing elsewhere."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return {}
    library.mallinfo2.restype = _MallInfo
    found = library.mallinfo2()
    return {
        "malloc_heap": found.arena,
        "malloc_mapped": found.hblkhd,
        "malloc_used": found.uordblks + found.hblkhd,
        "malloc_free": found.fordblks,
    }


def python_figures() -> dict[str, int]:
    """Return the arenas of Python's allocator for small objects, and the bytes of them that are in use; 0 if traced."""
    with tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            sys._debugmallocstats()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        file.seek(0)
        text = file.read().decode(errors="replace")

    def figure(name: str) -> int:
        found = re.search(rf"^{re.escape(name)} += +([\d,]+)", text, re.MULTILINE)
        return int(found[1].replace(",", "")) if found else 0

    return {
        "python_arenas": figure("# arenas allocated current"),
        "python_used": figure("# bytes in allocated blocks"),
        "python_blocks": sys.getallocatedblocks(),
    }


class Watch(threading.Thread):
    """Writes the figures down until the process ends."""

    def __init__(self, file: Path, seconds: float, *, traces: bool) -> None:
        super().__init__(name="memory", daemon=True)
        self._file, self._seconds, self._traces = file, seconds, traces
        self._first: tracemalloc.Snapshot | None = None
        self._began = time.monotonic()

    def run(self) -> None:
        """Read at once, then each interval."""
        while True:
            with self._file.open("ab") as file:
                file.write(msgspec.json.encode(self._read()) + b"\n")
            time.sleep(self._seconds)

    def _read(self) -> dict[str, Any]:
        at = time.monotonic() - self._began
        figures = {"at": round(at, 1), **kernel_figures(os.getpid()), **malloc_figures(), **python_figures()}
        if not self._traces:
            return figures
        gc.collect()
        traced, _ = tracemalloc.get_traced_memory()
        return figures | {"traced": traced, "sites": self._sites(at)}

    def _sites(self, at: float) -> list[dict[str, Any]]:
        """Return the lines that hold more, or less, than at the first reading after WARM; the largest changes first."""
        if at < WARM - self._seconds / 2:
            return []
        ignored = [
            tracemalloc.Filter(inclusive=False, filename_pattern=name) for name in (__file__, tracemalloc.__file__)
        ]
        now = tracemalloc.take_snapshot().filter_traces(ignored)
        self._first = self._first or now
        changed = now.compare_to(self._first, "traceback")[:MOST_SITES]
        return [
            {
                "bytes": one.size_diff,
                "blocks": one.count_diff,
                "at": [f"{f.filename}:{f.lineno}" for f in one.traceback],
            }
            for one in changed
            if one.size_diff
        ]


def main(config: str, figures: str, seconds: str, events: str, *options: str) -> int:
    traces = "--trace" in options
    control_server.REMEMBERED_EVENTS = int(events) or control_server.REMEMBERED_EVENTS  # type: ignore[misc]
    if traces:
        tracemalloc.start(FRAMES)
    Watch(Path(figures), float(seconds), traces=traces).start()
    return run_here(Path(config))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
