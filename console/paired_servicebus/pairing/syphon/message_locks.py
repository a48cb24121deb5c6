"""Locks of a pump's messages in hand, on our own AMQP: their ends, and their renewal in time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from paired_servicebus.core.errors import WireError
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.backlog_message import BacklogMessage, lock_ends
from paired_servicebus.pairing.syphon.settlement import renew_each

RENEWAL_SECONDS: Final = 20.0
"""Seconds before its end at which a lock is renewed."""
EXPIRED_SECONDS: Final = 1.0
"""Seconds before its end at which a lock no longer counts."""


class MessageLocks:
    """Locks of one backlog queue's messages.

    Args:
        path: the backlog queue.
    """

    def __init__(self, steering: PairingRuntime, wire: ReconnectingConnection, path: str) -> None:
        self._steering = steering
        self._wire = wire
        self._path = path
        self.trouble = ""
        """The reason why locks cannot be renewed, or ""."""

    async def renew(self, in_hand: Iterable[BacklogMessage], now: float) -> set[int]:
        """Renew locks that end soon; return the numbers of messages with lost locks."""
        ending = [message for message in in_hand if message.lock_ends - now < RENEWAL_SECONDS]
        if not ending:
            return set()
        try:
            async for message, until_ms in renew_each(self._wire, self._path, ending):
                message.lock_ends = lock_ends(until_ms, now)
        except WireError as error:
            self.trouble = f"cannot renew locks: {self._steering.judge(error).reason}"
        else:
            self.trouble = ""
        now = self._steering.clock()
        return {message.number for message in ending if message.lock_ends - now < EXPIRED_SECONDS}
