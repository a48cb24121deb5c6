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

from .killing import Play, play

FIRST, LAST = 0.3, 12.0
"""Seconds from the start of a run to its kill: from its imports to its end."""
OTHER: Final = "orders"


async def kill_runs(kills: int, draw: random.Random) -> int:
    """Return the number of kills after which something was left."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        async with play(Path(folder)) as found:
            for number in range(1, kills + 1):
                failed += not await _kill_once(found, number, draw.uniform(FIRST, LAST))
            async with found.sandbox.admin("primary") as admin:
                await admin.get_queue(OTHER)  # raises if it was deleted
    return failed


async def _kill_once(found: Play, number: int, after: float) -> bool:
    process = await found.start()
    try:
        await asyncio.wait_for(process.wait(), after)
    except TimeoutError:
        process.kill()
    await found.finish(process)
    left = await found.left()
    status, remains = await found.clean()
    is_clean = status == 0 and not remains and not found.records()
    print(f"kill {number} after {after:.1f} s: {len(left)} queues left, {len(remains)} after --clean", flush=True)
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
