"""One drill: it pairs under its own name, sends and receives, breaks its entities, heals them, and measures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Final

from azure.core.exceptions import AzureError
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.config import PairingConfig
from paired_servicebus.core.accounting.ledger import balance
from paired_servicebus.core.accounting.send_times import SendAttempt, detection_start, diversion_seconds
from paired_servicebus.core.backlog.queue_settings import QueueStatus, QueueWanted, queue_path
from paired_servicebus.core.drill import drill_plan
from paired_servicebus.core.drill.drill_plan import (
    EFFECT_SECONDS,
    PARTS,
    DrillMeasures,
    DrillNote,
    DrillPart,
    DrillPlan,
    DrillRole,
    EntityKind,
    PartResult,
    Phase,
    drill_name,
    is_backlog,
    marker_path,
    role_path,
    run_of,
)
from paired_servicebus.core.errors import DrillError, PairingError
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import (
    Diverted,
    Event,
    MessageReceived,
    PingAccepted,
    PingFailed,
    StateChanged,
)
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.engine.clients.client_factory import NamespaceClients, open_clients
from paired_servicebus.pairing import PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions, pair_namespaces
from paired_servicebus.pairing.management.backlog_queues import first_line
from paired_servicebus.pairing.management.management_port import is_there_already, is_transient
from paired_servicebus.pairing.runtime.deadlines import Clock, bounded, end_all
from paired_servicebus.trials.temporary_entities import (
    MANAGING,
    ManagedNamespace,
    NotPermittedError,
    RunRecord,
    Side,
    run_to_end,
)
from paired_servicebus.trials.workload import MessageStream, Workload, peek_ids

# The entities of one drill: made, made to fail, made to work again, deleted.
#
# Each request has a deadline. Deletion goes by name: all names under the drill's own random id are its own.

SUBSCRIPTION: Final = "receiver"
REMOVAL_PASSES: Final = 3
RETRY_PAUSE: Final = 1.0


class DrillEntities:
    """The entities of one drill in both namespaces."""

    def __init__(self, namespaces: Mapping[Side, ManagedNamespace], plan: DrillPlan, note: DrillNote) -> None:
        self._primary = namespaces[Side.PRIMARY]
        self._secondary = namespaces[Side.SECONDARY]
        self._plan = plan
        self._note = note

    def path(self, role: DrillRole) -> str:
        """Return the path of an entity in the primary namespace."""
        return role_path(self._note.run, role)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the entities in the primary namespace."""
        return tuple(self.path(part.role) for part in self._plan.parts)

    async def make(self) -> None:
        """Make the marker queue, then the entities in the primary. Raises DrillError."""
        await self._make_queue(self._secondary, marker_path(self._note.run))
        for part in self._plan.parts:
            await self.make_part(part)

    async def make_part(self, part: DrillPart) -> None:
        """Make an entity in the primary. Raises DrillError."""
        path, admin = self.path(part.role), self._primary.admin
        if part.kind is EntityKind.TOPIC:
            await self._make(self._primary, path, lambda: admin.create_topic(path, metadata=str(self._note)))
            await self._make(self._primary, path, lambda: admin.create_subscription(path, SUBSCRIPTION))
        else:
            await self._make_queue(self._primary, path, sessions=part.kind is EntityKind.SESSION_QUEUE)

    async def set_status(self, role: DrillRole, status: QueueStatus) -> None:
        """Make a queue refuse or accept sends. Raises DrillError."""
        path, admin = self.path(role), self._primary.admin
        try:
            await _insist(lambda: bounded(admin.set_status(path, status), MANAGING, f"changing {path}"))
        except (AzureError, OSError, TimeoutError) as error:
            raise DrillError(f"{path} cannot be set to {status}: {first_line(error)}") from error

    async def delete(self, role: DrillRole) -> None:
        """Delete a queue. Raises DrillError."""
        if not await self._primary.delete(self.path(role)):
            raise DrillError(f"{self.path(role)} cannot be deleted in the primary namespace")

    async def remove(self) -> list[str]:
        """Delete everything under the drill's name; return the paths that may remain, with their namespace.

        The last pass finds nothing: a creation that was cut off may have reached the namespace after its deletion.
        """
        remains = list(self.paths)
        for _ in range(REMOVAL_PASSES):
            remains = await self._remove_once() or await self._listed()
            if not remains:
                break
            await asyncio.sleep(RETRY_PAUSE)
        return remains

    async def _remove_once(self) -> list[str]:
        """Delete by name, then the listed backlog queues, the marker queue last; return what remains."""
        topics = {self.path(part.role) for part in self._plan.parts if part.kind is EntityKind.TOPIC}
        remains = [path for path in self.paths if not await self._primary.delete(path, is_topic=path in topics)]
        try:
            backlog = [path for path in await self._listed_in(self._secondary) if is_backlog(path)]
        except (AzureError, OSError, TimeoutError) as error:
            return [*remains, self._not_listed(error)]
        remains += [path for path in backlog if not await self._secondary.delete(path)]
        marker = marker_path(self._note.run)
        if not remains and not await self._secondary.delete(marker):
            remains.append(marker)
        return remains

    async def _listed(self) -> list[str]:
        """Return the paths that both namespaces list; a sentence if one does not answer."""
        try:
            return [*await self._listed_in(self._primary), *await self._listed_in(self._secondary)]
        except (AzureError, OSError, TimeoutError) as error:
            return [self._not_listed(error)]

    async def _listed_in(self, namespace: ManagedNamespace) -> list[str]:
        """Return the paths of the drill's entities. Raises azure-core's errors, OSError, TimeoutError."""
        prefix = f"{drill_name(self._note.run)}/"
        queues = await bounded(namespace.admin.queues(prefix), MANAGING, "listing queues")
        paths = [one.path for one in queues]
        if namespace is self._primary and self._plan.parts == PARTS:
            paths += [one.path for one in await bounded(namespace.admin.topics(prefix), MANAGING, "listing topics")]
        return [path for path in paths if run_of(path) == self._note.run]

    def _not_listed(self, error: Exception) -> str:
        return f"{drill_name(self._note.run)}/… (the namespace does not list its entities: {first_line(error)})"

    async def _make_queue(self, namespace: ManagedNamespace, path: str, *, sessions: bool = False) -> None:
        wanted = QueueWanted(sessions=sessions, metadata=str(self._note))
        await self._make(namespace, path, lambda: namespace.admin.create_queue(path, wanted))

    async def _make(self, namespace: ManagedNamespace, path: str, act: Callable[[], Awaitable[None]]) -> None:
        try:
            await _insist(lambda: namespace.make(act))
        except NotPermittedError as error:
            raise DrillError(lacks_manage(namespace.side)) from error
        except (AzureError, OSError, TimeoutError) as error:
            raise DrillError(
                f"the {namespace.side} namespace {namespace.host} does not make {path}: {first_line(error)}"
            ) from error


