"""`python -m tests.stage PLAY ... [--minutes N] [--seed S] [--runs R]`: processes, faults and a ledger.

`--list` shows the table of plays: actors, course of faults, promises. A first word names all plays that begin with it,
such as `fleet`. Exit status: 0: all as promised; 1: not; 2: a play could not be run to its end.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import resource
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.stage.director import Director, direct, running_processes
from tests.stage.ledger import Broken, Verdict, evidence
from tests.stage.table import LEDGER, PLAYS, Play, chosen_plays

NOTHING_LEFT = "no process is left"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one run of a play."""

    play: str
    seed: int
    seconds: float
    episodes: int
    balance: dict[str, int]
    copies: dict[str, int]
    figures: dict[str, Any]
    problems: list[str]
    folder: str

    def lines(self) -> list[str]:
        """Return the report for a person."""
        figures = ", ".join(f"{count} {name}" for name, count in self.balance.items())
        copies = ", ".join(f"{count} of {name}" for name, count in self.copies.items())
        return [
            f"{self.play}, seed {self.seed}, {self.episodes} episodes in {self.seconds:.0f} s",
            f"  messages: {figures}; copies too many: {copies or 'none'}",
            *(f"  {name}: {value}" for name, value in self.figures.items()),
            *(f"  {problem}" for problem in self.problems[:50]),
            f"NOT AS PROMISED with seed {self.seed}: {len(self.problems)} problems; lists and logs are in {self.folder}"
            if self.problems
            else "all as promised",
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stage", description=__doc__)
    parser.add_argument("plays", nargs="*", metavar="PLAY", help=f"one of {', '.join(PLAYS)}")
    parser.add_argument("--minutes", type=float, help="how long new trouble begins; default: see --list")
    parser.add_argument("--seed", type=int, help="draws the course; without it, any, and it is printed")
    parser.add_argument("--runs", type=int, default=1, help="of each play, each with the next seed")
    parser.add_argument("--engines", type=int, default=20, help="of a fleet's plays")
    parser.add_argument("--json", action="store_true", help="the last line of each run is its result, as JSON")
    parser.add_argument("--list", action="store_true", help="show the table of plays")
    asked = parser.parse_args(arguments)
    if asked.list:
        print("\n".join(_row(name, play) for name, play in PLAYS.items()))
        return 0
    try:
        names = chosen_plays(asked.plays)
    except KeyError as error:
        parser.error(error.args[0])
    if not names:
        parser.error("which play? --list shows them")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
    seed = secrets.randbelow(10**6) if asked.seed is None else asked.seed
    runs = [(name, seed + number) for name in names for number in range(asked.runs)]
    statuses = [run(name, number, asked) for name, number in runs]
    if failed := [f"{name} (seed {number})" for (name, number), status in zip(runs, statuses, strict=True) if status]:
        _say(f"{len(failed)} of {len(runs)} runs not as promised: {', '.join(failed)}")
    return max(statuses)


def _row(name: str, play: Play) -> str:
    promises = "; ".join((*play.promises, LEDGER, NOTHING_LEFT))
    length = f"{play.minutes:g} min" if play.minutes else "of a fixed length"
    return f"{name} ({length})\n  actors: {play.actors}\n  faults: {play.course}\n  promises: {promises}"


def run(name: str, seed: int, asked: argparse.Namespace) -> int:
    """Run a play in a folder of its own, which stays if a promise is broken; return the exit status."""
    folder = Path(tempfile.mkdtemp(prefix="stage-"))
    os.environ |= {"XDG_STATE_HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}  # the engines' files go there too
    logging.basicConfig(
        filename=folder / "director.log", format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    _say(f"{name}: seed {seed}, in {folder}")
    try:
        result = asyncio.run(_perform(name, folder, seed, asked))
    except BaseException as error:
        _say(f"not run to its end; seed {seed}, lists, journals and logs are in {folder}")
        if isinstance(error, asyncio.CancelledError):
            return 2
        raise
    print("\n".join(result.lines()))
    if asked.json:
        print(msgspec.json.encode(result).decode())
    sys.stdout.flush()
    if not result.problems:
        shutil.rmtree(folder)
    return 1 if result.problems else 0


async def _perform(name: str, folder: Path, seed: int, asked: argparse.Namespace) -> Result:
    this = asyncio.current_task()
    assert this is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, this.cancel)
    play, began, is_complete = PLAYS[name], time.monotonic(), True
    async with direct(folder, seed, play.specs, _say) as director:
        try:
            await play.perform(director, play.minutes if asked.minutes is None else asked.minutes, asked.engines)
        except Broken as error:
            director.found(f"BROKEN: {error}")
            is_complete = False  # not all arrivals are listed: whether a message is lost is unknown
    if left := running_processes(folder):
        director.found(f"processes are left: {left}")
    verdict = _judge(play, director)
    problems = list(verdict.problems if is_complete else director.ledger.found)
    for line in evidence(folder, verdict.suspects if is_complete else ()):
        _say(line)
    found = verdict.balance
    kinds = ("attempted", "accepted", "refused", "in_doubt", "recovered", "delivered", "parked", "lost", "unexpected")
    return Result(
        play=name, seed=seed, seconds=round(time.monotonic() - began, 1), episodes=director.episodes,
        balance={kind: getattr(found, kind) for kind in kinds}, copies=verdict.copies, figures=director.figures,
        problems=problems, folder=str(folder) if problems else "",
    )  # fmt: skip


def _judge(play: Play, director: Director) -> Verdict:
    ledger = director.complete_ledger()
    return ledger.judge(
        send_timeout=director.send_timeout or play.send_timeout,
        calls_only=play.calls_only,
        dedup=play.dedup,
        may_park=play.may_park,
    )


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
