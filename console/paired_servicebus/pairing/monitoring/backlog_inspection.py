"""The readings of a pairing's backlog queues: depth, unused queues, and whether a failover would work now.

Depths are read for watchers and rules; each number has the time of its reading. If the namespace is unreachable the
count is None, never 0. The figure of parked messages adds this engine's work on each queue since the reading. All
screens show the same one. A console watches until it detaches, a scraper until it stays away; a single request gets one
reading. Rules add their `reasons`; core/backlog/depth_readings.py has the periods (SPEC.md section 12).

Unused queues under the pairing's prefix are listed periodically, and deleted only with proof. Clean-up is the only
deletion in this project (SPEC.md section 4.3), and needs the queue's name from an operator. A count of zero is no
proof, since a throttled namespace reports zeros. The queue is peeked, closed to senders, and looked into again after a
pause, its dead letters too. A namespace may refuse peeks on a closed queue: there a message is received and released,
which counts as no delivery. In doubt the queue is opened again, and the error names the reason. Stranded messages are
never moved here, but by syphon/syphon.py on an operator's order.

The evidence for a failover leaves no trace: links are opened and closed, nothing is sent. An open link proves little,
since an idle one is cut silently after ten minutes. So each look opens AT_MOST links of its own, oldest proof first.
The engine's process adds its own evidence (other engines on this machine, settings of the primary's entities).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final

from azure.core.exceptions import AzureError
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.backlog.backlog_totals import (
    NOTHING,
    DepthRead,
    DrainRate,
    QueueCounters,
    QueueDepthEstimate,
    parked_view,
)
from paired_servicebus.core.backlog.depth_readings import DepthReading, GrowthDetector, PollReason, QueueUsage, every
from paired_servicebus.core.backlog.queue_settings import (
    MB,
    BacklogQueues,
    Depth,
    QueueFacts,
    QueueStatus,
    differences,
    hazards,
)
from paired_servicebus.core.errors import CleanUpError, IllegalEventError, WireError, WireTimeoutError
from paired_servicebus.core.model.pairing_events import QueueRead
from paired_servicebus.core.model.snapshot import ParkedView, SyphonStatus, UnusedQueue, UnusedView
from paired_servicebus.core.model.verdict import FailureKind, Judge, judge
from paired_servicebus.core.operator.failover_readiness import (
    Evidence,
    QueueEvidence,
    TokenEvidence,
)
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from paired_servicebus.pairing.amqp_client.endpoint import SCOPE, expiry_of
from paired_servicebus.pairing.amqp_client.reconnecting import peek
from paired_servicebus.pairing.management.backlog_queues import (
    CALL,
    CountReader,
    apply_hazards,
    depth,
    first_line,
)
from paired_servicebus.pairing.management.management_port import Management
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.sender_link import close_link
from paired_servicebus.pairing.syphon.amqp_pump import Pump
from paired_servicebus.pairing.syphon.syphon import DEAD_LETTERS, unused_index
from servicebus_amqp.encoding.performatives import RELEASED
from servicebus_amqp.protocol.links import DeliveryReceived

MIN_READ_SECONDS: Final = 2.0
"""Minimum seconds between two readings; a younger one answers a request."""
SCRAPER_SECONDS: Final = 330.0
"""Seconds in which the next scrape is expected: Prometheus forgets a sample after five minutes."""
SINGLE_READ_SECONDS: Final = 5.0
"""The assumed period after a single reading: it counts as old after twice this time."""
MAX_WAIT_SECONDS: Final = 3600.0

Reasons = Callable[[], frozenset[PollReason]]
Until = Callable[[float], Awaitable[None]]


class PollWatchers:
    """The schedule of readings.

    Args:
        clock: seconds since the epoch, never set back.
        wake: wakes tasks that wait in `until`.
    """

    def __init__(self, clock: Callable[[], float], wake: Callable[[], object]) -> None:
        self.pending = False
        """Whether a request has no answer yet."""
        self.wanted = False
        """Whether a request came after the last reading."""
        self.period = SINGLE_READ_SECONDS
        """Seconds between two readings now, for judging their age."""
        self.when_read: Callable[[], object] = lambda: None
        """Called after each reading, and after the peeks that follow it."""
        self._clock = clock
        self._wake = wake
        self._watchers = 0
        self._scraped_at = -inf
        self._read_at = -inf
        """When the last reading ended, also a failed one."""
        self._has_reader = False
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- who looks ----------------------------------------------------------------------------------------------------

    @property
    def attended(self) -> bool:
        """Whether there are watchers, or a request without an answer."""
        return self._watchers > 0 or self._is_scraped() or self.pending

    def watch(self, watchers: int) -> None:
        """Set the number of attached consoles. A new one gets a reading of now."""
        came, self._watchers = watchers > self._watchers, watchers
        if came:
            self.ask()
            self._wake()  # the period has changed

    def ask(self) -> None:
        """Request one reading soon; a very recent one is answer enough."""
        if not self.wanted and self._clock() >= self._read_at + MIN_READ_SECONDS:
            self.wanted, self.pending = True, self._has_reader
            self._wake()

    def scrape(self) -> None:
        """Count a scrape. Any thread may call it, also after the end."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and reading has ended
                self._loop.call_soon_threadsafe(self._scraped)

    def _scraped(self) -> None:
        is_new, self._scraped_at = not self._is_scraped(), self._clock()
        if is_new:
            self.ask()
            self._wake()

    def _is_scraped(self) -> bool:
        return self._clock() < self._scraped_at + SCRAPER_SECONDS

    # -- when it is read ----------------------------------------------------------------------------------------------

    async def due(self, more: Reasons, until: Until) -> None:
        """Wait until the next reading is due.

        Args:
            more: returns the rules' reasons.
            until: waits until a time, or less.
        """
        self._loop, self._has_reader = asyncio.get_running_loop(), True
        self.pending = self.pending or self.wanted
        while True:
            now = self._clock()
            at = self._due_at(more())
            if at <= now:
                return
            await until(min(at, now + MAX_WAIT_SECONDS))

    def _due_at(self, more: frozenset[PollReason]) -> float:
        found = every(more | self._reasons())
        self.period = found if found is not None else SINGLE_READ_SECONDS
        if self.wanted:
            return self._read_at + MIN_READ_SECONDS
        return self._read_at + found if found is not None else inf

    def _reasons(self) -> frozenset[PollReason]:
        held = ((PollReason.WATCHED, self._watchers > 0), (PollReason.SCRAPED, self._is_scraped()))
        return frozenset(reason for reason, holds in held if holds)

    def read(self) -> None:
        """Note the end of a reading."""
        self._read_at, self.wanted = self._clock(), False
        self.when_read()

    def answered(self) -> None:
        """Note the end of the peeks after a reading: requests have their answer."""
        self.pending = self.wanted
        self.when_read()


