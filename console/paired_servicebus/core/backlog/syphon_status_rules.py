"""The status of the syphon, from moved messages and the reasons for the others (SPEC.md section 8).

"stuck" calls the operator, so it needs proof. Messages without a known reason are in the backlog, a reading shows them
after a sufficient time without moves, and every destination accepts messages. Another engine's syphon on the same
queues may hold messages for the same outage; an engine that knows of the outage cannot exclude that.

`Standstill` follows the messages. `ROWS` gives the status and the sentence of the first rule that holds.

An engine does not know the syphons of other hosts or users. It infers one from a falling depth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.model.entity_state import DIVERTING, Entity, State
from paired_servicebus.core.model.snapshot import SyphonStatus, Trouble, TroubleKind
from paired_servicebus.core.pump.destination_circuits import MAX_BACKOFF_SECONDS
from paired_servicebus.core.text.number_format import join_names, plural
from paired_servicebus.core.text.time_format import clock


@dataclass(frozen=True, slots=True, kw_only=True)
class UnavailableDestinations:
    """The destinations that refuse messages from this engine's syphon now, with the reasons."""

    outage: tuple[str, ...] = ()
    """Failed over in this engine."""
    refused: tuple[tuple[str, str], ...] = ()
    """Destinations that refused their last message: path and reason."""
    forced: tuple[str, ...] = ()
    """Forced by an operator: their senders use the backlog."""
    paused: tuple[str, ...] = ()
    """Paused by an operator."""
    since: float = 0.0
    """Start of the latest of these outages."""

    def __bool__(self) -> bool:
        return bool(self.outage or self.refused or self.forced or self.paused)


NONE_AWAY: Final = UnavailableDestinations()


class Standstill:
    """The time since which unexplained messages are in the backlog without any move."""

    def __init__(self) -> None:
        self.since: float | None = None
        """None: there are none."""
        self.empty_at = 0.0
        """Time of the latest complete reading without parked messages."""
        self._settled_at = 0.0
        self._proven = 0.0

    def look(
        self, at: float, *, unexplained: int, empty_at: float, read_at: float | None, moved_at: float, away: bool
    ) -> None:
        """Update the state.

        Args:
            unexplained: messages in pumped queues that this engine does not hold back.
            empty_at: the oldest reading of all queues if nothing is parked; else 0.
            read_at: the oldest reading of those queues; None: one was not read.
            moved_at: when this engine, or visibly another one, last removed messages.
            away: whether a destination is unavailable. After its recovery each engine waits for its own next try.
        """
        self.empty_at = max(self.empty_at, empty_at)
        if away:
            self._settled_at = at + MAX_BACKOFF_SECONDS
        if unexplained <= 0:
            self.since, self._proven = None, 0.0
            return
        began = at if self.since is None else self.since
        self.since = max(began, moved_at) if away else max(began, moved_at, self._settled_at)
        self._proven = (read_at or 0.0) - self.since

    def is_proven(self, least: float) -> bool:
        """Return whether a reading proves that the messages stayed for at least `seconds` without any move."""
        return self.since is not None and self._proven >= least


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonEvidence:
    """An engine's knowledge of its syphon at one moment."""

    paused: str = ""
    """The operator and reason of a pause of the whole syphon, as a sentence."""
    failing: str = ""
    """The queue that could not be received from for too long, with the reason."""
    moves_now: bool = False
    """Whether messages were moved in the last second."""
    moved_lately: bool = False
    pace: str = ""
    """The limit on its rate, as a sentence."""
    parked: int | None = 0
    """The number of parked messages; None: unknown."""
    is_whole: bool = True
    """Whether the depth of every queue was read."""
    away: UnavailableDestinations = NONE_AWAY
    paused_queues: str = ""
    """The paused queues with messages, as a sentence."""
    lies_still: int = 0
    """Unexplained messages that Standstill has proven to be unmoved."""
    takes: bool = False
    """Whether a destination accepted messages since the outages began."""
    others: bool = False
    """Whether another engine with a syphon is known, or visible by its moves."""
    others_busy: bool = False
    """Whether one of them is known to move these messages, or to hold them for an outage."""
    last_moved_at: float = 0.0


def judge(sight: SyphonEvidence) -> tuple[SyphonStatus, str]:
    """Return the status and the sentence of the first rule that holds."""
    return next((status, text(sight)) for holds, status, text in ROWS if holds(sight))


def _is_stuck(it: SyphonEvidence) -> bool:
    if not it.lies_still or it.others_busy:
        return False
    return not it.away or (it.takes and not it.others)


