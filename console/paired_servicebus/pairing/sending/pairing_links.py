"""The links of a pairing: to the backlog queues, and to the primary's entities for senders and pings.

To the backlog there is one link for each queue, shared by all senders and open before it is needed. All of them use one
connection of our own AMQP (amqp_link.py), since a namespace's connections are limited. Where our AMQP cannot be used,
or `pump = "sdk"`, each is a link of the SDK with its own connection. A namespace cuts a link after ten idle minutes,
and backlog links are idle while all is well. Each is therefore renewed in time. A broken link is reopened with growing
pauses; it is an alarm until then.

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
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from weakref import WeakSet

from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.errors import WireError, WireUnavailableError
from paired_servicebus.core.failover.pairing_machine import ProbeEntity, ProbeQueue, SendPing
from paired_servicebus.core.failover.send_router import RETRY_PAUSES
from paired_servicebus.core.model.pairing_events import EntityProbed, PingAccepted, PingFailed, QueueProbed
from paired_servicebus.core.model.snapshot import Trouble, TroubleKind
from paired_servicebus.core.model.verdict import CREDENTIALS, FailureKind, Judgement, Verdict
from paired_servicebus.core.text.number_format import format_indices
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.pairing.amqp_client.endpoint import is_unknown_host, is_untrusted
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.amqp_link import AmqpLink, BacklogLink, connection_for, unavailable
from paired_servicebus.pairing.sending.sdk_messages import STANDARD_LIMIT, ping
from paired_servicebus.pairing.sending.sender_link import Coalescer, OpenLimiter, SdkSenderLink

RENEW_AFTER_SECONDS: Final = 8 * 60.0
"""Idle seconds after which a link is renewed, before the namespace cuts it at ten minutes."""
CHECK_SECONDS: Final = 5.0
"""Seconds between two checks of the links."""
MAX_SKIPPED_CHECKS: Final = 12
"""The longest pause between two tries to open a link, in checks."""
SECOND_TRY_SECONDS: Final = 1.0
"""Seconds until refused links are tried again, where the refusal may come from a new queue or host name."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a link could not be opened. `todo`: the remedy; empty where only time helps."""

    reason: str
    todo: str = ""
    may_be_new: bool = False
    """Whether the queue or host name may be too new to be found."""

    @classmethod
    def of(cls, error: Exception, judgement: Judgement) -> Refusal:
        """Return the refusal that an error means for the link."""
        if is_untrusted(error):
            todo = "name its authority: ssl_context=tls_context(ca_file) of the client, or ca_file in pairing.toml"
            return cls("the certificate is not trusted", todo)
        if is_unknown_host(error):
            return cls("the host is not known", "check the host of the secondary client", may_be_new=True)
        if judgement.kind in CREDENTIALS:
            return cls(judgement.reason, "the credential needs Send on the secondary namespace: check its key or role")
        if judgement.kind is FailureKind.NOT_FOUND:
            todo = "secondary_client and secondary_admin have to be of one namespace"
            return cls(judgement.reason, todo, may_be_new=True)
        return cls(judgement.reason)

    def __str__(self) -> str:
        return f"{self.reason}; {self.todo}" if self.todo else self.reason


@dataclass(slots=True)
class _Place:
    """One queue's link, and its consecutive failures to open."""

    index: int
    queue: Coalescer
    failures: int = 0
    skip: int = 0
    refusal: Refusal | None = None
    """Why the latest try to open it failed; None: it succeeded."""

    def record_failure(self, refusal: Refusal) -> None:
        """Lengthen the pause before the next try."""
        self.refusal = refusal
        self.skip = min(2**self.failures, MAX_SKIPPED_CHECKS)
        self.failures = min(self.failures + 1, MAX_SKIPPED_CHECKS)

    def clear_failures(self) -> None:
        self.refusal, self.failures, self.skip = None, 0, 0