@dataclass(frozen=True, slots=True)
class BacklogAccess:
    """The common part of all readers of one pairing's backlog.

    admin, client: the secondary namespace's; peeks need Listen, and cleaning up needs Manage. queues: the paths of the
    backlog queues in use by index, which may have gaps. looks: the watchers; without any, little is read.
    """

    steering: PairingRuntime
    admin: Management
    client: ServiceBusClient
    queues: Mapping[int, str]
    looks: PollWatchers


JOURNAL_SECONDS: Final = 300.0
"""Seconds after which an unchanged reading is journalled again."""
MAX_READINGS: Final = 12
"""Readings of a queue for its trend: one minute's, while a console watches and messages are parked."""


class DepthPoller:
    """The periodic reader of the queues' counts; `found` has the latest by index."""

    def __init__(self, backlog: BacklogAccess) -> None:
        self.found: dict[int, DepthRead | None] = dict.fromkeys(backlog.queues)
        self.readings: dict[int, deque[DepthReading]] = {index: deque(maxlen=MAX_READINGS) for index in self.found}
        """The latest readings of each queue, oldest first."""
        self.ended = asyncio.Event()
        """Set after a try to read all queues; replaced for each reading."""
        self.when_read: Callable[[], object] = lambda: None
        """Called after each reading, before waiting tasks resume."""
        self.counts: Callable[[int], QueueCounters] = lambda _: NOTHING
        """Returns this engine's work on a queue so far."""
        self._troubles: dict[int, str] = {}
        """Why the last reading failed, by queue."""
        self._written: dict[int, tuple[tuple[int, ...] | None, float]] = {}
        self._steering, self._looks = backlog.steering, backlog.looks
        self._reader = CountReader(backlog.admin, backlog.queues)
        self._parked_before = 0

    @property
    def trouble(self) -> str:
        """The first failure of the last reading; empty if all queues were read."""
        return self._troubles[min(self._troubles)] if self._troubles else ""

    @property
    def every(self) -> float:
        """Seconds between two readings now."""
        return self._looks.period

    @property
    def messages(self) -> int:
        """The messages in all queues when last read."""
        return sum(one.depth.messages for one in self.found.values() if one is not None)

    @property
    def parked_since(self) -> int:
        """Messages that this engine has parked since the last reading began."""
        return self._steering.meter.parked - self._parked_before

    def reasons(self, *, aside: int) -> frozenset[PollReason]:
        """Return the reasons for a newer reading. `aside`: messages that this engine holds."""
        diverting = any(entity.diverting for entity in self._steering.machine.entities())
        held = (
            (PollReason.DIVERTING, diverting),
            (PollReason.PARKED, self.messages > 0 or self.parked_since > 0),
            (PollReason.LYING, self.messages > aside or self.parked_since > 0),
        )
        return frozenset(reason for reason, holds in held if holds)

    async def run(self, more: Reasons) -> None:
        """Read all queues for watchers and for the reasons `more`, until cancelled."""
        while True:
            await self._looks.due(more, self._steering.change)
            await self.read()

    async def settled(self) -> None:
        """Wait for a requested reading, if one is pending."""
        while self._looks.wanted:
            await self.ended.wait()

    async def read(self) -> None:
        parked, before = self._steering.meter.parked, {index: self.counts(index) for index in self.found}
        told = await self._reader.read()
        self._parked_before = parked
        for index, one in told.items():
            if isinstance(one, Exception):
                self._troubles[index] = self._steering.judge(one).reason
                continue
            self._troubles.pop(index, None)
            now = self._steering.clock()
            self._write_down(index, one, now)
            self.found[index] = DepthRead(now, one, before[index], self.counts(index))
            self.readings[index].append(DepthReading(now, one.messages, one.size_bytes))
        self.when_read()
        ended, self.ended = self.ended, asyncio.Event()
        ended.set()
        self._looks.read()

    def _write_down(self, index: int, found: Depth, now: float) -> None:
        """Journal a changed reading, and now and then an unchanged one."""
        counts = (found.messages, found.size_bytes, found.dead_lettered, found.scheduled)
        before, at = self._written.get(index, (None, 0.0))
        if counts == before and now < at + JOURNAL_SECONDS:
            return
        self._written[index] = counts, now
        depth_, size, dead, scheduled = counts
        self._steering.announce(
            QueueRead(at=now, queue=index, depth=depth_, size_bytes=size, dead_lettered=dead, scheduled=scheduled)
        )


