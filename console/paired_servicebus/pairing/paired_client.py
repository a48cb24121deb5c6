"""The paired client, which replaces an application's `ServiceBusClient` (SPEC.md sections 1, 4 and 9).

It has the names of the SDK's client, gives no access to the secondary namespace, and owns every task and link of the
pairing. `pair_namespaces` of opening.py makes it, once the backlog queues are known.

When one namespace's client cannot be used any more, the other ends too. A pairing is faulted by a client that its
application closed, or by a crashed task of its own; never by an outage. The SDK has no property for "closed". An idle
sender of each client, never opened, is therefore asked to cancel an empty list. That contacts no namespace, and raises
ValueError after its client was closed.

An operator's orders change states by hand, pause the syphon, and work on backlog queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from azure.core.async_paging import AsyncItemPaged
from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from paired_servicebus.core.backlog import queue_settings
from paired_servicebus.core.backlog.depth_readings import PollReason, QueueUsage
from paired_servicebus.core.errors import (
    ConfigurationError,
    IllegalEventError,
    PairedClientError,
    PairingClosedError,
    PairingError,
)
from paired_servicebus.core.model.namespace_info import NamespaceInfo
from paired_servicebus.core.model.pairing_condition import PairingCondition
from paired_servicebus.core.model.pairing_events import EntityReleased, Forced, Pinned, SyphonPaused, SyphonResumed
from paired_servicebus.core.model.snapshot import (
    EntityView,
    Meter,
    ParkedView,
    QueueView,
    Readiness,
    SyphonView,
    Trouble,
    TroubleKind,
    UnusedView,
)
from paired_servicebus.core.operator import failover_readiness
from paired_servicebus.core.operator.alarms import AlarmChanges, alarms, degrading
from paired_servicebus.core.operator.failover_readiness import Evidence
from paired_servicebus.core.operator.targets import PAUSED_HERE
from paired_servicebus.core.text.entity_paths import entity_path
from paired_servicebus.pairing.amqp_client import Endpoint
from paired_servicebus.pairing.management import backlog_queues
from paired_servicebus.pairing.management.backlog_queues import DegradedStart, QueueRecreator
from paired_servicebus.pairing.management.management_port import Management
from paired_servicebus.pairing.monitoring import snapshot_views
from paired_servicebus.pairing.monitoring.backlog_inspection import (
    BacklogAccess,
    DepthPoller,
    Elsewhere,
    Inspection,
    ParkedFigures,
    PollWatchers,
    UnusedQueues,
)
from paired_servicebus.pairing.monitoring.message_looks import MessageLooks, Peeks
from paired_servicebus.pairing.monitoring.snapshot_views import SyphonReport, UnmovedMessages
from paired_servicebus.pairing.paired_receiver import DeliveryReceipts, PairedReceiver, without_pings
from paired_servicebus.pairing.runtime.deadlines import CLOSING, TaskOwner, bounded, end_all
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime, Together
from paired_servicebus.pairing.sending.encoded_sender import EncodedSender, GivenIds
from paired_servicebus.pairing.sending.paired_sender import PairedSender
from paired_servicebus.pairing.sending.pairing_links import PrimaryLinks
from paired_servicebus.pairing.syphon.syphon import Syphon

ALARM_SECONDS: Final = 5
"""Seconds between two looks for alarms, where no engine makes a snapshot each second."""

if TYPE_CHECKING:
    from prometheus_client.registry import Collector


class OperatorOrders:
    """The part of `PairedServiceBusClient` for operators; each order returns a sentence with its outcome."""

    _steering: PairingRuntime
    _syphon: Syphon | None
    _unused: UnusedQueues
    _carried: set[str]
    _queues: Mapping[int, str]
    _message_looks: MessageLooks
    _entity_looks: MessageLooks

    def force(self, path: str, *, by: str, why: str = "") -> str:
        """Fail an entity over by hand: to the backlog until it is released (SPEC.md section 6).

        Args:
            path: the entity's, compared without case; it has been sent to or watched.
            by, why: for the audit.

        Returns: a sentence with its new state.

        Raises:
            IllegalEventError: it is forced already, or unknown; nothing has changed.
        """
        self._steering.tell(Forced(at=self._steering.clock(), entity=path, by=by, why=why))
        return self._stands(path)

    def pin(self, path: str, *, by: str, why: str = "") -> str:
        """Keep an entity on the primary despite failures. Arguments, returns and raises as `force`."""
        self._steering.tell(Pinned(at=self._steering.clock(), entity=path, by=by, why=why))
        return self._stands(path)

    def release(self, path: str, *, by: str, why: str = "") -> str:
        """End an order by hand.

        The entity returns to the primary if its last ping was accepted or it failed over by itself. Else it stays
        failed over with automatic failback.
        """
        self._steering.tell(EntityReleased(at=self._steering.clock(), entity=path, by=by, why=why))
        return self._stands(path)

    def pause_syphon(self, *, by: str, why: str = "", queue: int | None = None, destination: str = "") -> str:
        """Stop moving messages, of one backlog queue (by index), of one destination (by path), or all.

        Parked messages stay.
        """
        steering = self._steering
        steering.tell(SyphonPaused(at=steering.clock(), by=by, why=why, queue=queue, destination=destination))
        if queue is not None:
            return f"backlog queue {queue} is {PAUSED_HERE}"
        if destination:
            return f"the syphon to {destination} is {PAUSED_HERE}"
        return f"the syphon is {PAUSED_HERE}"

    def resume_syphon(self, *, by: str, why: str = "", queue: int | None = None, destination: str = "") -> str:
        """Move messages again; arguments as `pause_syphon`.

        Returns a sentence. Raises IllegalEventError: it is not paused.
        """
        steering = self._steering
        steering.tell(SyphonResumed(at=steering.clock(), by=by, why=why, queue=queue, destination=destination))
        if queue is not None:
            return f"the syphon moves messages out of backlog queue {queue} again"
        return f"the syphon moves messages{f' to {destination}' if destination else ''} again"

    async def redrive(self, queue: int, numbers: Collection[int] = ()) -> str:
        """Put a backlog queue's dead letters back to work; return a sentence with the outcome.

        numbers: their sequence numbers; default: all that are there. Raises as `Syphon.redrive`, and IllegalEventError
        without a syphon.
        """
        return await self._with_syphon().redrive(queue, numbers)

    async def move_stranded(self, path: str) -> str:
        """Move an unused backlog queue's messages home; return a sentence. Raises IllegalEventError."""
        try:
            return await self._with_syphon().move_stranded(path)
        finally:
            await self._unused.look()

    async def clean_up(self, path: str, *, elsewhere: Elsewhere | None = None) -> str:
        """Delete an unused backlog queue, if it is proven to be empty (SPEC.md section 4.3); return a sentence.

        `elsewhere`: returns the indices in use by other known engines. Raises CleanUpError with the reason why it
        stays.
        """
        return await self._unused.clean_up(path, elsewhere=elsewhere)

    async def list_unused(self) -> None:
        """List the unused backlog queues now, unless that is under way; the view has the outcome."""
        self._steering.refuse_when_ended()
        if not self._unused.listing:
            await self._unused.look()

    def look_at_messages(self, path: str) -> MessageLooks:
        """Return the looks at messages of a backlog queue, or else of an entity of the primary, by peek."""
        self._steering.refuse_when_ended()
        of_backlog = path in (*self._queues.values(), *(queue.path for queue in self._unused.view.queues))
        return self._message_looks if of_backlog else self._entity_looks

    def _with_syphon(self) -> Syphon:
        if self._syphon is None:
            raise IllegalEventError("this engine runs no syphon: order it from one that does")
        return self._syphon

    def _stands(self, path: str) -> str:
        entity = self._steering.machine.entity(path, at=self._steering.clock())
        view = next(one for one in snapshot_views.entities(self._steering, self._carried) if one.path == entity.path)
        return f"{entity.path} is {entity.state}: {view.why}"


