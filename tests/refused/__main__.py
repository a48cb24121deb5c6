"""`python -m tests.refused --runs 20`: is every call that ends in an error counted, and once?

In each run an application with an engine of its own loses both namespaces, more than once, and counts what its sends
raised. The engine's count, the snapshot and the metrics have to agree with it exactly; status, metrics, dashboard and
`on_change` have to say within two seconds of the first refused call that calls are refused. Exit status 1 if not.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path

from tests.refused.play import Played, play, summary


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.refused", description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pr-"))
    os.environ["XDG_STATE_HOME"] = str(folder)
    os.environ.pop("XDG_RUNTIME_DIR", None)
    played: list[Played] = []
    try:
        for seed in range(given.seed, given.seed + given.runs):
            one = asyncio.run(play(seed, folder, port=free_port()))
            played.append(one)
            print(f"seed {seed}: application {one.refused} {one.kinds}, all said after {one.told.latest:.2f} s")
            for wrong in one.wrong:
                print(f"  WRONG: {wrong}")
    finally:
        shutil.rmtree(folder)
    print(summary(played))
    return 1 if any(one.wrong for one in played) else 0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