async def _insist(act: Callable[[], Awaitable[None]]) -> None:
    """Repeat a request for EFFECT_SECONDS while its failure is transient. Raises its last error.

    A namespace that still deletes a queue refuses to make it again. An entity that exists was made by an earlier try:
    the drill's id is random.
    """
    end = asyncio.get_running_loop().time() + EFFECT_SECONDS
    while True:
        try:
            return await act()
        except (AzureError, OSError, TimeoutError) as error:
            if is_there_already(error):
                return None
            is_lasting = isinstance(error, AzureError) and not is_transient(error)
            if is_lasting or asyncio.get_running_loop().time() > end:
                raise
        await asyncio.sleep(RETRY_PAUSE)


def lacks_manage(side: Side) -> str:
    """Return the sentence about a credential without Manage."""
    return (
        f"a drill makes, disables and deletes entities of its own, and the credential of the {side} namespace lacks "
        "Manage: nothing can be made there. With Send and Listen, paired check says whether a failover would work, and "
        "paired demo shows one on this machine"
    )


# The observations of a drill: the pairing's events, the calls of its senders, the arrivals at its receivers.
#
# They give the times of each phase. The balance of messages has other sources: the lists of senders and receivers.


@dataclass(slots=True)
class PartWatch:
    """The observations of one entity; times are seconds since the epoch, None: not yet."""

    part: DrillPart
    attempts: list[SendAttempt] = field(default_factory=list)
    broken_at: float | None = None
    failed_over_at: float | None = None
    healed_at: float | None = None
    returned_at: float | None = None
    failovers: int = 0
    pings_refused: int = 0
    pings_accepted: int = 0
    diverted: int = 0
    arrived: int = 0

    @property
    def divert_seconds(self) -> float | None:
        """Return the seconds from the first send after the failover to the first accepted one."""
        return diversion_seconds(self.attempts, self.failed_over_at) if self.failed_over_at is not None else None

    def result(self, plan: DrillPlan) -> PartResult:
        """Return the measurements."""
        began = detection_start(self.attempts, self.failed_over_at) if self.failed_over_at is not None else None
        in_failover = _between(self.failed_over_at, self.healed_at)
        return PartResult(
            part=self.part,
            detect=_between(began, self.failed_over_at),
            divert=self.divert_seconds,
            returned=_between(self.healed_at, self.returned_at),
            return_promise=plan.return_promise(in_failover) if in_failover is not None else None,
            failovers=self.failovers,
            pings_refused=self.pings_refused,
            pings_accepted=self.pings_accepted,
        )

    def change(self, event: StateChanged) -> str:
        """Note a change of state; return it as a line of progress, "" if it is none."""
        role = self.part.role
        if event.now == State.FAILED_OVER:
            self.failovers += 1
            self.failed_over_at = self.failed_over_at or event.at
            return f"{role} failed over: its sends go to the backlog"
        if event.now == State.HEALTHY and event.was == State.FAILED_OVER:
            self.returned_at = event.at
            return f"{role} failed back: its sends go to the primary"
        return f"{role} is suspect: {event.why}" if event.now == State.SUSPECT else ""


