"""`python -m tests.bench flapping`: what an engine's memory does while an entity fails over and back all the time.

Four engines, each over namespaces of its own: one idle, one idle in the foreground as in a container, one flapping, one
flapping and traced. The primary of the flapping ones is refused and silent in turn, a few seconds each, with pings a
second; a client of their gateway sends all the time. What grows after ten minutes is named by the lines that allocated
it, and by the allocators' own figures.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count, cycle
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.bench.rounds import Figures, Targets
from paired_servicebus.engine.gateway.gateway_keys import connection_string, keys_of
from servicebus_sandbox import Sandbox
from servicebus_sandbox.faults import FaultKind
from tests.bench.child_process import ROOT, child_environment
from tests.bench.watched_engine import WARM, kernel_figures
from tests.ports import free_port

_WATCHED: Final = ("-m", "tests.bench.watched_engine", "{config}", "{figures}", "{every}", "{events}")
ENGINES: Final = {
    "idle": ("-c", "from pathlib import Path; from paired_servicebus.engine.service.main import run_here; "
             "run_here(Path('{config}'))"),
    "foreground": ("-m", "paired_servicebus", "up", "--foreground", "--config", "{config}"),
    "flapping": _WATCHED,
    "traced": (*_WATCHED, "--trace"),
}  # fmt: skip
"""By name: what Python runs. The first imports what the process of `paired up` does."""
ENTITIES: Final = ("orders", "audit")
FAULTS: Final = (FaultKind.REFUSED, FaultKind.BLACK_HOLED)
DOWN, UP = 4.0, 3.0
"""Seconds of an outage, and of the health between two."""
SEND_EVERY: Final = 0.5
LIVES: Final = timedelta(seconds=5)
START: Final = 120.0
STOP: Final = 90.0
MB: Final = 1e6
TARGET_MB_AN_HOUR: Final = 1.0
IDLE_TARGET_MB: Final = 75.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlappingMemory(Figures):
    """All figures in MB but the readings', which are in bytes. idle_mb, foreground_mb: resident at the end.

    flaps: outages of each flapping engine.

    traced_growth_mb_an_hour: what Python's objects hold more of while they are warm.
    """

    idle_mb: float
    idle_pss_mb: float
    foreground_mb: float
    flaps: int
    flapping_growth_mb_an_hour: float
    traced_growth_mb_an_hour: float
    readings: dict[str, list[dict[str, Any]]]

    @property
    def targets(self) -> Targets:
        """Each target, at most, and whether it is reached."""
        return {
            "idle_mb": (IDLE_TARGET_MB, max(self.idle_mb, self.foreground_mb) <= IDLE_TARGET_MB),
            "traced_growth_mb_an_hour": (TARGET_MB_AN_HOUR, self.traced_growth_mb_an_hour <= TARGET_MB_AN_HOUR),
        }


@dataclass(frozen=True, slots=True)
class WatchedEngine:
    """One engine with its namespaces. figures: its file; gateway: its connection string; "": it is idle."""

    sandbox: Sandbox
    process: Process
    figures: Path
    gateway: str

    def readings(self) -> list[dict[str, Any]]:
        """Return what it wrote down; of an idle one what the kernel counts now."""
        if not self.gateway:
            return [{"at": 0.0, **kernel_figures(self.process.pid)}]
        return [msgspec.json.decode(line) for line in self.figures.read_bytes().splitlines()]


async def measure_flapping(minutes: float, every: float, events: int = 0) -> FlappingMemory:
    """Run the four engines for so long, with a reading every so many seconds. Raises BenchError: one ended.

    events: so many are remembered for consoles that come back; 0: as shipped.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paired-bench-", dir="/tmp")))
        engines = {name: await stack.enter_async_context(_engine(folder / name, every, events)) for name in ENGINES}
        flapping = [one for one in engines.values() if one.gateway]
        working = [asyncio.create_task(_flap(one)) for one in flapping]
        working += [asyncio.create_task(_send(one, path)) for one in flapping for path in ENTITIES]
        try:
            await asyncio.sleep(minutes * 60 + every / 2)
        finally:
            for task in working:
                task.cancel()
            ended = await asyncio.gather(*working, return_exceptions=True)
        for error in ended:
            if not isinstance(error, asyncio.CancelledError):
                raise BenchError(f"the load ended early: {error!r}")
        for name, one in engines.items():
            if one.process.returncode is not None:
                log = (folder / name / "log").read_text(errors="replace")[-500:]
                raise BenchError(f"the engine {name} ended with status {one.process.returncode}: {log}")
        flaps = int(minutes * 60 / (DOWN + UP))
        return _figures({name: one.readings() for name, one in engines.items()}, flaps)


