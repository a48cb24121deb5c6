"""`paired drill` killed at random moments over a sandbox with real entities: what each kill and `--clean` left."""

from __future__ import annotations

import asyncio
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.killed_runs import Play, play

from .conftest import BRISK
from .real_entities import MESSAGES, make_real, picture

LONGEST: Final = 16.0
"""Seconds of a drill with these times, from its record to its end."""
IMPORTS: Final = 3.0
"""Seconds from the start of the command in which every fifth kill falls; the others are counted from its record."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill. before, after: the drill's entities before and after `--clean`."""

    number: int
    seconds: float
    before: int
    after: int
    is_clean: bool


async def kill_drills(kills: int, draw: random.Random, *, longest: float = LONGEST) -> tuple[list[Kill], list[str]]:
    """Kill so many drills within `longest` seconds; return what each left, and the real entities that have changed."""
    done: list[Kill] = []
    with tempfile.TemporaryDirectory() as folder:
        async with play(Path(folder), "drill", "x-paired-drill-", options=BRISK) as found:
            await make_real(found.sandbox)
            real = await found.left()
            before = await picture(found.sandbox)
            assert all(len(value) == MESSAGES for name, value in before.items() if name.endswith("messages"))
            for number in range(1, kills + 1):
                done.append(await _kill_once(found, real, number, draw, longest))
                print(done[-1], flush=True)
            after = await picture(found.sandbox)
    return done, [name for name in before if before[name] != after.get(name)]


async def _kill_once(found: Play, real: list[str], number: int, draw: random.Random, longest: float) -> Kill:
    is_early = number % 5 == 0
    after = draw.uniform(0.0, IMPORTS if is_early else longest)
    process = await found.start("--yes", "orders", "--as-configured")
    while not is_early and not found.records() and process.returncode is None:
        await asyncio.sleep(0.01)
    try:
        await asyncio.wait_for(process.wait(), after)
    except TimeoutError:
        process.kill()
    await found.finish(process)
    left = len(await found.left()) - len(real)
    status, remains = await found.clean()
    is_clean = status == 0 and sorted(remains) == sorted(real) and not found.records()
    return Kill(number, round(after, 1), left, len(remains) - len(real), is_clean)
