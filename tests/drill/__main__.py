"""`paired drill` killed at random moments: `python -m tests.drill [--kills N] [--seed N]`.

After each kill `paired drill --clean` has to delete everything of the drill and its record. At the end all real
entities, some of them called like a drill's, and their messages are compared one by one with those at the start.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys

from .kills import kill_drills


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.drill", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}")
    done, changed = asyncio.run(kill_drills(chosen.kills, random.Random(chosen.seed)))
    good = sum(one.is_clean for one in done)
    hit = sum(one.before > 0 for one in done)
    print(f"{good} of {len(done)} kills left nothing after --clean; {hit} of them left entities before it")
    print(f"real entities and lists of messages that have changed: {', '.join(changed) or 'none'}")
    return int(good < len(done) or bool(changed))


if __name__ == "__main__":
    sys.exit(main())
