"""One engine: a pairing with its journal, its control socket and a snapshot a second.

    async with EngineHost(identity, spool=..., socket=..., policy=...) as host:
        paired = await pair_namespaces(client, options, on_event=host.record)
        await host.take_up(paired)      # standing orders of the previous engine
        await host.adopt(paired)        # consoles can attach from here on
        reason = await host.ended()     # a `stop` command, or a call of host.stop
        await paired.close()

Every event gets its number here, and goes to the journal first and to the consoles next. Receipts and counts, thousands
a second in an outage, stay in the journal. Not here: processes, signals, SDK clients.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from paired_servicebus.core.accounting.send_times import Buckets
from paired_servicebus.core.errors import PairedError, UnreadableError
from paired_servicebus.core.fleet.engine_orders import Kept, to_take_up
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.pairing_condition import condition_of
from paired_servicebus.core.model.policy import Policy, times_line
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus, Trouble, TroubleKind
from paired_servicebus.core.operator.actions import FLEET_VERBS
from paired_servicebus.core.operator.failover_readiness import Evidence, answered
from paired_servicebus.core.series.graphs import STEP_SECONDS, Mark, SeriesRing
from paired_servicebus.engine.commands import drain_process
from paired_servicebus.engine.commands.drain_process import DrainProcess
from paired_servicebus.engine.commands.guard import (
    CommandContext,
    Guard,
    StandingOrder,
    StandingOrders,
    take_up_stored,
)
from paired_servicebus.engine.commands.message_requests import MessageRequests
from paired_servicebus.engine.control.control_server import REPLAYED_EVENTS, ControlServer
from paired_servicebus.engine.control.protocol import Arm, Look, PostOrder, Reply, Request, Welcome
from paired_servicebus.engine.fleet.fleet_part import FleetPart, join_fleet, read_kept
from paired_servicebus.engine.instance.identity import EngineIdentity, program_version
from paired_servicebus.engine.instance.task_supervisor import TaskSupervisor
from paired_servicebus.engine.journal import records
from paired_servicebus.engine.journal.records import JOURNAL_ONLY, UnreadableLines
from paired_servicebus.engine.journal.timeline_replay import REPLAY_SECONDS, replay_records, unfinished
from paired_servicebus.engine.journal.writer import DEFAULT_KEPT_BYTES, Journal
from paired_servicebus.engine.readiness.readiness_check import (
    EvidenceSource,
    ReadinessWatch,
    no_local_evidence,
    queues_in_use,
    read_local_usage,
)
from paired_servicebus.pairing.paired_client import PairedServiceBusClient
from paired_servicebus.sections.fleet_options import Fleet

# The engine's reaction to journal disk failures: the syphon pauses (SPEC.md section 11). The alarm says so.
#
# Receipts precede settlements, so no message may be moved without a journal. Sends continue.


class DiskWatch:
    """Looks at a journal each time it is asked to.

    Args:
        keep: bytes of the journal that are kept.
        warn: takes a sentence for the timeline.
    """

    def __init__(self, journal: Journal, *, keep: int, warn: Callable[[str], object]) -> None:
        self._journal = journal
        self._keep = keep
        self._warn = warn
        self._was_healthy = True
        self._deletion_said = False
        self._paused_by_us = False

    def look(self, paired: PairedServiceBusClient) -> None:
        """Pause or resume the syphon of `paired`, and warn of the first deletion."""
        self._warn_of_deletion()
        was_healthy, self._was_healthy = self._was_healthy, self._journal.healthy
        if self._journal.healthy and not was_healthy:
            self._warn(f"the journal is written again; {self._journal.lost} events are missing from it")
            if self._paused_by_us:
                self._steer(paired.resume_syphon, "the journal is written again")
            self._paused_by_us = False
        if not self._journal.healthy and paired.syphon_view().status not in (SyphonStatus.OFF, SyphonStatus.PAUSED):
            # also if it was resumed meanwhile
            self._paused_by_us = self._steer(paired.pause_syphon, "the journal is not written")

    def _warn_of_deletion(self) -> None:
        """Warn once a boot that old files are deleted, so that the operator can keep more or copy them."""
        if self._journal.deleted and not self._deletion_said:
            self._deletion_said = True
            self._warn(
                f"more than {self._keep:,} bytes: its oldest files are deleted from now on (journal_mb keeps more)"
            )

    def _steer(self, act: Callable[..., str], why: str) -> bool:
        try:
            act(by="the engine", why=why)
        except PairedError as error:  # an operator was faster
            log.info("the syphon is as it was: %s", error)
            return False
        return True


# The engine's curves over time: one value each five seconds, from its snapshots and its senders' call times.
#
# Consoles that show graphs get them by the control socket. Nothing is written to disk: a new engine begins anew.

TakeTimes = Callable[[], Mapping[str, Buckets]]
"""Returns the calls since it was called last, by entity."""


class SeriesSampler:
    """Keeps the curves, and sends them to the consoles of `control`."""

    def __init__(self, control: ControlServer) -> None:
        self._control = control
        self._ring = SeriesRing()
        control.all_graphs = self._ring.whole

    def note(self, event: e.Event) -> None:
        """Mark a change of state, or an order."""
        if isinstance(event, e.StateChanged):
            self._ring.mark(Mark(at=event.at, what=event.now, subject=event.entity))
        elif isinstance(event, e.Commanded):
            self._ring.mark(Mark(at=event.at, what=event.command, subject=event.target, order=True))

    async def run(self, take_times: TakeTimes) -> None:
        """Add a value each STEP_SECONDS, until cancelled."""
        while True:
            try:
                self.sample(take_times())
            except Exception:  # graphs show it as unknown; sends and syphon continue
                log.exception("the curves over time have no new value")
            await asyncio.sleep(STEP_SECONDS)

    def sample(self, times: Mapping[str, Buckets]) -> None:
        """Add the newest snapshot's values, and send them."""
        snapshot = self._control.snapshot
        step = self._ring.add(snapshot, times) if snapshot is not None else None
        if step is not None:
            self._control.publish_graphs(step)


