"""The protocol of an engine's control socket: one JSON object a line; "t" is its type.

A client opens with Hello and its position. The engine answers Welcome, sends the missed events, and then events as they
happen and snapshots about once a second, the first whole and each further one as a change. A client that shows graphs
gets all their values once, and then each new one every five seconds. The client sends commands; each Execute is
answered by one CommandDone with its number, in any sequence. A dangerous command is armed first: an Arm is answered by
Armed, whose token goes with the command, or by a CommandDone with the refusal. Goodbye is the engine's last line, with
the reason.

Fields are added, never renamed; an incompatible change raises VERSION. Peers' data is untrusted: decoding raises only
ControlProtocolError.

A mailbox sends the newest state before the events that led to it, so a slow subscriber sees the current state first.
Publishing never waits: a stalled subscriber costs bounded memory and no time.
"""

from __future__ import annotations

import asyncio
import errno
import os
import pwd
import re
import socket
import struct
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec

from paired_servicebus.core.errors import ControlError, UnreadableError
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.message_view import MAX_ROWS, MessageContent, MessagePage
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.series.graphs import Graphs
from paired_servicebus.foreign_json import read_json

# The kernel's credentials of a Unix socket's peer, and the name of that user in the audit.

_LINUX: Final = struct.Struct("3i")  # pid, uid, gid: struct ucred of unix(7)
_BSD: Final = struct.Struct("=2I")  # version, uid: how struct xucred of macOS begins
_SOL_LOCAL: Final = 0
_XUCRED_BYTES: Final = 76
_NOT_IN_NAMES: Final = re.compile(r"[^\w.@\\+-]")
_LONGEST_CLAIM: Final = 64


def peer_uid(transport: asyncio.BaseTransport) -> int | None:
    """Return the peer's user; None if the kernel has none.

    Raises:
        OSError: the socket is closed or was never connected (ENOTCONN).
    """
    connection = transport.get_extra_info("socket")
    linux, bsd = getattr(socket, "SO_PEERCRED", None), getattr(socket, "LOCAL_PEERCRED", None)
    if connection is None or (linux is None and bsd is None):
        return None
    if linux is not None:
        _pid, uid, _gid = _LINUX.unpack(connection.getsockopt(socket.SOL_SOCKET, linux, _LINUX.size))
        if uid < 0:  # asyncio takes a full backlog for a connection under way
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
    else:
        _version, uid = _BSD.unpack_from(connection.getsockopt(_SOL_LOCAL, bsd, _XUCRED_BYTES))
    return int(uid)


def is_ours(transport: asyncio.BaseTransport) -> bool:
    """Return whether the peer runs as this process's user.

    True if the kernel has no credentials: the socket's mode 0600 in our own folder then protects it.
    """
    if transport.get_extra_info("socket") is None:
        return False
    uid = peer_uid(transport)
    return uid is None or uid == os.geteuid()


def name_of(uid: int) -> str:
    """Return the user's name; the number if it has none, as in some containers."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def audit_name(user: str | None, *, claimed: str, sudo_user: str) -> str:
    """Return the name for the audit: the kernel's name of the peer's `user`, and the peer's own claims, marked as such.

    Args:
        user: None if the kernel has no credentials; only then `claimed` counts, the peer's own name.
        sudo_user: the peer's SUDO_USER; empty if it has none.
    """
    names = [user] if user is not None else [f"{_cleaned(claimed)} (as claimed)"] if claimed.strip() else []
    if names and sudo_user:
        names.append(f"(sudo by {_cleaned(sudo_user)}, as claimed)")
    return " ".join(names)


def _cleaned(claim: str) -> str:
    """Foreign text as one short word that cannot pass for anything else."""
    return _NOT_IN_NAMES.sub("?", claim[:_LONGEST_CLAIM])


VERSION: Final = 3
MAX_CLIENT_LINE_BYTES: Final = 64 * 1024
"""Bytes in a line that an engine accepts."""
MAX_ENGINE_LINE_BYTES: Final = 32 * 1024 * 1024
"""Bytes in a line that a client accepts: a snapshot of ten thousand entities and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in an engine's history: the newest event that was seen. seq counts from 1 within a boot."""

    boot: str
    seq: int


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="hello"):
    """A client's first line. Without a boot it receives the newest events; with one, those after seq."""

    version: int = VERSION
    boot: str = ""
    seq: int = 0
    read_only: bool = False
    """Whether the engine's guard refuses every command of this client."""
    watches: bool = True
    """Whether the client shows depths; the engine reads them while it is connected."""
    fleet: bool = False
    """Whether the client shows the fleet; the engine reads its boards, and watches while the client stays."""
    graphs: bool = False
    """Whether the client shows curves over time; an older client would not understand GraphsSent."""


