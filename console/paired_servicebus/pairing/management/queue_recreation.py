"""The recreation of a missing backlog queue, after a deletion by hand or by another host's clean-up.

Creation has the settings of SPEC.md section 4.2. The pump of a missing queue tries it at most once a minute. Senders
use the queue again once their probe succeeds.
"""

from __future__ import annotations

from typing import Final

from azure.core.exceptions import AzureError

from paired_servicebus.core.model.pairing_events import Warned
from paired_servicebus.pairing.management.backlog_queues import CALL, BacklogQueues
from paired_servicebus.pairing.management.management_port import Management, is_refusal, is_there_already
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime

MIN_RETRY_SECONDS: Final = 60.0
"""Minimum seconds between two attempts for one queue."""


class QueueRecreator:
    """The creation of missing backlog queues of one pairing.

    Args:
        admin: the secondary namespace's management; needs Manage.
        found: the queues in use; a queue that is created again gets the expected settings there.
    """

    def __init__(self, steering: PairingRuntime, admin: Management, found: BacklogQueues) -> None:
        self._steering = steering
        self._admin = admin
        self._found = found
        self._next: dict[int, float] = {}
        """When each queue may be tried again."""
        self._troubles: dict[int, str] = {}

    async def remake(self, index: int) -> str:
        """Create a queue that its pump did not find. Does not raise the namespace's errors.

        Returns: why it is still missing, and the remedy; empty if it exists.
        """
        now = self._steering.clock()
        if now < self._next.get(index, 0.0):
            return self._troubles.get(index, "")
        self._next[index] = now + MIN_RETRY_SECONDS
        path = self._found.paths[index]
        try:
            await bounded(self._admin.create_backlog_queue(path), CALL, f"creating {path}")
        except (AzureError, OSError, TimeoutError) as error:
            return self._failed(index, path, error)
        self._troubles.pop(index, None)
        self._found.reset_settings(index)
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
