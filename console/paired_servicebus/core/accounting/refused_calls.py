"""Calls that ended in an error at their caller: messages, reasons, rate and start. Pure.

A failed attempt is not a refused call: the call may go on to the backlog without an error. A call may be refused
without any attempt. Each call counts once, with the messages that its caller still owns.

Not here: the refusals themselves, and their texts (paired_servicebus.pairing.sending.paired_sender).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from paired_servicebus.core.errors import PairedClientError, PairingError
from paired_servicebus.core.model.snapshot import Trouble, TroubleKind

# Credentials that a namespace refuses: said by log and alarm, with the way to replace them (SPEC.md section 5).

SAID_SECONDS: Final = 60.0
"""Seconds between two log lines about one namespace."""
REPLACE: Final = (
    "replace it without a restart: `Namespace.renew(connection_string)` in an application, "
    "the file that pairing.toml names in an engine; a clock that is wrong has the same effect"
)


@dataclass(slots=True)
class _Refused:
    """One entity's refusals. began, latest: seconds since 1970."""

    began: float
    latest: float
    reason: str


class RefusedCredentials:
    """The refusals of one pairing, by side ("primary" or "secondary") and by what was refused.

    Args:
        lasts: seconds after which a refusal without another one is no alarm any more.
    """

    def __init__(self, lasts: float) -> None:
        self._lasts = lasts
        self._refused: dict[tuple[str, str], _Refused] = {}
        self._said: dict[str, float] = {}

    def refuse(self, side: str, what: str, reason: str, *, at: float) -> str:
        """Note a refusal; return the sentence to log now, empty while one is younger than SAID_SECONDS."""
        found = self._refused.setdefault((side, what), _Refused(at, at, reason))
        found.latest, found.reason = at, reason
        if at - self._said.get(side, -SAID_SECONDS) < SAID_SECONDS:
            return ""
        self._said[side] = at
        return f"the {side} namespace refuses this process's credential: {reason}; {REPLACE}"

    def accept(self, side: str, what: str) -> None:
        """Note that the credential was accepted there."""
        if self._refused:
            self._refused.pop((side, what), None)

    def troubles(self, at: float) -> tuple[Trouble, ...]:
        """Return each side that refuses the credential now."""
        self._refused = {key: one for key, one in self._refused.items() if at - one.latest <= self._lasts}
        return tuple(self._trouble(side) for side in dict.fromkeys(side for side, _ in self._refused))

    def _trouble(self, side: str) -> Trouble:
        mine = [one for (where, _), one in self._refused.items() if where == side]
        began, reason = min(one.began for one in mine), max(mine, key=lambda one: one.latest).reason
        return Trouble(kind=TroubleKind.CREDENTIAL_REFUSED, what=side, reason=reason, since=began)


EPISODE_GAP_SECONDS: Final = 10.0
"""Seconds without a refused call that end an episode; also the span of the rate."""


@dataclass(slots=True)
class CallEpisode:
    """Calls that ended without success, less than EPISODE_GAP_SECONDS apart."""

    began: float
    latest: float
    number: int = 0
    """Messages of refused calls, or calls that gave up a wait."""
    reasons: Counter[str] = field(default_factory=Counter)

    def runs(self, at: float) -> bool:
        """Return whether the episode goes on at `at`."""
        return at - self.latest < EPISODE_GAP_SECONDS


# Calls that wait because their namespace is busy. Pure.
#
# Throttling never fails over (SPEC.md section 5), so nothing else shows that callers wait.


