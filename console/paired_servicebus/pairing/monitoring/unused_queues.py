"""The unused backlog queues under the pairing's prefix: listed periodically, and deleted only with proof.

Clean-up is the only deletion in this project (SPEC.md section 4.3), and needs the queue's name from an operator. A
count of zero is no proof, since a throttled namespace reports zeros. The queue is peeked, closed to senders, and looked
into again after a pause, its dead letters too. A namespace may refuse peeks on a closed queue: there a message is
received and released, which counts as no delivery. In doubt the queue is opened again, and the error names the reason.
Stranded messages are never moved here, but by syphon/redrive.py on an operator's order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from paired_servicebus.core.backlog.depth_readings import GrowthDetector, QueueUsage
from paired_servicebus.core.errors import CleanUpError, IllegalEventError, WireError, WireTimeoutError
from paired_servicebus.core.model.snapshot import UnusedQueue, UnusedView
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from paired_servicebus.pairing.management.backlog_queues import CALL, depth, differences
from paired_servicebus.pairing.management.management_port import Depth, Management, QueueFacts, QueueStatus
from paired_servicebus.pairing.monitoring.depth_poller import PollWatchers
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.sender_link import close_link
from paired_servicebus.pairing.syphon.redrive import DEAD_LETTERS, unused_index
from servicebus_amqp.encoding.messaging_types import RELEASED
from servicebus_amqp.protocol.protocol_events import DeliveryReceived

LIST_SECONDS: Final = 300.0
"""Seconds between two listings: unused queues come from a lowered backlog_queue_count only."""
SETTLE_SECONDS: Final = 5.0
"""Seconds between closing a queue to senders and peeking: pending sends arrive or fail by then. The quiet period covers
later arrivals."""
PEEK_SECONDS: Final = 30.0
RECEIVE_SECONDS: Final = 5.0
"""Seconds in which a queue hands out a message that it holds; the answer to a drain proves that it holds none."""
PARTS: Final = (("queue", None), ("dead-letter queue", ServiceBusSubQueue.DEAD_LETTER))
FAILURES: Final = (AzureError, ServiceBusError, OSError, TimeoutError)

Elsewhere = Callable[[], Awaitable[frozenset[int]]]
"""The indices of the backlog queues that other known engines use. Raises CleanUpError: they are unknown."""


async def nowhere() -> frozenset[int]:
    """Return no indices, for a pairing that knows no other engines."""
    return frozenset()


class UnusedQueues:
    """The unused backlog queues of one pairing.

    Args:
        admin: the secondary namespace's management; needs Manage to clean up.
        client: the secondary namespace's client, for peeks; needs Listen.
        queues: the paths of the backlog queues in use by index, which may have gaps.
        looks: the watchers; without any, queues are listed at the start and for a syphon only.
    """

    def __init__(
        self,
        steering: PairingRuntime,
        admin: Management,
        client: ServiceBusClient,
        queues: Mapping[int, str],
        looks: PollWatchers,
    ) -> None:
        self.usage = QueueUsage()
        """The queues of other known engines."""
        self.listing = False
        """Whether a listing is under way."""
        self._listed = UnusedView(read_every=LIST_SECONDS)
        self._growing = GrowthDetector()
        self._steering = steering
        self._admin = admin
        self._client = client
        self._queues = queues
        self._looks = looks
        self._prefix = next(iter(queues.values())).rpartition("/")[0] + "/"
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

    async def clean_up(self, path: str, *, elsewhere: Elsewhere = nowhere) -> str:
        """Delete an unused queue if it is proven to be empty; return a sentence with the evidence.

        Args:
            path: the queue that the operator named.
            elsewhere: returns the indices in use by other known engines; called at the start and right before the
                deletion.

        Raises:
            IllegalEventError: this pairing uses it, or it is no backlog queue of this pairing.
            CleanUpError: it stays; the text has the reason.
        """
        index = unused_index(path, self._queues)

        async def refuse_used() -> None:
            if index in await elsewhere():
                raise CleanUpError(f"{path} stays: another engine on this machine uses it")

        async with self._cleaning:
            try:
                await refuse_used()
                return await self._prove_and_delete(path, refuse_used)
            except FAILURES as error:
                raise CleanUpError(f"{path} stays: {self._steering.judge(error).reason}") from error
            finally:
                await self.look()

    async def _prove_and_delete(self, path: str, refuse_used: Callable[[], Awaitable[None]]) -> str:
        quiet = await self._check_quiet(path)
        for part, sub_queue in PARTS:  # while it is open: a peek sees locked, deferred and scheduled messages too
            if await self._peek(path, sub_queue):
                raise CleanUpError(f"{path} stays: a message was seen in its {part}, despite its counts")
        before = await depth(self._admin, path)  # the peeks were activity
        await self._set(path, QueueStatus.SEND_DISABLED)
        deleted = False
        try:
            await asyncio.sleep(SETTLE_SECONDS)
            await self._prove_empty(path, before)
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

    async def _prove_empty(self, path: str, before: Depth) -> None:
        after = await depth(self._admin, path)  # before the peeks, which are activity too
        if after.messages or after.dead_lettered:
            raise CleanUpError(f"{path} stays: {_format_counts(after)} in it now")
        if after.last_active != before.last_active:
            raise CleanUpError(f"{path} stays: it was used {clock(after.last_active or 0.0)}")
        for part, sub_queue in PARTS:
            if await self._has_messages(path, sub_queue):
                raise CleanUpError(f"{path} stays: a message was seen in its {part}, despite its counts")

    async def _has_messages(self, path: str, sub_queue: ServiceBusSubQueue | None) -> bool:
        """Look into a closed queue by what the namespace permits. Raises CleanUpError if it permits nothing."""
        try:
            return await self._peek(path, sub_queue)
        except FAILURES as refused:
            reason = self._steering.judge(refused).reason
            try:
                return await self._receive(path if sub_queue is None else path + DEAD_LETTERS)
            except (*FAILURES, WireError) as error:
                raise CleanUpError(
                    f"{path} stays, open again: closed to senders, it permits neither a peek ({reason}) nor a receive "
                    f"({self._steering.judge(error).reason})"
                ) from error

    async def _peek(self, path: str, sub_queue: ServiceBusSubQueue | None) -> bool:
        receiver = self._client.get_queue_receiver(path, sub_queue=sub_queue)
        try:
            await bounded(receiver.__aenter__(), PEEK_SECONDS, f"opening {path}")
            return bool(
                await bounded(receiver.peek_messages(max_message_count=1), PEEK_SECONDS, f"peeking into {path}")
            )
        finally:
            await close_link(receiver)

    async def _receive(self, path: str) -> bool:
        """Return whether the queue hands out a message; its lock is given back, and its delivery is not counted."""
        found = asyncio.Event()
        wire = ReconnectingConnection(Endpoint.of(self._client))
        lost: list[WireError] = []

        def release(delivery: DeliveryReceived) -> None:
            receiver.settle(delivery.delivery_id, RELEASED)
            found.set()

        try:
            receiver = await wire.receiver(path, on_delivery=release, on_lost=lost.append, timeout=PEEK_SECONDS)
            receiver.grant(1)
            with suppress(TimeoutError):
                await asyncio.wait_for(found.wait(), RECEIVE_SECONDS)
            await receiver.detach()
            if not found.is_set() and not receiver.is_drained:
                lost.append(WireTimeoutError(f"{path} did not return the credit of a receive"))
        finally:
            await wire.close()
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
