"""A peer: RabbitMQ's shovel between two nodes of its own on this machine, on-confirm, 1,000 messages ahead.

Needs rabbitmq-server as Debian packages it (3.10 or newer with its AMQP 1.0 plugin). Nodes, their port mapper and all
their files live in a folder of ours and end with the measurement. The queue is filled by our own client over AMQP 1.0;
the moving is timed inside of the target's node, so that no tool runs meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paired_servicebus.bench.amqp_loads import SampleMessages
from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.bench.rounds import MICROSECONDS, Lap
from tests.bench.anonymous_client import HOST, AnonymousClient, Flood
from tests.ports import free_port

PREFETCH: Final = 1000
STARTING: Final = 120.0
CALLING: Final = 600.0
STOPPING: Final = 30.0
SOURCE: Final = "source"
TARGET: Final = "target"
PLACES: Final = (Path("/usr/lib/rabbitmq/bin"), Path("/usr/local/sbin"))
_PLUGINS: Final = "[rabbitmq_shovel,rabbitmq_amqp1_0].\n"
_DECLARE: Final = """
    Q = rabbit_misc:r(<<"/">>, queue, <<"{queue}">>),
    {{new, _}} = rabbit_amqqueue:declare(Q, true, false, [], none, <<"bench">>), ok.
"""
_PURGE: Final = """
    {{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"{queue}">>)),
    {{ok, _}} = rabbit_amqqueue:purge(Q), ok.
"""
_TIME: Final = """
    {{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"target">>)),
    Depth = fun() -> [{{messages, N}}] = rabbit_amqqueue:info(Q, [messages]), N end,
    Wait = fun Wait(Least) -> case Depth() of N when N >= Least -> N; _ -> timer:sleep(2), Wait(Least) end end,
    First = Wait(1), Began = erlang:monotonic_time(microsecond),
    Last = Wait({count}), Ended = erlang:monotonic_time(microsecond),
    {{Last - First, Ended - Began}}.
