"""The times of one engine's next duties in the fleet, and of its latest posts."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from paired_servicebus.core.fleet.fleet_documents import Board
from paired_servicebus.core.fleet.fleet_events import Clean
from paired_servicebus.core.fleet.own_documents import ChangeKey


@dataclass
class DueTimes:
    """The times of the next duties; infinity: none."""

    look: float = -inf
    reports: float = inf
    report: float = inf
    watch: float = inf
    clean: float = inf
    presence_retry: float = -inf
    answers: float = -inf


@dataclass
class LatestPosts:
    """The latest posts and cleanings of this engine."""

    presence_at: float = -inf
    presence_key: ChangeKey = ()
    report_at: float = -inf
    report_key: ChangeKey = ()
    reports_read: float = -inf
    cleaned: dict[Board, float] = field(default_factory=dict)

    def is_cleaning_new(self, wanted: Clean) -> bool:
        """Note a cleaning; return whether it deletes more than the latest one."""
        if wanted.before <= self.cleaned.get(wanted.board, 0.0) + 1.0 and not wanted.behind:
            return False
        self.cleaned[wanted.board] = max(wanted.before, self.cleaned.get(wanted.board, 0.0))
        return True
