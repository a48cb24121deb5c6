"""The watch over both namespaces' clients: when one cannot be used any more, the other ends too (SPEC.md section 9).

A pairing is faulted by a client that its application closed, or by a crashed task of its own; never by an outage. The
SDK has no property for "closed". An idle sender of each client, never opened, is therefore asked to cancel an empty
list. That contacts no namespace, and raises ValueError after its client was closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from paired_servicebus.core.errors import PairedClientError, PairingClosedError, PairingError
from paired_servicebus.pairing.runtime.task_owner import TaskOwner

CHECK_SECONDS: Final = 1.0
"""Seconds between two checks of the clients."""


class WatchedClient:
    """One namespace's client, and whether it was closed.

    Args:
        name: the client's name in errors.
        path: the idle sender's entity. A client that its connection string binds to another entity gets that from
            `use`.
    """

    def __init__(self, name: str, client: ServiceBusClient, path: str) -> None:
        self.name = name
        self._client = client
        self._idle: ServiceBusSender | None = None
        with suppress(ValueError):  # bound to one entity: the first sender names it
            self.use(path)

    def use(self, path: str) -> None:
        """Make the idle sender for this entity, unless there is one."""
        if self._idle is None:
            self._idle = self._client.get_queue_sender(path)

    async def is_closed(self) -> bool:
        if self._idle is None:
            return False
        try:
            await self._idle.cancel_scheduled_messages([])
        except ValueError:
            return True
        return False


class ClientWatch:
    """The watch over both sides; reports the end of the pairing once.

    Args:
        primary, secondary: the sides.
        tasks: the pairing's; a crashed one faults both sides.
        grace: seconds in which the other side has to be closed too.
        over: called with the reason, at most once.
    """

    def __init__(
        self,
        primary: WatchedClient,
        secondary: WatchedClient,
        tasks: TaskOwner,
        *,
        grace: float,
        over: Callable[[PairingError], object],
    ) -> None:
        self.primary = primary
        self.secondary = secondary
        self._tasks = tasks
        self._grace = grace
        self._over = over

    async def run(self) -> None:
        """Check until the pairing is over, or until cancelled."""
        loop = asyncio.get_running_loop()
        act_at: float | None = None
        while True:
            reason = self._crashed()
            gone = [side for side in (self.primary, self.secondary) if await side.is_closed()]
            if len(gone) == 1:
                act_at = loop.time() + self._grace if act_at is None else act_at
                if loop.time() >= act_at:
                    reason = self._left_alone(gone[0])
            elif gone:
                reason = PairingClosedError("both namespaces' clients were closed, and the pairing with them")
            if reason is not None:
                self._over(reason)
                return
            await asyncio.sleep(CHECK_SECONDS if act_at is None else min(CHECK_SECONDS, max(0.0, act_at - loop.time())))

    def _crashed(self) -> PairingError | None:
        failed = self._tasks.failed
        if failed is None:
            return None
        error = PairedClientError(
            f"the pairing of {self.primary.name} with {self.secondary.name} is faulted: a task of its own crashed "
            f"({type(failed.exceptions[0]).__name__}); both clients are closed. Pair them again; see the log"
        )
        error.__cause__ = failed
        return error

    def _left_alone(self, gone: WatchedClient) -> PairingError:
        other = self.secondary if gone is self.primary else self.primary
        return PairedClientError(
            f"the client of {gone.name} was closed, and that of its partner {other.name} was not within "
            f"{self._grace:g} s: both are closed now. Close the pairing instead of its clients"
        )
