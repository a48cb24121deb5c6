"""The first retry among all failing destinations."""

from __future__ import annotations

from paired_servicebus.core.pump.destination_circuits import DestinationCircuits


def next_try(destinations: DestinationCircuits) -> float | None:
    """Return the time of the first retry; None: no destination fails."""
    return min((circuit.retry_at for circuit in destinations.open.values()), default=None)