class _Commanding(msgspec.Struct, frozen=True, kw_only=True):
    """The common part of Arm and Execute. `id` is the client's number for it and comes back in the answer.

    command: its `by` is the client's own name for itself; the engine replaces it by the kernel's name of its peer.
    sudo_user: the client's SUDO_USER, which the audit marks as a claim.
    """

    id: int
    command: Command
    sudo_user: str = ""

    @property
    def action_id(self) -> str:
        return self.command.action_id


class Arm(_Commanding, frozen=True, kw_only=True, tag_field="t", tag="arm"):
    """A dangerous command is meant: the first of its two steps."""


class Execute(_Commanding, frozen=True, kw_only=True, tag_field="t", tag="execute"):
    """An operator's command. token, typed: for a dangerous one: Armed's token, and the operator's confirmation."""

    token: str = ""
    typed: str = ""


class PostOrder(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="post_order"):
    """An order over the fleet, signed by the client's operator: the engine posts it on the board of orders.

    signed: the signed bytes, which are UTF-8; only they decide. `id`, `by` and `sudo_user` as in Execute.
    """

    action_id: ClassVar[str] = "post an order"

    id: int
    by: str
    sudo_user: str = ""
    signed: str
    signature: str


class _Look(msgspec.Struct, frozen=True, kw_only=True):
    """The common part of looks at messages, which change nothing. `id`, `by` and `sudo_user` as in PostOrder.

    queue: the path of a backlog queue. kind: a value of MessageKind.
    """

    action_id: ClassVar[str] = "look at messages"

    id: int
    queue: str
    kind: str
    by: str
    sudo_user: str = ""


class LookAtMessages(_Look, frozen=True, kw_only=True, tag_field="t", tag="look_at_messages"):
    """Asks for at most `count` rows from a sequence number on; answered by MessagesFound, or CommandDone if refused.

    Without a queue the unused backlog queues are listed anew, and the next snapshot has them.
    """

    from_number: int = 1
    count: int = MAX_ROWS
    wanted: str = ""
    """Only messages that match this search (core.model.message_view); empty: all."""


class LookAtMessage(_Look, frozen=True, kw_only=True, tag_field="t", tag="look_at_message"):
    """Asks for one message, by its sequence number; answered by MessageFound, or CommandDone if refused."""

    number: int
    from_byte: int = 0
    """Where the answer's part of the body begins."""


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="welcome"):
    """The engine's identity: an engine is one pairing in one process, a boot is one life of it."""

    engine: str
    boot: str
    version: int = VERSION
    pid: int
    pairing: str
    environment: str
    read_only: bool
    hides_bodies: bool = False
    """Whether it is configured to send no message's body."""


class SnapshotSent(msgspec.Struct, frozen=True, tag_field="t", tag="snapshot"):
    """The engine's status; a newer one replaces an unsent one."""

    snapshot: Snapshot


class SnapshotChanged(msgspec.Struct, frozen=True, tag_field="t", tag="change"):
    """The change from the snapshot before, in the form of paired_servicebus.engine.control.console_view."""

    change: dict[str, Any]


class GraphsSent(msgspec.Struct, frozen=True, tag_field="t", tag="graphs"):
    """Curves over time: all of them after the welcome, then each newest value."""

    graphs: Graphs


class EventSent(msgspec.Struct, frozen=True, tag_field="t", tag="event"):
    """One record, in the form of paired_servicebus.engine.journal.records."""

    record: msgspec.Raw


class Skipped(msgspec.Struct, frozen=True, tag_field="t", tag="skipped"):
    """The number of events missing here: the client was slow, or away for longer than the history lasts."""

    count: int


class Armed(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="armed"):
    """A dangerous order can be fired, once, within `seconds`, by a command with this token and `to_type` typed."""

    id: int
    token: str
    to_type: str
    seconds: float
    until: float
    """The same as a time, for the screen: seconds since the epoch by the engine's clock."""


