"""The command `python -m tests.conformance.frameworks [--sandbox] [--seconds 45] [NAME ...]`: programs people use.

The registries' own clients fetch them into a temporary folder, in the versions of `programs`. All run at the same time,
by one connection string: through a gateway, while the primary is silent and then refuses connections; or at a sandbox,
without outages. Exit status: 0 when no call raised an error, each accepted message is in the primary's queue in the
end, and each sender had messages in the backlog in both outages; changes may be refused by the gateway's sentence
while the primary is away. 1 otherwise; 2 when a program cannot be fetched.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from paired_servicebus.engine.gateway.gateway_keys import connection_string
from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox, SubscriptionSpec, TopicSpec
from servicebus_sandbox.amqp_server.message_codec import sections_of
from servicebus_sandbox.broker.topology.namespace import Queue
from servicebus_sandbox.faults import read_fault
from tests.conformance.checking import Skipped
from tests.conformance.frameworks.programs import AT_SANDBOX, PROGRAMS, SENDING, Kind, Program, trust
from tests.conformance.standard_ports import isolated
from tests.examples.any_language import SenderProcess
from tests.stage.processes import Engine, run_paired

ENTITY: Final = "orders"
GATEWAY: Final = ("gateway.servicebus.windows.net", "127.0.0.9")
PRIMARY: Final = ("primary.servicebus.windows.net", "127.0.0.10")
"""Names with the addresses that they lead to."""
CHANGED: Final = [program.name for program in PROGRAMS.values() if program.kind is Kind.ADMINISTRATOR]
QUEUES: Final = [QueueSpec(name) for name in (ENTITY, *CHANGED)]
TOPICS: Final = [TopicSpec("audit", [SubscriptionSpec("all")])]
SPECS: Final = (
    NamespaceSpec("primary", QUEUES, TOPICS, address=PRIMARY[1], standard_ports=True),
    NamespaceSpec("secondary"),
)
PORT: Final = 5672
PAIRING: Final = {
    "entities": [ENTITY],
    "backlog_queue_count": 2,
    "failover_interval": 10.0,
    "ping_primary_interval": 5.0,
}
SERVED: Final = {
    "host": GATEWAY[0],
    "address": GATEWAY[1],
    "administration": True,
    "standard_ports": True,
    "keys": [{"name": "frameworks", "rights": ["Send", "Listen", "Manage"]}],
}
FAULTS: Final = ("black-holed", "refused")
AWAY: Final = "does not answer"
"""In the gateway's sentence while the primary is away."""
LANES: Final = 2
PAUSE: Final = 0.5
ENOUGH: Final = 20
"""Calls of a program at a sandbox."""
STARTING: Final = 300.0
STOPPING: Final = 150.0
DRAINING: Final = 150.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.frameworks", description=__doc__)
    parser.add_argument("--sandbox", action="store_true", help="at a sandbox, those with an identity too")
    parser.add_argument("--seconds", type=float, default=45.0, help="of each outage")
    parser.add_argument("--keep", type=Path, help="the folder of the programs, for the next run")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(PROGRAMS)}")
    asked = parser.parse_args(arguments)
    if unknown := [name for name in asked.names if name not in PROGRAMS]:
        parser.error(f"no program is called {unknown[0]}; there are {', '.join(PROGRAMS)}")
    programs = [PROGRAMS[name] for name in asked.names or PROGRAMS]
    if not asked.sandbox:
        programs = [program for program in programs if program.kind not in AT_SANDBOX]
    if asked.inside:
        return asyncio.run(play(programs, asked.keep, None if asked.sandbox else asked.seconds))
    try:
        with tempfile.TemporaryDirectory(prefix="frameworks-") as made:
            folder = (asked.keep or Path(made)).absolute()
            folder.mkdir(exist_ok=True)
            for program in programs:
                program.fetch(folder)
            again = [sys.executable, "-m", "tests.conformance.frameworks", "--inside", "--keep", str(folder)]
            again += ["--seconds", str(asked.seconds), *["--sandbox"] * asked.sandbox]
            command = isolated([*again, *(program.name for program in programs)], folder, dict([GATEWAY, PRIMARY]))
            return subprocess.run(command, check=False).returncode
    except Skipped as reason:
        print(f"frameworks: {reason}", file=sys.stderr)
        return 2


