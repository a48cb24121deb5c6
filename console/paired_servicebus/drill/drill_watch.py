"""The observations of a drill: the pairing's events, the calls of its senders, the arrivals at its receivers.

They give the times of each phase. The balance of messages has other sources: the lists of senders and receivers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from paired_servicebus.core.accounting.send_attempts import SendAttempt, detection_start, diversion_seconds
from paired_servicebus.core.drill.drill_plan import DrillPart, DrillPlan
from paired_servicebus.core.drill.drill_report import PartResult
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import (
    Diverted,
    Event,
    MessageReceived,
    PingAccepted,
    PingFailed,
    StateChanged,
)


@dataclass(slots=True)
class PartWatch:
    """The observations of one entity; times are seconds since the epoch, None: not yet."""

    part: DrillPart
    attempts: list[SendAttempt] = field(default_factory=list)
    broken_at: float | None = None
    failed_over_at: float | None = None
    healed_at: float | None = None
    returned_at: float | None = None
    failovers: int = 0
    pings_refused: int = 0
    pings_accepted: int = 0
    diverted: int = 0
    arrived: int = 0

    @property
    def divert_seconds(self) -> float | None:
        """Return the seconds from the first send after the failover to the first accepted one."""
        return diversion_seconds(self.attempts, self.failed_over_at) if self.failed_over_at is not None else None

    def result(self, plan: DrillPlan) -> PartResult:
        """Return the measurements."""
        began = detection_start(self.attempts, self.failed_over_at) if self.failed_over_at is not None else None
        in_failover = _between(self.failed_over_at, self.healed_at)
        return PartResult(
            part=self.part,
            detect=_between(began, self.failed_over_at),
            divert=self.divert_seconds,
            returned=_between(self.healed_at, self.returned_at),
            return_promise=plan.return_promise(in_failover) if in_failover is not None else None,
            failovers=self.failovers,
            pings_refused=self.pings_refused,
            pings_accepted=self.pings_accepted,
        )

    def change(self, event: StateChanged) -> str:
        """Note a change of state; return it as a line of progress, "" if it is none."""
        role = self.part.role
        if event.now == State.FAILED_OVER:
            self.failovers += 1
            self.failed_over_at = self.failed_over_at or event.at
            return f"{role} failed over: its sends go to the backlog"
        if event.now == State.HEALTHY and event.was == State.FAILED_OVER:
            self.returned_at = event.at
            return f"{role} failed back: its sends go to the primary"
        return f"{role} is suspect: {event.why}" if event.now == State.SUSPECT else ""


class DrillWatch:
    """The observations of all entities of a drill.

    Args:
        paths: each part's path.
        say: receives lines of progress.
    """

    def __init__(self, paths: dict[str, DrillPart], say: Callable[[str], None]) -> None:
        self.parts = {path: PartWatch(part) for path, part in paths.items()}
        self._say = say
        self._diverted: set[str] = set()
        self._arrived_at: dict[str, float] = {}

    @property
    def failing(self) -> tuple[PartWatch, ...]:
        """Return the entities that fail in this drill."""
        return tuple(watch for watch in self.parts.values() if watch.part.fails)

    @property
    def diverted(self) -> int:
        """Return the number of messages that a backlog queue accepted."""
        return len(self._diverted)

    @property
    def drain_seconds(self) -> float | None:
        """Return the seconds from the last failback until every diverted message had arrived; None: not yet."""
        returned = [watch.returned_at for watch in self.failing if watch.returned_at is not None]
        arrived = [self._arrived_at.get(name) for name in self._diverted]
        known = [at for at in arrived if at is not None]
        if len(returned) < len(self.failing) or len(known) < len(arrived):
            return None
        return max(0.0, max(known, default=0.0) - max(returned))

    def note(self, event: Event) -> None:
        """Note an event of the pairing, or of a receiver."""
        if isinstance(event, MessageReceived):
            self._arrived_at.setdefault(event.message_id, event.at)
        watch = self.parts.get(getattr(event, "entity", ""))
        if watch is None:
            return
        match event:
            case StateChanged():
                line = watch.change(event)
                if line:
                    self._say(line)
            case Diverted():
                self._diverted.add(event.message_id)
                watch.diverted += 1
            case PingFailed():
                watch.pings_refused += 1
            case PingAccepted():
                watch.pings_accepted += 1
            case MessageReceived():
                watch.arrived += 1

    def note_attempt(self, attempt: SendAttempt) -> None:
        """Note a call of a sender."""
        self.parts[attempt.entity].attempts.append(attempt)


def _between(began: float | None, ended: float | None) -> float | None:
    return max(0.0, ended - began) if began is not None and ended is not None else None
