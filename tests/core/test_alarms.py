"""A stuck pump and a backlog that is nearly full are alarms."""

from __future__ import annotations

from typing import Any

import pytest
from tests.approval import Approve

from paired_servicebus.core.model.snapshot import QueueView, SyphonStatus, SyphonView
from paired_servicebus.core.operator.failover_readiness import backlog_alarms

NOON = 1_777_636_800.0  # 2026-05-01 12:00:00 UTC
IDLE = SyphonView(status=SyphonStatus.IDLE, text="nothing to move")


def queue(**more: Any) -> QueueView:
    return QueueView(index=3, path="contoso/x-servicebus-transfer/3", in_rotation=True, read_at=NOON, **more)


@pytest.mark.parametrize("size", [None, 0, 80])
def test_a_queue_with_room_is_no_alarm(size: int | None) -> None:
    assert backlog_alarms([queue(size_bytes=size, limit_bytes=100)], IDLE) == []
    assert backlog_alarms([queue(size_bytes=size)], IDLE) == []


def test_a_queue_that_is_nearly_full_says_until_when_there_is_room(approve: Approve) -> None:
    full = queue(size_bytes=84, limit_bytes=100, bytes_growth=0.1)
    approve.part(backlog_alarms([full], IDLE), "rules", has=("3 is", "84%", "12:02:40"))
    approve.part(backlog_alarms([queue(size_bytes=84, limit_bytes=100)], IDLE), "rules", has=("3 is", "84%"))


def test_a_stuck_syphon_says_why(approve: Approve) -> None:
    stuck = SyphonView(status=SyphonStatus.STUCK, text="backlog queue 2: timeout")
    approve.part(backlog_alarms([queue()], stuck), "rules")