class Standby:
    """The backlog links of one pairing; `queues` has them by index, for senders.

    Args:
        client: the secondary namespace's.
        paths: the backlog queues' paths by index, which may have gaps.
        gate: limits the links that open concurrently.
        assumed: bytes of the largest message that the queues accept, until a link reports it.
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
        self._client = client
        self._gate = gate
        self._assumed = assumed
        self._wire: ReconnectingConnection | None = None
        """The connection of all links; None: each is a link of the SDK."""
        if steering.policy.pump != "sdk":
            self._use_wire()
        self.queues = {
            index: Coalescer(self._link(path), steering.tasks, partial(steering.warn, "backlog queues"))
            for index, path in paths.items()
        }
        self.tried = asyncio.Event()
        """Set after the first try to open each link."""
        self._proven = asyncio.Event()
        """Set after one link was opened, or the first try to open each failed."""
        self._places = [_Place(index, queue) for index, queue in self.queues.items()]

    async def run(self) -> None:
        """Keep the links open, until cancelled."""
        while True:
            await asyncio.gather(*(self._maintain(place) for place in self._places))
            self.tried.set()
            self._proven.set()
            await asyncio.sleep(CHECK_SECONDS)

    async def refusals(self, within: float) -> tuple[Refusal, ...]:
        """Wait until one link is open, or none could be opened, at most `within` seconds.

        Returns: each link's refusal, if all are refused for reasons that time does not mend; otherwise nothing.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._proven.wait()
                if self._all_refused() and all(place.refusal and place.refusal.may_be_new for place in self._places):
                    await asyncio.sleep(SECOND_TRY_SECONDS)
                    await asyncio.gather(*(self._try(place) for place in self._places))
        return tuple(place.refusal for place in self._places if place.refusal) if self._all_refused() else ()

    def _all_refused(self) -> bool:
        return all(place.refusal is not None and place.refusal.todo for place in self._places)

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        """The links that are not open, grouped by reason."""
        by_refusal: dict[Refusal, list[int]] = {}
        for place in self._places:
            if place.refusal is not None:
                by_refusal.setdefault(place.refusal, []).append(place.index)
        return tuple(
            Trouble(kind=TroubleKind.BACKLOG_LINK, what=format_indices(indices), reason=str(refusal))
            for refusal, indices in by_refusal.items()
        )

    def limit(self) -> int:
        """Return the bytes of the largest message that every backlog queue accepts."""
        return min(queue.link.limit() for queue in self.queues.values())

    async def renew(self, index: int, timeout: float) -> None:
        """Replace the link to a queue by a new one. Raises the SDK's errors, or TimeoutError."""
        try:
            await self.queues[index].link.renew(timeout)
        except Exception as error:
            if not self._leave_wire(error):
                raise
            await self.queues[index].link.renew(timeout)
        next(place for place in self._places if place.index == index).clear_failures()

    def cut(self) -> None:
        """End the sends under way; they raise."""
        for queue in self.queues.values():
            queue.link.cut()

    async def close(self) -> None:
        await asyncio.gather(*(queue.link.close() for queue in self.queues.values()))
        if self._wire is not None:
            await self._wire.close()

    def _use_wire(self) -> None:
        seconds = self._steering.policy.send_timeout
        try:
            self._wire = connection_for(self._client, seconds=seconds, name="standby")
        except WireUnavailableError as error:
            log.info("each link to a backlog queue opens its own connection: %s", error)

    def _link(self, path: str) -> SdkSenderLink | BacklogLink:
        if self._wire is None:
            tasks = self._steering.tasks
            return SdkSenderLink(self._client, path, tasks, self._gate, assumed=self._assumed, parks=True)
        return BacklogLink(self._wire, path, pauses=sdk_internals.retry_pauses(self._client), assumed=self._assumed)

    def _leave_wire(self, error: Exception) -> bool:
        """Replace all links by the SDK's if our own AMQP is unusable by `error`; return whether it is."""
        reason = unavailable(error)
        if reason is None:
            return False
        if self._wire is not None:
            wire, self._wire = self._wire, None
            self._steering.warn("secondary", f"each link to a backlog queue opens its own connection: {reason}")
            for queue in self.queues.values():
                queue.link = self._link(queue.link.path)
            self._steering.tasks.start(wire.close(), name="close the shared connection")
        return True

    async def _maintain(self, place: _Place) -> None:
        link = place.queue.link
        if link.is_open and link.idle_for < RENEW_AFTER_SECONDS:
            place.clear_failures()
        elif place.skip > 0:
            place.skip -= 1
        else:
            await self._try(place)

    async def _try(self, place: _Place) -> None:
        link = place.queue.link
        try:
            await link.renew(self._steering.policy.send_timeout)
        except Exception as error:  # noqa: BLE001 - any error is a warning: the link is not ready
            if self._leave_wire(error):
                await self._try(place)
                return
            refusal = Refusal.of(error, self._steering.judge(error))
            is_new = not place.failures and self._steering.machine.rotation.holds(place.index)
            if is_new:  # else it was reported already
                self._steering.warn("secondary", f"the link to {link.path} is not open: {refusal}")
            place.record_failure(refusal)
        else:
            place.clear_failures()
            self._proven.set()
            self._steering.queue_answered(place.index)


