"""One host of the fleet as a process of its own; its protocol is `host_protocol`. Its log is standard error."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from paired_servicebus.core.errors import PairedError
from paired_servicebus.demo.fleet.fleet_engine import fleet_host
from paired_servicebus.demo.fleet.host_protocol import (
    HostEnded,
    HostFailed,
    HostForced,
    HostLine,
    HostReady,
    HostRequest,
)
from paired_servicebus.engine.instance.logs import log_to
from paired_servicebus.pairing.runtime.deadlines import end_all
from paired_servicebus.sandbox_process import SandboxProcess

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