class DrillWatch:
    """The observations of all entities of a drill.

    Args:
        paths: each part's path.
        say: receives lines of progress.
    """

    def __init__(self, paths: dict[str, DrillPart], say: Callable[[str], None]) -> None:
        self.parts = {path: PartWatch(part) for path, part in paths.items()}
        self._say = say
        self._diverted: set[str] = set()
        self._arrived_at: dict[str, float] = {}

    @property
    def failing(self) -> tuple[PartWatch, ...]:
        """Return the entities that fail in this drill."""
        return tuple(watch for watch in self.parts.values() if watch.part.fails)

    @property
    def diverted(self) -> int:
        """Return the number of messages that a backlog queue accepted."""
        return len(self._diverted)

    @property
    def drain_seconds(self) -> float | None:
        """Return the seconds from the last failback until every diverted message had arrived; None: not yet."""
        returned = [watch.returned_at for watch in self.failing if watch.returned_at is not None]
        arrived = [self._arrived_at.get(name) for name in self._diverted]
        known = [at for at in arrived if at is not None]
        if len(returned) < len(self.failing) or len(known) < len(arrived):
            return None
        return max(0.0, max(known, default=0.0) - max(returned))

    def note(self, event: Event) -> None:
        """Note an event of the pairing, or of a receiver."""
        if isinstance(event, MessageReceived):
            self._arrived_at.setdefault(event.message_id, event.at)
        watch = self.parts.get(getattr(event, "entity", ""))
        if watch is None:
            return
        match event:
            case StateChanged():
                line = watch.change(event)
                if line:
                    self._say(line)
            case Diverted():
                self._diverted.add(event.message_id)
                watch.diverted += 1
            case PingFailed():
                watch.pings_refused += 1
            case PingAccepted():
                watch.pings_accepted += 1
            case MessageReceived():
                watch.arrived += 1

    def note_attempt(self, attempt: SendAttempt) -> None:
        """Note a call of a sender."""
        self.parts[attempt.entity].attempts.append(attempt)


