"""What other engines of this user on this machine use of the same namespaces: asked before anything is deleted."""

from __future__ import annotations

from pathlib import Path

from console.core.errors import CleanUpError
from console.engine.here import engines_here, look_at, socket_of
from console.engine.steered import Steered


async def queues_used(paired: Steered, *, besides: Path) -> int:
    """The most backlog queues that an engine here uses of the same namespaces; 0: there is no other.

    Args:
        besides: the socket of the engine that asks.

    Raises:
        CleanUpError: one runs that does not say what it uses.
    """
    running = [places for places in engines_here() if (socket := socket_of(places)) is not None and socket != besides]
    most = 0
    for standing in await look_at(running):
        if standing.snapshot is None:
            raise CleanUpError(f"nothing is deleted: the engine of {standing.pairing} may use it ({standing.trouble})")
        theirs = (standing.snapshot.primary.casefold(), standing.snapshot.secondary.casefold())
        if theirs == (paired.primary_name.casefold(), paired.secondary_name.casefold()):
            most = max(most, len(standing.snapshot.queues))
    return most
