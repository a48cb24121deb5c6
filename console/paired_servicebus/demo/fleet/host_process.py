"""One host of the fleet as a process of its own; its protocol is `host_protocol`. Its log is standard error."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import PairedError
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import Record, StateChanged
from paired_servicebus.demo.fleet.hosts import (
    HostEnded,
    HostFailed,
    HostForced,
    HostLine,
    HostReady,
    HostRequest,
)
from paired_servicebus.demo.player import pair_on
from paired_servicebus.demo.result import HOSTS, HostAccount
from paired_servicebus.demo.scenarios import ORDERS, POLICY
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.instance.logs import log_to
from paired_servicebus.engine.service.engine_host import EngineHost
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.runtime.deadlines import end_all
from paired_servicebus.sandbox_process import SandboxProcess
from paired_servicebus.sections.fleet_options import Fleet
from paired_servicebus.workload.workload import MessageStream, Workload

# One host of the fleet: its engine with a part in the fleet, and an application that sends to `orders`.

PAIRING: Final = "demo"
FLEET_POLICY: Final = replace(POLICY, send_timeout=3.0, failover_interval=8.0)
"""Eight engines start on one machine: a stall of a second is no outage."""
EVERY: Final = 0.5
"""Seconds between two sends of a host, on average."""


class FleetHost:
    """A host's engine, pairing and application. Made by `fleet_host`."""

    def __init__(self, name: str, forced: Callable[[bool], object]) -> None:
        self.name = name
        self.is_forced = False
        self.forced_at: float | None = None
        self._forced = forced

    def serve(self, host: EngineHost, paired: PairedServiceBusClient, *, seed: int) -> None:
        """Take the engine and its pairing."""
        self.engine = host
        self.paired = paired
        streams = (MessageStream(ORDERS, self.name, EVERY),)
        self.application = Workload(paired, seed=seed, record=host.record, streams=streams)

    def note(self, record: Record, line: bytes) -> None:
        """Note when the engine diverts by an order."""
        del line
        event = record.event
        if not isinstance(event, StateChanged) or event.entity != ORDERS:
            return
        is_forced = event.now == State.FORCED
        if is_forced != self.is_forced:
            self.is_forced = is_forced
            self.forced_at = self.forced_at or time.time()
            self._forced(is_forced)

    def account(self) -> HostAccount:
        """Return the host's own account."""
        view = next(one for one in self.paired.entity_views() if one.path == ORDERS)
        return HostAccount(
            answers={name: answer.value for name, answer in self.application.lists.answers.items()},
            accepted=view.accepted,
            diverted=view.diverted,
            forced_at=self.forced_at,
            is_forced=self.is_forced,
            pings_sent=view.pings_sent,
            pings_accepted=view.pings_accepted,
            failovers=view.failovers,
            failbacks=view.failbacks,
            seconds_failed_over=view.seconds_failed_over,
            moved=self.paired.syphon_view().moved,
            billed=self.paired.billed().total,
        )


@asynccontextmanager
async def fleet_host(
    name: str,
    sandbox: SandboxProcess,
    *,
    spool: Path,
    socket: Path,
    operators: Path,
    seed: int,
    read_only: bool = False,
    syphon: bool = False,
    caption: Callable[[], str] = str,
    forced: Callable[[bool], object] = lambda _: None,
) -> AsyncIterator[FleetHost]:
    """Yield a running host.

    Args:
        sandbox: the namespaces as this host reaches them.
        operators: the file of signers.
        forced: called when its `orders` becomes forced, and when it is released.

    Raises PairedError or OSError: it cannot run.
    """
    policy = replace(FLEET_POLICY, enable_syphon=syphon)
    this = FleetHost(name, forced)
    host = EngineHost(
        EngineIdentity(
            engine=name, boot=uuid.uuid4().hex[:12], pairing=PAIRING, environment="demo", read_only=read_only
        ),
        spool=spool,
        socket=socket,
        policy=policy,
        caption=caption,
        fleet=Fleet(name=name, operators=operators, expect=HOSTS),
        note=this.note,
    )
    async with host, await pair_on(sandbox, policy, on_event=host.record) as paired:
        paired.watch(ORDERS)
        await host.take_up(paired)
        this.serve(host, paired, seed=seed)
        await host.adopt(paired)
        yield this


STOP_TIMEOUT = 10.0


def main() -> None:
    """Be the host on standard input."""
    log_to(sys.stderr)
    try:
        asyncio.run(_until_input_ends())
    except BrokenPipeError:  # the demo has ended
        os._exit(1)
    except (PairedError, OSError) as error:
        tell(HostFailed(str(error)))
        raise SystemExit(2) from error


def tell(line: HostLine) -> None:
    """Write one line to the demo."""
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


async def _until_input_ends() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    first = await reader.readline()
    if not first:
        return
    stop = asyncio.Event()
    hosting = asyncio.create_task(_serve(msgspec.json.decode(first, type=HostRequest), stop), name="the host")
    listening = asyncio.create_task(_listen(reader, stop), name="the demo's words")
    try:
        await asyncio.wait([hosting, listening], return_when=asyncio.FIRST_COMPLETED)
        if hosting.done():
            hosting.result()
    finally:
        await end_all([hosting, listening], STOP_TIMEOUT)


async def _listen(reader: asyncio.StreamReader, stop: asyncio.Event) -> None:
    if await reader.readline():
        stop.set()
        await reader.read()


async def _serve(request: HostRequest, stop: asyncio.Event) -> None:
    """Send until `stop` is set, give the account, and stay."""
    folder = Path(request.folder)
    async with fleet_host(
        request.name,
        SandboxProcess(request.namespaces, request.ca_file, control_url=""),
        spool=folder / request.name,
        socket=folder / f"{request.name}.sock",
        operators=Path(request.operators),
        seed=request.seed,
        read_only=request.read_only,
        forced=lambda is_forced: tell(HostForced(is_forced)),
    ) as host:
        tell(HostReady())
        sending = asyncio.create_task(host.application.send_until_stopped(), name="the application")
        await stop.wait()
        host.application.stop_sending()
        await sending
        tell(HostEnded(host.account()))
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()
