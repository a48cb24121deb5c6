"""The command `python -m tests.chaos`: break everything for some minutes, and say whether anything was lost."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import msgspec

from tests.chaos.checker import History, Verdict, check
from tests.chaos.director import SEND_TIMEOUT, Director
from tests.chaos.evidence import evidence
from tests.chaos.lists import Tail
from tests.chaos.plan import episodes
from tests.chaos.sandbox import sandbox


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` tells."""

    seed: int
    seconds: float
    episodes: int
    attempted: int
    accepted: int
    refused: int
    in_doubt: int
    recovered: int
    delivered: int
    lost: int
    unexpected: int
    copies: dict[str, int]
    acts: dict[str, int]
    slowest_recovery: float
    """Seconds."""
    problems: list[str]
    folder: str


def main() -> int:
    """0: all as promised; 1: it is not; 2: it could not be run to its end."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long new trouble begins (default 2)")
    parser.add_argument("--seed", type=int, help="draws the plan; without it, any, and it is told")
    parser.add_argument("--episodes", type=int, help="no more than so many")
    parser.add_argument("--json", action="store_true", help="the last line is the result, as JSON")
    asked = parser.parse_args()
    seed = secrets.randbelow(10**6) if asked.seed is None else asked.seed
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    os.environ |= {"XDG_STATE_HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}  # the engine's files go there too
    _say(f"seed {seed}, in {folder}")
    try:
        result = asyncio.run(_run(folder, seed, asked.minutes, asked.episodes))
    except BaseException as error:
        _say(f"not run to its end; seed {seed}, lists, journals and logs are in {folder}")
        if isinstance(error, asyncio.CancelledError):
            return 2
        raise
    if not result.problems:
        shutil.rmtree(folder)
    print(msgspec.json.encode(result).decode() if asked.json else _for_a_person(result))
    return 1 if result.problems else 0


async def _run(folder: Path, seed: int, minutes: float, most: int | None) -> Result:
    this = asyncio.current_task()
    assert this is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, this.cancel)
    began = time.monotonic()
    async with sandbox(folder) as namespaces:
        director = Director(folder, namespaces, seed, _say)
        try:
            await director.start()
            end = time.monotonic() + minutes * 60
            for episode in islice(episodes(seed), most):
                if time.monotonic() > end:
                    break
                await director.perform(episode)
            await director.finish()
        finally:
            await director.abandon()
    history = History()
    history.add(Tail(folder).news())
    verdict = check(history, send_timeout=SEND_TIMEOUT)
    for line in evidence(folder, verdict.suspects):
        _say(line)
    return _result(verdict, director, seed, time.monotonic() - began, folder)


def _result(verdict: Verdict, director: Director, seed: int, seconds: float, folder: Path) -> Result:
    ledger = verdict.ledger
    return Result(
        seed=seed,
        seconds=round(seconds, 1),
        episodes=director.episodes,
        attempted=ledger.attempted,
        accepted=ledger.accepted,
        refused=ledger.refused,
        in_doubt=ledger.in_doubt,
        recovered=ledger.recovered,
        delivered=ledger.delivered,
        lost=ledger.lost,
        unexpected=ledger.unexpected,
        copies=verdict.copies,
        acts={str(act): count for act, count in director.reached.items()},
        slowest_recovery=round(director.slowest, 1),
        problems=list(verdict.problems),
        folder=str(folder) if verdict.problems else "",
    )


def _for_a_person(result: Result) -> str:
    lines = [
        f"seed {result.seed}, {result.episodes} episodes in {result.seconds:.0f} s",
        f"  {result.attempted} messages attempted, {result.accepted} accepted, {result.refused} refused, "
        f"{result.in_doubt} in doubt of which {result.recovered} arrived",
        f"  {result.lost} lost, {result.unexpected} unexpected; "
        f"copies too many: {', '.join(f'{count} of {name}' for name, count in result.copies.items()) or 'none'}",
        *(f"  {count} times {act}" for act, count in result.acts.items()),
        f"  the longest recovery took {result.slowest_recovery:.1f} s",
        *(f"  {problem}" for problem in result.problems),
    ]
    if result.problems:
        lines.append(f"NOT AS PROMISED with seed {result.seed}; lists, journals and logs are in {result.folder}")
    else:
        lines.append("all as promised")
    return "\n".join(lines)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