CHECK_SECONDS: Final = 1.0
"""Seconds between two checks of the clients."""


class WatchedClient:
    """One namespace's client, and whether it was closed.

    Args:
        name: the client's name in errors.
        path: the idle sender's entity. A client that its connection string binds to another entity gets that from
            `use`.
    """

    def __init__(self, name: str, client: ServiceBusClient, path: str) -> None:
        self.name = name
        self._client = client
        self._idle: ServiceBusSender | None = None
        with suppress(ValueError):  # bound to one entity: the first sender names it
            self.use(path)

    def use(self, path: str) -> None:
        """Make the idle sender for this entity, unless there is one."""
        if self._idle is None:
            self._idle = self._client.get_queue_sender(path)

    async def is_closed(self) -> bool:
        if self._idle is None:
            return False
        try:
            await self._idle.cancel_scheduled_messages([])
        except ValueError:
            return True
        return False


@dataclass(slots=True, eq=False)
class ClientWatch:
    """The watch over both sides; reports the end of the pairing once.

    primary, secondary: the sides. tasks: the pairing's; a crashed one faults both sides. grace: seconds in which the
    other side has to be closed too. over: called with the reason, at most once.
    """

    primary: WatchedClient
    secondary: WatchedClient
    tasks: TaskOwner
    grace: float
    over: Callable[[PairingError], object]

    async def run(self) -> None:
        """Check until the pairing is over, or until cancelled."""
        loop = asyncio.get_running_loop()
        act_at: float | None = None
        while True:
            reason = self._crashed()
            gone = [side for side in (self.primary, self.secondary) if await side.is_closed()]
            if len(gone) == 1:
                act_at = loop.time() + self.grace if act_at is None else act_at
                if loop.time() >= act_at:
                    reason = self._left_alone(gone[0])
            elif gone:
                reason = PairingClosedError("both namespaces' clients were closed, and the pairing with them")
            if reason is not None:
                self.over(reason)
                return
            await asyncio.sleep(CHECK_SECONDS if act_at is None else min(CHECK_SECONDS, max(0.0, act_at - loop.time())))

    def _crashed(self) -> PairingError | None:
        failed = self.tasks.failed
        if failed is None:
            return None
        error = PairedClientError(
            f"the pairing of {self.primary.name} with {self.secondary.name} is faulted: a task of its own crashed "
            f"({type(failed).__name__}); both clients are closed. Pair them again; see the log"
        )
        error.__cause__ = failed
        return error

    def _left_alone(self, gone: WatchedClient) -> PairingError:
        other = self.secondary if gone is self.primary else self.primary
        return PairedClientError(
            f"the client of {gone.name} was closed, and that of its partner {other.name} was not within "
            f"{self.grace:g} s: both are closed now. Close the pairing instead of its clients"
        )