class ParkedFigures:
    """The number of parked messages, by backlog queue and in total."""

    def __init__(self, steering: PairingRuntime, poller: DepthPoller) -> None:
        self.queues = {index: QueueDepthEstimate() for index in poller.found}
        self.view: ParkedView | None = None
        """The total; None: unknown."""
        self._drained = DrainRate()
        self._steering = steering
        self._poller = poller
        self.pumps: Mapping[int, Pump[Any]] = {}
        """By queue; empty if this engine runs no syphon."""
        self.is_held_up: Callable[[], bool] = lambda: any(one.diverting for one in steering.machine.entities())
        """Returns whether messages wait for an unavailable destination; with a syphon, its report knows."""
        poller.counts = self.counts

    def counts(self, index: int) -> QueueCounters:
        """Return this engine's work on a queue since it started."""
        return self._counts(index, self._added().get(index, 0))

    def look(self) -> None:
        """Update the figures by what was parked and moved until now."""
        now, added, removed = self._steering.clock(), self._added(), 0
        for index, figure in self.queues.items():
            counts = self._counts(index, added.get(index, 0))
            figure.look(self._poller.found[index], counts)
            removed += counts.removed
        messages = sum(figure.messages for figure in self.queues.values())
        read_at = min((one.read.at for one in self.queues.values() if one.read is not None), default=0.0)
        every = self._poller.every
        self._drained.look(now, messages, removed=removed, read_at=read_at, every=every, held_up=self.is_held_up())
        self.view = parked_view(self.queues.values(), self._drained, at=now, oldest=2 * every)

    def parked(self, index: int) -> int | None:
        """Return the messages parked in one queue now; None: unknown."""
        figure = self.queues[index]
        return figure.messages if figure.is_known else None

    def _counts(self, index: int, added: int) -> QueueCounters:
        pump = self.pumps.get(index)
        if pump is None:
            return QueueCounters(added=added)
        progress = pump.progress
        removed = progress.moved + progress.dead_lettered
        return QueueCounters(added=added, removed=removed, leaving=progress.unconfirmed(), aside=progress.set_aside)

    def _added(self) -> dict[int, int]:
        added: dict[int, int] = {}
        for tally in self._steering.tallies.values():
            for route, sends in tally.routes.items():
                if route.queue is not None:
                    added[route.queue] = added.get(route.queue, 0) + sends.accepted
        return added


