"""The search for deferred messages in a backlog queue, ours from before a crash or another syphon's, by peeking.

Nothing tells where they lie, so a search looks at the whole queue, in portions: what was found in one is known at its
end, and a failure ends a portion, not the search, which goes on from there. Before a pump opens it waits for the
first part of it, as far as other pumps can have reached past messages that they held locked; the rest comes while
messages are moved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from paired_servicebus.core.errors import EnvelopeError, WireError
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.pairing.amqp_client.entity_management import peek
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.deferred_messages import DeferredMessage
from paired_servicebus.pairing.syphon.envelope_codec import held_of, opened
from paired_servicebus.pairing.syphon.outcomes import MANAGED, Rescan

PEEKED: Final = 250
"""Messages looked at by one request, at most."""
ENOUGH: Final = 20_000
"""Messages in a row that are not set aside, after which a pump may open: what four pumps that died can have held."""
PORTION: Final = 0.2
"""Seconds after which a portion ends."""
_ACTIVE, _DEFERRED = 0, 1


class DeferredScan:
    """One pump's searches, one after the other.

    Args:
        on_its_way: the numbers of messages that are in hand, asked for or about to be settled: no search has found
            those.
    """

    def __init__(
        self,
        steering: PairingRuntime,
        wire: ReconnectingConnection,
        path: str,
        aside: DeferredMessage,
        on_its_way: Callable[[], set[int]],
    ) -> None:
        self._steering = steering
        self._wire = wire
        self._path = path
        self._aside = aside
        self._on_its_way = on_its_way
        self.trouble = ""
        """Why nothing can be looked for; empty: it can."""
        self._next = 1
        self._in_a_row = 0
        self._took = 0.0
        self._rescan = Rescan()
        self._stays_known = False

    @property
    def is_far_enough(self) -> bool:
        """Whether it is over, or has come as far as others can have reached."""
        return self._next == 1 or self._in_a_row >= ENOUGH

    async def begin(self) -> None:
        """A link was attached: look anew, since something may have been set aside that is not known here."""
        if not self._stays_known:
            self._next, self._in_a_row, self._took = 1, 0, 0.0
            self._rescan.due_at = 0.0
        self._stays_known = False
        await self.look_if_due(self._steering.clock())

    def stays_known(self) -> None:
        """The link ended because nothing passed over it: the next one needs no search."""
        self._stays_known = True

    def missed(self) -> None:
        """Something that is set aside could not be received: look again before long."""
        self._rescan.missed(self._steering.clock())

    def holds(self, messages: int) -> None:
        """The queue holds so many: look again before long, if that is more than is known here."""
        if messages > len(self._known()):
            self._rescan.unseen(self._steering.clock())

    def is_due(self, now: float) -> bool:
        """Whether there is something to look at."""
        return now >= self._rescan.due_at

    async def look_if_due(self, now: float) -> None:
        """Look on, if there is something to look at."""
        if self.is_due(now):
            await self.look()

    async def look(self) -> None:
        """Look on from where the last portion ended; a queue that cannot be peeked into is pumped all the same."""
        try:
            await self._portion()
        except WireError as error:
            self.trouble = f"cannot look for what was set aside: {self._steering.judge(error).reason}"
            self._rescan.failed(self._steering.clock())
        else:
            self.trouble = ""

    async def _portion(self) -> None:
        began = self._steering.clock()
        if self._next == 1:
            self._rescan.began()
        before = self._known()
        seen: list[tuple[str, str, int]] = []
        try:
            while await self._page(before, seen) and self._steering.clock() - began < PORTION:
                pass
        finally:
            after = self._known()
            self._aside.found(one for one in seen if one[2] not in after)
            self._took += self._steering.clock() - began
        if self._next == 1:
            self._rescan.ended(self._steering.clock(), took=self._took)
            self._took = 0.0

    async def _page(self, before: set[int], seen: list[tuple[str, str, int]]) -> bool:
        """Look at some; False at the queue's end."""
        peeked = await peek(self._wire, self._path, from_number=self._next, count=PEEKED, timeout=MANAGED)
        self._steering.meter.searched()
        last = self._next
        for data in peeked:
            held = held_of(data)
            self._next = max(self._next, held.sequence_number + 1)
            if held.state == _DEFERRED:
                self._in_a_row = 0
                if held.sequence_number not in before:
                    seen.append((*_destination(data), held.sequence_number))
            elif held.state == _ACTIVE:
                self._in_a_row += 1
        if self._next == last:  # nothing, or nothing that says where it lies
            self._next, self._in_a_row = 1, 0
        return self._next != 1

    def _known(self) -> set[int]:
        return self._aside.numbers() | self._on_its_way()


def _destination(data: bytes) -> tuple[str, str]:
    """A deferred message's destination and its key; "" where it has none that can be read."""
    try:
        path = opened(data).enclosed.path
    except EnvelopeError:
        return "", ""
    return path, path.casefold()
