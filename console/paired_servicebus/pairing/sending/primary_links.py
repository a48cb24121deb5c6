"""The links to the primary namespace by entity: of its senders, of its pings, and their return after a failback.

Opening a link takes half a second, which no send should wait for after a failback. The accepted ping's link goes to one
sender; the others open concurrently. A sender uses an open link of the same entity until its own is open.

A ping opens its own link to the entity, with its own connection and token, as a sender would. The link of an accepted
ping is kept, for the next ping or for a sender after the failback. Links open through the limiter, so that thousands of
entities do not ping in one instant. Each entity keeps its interval from its first ping on.

The machine's effects also probe pulled backlog queues. A probe is an attach: a send would leave a message in the queue.
Its link then stays open for senders.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final
from weakref import WeakSet

from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.errors import WireError
from paired_servicebus.core.failover.effects import ProbeEntity, ProbeQueue, SendPing
from paired_servicebus.core.failover.send_router import RETRY_PAUSES
from paired_servicebus.core.model.pairing_events import EntityProbed, PingAccepted, PingFailed, QueueProbed
from paired_servicebus.core.model.verdict import Judgement, Verdict
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.amqp_link import AmqpLink, connection_for
from paired_servicebus.pairing.sending.backlog_links import Standby
from paired_servicebus.pairing.sending.sdk_messages import ping
from paired_servicebus.pairing.sending.sender_link import OpenLimiter, SdkSenderLink

REOPEN_DELAY_SECONDS: Final = 0.1
"""Seconds that sends waiting for the failback have before other links open: opening takes the CPU that they need."""

MAX_KEPT_LINKS: Final = 100
"""The most links of accepted pings that are kept, at some 700 kB each."""

log = logging.getLogger(__name__)


class PrimaryLinks:
    """Every sender's link to the primary, and the handler of the machine's effects on links.

    Args:
        client: the primary namespace's.
        gate: limits the links that open concurrently.
        standby: the links to the backlog queues.
    """

    def __init__(self, steering: PairingRuntime, client: ServiceBusClient, gate: OpenLimiter, standby: Standby) -> None:
        self._steering = steering
        self.fully_qualified_namespace: str = client.fully_qualified_namespace
        self.retry_pauses = () if sdk_internals.retry_pauses(client) else RETRY_PAUSES
        """Seconds before an attempt over a lost link is made again; a client with retries of its own gets none."""
        self._client = client
        self._gate = gate
        self._links: dict[str, WeakSet[SdkSenderLink]] = {}
        self._encoded: dict[str, AmqpLink] = {}
        self._wire: ReconnectingConnection | None = None
        self._standby = standby
        self._kept: dict[str, SdkSenderLink] = {}
        """The links of accepted pings, by entity."""

    def link(self, path: str, **options: Any) -> SdkSenderLink:
        """Return a new link for one sender, with the SDK's options; not open yet."""
        link = SdkSenderLink(self._client, path, self._steering.tasks, self._gate, options=options)
        self._links.setdefault(path.casefold(), WeakSet()).add(link)
        return link

    @property
    def wire(self) -> ReconnectingConnection:
        """The connection of our own AMQP that all encoded links share. Raises WireUnavailableError."""
        if self._wire is None:
            endpoint = Endpoint.of(self._client)
            seconds = self._steering.policy.send_timeout
            self._wire = connection_for(endpoint, self._steering.draw, seconds=seconds, name="gateway")
        return self._wire

    def encoded_link(self, path: str) -> AmqpLink:
        """Return the entity's link for encoded messages, which its senders share. Raises WireUnavailableError."""
        found = self._encoded.get(path.casefold())
        if found is None:
            found = self._encoded[path.casefold()] = AmqpLink(self.wire, path)
        return found

    async def find_entity(self, path: str, timeout: float) -> tuple[int, int]:
        """Attach to an entity; return the bytes of its largest message and batch. It moves no state. Raises WireError.

        A path that the namespace refuses is forgotten: it is a client's, and may be anything.
        """
        is_new = path.casefold() not in self._encoded
        link = self.encoded_link(path)
        try:
            await link.open(timeout)
        except WireError:
            if is_new:
                self._encoded.pop(path.casefold(), None)
            raise
        found = link.limits
        assert found is not None, "it is attached"
        return found

    def nearest(self, own: SdkSenderLink) -> SdkSenderLink:
        """Return the link that a sender uses now: its own, or an open one of its entity while its own reopens."""
        if not own.reopening or own.is_open:
            return own
        return next((link for link in self._of(own.path) if link.is_open), own)

    def failed_over(self, path: str) -> None:
        """Discard an entity's links: they are unused during the failover and may be broken after it."""
        for link in self._of(path):
            if not link.is_busy:
                link.discard()
        encoded = self._encoded.get(path.casefold())
        if encoded is not None:
            encoded.retire()

    def failed_back(self, path: str) -> None:
        """Hand the accepted ping's link to one sender, and reopen the others' links."""
        proven = self._kept.pop(path.casefold(), None)
        closed = [link for link in self._of(path) if not link.is_open]
        if proven is not None:
            closed = [link for link in closed if not link.adopt(proven)]
            proven.discard()
        for link in closed:
            if not link.reopening:
                link.reopening = True
                self._steering.tasks.start(self._reopen(link), name=f"open the link to {path} again")

    async def ping(self, effect: SendPing) -> None:
        """Ping once, within `ping_timeout`; a throttled ping counts as not accepted."""
        steering, path, key = self._steering, effect.entity, effect.entity.casefold()
        link = self._kept.pop(key, None) or self._ping_link(path)
        took, failure = await self._try(link, path, steering.policy.ping_timeout)
        now = steering.clock()
        if failure is not None:
            steering.tell(
                PingFailed(
                    at=now,
                    entity=path,
                    number=effect.number,
                    reason=failure.reason,
                    took=took,
                    throttled=failure.verdict is Verdict.THROTTLED,
                )
            )
            return
        steering.refused_credentials.accept("primary", path)
        self._kept[key] = link
        steering.tell(PingAccepted(at=now, entity=path, number=effect.number, took=took))
        if len(self._kept) > MAX_KEPT_LINKS or not steering.machine.entity(path, at=now).diverting:
            kept = self._kept.pop(key, None)
            if kept is not None:
                kept.discard()

    async def probe_entity(self, effect: ProbeEntity) -> None:
        """Ping an entity that has no sends, with a send's timeout, for the outcome that a send would have."""
        steering, link = self._steering, self._ping_link(effect.entity)
        try:
            took, failure = await self._try(link, effect.entity, steering.policy.send_timeout)
        finally:
            link.discard()
        steering.tell(
            EntityProbed(
                at=steering.clock(),
                entity=effect.entity,
                took=took,
                failure=failure.kind if failure is not None else None,
                reason=failure.reason if failure is not None else "",
            )
        )

    async def probe(self, effect: ProbeQueue) -> None:
        """Attach to a pulled backlog queue, within `ping_timeout`."""
        steering = self._steering
        try:
            await self._standby.renew(effect.queue, steering.policy.ping_timeout)
        except Exception as error:  # noqa: BLE001 - any error keeps the queue pulled
            reason = steering.judge(error).reason
            steering.tell(QueueProbed(at=steering.clock(), queue=effect.queue, accepted=False, reason=reason))
        else:
            steering.tell(QueueProbed(at=steering.clock(), queue=effect.queue, accepted=True))

    def cut(self) -> None:
        """End the sends under way; they raise."""
        for link in self._all():
            link.cut()
        for encoded in self._encoded.values():
            encoded.cut()

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self._all()))
        if self._wire is not None:
            await self._wire.close()

    async def _reopen(self, link: SdkSenderLink) -> None:
        try:
            await asyncio.sleep(REOPEN_DELAY_SECONDS)
            await link.open(self._steering.policy.send_timeout, urgent=False)
        except Exception as error:  # noqa: BLE001 - the next send over it reports and counts the failure
            log.debug("the link to %s is not open again: %s", link.path, type(error).__name__)
        finally:
            link.reopening = False

    def _ping_link(self, path: str) -> SdkSenderLink:
        """Return a link for pings, outside of the limiter, which `ping` itself passes."""
        return SdkSenderLink(self._client, path, self._steering.tasks)

    async def _try(self, link: SdkSenderLink, path: str, timeout: float) -> tuple[float, Judgement | None]:
        """Ping over a link, through the limiter; return the seconds that it took, and why it was not accepted."""
        steering, failure = self._steering, None
        async with self._gate.slot(urgent=False):
            began = steering.clock()
            try:
                if steering.policy.ping == "link":
                    await link.renew(timeout)
                else:
                    await link.send([ping()], timeout)
            except Exception as error:  # noqa: BLE001 - any error means that the ping was not accepted
                link.discard()
                failure = steering.judge(error)
                steering.refuse_credential("primary", path, failure)
        took = steering.clock() - began
        steering.tally(path).count_ping(None if failure is not None else took)
        return took, failure

    def _of(self, path: str) -> list[SdkSenderLink]:
        return list(self._links.get(path.casefold(), ()))

    def _all(self) -> list[SdkSenderLink]:
        return [link for links in self._links.values() for link in links]