def _between(began: float | None, ended: float | None) -> float | None:
    return max(0.0, ended - began) if began is not None and ended is not None else None


SESSIONS: Final = ("a", "b")
POLL_SECONDS: Final = 0.1
QUIET_SECONDS: Final = 1.0
"""Seconds without a new message after which duplicates have been counted."""
RETRY_AFTER: Final = 0.5
MIN_DIVERTED: Final = 3
"""Messages of each failing entity in the backlog before the entity is healed."""
PEEK_SECONDS: Final = 30.0
ENDING_SECONDS: Final = 15.0
"""Seconds for ending the application, and for closing the pairing besides its close_grace."""

Say = Callable[[str], None]

log = logging.getLogger(__name__)


async def run_drill(
    config: PairingConfig,
    namespaces: Mapping[Side, ManagedNamespace],
    plan: DrillPlan,
    note: DrillNote,
    record: RunRecord,
    say: Say,
) -> DrillMeasures:
    """Carry out a drill, and delete its entities in any case.

    Args:
        note: goes into each entity.
        record: keeps the entities that could not be deleted.
        say: receives lines of progress; must not raise.

    Raises:
        DrillError: it cannot be carried out.
    """
    entities = DrillEntities(namespaces, plan, note)
    places = ((Side.SECONDARY, marker_path(note.run)), *((Side.PRIMARY, path) for path in entities.paths))
    try:
        for side, path in places:
            record.note(side, namespaces[side].host, path)
    except OSError as error:
        raise DrillError(f"the record of its entities cannot be written: {error.strerror or error}") from error
    try:
        return await _Drill(config, plan, note, entities, say).carry_out()
    finally:
        await run_to_end(_remove(entities, record, say))


async def _remove(entities: DrillEntities, record: RunRecord, say: Say) -> None:
    say("deleting the drill's entities")
    try:
        remains = await bounded(entities.remove(), drill_plan.MAX_REMOVAL_SECONDS, "deleting the drill's entities")
    except TimeoutError as error:
        remains = [str(error)]
    if remains:
        say(f"not deleted: {', '.join(remains)}; later: paired drill --clean")
        return
    for entity in record.entities:
        record.forget(entity.path)