LIST_SECONDS: Final = 300.0
"""Seconds between two listings: unused queues come from a lowered backlog_queue_count only."""
SETTLE_SECONDS: Final = 5.0
"""Seconds between closing a queue to senders and peeking: pending sends arrive or fail by then. The quiet period covers
later arrivals."""
PEEK_SECONDS: Final = 30.0
RECEIVE_SECONDS: Final = 5.0
"""Seconds in which a queue hands out a message that it holds; the answer to a drain proves that it holds none."""
PARTS: Final = (("queue", ""), ("dead-letter queue", DEAD_LETTERS))
FAILURES: Final = (AzureError, WireError, OSError)  # TimeoutError too

Elsewhere = Callable[[], Awaitable[frozenset[int]]]
"""The indices of the backlog queues that other known engines use. Raises CleanUpError: they are unknown."""


class UnusedQueues:
    """The unused queues of one pairing. Without watchers, they are listed at the start and for a syphon only."""

    def __init__(self, backlog: BacklogAccess) -> None:
        self.usage = QueueUsage()
        """The queues of other known engines."""
        self.listing = False
        """Whether a listing is under way."""
        self._listed = UnusedView(read_every=LIST_SECONDS)
        self._growing = GrowthDetector()
        self._steering, self._looks = backlog.steering, backlog.looks
        self._admin, self._client, self._queues = backlog.admin, backlog.client, backlog.queues
        self._prefix = next(iter(self._queues.values())).rpartition("/")[0] + "/"
        self._cleaning = asyncio.Lock()

    @property
    def view(self) -> UnusedView:
        """The queues that no known engine uses, with those that grow or that an engine empties."""
        moved = self.usage.moved
        growing = self._growing.indices - moved if self._steering.policy.enable_syphon else frozenset()
        unused = (queue for queue in self._listed.queues if queue.index not in self.usage.used)
        queues = (replace(one, is_moved=one.index in moved, grows=one.index in growing) for one in unused)
        return replace(self._listed, queues=tuple(queues))

    async def run(self) -> None:
        """List them once, for the alarm of stranded messages, and again while anybody watches or a syphon runs here."""
        steering = self._steering
        while True:
            await self.look()
            await asyncio.sleep(LIST_SECONDS)
            while not (steering.policy.enable_syphon or self._looks.attended):
                await steering.change(steering.clock() + LIST_SECONDS)

    async def look(self) -> None:
        """List them now; the view shows a failure beside the earlier list."""
        self.listing = True
        try:
            listed = await bounded(self._admin.queues(self._prefix), CALL, f"listing the queues under {self._prefix}")
            found = [await self._describe(facts) for facts in listed if self._index(facts.path) is not None]
        except FAILURES as error:
            self._listed = replace(self._listed, trouble=self._steering.judge(error).reason)
        else:
            queues = tuple(sorted(found, key=lambda one: one.index))
            self._listed = UnusedView(queues=queues, read_at=self._steering.clock(), read_every=LIST_SECONDS)
            self._growing.read(queues)
        finally:
            self.listing = False

    def _index(self, path: str) -> int | None:
        """Return the index of a backlog queue that this pairing does not use; None for any other queue."""
        try:
            return unused_index(path, self._queues)
        except IllegalEventError:
            return None

    async def _describe(self, facts: QueueFacts) -> UnusedQueue:
        counts = await depth(self._admin, facts.path)
        return UnusedQueue(
            path=facts.path,
            index=self._index(facts.path) or 0,
            status=facts.status,
            messages=counts.messages,
            dead_lettered=counts.dead_lettered,
            size_bytes=counts.size_bytes,
            created_at=counts.created_at,
            last_active=counts.last_active,
            differences=tuple(differences(facts)),
        )

    # -- cleaning up --------------------------------------------------------------------------------------------------

    async def clean_up(self, path: str, *, elsewhere: Elsewhere | None = None) -> str:
        """Delete an unused queue if it is proven to be empty; return a sentence with the evidence.

        Args:
            path: the queue that the operator named.
            elsewhere: returns the indices in use by other known engines; called at the start and right before the
                deletion. None: no other engines are known.

        Raises:
            IllegalEventError: this pairing uses it, or it is no backlog queue of this pairing.
            CleanUpError: it stays; the text has the reason.
        """
        index = unused_index(path, self._queues)

        async def refuse_used() -> None:
            if elsewhere is not None and index in await elsewhere():
                raise CleanUpError(f"{path} stays: another engine on this machine uses it")

        async with self._cleaning, AsyncExitStack() as stack:
            try:
                await refuse_used()
                wire = ReconnectingConnection(Endpoint.of(self._client))
                stack.push_async_callback(wire.close)
                return await self._prove_and_delete(wire, path, refuse_used)
            except FAILURES as error:
                raise CleanUpError(f"{path} stays: {self._steering.judge(error).reason}") from error
            finally:
                await self.look()

    async def _prove_and_delete(
        self, wire: ReconnectingConnection, path: str, refuse_used: Callable[[], Awaitable[None]]
    ) -> str:
        quiet = await self._check_quiet(path)
        for part, suffix in PARTS:  # while it is open: a peek sees locked, deferred and scheduled messages too
            if await self._peek(wire, path + suffix):
                raise CleanUpError(f"{path} stays: a message was seen in its {part}, despite its counts")
        before = await depth(self._admin, path)  # the peeks were activity
        await self._set(path, QueueStatus.SEND_DISABLED)
        deleted = False
        try:
            await asyncio.sleep(SETTLE_SECONDS)
            await self._prove_empty(wire, path, before)
            await refuse_used()  # an engine may have begun to use it meanwhile
            await bounded(self._admin.delete_queue(path), CALL, f"deleting {path}")
            deleted = True
        finally:
            if not deleted:
                await asyncio.shield(self._open_again(path))
        at, active = clock(self._steering.clock()), clock(quiet.last_active or quiet.created_at or 0.0)
        proof = "closed to senders, then empty of messages and dead letters"
        return f"{path} was deleted {at}: {proof}; last active {active}"

    async def _check_quiet(self, path: str) -> Depth:
        """Return its counts. Raises CleanUpError for a reason to keep it."""
        listed = await bounded(self._admin.queues(path), CALL, f"looking for {path}")
        facts = next((one for one in listed if one.path.casefold() == path.casefold()), None)
        if facts is None:
            raise CleanUpError(f"{path} does not exist any more")
        if facts.status not in (QueueStatus.ACTIVE, QueueStatus.SEND_DISABLED):
            raise CleanUpError(f"{path} stays: its status is {facts.status}, which its owner set")
        counts = await depth(self._admin, path)
        active = counts.last_active if counts.last_active is not None else counts.created_at
        if active is None:
            raise CleanUpError(f"{path} stays: the namespace does not report its last activity")
        quiet = self._steering.policy.quiet_period
        if self._steering.clock() - active < quiet:
            raise CleanUpError(
                f"{path} stays: it was active {clock(active)}, and a sent message can take {quiet:g} s to appear"
            )
        if counts.messages or counts.dead_lettered:
            raise CleanUpError(f"{path} stays: {_format_counts(counts)} in it; move the stranded messages first")
        return counts

    async def _prove_empty(self, wire: ReconnectingConnection, path: str, before: Depth) -> None:
        after = await depth(self._admin, path)  # before the peeks, which are activity too
        if after.messages or after.dead_lettered:
            raise CleanUpError(f"{path} stays: {_format_counts(after)} in it now")
        if after.last_active != before.last_active:
            raise CleanUpError(f"{path} stays: it was used {clock(after.last_active or 0.0)}")
        for part, suffix in PARTS:
            if await self._has_messages(wire, path + suffix):
                raise CleanUpError(f"{path} stays: a message was seen in its {part}, despite its counts")

    async def _has_messages(self, wire: ReconnectingConnection, path: str) -> bool:
        """Look into a closed queue by what the namespace permits. Raises CleanUpError if it permits nothing."""
        try:
            return await self._peek(wire, path)
        except FAILURES as refused:
            reason = self._steering.judge(refused).reason
            try:
                return await self._receive(wire, path)
            except FAILURES as error:
                why = f"neither a peek ({reason}) nor a receive ({self._steering.judge(error).reason})"
                queue = path.removesuffix(DEAD_LETTERS)
                raise CleanUpError(f"{queue} stays, open again: closed to senders, it permits {why}") from error

    async def _peek(self, wire: ReconnectingConnection, path: str) -> bool:
        return bool(await peek(wire, path, from_number=1, count=1, timeout=PEEK_SECONDS))

    async def _receive(self, wire: ReconnectingConnection, path: str) -> bool:
        """Return whether the queue hands out a message; its lock is given back, and its delivery is not counted."""
        found = asyncio.Event()
        lost: list[WireError] = []

        def release(delivery: DeliveryReceived) -> None:
            receiver.settle(delivery.delivery_id, RELEASED)
            found.set()

        receiver = await wire.receiver(path, on_delivery=release, on_lost=lost.append, timeout=PEEK_SECONDS)
        receiver.grant(1)
        with suppress(TimeoutError):
            await asyncio.wait_for(found.wait(), RECEIVE_SECONDS)
        await receiver.detach()
        if not found.is_set() and not receiver.is_drained:
            lost.append(WireTimeoutError(f"{path} did not return the credit of a receive"))
        if lost:
            raise lost[0]
        return found.is_set()

    async def _open_again(self, path: str) -> None:
        try:
            await self._set(path, QueueStatus.ACTIVE)
        except FAILURES as error:
            reason = self._steering.judge(error).reason
            raise CleanUpError(
                f"{path} stays, closed to senders (SendDisabled): it could not be opened again ({reason})"
            ) from error

    async def _set(self, path: str, status: QueueStatus) -> None:
        await bounded(self._admin.set_status(path, status), CALL, f"setting {path} to {status}")


