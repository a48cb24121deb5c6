"""The links to the backlog queues, open before they are needed and kept so: one per queue, shared by all senders.

A namespace cuts a link on which nothing passes for ten minutes, and a backlog link carries nothing as long as all is
well. So each is opened anew in time, and one that broke, or could not be opened, again and again, ever more slowly.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from azure.servicebus.aio import ServiceBusClient

from console.core.events import Warned
from console.core.verdict import Verdict
from console.pairing.coalescer import Coalescer
from console.pairing.gate import Gate
from console.pairing.links import STANDARD_LIMIT, SenderLink
from console.pairing.steering import Steering

RENEW_AFTER: Final = 8 * 60.0
"""Idle seconds after which a link is opened anew: sooner than the ten minutes after which the namespace cuts it."""
LOOK: Final = 5.0
"""Seconds between two looks at the links."""
SLOWEST: Final = 12
"""The longest distance between two tries to open one, in looks."""


@dataclass(slots=True)
class _Place:
    """One queue's link, and how often opening it failed in a row."""

    queue: Coalescer
    failures: int = 0
    skip: int = 0

    def failed(self) -> None:
        """The next tries come later and later."""
        self.skip = min(2**self.failures, SLOWEST)
        self.failures = min(self.failures + 1, SLOWEST)


class Standby:
    """The backlog links of one pairing; `queues` is what senders park through, by index.

    Args:
        client: the secondary namespace's.
        paths: the backlog queues' paths by index.
        gate: what links open through.
        assumed: the largest message the queues take, in bytes, while no link has said it.
    """

    def __init__(
        self,
        steering: Steering,
        client: ServiceBusClient,
        paths: tuple[str, ...],
        gate: Gate,
        *,
        assumed: int = STANDARD_LIMIT,
    ) -> None:
        self._steering = steering
        links = [SenderLink(client, path, steering.tasks, gate, assumed=assumed) for path in paths]
        self.queues = [Coalescer(link, steering.tasks, self._say) for link in links]
        self.tried = asyncio.Event()
        """Set once each link was opened, or could not be."""
        self._places = [_Place(queue) for queue in self.queues]

    async def run(self) -> None:
        """Keep the links open, until cancelled."""
        while True:
            await asyncio.gather(*(self._ready(place) for place in self._places))
            self.tried.set()
            await asyncio.sleep(LOOK)

    def limit(self) -> int:
        """The largest message that every backlog queue takes, in bytes."""
        return min(queue.link.limit() for queue in self.queues)

    async def renew(self, index: int, timeout: float) -> None:
        """Attach anew to a queue and stand ready with that. Raises what the SDK raises, or TimeoutError."""
        await self.queues[index].link.renew(timeout)

    def cut(self) -> None:
        """What is in hand ends now, and raises."""
        for queue in self.queues:
            queue.link.cut()

    async def close(self) -> None:
        """Detach all of them."""
        await asyncio.gather(*(queue.link.close() for queue in self.queues))

    async def _ready(self, place: _Place) -> None:
        link = place.queue.link
        if link.is_open and link.idle_for < RENEW_AFTER:
            return
        if place.skip > 0:
            place.skip -= 1
            return
        try:
            await link.renew(self._steering.policy.send_timeout)
        except Exception as error:  # noqa: BLE001 - not ready is a warning, whatever was raised
            if not place.failures:
                self._warn(link, error)
            place.failed()
        else:
            place.failures = 0

    def _warn(self, link: SenderLink, error: Exception) -> None:
        judgement = self._steering.judge(error)
        text = f"the link to {link.path} is not open: {judgement.reason}"
        if judgement.verdict is Verdict.CALLERS:
            text += "; the credential needs Send on the secondary namespace"
        self._steering.announce(Warned(at=self._steering.clock(), about="secondary", text=text))

    def _say(self, text: str) -> None:
        self._steering.announce(Warned(at=self._steering.clock(), about="backlog queues", text=text))