# -- the play


@dataclass(frozen=True, slots=True)
class Server:
    """What programs connect to: the string with a port, the one in Azure's form, and variables for each kind."""

    ca_file: Path
    string: str
    standard: str
    variables: Mapping[Kind, Mapping[str, str]] = field(default_factory=dict)

    async def start(self, program: Program, folder: Path, environment: dict[str, str]) -> SenderProcess:
        """Start a program."""
        variables = environment | dict(self.variables.get(program.kind, {}))
        process = SenderProcess(program.runnable(folder, variables), program.name, folder / f"{program.name}.log")
        is_by_name = program.is_by_name or program.kind in AT_SANDBOX
        await process.start(self.standard if is_by_name else self.string, ENTITY, lanes=LANES, pause=PAUSE)
        return process


@dataclass(slots=True)
class Run:
    """A program's process, and how many of its messages were in the backlog at the end of each outage."""

    program: Program
    process: SenderProcess
    parked: list[int] = field(default_factory=list)

    @property
    def wrong(self) -> dict[str, str]:
        """The errors of calls that may not raise: changes may, in odd lanes, by the gateway's sentence."""
        is_changing, errors = self.program.kind is Kind.ADMINISTRATOR, self.process.errors.items()
        return {
            name: text for name, text in errors if not (is_changing and int(name.split("-")[-2]) % 2 and AWAY in text)
        }

    def report(self, arrived: set[str]) -> bool:
        """Print its row; return whether something is wrong."""
        one, wrong = self.process, self.wrong
        is_sender = self.program.kind in SENDING
        accepted = {name for name in one.answers if name not in one.errors}
        lost = sorted(accepted - arrived) if is_sender else []
        parts = [f"{one.accepted} {'accepted' if is_sender else 'answered'}, {len(wrong)} errors"]
        parts += [f"the first: {next(iter(wrong.values()))}"] if wrong else []
        parts += [f"{len(one.errors) - len(wrong)} refused by the sentence"] if one.errors.keys() - wrong else []
        if is_sender:
            parts += [f"parked {' and '.join(map(str, self.parked))}"] if self.parked else []
            parts += [f"{len(lost)} lost {lost[:5] or ''}".strip()]
        parts += [f"slowest {one.slowest_ms / 1000:.1f} s", *["DID NOT END"] * (not one.has_ended)]
        print(f"{one.name}: {', '.join(parts)}", flush=True)
        return bool(lost or wrong or not one.has_ended or not one.accepted or (is_sender and 0 in self.parked))


async def play(programs: Sequence[Program], folder: Path, seconds: float | None) -> int:
    """Run the programs, through outages of so many seconds; print a row for each, and return the exit status."""
    os.environ |= {"XDG_STATE_HOME": str(folder / "state"), "XDG_RUNTIME_DIR": str(folder / "state")}
    shutil.rmtree(folder / "state", ignore_errors=True)
    (folder / "state").mkdir(mode=0o700)
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox.start(SPECS))
        engine = None
        if seconds is None:
            server = _sandbox_server(sandbox)
        else:
            engine, server = await stack.enter_async_context(_gateway(sandbox, folder))
        environment = await asyncio.to_thread(trust, folder, server.ca_file)
        runs = []
        for program in programs:
            runs.append(Run(program, await server.start(program, folder, environment)))
            stack.push_async_callback(runs[-1].process.kill)
        least = ENOUGH if engine is None else LANES
        await _until(lambda: all(run.process.accepted >= least or not run.process.is_running for run in runs), STARTING)
        is_bad = engine is not None and await _outages(runs, sandbox, engine, seconds or 0.0)
        _say(f"the programs end; {_counts(runs)}")
        await asyncio.gather(*(run.process.stop(STOPPING) for run in runs))
        await _until(lambda: not names_in(_backlog(sandbox)), DRAINING)
        arrived = names_in([sandbox["primary"].node.namespace.queue(ENTITY)])
    return sum([run.report(arrived) for run in runs], is_bad) and 1