class CommandDone(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="done"):
    """The outcome of a command: `ok` False if it was refused or failed. `text` is a sentence for the operator."""

    id: int
    ok: bool
    text: str


class MessagesFound(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="messages_found"):
    """A page of a backlog queue's messages, without bodies."""

    id: int
    page: MessagePage


class MessageFound(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="message_found"):
    """One message with the start of its body, unless bodies are hidden."""

    id: int
    content: MessageContent


class Goodbye(msgspec.Struct, frozen=True, tag_field="t", tag="goodbye"):
    """The engine's last line on this connection."""

    reason: str


Look = LookAtMessages | LookAtMessage
FromClient = Hello | Arm | Execute | PostOrder | LookAtMessages | LookAtMessage
FromEngine = (
    Welcome
    | SnapshotSent
    | SnapshotChanged
    | GraphsSent
    | EventSent
    | Skipped
    | Armed
    | CommandDone
    | MessagesFound
    | MessageFound
    | Goodbye
)
Order = Arm | Execute | PostOrder
Request = Order | Look
Answer = Armed | CommandDone
Reply = Answer | MessagesFound | MessageFound

Message = TypeVar("Message")

_ENCODER: Final = msgspec.json.Encoder()
_FROM_CLIENT: Final[msgspec.json.Decoder[FromClient]] = msgspec.json.Decoder(FromClient)
_FROM_ENGINE: Final[msgspec.json.Decoder[FromEngine]] = msgspec.json.Decoder(FromEngine)


def name_peer(request: Request, user: str | None) -> Request:
    """Return a request with the peer's name for the audit; audit_name has the argument."""
    if isinstance(request, Arm | Execute):
        by = audit_name(user, claimed=request.command.by, sudo_user=request.sudo_user)
        return msgspec.structs.replace(request, command=replace(request.command, by=by))
    return msgspec.structs.replace(request, by=audit_name(user, claimed=request.by, sudo_user=request.sudo_user))


class ControlProtocolError(ControlError):
    """A peer sent an invalid message."""


def encode(message: FromClient | FromEngine) -> bytes:
    """Return the message as one line, its newline included."""
    return _ENCODER.encode(message) + b"\n"


def decode_from_client(line: bytes) -> FromClient:
    """Decode a client's line. Raises ControlProtocolError with the reason."""
    return _decode(_FROM_CLIENT, line, "this line")


def decode_from_engine(line: bytes) -> FromEngine:
    """Decode an engine's line. Raises ControlProtocolError with the reason."""
    return _decode(_FROM_ENGINE, line, "the engine sent a line that")


def _decode(decoder: msgspec.json.Decoder[Message], line: bytes, what: str) -> Message:
    try:
        return read_json(decoder, line)
    except UnreadableError as error:
        raise ControlProtocolError(f"{what} is no message of the control protocol ({error})") from error


State = TypeVar("State")
Event = TypeVar("Event")


class Mailbox(Generic[State, Event]):
    """One listener's buffer, for one event loop."""

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._state: State | None = None
        self._events: deque[Event | Skipped] = deque()
        self._skipped = 0
        self._closed = False
        self._filled = asyncio.Event()

    def put_state(self, state: State) -> None:
        """Put the newest state; an untaken one is dropped."""
        self._state = state
        self._filled.set()

    def put_event(self, event: Event | Skipped) -> None:
        """Put an event, or a number of missing ones; the oldest gives way if there is no room."""
        if len(self._events) >= self._capacity:
            oldest = self._events.popleft()
            self._skipped += oldest.count if isinstance(oldest, Skipped) else 1
        self._events.append(event)
        self._filled.set()

    def close(self) -> None:
        """Accept no more items; buffered ones can still be taken."""
        self._closed = True
        self._filled.set()

    async def take(self) -> State | Event | Skipped | None:
        """Return the next item, waiting if there is none; None when closed and empty."""
        while True:
            item = self._next()
            if item is not None or self._closed:
                return item
            self._filled.clear()
            await self._filled.wait()

    def _next(self) -> State | Event | Skipped | None:
        if self._state is not None:
            state, self._state = self._state, None
            return state
        if self._skipped:
            count, self._skipped = self._skipped, 0
            return Skipped(count)
        return self._events.popleft() if self._events else None