class PairedServiceBusClient(OperatorOrders):
    """A primary namespace with a secondary one behind it, made by `pair_namespaces`.

    Closing it, or leaving its context, closes both namespaces' clients too. Calls for receivers and
    sessions raise PairingClosedError after the end.
    """

    def __init__(
        self,
        primary_client: ServiceBusClient,
        secondary_client: ServiceBusClient,
        steering: PairingRuntime,
        admin: Management,
        found: queue_settings.BacklogQueues,
        *,
        receiving: ServiceBusClient,
        primary: str,
        secondary: NamespaceInfo,
        primaries: PrimaryLinks,
        degraded: DegradedStart | None,
    ) -> None:
        self.primary_name = primary
        self.secondary_name = secondary.name
        self.secondary_info = secondary
        self.fully_qualified_namespace: str = primary_client.fully_qualified_namespace
        self._primary = primary_client
        self._receiving = receiving
        """The primary's client with the retries of the application's receivers."""
        self.secondary_client = secondary_client
        """The secondary namespace's, closed with the pairing; `secondary_admin`: its management."""
        self.secondary_admin = admin
        self._steering = steering
        self._found = found
        self._queues = queues = found.paths
        self._primaries = primaries
        self._standby = primaries.standby
        self._degraded = degraded
        self._syphon: Syphon | None = None
        self.looks = PollWatchers(steering.clock, steering.changed)
        backlog = BacklogAccess(steering, admin, secondary_client, queues, self.looks)
        self._poller = poller = DepthPoller(backlog)
        self._parked = ParkedFigures(steering, poller)
        self._syphon_report: SyphonReport | None = None
        """The syphon's status; None: no syphon runs here."""
        looks = partial(
            MessageLooks, clock=steering.clock, judge=steering.judge, meter=steering.meter, tasks=steering.tasks
        )
        self._message_looks, self._entity_looks = looks(secondary_client), looks(primary_client, own=True)
        self._peeks = Peeks(backlog, self._message_looks, poller)
        self._inspection = Inspection(backlog, primary_client, poller, found=lambda: self._found)
        self._unused = UnusedQueues(backlog)
        self._unmoved = UnmovedMessages(steering, poller, self._unused, has_syphon=steering.policy.enable_syphon)
        self._given_ids = GivenIds()
        self._carried: set[str] = set()
        """Paths without case of the entities that this process has made a sender for."""
        self._client_watch = self._watch_clients()
        self._watch = asyncio.create_task(self._client_watch.run(), name="the watch over both clients")
        self._closing: asyncio.Task[None] | None = None
        self.figures: Collector | None = None
        """The result of `collector`, set by the engine around the pairing."""
        self.take_send_times = steering.take_send_times
        self._afterwards: list[Callable[[], Awaitable[None]]] = [self._message_looks.close, self._entity_looks.close]
        steering.perform, steering.turn = self._primaries.perform, self._primaries.turn
        self._alarm_changes = AlarmChanges(steering.warn)
        self._notes_alarms = True
        """Whether the pairing reports its alarms itself; an engine around it does."""
        self._start()

    def _watch_clients(self) -> ClientWatch:
        path, steering = next(iter(self._queues.values())), self._steering
        primary = WatchedClient(self.primary_name, self._primary, path)
        secondary = WatchedClient(self.secondary_name, self.secondary_client, path)
        return ClientWatch(primary, secondary, steering.tasks, steering.policy.close_grace, self._faulted)

    def _start(self) -> None:
        steering, tasks = self._steering, self._steering.tasks
        tasks.start(self._count(), name="the count of sends")
        self._poller.when_read = self._follow
        tasks.start(self._poller.run(self._reasons), name="the depth of the backlog")
        tasks.start(self._peeks.run(), name="the peeks into the backlog")
        if self._degraded is not None:
            tasks.start(self._degraded.run(self._completed), name="the completion of the pairing")
        tasks.start(self._unused.run(), name="the list of unused backlog queues")
        if steering.policy.enable_syphon:
            remaker = QueueRecreator(steering, self.secondary_admin, self._found)
            self._syphon = Syphon(steering, self._primary, self.secondary_client, self._queues, remaker)
            self._parked.pumps = self._syphon.pumps
            self._syphon_report = SyphonReport(steering, self._poller, self._parked)
            self._syphon.start()

    # -- for applications --------------------------------------------------------------------------------

    @property
    def backlog_queue_count(self) -> int:
        """The number of backlog queues found or created."""
        return len(self.backlog_queue_indices)

    @property
    def backlog_queue_indices(self) -> tuple[int, ...]:
        """The indices in the paths of the backlog queues, ascending; a queue that could not be created leaves a gap."""
        return tuple(self._queues if self._degraded is None else self._degraded.found)

    @classmethod
    def from_connection_string(cls, conn_str: str, **options: Any) -> NoReturn:
        """Raise ConfigurationError: a pairing has two namespaces."""
        raise ConfigurationError("one connection string makes no pairing: pass two clients to pair_namespaces")

    def get_queue_sender(
        self, queue_name: str, *, client_identifier: str | None = None, socket_timeout: float | None = None
    ) -> PairedSender:
        """Return a sender to a queue of the primary namespace, under the pairing.

        The SDK's options apply to its link to the primary; senders share the links to the backlog queues. Raises
        PairingClosedError.
        """
        return self._sender(queue_name, client_identifier, socket_timeout)

    def get_topic_sender(
        self, topic_name: str, *, client_identifier: str | None = None, socket_timeout: float | None = None
    ) -> PairedSender:
        """Return a sender to a topic of the primary namespace, as `get_queue_sender`."""
        return self._sender(topic_name, client_identifier, socket_timeout)

    def get_queue_receiver(self, queue_name: str, **options: Any) -> PairedReceiver:
        """Return a receiver on the primary namespace, with the SDK's options."""
        self._steering.refuse_when_ended()
        make = partial(self._receiving.get_queue_receiver, queue_name, **options)
        return self._paired(make, queue_name, options)

    def get_subscription_receiver(self, topic_name: str, subscription_name: str, **options: Any) -> PairedReceiver:
        """Return a receiver on the primary namespace, with the SDK's options."""
        self._steering.refuse_when_ended()
        make = partial(self._receiving.get_subscription_receiver, topic_name, subscription_name, **options)
        return self._paired(make, f"{topic_name}/Subscriptions/{subscription_name}", options)

    def _paired(self, make: Callable[[], ServiceBusReceiver], path: str, options: Mapping[str, Any]) -> PairedReceiver:
        receipts = self.delivery_receipts(path) if options.get("sub_queue") is None else None
        remake = make if options.get("session_id") is NEXT_AVAILABLE_SESSION else None
        return PairedReceiver(make(), receipts, max_wait_time=options.get("max_wait_time"), remake=remake)

    def delivery_receipts(self, path: str) -> DeliveryReceipts | None:
        """Return the receipts for receivers at `path`; None: the option is off, or it is not an entity."""
        return DeliveryReceipts.of(self._steering, path)

    def list_queue_sessions(
        self, queue_name: str, *, state_updated_after: datetime | None = None, timeout: float | None = None
    ) -> AsyncItemPaged[str]:
        """List the ids of a queue's sessions in the primary namespace, as the SDK does."""
        self._steering.refuse_when_ended()
        options: dict[str, Any] = {"state_updated_after": state_updated_after, "timeout": timeout}
        return without_pings(self._receiving.list_queue_sessions(queue_name, **options))

    def list_subscription_sessions(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        state_updated_after: datetime | None = None,
        timeout: float | None = None,
    ) -> AsyncItemPaged[str]:
        """List the ids of a subscription's sessions in the primary namespace."""
        self._steering.refuse_when_ended()
        options: dict[str, Any] = {"state_updated_after": state_updated_after, "timeout": timeout}
        listed = self._receiving.list_subscription_sessions(topic_name, subscription_name, **options)
        return without_pings(listed)

    def get_encoded_sender(self, path: str) -> EncodedSender:
        """Return a sender of encoded messages, for a gateway. Raises PairingClosedError, WireUnavailableError."""
        name = self._carry(path)
        return EncodedSender(self._steering, self._primaries, name, self._standby.queues, self._given_ids)

    async def find_entity(self, path: str, timeout: float) -> tuple[int, int]:
        """Return the bytes of an entity's largest message and batch, asked of the primary. Raises WireError."""
        self._steering.refuse_when_ended()
        return await self._primaries.find_entity(entity_path(path), timeout)

    def primary_endpoint(self) -> Endpoint:
        """Return the primary's address and our credential, for a gateway. Raises WireUnavailableError."""
        return Endpoint.of(self._primary)

    def is_diverting(self, path: str) -> bool | None:
        """Return whether an entity's sends go to the backlog now; None: it is unknown here."""
        entities = self._steering.machine.entities()
        return next((each.diverting for each in entities if each.path.casefold() == path.casefold()), None)

    async def stands_ready(self) -> None:
        """Wait for the first try to open the link to each backlog queue; sends need not wait for it."""
        await self._standby.tried.wait()

    def watch(self, path: str, *, probe: bool = False) -> None:
        """List an entity before its first send.

        `probe`: while there are no sends, ping it each `ping_primary_interval`. A ping is
        billed, and its outcome counts as a send's.
        """
        self._steering.machine.entity(path, at=self._steering.clock())
        if probe:
            self._steering.probe(path)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the pairing. Sends under way have `close_grace` to finish, then raise; later ones raise immediately.

        Pumps and pings end, links detach, both namespaces' clients are closed.
        """
        self._steering.tasks.refuse_elsewhere()
        reason = PairingClosedError("the pairing was closed: nothing can be sent through it any more")
        await asyncio.shield(self._begin_to_end(reason))

    def collector(self) -> Collector:
        """Return the engine's figures, for a registry of prometheus_client; none once it is closed.

        Raises ConfigurationError: the pairing has no engine.
        """
        if self.figures is None:
            raise ConfigurationError("this pairing has no engine, which makes the figures: pair with control=True")
        return self.figures

    def when_closed(self, act: Callable[[], Awaitable[None]]) -> None:
        """Call `act` once the pairing has ended, also after a failure."""
        self._afterwards.append(act)

    # -- the end ----------------------------------------------------------------------------------------------

    def _faulted(self, reason: PairingError) -> None:
        """End the pairing after one side has become unusable."""
        self._steering.warn("pairing", str(reason))
        self._begin_to_end(reason)

    def _begin_to_end(self, reason: PairingError) -> asyncio.Task[None]:
        if self._closing is None:
            self._steering.end(reason)
            self._closing = asyncio.create_task(self._close(), name="the end of the pairing")
        return self._closing

    async def _close(self) -> None:
        steering = self._steering
        await steering.await_in_flight(steering.policy.close_grace)
        self._primaries.cut()
        self._standby.cut()
        await end_all([self._watch], CLOSING)
        await steering.tasks.close()
        if self._syphon is not None:
            await self._syphon.close()
        await asyncio.gather(self._primaries.close(), self._standby.close())
        clients: list[Any] = [self._primary, self.secondary_client, self.secondary_admin]
        if self._receiving is not self._primary:
            clients.append(self._receiving)
        for client in clients:
            try:
                await bounded(client.close(), CLOSING, "closing a client")
            except Exception as error:  # noqa: BLE001 - the SDK fails to close a broken client; the others are closed too
                steering.warn("close", f"a client did not close cleanly: {type(error).__name__}")
        steering.write_rest()
        for act in self._afterwards:
            await act()

    # -- views ----------------------------------------------------------------------------------------------

    @property
    def reading(self) -> bool:
        """Whether requested depths are being read."""
        return self.looks.pending or self._unused.listing

    def unused_view(self) -> UnusedView:
        """Return the backlog queues that no known engine uses."""
        return self._unused.view

    def entity_views(self) -> tuple[EntityView, ...]:
        """Return every entity seen or watched."""
        return snapshot_views.entities(self._steering, self._carried, self._primaries.unanswered)

    def queue_views(self, *, looking: bool = True) -> tuple[QueueView, ...]:
        """Return every backlog queue in use, with its latest counts. `looking`: read them again within seconds."""
        if looking:
            self.looks.ask()
        self._parked.look()
        found, syphon = self._found, self._syphon
        return snapshot_views.queues(self._steering, found, self._poller, self._peeks, syphon, self._parked)

    def parked_view(self) -> ParkedView | None:
        """Return the number of messages parked now; None: unknown."""
        self._parked.look()  # else up to a second older than what was moved
        return self._parked.view

    def syphon_view(self) -> SyphonView:
        """Return the syphon of this engine."""
        syphon, syphons = self._syphon, self._unmoved.syphons
        if syphon is None or self._syphon_report is None:
            return snapshot_views.without_syphon(self._unmoved)
        status, text = self._syphon_report.status(syphon.moves_now, self._unused.usage, syphons)
        return snapshot_views.syphon(syphon, self._steering.machine, status, text, syphons)

    def billed(self) -> Meter:
        """Return operations and bytes since the start, by cause."""
        return replace(self._steering.meter)

    def condition(self) -> PairingCondition:
        """Return what is known of the pairing now, of which every alarm is a function."""
        now = self._steering.clock()
        return PairingCondition(
            at=now,
            read_at=now,
            primary=self.primary_name,
            secondary=self.secondary_name,
            entities=self.entity_views(),
            queues=self.queue_views(looking=False),
            syphon=self.syphon_view(),
            unused=self.unused_view(),
            parked=self.parked_view(),
            troubles=self.troubles(),
        )

    def alarms(self) -> tuple[str, ...]:
        """Return the alarms, the worst first: each sentence with what to do (SPEC.md section 12)."""
        return tuple(alarm.text for alarm in degrading(alarms(self.condition())))

    def note_alarms(self, condition: PairingCondition) -> None:
        """Report the alarms that begin or end in an engine's condition, which has more than the pairing's own."""
        self._notes_alarms = False
        self._alarm_changes.note(alarms(condition))

    def troubles(self) -> tuple[Trouble, ...]:
        """Return what is wrong and in no view."""
        steering, poller = self._steering, self._poller
        degraded = self._degraded.trouble if self._degraded is not None else None
        clients = {self.primary_name: self._primary, self.secondary_name: self.secondary_client}
        found = [
            *steering.refused_credentials.troubles(steering.clock()),
            *snapshot_views.silent_credentials(clients, steering.policy.send_timeout),
            *([degraded] if degraded is not None else []),
            *self._standby.troubles,
            *self._unmoved.troubles(),
        ]
        if poller.trouble:
            read_at = self._parked.view.read_at if self._parked.view is not None else None
            found.append(Trouble(kind=TroubleKind.BACKLOG_UNREAD, reason=poller.trouble, since=read_at))
        if isinstance(steering.ended, PairedClientError):
            found.append(Trouble(kind=TroubleKind.CLIENT_CLOSED, reason=str(steering.ended)))
        return tuple(found)

    async def check(self) -> Readiness:
        """Judge whether a failover would work now, as `paired check` does.

        Links to backlog queues are opened and closed; nothing is sent.
        """
        self._steering.refuse_when_ended()
        evidence = await self.inspect(ask=True)
        found = failover_readiness.judge(replace(evidence, syphons_elsewhere=self._unmoved.syphons))
        return failover_readiness.with_sends(found, self.condition())

    async def inspect(self, *, ask: bool = False) -> Evidence:
        """Collect the evidence for a failover: links to backlog queues are opened and closed, nothing is sent.

        `paired_servicebus.core.operator.failover_readiness.judge` judges it. `ask`: query management now, even without
        watchers.
        """
        names = (self.primary_name, self.secondary_name)
        return await self._inspection.look(names, self.syphon_view().status, self._standby.limit(), ask=ask)

    def recounted(self, evidence: Evidence) -> Evidence:
        """Return the same evidence with the queues' latest counts."""
        return self._inspection.recounted(evidence)

    def know_syphons(self, engines: tuple[str, ...]) -> None:
        """Set the other engines that run a syphon for the same namespaces, and so move parked messages too."""
        self._unmoved.syphons = engines

    def know_usage(self, usage: QueueUsage) -> None:
        """Set the backlog queues that other engines use: those are not unused."""
        self._unused.usage = usage

    def write_together(self, how: Together) -> None:
        """Announce simultaneous events inside of `how()` from now on, to be written together."""
        self._steering.together = how

    # -- inside -----------------------------------------------------------------------------------------------

    def _carry(self, path: str) -> str:
        """Note an entity that this process sends to, and return its path. Raises PairingClosedError."""
        self._steering.refuse_when_ended()
        path = entity_path(path)
        self.watch(path)
        self._carried.add(path.casefold())
        self._client_watch.primary.use(path)
        return path

    def _sender(self, path: str, client_identifier: str | None, socket_timeout: float | None) -> PairedSender:
        path = self._carry(path)
        given = {"client_identifier": client_identifier, "socket_timeout": socket_timeout}
        options = {name: value for name, value in given.items() if value is not None}
        return PairedSender(self._steering, self._primaries, path, self._standby.queues, **options)

    def _completed(self, found: queue_settings.BacklogQueues, secondary: NamespaceInfo) -> None:
        """Store the queues and the description of a secondary that has answered after a degraded start."""
        self._found = found
        backlog_queues.apply_hazards(self._steering, found)
        if secondary.name:
            self.secondary_name, self.secondary_info = secondary.name, secondary

    def _reasons(self) -> frozenset[PollReason]:
        """Return the rules' reasons for reading the depths."""
        return self._unmoved.reasons(aside=self._syphon.aside if self._syphon is not None else 0)

    async def _count(self) -> None:
        for second in count(1):
            await self._steering.count_once()
            if self._notes_alarms and second % ALARM_SECONDS == 0:
                self._alarm_changes.note(alarms(self.condition()))
            self._unmoved.follow()
            self._follow()
            if self._syphon is not None:
                self._syphon.count()
                self._syphon.know(self._poller.found)

    def _follow(self) -> None:
        """Update parked messages and the syphon's status: each second, and before a reading's requester resumes."""
        self._parked.look()
        if self._syphon_report is not None:
            self._syphon_report.follow()
