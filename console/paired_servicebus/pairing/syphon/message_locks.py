"""Locks of what a pump has in hand, on our own AMQP: until when they hold, and renewed before they end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from paired_servicebus.core.errors import WireError
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.backlog_message import BacklogMessage
from paired_servicebus.pairing.syphon.settlement import renewed

USUAL: Final = 60.0
"""Seconds of a lock, where the namespace's clock and ours are too far apart to tell."""
RENEWED_BEFORE: Final = 20.0
"""Seconds before its end that a lock is renewed."""
SPENT: Final = 1.0
"""Seconds before its end that a lock is no longer counted on."""


def lock_ends(until_ms: float, now: float) -> float:
    """When a lock ends, in seconds since 1970. until_ms: by the namespace's clock, in milliseconds."""
    left = until_ms / 1000 - now
    return now + (left if 0 < left <= 5 * USUAL else USUAL)


class MessageLocks:
    """Those of one backlog queue's messages.

    Args:
        path: the backlog queue.
    """

    def __init__(self, steering: PairingRuntime, wire: ReconnectingConnection, path: str) -> None:
        self._steering = steering
        self._wire = wire
        self._path = path
        self.trouble = ""
        """Why they cannot be renewed; empty: they can."""

    async def renew(self, in_hand: Iterable[BacklogMessage], now: float) -> set[int]:
        """Renew what ends soon; the numbers of messages whose lock is lost all the same."""
        ending = [parcel for parcel in in_hand if parcel.lock_ends - now < RENEWED_BEFORE]
        if not ending:
            return set()
        try:
            async for parcel, until_ms in renewed(self._wire, self._path, ending):
                parcel.lock_ends = lock_ends(until_ms, now)
        except WireError as error:
            self.trouble = f"cannot renew locks: {self._steering.judge(error).reason}"
        else:
            self.trouble = ""
        now = self._steering.clock()
        return {parcel.number for parcel in ending if parcel.lock_ends - now < SPENT}
