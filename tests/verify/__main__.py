"""`paired verify` killed at random moments: `python -m tests.verify [--kills N] [--seed N]`.

After each kill `paired verify --clean` has to delete every queue of the run, its record, and no other queue.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.killed_runs import Play, play

LONGEST: Final = 12.0
"""Seconds of a run's experiments."""
IMPORTS: Final = 3.0
"""Seconds from the start of a run in which every fourth kill falls; the others are counted from its first queue."""
OTHER: Final = "orders"


async def kill_runs(kills: int, draw: random.Random) -> int:
    """Return the number of kills after which something was left."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        async with play(Path(folder), "verify", "paired-verify-") as found:
            for number in range(1, kills + 1):
                is_early = number % 4 == 0
                after = draw.uniform(0.0, IMPORTS if is_early else LONGEST)
                failed += not await _kill_once(found, number, after, is_early=is_early)
            async with found.sandbox.admin("primary") as admin:
                await admin.get_queue(OTHER)  # raises if it was deleted
    return failed


async def _kill_once(found: Play, number: int, after: float, *, is_early: bool) -> bool:
    process = await found.start()
    while not is_early and not found.records() and process.returncode is None:
        await asyncio.sleep(0.01)
    try:
        await asyncio.wait_for(process.wait(), after)
    except TimeoutError:
        process.kill()
    await found.finish(process)
    left = await found.left()
    status, remains = await found.clean()
    is_clean = status == 0 and not remains and not found.records()
    since = "its start" if is_early else "its first queue"
    print(
        f"kill {number}, {after:.1f} s after {since}: {len(left)} queues left, {len(remains)} after --clean", flush=True
    )
    return is_clean


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.verify", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}")
    failed = asyncio.run(kill_runs(chosen.kills, random.Random(chosen.seed)))
    print(f"{chosen.kills - failed} of {chosen.kills} kills left nothing behind after --clean")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
