"""The alarms of the backlog: rules over a snapshot, one sentence each.

Elsewhere: parked messages without a syphon (SPEC.md section 4.6; paired_servicebus.pairing.monitoring.snapshot_views),
and a failover that would fail (failover_readiness.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from paired_servicebus.core.backlog.depth_trend import seconds_until
from paired_servicebus.core.model.snapshot import QueueView, SyphonStatus, SyphonView
from paired_servicebus.core.operator.failover_readiness import FULL_SHARE
from paired_servicebus.core.text.time_format import clock


def backlog_alarms(queues: Sequence[QueueView], syphon: SyphonView) -> list[str]:
    """Return the alarms for stuck pumps and for nearly full queues."""
    alarms = [f"the syphon is stuck: {syphon.text}"] if syphon.status is SyphonStatus.STUCK else []
    return alarms + [_nearly_full(queue) for queue in queues if share_used(queue) > FULL_SHARE]


def share_used(queue: QueueView) -> float:
    """Return the used share of a queue's size, 0 to 1; 0 if unknown."""
    return queue.size_bytes / queue.limit_bytes if queue.size_bytes is not None and queue.limit_bytes else 0.0


def _nearly_full(queue: QueueView) -> str:
    left = seconds_until(queue.size_bytes or 0, queue.limit_bytes or 0, queue.bytes_growth)
    when = f", and full {clock(queue.read_at + left)} at this pace" if left is not None and queue.read_at else ""
    return f"backlog queue {queue.index} is {share_used(queue):.0%} full{when}"
