"""The command `python -m tests.gateway_chaos`: break a gateway and all around it for some minutes, and judge."""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import secrets
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.checker import History, check
from tests.chaos.evidence import evidence
from tests.chaos.lists import Tail
from tests.chaos.sandbox import sandbox
from tests.gateway_chaos.gateway_director import SEND_TIMEOUT, GatewayDirector


def main() -> int:
    """Return 0: all as promised; 1: it is not; 2: it could not be run to its end."""
    parser = argparse.ArgumentParser(prog="python -m tests.gateway_chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long new trouble begins (default 1)")
    parser.add_argument("--connections", type=int, help="idle ones; default 1000, or 150 below five minutes")
    parser.add_argument("--seed", type=int, help="draws the plan; without it, any, and it is printed")
    asked = parser.parse_args()
    seed = secrets.randbelow(10**6) if asked.seed is None else asked.seed
    count = asked.connections or (1000 if asked.minutes >= 5 else 150)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder = Path(tempfile.mkdtemp(prefix="gwchaos-"))
    os.environ |= {"XDG_STATE_HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}  # the engine's files go there too
    _say(f"seed {seed}, {count} idle connections, in {folder}")
    try:
        problems = asyncio.run(_run(folder, seed, asked.minutes, count))
    except BaseException as error:
        _say(f"not run to its end; seed {seed}, lists and logs are in {folder}")
        if isinstance(error, asyncio.CancelledError):
            return 2
        raise
    for problem in problems[:50]:
        print(f"  {problem}")
    if problems:
        print(f"NOT AS PROMISED with seed {seed}: {len(problems)} problems; lists and logs are in {folder}")
        return 1
    shutil.rmtree(folder)
    print("all as promised")
    return 0


async def _run(folder: Path, seed: int, minutes: float, count: int) -> tuple[str, ...]:
    this = asyncio.current_task()
    assert this is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, this.cancel)
    async with sandbox(folder) as namespaces:
        director = GatewayDirector(folder, namespaces, seed, count, _say)
        try:
            await director.start()
            await director.go_on(minutes * 60)
            await director.finish()
        finally:
            await director.abandon()
    history = History()
    history.add(Tail(folder).news())
    verdict = check(history, send_timeout=SEND_TIMEOUT)
    for line in evidence(folder, verdict.suspects[:20]):
        _say(line)
    ledger = verdict.ledger
    print(
        f"seed {seed}, {director.episodes} episodes: {ledger.attempted} attempted, {ledger.accepted} accepted, "
        f"{ledger.in_doubt} in doubt of which {ledger.recovered} arrived, {ledger.lost} lost, {ledger.unexpected} "
        f"unexpected, copies {verdict.copies or 'none'}\n  the engine had at most {director.most_memory} MB, "
        f"{director.memories}; the longest recovery took {director.slowest:.1f} s"
    )
    return verdict.problems


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
