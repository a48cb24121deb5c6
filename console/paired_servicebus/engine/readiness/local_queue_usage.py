"""The use of the same namespaces by other engines of this user on this machine, read before any deletion.

The index in its path identifies a queue; older engines number their queues differently, but their paths are right.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from paired_servicebus.core.backlog.queue_usage import QueueUsage
from paired_servicebus.core.errors import CleanUpError
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus
from paired_servicebus.engine.control.discovery import EngineStatus, find_socket, local_engines, query_engines
from paired_servicebus.engine.pairing_port import HostedPairing
from paired_servicebus.pairing.management.backlog_queues import queue_index

MOVING_STATUSES: Final = frozenset({SyphonStatus.IDLE, SyphonStatus.WAITING, SyphonStatus.RUNNING})
BUSY_STATUSES: Final = frozenset({SyphonStatus.WAITING, SyphonStatus.RUNNING})


async def queues_in_use(paired: HostedPairing, *, besides: Path) -> frozenset[int]:
    """Return the indices of the backlog queues that other engines here use of the same namespaces.

    Args:
        besides: the socket of the calling engine.

    Raises:
        CleanUpError: an engine runs and its queues are unknown.
    """
    used: set[int] = set()
    for standing in await _others(besides):
        if standing.snapshot is None:
            raise CleanUpError(f"nothing is deleted: the engine of {standing.pairing} may use it ({standing.trouble})")
        if _is_of(paired, standing.snapshot):
            indices = _indices(standing.snapshot)
            if indices is None:
                raise CleanUpError(f"nothing is deleted: the engine of {standing.pairing} does not report its queues")
            used |= indices
    return frozenset(used)


async def read_local_usage(paired: HostedPairing, *, besides: Path) -> QueueUsage:
    """Return the usage that other engines here report; one that does not answer is left out. Arguments as above."""
    used: set[int] = set()
    moved: set[int] = set()
    busy: set[int] = set()
    for standing in await _others(besides):
        snapshot = standing.snapshot
        if snapshot is None or not _is_of(paired, snapshot):
            continue
        indices = _indices(snapshot)
        used |= set(range(len(snapshot.queues))) if indices is None else indices
        if snapshot.syphon.status in MOVING_STATUSES and indices is not None:
            moved |= indices
            busy |= indices if snapshot.syphon.status in BUSY_STATUSES else frozenset()
    return QueueUsage(frozenset(used), frozenset(moved), frozenset(busy))


async def _others(besides: Path) -> tuple[EngineStatus, ...]:
    running = [
        places for places in local_engines() if (socket := find_socket(places)) is not None and socket != besides
    ]
    return await query_engines(running)


def same_namespaces(snapshot: Snapshot, *, primary: str, secondary: str) -> bool:
    """Return whether an engine's namespaces are these; names compare without case."""
    theirs = (snapshot.primary.casefold(), snapshot.secondary.casefold())
    return theirs == (primary.casefold(), secondary.casefold())


def _is_of(paired: HostedPairing, snapshot: Snapshot) -> bool:
    return same_namespaces(snapshot, primary=paired.primary_name, secondary=paired.secondary_name)


def _indices(snapshot: Snapshot) -> frozenset[int] | None:
    """Return the real indices of an engine's queues; None: at least one path has no index."""
    indices = {queue_index(queue.path) for queue in snapshot.queues}
    return frozenset(index for index in indices if index is not None) if None not in indices else None
