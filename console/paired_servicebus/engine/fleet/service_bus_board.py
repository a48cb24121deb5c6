"""The boards of a pairing as two queues of its secondary namespace, over our own AMQP.

Posts are peeked, never received, so readers take nothing from each other. A peek is one request of bounded size; the
event loop runs between its messages, because an enemy may have posted expensive ones. Each call ends within its own
deadline and raises only FleetBoardError.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeVar

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.connection_string import parts_of
from paired_servicebus.core.backlog.queue_settings import AccessRule
from paired_servicebus.core.errors import FleetBoardError, WireError, WireRequestError
from paired_servicebus.core.fleet.fleet_documents import Author, Board, Document, Posted, board_path
from paired_servicebus.core.fleet.fleet_events import Clean
from paired_servicebus.core.model.verdict import CREDENTIALS, FailureKind
from paired_servicebus.core.model.verdict import kind_of as failure_kind
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.engine.fleet.board_codec import read_post, write_post
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection, WireReceiver
from paired_servicebus.pairing.amqp_client.reconnecting import peek
from paired_servicebus.pairing.runtime.deadlines import GRACE, bounded
from paired_servicebus.pairing.sending.amqp_link import AmqpLink, ConnectionCutError
from paired_servicebus.secret import Secret
from servicebus_amqp.encoding.codec import Int, Timestamp
from servicebus_amqp.encoding.performatives import ACCEPTED, RELEASED
from servicebus_amqp.protocol.links import DeliveryReceived, DispositionReceived

# Deletes the posts of one board that do not count (FLEET.md section 7), or all of a flooded one (section 5).
#
# A namespace drops expired messages only for receivers, and nothing receives from a board. A batch delete removes the
# oldest messages up to a time, which the member gives: no older message counts. It reaches nothing behind a message
# that counts. If many messages that do not count lie there, and in a namespace without batch delete, messages are
# received from the head. Those that are over or no documents are completed; the others are released at the end.

BATCH_DELETE: Final = "com.microsoft:batch-delete-messages"
MAX_DELETED: Final = 500
"""Messages that one request deletes; 4,000 in the tier Premium."""
MAX_ROUNDS: Final = 20
"""Requests of one call to delete."""
FLUSH_ROUNDS: Final = 400
"""The same for a flooded board."""
MAX_RECEIVED: Final = 2_000
"""Messages that one cleaning receives."""
FLUSH_RECEIVED: Final = 250_000
RECEIVED_A_SECOND: Final = 100
"""Messages that are received a second: each costs two credits, of 1,000 that a Standard namespace has."""
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

    async def clean(self, wanted: Clean) -> int:
        """Delete posts that do not count; return the billed operations. Raises WireError."""
        operations = await self._delete_before(wanted)
        if self._has_batch_delete and not wanted.dead:
            return operations
        if not self._has_batch_delete:
            operations += 1
            if not await self._is_head_over(wanted):
                return operations
        return operations + await self._receive(wanted)

    async def _delete_before(self, wanted: Clean) -> int:
        """Delete messages that were enqueued before a time; return the requests, a bounded number. Raises WireError."""
        operations = 0
        for _ in range(FLUSH_ROUNDS if wanted.is_flush else MAX_ROUNDS):
            if not self._has_batch_delete:
                break
            operations += 1
            if await self._delete(wanted.before) < MAX_DELETED:
                break
        return operations

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

    async def _receive(self, wanted: Clean) -> int:
        receiving = _Receiver(wanted)
        try:
            await receiving.open(self._wire, self._path)
            await receiving.finish()
        finally:
            await receiving.close()
        return 2 * receiving.received


def is_over(post: Posted, wanted: Clean) -> bool:
    """Return whether a post does not count: it is over, or no document of a version that is known here."""
    is_junk = post.document is None and not post.is_newer
    return is_junk or post.ends_at <= wanted.now or post.enqueued_at < wanted.before


class _Receiver:
    """Receives messages from the head and completes the ones that do not count.

    The others are released at the end: earlier, they would come again.
    """

    def __init__(self, wanted: Clean) -> None:
        self.received = 0
        self._wanted = wanted
        self._granted = 0
        self._is_closing = False
        self._others: list[int] = []
        """Delivery ids of the posts that count."""
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
        """Receive and complete while at least half of the messages can go. Raises WireError."""
        loop = asyncio.get_running_loop()
        most = FLUSH_RECEIVED if self._wanted.is_flush else MAX_RECEIVED
        while self.received < most:
            kept, began = len(self._others), loop.time()
            is_full = await self._receive_all(STEP_MESSAGES, began + STEP_SECONDS)
            if not is_full or 2 * (len(self._others) - kept) > STEP_MESSAGES:
                break
            await asyncio.sleep(max(0.0, STEP_MESSAGES / RECEIVED_A_SECOND - (loop.time() - began)))
        await self._wait(lambda: not self._completing, loop.time() + STEP_SECONDS)

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

    async def close(self) -> None:
        """Release the other messages, and detach."""
        link = self._link
        if link is None:
            return
        self._is_closing = True
        if link.is_up:
            for delivery_id in self._others:
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
        elif is_over(read_post(event.payload, self._wanted.board), self._wanted):
            self._completing += 1
            link.settle(event.delivery_id, ACCEPTED, settled=False)
        else:
            self._others.append(event.delivery_id)

    def _on_settled(self, event: DispositionReceived) -> None:
        self._completing -= 1
        self._progress.set()

    def _on_lost(self, error: WireError) -> None:
        self._failure = error
        self._progress.set()


READ_SECONDS: Final = 5.0
WRITE_SECONDS: Final = 5.0
CLEAN_SECONDS: Final = 30.0
"""Seconds for one call."""
FLUSH_SECONDS: Final = 2_700.0
MAX_PEEKED: Final = 250
"""Messages that a namespace returns for one peek, at most."""
BYTES_PER_STEP: Final = 16 * 1024
"""Bytes of messages that are decoded before the event loop runs again."""
DECODE_SECONDS: Final = 0.5
"""Seconds after which the rest of a reading is left to the next one."""
CONTAINER: Final = "fleet"

T = TypeVar("T")

_SENTENCES: Final = {
    FailureKind.NOT_FOUND: "the board {path} is missing: create it with paired fleet setup",
    FailureKind.DISABLED: "the board {path} is disabled: enable its queue",
    FailureKind.FULL: "the board {path} is full: its old messages have to be deleted",
    **dict.fromkeys(CREDENTIALS, "the board {path} refused the key: {task} it needs {right}"),
    FailureKind.BUSY: "the secondary namespace throttles the board {path}",
    FailureKind.TOO_LARGE: "the board {path} does not accept a message of this size",
}
_RIGHT: Final = re.compile(r"'(Send|Listen|Manage)'")
_NEEDS: Final = {"reading": "Listen", "writing": "Send", "cleaning": "Listen"}


class ServiceBusBoard:
    """The boards of one pairing. Connects with the first call; each ends within seconds, and raises FleetBoardError.

    Args:
        orders, reports: the endpoint of each board, which is the secondary namespace with a key. Equal ones share a
            connection.
        primary: the primary's name in the paths of the boards.
        posted_by: this engine.
    """

    def __init__(self, *, orders: Endpoint, reports: Endpoint, primary: str, posted_by: Author) -> None:
        wire = ReconnectingConnection(orders, name=CONTAINER)
        other = wire if reports == orders else ReconnectingConnection(reports, name=CONTAINER)
        self._wires = {Board.ORDERS: wire, Board.REPORTS: other}
        self._paths = {board: board_path(primary, board) for board in Board}
        self._posted_by = posted_by
        self._links = {board: AmqpLink(self._wires[board], self._paths[board]) for board in Board}
        self._cleaners = {board: BoardCleaner(self._wires[board], self._paths[board], board) for board in Board}

    async def read(self, board: Board, since: int, most: int) -> tuple[tuple[Posted, ...], bool]:
        """Read at most `most` posts from the number `since` on, without a change to the board.

        Returns: the posts in order of number, unusable ones included; and whether none follow. Fewer than `most` posts
        may come although more follow: ask again after the last number.
        """
        count = max(1, min(most, MAX_PEEKED))
        peeked = await self._do("reading", board, READ_SECONDS, lambda: self._peek(board, since, count))
        posts = [post for post in await _decode(peeked, board) if post.number >= max(1, since)]
        if peeked and not posts:
            raise FleetBoardError(f"the board {self._paths[board]} answered with messages without numbers")
        return tuple(sorted(posts, key=lambda post: post.number)), not peeked

    async def write(self, document: Document, ttl: float) -> None:
        """Post a document with a time to live in seconds. After a timeout the board may have it all the same."""
        board = document.kind.board
        payload = write_post(document, ttl=ttl, posted_by=self._posted_by)
        await self._do("writing", board, WRITE_SECONDS, lambda: self._send(board, payload))

    async def clean(self, wanted: Clean) -> int:
        """Delete posts that do not count, a bounded number; return the billed operations. A flush takes minutes."""
        cleaner = self._cleaners[wanted.board]
        seconds = FLUSH_SECONDS if wanted.is_flush else CLEAN_SECONDS
        return await self._do("cleaning", wanted.board, seconds, lambda: cleaner.clean(wanted))

    async def close(self) -> None:
        """Close the connections. Never raises."""
        for wire in dict.fromkeys(self._wires.values()):
            try:
                await wire.close()
            except (WireError, OSError, TimeoutError):  # the namespace ends what we could not
                continue

    async def _send(self, board: Board, payload: bytes) -> None:
        """Send once more on a new link if the old one was detached: that is routine, or the new attach says why."""
        try:
            await self._links[board].send_bytes(payload, 0, WRITE_SECONDS)
        except WireError as error:
            if failure_kind(error) is not FailureKind.DETACHED:
                raise
            await self._links[board].send_bytes(payload, 0, WRITE_SECONDS)

    async def _peek(self, board: Board, since: int, count: int) -> list[bytes]:
        path = self._paths[board]
        return await peek(self._wires[board], path, from_number=max(0, since), count=count, timeout=READ_SECONDS)

    async def _do(self, task: str, board: Board, seconds: float, act: Callable[[], Awaitable[T]]) -> T:
        """Await an act within its deadline. Raises FleetBoardError for every failure of the namespace."""
        path = self._paths[board]
        try:
            return await bounded(act(), seconds + GRACE, f"{task} {path}")
        except (WireError, ConnectionCutError, OSError, TimeoutError) as error:
            raise describe_failure(error, path, task) from error


def describe_failure(error: Exception, path: str, task: str) -> FleetBoardError:
    """Return the error of a board for a failure of the namespace, in one sentence with the remedy."""
    kind = failure_kind(error)
    sentence = _SENTENCES.get(kind, "{kind}, {task} the board {path}").format(
        kind=kind, path=path, task=task, right=_rights(_NEEDS[task], str(error))
    )
    reason = repeated(masked(" ".join(str(error).split())))
    return FleetBoardError(
        f"{sentence} ({reason})",
        is_busy=kind is FailureKind.BUSY,
        is_missing=kind is FailureKind.NOT_FOUND,
        is_refused=kind in CREDENTIALS,
    )


def _rights(needed: str, reason: str) -> str:
    """Return the right that a task needs, with the one that the namespace misses beside it: a peek may need Send."""
    missing = _RIGHT.search(reason)
    return needed if missing is None or missing[1] == needed else f"{needed} and {missing[1]}"


async def _decode(peeked: list[bytes], board: Board) -> list[Posted]:
    """Decode messages in steps, with turns of the event loop between them; the first ones only, if that takes long."""
    loop = asyncio.get_running_loop()
    end = loop.time() + DECODE_SECONDS
    posts: list[Posted] = []
    size = 0
    for data in peeked:
        posts.append(read_post(data, board))
        size += len(data)
        if size >= BYTES_PER_STEP:
            if loop.time() > end:
                break
            size = 0
            await asyncio.sleep(0)
    return posts


def open_board(
    client: ServiceBusClient,
    *,
    primary: str,
    posted_by: Author,
    orders: Secret | None = None,
    reports: Secret | None = None,
) -> ServiceBusBoard:
    """Return the boards in a client's namespace, the secondary; nothing connects yet.

    Args:
        client: the secondary's; its address, transport and credential are used.
        orders, reports: connection strings with the keys of the boards' own rules; absent: the client's credential.

    Raises:
        WireUnavailableError: the client's settings cannot be read.
    """
    endpoint = Endpoint.of(client)
    return ServiceBusBoard(
        orders=with_key(endpoint, orders), reports=with_key(endpoint, reports), primary=primary, posted_by=posted_by
    )


async def find_missing_right(client: ServiceBusClient, path: str, rule: AccessRule) -> str:
    """Peek a queue with the key of a rule; return the right that the namespace misses, or ""."""
    endpoint = replace(Endpoint.of(client), credential=AzureNamedKeyCredential(rule.name, rule.key))
    wire = ReconnectingConnection(endpoint, name=CONTAINER)
    try:
        await bounded(peek(wire, path, from_number=0, count=1, timeout=READ_SECONDS), READ_SECONDS, f"a peek of {path}")
    except WireError as error:
        missing = _RIGHT.search(str(error))
        return missing[1] if missing is not None else ""
    except (OSError, TimeoutError):
        return ""
    finally:
        await wire.close()
    return ""


def with_key(endpoint: Endpoint, secret: Secret | None) -> Endpoint:
    """Return the endpoint with the key or signature of a connection string."""
    if secret is None:
        return endpoint
    parts = parts_of(secret.reveal())
    if "sharedaccesskey" in parts:
        return replace(
            endpoint, credential=AzureNamedKeyCredential(parts["sharedaccesskeyname"], parts["sharedaccesskey"])
        )
    return replace(endpoint, credential=AzureSasCredential(parts["sharedaccesssignature"]))