SNAPSHOT_INTERVAL: Final = 1.0
SOCKET_INTERVAL: Final = 10.0
"""Seconds between two tries to make the control socket."""
USAGE_INTERVAL: Final = 60.0
"""Seconds between two readings of other engines' usage."""
MIN_SNAPSHOT_INTERVAL: Final = 0.1
"""Minimum seconds between two snapshots."""
RecordListener = Callable[[e.Record, bytes], object]
"""Receives a record and its line of the journal."""

log = logging.getLogger(__name__)


def nobody(_record: e.Record, _line: bytes) -> None:
    """Ignore the record: for an engine without a listener."""


class EngineHost:
    """Hosts one pairing. An asynchronous context manager; `record` may be called once it is entered.

    Args:
        identity: the engine's identity.
        spool: the journal's folder.
        socket: the control socket's path; must fit a Unix socket's address (about 100 bytes).
        policy: the times in force, for the screen.
        caption: returns a demo's current caption.
        surroundings: adds evidence of readiness that only this process has.
        draining: starts drains; None: this engine starts none.
        keep: bytes of the journal to keep.
        group: the id of a group whose members may use the socket; None: only this user.
        fleet: the engine's part in the fleet; None: it takes none.
        complete: adds to a snapshot what only this process has, such as a gateway.
        found: returns the troubles that only this process has.
        prepare_spool, prepare_socket: make what the folders of journal and control socket need; raise OSError. Both
            are called again until they succeed.
        note: receives each event; must not block.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        identity: EngineIdentity,
        *,
        spool: Path,
        socket: Path,
        policy: Policy,
        caption: Callable[[], str] = str,
        surroundings: EvidenceSource = no_local_evidence,
        draining: DrainProcess | None = None,
        keep: int = DEFAULT_KEPT_BYTES,
        group: int | None = None,
        fleet: Fleet | None = None,
        complete: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot,
        found: Callable[[], tuple[Trouble, ...]] = tuple,
        prepare_spool: Callable[[], None] = lambda: None,
        prepare_socket: Callable[[], None] = lambda: None,
        note: RecordListener = nobody,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._identity = identity
        self._policy = policy
        self._caption, self._clock = caption, clock
        self._socket, self._spool, self._draining = socket, spool, draining
        self._journal = Journal(
            spool, engine=identity.engine, keep=keep, clock=clock, on_change=self._wake, prepare=prepare_spool
        )
        self._disk = DiskWatch(self._journal, keep=keep, warn=partial(self.warn, "journal"))
        self._control = ControlServer(
            socket,
            welcome=self._welcome(),
            execute=self._execute,
            watched=self._watched,
            fleet_watched=self._watch_fleet,
            group=group,
        )
        self._series = SeriesSampler(self._control)
        self._stack = AsyncExitStack()
        self._surroundings = surroundings
        self._readiness = ReadinessWatch(self._add_evidence)
        self._wanted_fleet = fleet
        self._fleet: FleetPart | None = None
        self._crew = TaskSupervisor()
        self._paired: PairedServiceBusClient | None = None
        self._reach: CommandContext | None = None
        self._guard: Guard | None = None
        self._orders = StandingOrders(spool, is_usable=lambda: self._journal.is_open)
        self._is_recovered = False
        self._before: tuple[StandingOrder, ...] = ()
        self._seq = 0
        self._started_at = clock()
        self._woken = asyncio.Event()
        self._ending = asyncio.Event()
        self._reason = ""
        self._complete, self._found, self._note = complete, found, note
        self._prepare_socket = prepare_socket
        self._socket_trouble: tuple[Trouble, ...] = ()
        self._kept = Kept()
        self._has_taken_up = False

    async def __aenter__(self) -> Self:
        """Open the journal, and read the previous engine's orders. A folder that cannot be used is tried again."""
        await self._stack.enter_async_context(self._journal)
        try:
            await self._recover_previous_boot()
        except BaseException:
            await self.__aexit__(*sys.exc_info())
            raise
        return self

    async def _recover_previous_boot(self) -> None:
        """Report unfinished commands and recovered files of the previous engine, and read its standing orders.

        Does nothing while the folder is not this engine's: what another user put there is no order.
        """
        if self._is_recovered or not self._journal.is_open:
            return
        self._is_recovered = True
        unread = UnreadableLines()
        try:
            left = await asyncio.to_thread(unfinished, self._spool, unread)
        except OSError as error:
            self.warn("audit", f"commands of the engine before cannot be read: {error.strerror or error}")
            left = ()
        self._crew.start(self._remember(unread), name="the replay of the timeline")
        for found in self._journal.recovered:
            torn = f"; {found.torn_bytes} bytes of a torn last line were cut off" if found.torn_bytes else ""
            self.warn("journal", f"the engine before this one was killed: {found.name} was recovered{torn}")
        for text in left:
            self.warn("audit", text)
        try:
            self._before = await asyncio.to_thread(self._orders.read)
            if self._wanted_fleet is not None:
                self._kept = await asyncio.to_thread(read_kept, self._spool)
        except (OSError, UnreadableError) as error:
            self.warn(
                "standing",
                f"the standing orders of the engine before cannot be read ({error}); check the state",
            )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._crew.close()
        if self._fleet is not None:
            await self._fleet.close(self._reason or "its owner closed it")
        if kind is None or issubclass(kind, asyncio.CancelledError):
            reason = self._reason or "its owner closed it"
        else:
            reason = self._reason or f"failed: {kind.__name__}"
        if self._paired is not None:
            self.record(e.EngineStopped(at=self._clock(), reason=reason))
        self._control.farewell = f"the engine ended: {reason}"
        await self._stack.__aexit__(kind, error, trace)

    async def take_up(self, paired: PairedServiceBusClient) -> None:
        """Apply the previous engine's standing orders.

        Call this immediately after pairing, with no await in between, so that no pump moves a message against an order
        (guard.py).
        """
        before, self._before = self._before, ()
        for order in before:
            self.warn("standing", await self._orders.take_up(order, self._command_context(paired)))
        await self._take_up_fleet(paired)

    async def _take_up_fleet(self, paired: PairedServiceBusClient) -> None:
        """Apply what held by the fleet in the engine before, once."""
        if self._wanted_fleet is None or self._has_taken_up:
            return
        self._has_taken_up = True
        engine = self._wanted_fleet.name or self._identity.engine
        held = to_take_up(self._kept, engine=engine, verbs=FLEET_VERBS, at=self._clock())
        self._kept = replace(self._kept, applied=held)
        for one in held:
            self.warn("standing", await take_up_stored(one, self._command_context(paired)))

    async def adopt(self, paired: PairedServiceBusClient) -> None:
        """Serve a pairing: consoles can attach and control it.

        Standing orders not applied yet end here, with a warning. A control socket that cannot be made is tried again.
        """
        self._paired = paired
        paired.looks.when_read = partial(self._counts_read, paired)
        paired.write_together(self._journal.together)
        await self._end_orders_before()
        self._messages = MessageRequests(paired, self, hides_bodies=self._identity.hides_bodies, clock=self._clock)
        self._guard = Guard(
            self._command_context(paired),
            self,
            self._orders,
            look=lambda: self._snapshot(paired),
            require_reason=self._identity.require_reason,
            clock=self._clock,
            ordered=self._note_order,
        )
        before = self._journal.predecessor
        self.record(
            e.EngineStarted(
                at=self._clock(),
                pairing=self._identity.pairing,
                primary=paired.primary_name,
                secondary=paired.secondary_name,
                backlog_queues=paired.backlog_queue_count,
                syphon=self._policy.enable_syphon,
                version=program_version(),
                predecessor=None if before is None else before.boot,
                predecessor_seq=None if before is None else before.seq,
            )
        )
        await self._take_up_fleet(paired)
        await self._join_fleet(self._guard, paired)
        self._control.publish_snapshot(self._snapshot(paired))
        if not await self._open_control():
            self._control.publish_snapshot(self._snapshot(paired))
            self._crew.start(self._keep_opening_control(), name="the control socket")
        self._crew.start(self._show(paired), name="the snapshots")
        self._crew.start(self._readiness.run(paired), name="whether a failover would work")
        self._crew.start(self._series.run(paired.take_send_times), name="the curves over time")
        self._crew.start(self._follow_usage(paired), name="other engines' queues")

    async def _join_fleet(self, guard: Guard, paired: PairedServiceBusClient) -> None:
        if self._wanted_fleet is None:
            return
        self._fleet = await join_fleet(
            self._wanted_fleet,
            paired,
            self._identity,
            warn=self.warn,
            changed=self._wake,
            clock=self._clock,
            carry_out=guard.carry_out,
            spool=self._spool,
            kept=self._kept,
        )
        if self._fleet is not None:
            self._fleet.start(self._own_snapshot(paired))
            await self._fleet.take_up()

    def _watch_fleet(self, watchers: int) -> None:
        if self._fleet is not None:
            self._fleet.watch(watchers)

    def _note_order(self, command: Command) -> None:
        if self._fleet is not None:
            self._fleet.note_order(command)

    async def _end_orders_before(self) -> None:
        for order in self._before:
            self.warn("standing", f"stands no longer: {order}; it ended with the application's process")
        if self._before:
            await self._orders.keep()

    async def _recover_late(self, paired: PairedServiceBusClient) -> None:
        """Do what the start does with the previous engine's orders, in a folder that can be used only now."""
        if self._is_recovered or not self._journal.is_open:
            return
        await self._recover_previous_boot()
        if self._identity.own_process:
            await self.take_up(paired)
        else:
            await self._end_orders_before()

    async def _open_control(self) -> bool:
        """Open the control socket; return whether that succeeded."""
        socket = f"the control socket {self._socket}"
        try:
            self._prepare_socket()
            await self._stack.enter_async_context(self._control)
        except OSError as error:
            reason = f"{error.strerror or error}: no console can attach"
            self._socket_trouble = (Trouble(kind=TroubleKind.PORT_IN_USE, what=socket, reason=reason),)
            log.warning("%s is not served: %s", socket, reason)
            return False
        self._socket_trouble = ()
        return True

    async def _keep_opening_control(self) -> None:
        while True:
            await asyncio.sleep(SOCKET_INTERVAL)
            if await self._open_control():
                self.warn("control", f"the control socket {self._socket} is open")
                return

    def _command_context(self, paired: PairedServiceBusClient) -> CommandContext:
        if self._reach is None:
            read_only, others = self._identity.read_only, self._queues_in_use
            self._reach = CommandContext(paired, self.stop, read_only, others, self._draining)
        return self._reach

    async def _queues_in_use(self, paired: PairedServiceBusClient) -> frozenset[int]:
        """Return the backlog queues that other known engines use. Raises CleanUpError."""
        here = await queues_in_use(paired, besides=self._socket)
        return here if self._fleet is None else here | await self._fleet.queues_in_use()

    async def _add_evidence(self, evidence: Evidence) -> Evidence:
        found = await self._surroundings(evidence)
        return found if self._fleet is None else self._fleet.add_evidence(found)

    def record(self, event: e.Event) -> int:
        """Write an event to the journal and the consoles; return its number in this boot. Never waits."""
        self._seq += 1
        identity = self._identity
        record = e.Record(engine=identity.engine, boot=identity.boot, seq=self._seq, event=event)
        line = records.encode(record)
        self._journal.append(line)
        if not isinstance(event, JOURNAL_ONLY):
            self._control.publish_event(self._seq, line)
        if isinstance(event, e.StateChanged):
            self._wake()
        self._readiness.note(event)
        self._series.note(event)
        self._note(record, line)
        return self._seq

    async def sync(self) -> bool:
        """Wait until every recorded event is on disk; return whether it is."""
        return await self._journal.sync()

    @property
    def trouble(self) -> str:
        """The reason why the journal is not being written; empty if it is."""
        return self._journal.trouble

    def latest(self) -> Snapshot | None:
        """Return the newest snapshot; None before `adopt`."""
        return self._control.snapshot

    def scraped(self) -> Snapshot | None:
        """Return the newest snapshot for a scraper and note its watching of the depths; callable by any thread."""
        if self._paired is not None:
            self._paired.looks.scrape()
        return self._control.snapshot

    def stop(self, reason: str) -> None:
        """Request the end of the engine; the first reason stays."""
        self._reason = self._reason or reason
        self._ending.set()

    async def ended(self) -> str:
        """Wait for the request to end; return the reason."""
        await self._ending.wait()
        return self._reason

    # -- updates for consoles -------------------------------------------------------------------------------------

    async def _remember(self, unread: UnreadableLines) -> None:
        """Add the previous engine's timeline, in the background: consoles that connect earlier do without it.

        Then report all lines of the journal that no reader could read.
        """
        look = partial(
            replay_records,
            self._spool,
            besides=self._identity.boot,
            since=self._started_at - REPLAY_SECONDS,
            most=REPLAYED_EVENTS,
            untold=[kind.kind for kind in JOURNAL_ONLY],
            unread=unread,
        )
        try:
            self._control.remember(await asyncio.to_thread(look))
        except OSError as error:
            log.warning("the earlier timeline cannot be read from the journal: %s", error)
        for text in await asyncio.to_thread(unread.tell):
            self.warn("journal", text)

    def _welcome(self) -> Welcome:
        identity = self._identity
        return Welcome(
            engine=identity.engine,
            boot=identity.boot,
            pid=os.getpid(),
            pairing=identity.pairing,
            environment=identity.environment,
            read_only=identity.read_only,
            hides_bodies=identity.hides_bodies,
        )

    async def _execute(self, order: Request, viewer: bool) -> Reply:
        assert self._guard is not None, "the control socket opens after the pairing was adopted"
        if isinstance(order, Look):
            return await self._messages.answer(order)
        if isinstance(order, Arm):
            return self._guard.arm(order, viewer=viewer)
        if isinstance(order, PostOrder):
            return await self._guard.post(order, self._fleet, viewer=viewer)
        done = await self._guard.execute(order, viewer=viewer)
        self._wake()
        return done

    def _watched(self, watchers: int) -> None:
        """Note the number of watching consoles. A new one's first snapshot reports that depths are being read."""
        if self._paired is not None:
            self._paired.looks.watch(watchers)
            if self._paired.reading:
                self._control.publish_snapshot(self._snapshot(self._paired))

    def _counts_read(self, paired: PairedServiceBusClient) -> None:
        try:
            self._readiness.recount(paired)
        except Exception:  # the reading itself is good
            log.exception("whether a failover would work is unknown: judging failed")
        self._wake()

    def _wake(self) -> None:
        self._woken.set()

    async def _show(self, paired: PairedServiceBusClient) -> None:
        while True:
            await asyncio.sleep(MIN_SNAPSHOT_INTERVAL)
            with suppress(TimeoutError):
                async with asyncio.timeout(SNAPSHOT_INTERVAL - MIN_SNAPSHOT_INTERVAL):
                    await self._woken.wait()
            self._woken.clear()
            try:
                await self._recover_late(paired)
                self._disk.look(paired)
                snapshot = self._snapshot(paired)
                paired.note_alarms(condition_of(snapshot))
                self._control.publish_snapshot(snapshot)
                if self._fleet is not None:
                    self._fleet.note(snapshot)
            except Exception:  # consoles see an old snapshot and report it; sends and syphon continue
                log.exception("no snapshot could be made")

    async def _follow_usage(self, paired: PairedServiceBusClient) -> None:
        while True:
            try:
                usage = await read_local_usage(paired, besides=self._socket)
                paired.know_usage(usage if self._fleet is None else usage | self._fleet.usage())
            except Exception:  # clean-up asks again by itself, and refuses then
                log.exception("other engines' queues could not be read")
            await asyncio.sleep(USAGE_INTERVAL)

    def _snapshot(self, paired: PairedServiceBusClient) -> Snapshot:
        snapshot = self._complete(self._own_snapshot(paired))
        return answered(snapshot if self._fleet is None else self._fleet.add_to(snapshot))

    def _own_snapshot(self, paired: PairedServiceBusClient) -> Snapshot:
        identity = self._identity
        return Snapshot(
            engine=identity.engine,
            boot=identity.boot,
            pid=os.getpid(),
            seq=self._seq,
            at=self._clock(),
            pairing=identity.pairing,
            environment=identity.environment,
            primary=paired.primary_name,
            secondary=paired.secondary_name,
            read_only=self._reach.read_only if self._reach is not None else identity.read_only,
            entities=paired.entity_views(),
            queues=paired.queue_views(looking=False),
            syphon=drain_process.add_to(paired.syphon_view(), self._spool, now=self._clock()),
            billed=paired.billed(),
            times=times_line(self._policy),
            troubles=(*self._found(), *self._socket_trouble, *paired.troubles()),
            parked=paired.parked_view(),
            caption=self._caption(),
            readiness=self._readiness.latest,
            started_at=self._started_at,
            policy=self._policy,
            journal=self._journal.view(),
            unused=paired.unused_view(),
            own_process=identity.own_process,
            require_reason=identity.require_reason,
            reading=paired.reading,
            drain=self._draining.view(self._clock()) if self._draining is not None else None,
        )

    def warn(self, about: str, text: str) -> None:
        """Record something that an operator should know."""
        self.record(e.Warned(at=self._clock(), about=about, text=text))
