"""Calls that ended in an error at their caller: how many messages, why, how fast, and since when. Pure.

An attempt that failed is not a refused call: the same call may go on to the backlog, and the caller sees no error. A
call without any attempt can be refused. Each call is counted once, by the messages that its caller still owns.

Not here: which calls are refused, and in which words (paired_servicebus.pairing.sending.send_call).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from paired_servicebus.core.errors import PairedClientError, PairingError
from paired_servicebus.core.text.time_format import clock

EPISODE_GAP_SECONDS: Final = 10.0
"""Seconds without a refused call after which an episode of them is over; the rate is over as many."""
MAX_REASONS: Final = 24
OTHER_REASONS: Final = "other reasons"


@dataclass(slots=True)
class RefusalEpisode:
    """Refused calls with less than EPISODE_GAP_SECONDS seconds between two of them."""

    began: float
    latest: float
    messages: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def runs(self, at: float) -> bool:
        """Return whether it goes on at `at`."""
        return at - self.latest < EPISODE_GAP_SECONDS


class Refusals:
    """The refused calls of one entity."""

    def __init__(self) -> None:
        self.total = 0
        """Messages, since the engine started."""
        self.reasons: Counter[str] = Counter()
        """The same by reason; at most MAX_REASONS, and the rest under OTHER_REASONS."""
        self.episode: RefusalEpisode | None = None
        """The latest one until `over` has returned it."""
        self._recent: deque[tuple[int, int]] = deque()
        """Messages in each of the last seconds that had any: the second, the messages."""
        self._turned = 0.0
        """When the entity's state changed last: what was refused before is no sign of what is refused now."""
        self._since = 0.0
        self._accepted: int | None = None
        """Messages of the entity that had been accepted when the latest call was refused."""

    def add(self, messages: int, reason: str, *, at: float, accepted: int) -> bool:
        """Count a refused call; return whether an episode begins with it.

        accepted: messages of the entity that were accepted so far, on any route.
        """
        if reason not in self.reasons and len(self.reasons) >= MAX_REASONS:
            reason = OTHER_REASONS
        self.total += messages
        self.reasons[reason] += messages
        self._count(messages, at)
        if accepted != self._accepted:
            self._since, self._accepted = at, accepted
        begins = self.episode is None
        episode = self.episode = self.episode or RefusalEpisode(at, at)
        episode.latest = at
        episode.messages += messages
        episode.reasons[reason] += messages
        return begins

    def since(self, accepted: int) -> float | None:
        """Return when the running series of refused calls began; None: the latest call was accepted, or there is none.

        accepted: as of `add`, now.
        """
        return self._since if self._accepted is not None and self._accepted == accepted else None

    def turn(self, at: float) -> None:
        """Begin the rate anew: the entity's state has changed, and its sends go elsewhere."""
        self._recent.clear()
        self._turned = at

    def is_running(self, at: float, accepted: int) -> bool:
        """Return whether calls are refused now: within EPISODE_GAP_SECONDS seconds, and either since the last change of the state or
        with none accepted since."""
        if self.episode is None or not self.episode.runs(at):
            return False
        return self.per_second(at) > 0 or self.since(accepted) is not None

    def per_second(self, at: float) -> float:
        """Return the messages a second over the last EPISODE_GAP_SECONDS seconds, or since the episode began or the state changed."""
        recent = sum(messages for second, messages in self._recent if second > at - EPISODE_GAP_SECONDS)
        if not recent or self.episode is None:
            return 0.0
        return recent / min(EPISODE_GAP_SECONDS, max(1.0, at - max(self.episode.began, self._turned)))

    def over(self, at: float) -> RefusalEpisode | None:
        """Return the episode that is over at `at`, once."""
        ended = self.episode
        if ended is None or ended.runs(at):
            return None
        self.episode = None
        return ended

    def _count(self, messages: int, at: float) -> None:
        second = int(at)
        if self._recent and self._recent[-1][0] == second:
            messages += self._recent.pop()[1]
        self._recent.append((second, messages))
        while self._recent[0][0] < second - EPISODE_GAP_SECONDS:
            self._recent.popleft()


def closed_reason(error: PairingError) -> str:
    """Say in few words why there is no pairing any more."""
    return "a client of the pairing was closed" if isinstance(error, PairedClientError) else "the pairing is closed"


def refusal_alarm(refused: Iterable[tuple[Refusals, int]], *, at: float) -> str:
    """Say that calls are refused now, summed over entities, each with its accepted messages; empty where none is."""
    running = [one for one, accepted in refused if one.is_running(at, accepted)]
    episodes = [one.episode for one in running if one.episode is not None]
    if not episodes:
        return ""
    reasons: Counter[str] = Counter()
    for episode in episodes:
        reasons.update(episode.reasons)
    rate = sum(one.per_second(at) for one in running)
    messages, began = sum(each.messages for each in episodes), min(each.began for each in episodes)
    ((why, _),) = reasons.most_common(1)
    return f"sends are refused: {figure(rate)}/s at callers, {messages:,} since {clock(began)} ({why})"


def figure(rate: float) -> str:
    """Write a rate: whole from ten on, and never a zero for one that is more."""
    return f"{rate:,.0f}" if rate >= 10 else f"{max(rate, 0.1):.1f}".removesuffix(".0")
