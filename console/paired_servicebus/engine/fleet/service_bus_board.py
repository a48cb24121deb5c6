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
from paired_servicebus.core.errors import FleetBoardError, WireError
from paired_servicebus.core.fleet.fleet_documents import BOARD_OF, Board, Document, Posted, board_path, kind_of
from paired_servicebus.core.fleet.fleet_events import Clean
from paired_servicebus.core.model.verdict import CREDENTIALS, FailureKind
from paired_servicebus.core.model.verdict import kind_of as failure_kind
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.engine.fleet.board_cleaner import BoardCleaner
from paired_servicebus.engine.fleet.board_codec import PostedBy, read_post, write_post
from paired_servicebus.engine.fleet.board_port import Cleaned
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection, WireSender, failure_of
from paired_servicebus.pairing.amqp_client.entity_management import peek
from paired_servicebus.pairing.runtime.deadlines import GRACE, bounded
from paired_servicebus.secret import Secret
from servicebus_amqp.protocol.protocol_events import DispositionReceived

READ_SECONDS: Final = 5.0
WRITE_SECONDS: Final = 5.0
CLEAN_SECONDS: Final = 30.0
"""Seconds for one call."""
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
    """The boards of one pairing. Connects with the first call.

    Args:
        orders, reports: the endpoint of each board, which is the secondary namespace with a key. Equal ones share a
            connection.
        primary: the primary's name in the paths of the boards.
        posted_by: this engine.
    """

    def __init__(self, *, orders: Endpoint, reports: Endpoint, primary: str, posted_by: PostedBy) -> None:
        wire = ReconnectingConnection(orders, name=CONTAINER)
        other = wire if reports == orders else ReconnectingConnection(reports, name=CONTAINER)
        self._wires = {Board.ORDERS: wire, Board.REPORTS: other}
        self._paths = {board: board_path(primary, board) for board in Board}
        self._posted_by = posted_by
        self._posting = {board: _Posting(self._wires[board], self._paths[board]) for board in Board}
        self._cleaners = {board: BoardCleaner(self._wires[board], self._paths[board], board) for board in Board}

    async def read(self, board: Board, since: int, most: int) -> tuple[tuple[Posted, ...], bool]:
        """Read at most `most` posts from the number `since` on. Implement `FleetBoard`."""
        count = max(1, min(most, MAX_PEEKED))
        peeked = await self._do("reading", board, READ_SECONDS, lambda: self._peek(board, since, count))
        posts = [post for post in await _decode(peeked, board) if post.number >= max(1, since)]
        if peeked and not posts:
            raise FleetBoardError(f"the board {self._paths[board]} answered with messages without numbers")
        return tuple(sorted(posts, key=lambda post: post.number)), not peeked

    async def write(self, document: Document, ttl: float) -> None:
        """Post a document. Implement `FleetBoard`."""
        board = BOARD_OF[kind_of(document)]
        payload = write_post(document, ttl=ttl, posted_by=self._posted_by)
        await self._do("writing", board, WRITE_SECONDS, lambda: self._posting[board].post(payload, WRITE_SECONDS))

    async def clean(self, wanted: Clean) -> Cleaned:
        """Delete posts that do not count. Implement `FleetBoard`."""
        cleaner = self._cleaners[wanted.board]
        return await self._do("cleaning", wanted.board, CLEAN_SECONDS, lambda: cleaner.clean(wanted))

    async def close(self) -> None:
        """Close the connections. Implement `FleetBoard`."""
        for wire in dict.fromkeys(self._wires.values()):
            try:
                await wire.close()
            except (WireError, OSError, TimeoutError):  # the namespace ends what we could not
                continue

    async def _peek(self, board: Board, since: int, count: int) -> list[bytes]:
        path = self._paths[board]
        return await peek(self._wires[board], path, from_number=max(0, since), count=count, timeout=READ_SECONDS)

    async def _do(self, task: str, board: Board, seconds: float, act: Callable[[], Awaitable[T]]) -> T:
        """Await an act within its deadline. Raises FleetBoardError for every failure of the namespace."""
        path = self._paths[board]
        try:
            return await bounded(act(), seconds + GRACE, f"{task} {path}")
        except (WireError, OSError, TimeoutError) as error:
            raise describe_failure(error, path, task) from error


def describe_failure(error: Exception, path: str, task: str) -> FleetBoardError:
    """Return the error of a board for a failure of the namespace, in one sentence with the remedy."""
    kind = failure_kind(error)
    sentence = _SENTENCES.get(kind, "{task} the board {path} failed").format(
        path=path, task=task, right=_rights(_NEEDS[task], str(error))
    )
    reason = repeated(masked(" ".join(str(error).split())))
    return FleetBoardError(
        f"{sentence} ({reason})", is_busy=kind is FailureKind.BUSY, is_missing=kind is FailureKind.NOT_FOUND
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


class _Posting:
    """The sender link of one board, attached by the first post and again after a loss."""

    def __init__(self, wire: ReconnectingConnection, path: str) -> None:
        self._wire = wire
        self._path = path
        self._link: WireSender | None = None
        self._attaching = asyncio.Lock()
        self._under_way: dict[bytes, asyncio.Future[None]] = {}
        self._tag = 0

    async def post(self, payload: bytes, seconds: float) -> None:
        """Send a message and wait for its acceptance. Raises WireError, TimeoutError."""
        async with self._attaching:
            if self._link is None or not self._link.is_up:
                self._link = await self._wire.sender(
                    self._path, on_outcome=self._on_outcome, on_lost=self._on_lost, timeout=seconds
                )
        self._tag += 1
        tag = self._tag.to_bytes(8, "big")
        accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way[tag] = accepted
        try:
            self._link.send(payload, tag)
            await bounded(accepted, seconds, f"posting to {self._path}")
        finally:
            self._under_way.pop(tag, None)

    def _on_outcome(self, event: DispositionReceived) -> None:
        accepted = self._under_way.get(event.tag)
        if accepted is None or accepted.done():
            return
        failure = failure_of(event.state, self._path)
        if failure is None:
            accepted.set_result(None)
        else:
            accepted.set_exception(failure)

    def _on_lost(self, error: WireError) -> None:
        for accepted in self._under_way.values():
            if not accepted.done():
                accepted.set_exception(error)


def open_board(
    client: ServiceBusClient,
    *,
    primary: str,
    posted_by: PostedBy,
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
