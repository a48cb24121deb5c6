"""`python -m tests.gateway_processes [CASE ...] [--short]`: senders of four languages while the primary fails.

`--list` names the cases. `--short`: one of them in half a minute. Languages whose tools or SDK cannot be had are left
out and named. Exit status 1 if a promise does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from paired_servicebus.demo.languages.sender_programs import SenderProgram
from tests.gateway_processes.fetching import programs
from tests.gateway_processes.outage import Outage, outage
from tests.gateway_processes.stage import Broken

CASES: Final = {
    "reset": Outage(fault="reset", seconds=90.0),
    "silent": Outage(fault="black-holed", seconds=90.0),
    "disabled": Outage(fault="disabled", seconds=90.0),
    "throttled": Outage(fault="busy", seconds=60.0, fails_over=False),
}
SHORT_TIMES: Final = {"send_timeout": 1.0, "failover_interval": 3.0, "ping_primary_interval": 2.0}
SHORT: Final = {"reset, short": Outage(fault="reset", seconds=15.0, times=SHORT_TIMES)}
LANES: Final = 4
PAUSE: Final = 0.1
"""Seconds between two calls of a lane."""


def run(name: str, case: Outage, senders: Sequence[SenderProgram]) -> bool:
    """Run a case; return whether its promises hold."""
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"  {time.monotonic() - began:5.0f} s  {text}", flush=True)

    print(f"{name}: the primary is {case.fault} for {case.seconds:.0f} s", flush=True)
    with tempfile.TemporaryDirectory(prefix="gp-", ignore_cleanup_errors=True) as folder:
        try:
            asyncio.run(outage(case, senders, Path(folder), say, lanes=LANES, pause=PAUSE))
        except Broken as error:
            say(f"BROKEN: {error}")
            return False
    say(f"holds, {time.monotonic() - began:.0f} s")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gateway_processes", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"one of {', '.join(CASES)}; none: all")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--list", action="store_true")
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(f"{name}: {case.fault} for {case.seconds:.0f} s" for name, case in CASES.items()))
        return 0
    if unknown := [name for name in chosen.cases if name not in CASES]:
        parser.error(f"there is no case {unknown[0]!r}; there are {', '.join(CASES)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # processes and folders go in both cases
    cases = SHORT if chosen.short else {name: CASES[name] for name in chosen.cases or CASES}
    with (
        tempfile.TemporaryDirectory(prefix="gp-sdks-", ignore_cleanup_errors=True) as folder,
        programs(Path(folder)) as senders,
    ):
        broken = [name for name, case in cases.items() if not run(name, case, senders)]
    print(f"broken: {', '.join(broken)}" if broken else "all cases hold")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