def _format_counts(counts: Depth) -> str:
    return f"{counts.messages} messages and {counts.dead_lettered} dead letters are"


AT_MOST: Final = 10
"""Links that one look opens, at 23 ms of CPU each with the SDK."""
CONCURRENT_PROBES: Final = 3
ATTACH_SECONDS: Final = 10.0
"""Seconds in which a backlog queue has to answer."""
TOKEN_SECONDS: Final = 10.0
"""Seconds in which a credential has to return a token."""
_UNREACHABLE: Final = frozenset({FailureKind.TIMEOUT, FailureKind.CONNECTION, FailureKind.COMMUNICATION})


@dataclass(slots=True)
class ReadinessProbes:
    """The latest proof of each backlog queue: whether a link to it could be opened.

    Args:
        client: the secondary namespace's; not closed here.
        paths: the backlog queues by index.
        judge: the verdict on exceptions.
        clock: seconds since the epoch.
    """

    client: ServiceBusClient
    paths: Sequence[str]
    judge: Judge = judge
    clock: Callable[[], float] = time.time
    _found: dict[str, QueueEvidence] | None = None

    async def look(self) -> tuple[QueueEvidence, ...]:
        """Open links to the queues with the oldest proofs; return the evidence of all queues."""
        found = self._found = self._found or {path: QueueEvidence(path=path) for path in self.paths}
        due = sorted(found.values(), key=lambda one: one.tried_at or 0.0)[:AT_MOST]
        gate = asyncio.Semaphore(CONCURRENT_PROBES)
        for proof in await asyncio.gather(*(self._try(one.path, gate) for one in due)):
            found[proof.path] = proof
        return tuple(found.values())

    async def _try(self, path: str, gate: asyncio.Semaphore) -> QueueEvidence:
        async with gate:
            refusal, kind = "", None
            sender = self.client.get_queue_sender(path)
            try:
                await bounded(sender.__aenter__(), ATTACH_SECONDS, f"opening a link to {path}")
            except Exception as error:  # noqa: BLE001 - any error means that no link could be opened
                judgement = self.judge(error)
                refusal, kind = judgement.reason, judgement.kind
            finally:
                await close_link(sender)
        return QueueEvidence(path=path, tried_at=self.clock(), refusal=refusal, unreachable=kind in _UNREACHABLE)


