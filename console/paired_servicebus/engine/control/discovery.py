"""Discovery of the engines on this machine.

This user's are found by their locks, those of services by their sockets (group_access.py).

Discovery finds killed engines too, but not those that ended cleanly. It contacts no namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import ControlError, EngineNotRunningError
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.instance import group_access
from paired_servicebus.engine.instance.engine_paths import EnginePaths, all_engine_paths
from paired_servicebus.engine.instance.lock import LockHolder, crashed_holder, held, running

QUERY_TIMEOUT: Final = 5.0
"""Seconds that an engine has to report its status."""
DEPTHS_TIMEOUT: Final = 3.0
"""Of those, seconds that its reading of the depths is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatus:
    """The status of one engine: its snapshot, or the reason why there is none."""

    pairing: str
    snapshot: Snapshot | None = None
    trouble: str = ""


def local_engines() -> tuple[EnginePaths, ...]:
    """Return the engines that run here or were killed, by name, then those of services."""
    own = tuple(places for places in all_engine_paths() if held(places.lock) or crashed_holder(places.lock))
    known = {places.socket for places in own}
    found = (socket for socket in group_access.sockets() if socket not in known)
    return own + tuple(EnginePaths(state=socket.with_suffix(""), socket=socket, is_service=True) for socket in found)


def explain_closed_services() -> str:
    """Name the services' engines that this user may not query, and the group that may; empty if there are none."""
    return group_access.explain_closed()


def find_socket(places: EnginePaths) -> Path | None:
    """Return the running engine's socket; None: none runs. A lock without an address implies the usual path."""
    if places.is_service:
        return places.socket
    holder = running(places.lock)
    if holder is None:
        return places.socket if held(places.lock) else None
    return Path(holder.socket)


FLEET_READ_SECONDS: Final = 70.0
"""Seconds for which a reading of the boards is current: an engine reads them at most once a minute for queries."""


async def query_engines(
    engines: Iterable[EnginePaths], *, watches: bool = False, fleet: bool = False
) -> tuple[EngineStatus, ...]:
    """Return the status of engines, queried concurrently.

    `watches`: read depths now. `fleet`: read the boards now. Never raises for one engine's failure.
    """
    return tuple(await asyncio.gather(*(query_engine(places, watches=watches, fleet=fleet) for places in engines)))


async def query_engine(places: EnginePaths, *, watches: bool = False, fleet: bool = False) -> EngineStatus:
    """Return the status of one engine."""
    socket = find_socket(places)
    if socket is None:
        return EngineStatus(pairing=places.name, trouble=_absent(crashed_holder(places.lock)))
    try:
        return EngineStatus(pairing=places.name, snapshot=await first_snapshot(socket, watches=watches, fleet=fleet))
    except ControlError as error:
        return EngineStatus(pairing=places.name, trouble=str(error))


def _absent(last: LockHolder | None) -> str:
    if last is None:
        return "no engine runs here: start one with paired up"
    return f"the engine (pid {last.pid}) did not end cleanly; its log is {last.log}: start another with paired up"


async def first_snapshot(socket: Path, *, watches: bool = False, fleet: bool = False) -> Snapshot:
    """Return the current snapshot of the engine behind a socket.

    Args:
        watches: include current depths, or none if reading them takes DEPTHS_TIMEOUT seconds.
        fleet: include a current reading of the boards, or an older one after DEPTHS_TIMEOUT seconds.

    Raises:
        EngineNotRunningError: no engine answers within QUERY_TIMEOUT seconds.
        ControlError: the engine belongs to another user, or its version is incompatible.
    """
    try:
        async with asyncio.timeout(QUERY_TIMEOUT):
            client = await ControlClient.connect(socket, watches=watches, fleet=fleet)
            try:
                found = await wait_for_depths(client, fleet=fleet)
            finally:
                await client.close()
    except TimeoutError as error:
        raise EngineNotRunningError(
            f"the engine at {socket} did not report its status within {QUERY_TIMEOUT:g} s; its log has the reason"
        ) from error
    if found is None:
        raise EngineNotRunningError(f"the engine at {socket} ended before it reported its status")
    return found


async def wait_for_depths(client: ControlClient, *, fleet: bool = False) -> Snapshot | None:
    """Return the first snapshot whose depths are complete; after DEPTHS_TIMEOUT seconds the newest.

    `fleet`: the boards have to be read too.

    None: the engine ended before its first snapshot.
    """
    found: Snapshot | None = None
    end = asyncio.get_running_loop().time() + DEPTHS_TIMEOUT
    with suppress(TimeoutError):
        async with asyncio.timeout(None) as patience:
            async for update in client.updates():
                if isinstance(update, Snapshot):
                    found = update
                    if not found.reading and not (fleet and is_fleet_due(found)):
                        return found
                    patience.reschedule(end)
    return found


def is_fleet_due(snapshot: Snapshot) -> bool:
    """Return whether the boards of a snapshot's fleet were read too long ago, and can be read."""
    view = snapshot.fleet
    if view is None or view.trouble:
        return False
    return view.read_at is None or snapshot.at - view.read_at > FLEET_READ_SECONDS
