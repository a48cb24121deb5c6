"""The parked messages that no known syphon moves (SPEC.md section 4.6).

They are a warning, and an alarm when their number stalls.

Known syphons are this engine's and those of the same user's engines on this machine. Others may run elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection

from paired_servicebus.core.backlog.poll_schedule import PollReason
from paired_servicebus.core.backlog.stall_detector import StallDetector, are_healthy
from paired_servicebus.core.text.index_ranges import format_indices
from paired_servicebus.pairing.monitoring.depth_poller import DepthPoller
from paired_servicebus.pairing.monitoring.unused_queues import UnusedQueues
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime


class UnmovedMessages:
    """The messages in queues without a known syphon.

    Args:
        has_syphon: whether this engine runs one, which moves messages out of all queues in use.
    """

    def __init__(
        self, steering: PairingRuntime, poller: DepthPoller, unused: UnusedQueues, *, has_syphon: bool
    ) -> None:
        self.syphons: tuple[str, ...] = ()
        """The other engines known to run a syphon for the same namespaces."""
        self._steering = steering
        self._poller = poller
        self._unused = unused
        self._has_syphon = has_syphon
        self._stalled = StallDetector()

    @property
    def alarm(self) -> str:
        """The remedy for a stalled backlog; empty while a syphon may move it."""
        return self._stalled.alarm

    def reasons(self, *, aside: int) -> frozenset[PollReason]:
        """Return the rules' reasons for reading the depths. `aside`: messages that a syphon here holds."""
        found, queues = self._poller.reasons(aside=aside), self._queues()
        if self._has_syphon:
            return found | {PollReason.SYPHON}
        unmoved = queues and (self._parked(queues)[0] or self._poller.parked_since)
        return found | {PollReason.UNMOVED} if unmoved else found

    def follow(self) -> None:
        """Compare the newest reading with the one before."""
        messages, read_at = self._parked(self._queues())
        healthy = are_healthy(self._steering.machine.entities())
        self._stalled.read(messages, at=read_at, healthy=healthy)

    def warnings(self) -> tuple[str, ...]:
        """Return a warning if messages are parked and no syphon is known."""
        queues = self._queues()
        messages, _ = self._parked(queues)
        if not messages:
            return ()
        said = "1 message is" if messages == 1 else f"{messages} messages are"
        if len(queues) == len(self._poller.found):
            end = f"{said} parked, and no syphon is known here; one of another host or user may run"
            return (f"syphon unknown: {end}",)
        end = f"{said} parked there; set the same backlog_queue_count where the syphon runs"
        return (f"syphon unknown for backlog queues {format_indices(queues)}: {end}",)

    def _queues(self) -> frozenset[int]:
        if self._has_syphon:
            return frozenset()
        queues, moved = frozenset(self._poller.found), self._unused.usage.moved
        if not self.syphons:
            return queues
        return queues - moved if moved else frozenset()

    def _parked(self, queues: Collection[int]) -> tuple[int, float]:
        """Return the messages in these queues when last read, and the time of the oldest reading."""
        read = [one for index, one in self._poller.found.items() if one is not None and index in queues]
        return sum(one.depth.messages for one in read), min((one.read_at for one in read), default=0.0)