async def _outages(runs: Sequence[Run], sandbox: Sandbox, engine: Engine, seconds: float) -> bool:
    """Run through both outages; return whether `paired status` was healthy in one, or not before or after one."""
    board, is_bad = sandbox["primary"].node.faults, not await _until(lambda: _is_healthy(engine), DRAINING)
    for fault in FAULTS:
        begun = board.begin(read_fault({"fault": fault}))
        _say(f"the primary is {fault} for {seconds:g} s; {_counts(runs)}")
        await asyncio.sleep(seconds)
        names = names_in(_backlog(sandbox))
        for run in runs:
            run.parked.append(len(names & run.process.answers.keys()))
        is_bad |= await _is_healthy(engine)  # a status that never fails proves nothing
        board.remove(begun.id)
        is_bad |= not await _until(lambda: _is_healthy(engine), DRAINING)
    return is_bad


async def _is_healthy(engine: Engine) -> bool:
    status, text = await run_paired("status", "--config", str(engine.config))
    if status:
        _say(f"paired status: {' '.join(text.split())[:300]}")
    return not status


def _sandbox_server(sandbox: Sandbox) -> Server:
    one, tokens = sandbox["primary"], sandbox.tokens
    (identity,) = tokens.identities
    variables = {Kind.IDENTITY: tokens.managed_identity(identity), Kind.SECRET: tokens.client_secret(identity)}
    return Server(sandbox.ca_file, one.connection_string, one.standard_connection_string or "", variables)


@asynccontextmanager
async def _gateway(sandbox: Sandbox, folder: Path) -> AsyncIterator[tuple[Engine, Server]]:
    strings = {side.name: side.connection_string for side in sandbox.namespaces}
    engine = Engine("frameworks", folder, strings, sandbox.ca_file, PAIRING, PORT, SERVED)
    await engine.start(journal="diverted")
    try:
        ca_file = folder / "gateway.pem"
        command = [sys.executable, "-m", "paired_servicebus", "gateway", "--ca", "--config", str(engine.config)]
        asked = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
        ca_file.write_text(asked.stdout)
        string = connection_string(engine.key, PORT, address=GATEWAY[1])
        yield engine, Server(ca_file, string, connection_string(engine.key, None, host=GATEWAY[0]))
    finally:
        await engine.end()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _counts(runs: Sequence[Run]) -> str:
    return ", ".join(f"{run.process.name} {run.process.accepted}/{len(run.wrong)}" for run in runs)


async def _until(condition: Callable[[], bool | Awaitable[bool]], seconds: float) -> bool:
    """Wait for a condition, at most so many seconds; return whether it holds."""
    end = time.monotonic() + seconds
    while True:
        holds = condition()
        if isinstance(holds, Awaitable):
            holds = await holds
        if holds or time.monotonic() >= end:
            return holds
        await asyncio.sleep(1.0)


def _backlog(sandbox: Sandbox) -> list[Queue]:
    return sandbox["secondary"].node.namespace.queues()


def names_in(queues: Sequence[Queue]) -> set[str]:
    """Return the names of the messages in queues, which are in their bodies or headers."""
    held = b"\n".join(sections_of(one.message).join() for queue in queues for one in queue.messages.peek(0, 10**7))
    return {name.decode() for name in re.findall(rb"[a-z-]+-\d+-\d+", held)}


if __name__ == "__main__":
    sys.exit(main())