async def read_counts(admin: Management, queues: Iterable[QueueEvidence]) -> list[QueueEvidence]:
    """Return the queues with their present counts and limits.

    Raises:
        AzureError, OSError, TimeoutError: management does not answer.
    """
    known = list(queues)
    settings = await read_settings(admin, [queue.path for queue in known])
    return [await _read_queue(admin, queue, settings.get(queue.path.casefold())) for queue in known]


async def _read_queue(admin: Management, queue: QueueEvidence, facts: QueueFacts | None) -> QueueEvidence:
    if facts is None:  # it is missing, and its link was refused for that
        return queue
    counts = await depth(admin, queue.path)
    return replace(
        queue,
        messages=counts.messages,
        size_bytes=counts.size_bytes,
        limit_bytes=facts.max_size_mb * MB if facts.max_size_mb else None,
        unsafe="; ".join(hazards(facts)),
        read_at=time.time(),
    )


async def read_settings(admin: Management, paths: Sequence[str]) -> dict[str, QueueFacts]:
    """Return the settings of backlog queues, by path in lower case.

    Raises:
        AzureError, OSError, TimeoutError: management does not answer.
    """
    prefix = paths[0].rpartition("/")[0] if paths else ""
    listed = await bounded(admin.queues(prefix), CALL, "listing the backlog queues")
    return {queue.path.casefold(): queue for queue in listed}


