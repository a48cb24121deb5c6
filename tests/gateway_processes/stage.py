"""The namespaces in this process, an engine with a gateway in another, and senders of all languages as processes."""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.accounting.ledger import Arrival, Ledger, balance
from paired_servicebus.demo.languages.sender_process import SenderProcess
from paired_servicebus.demo.languages.sender_programs import SenderProgram
from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox
from tests.gateway_processes.engine import Figures, Started, Task

ROOT: Final = Path(__file__).parents[2]
ENTITY: Final = "orders"
BACKLOGS: Final = tuple(f"primary/x-servicebus-transfer/{index}" for index in range(2))
START: Final = 60.0
ANSWERED: Final = 150.0
"""Seconds in which every call that is under way has to return: some SDKs try four times, each for half a minute."""
DRAINED: Final = 180.0
POLL: Final = 0.25


class Broken(AssertionError):
    """A promise that does not hold."""


@dataclass(eq=False)
class Stage:
    """A running engine with its senders."""

    sandbox: Sandbox
    folder: Path
    stack: AsyncExitStack
    engine: Process
    connection_string: str
    senders: list[SenderProcess] = field(default_factory=list)

    async def start(self, programs: Sequence[SenderProgram], *, lanes: int, pause: float) -> None:
        """Start a sender of each program; return when each has an accepted message. Raises Broken."""
        for program in programs:
            sender = SenderProcess(program, program.language.lower(), self.folder / f"{program.language}.log")
            self.stack.push_async_callback(sender.kill)
            await sender.start(self.connection_string, ENTITY, lanes=lanes, pause=pause)
            self.senders.append(sender)
        await self.until(lambda: all(one.accepted >= 2 * lanes for one in self.senders), START, "every sender sends")

    async def figures(self) -> Figures:
        assert self.engine.stdin is not None
        assert self.engine.stdout is not None
        self.engine.stdin.write(b"figures\n")
        return msgspec.json.decode(await self.engine.stdout.readline(), type=Figures)

    async def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for a condition. Raises Broken."""
        end = time.monotonic() + seconds
        while not condition():
            for sender in self.senders:
                if not (sender.is_running or sender.has_ended):
                    raise Broken(f"the sender in {sender.program.language} ended by itself: {self.log_of(sender)}")
            if time.monotonic() > end:
                raise Broken(f"after {seconds:.0f} s not: {what}; {self.told()}")
            await asyncio.sleep(POLL)

    async def stop(self) -> None:
        """End the senders. Raises Broken: one has calls without an answer."""
        await asyncio.gather(*(one.stop(ANSWERED) for one in self.senders))
        hanging = [one.program.language for one in self.senders if not one.has_ended]
        if hanging:
            raise Broken(f"{', '.join(hanging)}: calls did not return within {ANSWERED:.0f} s; {self.told()}")

    async def drained(self) -> Figures:
        """Wait until sends go to the primary and the backlog is empty. Raises Broken."""
        end = time.monotonic() + DRAINED
        while True:
            figures = await self.figures()
            left = sum(self.ids("secondary", BACKLOGS).values())
            if set(figures.states.values()) == {"healthy"} and not left:
                return figures
            if time.monotonic() > end:
                raise Broken(f"after {DRAINED:.0f} s not: the syphon has drained; {left} left, {figures}")
            await asyncio.sleep(POLL)

    def ledger(self) -> Ledger:
        """Compare the senders' own lists with what lies in the namespaces."""
        arrivals = [Arrival(name, name, 0) for name in self.ids("primary", [ENTITY]).elements()]
        answers = {name: told for sender in self.senders for name, told in sender.answers.items()}
        return balance(answers=answers, arrivals=arrivals, parked=self.ids("secondary", BACKLOGS))

    def ids(self, side: str, paths: Sequence[str]) -> Counter[str]:
        """Count the ids of what lies in queues."""
        namespace = self.sandbox[side].node.namespace
        found: Counter[str] = Counter()
        for path in paths:
            stored = namespace.queue(path).messages.peek(0, 10_000_000)
            found.update(str(one.message.message_id) for one in stored)
        return found

    def duplicates(self) -> list[str]:
        return [name for name, count in self.ids("primary", [ENTITY]).items() if count > 1]

    def was_under_way(self, name: str, at: float, window: float) -> bool:
        """Return whether a message's call had begun and not returned at a time of the loop, or nearly so."""
        spans = [sender.calls[name] for sender in self.senders if name in sender.calls]
        return any(begun - window <= at <= answered + window for begun, answered in spans)

    def told(self) -> str:
        return ", ".join(
            f"{one.program.language}: {one.accepted} accepted, {len(one.errors)} errors, {one.under_way} under way"
            for one in self.senders
        )

    def log_of(self, sender: SenderProcess) -> str:
        return (self.folder / f"{sender.program.language}.log").read_text(errors="replace")[-600:]


@asynccontextmanager
async def stage(folder: Path, **times: float) -> AsyncIterator[Stage]:
    """Open the namespaces and start the engine. times: those of its task."""
    specs = (NamespaceSpec("primary", queues=[QueueSpec(ENTITY)]), NamespaceSpec("secondary"))
    async with Sandbox.start(specs) as sandbox, AsyncExitStack() as stack:
        engine = await _engine(stack, sandbox, folder, times)
        assert engine.stdout is not None
        async with asyncio.timeout(START):
            line = await engine.stdout.readline()
        if not line:
            raise Broken(f"the engine did not start: {(folder / 'engine.log').read_text()[-600:]}")
        started = msgspec.json.decode(line, type=Started)
        yield Stage(sandbox, folder, stack, engine, started.connection_string)


async def _engine(stack: AsyncExitStack, sandbox: Sandbox, folder: Path, times: dict[str, float]) -> Process:
    with (folder / "engine.log").open("ab") as log:
        engine = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.gateway_processes.engine"), cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=log
        )

    async def end() -> None:
        assert engine.stdin is not None
        engine.stdin.close()
        try:
            async with asyncio.timeout(15.0):
                await engine.wait()
        except TimeoutError:
            engine.kill()
            await engine.wait()

    stack.push_async_callback(end)
    strings = {side: sandbox[side].connection_string for side in ("primary", "secondary")}
    assert engine.stdin is not None
    engine.stdin.write(msgspec.json.encode(Task(ca_file=str(sandbox.ca_file), **strings, **times)) + b"\n")
    return engine
