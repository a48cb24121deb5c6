"""The completion of a pairing that started without its secondary namespace: it did not answer, or refused.

Until then it assumes the backlog queues that it would create, all out of the rotation. Sends go to the primary as
usual. A send that needs the backlog is refused immediately.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from paired_servicebus.core.failover.effects import ProbeQueue
from paired_servicebus.core.model.namespace_info import NamespaceInfo
from paired_servicebus.core.model.pairing_events import QueuePulled, Ticked
from paired_servicebus.core.model.snapshot import Trouble, TroubleKind
from paired_servicebus.pairing.management import backlog_queues
from paired_servicebus.pairing.management.management_port import Management
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime

START_SECONDS: Final = 4.0
"""Seconds in which the secondary has to answer at the start."""
RETRY_SECONDS: Final = 5.0
"""Seconds between two tries to complete the pairing."""
TRY_SECONDS: Final = 10.0
"""Seconds for one try."""

OnComplete = Callable[[backlog_queues.BacklogQueues, NamespaceInfo], object]

log = logging.getLogger(__name__)


class DegradedStart:
    """The background completion of one pairing.

    Args:
        admin: the secondary's management.
        primary: the primary namespace's name.
        host: the secondary's.
        reason: why the secondary could not be paired at the start.
    """

    def __init__(self, steering: PairingRuntime, admin: Management, *, primary: str, host: str, reason: str) -> None:
        self._steering = steering
        self._admin = admin
        self._primary = primary
        self._host = host
        self._reason = reason
        self.found: Mapping[int, str] = {}
        """The backlog queues that were found or created so far, by index."""
        self._is_complete = False

    @property
    def trouble(self) -> Trouble | None:
        """The reason why the pairing is incomplete; None once it is complete."""
        if self._is_complete:
            return None
        return Trouble(kind=TroubleKind.STARTED_DEGRADED, what=self._host, reason=self._reason)

    def take_out(self) -> None:
        """Remove every backlog queue from the rotation: a probe that succeeds returns it."""
        steering, reason = self._steering, f"{self._host} was not paired at the start"
        now, rotation = steering.clock(), steering.machine.rotation
        for index in rotation.indices:
            rotation.pull(index, at=now, reason=reason)
            steering.announce(QueuePulled(at=now, queue=index, reason=reason))
        steering.tell(Ticked(at=now))  # sets the timer for the probes
        self._warn(f"the pairing started degraded: {self._reason}")

    async def run(self, on_complete: OnComplete) -> None:
        """Try until every backlog queue exists."""
        policy = self._steering.policy
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                found = await backlog_queues.ensure(
                    self._admin, self._primary, policy.backlog_queue_count, patience=TRY_SECONDS, host=self._host
                )
            except Exception as error:  # noqa: BLE001 - the alarm shows any error, and the next try follows
                self._reason = str(error)
                continue
            self.found = found.paths
            if len(found.paths) == policy.backlog_queue_count:
                break
            self._reason = found.warnings[-1]
        self._is_complete = True
        on_complete(found, await backlog_queues.told(self._admin))
        self._warn("the secondary answers: the pairing is complete")
        await self._probe()

    async def _probe(self) -> None:
        """Probe the removed queues now, before their next regular probe."""
        steering = self._steering
        pulled = [place.index for place in steering.machine.rotation.places if place.pulled]
        if steering.effect_handler is not None:
            await asyncio.gather(*(steering.effect_handler.probe(ProbeQueue(index)) for index in pulled))

    def _warn(self, text: str) -> None:
        log.warning("%s", text)
        self._steering.warn("secondary", text)