REOPEN_DELAY_SECONDS: Final = 0.1
"""Seconds that sends waiting for the failback have before other links open: opening takes the CPU that they need."""

ENTITIES_OF_A_CONNECTION: Final = 800
"""Entities with encoded links on one connection: a sender and two links for requests each, of the service's 2,500."""
MAX_KEPT_LINKS: Final = 100
"""The most links of accepted pings that are kept, at some 700 kB each."""


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
        self._wires: list[ReconnectingConnection] = []
        """The connections of our own AMQP that encoded links share."""
        self.standby = standby
        self._kept: dict[str, SdkSenderLink] = {}
        """The links of accepted pings, by entity."""

    def link(self, path: str, **options: Any) -> SdkSenderLink:
        """Return a new link for one sender, with the SDK's options; not open yet."""
        link = SdkSenderLink(self._client, path, self._steering.tasks, self._gate, options=options)
        self._links.setdefault(path.casefold(), WeakSet()).add(link)
        return link

    def encoded_link(self, path: str) -> AmqpLink:
        """Return the entity's link for encoded messages, which its senders share. Raises WireUnavailableError."""
        found = self._encoded.get(path.casefold())
        if found is None:
            index = len(self._encoded) // ENTITIES_OF_A_CONNECTION
            if index == len(self._wires):
                seconds = self._steering.policy.send_timeout
                self._wires.append(connection_for(self._client, seconds=seconds, name="gateway"))
            found = self._encoded[path.casefold()] = AmqpLink(self._wires[index], path)
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

    def unanswered(self, path: str) -> float:
        """Return the seconds of an entity's oldest call at the primary that has no answer yet; 0: there is none."""
        encoded = self._encoded.get(path.casefold())
        return max((one.unanswered for one in (*self._of(path), encoded) if one is not None), default=0.0)

    def perform(self, effect: SendPing | ProbeEntity | ProbeQueue) -> Coroutine[Any, Any, None]:
        """Return the work of a ping or a probe."""
        if isinstance(effect, SendPing):
            return self.ping(effect)
        return self.probe_entity(effect) if isinstance(effect, ProbeEntity) else self.probe(effect)

    def turn(self, path: str, diverts: bool) -> None:
        """Update an entity's links after its failover (`diverts`) or failback."""
        if not diverts:
            self._failed_back(path)
            return
        # They are unused during the failover, and may be broken after it.
        for link in self._of(path):
            if not link.is_busy:
                link.discard()
        encoded = self._encoded.get(path.casefold())
        if encoded is not None:
            encoded.retire()

    def _failed_back(self, path: str) -> None:
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
        steering, failure = self._steering, None
        try:
            await self.standby.renew(effect.queue, steering.policy.ping_timeout)
        except Exception as error:  # noqa: BLE001 - any error keeps the queue pulled
            failure = steering.judge(error).reason
        steering.tell(
            QueueProbed(at=steering.clock(), queue=effect.queue, accepted=failure is None, reason=failure or "")
        )

    def cut(self) -> None:
        """End the sends under way; they raise."""
        for link in self._all():
            link.cut()
        for encoded in self._encoded.values():
            encoded.cut()

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self._all()))
        await asyncio.gather(*(wire.close() for wire in self._wires))

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
