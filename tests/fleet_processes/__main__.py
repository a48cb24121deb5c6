"""`python -m tests.fleet_processes [CASE ...] [--engines 20] [--seed N]`: engines as processes, killed and cut off.

`--list` names the cases. Exit status 1 if a promise does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final

from tests.fleet_processes.cleaning import cleaning_kills
from tests.fleet_processes.kills import boot_kills, order_kills
from tests.fleet_processes.latency import latency, many
from tests.fleet_processes.netns import netns
from tests.fleet_processes.partition import partition
from tests.fleet_processes.posting import posting_kills
from tests.fleet_processes.setting import Broken
from tests.fleet_processes.throttled import throttled

Case = Callable[[int, int, Callable[[str], None]], Awaitable[None]]
CASES: Final[dict[str, Case]] = {
    "partition": partition,
    "order-kills": order_kills,
    "boot-kills": boot_kills,
    "cleaning-kills": cleaning_kills,
    "posting-kills": posting_kills,
    "throttled": throttled,
    "latency": latency,
    "many": many,
    "netns": netns,
}


def run(name: str, seed: int, count: int) -> bool:
    """Run a case; return whether its promises hold."""
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"  {time.monotonic() - began:5.0f} s  {text}", flush=True)

    print(f"{name}: {(CASES[name].__doc__ or '').strip()}", flush=True)
    try:
        asyncio.run(CASES[name](seed, count, say))
    except Broken as error:
        say(f"BROKEN: {error}")
        return False
    say(f"holds, {time.monotonic() - began:.0f} s")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet_processes", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"one of {', '.join(CASES)}; none: all")
    parser.add_argument("--engines", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--list", action="store_true")
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(f"{name}: {(case.__doc__ or '').strip()}" for name, case in CASES.items()))
        return 0
    if unknown := [name for name in chosen.cases if name not in CASES]:
        parser.error(f"there is no case {unknown[0]!r}; there are {', '.join(CASES)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # processes and folders go in both cases
    print(f"seed {chosen.seed}, {chosen.engines} engines", flush=True)
    broken = [name for name in chosen.cases or CASES if not run(name, chosen.seed, chosen.engines)]
    print(f"broken: {', '.join(broken)}" if broken else "all cases hold")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