_UNREAD: Final = "nothing received; the depth of some queues is unknown"


def _running(it: SyphonEvidence) -> str:
    return f"moving messages to their destinations{it.pace and f'; {it.pace}'}"


def _stuck(it: SyphonEvidence) -> str:
    return f"{plural(it.lies_still, 'message')} in the backlog, none moved, for an unknown reason"


def _for_destinations(it: SyphonEvidence) -> str:
    away = it.away
    whom = [f"an outage of {join_names(away.outage)}"] if away.outage else []
    whom += [join_names([f"{path} ({reason})" for path, reason in away.refused])] if away.refused else []
    whom += [f"{join_names(away.forced)} (forced here)"] if away.forced else []
    whom += [f"{join_names(away.paused)} (paused by an operator)"] if away.paused else []
    heals = bool(away.outage or away.refused)
    several = len(away.outage) + len(away.refused) > 1
    end = f"moves them when {'each is' if several else 'it is'} healthy again" if heals else ""
    return "; ".join(filter(None, (f"holds {_count(it)} for {' and '.join(whom)}", end)))


def _for_an_operator(it: SyphonEvidence) -> str:
    return f"{_count(it)} parked; an operator paused {it.paused_queues}"


def _for_others(it: SyphonEvidence) -> str:
    return f"{_count(it)} parked; another engine moves them, or holds them for an outage"


def _for_a_reason_unknown(it: SyphonEvidence) -> str:
    return f"{_count(it)} parked, and none received since {_last(it) or 'the start'}"


def _idle(it: SyphonEvidence) -> str:
    last = _last(it)
    return f"nothing to move{f'; last moved {last}' if last else ''}"


def _last(it: SyphonEvidence) -> str:
    return clock(it.last_moved_at) if it.last_moved_at else ""


def _count(it: SyphonEvidence) -> str:
    return plural(it.parked or 0, "message")


ROWS: Final[tuple[tuple[Callable[[SyphonEvidence], bool], SyphonStatus, Callable[[SyphonEvidence], str]], ...]] = (
    (lambda it: bool(it.paused), SyphonStatus.PAUSED, lambda it: it.paused),
    (lambda it: bool(it.failing), SyphonStatus.STUCK, lambda it: it.failing),
    (lambda it: it.moves_now or (it.moved_lately and it.parked != 0), SyphonStatus.RUNNING, _running),
    (_is_stuck, SyphonStatus.STUCK, _stuck),
    (lambda it: bool(it.parked and it.away), SyphonStatus.WAITING, _for_destinations),
    (lambda it: bool(it.parked and it.paused_queues), SyphonStatus.WAITING, _for_an_operator),
    (lambda it: bool(it.parked and it.others_busy), SyphonStatus.WAITING, _for_others),
    (lambda it: bool(it.parked), SyphonStatus.WAITING, _for_a_reason_unknown),
    (lambda it: it.parked is None or not it.is_whole, SyphonStatus.IDLE, lambda _: _UNREAD),
    (lambda _: True, SyphonStatus.IDLE, _idle),
)
"""A condition, a status and a sentence. The first rule that holds counts; the last one always holds."""


STALLED_AFTER: Final = 900.0
"""Seconds without a fall, while destinations are healthy, that make a stall."""


class StallDetector:
    """A detector for parked messages that no syphon moves."""

    def __init__(self) -> None:
        self._since: float | None = None
        """Time of the reading since which the depth has not fallen."""
        self._read_at = 0.0
        self._messages = 0

    def read(self, messages: int, *, at: float, healthy: bool) -> None:
        """Compare a reading with the previous one.

        Args:
            at: when the depth was read; a reading may be repeated.
            healthy: whether destinations accept messages now.
        """
        if not messages or not healthy:
            self._since = None
        elif self._since is None or messages < self._messages:
            self._since = at
        self._read_at, self._messages = at, messages

    @property
    def trouble(self) -> Trouble | None:
        """Return the stalled backlog; None: a syphon may be at work."""
        if self._since is None or self._read_at - self._since < STALLED_AFTER:
            return None
        reason = f"{self._messages} parked, no syphon is known, and destinations were healthy when last sent to"
        return Trouble(kind=TroubleKind.BACKLOG_STALLED, reason=reason, since=self._since)


def are_healthy(entities: tuple[Entity, ...]) -> bool:
    """Return whether some destination was healthy at its last answer, and none is known to fail."""
    away = any(entity.state in DIVERTING or entity.state is State.SUSPECT for entity in entities)
    return not away and any(entity.state is State.HEALTHY or entity.quiet_since is not None for entity in entities)
