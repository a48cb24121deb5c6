"""Verbs that make entities of their own, killed at random moments: what each kill, and `--clean` after it, left."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.drill.conftest import BRISK
from tests.drill.real_entities import MESSAGES, make_real, picture
from tests.stage.course import PRIMARY
from tests.stage.director import Director, direct
from tests.stage.ledger import Broken, now
from tests.stage.processes import ROOT, SIDES, ended

from paired_servicebus.connection_string import parts_of
from servicebus_sandbox.specs import primary_and_secondary

SPECS: Final = primary_and_secondary()
OTHER: Final = "orders"
"""A queue of the primary that is none of a verb's."""
LONGEST: Final = 16.0
"""Seconds of a drill, or of a run's experiments, from its record to its end, on a quiet machine."""
IMPORTS: Final = 3.0
"""Seconds from the start of a command in which every fourth kill falls; the others are counted from its record."""
EARLY: Final = 4


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb over the sandbox, with its pairing.toml and its state in a folder. prefix: of its entities' names."""

    director: Director
    name: str
    prefix: str

    def write(self, options: str = "") -> None:
        """Write its pairing.toml; its certificate outlives the sandbox."""
        folder, sandbox = self.director.folder, self.director.sandbox
        ca_file = shutil.copy(sandbox.ca_file, folder / "ca.pem")
        text = f'[pairing]\nname = "orders"\n{options}'
        for side in SIDES:
            text += f'[{side}]\nconnection_string = "{sandbox[side].connection_string}"\nca_file = "{ca_file}"\n'
        (folder / "pairing.toml").write_text(text)

    @property
    def secrets(self) -> list[str]:
        parts = [parts_of(self.director.sandbox[side].connection_string) for side in SIDES]
        return [one["sharedaccesskey"] for one in parts] + [one["endpoint"].removeprefix("sb://") for one in parts]

    async def start(self, *arguments: str) -> Process:
        folder = self.director.folder
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "paired_servicebus", self.name, "--config", str(folder / "pairing.toml"), *arguments,
            cwd=ROOT, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT,
            env=os.environ | {"XDG_STATE_HOME": str(folder / "state")},
        )  # fmt: skip

    async def clean(self) -> tuple[int, list[str]]:
        """Run `--clean`; return its exit status, and the entities left after it."""
        status, _ = await ended(await self.start("--clean"))
        return status, self.left()

    def left(self) -> list[str]:
        """Return the verb's entities in both namespaces."""
        spaces = [self.director.sandbox[side].node.namespace for side in SIDES]
        found = [one.path for space in spaces for one in (*space.queues(), *space.topics())]
        return [path for path in found if path.startswith(self.prefix)]

    def records(self) -> list[Path]:
        return list((self.director.folder / "state/paired/orders" / self.name).glob("*.jsonl"))

    async def until_recorded(self, process: Process) -> None:
        """Wait until a run has written its record, or has ended."""
        while not self.records() and process.returncode is None:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def verb(folder: Path, name: str, prefix: str, *, options: str = "") -> AsyncIterator[Verb]:
    """Open a stage for one verb, for a test."""
    async with direct(folder, 0, SPECS, lambda _text: None) as director:
        found = Verb(director, name, prefix)
        found.write(options)
        yield found


async def drill_kills(director: Director, minutes: float, _engines: int) -> None:
    """Kill drills beside real entities, some of them called like a drill's: those and their messages do not change."""
    drill = Verb(director, "drill", "x-paired-drill-")
    drill.write(BRISK)
    await make_real(director)
    before = await picture(director)
    if not all(len(value) == MESSAGES for name, value in before.items() if name.endswith("messages")):
        raise Broken("the real entities are not as they were made")
    await _kill_runs(drill, minutes, ("--yes", "orders", "--as-configured"))
    after = await picture(director)
    if changed := [name for name in before if before[name] != after.get(name)]:
        director.found(f"real entities and lists of messages that have changed: {changed}")


async def verify_kills(director: Director, minutes: float, _engines: int) -> None:
    """Kill runs of experiments."""
    verify = Verb(director, "verify", "paired-verify-")
    verify.write()
    await _kill_runs(verify, minutes, ())
    if OTHER not in {queue.path for queue in director.sandbox[PRIMARY].node.namespace.queues()}:
        director.found(f"{OTHER} was deleted")


async def _kill_runs(found: Verb, minutes: float, arguments: Sequence[str]) -> None:
    """Kill one run after the other, at least until one had entities; each `--clean` leaves only what was before."""
    director, real, end, kills, hits = found.director, sorted(found.left()), now() + minutes * 60, 0, 0
    while now() < end or (not hits and kills < EARLY):
        kills += 1
        is_early = kills % EARLY == 0
        after = director.draw.uniform(0.0, IMPORTS if is_early else LONGEST)
        process = await found.start(*arguments)
        if not is_early:
            await found.until_recorded(process)
        try:
            await asyncio.wait_for(process.wait(), after)
        except TimeoutError:
            process.kill()
        await ended(process)
        before = len(found.left()) - len(real)
        status, remains = await found.clean()
        hits += before > 0
        director.say(
            f"kill {kills}, {after:.1f} s after its {'start' if is_early else 'record'}: {before} entities left"
        )
        if status or sorted(remains) != real or found.records():
            director.found(f"kill {kills}: --clean ended with {status}; left: {remains}, records {found.records()}")
    if not hits:
        raise Broken("no kill hit a run with entities of its own")
    director.figures |= {"kills": kills, "with entities before --clean": hits}