class _Drill:
    def __init__(
        self, config: PairingConfig, plan: DrillPlan, note: DrillNote, entities: DrillEntities, say: Say
    ) -> None:
        self._config = config
        self._plan = plan
        self._name = drill_name(note.run)
        self._entities = entities
        self._say = say
        self._clock = Clock()
        self._parts = {entities.path(part.role): part for part in plan.parts}
        self._watch = DrillWatch(self._parts, say)
        self._tasks: list[asyncio.Task[None]] = []

    async def carry_out(self) -> DrillMeasures:
        began = self._clock()
        self._say(f"making {self._name}/…")
        try:
            await bounded(self._entities.make(), drill_plan.MAX_SETUP_SECONDS, "making the entities")
        except TimeoutError as error:
            raise DrillError(f"the namespaces are too slow for a drill: {error}") from error
        async with open_clients(self._config) as clients, self._paired(clients) as paired:
            workload = self._application(paired)
            async with self._running(workload):
                await self._warm_up(workload)
                await self._break(workload)
                await self._observe_outage()
                await self._heal()
                await self._drain(workload)
            return await self._measure(workload, paired, clients.secondary, self._clock() - began)

    # -- the pairing and its application ---------------------------------------------------------------------------

    @asynccontextmanager
    async def _paired(self, clients: NamespaceClients) -> AsyncIterator[PairedServiceBusClient]:
        policy = self._plan.policy
        chosen: dict[str, Any] = {field.name: getattr(policy, field.name) for field in fields(Policy)}
        options = SendAvailabilityPairedNamespaceOptions(
            secondary_admin=clients.secondary_admin,
            secondary_client=clients.secondary,
            primary_name=self._name,
            **chosen,
        )
        pairing = pair_namespaces(clients.primary, options, on_event=self._watch.note)
        try:
            paired = await bounded(pairing, drill_plan.MAX_SETUP_SECONDS, "pairing")
        except (PairingError, TimeoutError) as error:
            host = self._config.secondary.host
            raise DrillError(f"pairing with the secondary namespace {host} failed: {error}") from error
        try:
            yield paired
        finally:
            await run_to_end(_close(paired, policy.close_grace + ENDING_SECONDS))

    def _application(self, paired: PairedServiceBusClient) -> Workload:
        streams = tuple(stream for path, part in self._parts.items() for stream in _streams(path, part))
        return Workload(
            paired,
            seed=0,
            streams=streams,
            record=self._watch.note,
            observe=self._watch.note_attempt,
            retry_after=RETRY_AFTER,
        )

    @asynccontextmanager
    async def _running(self, workload: Workload) -> AsyncIterator[None]:
        self._tasks = [
            asyncio.create_task(workload.receive_until_stopped(), name="the drill's receivers"),
            asyncio.create_task(workload.send_until_stopped(), name="the drill's senders"),
        ]
        try:
            yield
        finally:
            await run_to_end(_end(self._tasks))

    # -- the phases ------------------------------------------------------------------------------------------------

    async def _warm_up(self, workload: Workload) -> None:
        """Wait until each entity has delivered a message. Raises DrillError."""
        self._say("sending to each entity, receiving from the primary")
        if await self._until(self._all_arrived, drill_plan.MAX_WARM_UP_SECONDS):
            return
        silent = ", ".join(path for path, watch in self._watch.parts.items() if not watch.arrived)
        error = workload.lists.last_error
        why = f": {first_line(error)}" if error is not None else ""
        raise DrillError(
            f"no message of {silent} arrived within {drill_plan.MAX_WARM_UP_SECONDS:g} s, before any outage{why}; a "
            "drill needs Send and Listen on both namespaces"
        )

    def _all_arrived(self) -> bool:
        return all(watch.arrived for watch in self._watch.parts.values())

    async def _break(self, workload: Workload) -> None:
        """Make the entities fail; wait until they have failed over. Raises DrillError."""
        for path, watch in self._watch.parts.items():
            if watch.part.role is DrillRole.DISABLED:
                await self._entities.set_status(DrillRole.DISABLED, QueueStatus.SEND_DISABLED)
                self._say(f"{DrillRole.DISABLED} is set to SendDisabled")
            elif watch.part.role is DrillRole.DELETED:
                await self._delete(workload, path)
            watch.broken_at = self._clock()
        patience = drill_plan.EFFECT_SECONDS + drill_plan.PATIENCE + (self._plan.promise(Phase.DETECT) or 0.0)
        await self._until(lambda: all(one.failed_over_at for one in self._watch.failing), patience)

    async def _delete(self, workload: Workload, path: str) -> None:
        """Delete a queue once all of its messages have arrived, because deletion loses the others."""
        workload.hold(path)
        if not await self._until(lambda: workload.unsettled(path) == 0, drill_plan.EFFECT_SECONDS):
            raise DrillError(f"the messages of {path} did not arrive, and deleting it would lose them")
        await self._entities.delete(DrillRole.DELETED)
        self._say(f"{DrillRole.DELETED} is deleted")
        workload.release(path)

    async def _observe_outage(self) -> None:
        """Wait until messages of each failing entity are in the backlog, and a ping to each was refused."""
        policy = self._plan.policy

        def seen() -> bool:
            parked = all(one.diverted >= MIN_DIVERTED for one in self._watch.failing)
            return parked and all(one.pings_refused for one in self._watch.failing)

        divert = drill_plan.PATIENCE + (self._plan.promise(Phase.DIVERT) or 0.0)
        await self._until(seen, max(divert, drill_plan.PATIENCE + policy.ping_primary_interval + policy.ping_timeout))
        await asyncio.sleep(drill_plan.OUTAGE_SECONDS)

    async def _heal(self) -> None:
        """Make the entities work again; wait until they have failed back. Raises DrillError."""
        for watch in self._watch.failing:
            if watch.part.role is DrillRole.DISABLED:
                await self._entities.set_status(DrillRole.DISABLED, QueueStatus.ACTIVE)
                self._say(f"{DrillRole.DISABLED} accepts sends again")
            else:
                await self._entities.make_part(watch.part)
                self._say(f"{DrillRole.DELETED} is made again")
            watch.healed_at = self._clock()
        failed_over = [one for one in self._watch.failing if one.failed_over_at is not None]
        patience = drill_plan.PATIENCE + max(
            (one.result(self._plan).return_promise or 0.0 for one in failed_over), default=0.0
        )
        await self._until(lambda: all(one.returned_at for one in failed_over), patience)

    async def _drain(self, workload: Workload) -> None:
        """Stop sending; wait until every accepted message has arrived, or the time for it is over."""
        await self._until(lambda: False, drill_plan.AFTER_SECONDS)
        workload.stop_sending()
        self._say("waiting for the backlog to drain")

        def drained() -> bool:
            return self._tasks[1].done() and workload.lists.missing == 0

        await self._until(drained, drill_plan.MAX_DRAIN_SECONDS)
        await asyncio.sleep(QUIET_SECONDS)
        workload.stop_receiving()

    async def _until(self, reached: Callable[[], bool], seconds: float) -> bool:
        """Wait for a condition; return whether it was reached. Raises DrillError: the application has failed."""
        end = asyncio.get_running_loop().time() + seconds
        while not reached():
            for task in self._tasks:
                error = task.exception() if task.done() else None
                if error is not None:
                    raise DrillError(f"{task.get_name()} failed: {_cause(error)}") from error
            if asyncio.get_running_loop().time() > end:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    # -- the result ------------------------------------------------------------------------------------------------

    async def _measure(
        self, workload: Workload, paired: PairedServiceBusClient, secondary: ServiceBusClient, seconds: float
    ) -> DrillMeasures:
        lists = workload.lists
        parked: set[str] = set()
        dead: set[str] = set()
        if lists.missing:
            queues = [queue_path(self._name, index) for index in paired.backlog_queue_indices]
            try:
                parked, dead = await bounded(peek_ids(secondary, queues), PEEK_SECONDS, "looking into the backlog")
            except (AzureError, OSError, TimeoutError) as error:
                self._say(f"the backlog cannot be looked into: {first_line(error)}")
        received = drill_plan.RECEIVED_OPERATIONS * len(lists.arrivals) + lists.empty_receives
        return DrillMeasures(
            parts=tuple(watch.result(self._plan) for watch in self._watch.parts.values()),
            ledger=balance(answers=lists.answers, arrivals=lists.arrivals, parked=parked, dead_lettered=dead),
            drain=self._watch.drain_seconds,
            diverted=self._watch.diverted,
            operations=paired.billed().total + received,
            seconds=seconds,
        )


def _streams(path: str, part: DrillPart) -> tuple[MessageStream, ...]:
    every = 1.0 / drill_plan.SENDS_PER_SECOND
    if part.kind is EntityKind.SESSION_QUEUE:
        return tuple(
            MessageStream(path, f"{part.role}-{name}", every * len(SESSIONS), session_id=name) for name in SESSIONS
        )
    subscription = SUBSCRIPTION if part.kind is EntityKind.TOPIC else None
    return (MessageStream(path, part.role.value, every, subscription=subscription),)


async def _close(paired: PairedServiceBusClient, seconds: float) -> None:
    try:
        await bounded(paired.close(), seconds, "closing the pairing")
    except (AzureError, OSError, TimeoutError) as error:
        log.warning("the drill's pairing was not closed cleanly: %s", error)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    await end_all(tasks, ENDING_SECONDS)


def _cause(error: BaseException) -> str:
    """Return the first cause in an exception group as text."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
