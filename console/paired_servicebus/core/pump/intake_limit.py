"""Limits of a pump's intake.

The pumps of a syphon share the engine's rate limit; those of a drain also have a limit of messages in total and in
hand. Reading a limit changes nothing but the refill over time.
"""

from __future__ import annotations

from math import inf
from typing import Final

# The syphon's rate limit: the configured maximum, lowered while the primary throttles or live senders need capacity.
#
# A namespace does not publish its capacity; it answers "server busy" above it. The rate is then halved. After a rest it
# grows in equal steps, and at twice the throttled rate the limit ends. Without a configured maximum or throttling there
# is no limit, and a query costs next to nothing.
#
#     event                          limit, in messages a second
#     configured rate                never more
#     throttled                      half of the rate in the second before, once per rest
#     each second after the rest     plus a twentieth of the throttled rate, up to twice that rate; then none
#     live send in LIVE_SECONDS      `1 - live_share` of the above
#
# Only this pairing's sends count as live. Other clients' sends show only as throttling.

LIVE_SECONDS: Final = 5.0
"""Seconds after a live send during which its share stays reserved."""
MIN_RATE: Final = 1.0
"""Minimum messages a second under throttling, so that the backlog always shrinks."""
DOWN: Final = 0.5
STEPS: Final = 20.0
BURST: Final = 1.0
"""Seconds of the rate that may be used as one burst after a pause."""
_SPAN: Final = 1.0
"""Seconds per measurement of the rate."""


class SyphonRateLimit:
    """The rate limit of one engine's syphon. Times are seconds since 1970.

    Args:
        rate: maximum messages a second; 0: unlimited.
        live_share: share of the limit reserved for live senders while there are any.
        rest: seconds without growth after throttling.

    live_at: time of the latest accepted live send.
    """

    def __init__(self, *, rate: float = 0.0, live_share: float = 0.5, rest: float = 10.0) -> None:
        self.live_at = -inf
        self._rate = rate or inf
        self._live_share = live_share
        self._rest = rest
        self._was = 0.0
        """The throttled rate; 0: not throttled."""
        self._throttled_at = -inf
        self._tokens = 1.0
        self._filled_at = -inf
        self._began = -inf
        self._count = 0
        self._seen = 0.0
        """Messages a second in the latest span."""

    # -- queries -----------------------------------------------------------------------------------------------------

    def limit(self, at: float) -> float:
        """Return the current limit in messages a second; infinity: none."""
        allowed = min(self._rate, self._namespace_limit(at))
        if allowed == inf or at - self.live_at >= LIVE_SECONDS:
            return allowed
        return max(min(MIN_RATE, allowed), allowed * (1.0 - self._live_share))

    def left(self, at: float) -> float:
        """Return how many messages may be moved now; infinity: no limit. Less than 1: none."""
        if at - self._began >= _SPAN:
            self._seen = self._count / (at - self._began)
            self._began, self._count = at, 0
        limit = self.limit(at)
        if limit == inf:
            self._tokens, self._filled_at = 0.0, at
            return inf
        since = max(0.0, at - self._filled_at)
        self._tokens = min(max(1.0, limit * BURST), self._tokens + limit * since)
        self._filled_at = at
        return self._tokens

    def why(self, at: float) -> str:
        """Return the current limit as a phrase for the syphon's line; empty without one."""
        limit = self.limit(at)
        if limit == inf:
            return ""
        borne = self._namespace_limit(at)
        reason = "since the primary throttles" if borne <= self._rate else "by syphon_rate"
        share = "; live senders get the rest" if self._live_share and at - self.live_at < LIVE_SECONDS else ""
        return f"at most {limit:,.0f} a second, {reason}{share}"

    # -- events ------------------------------------------------------------------------------------------------------

    def took(self, messages: int = 1) -> None:
        """Count moved messages."""
        self._count += messages
        self._tokens -= messages

    def gave_back(self, messages: int = 1) -> None:
        """Return unused capacity: the destination accepted none of these messages."""
        self._count -= messages
        self._tokens += messages

    def throttled(self, at: float) -> float | None:
        """Lower the limit after throttling and return it.

        Return None if nothing changes: further answers within the same rest report the same load.
        """
        if at - self._throttled_at < self._rest:
            return None
        span = max(at - self._began, _SPAN)
        moved = max(self._seen, self._count / span)
        before = min(self._rate, self._namespace_limit(at))
        if moved < MIN_RATE and before == inf:
            return None  # not the syphon's load
        self._was = max(2 * MIN_RATE, min(before, moved) if moved >= MIN_RATE else before)
        self._throttled_at = at
        self._tokens = 0.0
        self._filled_at = at
        return self.limit(at)

    def _namespace_limit(self, at: float) -> float:
        """Return the rate that the namespace bears, as far as throttling shows; infinity: unlimited."""
        if not self._was:
            return inf
        calm = at - self._throttled_at - self._rest
        grown = self._was * (DOWN + max(0.0, calm) / STEPS)
        if grown < 2 * self._was:
            return grown
        self._was = 0.0
        return inf


class IntakeLimit:
    """A pump's limits: the engine's rate limit, which its pumps share, a number of messages in total, and one in hand.

    Args:
        messages: in total; infinity: no limit.
        in_hand: at a time, besides the pump's own room; infinity: no limit.
    """

    def __init__(self, pace: SyphonRateLimit, *, messages: float = inf, in_hand: float = inf) -> None:
        self._pace = pace
        self._messages = messages
        self._max_in_hand = in_hand
        self.gave_back = pace.gave_back
        """Counts one message back in the rate limit alone: the total includes deferred messages."""

    @property
    def is_spent(self) -> bool:
        """Whether the total is used up."""
        return self._messages <= 0

    def left(self, in_hand: int, at: float) -> float:
        """Return how many more messages may come now, with this number in hand; less than one counts as 0."""
        left = min(self._messages, self._max_in_hand - in_hand, self._pace.left(at))
        return left if left >= 1 else 0.0

    def took(self) -> None:
        """Count one message."""
        self._messages -= 1
        self._pace.took()
