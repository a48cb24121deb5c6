"""How fast the syphon may move messages: as its owner says, as far as the primary namespace bears it, and no further
than leaves live senders their share.

A namespace does not say what it bears; it says "server busy" when that is too much. Then the rate is halved; after the
namespace's rest it grows again by equal steps, and once it is twice what was too much nothing is held back any more.
Where neither the owner nor the namespace has set a limit there is none, and asking costs next to nothing.

    told                          the limit, in messages a second
    rate set by the owner         never more than that
    throttled                     half of what was moved in the second before, once in a rest
    every second after the rest   a twentieth of that rate more, until twice that rate; then none
    a live send in LIVE_SECONDS       of all this the part that is not `live_share`

Only the sends of this pairing are known as live. What others send shows in the throttling alone.
"""

from __future__ import annotations

from math import inf
from typing import Final

LIVE_SECONDS: Final = 5.0
"""Seconds after a live send in which its share is left free."""
MIN_RATE: Final = 1.0
"""Messages a second that are moved however often the namespace throttles: what is parked has to arrive one day."""
DOWN: Final = 0.5
STEPS: Final = 20.0
BURST: Final = 1.0
"""Seconds of the rate that may be moved at once after a pause."""
_SPAN: Final = 1.0
"""Seconds over which what is moved is counted."""


class SyphonRateLimit:
    """The limit of one engine's syphon. Times are seconds since 1970.

    Args:
        rate: messages a second at most; 0: as fast as it goes.
        live_share: part of the limit that is left to live senders while there are any.
        rest: seconds that a throttled namespace is left alone.

    live_at: when a live send was accepted last.
    """

    __slots__ = (
        "_began",
        "_count",
        "_filled_at",
        "_live_share",
        "_rate",
        "_rest",
        "_seen",
        "_throttled_at",
        "_tokens",
        "_was",
        "live_at",
    )

    def __init__(self, *, rate: float = 0.0, live_share: float = 0.5, rest: float = 10.0) -> None:
        self.live_at = -inf
        self._rate = rate or inf
        self._live_share = live_share
        self._rest = rest
        self._was = 0.0
        """The rate that was too much; 0: none was."""
        self._throttled_at = -inf
        self._tokens = 1.0
        self._filled_at = -inf
        self._began = -inf
        self._count = 0
        self._seen = 0.0
        """Messages a second in the latest span."""

    # -- asked --------------------------------------------------------------------------------------------------------

    def limit(self, at: float) -> float:
        """Messages a second that may be moved now; infinity: no limit."""
        allowed = min(self._rate, self._borne(at))
        if allowed == inf or at - self.live_at >= LIVE_SECONDS:
            return allowed
        return max(min(MIN_RATE, allowed), allowed * (1.0 - self._live_share))

    def left(self, at: float) -> float:
        """How many messages may be moved at once now; infinity: no limit. Less than 1: none."""
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
        """What binds now, as the syphon says it; empty where nothing does."""
        limit = self.limit(at)
        if limit == inf:
            return ""
        borne = self._borne(at)
        reason = "since the primary throttles" if borne <= self._rate else "as syphon_rate says"
        share = "; live senders have the rest" if self._live_share and at - self.live_at < LIVE_SECONDS else ""
        return f"at most {limit:,.0f} a second, {reason}{share}"

    # -- told ---------------------------------------------------------------------------------------------------------

    def took(self, messages: int = 1) -> None:
        """So many are moved."""
        self._count += messages
        self._tokens -= messages

    def gave_back(self, messages: int = 1) -> None:
        """So many that were counted are not moved after all: their destination takes nothing now."""
        self._count -= messages
        self._tokens += messages

    def throttled(self, at: float) -> float | None:
        """The primary was too busy for a message of the syphon's or of a live sender; the new limit, or None where that
        changes nothing: what follows in the same rest speaks of the same load."""
        if at - self._throttled_at < self._rest:
            return None
        span = max(at - self._began, _SPAN)
        moved = max(self._seen, self._count / span)
        before = min(self._rate, self._borne(at))
        if moved < MIN_RATE and before == inf:
            return None  # it was not the syphon
        self._was = max(2 * MIN_RATE, min(before, moved) if moved >= MIN_RATE else before)
        self._throttled_at = at
        self._tokens = 0.0
        self._filled_at = at
        return self.limit(at)

    def _borne(self, at: float) -> float:
        """What the namespace bears, as far as it has said."""
        if not self._was:
            return inf
        calm = at - self._throttled_at - self._rest
        grown = self._was * (DOWN + max(0.0, calm) / STEPS)
        if grown < 2 * self._was:
            return grown
        self._was = 0.0
        return inf
