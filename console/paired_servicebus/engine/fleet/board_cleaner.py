"""Deletes the posts of one board that do not count (FLEET.md section 7).

A namespace drops expired messages only for receivers, and nothing receives from a board. A batch delete removes the
oldest messages up to a time, which the member gives: no older message counts. It reaches nothing behind a message that
counts. If many messages lie there, and in a namespace without batch delete, messages are received from the head. The
ones that do not count are completed; the others are released.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from paired_servicebus.core.errors import WireError, WireRequestError
from paired_servicebus.core.fleet.board.counting_posts import MAX_RECEIVED, MIN_BEHIND, CountingPosts
from paired_servicebus.core.fleet.fleet_documents import Board, Posted
from paired_servicebus.core.fleet.fleet_events import Clean
from paired_servicebus.engine.fleet.board_codec import read_post
from paired_servicebus.engine.fleet.board_port import Cleaned
from paired_servicebus.pairing.amqp_client import ReconnectingConnection, WireReceiver
from paired_servicebus.pairing.amqp_client.entity_management import peek
from servicebus_amqp import ACCEPTED
from servicebus_amqp.encoding.amqp_types import Int, Timestamp
from servicebus_amqp.encoding.messaging_types import RELEASED
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived

BATCH_DELETE: Final = "com.microsoft:batch-delete-messages"
MAX_DELETED: Final = 500
"""Messages that one request deletes; 4,000 in the tier Premium."""
MAX_ROUNDS: Final = 20
"""Requests of one call to delete."""
STEP_SECONDS: Final = 5.0
"""Seconds for one request, and for the messages of one receiver."""
STEP_MESSAGES: Final = 50
"""Messages that a receiver asks for together: a namespace may drop ended ones, and deliver the ones behind them."""
QUIET_SECONDS: Final = 0.5
"""Seconds without a message after which a receiver has all."""
_UNKNOWN_STATUS: Final = frozenset({400, 405, 501})
_UNKNOWN: Final = frozenset({"amqp:not-implemented", "amqp:not-allowed", "com.microsoft:argument-error"})
"""Answers of a namespace that has no batch delete, or none for this queue."""


class BoardCleaner:
    """The cleaning of one board."""

    def __init__(self, wire: ReconnectingConnection, path: str, board: Board) -> None:
        self._wire = wire
        self._path = path
        self._board = board
        self._has_batch_delete = True

    async def clean(self, wanted: Clean) -> Cleaned:
        """Delete posts that do not count. Raises WireError."""
        done = await self._delete_before(wanted.before)
        if wanted.behind < MIN_BEHIND:
            if self._has_batch_delete:
                return done
            done += Cleaned(operations=1)
            if not await self._is_head_over(wanted):
                return done
        return done + await self._receive(wanted)

    async def _delete_before(self, before: float) -> Cleaned:
        """Delete the messages that were enqueued before a time, a bounded number. Raises WireError."""
        done = Cleaned()
        for _ in range(MAX_ROUNDS):
            if not self._has_batch_delete:
                break
            batch = await self._delete(before)
            done += Cleaned(deleted=batch, operations=1)
            if batch < MAX_DELETED:
                break
        return done

    async def _delete(self, before: float) -> int:
        """Delete the oldest messages that were enqueued before a time; return their number. Raises WireError."""
        body = {"message-count": Int(MAX_DELETED), "enqueued-time-utc": Timestamp(round(before * 1000))}
        try:
            reply = await self._wire.request(self._path, BATCH_DELETE, body, timeout=STEP_SECONDS)
        except WireRequestError as error:
            if error.status not in _UNKNOWN_STATUS and error.condition not in _UNKNOWN:
                raise
            self._has_batch_delete = False
            return 0
        count = reply.body.get("message-count") if isinstance(reply.body, dict) else None
        return int(count) if isinstance(count, int) else 0

    async def _is_head_over(self, wanted: Clean) -> bool:
        """Return whether the first message does not count, so that receiving deletes at least it. Raises WireError."""
        page = await peek(self._wire, self._path, from_number=0, count=1, timeout=STEP_SECONDS)
        return any(is_over(read_post(data, self._board), wanted) for data in page)

    async def _receive(self, wanted: Clean) -> Cleaned:
        receiving = _Receiver(wanted, is_alone=not self._has_batch_delete)
        try:
            await receiving.open(self._wire, self._path)
            await receiving.finish()
        finally:
            await receiving.close()
        return Cleaned(deleted=receiving.completed, behind=receiving.behind, operations=2 * receiving.received)


def is_over(post: Posted, wanted: Clean) -> bool:
    """Return whether a post does not count, whatever else is on the board."""
    return post.ends_at <= wanted.now or post.enqueued_at < wanted.before


class _Receiver:
    """Receives messages from the head and completes the ones that do not count.

    The others are released at the end: earlier, they would come again. A message that a later one of them supersedes is
    completed too.

    Args:
        is_alone: there is no batch delete, so it goes on while at least half of the messages do not count.
    """

    def __init__(self, wanted: Clean, *, is_alone: bool) -> None:
        self.completed = self.received = self.behind = 0
        self._wanted, self._is_alone = wanted, is_alone
        self._granted = self._newest = 0
        self._is_closing = False
        self._counting = CountingPosts(wanted.board)
        self._others: list[tuple[int, Posted]] = []
        """Delivery ids and posts that are not over."""
        self._completing = 0
        self._link: WireReceiver | None = None
        self._failure: WireError | None = None
        self._progress = asyncio.Event()

    async def open(self, wire: ReconnectingConnection, path: str) -> None:
        """Attach. Raises WireError."""
        self._link = await wire.receiver(
            path,
            on_delivery=self._on_delivery,
            on_settled=self._on_settled,
            on_lost=self._on_lost,
            timeout=STEP_SECONDS,
        )

    async def finish(self) -> None:
        """Receive and complete up to the last number; without batch delete, while half can go. Raises WireError."""
        end, is_full = asyncio.get_running_loop().time() + STEP_SECONDS, True
        while is_full and self.received < MAX_RECEIVED:
            kept = len(self._others)
            is_full = await self._receive_all(STEP_MESSAGES, end)
            self._complete_superseded()
            is_useful = self._is_alone and 2 * (len(self._others) - kept) <= STEP_MESSAGES
            if self._newest >= self._wanted.last and not is_useful:
                break
        await self._wait(lambda: not self._completing, end)

    async def _receive_all(self, count: int, end: float) -> bool:
        """Receive `count` more messages; return whether all came. Raises WireError."""
        self._granted += count
        if self._link is not None:
            self._link.grant(count)
        await self._wait(lambda: self.received >= self._granted, end)
        return self.received >= self._granted

    async def _wait(self, is_done: Callable[[], bool], end: float) -> None:
        """Wait until it is done, the end, or QUIET_SECONDS without progress. Raises WireError."""
        while self._failure is None and not is_done() and asyncio.get_running_loop().time() < end:
            self._progress.clear()
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    await self._progress.wait()
            except TimeoutError:
                break
        if self._failure is not None:
            raise self._failure

    def _complete_superseded(self) -> None:
        others, self._others = self._others, []
        for delivery_id, post in others:
            if self._counting.counts(post, self._wanted.now):
                self._others.append((delivery_id, post))
            else:
                self._complete(delivery_id, post)

    def _complete(self, delivery_id: int, post: Posted) -> None:
        if self._link is not None:
            self._completing += 1
            self.behind += post.number <= self._wanted.last and post.enqueued_at >= self._wanted.before
            self._link.settle(delivery_id, ACCEPTED, settled=False)

    async def close(self) -> None:
        """Release the other messages, and detach."""
        link = self._link
        if link is None:
            return
        self._is_closing = True
        if link.is_up:
            for delivery_id, _ in self._others:
                link.settle(delivery_id, RELEASED)
        self._others = []
        await link.detach()

    def _on_delivery(self, event: DeliveryReceived) -> None:
        self.received += 1
        self._progress.set()
        link = self._link
        if link is None:
            return
        if self._is_closing:
            link.settle(event.delivery_id, RELEASED)
            return
        post = read_post(event.payload, self._wanted.board)
        self._newest = max(self._newest, post.number)
        self._counting.add(post)
        if is_over(post, self._wanted):
            self._complete(event.delivery_id, post)
        else:
            self._others.append((event.delivery_id, post))

    def _on_settled(self, event: DispositionReceived) -> None:
        self._completing -= 1
        self.completed += 1
        self._progress.set()

    def _on_lost(self, error: WireError) -> None:
        self._failure = error
        self._progress.set()
