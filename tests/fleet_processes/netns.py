"""An engine in a network namespace with a host's name of its own, cut off by the kernel."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.fleet_processes.gate import join
from tests.fleet_processes.host import Host
from tests.fleet_processes.partition import SILENT, TWO_LOOKS, silent
from tests.fleet_processes.setting import SIDES, START, Broken
from tests.fleet_processes.stage import Stage, stage

NAME: Final = "far-away"
"""The host's name that the engine sees."""


def why_not() -> str:
    """Return why there is no network namespace here, or ""."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    if missing := [tool for tool in ("ip", "unshare", "hostname") if shutil.which(tool) is None]:
        return f"{missing[0]} is not installed"
    probe = f"fp-probe-{secrets.token_hex(3)}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"ip netns add failed: {made.stderr.strip()}"
    ran = subprocess.run(
        ["ip", "netns", "exec", probe, "unshare", "--uts", "hostname", NAME],
        capture_output=True,
        text=True,
        check=False,
    )
    subprocess.run(["ip", "netns", "delete", probe], capture_output=True, check=False)
    return f"ip netns exec failed: {ran.stderr.strip()}" if ran.returncode else ""


class FarHost(Host):
    """A host whose process runs in a network namespace."""

    space = ""

    def command(self) -> list[str]:
        own = super().command()
        script = f'hostname {NAME} && exec "$@"'
        return ["ip", "netns", "exec", self.space, "unshare", "--uts", "sh", "-c", script, "sh", *own]


async def netns(seed: int, count: int, say: Callable[[str], None]) -> None:
    """Order over engines of which one is in a network namespace, with its interface down and up."""
    if reason := why_not():
        say(f"SKIPPED: {reason}")
        return
    async with stage(seed) as world:
        hosts, console = await world.watched(max(1, min(count, 3) - 1))
        (far,) = await world.add(1, kind=FarHost)
        assert isinstance(far, FarHost)
        everybody = [*hosts, far]
        async with _space(world, far):
            await far.start()
            view = await console.reporting(len(everybody))
            if (found := next(one.host for one in view.engines if one.engine == far.name)) != NAME:
                raise Broken(f"the console shows the host {found!r}, not {NAME!r}")
            _link(far.space, "down")
            await console.until(lambda _view: silent(console) == {far.name}, f"{far.name} is silent", SILENT)
            force = await console.order("force")
            await console.answered(force, len(hosts))
            if far.state == "forced":
                raise Broken("an engine whose interface is down is forced")
            _link(far.space, "up")
            await far.until(lambda: far.state == "forced", TWO_LOOKS, "is forced")
            await console.answered(force, len(everybody))
            await far.kill()
    say(f"an order is done by {len(everybody)} engines, after its return also by the one on {NAME}")


def _link(space: str, to: str) -> None:
    subprocess.run(["ip", "-n", space, "link", "set", "lo", to], check=True)


@asynccontextmanager
async def _space(world: Stage, far: FarHost) -> AsyncIterator[None]:
    """Make a network namespace; forward the ports of the gates in it over sockets of this machine's files."""
    far.space = f"fp-{secrets.token_hex(4)}"
    subprocess.run(["ip", "netns", "add", far.space], check=True)
    running = []
    try:
        _link(far.space, "up")
        for side in SIDES:
            socket = world.folder / f"{side}.sock"
            port = far.gates[side].port
            server = await asyncio.start_unix_server(_to(port), socket)
            world.stack.push_async_callback(_close, server)
            running.append(await _forward(far.space, port, socket))
        yield
    finally:
        for one in running:
            if one.returncode is None:
                one.kill()
            await one.wait()
        subprocess.run(["ip", "netns", "delete", far.space], check=False)


async def _close(server: asyncio.Server) -> None:
    server.close()


def _to(port: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await join(reader, writer, *await asyncio.open_connection("127.0.0.1", port))

    return serve


async def _forward(space: str, port: int, socket: Path) -> asyncio.subprocess.Process:
    running = await asyncio.create_subprocess_exec(
        "ip", "netns", "exec", space, sys.executable, "-m", "tests.fleet_processes.gate", str(port), str(socket),
        stdin=DEVNULL, stdout=PIPE,
    )  # fmt: skip
    assert running.stdout is not None
    if not await asyncio.wait_for(running.stdout.readline(), START):
        raise Broken("the forwarder in the network namespace did not start")
    return running
