"""The paired client: what an application holds instead of its `ServiceBusClient` (SPEC.md sections 1, 4 and 9).

It answers to the names of the SDK's client, gives no handle to the secondary namespace, and owns every task and link
of the pairing. `pair_namespaces` returns it only once the backlog queues are known.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from azure.servicebus.aio import ServiceBusClient

from console.core.alarms import backlog_alarms
from console.core.engine import Pairing
from console.core.errors import IllegalEventError, PairingClosedError, PairingError, SameNamespaceError
from console.core.events import Event, Forced, Pinned, Released, SyphonPaused, SyphonResumed, Warned
from console.core.namespaces import NamespaceInfo
from console.core.readiness import Evidence
from console.core.snapshot import BilledView, EntityView, QueueView, SyphonView, UnusedView
from console.core.verdict import Judge, judge
from console.core.why import why
from console.pairing import backlog, views
from console.pairing.deadlines import CLOSING, bounded, end_all
from console.pairing.gate import Gate
from console.pairing.inspection import Inspection
from console.pairing.management import Management, management_of
from console.pairing.options import SendAvailabilityPairedNamespaceOptions
from console.pairing.partners import Partners, Side
from console.pairing.peeks import Peeks
from console.pairing.pinger import Pinger
from console.pairing.primaries import Primaries
from console.pairing.receiver import PairedReceiver
from console.pairing.sender import PairedSender
from console.pairing.soundings import Soundings
from console.pairing.standby import Standby
from console.pairing.steering import Steering, Together
from console.pairing.syphon import Syphon
from console.pairing.tasks import Tasks
from console.pairing.unused import Unused

log = logging.getLogger(__name__)


async def pair_namespaces(
    primary_client: ServiceBusClient,
    options: SendAvailabilityPairedNamespaceOptions,
    *,
    on_event: Callable[[Event], object] | None = None,
    judge: Judge = judge,
) -> PairedServiceBusClient:
    """Pair the primary with the secondary namespace; nothing can be sent before this has returned.

    Args:
        primary_client: the namespace the application talks to.
        options: the secondary namespace's clients, and how to behave.
        on_event: told every journalled event, in order, at once; must not block.
        judge: the verdict on failures, replaceable (SPEC.md section 5).

    Raises:
        ConfigurationError: an option out of range.
        SameNamespaceError: both clients belong to one namespace.
        NamespaceUnreachableError, BacklogQueueError: as SPEC.md section 4.4 says.
    """
    policy = options.policy()
    primary, secondary = _host(primary_client), _host(options.secondary_client)
    if primary.casefold() == secondary.casefold():
        raise SameNamespaceError(
            f"{primary} would be paired with itself: the secondary has to be another namespace, best in another region"
        )
    name = options.primary_name or first_label(primary)
    admin = management_of(options.secondary_admin)
    found = await backlog.ensure(admin, name, policy.backlog_queue_count)
    tasks = Tasks()
    await tasks.open()
    steering = Steering(Pairing(policy, queues=len(found.paths)), tasks, judge, on_event)
    told = await backlog.told(admin)
    other = told if told.name else replace(told, name=first_label(secondary))
    paired = PairedServiceBusClient(primary_client, options, steering, admin, found, primary=name, secondary=other)
    for text in found.warnings:
        steering.announce(Warned(at=steering.clock(), about="backlog queues", text=text))
    return paired


class PairedServiceBusClient:
    """A primary namespace with a secondary one behind it. Made by `pair_namespaces`; close it, or use it as a context
    manager; that closes both namespaces' clients too."""

    def __init__(
        self,
        primary_client: ServiceBusClient,
        options: SendAvailabilityPairedNamespaceOptions,
        steering: Steering,
        admin: Management,
        found: backlog.Found,
        *,
        primary: str,
        secondary: NamespaceInfo,
    ) -> None:
        self.primary_name = primary
        self.secondary_name = secondary.name
        self.secondary_info = secondary
        self.fully_qualified_namespace: str = primary_client.fully_qualified_namespace
        self._primary = primary_client
        self._options = options
        self._admin = admin
        self._steering = steering
        self._found = found
        self._queues = queues = found.paths
        self._gate = Gate()
        self._primaries = Primaries(steering, primary_client, self._gate)
        self._standby = Standby(steering, options.secondary_client, queues, self._gate, assumed=secondary.message_limit)
        self._syphon: Syphon | None = None
        self._soundings = Soundings(steering, admin, queues)
        self._peeks = Peeks(steering, options.secondary_client, queues, self._soundings)
        self._inspection = Inspection(
            steering, primary_client, options.secondary_client, admin, queues, self._soundings
        )
        self._unused = Unused(steering, admin, options.secondary_client, queues)
        self._syphons_elsewhere: tuple[str, ...] = ()
        self._partners = Partners(
            Side(primary, primary_client, queues[0]),
            Side(secondary.name, options.secondary_client, queues[0]),
            steering.tasks,
            grace=steering.policy.close_grace,
            over=self._faulted,
        )
        self._watch = asyncio.create_task(self._partners.run(), name="the watch over both clients")
        self._closing: asyncio.Task[None] | None = None
        self._afterwards: list[Callable[[], Awaitable[None]]] = []
        steering.hands = Pinger(steering, self._primaries, self._standby, self._gate)
        self._start()

    def _start(self) -> None:
        steering, tasks = self._steering, self._steering.tasks
        tasks.start(self._count(), name="the count of sends")
        tasks.start(self._soundings.run(), name="the depth of the backlog")
        tasks.start(self._peeks.run(), name="the peeks into the backlog")
        tasks.start(self._standby.run(), name="the links to the backlog queues")
        tasks.start(self._unused.run(), name="the list of unused backlog queues")
        if steering.policy.enable_syphon:
            self._syphon = Syphon(steering, self._primary, self._options.secondary_client, self._queues)
            self._syphon.start()

    # -- what applications use --------------------------------------------------------------------------------

    @property
    def backlog_queue_count(self) -> int:
        """The number of backlog queues really found or created."""
        return len(self._queues)

    def get_queue_sender(self, queue_name: str) -> PairedSender:
        """A sender to a queue of the primary namespace, under the pairing. Raises PairingClosedError."""
        return self._sender(queue_name)

    def get_topic_sender(self, topic_name: str) -> PairedSender:
        """A sender to a topic of the primary namespace, under the pairing. Raises PairingClosedError."""
        return self._sender(topic_name)

    def get_queue_receiver(self, queue_name: str, **options: Any) -> PairedReceiver:
        """A receiver on the primary namespace; the SDK's options. Raises PairingClosedError."""
        self._steering.refuse_when_ended()
        return PairedReceiver(self._primary.get_queue_receiver(queue_name, **options))

    def get_subscription_receiver(self, topic_name: str, subscription_name: str, **options: Any) -> PairedReceiver:
        """A receiver on the primary namespace; the SDK's options. Raises PairingClosedError."""
        self._steering.refuse_when_ended()
        return PairedReceiver(self._primary.get_subscription_receiver(topic_name, subscription_name, **options))

    async def stands_ready(self) -> None:
        """Wait until the link to each backlog queue has been opened, or could not be; sends need not wait for it."""
        await self._standby.tried.wait()

    def watch(self, path: str, *, probe: bool = False) -> None:
        """List an entity that nothing may have been sent to yet. `probe`: while nothing is sent, ask for it each
        `ping_primary_interval` by a ping (or an attach, as `ping` says), which is billed; its outcome counts as a
        send's."""
        self._steering.machine.entity(path, at=self._steering.clock())
        if probe:
            self._steering.probe(path)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the pairing: sends in hand have `close_grace` to finish, then raise; later ones raise at once; pumps
        and pings end, links detach, both namespaces' clients are closed."""
        await self._end(PairingClosedError("the pairing was closed: nothing can be sent through it any more"))

    def when_closed(self, act: Callable[[], Awaitable[None]]) -> None:
        """Have `act` done once the pairing has ended, however that came."""
        self._afterwards.append(act)

    # -- the end ----------------------------------------------------------------------------------------------

    def _faulted(self, reason: PairingError) -> None:
        """One side can be used no more: the other goes with it."""
        log.error("%s", reason)
        steering = self._steering
        steering.announce(Warned(at=steering.clock(), about="pairing", text=str(reason)))
        self._begin_to_end(reason)

    async def _end(self, reason: PairingError) -> None:
        await asyncio.shield(self._begin_to_end(reason))

    def _begin_to_end(self, reason: PairingError) -> asyncio.Task[None]:
        if self._closing is None:
            self._steering.end(reason)
            self._closing = asyncio.create_task(self._close(), name="the end of the pairing")
        return self._closing

    async def _close(self) -> None:
        steering = self._steering
        await steering.empty_hands(steering.policy.close_grace)
        self._primaries.cut()
        self._standby.cut()
        await end_all([self._watch], CLOSING)
        await steering.tasks.close()
        if self._syphon is not None:
            await self._syphon.close()
        await asyncio.gather(self._primaries.close(), self._standby.close())
        for client in (self._primary, self._options.secondary_client, self._admin):
            try:
                await bounded(client.close(), CLOSING, "closing a client")
            except Exception as error:  # noqa: BLE001 - the SDK fails to close what is broken; the others are closed too
                text = f"a client did not close in order: {type(error).__name__}"
                steering.announce(Warned(at=steering.clock(), about="close", text=text))
        for act in self._afterwards:
            await act()

    # -- what operators use -----------------------------------------------------------------------------------

    def force(self, path: str, *, by: str, why: str = "") -> str:
        """Fail an entity over by hand: to the backlog until it is released (SPEC.md section 6).

        Args:
            path: the entity's, compared without case; it has been sent to or watched.
            by, why: for the audit.

        Returns: a sentence that says how it stands now.

        Raises:
            IllegalEventError: it is forced already, or nobody knows it; nothing has changed.
        """
        self._steering.tell(Forced(at=self._steering.clock(), entity=path, by=by, why=why))
        return self._stands(path)

    def pin(self, path: str, *, by: str, why: str = "") -> str:
        """Keep an entity on the primary, whatever fails. Arguments, returns and raises as `force`."""
        self._steering.tell(Pinned(at=self._steering.clock(), entity=path, by=by, why=why))
        return self._stands(path)

    def release(self, path: str, *, by: str, why: str = "") -> str:
        """Give an entity back to the rules: to the primary if its last ping was accepted or it failed over by itself,
        else failed over with automatic failback. Arguments, returns and raises as `force`."""
        self._steering.tell(Released(at=self._steering.clock(), entity=path, by=by, why=why))
        return self._stands(path)

    def pause_syphon(self, *, by: str, why: str = "", queue: int | None = None, destination: str = "") -> str:
        """Stop moving messages: out of one backlog queue (by index), to one destination (by path), or at all; parked
        ones stay. Returns a sentence. Raises IllegalEventError: it is paused already, or there is no such queue."""
        steering = self._steering
        steering.tell(SyphonPaused(at=steering.clock(), by=by, why=why, queue=queue, destination=destination))
        if queue is not None:
            return f"backlog queue {queue} is paused: what is parked there stays"
        if destination:
            return f"the syphon to {destination} is paused: what is parked for it stays"
        return "the syphon is paused: parked messages stay"

    def resume_syphon(self, *, by: str, why: str = "", queue: int | None = None, destination: str = "") -> str:
        """Move messages again; arguments as `pause_syphon`. Returns a sentence. Raises IllegalEventError: it is not
        paused."""
        steering = self._steering
        steering.tell(SyphonResumed(at=steering.clock(), by=by, why=why, queue=queue, destination=destination))
        if queue is not None:
            return f"the syphon moves messages out of backlog queue {queue} again"
        return f"the syphon moves messages{f' to {destination}' if destination else ''} again"

    async def redrive(self, queue: int) -> str:
        """Put a backlog queue's dead letters back to work; a sentence that says what came of it. Raises as
        `Syphon.redrive`, and IllegalEventError where there is no syphon."""
        return await self._with_syphon().redrive(queue)

    async def move_stranded(self, path: str) -> str:
        """Move what lies in an unused backlog queue to where it belongs; a sentence. Raises IllegalEventError."""
        try:
            return await self._with_syphon().move_stranded(path)
        finally:
            await self._unused.look()

    async def clean_up(self, path: str, *, used: int = 0) -> str:
        """Delete an unused backlog queue, if it is proven to be empty (SPEC.md section 4.3); a sentence. `used`: the
        most backlog queues that another known engine uses. Raises CleanUpError with the reason why it stays."""
        return await self._unused.clean_up(path, used=used)

    def unused_view(self) -> UnusedView:
        """The backlog queues that no known engine uses."""
        return self._unused.view

    # -- how it stands ----------------------------------------------------------------------------------------

    def entity_views(self) -> tuple[EntityView, ...]:
        """Every entity seen or watched."""
        return views.entities(self._steering)

    def queue_views(self) -> tuple[QueueView, ...]:
        """Every backlog queue in use."""
        return views.queues(self._steering, self._found, self._soundings, self._peeks, self._syphon)

    def syphon_view(self) -> SyphonView:
        """The syphon of this engine."""
        return replace(views.syphon(self._syphon, self._soundings.found), elsewhere=self._syphons_elsewhere)

    def billed(self) -> BilledView:
        """Operations and bytes since the start, by cause."""
        return views.billed(self._steering.meter)

    def alarms(self) -> tuple[str, ...]:
        """What a person should look at (SPEC.md section 4.6)."""
        known = self._syphon is not None or bool(self._syphons_elsewhere)
        found = views.alarms(self._soundings, self._steering.ended, syphon=known)
        return (*found, *backlog_alarms(self.queue_views(), self.syphon_view()))

    async def inspect(self) -> Evidence:
        """What a failover would rest on, looked at now: links are opened to backlog queues and closed, nothing is
        sent. `console.core.readiness.judge` says what it means."""
        names = (self.primary_name, self.secondary_name)
        return await self._inspection.look(names, self.syphon_view().status, self._standby.limit())

    def know_syphons(self, engines: tuple[str, ...]) -> None:
        """Take note of the other engines that run a syphon for the same namespaces: parked messages are theirs, too."""
        self._syphons_elsewhere = engines

    def write_together(self, how: Together) -> None:
        """From now on events that come at the same time are announced inside of `how()`, to be written as one."""
        self._steering.together = how

    # -- inside -----------------------------------------------------------------------------------------------

    def _sender(self, path: str) -> PairedSender:
        self._steering.refuse_when_ended()
        self.watch(path)
        self._partners.primary.use(path)
        return PairedSender(self._steering, self._primaries, path, self._standby.queues)

    def _with_syphon(self) -> Syphon:
        if self._syphon is None:
            raise IllegalEventError("this engine runs no syphon: order it from one that does")
        return self._syphon

    def _stands(self, path: str) -> str:
        entity = self._steering.machine.entity(path, at=self._steering.clock())
        return f"{entity.path} is {entity.state}: {why(entity)}"

    async def _count(self) -> None:
        while True:
            await self._steering.count_once()
            if self._syphon is not None:
                self._syphon.count()


def _host(client: ServiceBusClient) -> str:
    return client.fully_qualified_namespace.rstrip("/")


def first_label(host: str) -> str:
    """`contoso` of contoso.servicebus.windows.net; an address stays whole, since its first number names nothing."""
    bare = host.rsplit(":", 1)[0] if host.count(":") == 1 else host
    try:
        ipaddress.ip_address(bare.strip("[]"))
    except ValueError:
        return bare.split(".", 1)[0]
    return bare