async def validity(client: ServiceBusClient) -> TokenEvidence:
    """Return a credential's expiry. A key signs again each time; a ready signature cannot be renewed."""
    host = client.fully_qualified_namespace
    credential = sdk_internals.client_credential(client)
    if sdk_internals.is_key(credential):
        return TokenEvidence(namespace=host)
    signature = sdk_internals.signature_of(credential)
    if signature:
        return TokenEvidence(namespace=host, expires_at=expiry_of(signature), renewable=False)
    try:
        token = await bounded(credential.get_token(SCOPE), TOKEN_SECONDS, f"getting a token for {host}")
    except Exception as error:  # noqa: BLE001 - a credential may raise anything; the evidence has it
        return TokenEvidence(namespace=host, trouble=first_line(error)[:200])
    return TokenEvidence(namespace=host, expires_at=float(token.expires_on))


async def expiry(admin: Management, path: str) -> tuple[str, bool | None]:
    """Return a queue's or subscription's path, and whether it dead-letters expired messages; None: unknown."""
    try:
        kept = await bounded(admin.keeps_expired(path), CALL, f"reading the settings of {path}")
    except (AzureError, OSError, TimeoutError):
        return path, None
    return kept or path, None if kept is None else bool(kept)


SETTINGS_SECONDS: Final = 300.0
"""Seconds between two readings of the queues' settings, which only their owner changes."""
WAIT_SECONDS: Final = 10.0
"""Seconds that a look waits for management."""


