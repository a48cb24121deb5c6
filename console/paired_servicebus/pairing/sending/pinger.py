"""Pings to the primary and probes of pulled backlog queues: the machine's effects.

A ping opens its own link to the entity, with its own connection and token, as a sender would. The link of an accepted
ping is kept, for the next ping or for a sender after the failback. Links open through the limiter, so that thousands of
entities do not ping in one instant. Each entity keeps its interval from its first ping on.

A probe is an attach: a send would leave a message in the backlog queue. Its link then stays open for senders.
"""

from __future__ import annotations

from typing import Final

from paired_servicebus.core.failover.effects import ProbeEntity, ProbeQueue, SendPing
from paired_servicebus.core.model.pairing_events import EntityProbed, PingAccepted, PingFailed, QueueProbed
from paired_servicebus.core.model.verdict import Judgement, Verdict
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.backlog_links import Standby
from paired_servicebus.pairing.sending.link_gates import OpenLimiter
from paired_servicebus.pairing.sending.primary_links import PrimaryLinks
from paired_servicebus.pairing.sending.sdk_messages import ping
from paired_servicebus.pairing.sending.sender_link import SdkSenderLink

MAX_KEPT_LINKS: Final = 100
"""The most links of accepted pings that are kept, at some 700 kB each."""


class Pinger:
    """The effect handler of one pairing.

    Args:
        primaries: the senders' links to the primary.
        standby: the links to the backlog queues.
        gate: limits the links that open concurrently.
    """

    def __init__(self, steering: PairingRuntime, primaries: PrimaryLinks, standby: Standby, gate: OpenLimiter) -> None:
        self._steering = steering
        self._primaries = primaries
        self._standby = standby
        self._gate = gate
        self._kept: dict[str, SdkSenderLink] = {}

    async def ping(self, effect: SendPing) -> None:
        """Ping once, within `ping_timeout`; a throttled ping counts as not accepted."""
        steering, key = self._steering, effect.entity.casefold()
        link = self._kept.pop(key, None) or self._primaries.ping_link(effect.entity)
        async with self._gate.slot(urgent=False):
            began = steering.clock()
            try:
                await self._try(link, steering.policy.ping_timeout)
            except Exception as error:  # noqa: BLE001 - any error means that the ping was not accepted
                link.discard()
                self._failed(effect, began, error)
                return
        now = steering.clock()
        steering.tally(effect.entity).count_ping(now - began)
        steering.refused_credentials.accept("primary", effect.entity)
        self._kept[key] = link
        steering.tell(PingAccepted(at=now, entity=effect.entity, number=effect.number, took=now - began))
        if len(self._kept) > MAX_KEPT_LINKS or not steering.machine.entity(effect.entity, at=now).diverting:
            self._put_away(key)

    async def _try(self, link: SdkSenderLink, timeout: float) -> None:
        if self._steering.policy.ping == "link":
            await link.renew(timeout)
        else:
            await link.send([ping()], timeout)

    def _failed(self, effect: SendPing, began: float, error: Exception) -> None:
        steering = self._steering
        now = steering.clock()
        judgement = steering.judge(error)
        steering.refuse_credential("primary", effect.entity, judgement)
        steering.tally(effect.entity).count_ping(None)
        steering.tell(
            PingFailed(
                at=now,
                entity=effect.entity,
                number=effect.number,
                reason=judgement.reason,
                took=now - began,
                throttled=judgement.verdict is Verdict.THROTTLED,
            )
        )

    def failed_over(self, entity: str) -> None:
        """Discard the senders' links to the primary."""
        self._primaries.failed_over(entity)

    def failed_back(self, entity: str) -> None:
        """Hand the last ping's link to a sender, and open the other senders' links."""
        self._primaries.failed_back(entity, self._kept.pop(entity.casefold(), None))

    async def probe_entity(self, effect: ProbeEntity) -> None:
        """Ping an entity that has no sends, with a send's timeout, for the outcome that a send would have."""
        steering, link = self._steering, self._primaries.ping_link(effect.entity)
        failure: Judgement | None = None
        async with self._gate.slot(urgent=False):
            began = steering.clock()
            try:
                await self._try(link, steering.policy.send_timeout)
            except Exception as error:  # noqa: BLE001 - any error means that the probe was not accepted
                failure = steering.judge(error)
                steering.refuse_credential("primary", effect.entity, failure)
            finally:
                link.discard()
        now = steering.clock()
        steering.tally(effect.entity).count_ping(None if failure is not None else now - began)
        steering.tell(
            EntityProbed(
                at=now,
                entity=effect.entity,
                took=now - began,
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

    def _put_away(self, key: str) -> None:
        link = self._kept.pop(key, None)
        if link is not None:
            link.discard()