def _figures(readings: dict[str, list[dict[str, Any]]], flaps: int) -> FlappingMemory:
    idle, foreground = readings["idle"][-1], readings["foreground"][-1]
    return FlappingMemory(
        idle_mb=round(idle["rss"] / MB, 1),
        idle_pss_mb=round(idle["pss"] / MB, 1),
        foreground_mb=round(foreground["rss"] / MB, 1),
        flaps=flaps,
        flapping_growth_mb_an_hour=_slope(readings["flapping"], "rss"),
        traced_growth_mb_an_hour=_slope(readings["traced"], "traced"),
        readings=readings,
    )


def _slope(readings: list[dict[str, Any]], figure: str) -> float:
    """Return the growth in MB an hour between the medians of the warm readings' halves; 0 without two of them.

    A median, since the buffers of one connection more or less are a quarter of a MB.
    """
    warm = [one for one in readings if one["at"] >= WARM - 1]
    if len(warm) < 2:
        return 0.0
    half = (len(warm) + 1) // 2
    grown, seconds = (
        median(one[name] for one in warm[-half:]) - median(one[name] for one in warm[:half]) for name in (figure, "at")
    )
    return float(round(grown / MB / (seconds / 3600), 2))


@asynccontextmanager
async def _engine(folder: Path, every: float, events: int) -> AsyncIterator[WatchedEngine]:
    """Run the engine that the folder is called after."""
    folder.mkdir()
    serves = folder.name in ("flapping", "traced")
    config, figures, keys = folder / "pairing.toml", folder / "figures", folder / "gateway.keys"
    async with Sandbox.start() as sandbox:
        port = free_port() if serves else 0
        config.write_text(_config(sandbox, f"[gateway]\nport = {port}\nkeys = '{keys}'\n" if serves else ""))
        with (folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *(
                    part.format(config=config, figures=figures, every=every, events=events)
                    for part in ENGINES[folder.name]
                ),
                cwd=ROOT, stdout=log, stderr=log,
                env=child_environment() | {"XDG_STATE_HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)},
            )  # fmt: skip
        try:
            await _until_serving(process, folder / "log")
            gateway = connection_string(keys_of(keys).keys[0], port) if serves else ""
            yield WatchedEngine(sandbox, process, figures, gateway)
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            async with asyncio.timeout(STOP):
                await process.wait()


def _config(sandbox: Sandbox, more: str) -> str:
    sides = "".join(
        f'[{side}]\nname = "{side}"\nca_file = "{sandbox.ca_file}"\n'
        f'connection_string = "{sandbox[side].connection_string}"\n'
        for side in ("primary", "secondary")
    )
    policy = 'failover_interval = "1s"\nping_primary_interval = "1s"\nping_timeout = "1s"\nsend_timeout = "2s"\n'
    return (
        f'[pairing]\nname = "orders"\nentities = ["orders", "payments", "audit"]\n{policy if more else ""}{sides}{more}'
    )


async def _until_serving(process: Process, log: Path) -> None:
    async with asyncio.timeout(START):
        while "serving as" not in log.read_text(errors="replace"):
            if process.returncode is not None:
                raise BenchError(f"an engine does not start: {log.read_text(errors='replace')[-500:]}")
            await asyncio.sleep(0.1)


async def _flap(engine: WatchedEngine) -> None:
    faults = engine.sandbox["primary"].node.faults
    for kind in cycle(FAULTS):
        fault = faults.add(kind)
        await asyncio.sleep(DOWN)
        faults.remove(fault.id)
        await asyncio.sleep(UP)


async def _send(engine: WatchedEngine, path: str) -> None:
    client = ServiceBusClient.from_connection_string(engine.gateway)
    async with client, client.get_queue_sender(path) as sender:
        for number in count():
            message = ServiceBusMessage(b"x" * 1000, message_id=f"{path}-{number}", time_to_live=LIVES)
            with suppress(ServiceBusError):  # both ways are away for a moment: that is the load
                await sender.send_messages(message)
            await asyncio.sleep(SEND_EVERY)
