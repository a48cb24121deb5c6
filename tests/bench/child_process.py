"""A developers' bench's child process, which imports `tests` and the source."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.interpreter import python_command, python_environment

ROOT: Final = Path(__file__).parents[2]
START: Final = 30.0
STOP: Final = 30.0
Found = TypeVar("Found")


def child_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return `environ` (default: this process's) with the project's root and the source on PYTHONPATH.

    Children keep their bytecode, as an installed program has it: compiling all modules takes a third of a start.
    """
    given = {**(os.environ if environ is None else environ)}
    given.pop("PYTHONDONTWRITEBYTECODE", None)
    path = os.pathsep.join([str(ROOT), given.get("PYTHONPATH", "")])
    return python_environment({**given, "PYTHONPATH": path})


@dataclass(frozen=True, slots=True)
class Child:
    """A running child process that takes lines on standard input, and its first line."""

    process: Process
    orders: asyncio.StreamWriter
    first: bytes


@asynccontextmanager
async def child(module: str, *words: str, order: bytes = b"") -> AsyncIterator[Child]:
    """Run a module of `tests` until its standard input ends; `order` is its first line.

    Raises:
        BenchError: it wrote no first line in time, or did not end in time.
    """
    process = await asyncio.create_subprocess_exec(
        *python_command(module, *words), stdin=PIPE, stdout=PIPE, env=child_environment()
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(order)
        first = await _within(START, process.stdout.readline(), f"{module} did not start")
        if not first:
            raise BenchError(f"{module} did not start; its reason is above")
        yield Child(process, process.stdin, first)
        process.stdin.close()
        await _within(STOP, process.wait(), f"{module} did not end")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _within(seconds: float, work: Awaitable[Found], complaint: str) -> Found:
    try:
        return await asyncio.wait_for(work, seconds)
    except TimeoutError as error:
        raise BenchError(f"{complaint} in {seconds:g} s; its reason is above") from error
