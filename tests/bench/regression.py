"""What CI asks of the benches: that nothing has become several times slower. Ratios within one run, generously.

    python -m tests.bench.regression

The exit status is 1, with a sentence for each, when a figure is beyond its bound. A machine that is busy with something
else moves both sides of a ratio; the bounds leave room for what is left of that.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from paired_servicebus.bench.bench_plans import BenchError, SendPlan, SyphonPlan
from paired_servicebus.bench.rounds import Figures
from paired_servicebus.bench.send_bench import measure_send
from paired_servicebus.bench.syphon_bench import measure_syphon
from tests.bench.added_time import measure_added

MESSAGES: Final = 4000
SENT: Final = 64
SIZE: Final = 1024
LEAST: Final = {"ratio_vs_raw": 0.25, "ratio_vs_naive": 8.0, "ratio_callers": 0.8}
MOST: Final = {"added_us": 75.0}


def complaints(*measured: Figures) -> list[str]:
    """What is beyond its bound, a sentence each."""
    found = {name: value for figures in measured for name, value in figures.as_dict().items()}
    low = [
        f"{name} is {found[name]:g}; it must be {least:g} at least"
        for name, least in LEAST.items()
        if found[name] < least
    ]
    high = [
        f"{name} is {found[name]:g}; it must be {most:g} at most" for name, most in MOST.items() if found[name] > most
    ]
    return low + high


async def _measure() -> list[str]:
    syphon = await measure_syphon(SyphonPlan(messages=MESSAGES))
    send = await measure_send(SendPlan(messages=SENT, rounds=3))
    return complaints(syphon, send, await measure_added(SIZE))


def main() -> int:
    """The exit status."""
    try:
        found = asyncio.run(_measure())
    except BenchError as error:
        found = [str(error)]
    for text in found:
        sys.stderr.write(f"bench: {text}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
