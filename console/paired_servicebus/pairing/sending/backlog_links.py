"""The links to the backlog queues, open before they are needed and kept so: one per queue, shared by all senders.

A namespace cuts a link on which nothing passes for ten minutes, and a backlog link carries nothing as long as all is
well. So each is opened anew in time, and one that broke, or could not be opened, again and again, ever more slowly.
While one could not be opened, that is an alarm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.model.pairing_events import Warned
from paired_servicebus.core.model.verdict import FailureKind, Judgement
from paired_servicebus.core.text.index_ranges import format_indices
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.runtime.permanent_failures import is_unknown_host, is_untrusted
from paired_servicebus.pairing.sending.coalescer import Coalescer
from paired_servicebus.pairing.sending.open_limiter import OpenLimiter
from paired_servicebus.pairing.sending.sender_link import STANDARD_LIMIT, SenderLink

RENEW_AFTER: Final = 8 * 60.0
"""Idle seconds after which a link is opened anew: sooner than the ten minutes after which the namespace cuts it."""
LOOK: Final = 5.0
"""Seconds between two looks at the links."""
SLOWEST: Final = 12
"""The longest distance between two tries to open one, in looks."""
SECOND_TRY: Final = 1.0
"""Seconds until links that were all refused are tried again, where the refusal may be the newness of what they lead
to."""
_RIGHTS: Final = frozenset({FailureKind.UNAUTHENTICATED, FailureKind.UNAUTHORIZED})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a link could not be opened. `todo`: what would mend it; empty where only time does."""

    reason: str
    todo: str = ""
    may_be_new: bool = False
    """Whether it may be over in a moment: a queue or a name that was made just now."""

    @classmethod
    def of(cls, error: Exception, judgement: Judgement) -> Refusal:
        """What an error says of the link."""
        if is_untrusted(error):
            todo = "name its authority: ssl_context=tls_context(ca_file) of the client, or ca_file in pairing.toml"
            return cls("the certificate is not trusted", todo)
        if is_unknown_host(error):
            return cls("the host is not known", "check the host of the secondary client", may_be_new=True)
        if judgement.kind in _RIGHTS:
            return cls(judgement.reason, "the credential needs Send on the secondary namespace: check its key or role")
        if judgement.kind is FailureKind.NOT_FOUND:
            todo = "secondary_client and secondary_admin have to be of one namespace"
            return cls(judgement.reason, todo, may_be_new=True)
        return cls(judgement.reason)

    def __str__(self) -> str:
        return f"{self.reason}; {self.todo}" if self.todo else self.reason


@dataclass(slots=True)
class _Place:
    """One queue's link, and how often opening it failed in a row."""

    index: int
    queue: Coalescer
    failures: int = 0
    skip: int = 0
    refusal: Refusal | None = None
    """Why the latest try to open it failed; None: it did not."""

    def failed(self, refusal: Refusal) -> None:
        """The next tries come later and later."""
        self.refusal = refusal
        self.skip = min(2**self.failures, SLOWEST)
        self.failures = min(self.failures + 1, SLOWEST)

    def healed(self) -> None:
        """It is open."""
        self.refusal, self.failures, self.skip = None, 0, 0


class Standby:
    """The backlog links of one pairing; `queues` is what senders park through, by index.

    Args:
        client: the secondary namespace's.
        paths: the backlog queues' paths by index, which may have gaps.
        gate: what links open through.
        assumed: the largest message the queues take, in bytes, while no link has said it.
    """

    def __init__(
        self,
        steering: PairingRuntime,
        client: ServiceBusClient,
        paths: Mapping[int, str],
        gate: OpenLimiter,
        *,
        assumed: int = STANDARD_LIMIT,
    ) -> None:
        self._steering = steering
        links = {
            index: SenderLink(client, path, steering.tasks, gate, assumed=assumed) for index, path in paths.items()
        }
        self.queues = {index: Coalescer(link, steering.tasks, self._say) for index, link in links.items()}
        self.tried = asyncio.Event()
        """Set once each link was opened, or could not be."""
        self._proven = asyncio.Event()
        """Set once one link was opened, or none could be."""
        self._places = [_Place(index, queue) for index, queue in self.queues.items()]

    async def run(self) -> None:
        """Keep the links open, until cancelled."""
        while True:
            await asyncio.gather(*(self._ready(place) for place in self._places))
            self.tried.set()
            self._proven.set()
            await asyncio.sleep(LOOK)

    async def refusals(self, within: float) -> tuple[Refusal, ...]:
        """Wait until one link is open, or none could be opened, at most `within` seconds.

        Returns: why each link is refused, if each is, and time alone mends none; otherwise nothing.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._proven.wait()
                if self._all_refused() and all(place.refusal and place.refusal.may_be_new for place in self._places):
                    await asyncio.sleep(SECOND_TRY)
                    await asyncio.gather(*(self._try(place) for place in self._places))
        return tuple(place.refusal for place in self._places if place.refusal) if self._all_refused() else ()

    def _all_refused(self) -> bool:
        return all(place.refusal is not None and place.refusal.todo for place in self._places)

    @property
    def alarms(self) -> tuple[str, ...]:
        """The links that are not open, by their reason; a sentence each."""
        by_refusal: dict[Refusal, list[int]] = {}
        for place in self._places:
            if place.refusal is not None:
                by_refusal.setdefault(place.refusal, []).append(place.index)
        return tuple(
            f"no link to backlog queue {format_indices(indices)}: {refusal}" for refusal, indices in by_refusal.items()
        )

    def limit(self) -> int:
        """The largest message that every backlog queue takes, in bytes."""
        return min(queue.link.limit() for queue in self.queues.values())

    async def renew(self, index: int, timeout: float) -> None:
        """Attach anew to a queue and stand ready with that. Raises what the SDK raises, or TimeoutError."""
        await self.queues[index].link.renew(timeout)
        next(place for place in self._places if place.index == index).healed()

    def cut(self) -> None:
        """What is in hand ends now, and raises."""
        for queue in self.queues.values():
            queue.link.cut()

    async def close(self) -> None:
        """Detach all of them."""
        await asyncio.gather(*(queue.link.close() for queue in self.queues.values()))

    async def _ready(self, place: _Place) -> None:
        link = place.queue.link
        if link.is_open and link.idle_for < RENEW_AFTER:
            place.healed()
        elif place.skip > 0:
            place.skip -= 1
        else:
            await self._try(place)

    async def _try(self, place: _Place) -> None:
        link = place.queue.link
        try:
            await link.renew(self._steering.policy.send_timeout, retry=False)
        except Exception as error:  # noqa: BLE001 - not ready is a warning, whatever was raised
            refusal = Refusal.of(error, self._steering.judge(error))
            if not place.failures and self._steering.machine.rotation.holds(place.index):  # else it is said already
                self._warn(link, refusal)
            place.failed(refusal)
        else:
            place.healed()
            self._proven.set()

    def _warn(self, link: SenderLink, refusal: Refusal) -> None:
        text = f"the link to {link.path} is not open: {refusal}"
        self._steering.announce(Warned(at=self._steering.clock(), about="secondary", text=text))

    def _say(self, text: str) -> None:
        self._steering.announce(Warned(at=self._steering.clock(), about="backlog queues", text=text))