"""


@dataclass(slots=True)
class RabbitNode:
    """One node and how its tools reach it."""

    name: str
    port: int
    programs: Path
    env: dict[str, str]
    process: Process | None = None

    async def call(self, *arguments: str) -> str:
        """What rabbitmqctl says. Raises BenchError."""
        tool = await asyncio.create_subprocess_exec(
            self.programs / "rabbitmqctl", "-q", "-n", self.name, *arguments,
            env=self.env, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT,
        )  # fmt: skip
        try:
            said, _ = await asyncio.wait_for(tool.communicate(), CALLING)
        except TimeoutError as error:
            raise BenchError(f"rabbitmqctl {arguments[0]} did not end within {CALLING:g} s") from error
        finally:
            await _end(tool)
        text = said.decode(errors="replace").strip()
        if tool.returncode:
            raise BenchError(f"rabbitmqctl {arguments[0]} failed: {text.splitlines()[-1] if text else 'no reason'}")
        return text


class Shovel:
    """Moves what lies at one node to the other. A way to move, as movers.Mover says."""

    def __init__(self, nodes: tuple[RabbitNode, RabbitNode], size: int) -> None:
        self.source = SOURCE
        self.moved = 0
        self._from, self._to = nodes
        self._letters = SampleMessages(size)

    async def lap(self, count: int) -> Lap:
        """As Mover says; the CPU time is not known."""
        await self._fill(count)
        timing = asyncio.create_task(self._to.call("eval", _TIME.format(count=count)))
        try:
            await self._to.call("set_parameter", "shovel", "bench", self._definition())
            said = await timing
        finally:
            timing.cancel()
            await asyncio.wait((timing,))
        await self._to.call("clear_parameter", "shovel", "bench")
        await self._to.call("eval", _PURGE.format(queue=TARGET))
        try:
            moved, took = (int(part) for part in said.strip("{}").split(","))
        except ValueError as error:
            raise BenchError(f"the shovel was not timed: {said}") from error
        self.moved = count
        return Lap(messages=moved, seconds=took / MICROSECONDS, cpu_seconds=0.0)

    async def _fill(self, count: int) -> None:
        client = await AnonymousClient.connect(self._from.port, "bench")
        try:
            await Flood(client, await client.sender(f"/amq/queue/{SOURCE}"), self._letters, count).run()
        finally:
            client.close()

    def _definition(self) -> str:
        return (
            f'{{"src-uri": "amqp://{HOST}:{self._from.port}", "src-queue": "{SOURCE}", '
            f'"dest-uri": "amqp://{HOST}:{self._to.port}", "dest-queue": "{TARGET}", '
            f'"src-prefetch-count": {PREFETCH}, "ack-mode": "on-confirm"}}'
        )


@asynccontextmanager
async def shovel(size: int) -> AsyncIterator[Shovel]:
    """Two nodes, ready. Raises BenchError: RabbitMQ is not installed here, or does not start."""
    programs = _programs()
    async with AsyncExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="paired-bench-", ignore_cleanup_errors=True))
        )
        mapper = free_port()
        stack.push_async_callback(_end_mapper, mapper)
        nodes = []
        for name, queue in (("one", SOURCE), ("two", TARGET)):
            node = _node(programs, folder, f"paired-bench-{os.getpid()}-{name}@localhost", mapper)
            stack.push_async_callback(_stop, node)
            await _start(node, folder / "said")
            await node.call("eval", _DECLARE.format(queue=queue))
            nodes.append(node)
        yield Shovel((nodes[0], nodes[1]), size)


def _programs() -> Path:
    for place in PLACES:
        if (place / "rabbitmq-server").exists():
            return place
    raise BenchError("--peer rabbitmq needs rabbitmq-server on this machine (apt-get install rabbitmq-server)")


def _node(programs: Path, folder: Path, name: str, mapper: int) -> RabbitNode:
    home = folder / name
    home.mkdir()
    port, own = free_port(), free_port()
    (home / "plugins").write_text(_PLUGINS)
    (home / "rabbitmq.conf").write_text(
        f"listeners.tcp.default = {HOST}:{port}\namqp1_0.default_user = guest\nlog.console = false\n"
        "vm_memory_high_watermark.relative = 0.6\ndisk_free_limit.absolute = 50MB\n"
    )
    cookie = folder / ".erlang.cookie"
    cookie.write_text("paired-bench")
    cookie.chmod(0o400)
    env = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": HOST,
        "RABBITMQ_NODENAME": name,
        "RABBITMQ_DIST_PORT": str(own),
        "RABBITMQ_MNESIA_BASE": str(home),
        "RABBITMQ_LOG_BASE": str(home),
        "RABBITMQ_PID_FILE": str(home / "pid"),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq"),
        "RABBITMQ_CONF_ENV_FILE": str(home / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
    }
    return RabbitNode(name=name, port=port, programs=programs, env=env)


async def _start(node: RabbitNode, said: Path) -> None:
    with said.open("ab") as output:
        node.process = await asyncio.create_subprocess_exec(
            node.programs / "rabbitmq-server", env=node.env, stdin=DEVNULL, stdout=output, stderr=output
        )
    try:
        async with asyncio.timeout(STARTING):
            await node.call("wait", node.env["RABBITMQ_PID_FILE"], "--timeout", str(int(STARTING)))
            await node.call("await_startup")
    except (BenchError, TimeoutError) as error:
        raise BenchError(f"RabbitMQ did not start: {error}; it said: {_end_of(said)}") from error


def _end_of(said: Path) -> str:
    return said.read_text(errors="replace").strip()[-300:] or "nothing"


async def _stop(node: RabbitNode) -> None:
    if node.process is None or node.process.returncode is not None:
        return
    try:
        await asyncio.wait_for(node.call("stop"), STOPPING)
        await asyncio.wait_for(node.process.wait(), STOPPING)
    except (BenchError, TimeoutError):
        await _end(node.process)


async def _end_mapper(port: int) -> None:
    """Erlang's port mapper was started by the first node, and outlives the last."""
    epmd = shutil.which("epmd")
    if epmd is not None:
        env = {"ERL_EPMD_PORT": str(port), "ERL_EPMD_ADDRESS": HOST}
        tool = await asyncio.create_subprocess_exec(epmd, "-kill", env=env, stdout=DEVNULL, stderr=DEVNULL)
        await asyncio.wait_for(tool.wait(), STOPPING)


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()
