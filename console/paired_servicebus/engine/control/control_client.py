"""The console's end of an engine's control socket.

One connection is one conversation: connect, iterate over `updates`, send commands meanwhile, close. The client never
reconnects. Its caller keeps the `position` and passes it to the next `connect`, which resumes from there while the
engine still has the events.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import (
    CommandRefusedError,
    ControlError,
    EngineNotRunningError,
    UnreadableError,
    other_format,
)
from paired_servicebus.core.fleet.fleet_documents import Order
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.message_view import MAX_ROWS, MessageContent, MessageKind, MessagePage
from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.operator.actions import BY_ID
from paired_servicebus.core.series.graphs import Graphs
from paired_servicebus.engine.control import protocol
from paired_servicebus.engine.control.console_view import apply_change
from paired_servicebus.engine.control.protocol import Welcome as Welcome
from paired_servicebus.engine.control.protocol import is_ours, name_of, peer_uid
from paired_servicebus.engine.instance.group_access import explain_access, trusted_users
from paired_servicebus.engine.journal import records

CONNECT_TIMEOUT: Final = 5.0
COMMAND_TIMEOUT: Final = 10.0
LOOK_TIMEOUT: Final = 12.0
"""Seconds for a look at messages; the engine ends it sooner."""
SLOW_TIMEOUT: Final = 900.0
"""Seconds for commands that move or verify messages; they end sooner by themselves."""
CLOSE_TIMEOUT: Final = 1.0
CROWDED_PAUSE: Final = 0.05
_BACKLOG_IS_FULL: Final = (errno.EAGAIN, errno.ENOTCONN)
"""A Unix socket with too many connections to accept refuses so; asyncio takes the first for a connection under way."""
BUFFERED_EVENTS: Final = 4096

Update = Snapshot | Graphs | Record | protocol.Skipped | protocol.Goodbye


def user_name() -> str:
    """Return the kernel's name for the user of this process; the environment may claim another."""
    return name_of(os.getuid())


def sudo_user() -> str:
    """Return the user who started this process by sudo, as the environment claims; else empty."""
    return os.environ.get("SUDO_USER", "")