class ThrottledCalls:
    """The waiting calls of one pairing, and those that gave up the wait a moment ago."""

    def __init__(self) -> None:
        self._since: dict[str, dict[Hashable, float]] = {}
        """When each waiting call met "busy" first, by entity."""
        self._given_up: dict[str, CallEpisode] = {}

    def wait(self, entity: str, call: Hashable, *, at: float) -> None:
        """Record that a call waits for a busy route; a call that waits again keeps its first time."""
        self._since.setdefault(entity, {}).setdefault(call, at)

    def end(self, entity: str, call: Hashable, *, gave_up_at: float | None = None) -> None:
        """Forget a call that has ended. gave_up_at: when it gave up, if its route was busy to the end."""
        waiting = self._since.get(entity)
        began = gave_up_at
        if waiting is not None:
            began = waiting.pop(call, gave_up_at)
            if not waiting:
                del self._since[entity]
        if gave_up_at is not None and began is not None:
            before = self._given_up.get(entity)
            if before is None or not before.runs(gave_up_at):
                before = self._given_up[entity] = CallEpisode(began, gave_up_at)
            before.latest = gave_up_at
            before.number += 1

    def waiting(self, entity: str, at: float) -> tuple[int, float | None]:
        """Return how many calls of an entity wait or gave up the wait, and since when the first of them waited.

        Calls with short timeouts give up before a wait is long: those that gave up less than EPISODE_GAP_SECONDS apart
        count as one wait, else throttling would look like health.
        """
        waiting = self._since.get(entity, {})
        given_up = self._given_up.get(entity)
        if given_up is not None and not given_up.runs(at):
            del self._given_up[entity]
            given_up = None
        if given_up is None:
            return len(waiting), min(waiting.values(), default=None)
        return len(waiting) + given_up.number, min((given_up.began, *waiting.values()))


MAX_REASONS: Final = 24
OTHER_REASONS: Final = "other reasons"


class Refusals:
    """The refused calls of one entity."""

    def __init__(self) -> None:
        self.total = 0
        """Messages, since the engine started."""
        self.latest_at: float | None = None
        """Time of the latest refused call; None: there was none."""
        self.reasons: Counter[str] = Counter()
        """Messages by reason; at most MAX_REASONS, the rest under OTHER_REASONS."""
        self.episode: CallEpisode | None = None
        """The latest episode until `over` has returned it."""
        self._recent: deque[tuple[int, int]] = deque()
        """Pairs of second and messages, for the latest seconds with refused calls."""
        self._before = 0
        """The total when the entity last left a well state."""
        self._turned = 0.0
        """Time of the entity's last change of state; the rate ignores earlier refusals."""
        self._since = 0.0
        self._accepted: int | None = None
        """Accepted messages of the entity at the latest refused call."""

    def add(self, messages: int, reason: str, *, at: float, accepted: int) -> bool:
        """Count a refused call; return whether it begins an episode.

        accepted: accepted messages of the entity so far, on any route.
        """
        if reason not in self.reasons and len(self.reasons) >= MAX_REASONS:
            reason = OTHER_REASONS
        self.total += messages
        self.latest_at = at
        self.reasons[reason] += messages
        self._count(messages, at)
        if accepted != self._accepted:
            self._since, self._accepted = at, accepted
        begins = self.episode is None
        episode = self.episode = self.episode or CallEpisode(at, at)
        episode.latest = at
        episode.number += messages
        episode.reasons[reason] += messages
        return begins

    def since(self, accepted: int) -> float | None:
        """Return the start of the present series of refused calls; None: the latest call succeeded, or there is none.

        accepted: as for `add`, now.
        """
        return self._since if self._accepted is not None and self._accepted == accepted else None

    @property
    def in_outage(self) -> int:
        """Return the messages since the entity last left a well state."""
        return self.total - self._before

    def begin_outage(self) -> None:
        """Note that the entity leaves a well state."""
        self._before = self.total

    def turn(self, at: float) -> None:
        """Restart the rate after a change of state, since sends now take another route."""
        self._recent.clear()
        self._turned = at

    def per_second(self, at: float) -> float:
        """Return the refused messages a second.

        The period is EPISODE_GAP_SECONDS, or the time since the episode began or the state changed if that is less.
        """
        recent = sum(messages for second, messages in self._recent if second > at - EPISODE_GAP_SECONDS)
        if not recent or self.episode is None:
            return 0.0
        return recent / min(EPISODE_GAP_SECONDS, max(1.0, at - max(self.episode.began, self._turned)))

    def over(self, at: float) -> CallEpisode | None:
        """Return the finished episode at `at`, once."""
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
    """Return why the pairing has ended, in a few words."""
    return "a client of the pairing was closed" if isinstance(error, PairedClientError) else "the pairing is closed"