class Inspection:
    """The collector of the evidence. Without watchers, management is not queried.

    Args:
        primary: the primary namespace's client.
        poller: the counts, read again on request.
        found: returns the queues as the pairing knows them; their settings are read again, and applied.
    """

    def __init__(
        self,
        backlog: BacklogAccess,
        primary: ServiceBusClient,
        poller: DepthPoller,
        found: Callable[[], BacklogQueues],
    ) -> None:
        self._steering = steering = backlog.steering
        self._looks = backlog.looks
        self._clients = (primary, backlog.client)
        self._admin, self._queues = backlog.admin, backlog.queues
        self._poller = poller
        self._found = found
        self._proofs = ReadinessProbes(backlog.client, tuple(self._queues.values()), steering.judge, steering.clock)
        self._settings_at = 0.0

    async def look(self, names: tuple[str, str], syphon: SyphonStatus, limit: int | None, *, ask: bool) -> Evidence:
        """Collect the evidence; opens links to backlog queues.

        Args:
            names: the primary's and the secondary's.
            limit: the bytes of the largest message that the backlog accepts.
            ask: read the counts again, even without watchers.
        """
        steering = self._steering
        if ask:
            self._looks.ask()
        waits = (self._read_settings(), self._fresh_counts()) if ask or self._looks.attended else ()
        began = steering.clock()
        proofs, *_ = await asyncio.gather(self._proofs.look(), *waits)
        for index, proof in zip(self._queues, proofs, strict=True):
            if not proof.refusal and (proof.tried_at or 0.0) >= began:
                steering.queue_answered(index)
        evidence = Evidence(
            at=steering.clock(),
            primary=names[0],
            secondary=names[1],
            queues=proofs,
            queues_wanted=steering.policy.backlog_queue_count,
            tokens=tuple([await validity(client) for client in self._clients]),
            syphon=syphon,
            too_large=self._too_large(),
            limit_bytes=limit,
            ping=steering.policy.ping,
            asked=bool(waits),
        )
        return self.recounted(evidence)

    def recounted(self, evidence: Evidence) -> Evidence:
        """Return the evidence with the present counts."""
        queues = zip(self._queues, evidence.queues, strict=True)
        return replace(
            evidence,
            queues=tuple(self._with_counts(index, proof) for index, proof in queues),
            trouble=self._poller.trouble,
        )

    def _too_large(self) -> tuple[tuple[str, int], ...] | None:
        """Return the too large messages by entity; None if no sent message could be measured."""
        tallies = [(one.path, self._steering.tally(one.path)) for one in self._steering.machine.entities()]
        if not any(sends.accepted for _, tally in tallies for sends in tally.routes.values()):
            return None
        return tuple((path, tally.too_large) for path, tally in tallies)

    def _with_counts(self, index: int, proof: QueueEvidence) -> QueueEvidence:
        sample = self._poller.found.get(index)
        place = next(place for place in self._steering.machine.rotation.places if place.index == index)
        proof = replace(proof, limit_bytes=self._found().limit(index), unsafe=place.reason if place.withheld else "")
        if sample is None:
            return proof
        return replace(
            proof,
            messages=sample.depth.messages,
            size_bytes=sample.depth.size_bytes,
            read_at=sample.at,
        )

    async def _fresh_counts(self) -> None:
        with suppress(TimeoutError):  # counts not read by then are unknown
            async with asyncio.timeout(WAIT_SECONDS):
                await self._poller.settled()

    async def _read_settings(self) -> None:
        now = self._steering.clock()
        if now - self._settings_at < SETTINGS_SECONDS:
            return
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                settings = await read_settings(self._admin, tuple(self._queues.values()))
        except (AzureError, OSError, TimeoutError):
            return  # the counts' own failure is reported
        self._settings_at = now
        found = self._found()
        found.settings.update(
            {index: facts for index, path in self._queues.items() if (facts := settings.get(path.casefold()))}
        )
        apply_hazards(self._steering, found)