class ControlClient:
    """A conversation with one engine. Made by `connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: Path) -> None:
        self._reader = reader
        self._writer = writer
        self._path = path
        self._mailbox: protocol.Mailbox[Snapshot, Graphs | Record | protocol.Goodbye] = protocol.Mailbox(
            capacity=BUFFERED_EVENTS
        )
        self._answers: dict[int, asyncio.Future[protocol.Reply]] = {}
        self._numbers = count(1)
        self._listening: asyncio.Task[None] | None = None
        self._welcome: Welcome | None = None
        self._position: protocol.Position | None = None
        self._snapshot: Snapshot | None = None
        """The latest one, to which a change applies."""

    @classmethod
    async def connect(
        cls,
        socket: Path,
        *,
        after: protocol.Position | None = None,
        read_only: bool = False,
        watches: bool = True,
        fleet: bool = False,
        graphs: bool = False,
    ) -> ControlClient:
        """Connect to the engine behind `socket` and receive the events after `after`; None: the newest that it has.

        Args:
            read_only: the engine refuses every command of this connection.
            watches: this client shows backlog depths, which costs readings of the secondary namespace.
            fleet: this client shows the fleet, which costs readings of its boards; if it stays, all engines look fast.
            graphs: this client shows curves over time, and gets them.

        Raises:
            EngineNotRunningError: no engine answers.
            ControlError: the engine belongs to another user, or its version is incompatible.
        """
        wishes = {"read_only": read_only, "watches": watches, "fleet": fleet, "graphs": graphs}
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                while True:
                    try:
                        return await cls._connect_once(socket, after, **wishes)
                    except OSError as error:
                        if error.errno not in _BACKLOG_IS_FULL:
                            raise
                    await asyncio.sleep(CROWDED_PAUSE)
        except TimeoutError as error:
            raise EngineNotRunningError(
                f"the engine at {socket} did not answer within {CONNECT_TIMEOUT:g} s: it hangs, or is no engine"
            ) from error
        except PermissionError as error:
            raise ControlError(f"the engine at {socket} does not let you in: {explain_access(socket)}") from error
        except OSError as error:
            raise EngineNotRunningError(
                f"no engine answers at {socket} ({error.strerror or error}): start one with paired up"
            ) from error

    @classmethod
    async def _connect_once(cls, socket: Path, after: protocol.Position | None, **wishes: bool) -> ControlClient:
        reader, writer = await asyncio.open_unix_connection(socket, limit=protocol.MAX_ENGINE_LINE_BYTES)
        client = cls(reader, writer, socket)
        try:
            await client._greet(after, **wishes)
        except BaseException:
            writer.transport.abort()
            raise
        return client

    @property
    def welcome(self) -> Welcome:
        """The engine's description of itself."""
        assert self._welcome is not None, "connect() makes clients"
        return self._welcome

    @property
    def position(self) -> protocol.Position | None:
        """The newest event received, for resuming after a reconnection."""
        return self._position

    async def updates(self) -> AsyncIterator[Update]:
        """Yield snapshots and events until the engine or `close` ends the connection. One iteration a client.

        A slow caller gets the newest snapshot, the newest events and the number of missed events.
        """
        while (update := await self._mailbox.take()) is not None:
            yield update

    async def execute(self, command: Command, *, token: str = "", typed: str = "") -> protocol.CommandDone:
        """Send a command and return its outcome.

        Args:
            token, typed: for a dangerous command: the token of `arm`, and the operator's confirmation.

        Raises:
            CommandRefusedError: the guard refused, or the command failed; the text has the reason.
            EngineNotRunningError: the engine went away or did not answer in time; the outcome is unknown.
        """
        request = protocol.Execute(
            id=next(self._numbers), command=command, sudo_user=sudo_user(), token=token, typed=typed
        )
        slow = command.action_id in BY_ID and BY_ID[command.action_id].slow
        done = await self._ask(request, SLOW_TIMEOUT if slow else COMMAND_TIMEOUT)
        assert isinstance(done, protocol.CommandDone), "a command is answered by CommandDone"
        return done

    async def arm(self, command: Command) -> protocol.Armed:
        """Arm a dangerous command for some seconds.

        Raises:
            CommandRefusedError, EngineNotRunningError: as `execute`.
        """
        request = protocol.Arm(id=next(self._numbers), command=command, sudo_user=sudo_user())
        armed = await self._ask(request, COMMAND_TIMEOUT)
        assert isinstance(armed, protocol.Armed), "an order is either armed or refused"
        return armed

    async def order(self, command: Command, *, typed: str = "") -> protocol.CommandDone:
        """Arm a command if it is dangerous, and send it; `typed` is the operator's confirmation.

        Raises:
            CommandRefusedError, EngineNotRunningError: as `execute`.
        """
        action, token = BY_ID.get(command.action_id), ""
        if action is not None and action.dangerous:
            token = (await self.arm(command)).token
        return await self.execute(command, token=token, typed=typed)

    async def post_order(self, order: Order, *, by: str) -> protocol.CommandDone:
        """Have the engine post a signed order over the fleet; the answer says whether it is on the board.

        Raises:
            CommandRefusedError, EngineNotRunningError: as `execute`.
        """
        request = protocol.PostOrder(
            id=next(self._numbers), by=by, sudo_user=sudo_user(), signed=order.signed, signature=order.signature
        )
        done = await self._ask(request, SLOW_TIMEOUT)
        assert isinstance(done, protocol.CommandDone), "a posted order is answered by CommandDone"
        return done

    async def look_at_messages(
        self,
        queue: str,
        kind: MessageKind,
        *,
        from_number: int = 1,
        count: int = MAX_ROWS,
        wanted: str = "",
        by: str,
    ) -> MessagePage:
        """Return messages of a backlog queue by peek, from a sequence number on.

        Args:
            queue: the queue's path.
            wanted: only messages that match this search (core.model.message_view); empty: all.

        Raises:
            CommandRefusedError: the engine does not show them; the text has the reason.
            EngineNotRunningError: as `execute`.
        """
        look = protocol.LookAtMessages(
            id=next(self._numbers),
            queue=queue,
            kind=kind.value,
            from_number=from_number,
            count=count,
            wanted=wanted,
            by=by,
            sudo_user=sudo_user(),
        )
        found = await self._ask(look, LOOK_TIMEOUT)
        assert isinstance(found, protocol.MessagesFound), "a look is answered by a page, or refused"
        return found.page

    async def look_at_message(
        self, queue: str, kind: MessageKind, number: int, *, from_byte: int = 0, by: str
    ) -> MessageContent:
        """Return one message with a part of its body, from a byte on, which the engine's audit notes.

        Raises:
            CommandRefusedError, EngineNotRunningError: as `look_at_messages`.
        """
        look = protocol.LookAtMessage(
            id=next(self._numbers),
            queue=queue,
            kind=kind.value,
            number=number,
            from_byte=from_byte,
            by=by,
            sudo_user=sudo_user(),
        )
        found = await self._ask(look, LOOK_TIMEOUT)
        assert isinstance(found, protocol.MessageFound), "a look is answered by the message, or refused"
        return found.content

    async def _ask(self, order: protocol.Request, timeout: float) -> protocol.Reply:
        """Return the engine's answer unless it refuses."""
        answer: asyncio.Future[protocol.Reply] = asyncio.get_running_loop().create_future()
        self._answers[order.id] = answer
        try:
            async with asyncio.timeout(timeout):
                if self._listening is None or self._listening.done():
                    raise ConnectionResetError("the connection is closed")
                self._writer.write(protocol.encode(order))
                await self._writer.drain()
                told = await answer
        except (TimeoutError, ConnectionError) as error:
            how = f"did not answer within {timeout:g} s" if isinstance(error, TimeoutError) else "went away"
            raise EngineNotRunningError(
                f"the engine at {self._path} {how}; whether it did {order.action_id!r} is not known: look at its events"
            ) from error
        finally:
            self._answers.pop(order.id, None)
        if isinstance(told, protocol.CommandDone) and not told.ok:
            raise CommandRefusedError(told.text)
        return told

    async def close(self) -> None:
        """Disconnect. The engine continues."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        self._writer.close()
        with suppress(OSError, TimeoutError):  # the engine is gone or stalls
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._writer.wait_closed()

    async def _greet(self, after: protocol.Position | None, **wishes: bool) -> None:
        transport = self._writer.transport
        if not is_ours(transport) and peer_uid(transport) not in trusted_users(self._path):
            raise ControlError(f"the engine at {self._path} runs as another user: only its owner may control it")
        place = after or protocol.Position(boot="", seq=0)
        hello = protocol.Hello(boot=place.boot, seq=place.seq, **wishes)
        self._writer.write(protocol.encode(hello))
        answer = await self._read()
        if isinstance(answer, protocol.Goodbye):
            raise ControlError(f"the engine at {self._path} refused: {answer.reason}")
        if not isinstance(answer, Welcome):
            raise EngineNotRunningError(f"the peer at {self._path} is not an engine: it sent no welcome")
        if answer.version != protocol.VERSION:
            raise ControlError(
                other_format(f"the engine at {self._path}", answer.version, protocol.VERSION, "restart the engine")
            )
        self._welcome = answer
        self._position = after
        self._listening = asyncio.create_task(self._listen(), name=f"control client {self._path.name}")

    async def _read(self) -> protocol.FromEngine | None:
        try:
            line = await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError as error:
            raise protocol.ControlProtocolError(f"the engine at {self._path} sent a line without an end") from error
        return protocol.decode_from_engine(line)

    async def _listen(self) -> None:
        reason = "the engine process died"
        try:
            while (message := await self._read()) is not None:
                if isinstance(message, protocol.Goodbye):
                    reason = message.reason
                    break
                self._receive(message)
        except (protocol.ControlProtocolError, OSError) as error:
            reason = str(error)
        except UnreadableError as error:
            reason = f"the engine sent a line that {error}"
        finally:
            self._end(reason)

    def _receive(self, message: protocol.FromEngine) -> None:
        match message:
            case protocol.SnapshotSent(snapshot):
                self._receive_snapshot(snapshot)
            case protocol.SnapshotChanged(change) if self._snapshot is not None:
                self._receive_snapshot(apply_change(self._snapshot, change))
            case protocol.GraphsSent(graphs):
                self._mailbox.put_event(graphs)
            case protocol.EventSent(raw):
                self._receive_record(bytes(raw))
            case protocol.Skipped():
                self._mailbox.put_event(message)
            case protocol.CommandDone() | protocol.Armed() | protocol.MessagesFound() | protocol.MessageFound():
                answer = self._answers.get(message.id)
                if answer is not None and not answer.done():
                    answer.set_result(message)
            case _:
                raise protocol.ControlProtocolError(f"the engine sent {type(message).__name__} out of turn")

    def _receive_snapshot(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._mailbox.put_state(snapshot)

    def _receive_record(self, line: bytes) -> None:
        try:
            record = records.decode(line)
        except records.UnreadableLineError as error:
            raise protocol.ControlProtocolError(f"the engine sent an event that cannot be read ({error})") from error
        if record is None:  # of another release: report a missing event
            self._mailbox.put_event(protocol.Skipped(1))
            return
        self._position = protocol.Position(boot=record.boot, seq=record.seq)
        self._mailbox.put_event(record)

    def _end(self, reason: str) -> None:
        self._mailbox.put_event(protocol.Goodbye(reason))
        self._mailbox.close()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError(reason))
