"""A console's end of an engine's control socket.

One connection is one conversation: connect, iterate over `updates`, send commands meanwhile, close. It never
reconnects by itself; whoever shows things keeps the `position` it reached and hands it to the next `connect`, and
misses nothing that the engine still remembers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

from console.core.errors import CommandRefusedError, ControlError, EngineNotRunningError
from console.core.events import Record
from console.core.snapshot import Snapshot
from console.engine import protocol, records
from console.engine.mailbox import Mailbox
from console.engine.peer import is_ours
from console.engine.protocol import Command, CommandDone, EventSent, Goodbye, Hello, Position, Skipped, SnapshotSent
from console.engine.protocol import Welcome as Welcome

CONNECT_TIMEOUT: Final = 5.0
COMMAND_TIMEOUT: Final = 10.0
CLOSE_TIMEOUT: Final = 1.0
BUFFERED_EVENTS: Final = 4096

Update = Snapshot | Record | Skipped | Goodbye


class ControlClient:
    """A conversation with one engine. Made by `connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: Path) -> None:
        self._reader = reader
        self._writer = writer
        self._path = path
        self._mailbox: Mailbox[Snapshot, Record | Goodbye] = Mailbox(capacity=BUFFERED_EVENTS)
        self._answers: dict[int, asyncio.Future[CommandDone]] = {}
        self._numbers = count(1)
        self._listening: asyncio.Task[None] | None = None
        self._welcome: Welcome | None = None
        self._position: Position | None = None

    @classmethod
    async def connect(cls, socket: Path, *, after: Position | None = None) -> ControlClient:
        """Talks to the engine behind `socket`, which then tells what happened after `after`; without it, the newest
        events it remembers.

        Raises:
            EngineNotRunningError: nothing answers there.
            ControlError: the engine is somebody else's, or of a version that this console doesn't understand.
        """
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                reader, writer = await asyncio.open_unix_connection(socket, limit=protocol.LONGEST_FROM_ENGINE)
                client = cls(reader, writer, socket)
                try:
                    await client._greet(after)
                except BaseException:
                    writer.transport.abort()
                    raise
        except TimeoutError as error:
            raise EngineNotRunningError(
                f"the engine at {socket} did not answer within {CONNECT_TIMEOUT:g} s: it hangs, or is no engine"
            ) from error
        except OSError as error:
            raise EngineNotRunningError(
                f"no engine answers at {socket} ({error.strerror or error}): start one with paired up"
            ) from error
        return client

    @property
    def welcome(self) -> Welcome:
        """What the engine said of itself."""
        assert self._welcome is not None, "connect() makes clients"
        return self._welcome

    @property
    def position(self) -> Position | None:
        """The newest event received, to go on from after a reconnection."""
        return self._position

    async def updates(self) -> AsyncIterator[Update]:
        """Snapshots and events as they come; ends when the engine goes or `close` is called. One iteration a client.

        One who is slow to take them gets the newest snapshot, the newest events and the number of those between.
        """
        while (update := await self._mailbox.take()) is not None:
            yield update

    async def command(self, verb: str, *, target: str = "", by: str, why: str = "") -> CommandDone:
        """Orders `verb` and returns what came of it.

        Raises:
            CommandRefusedError: the guard said no, or the act failed; the text is its sentence.
            EngineNotRunningError: the engine went, or did not answer in time; whether it acted is not known.
        """
        number = next(self._numbers)
        answer: asyncio.Future[CommandDone] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT):
                if self._listening is None or self._listening.done():
                    raise ConnectionResetError("the connection is closed")
                self._writer.write(protocol.encode(Command(id=number, verb=verb, target=target, by=by, why=why)))
                await self._writer.drain()
                done = await answer
        except (TimeoutError, ConnectionError) as error:
            how = f"did not answer within {COMMAND_TIMEOUT:g} s" if isinstance(error, TimeoutError) else "went away"
            raise EngineNotRunningError(
                f"the engine at {self._path} {how}; whether it did {verb!r} is not known: look at its events"
            ) from error
        finally:
            self._answers.pop(number, None)
        if not done.ok:
            raise CommandRefusedError(done.text)
        return done

    async def close(self) -> None:
        """Leaves. The engine goes on."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        self._writer.close()
        with suppress(OSError, TimeoutError):  # the engine is gone or stalls: there is nothing left to say to it
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._writer.wait_closed()

    async def _greet(self, after: Position | None) -> None:
        if not is_ours(self._writer.transport):
            raise ControlError(f"the engine at {self._path} runs as another user: only its owner may control it")
        hello = Hello(boot=after.boot, seq=after.seq) if after else Hello()
        self._writer.write(protocol.encode(hello))
        answer = await self._read()
        if isinstance(answer, Goodbye):
            raise ControlError(f"the engine at {self._path} refused: {answer.reason}")
        if not isinstance(answer, Welcome):
            raise EngineNotRunningError(f"what answers at {self._path} is no engine: it sent no welcome")
        if answer.version != protocol.VERSION:
            raise ControlError(
                f"the engine at {self._path} speaks version {answer.version} of the control protocol and this "
                f"console version {protocol.VERSION}: use the same release for both"
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
            raise protocol.ProtocolError(f"the engine at {self._path} sent a line without an end") from error
        return protocol.decode_from_engine(line)

    async def _listen(self) -> None:
        reason = "the engine ended without a goodbye"
        try:
            while (message := await self._read()) is not None:
                if isinstance(message, Goodbye):
                    reason = message.reason
                    break
                self._receive(message)
        except (protocol.ProtocolError, OSError) as error:
            reason = str(error)
        finally:
            self._end(reason)

    def _receive(self, message: protocol.FromEngine) -> None:
        match message:
            case SnapshotSent(snapshot):
                self._mailbox.put_state(snapshot)
            case EventSent(raw):
                self._receive_record(bytes(raw))
            case Skipped():
                self._mailbox.put_event(message)
            case CommandDone():
                answer = self._answers.get(message.id)
                if answer is not None and not answer.done():
                    answer.set_result(message)
            case _:
                raise protocol.ProtocolError(f"the engine sent {type(message).__name__} out of turn")

    def _receive_record(self, line: bytes) -> None:
        try:
            record = records.decode(line)
        except records.UnreadableLineError as error:
            raise protocol.ProtocolError(f"the engine sent an event that cannot be read ({error})") from error
        if record is None:  # a kind of a newer engine: the reader is told that something is missing
            self._mailbox.put_event(Skipped(1))
            return
        self._position = Position(boot=record.boot, seq=record.seq)
        self._mailbox.put_event(record)

    def _end(self, reason: str) -> None:
        self._mailbox.put_event(Goodbye(reason))
        self._mailbox.close()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError(reason))
