"""A verb in a process of its own over a sandbox in another, and the entities that it leaves."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paired_servicebus.connection_string import parts_of
from paired_servicebus.sandbox_process import SandboxProcess, sandbox_process

SIDES: Final = ("primary", "secondary")
PATIENCE: Final = 120.0


@dataclass(frozen=True, slots=True)
class Play:
    """A sandbox, and a pairing.toml for it in `folder`. prefix: of the names of the verb's entities."""

    sandbox: SandboxProcess
    folder: Path
    verb: str
    prefix: str

    @property
    def secrets(self) -> list[str]:
        parts = [parts_of(self.sandbox.connection_string(side)) for side in SIDES]
        return [one["sharedaccesskey"] for one in parts] + [one["endpoint"].removeprefix("sb://") for one in parts]

    async def start(self, *arguments: str) -> Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "paired_servicebus", self.verb,
            "--config", str(self.folder / "pairing.toml"), *arguments,
            stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, env=os.environ | {"XDG_STATE_HOME": str(self.folder / "state")},
        )  # fmt: skip

    async def finish(self, process: Process) -> tuple[int, str]:
        """The exit status and the output."""
        async with asyncio.timeout(PATIENCE):
            out, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode()

    async def clean(self) -> tuple[int, list[str]]:
        """`--clean`: its exit status, and the entities left after it."""
        status, _ = await self.finish(await self.start("--clean"))
        return status, await self.left()

    async def left(self) -> list[str]:
        """The verb's entities in both namespaces."""
        found = []
        for side in SIDES:
            async with self.sandbox.admin(side) as admin:
                found += [queue.name async for queue in admin.list_queues()]
                found += [topic.name async for topic in admin.list_topics()]
        return [name for name in found if name.startswith(self.prefix)]

    def records(self) -> list[Path]:
        return list((self.folder / "state/paired/orders" / self.verb).glob("*.jsonl"))


@asynccontextmanager
async def play(folder: Path, verb: str, prefix: str, *, options: str = "") -> AsyncIterator[Play]:
    async with sandbox_process(folder / "sandbox.log") as sandbox:
        ca_file = shutil.copy(sandbox.ca_file, folder / "ca.pem")  # it outlives the sandbox
        text = f'[pairing]\nname = "orders"\n{options}'
        for side in SIDES:
            text += f'[{side}]\nconnection_string = "{sandbox.connection_string(side)}"\nca_file = "{ca_file}"\n'
        (folder / "pairing.toml").write_text(text)
        yield Play(sandbox, folder, verb, prefix)
