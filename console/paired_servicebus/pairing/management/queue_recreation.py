"""A backlog queue in use that is gone is made again: deleted by hand, say, or by the clean-up of another host.

Creation has the settings of SPEC.md section 4.2. It is tried at most once a minute for each queue, by the pump that
finds its queue gone; senders come back to the queue once their probe succeeds.
"""

from __future__ import annotations

from typing import Final

from azure.core.exceptions import AzureError

from paired_servicebus.core.model.pairing_events import Warned
from paired_servicebus.pairing.management.backlog_queues import CALL, BacklogQueues
from paired_servicebus.pairing.management.management_port import Management, is_refusal, is_there_already
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime

EVERY: Final = 60.0
"""Seconds between two attempts for one queue at least."""


class QueueRecreator:
    """Makes backlog queues of one pairing again.

    Args:
        admin: the secondary namespace's management; needs Manage.
        found: the queues in use, whose settings are those of a created queue once it is made again.
    """

    def __init__(self, steering: PairingRuntime, admin: Management, found: BacklogQueues) -> None:
        self._steering = steering
        self._admin = admin
        self._found = found
        self._next: dict[int, float] = {}
        """When each queue may be tried again."""
        self._troubles: dict[int, str] = {}

    async def remake(self, index: int) -> str:
        """Make a queue that its pump did not find. Never raises for the namespace's sake.

        Returns: why it is still gone, and what to do; empty where it was made or is there.
        """
        now = self._steering.clock()
        if now < self._next.get(index, 0.0):
            return self._troubles.get(index, "")
        self._next[index] = now + EVERY
        path = self._found.paths[index]
        try:
            await bounded(self._admin.create_backlog_queue(path), CALL, f"creating {path}")
        except (AzureError, OSError, TimeoutError) as error:
            return self._failed(index, path, error)
        self._troubles.pop(index, None)
        self._found.made_again(index)
        self._warn(f"{path} was gone and was made again, with the settings of a new backlog queue")
        return ""

    def _failed(self, index: int, path: str, error: Exception) -> str:
        if is_there_already(error):  # another engine was faster, or the namespace hides it for now
            self._troubles.pop(index, None)
            return ""
        reason = self._steering.judge(error).reason
        todo = "give the pairing's credential Manage on the secondary, or make" if is_refusal(error) else "else make"
        how = "" if is_refusal(error) else "; tried again each minute"
        trouble = f"{path} is gone and cannot be made again ({reason}){how}; {todo} the queue by hand"
        if trouble != self._troubles.get(index):
            self._troubles[index] = trouble
            self._warn(trouble)
        return trouble

    def _warn(self, text: str) -> None:
        self._steering.announce(Warned(at=self._steering.clock(), about="backlog queues", text=text))
