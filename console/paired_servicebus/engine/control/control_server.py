"""The engine's end of its control socket: publishes events and snapshots to consoles, and accepts commands.

No console can block the engine. Unread updates wait in a bounded mailbox. A console that sends invalid or incomplete
requests receives an error and is disconnected. The socket has mode 0600 and accepts only processes of the engine's own
user, by the kernel's peer credentials. With a group it has mode 0660 and accepts every peer that the kernel admits.

Not here: the meaning and permission of a command (guard.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Self, cast

import msgspec

from paired_servicebus.core.errors import other_format
from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.series.graphs import Graphs
from paired_servicebus.engine.control import protocol
from paired_servicebus.engine.control.console_view import (
    Change,
    ChangeBudget,
    bound_fleet,
    find_change,
    prune,
    size_of_claims,
    without_new_claims,
)
from paired_servicebus.engine.control.protocol import is_ours, name_of, peer_uid
from paired_servicebus.engine.instance.group_access import SOCKET_MODE
from paired_servicebus.engine.instance.task_supervisor import TaskSupervisor
from servicebus_amqp.server.admission import SCARCE_SECONDS, Admission, log_once

REMEMBERED_EVENTS: Final = 10_000
"""Events remembered for consoles that come back, and kept for one that reads slowly."""
REPLAYED_EVENTS: Final = 2000
"""Events sent to a console that connects for the first time."""
MAX_CONSOLES: Final = 32
"""Consoles with a completed handshake."""
MAX_PENDING_CONNECTIONS: Final = 64
"""Connections without a hello. Beyond them the oldest is rejected, so a console that sends its hello is served."""
BACKLOG: Final = 512
"""Connections that the kernel keeps until they are accepted."""
HELLO_TIMEOUT: Final = 5.0
"""For the hello, from its connection on, however slowly its bytes arrive."""
NAME_TIMEOUT: Final = 2.0
"""Seconds for the name of a user, which a directory on the network may hold."""
GOODBYE_TIMEOUT: Final = 1.0

MAX_PENDING_ORDERS: Final = 16
"""Orders of one console that are not answered yet; the next one waits."""

ExecuteOrder = Callable[[protocol.Request, bool], Awaitable[protocol.Reply]]
"""Does an order, arms it, or looks at messages, and returns its answer; True: the console was opened to look only."""

WatchersChanged = Callable[[int], object]
"""Called with the number of consoles that show depths, on each change."""

log = logging.getLogger(__name__)


_TOO_MANY: Final = protocol.encode(protocol.Goodbye("too many connections have sent no hello: send it at once"))


class _LeftError(protocol.ControlProtocolError):
    """The console went, as all do: a status every minute, a dashboard's look every ten seconds. No news for the log."""


class _Console:
    """One connected console."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, admission: Admission) -> None:
        self.reader = reader
        self.writer = writer
        self.stay = admission.enter(self._reject)
        """Ends with its hello."""
        self.mailbox: protocol.Mailbox[Snapshot, bytes] = protocol.Mailbox(capacity=REMEMBERED_EVENTS)
        self.viewer = False
        """Whether it was opened to look only."""
        self.watches = False
        """Whether it shows depths."""
        self.shows_fleet = False
        self.shows_graphs = False
        self.user: str | None = None
        """Its user by the kernel; None: the kernel has none."""
        self.orders: set[asyncio.Task[None]] = set()
        """Those not answered yet: a goodbye waits for them."""
        self.snapshot: Snapshot | None = None
        """The latest one that it got; the next is sent as the change from it."""
        self.budget = ChangeBudget()
        self.told = asyncio.Event()
        """Set when the mailbox was closed and all of it was written."""

    def _reject(self) -> None:
        """End the connection without waiting for its peer."""
        self.writer.write(_TOO_MANY)
        self.writer.transport.abort()

    async def hear(self) -> protocol.FromClient:
        """Return its next line.

        Raises:
            ControlProtocolError: an invalid message, or none will follow; the text is for the console.
        """
        try:
            line = await self.reader.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            raise protocol.ControlProtocolError(
                f"a line may have {protocol.MAX_CLIENT_LINE_BYTES} bytes; this one has more"
            ) from error
        except asyncio.IncompleteReadError as error:
            raise _LeftError("you closed your end of the connection") from error
        return protocol.decode_from_client(line)

    async def say(self, line: bytes) -> None:
        """Write a line, and wait while the console is slow to read."""
        self.writer.write(line)
        await self.writer.drain()

    async def leave(self, reason: str) -> None:
        """Send a goodbye if the console still reads, then end the connection."""
        with suppress(OSError, TimeoutError):  # it went first, or stalls: the goodbye is a courtesy
            async with asyncio.timeout(GOODBYE_TIMEOUT):
                await self.say(protocol.encode(protocol.Goodbye(reason)))
                self.writer.close()
                await self.writer.wait_closed()
        self.writer.transport.abort()

    async def dismiss(self, reason: str) -> None:
        """End the conversation cleanly: the current answer, the mailbox, the goodbye."""
        with suppress(OSError, TimeoutError):  # it went first, or stalls
            async with asyncio.timeout(GOODBYE_TIMEOUT):
                while self.orders:
                    await asyncio.wait(tuple(self.orders))
                self.mailbox.put_event(protocol.encode(protocol.Goodbye(reason)))
                self.mailbox.close()
                await self.told.wait()
                self.writer.close()
                await self.writer.wait_closed()
        self.writer.transport.abort()


class ControlServer:
    """Serves consoles on a Unix socket while its context lasts.

    Only the holder of the engine's lock may use it: a socket at `path` is treated as a dead engine's and replaced.

    Args:
        path: the socket's path; only the owner may have access to its folder.
        welcome: the engine's description of itself.
        execute: see ExecuteOrder; a console may send another command before the answer. A command is executed even if
            its console disconnects.
        watched: see WatchersChanged.
        fleet_watched: the same, for consoles that show the fleet.
        group: the id of a group whose members may connect too; None: only the engine's own user.
    """

    def __init__(
        self,
        path: Path,
        *,
        welcome: protocol.Welcome,
        execute: ExecuteOrder,
        watched: WatchersChanged = lambda _: None,
        fleet_watched: WatchersChanged = lambda _: None,
        group: int | None = None,
    ) -> None:
        self._path = path
        self._welcome = welcome
        self._execute = execute
        self._watched = watched
        self._fleet_watched = fleet_watched
        self._connected: set[_Console] = set()
        self._consoles: set[_Console] = set()
        """Those that were welcomed."""
        self._history: deque[tuple[int, bytes]] = deque()
        self._before: tuple[tuple[Record, bytes], ...] = ()
        self._forgotten = 0
        self._forgotten_seq = 0
        self.all_graphs: Callable[[], Graphs | None] = lambda: None
        """Returns all curves over time, for a console that comes; None: there are none yet."""
        self.snapshot: Snapshot | None = None
        """The newest snapshot published."""
        self._bounded: tuple[Snapshot, Snapshot] | None = None
        """The latest snapshot, and what consoles get of it."""
        self._found: tuple[Snapshot, Snapshot, Change] | None = None
        """The latest change that was found, with its snapshots."""
        self._warn = log_once("the control socket", log)
        self._admission = Admission(self._warn, most=MAX_PENDING_CONNECTIONS, unproven="sent no hello")
        self._accepting: asyncio.Task[None] | None = None
        self._crew = TaskSupervisor()
        self._owner = f"uid {os.geteuid()}"
        """The engine's user, and so every console's where no group is let in."""
        self._group = group
        self.farewell = "the engine ended"

    async def __aenter__(self) -> Self:
        """Open the socket. Raises OSError: the socket cannot be made."""
        self._owner = await _user_name(os.geteuid())
        self._accepting = self._crew.start(self._accept(_listen(self._path, self._group)), name="accepting consoles")
        return self

    async def __aexit__(self, *reason: object) -> None:
        self._path.unlink(missing_ok=True)
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
        strangers = self._connected - self._consoles
        await asyncio.gather(
            *(console.dismiss(self.farewell) for console in self._consoles),
            *(console.leave(self.farewell) for console in strangers),
        )
        await self._crew.close()

    def publish_event(self, seq: int, record: bytes) -> None:
        """Send a record, in the form of engine.journal.records, to every console now or after its reconnection."""
        line = protocol.encode(protocol.EventSent(msgspec.Raw(record)))
        if len(self._history) >= REMEMBERED_EVENTS:
            self._forgotten_seq, _ = self._history.popleft()
            self._forgotten += 1
        self._history.append((seq, line))
        for console in self._consoles:
            console.mailbox.put_event(line)

    def remember(self, before: Sequence[tuple[Record, bytes]]) -> None:
        """Also send the records of earlier boots, each with its line, to consoles that connect from now on."""
        self._before = tuple(
            (record, protocol.encode(protocol.EventSent(msgspec.Raw(line)))) for record, line in before
        )

    def publish_snapshot(self, snapshot: Snapshot) -> None:
        """Send a snapshot to every console that reads; it replaces an unsent one."""
        self.snapshot = snapshot
        for console in self._consoles:
            console.mailbox.put_state(snapshot)

    def publish_graphs(self, step: Graphs) -> None:
        """Send the newest values of the curves to every console that shows them."""
        shown = [console for console in self._consoles if console.shows_graphs]
        line = protocol.encode(protocol.GraphsSent(step)) if shown else b""
        for console in shown:
            console.mailbox.put_event(line)

    async def _accept(self, listening: socket.socket) -> None:
        listening.setblocking(False)
        with listening:
            while True:
                try:
                    connection = await self._admission.accept(listening)
                except OSError as error:
                    self._warn(f"cannot accept a connection: {error.strerror or error}")
                    await asyncio.sleep(SCARCE_SECONDS)
                else:
                    self._crew.start(self._serve(connection), name="serving a console")

    async def _serve(self, connection: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=connection, limit=protocol.MAX_CLIENT_LINE_BYTES)
        except OSError as error:
            connection.close()
            log.debug("a connection broke off: %s", error)
            return
        console = _Console(reader, writer, self._admission)
        self._connected.add(console)
        try:
            await self._converse(console)
        except protocol.ControlProtocolError as error:
            if not isinstance(error, _LeftError):
                log.info("a conversation with a console ended: %s", error)
            await console.leave(str(error))
        except (OSError, EOFError) as error:
            log.debug("a conversation with a console ended: %s", error)
        finally:
            self._connected.discard(console)
            self._consoles.discard(console)
            self._tell_watched(console)
            console.stay.leave()
            writer.transport.abort()

    async def _converse(self, console: _Console) -> None:
        await self._check_in(console)
        telling = self._crew.start(self._tell(console), name="telling a console")
        try:
            await self._obey(console)
        finally:
            telling.cancel()

    async def _check_in(self, console: _Console) -> None:
        if self._group is None and not is_ours(console.writer.transport):
            raise protocol.ControlProtocolError(
                "only processes of the engine's own user are heard; control_group lets a group in"
            )
        uid = peer_uid(console.writer.transport)
        if uid is not None:
            console.user = self._owner if uid == os.geteuid() else await _user_name(uid)
        try:
            async with asyncio.timeout(HELLO_TIMEOUT):
                hello = await console.hear()
        except TimeoutError as error:
            raise protocol.ControlProtocolError(f"no hello came within {HELLO_TIMEOUT:g} s") from error
        if not isinstance(hello, protocol.Hello):
            raise protocol.ControlProtocolError("the first line is a hello")
        if hello.version != protocol.VERSION:
            raise protocol.ControlProtocolError(
                other_format("the console", hello.version, protocol.VERSION, "restart the engine")
            )
        if len(self._consoles) >= MAX_CONSOLES:
            raise protocol.ControlProtocolError(f"{MAX_CONSOLES} consoles are connected already: close one")
        console.stay.leave()
        console.viewer, console.watches, console.shows_fleet = hello.read_only, hello.watches, hello.fleet
        console.shows_graphs = hello.graphs
        console.writer.write(protocol.encode(self._welcome))
        self._tell_watched(console, console)  # before its first snapshot, which reports that depths are being read
        self._catch_up(console, hello)
        self._consoles.add(console)

    def _tell_watched(self, changed: _Console, *more: _Console) -> None:
        """Report the watchers after a console came or went. more: those not welcomed yet."""
        consoles = (*self._consoles, *more)
        if changed.watches:
            self._watched(sum(each.watches for each in consoles))
        if changed.shows_fleet:
            self._fleet_watched(sum(each.shows_fleet for each in consoles))

    def _catch_up(self, console: _Console, hello: protocol.Hello) -> None:
        """Fill the mailbox with the missed events. No await from here to the registration, so there is no gap."""
        was_here = hello.boot == self._welcome.boot
        graphs = self.all_graphs() if hello.graphs else None
        if graphs is not None:
            console.mailbox.put_event(protocol.encode(protocol.GraphsSent(graphs)))
        before = [] if was_here else self._missed_before(hello)
        missed = [line for seq, line in self._history if not was_here or seq > hello.seq]
        forgotten = self._forgotten
        if was_here:  # receipts have numbers too but are not sent: this may count too many
            forgotten = max(0, min(forgotten, self._forgotten_seq - hello.seq))
        elif not hello.boot:
            before, missed, forgotten = [], [*before, *missed][-REPLAYED_EVENTS:], 0
        for line in before:
            console.mailbox.put_event(line)
        if forgotten:
            console.mailbox.put_event(protocol.Skipped(forgotten))
        for line in missed:
            console.mailbox.put_event(line)
        if self.snapshot is not None:
            console.mailbox.put_state(self.snapshot)

    def _missed_before(self, hello: protocol.Hello) -> list[bytes]:
        """Return earlier boots' events after the console's position; all of them if it has none."""
        places = enumerate(record for record, _ in self._before)
        seen = [place for place, record in places if record.boot == hello.boot and record.seq <= hello.seq]
        return [line for _, line in self._before[seen[-1] + 1 if seen else 0 :]]

    async def _tell(self, console: _Console) -> None:
        try:
            while (item := await console.mailbox.take()) is not None:
                if isinstance(item, Snapshot):
                    item = self._as_line(console, item)
                elif isinstance(item, protocol.Skipped):
                    item = protocol.encode(item)
                await console.say(item)
            console.told.set()
        except OSError as error:
            log.debug("a console does not read any more: %s", error)
            console.writer.transport.abort()
        except Exception:
            console.writer.transport.abort()  # no update will follow
            raise

    def _as_line(self, console: _Console, snapshot: Snapshot) -> bytes:
        """Encode a console's next snapshot: the first one whole, each further one as a change."""
        old, snapshot = console.snapshot, self._bound(snapshot)
        if old is None:
            console.snapshot = snapshot
            return protocol.encode(protocol.SnapshotSent(cast(Snapshot, prune(snapshot))))
        change = self._change(old, snapshot)
        size = size_of_claims(change)
        if size and not console.budget.allows(size, time.monotonic()):
            snapshot = without_new_claims(old, snapshot)
            change = find_change(old, snapshot) or {"f": {}}
        console.snapshot = snapshot
        return protocol.encode(protocol.SnapshotChanged(change))

    def _bound(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with what a console gets of the fleet, made once for all consoles."""
        if self._bounded is None or self._bounded[0] is not snapshot:
            fleet = None if snapshot.fleet is None else bound_fleet(snapshot.fleet)
            self._bounded = (snapshot, replace(snapshot, fleet=fleet))
        return self._bounded[1]

    def _change(self, old: Snapshot, new: Snapshot) -> Change:
        """Return a change, found once for all consoles that got the same snapshot before."""
        if self._found is None or self._found[0] is not old or self._found[1] is not new:
            self._found = (old, new, find_change(old, new) or {"f": {}})
        return self._found[2]

    async def _obey(self, console: _Console) -> None:
        while True:
            order = await console.hear()
            if isinstance(order, protocol.Hello):
                raise protocol.ControlProtocolError("after the hello come commands")
            while len(console.orders) >= MAX_PENDING_ORDERS:
                await asyncio.wait(tuple(console.orders), return_when=asyncio.FIRST_COMPLETED)
            task = self._crew.start(self._answer(console, order), name=f"the order {order.action_id} of a console")
            console.orders.add(task)
            task.add_done_callback(console.orders.discard)

    async def _answer(self, console: _Console, order: protocol.Request) -> None:
        answer = await self._execute(protocol.name_peer(order, console.user), console.viewer)
        with suppress(OSError):  # it went meanwhile: the timeline has the outcome
            await console.say(protocol.encode(answer))


async def _user_name(uid: int) -> str:
    """Return the user's name; its number if a network directory does not answer in time."""
    try:
        async with asyncio.timeout(NAME_TIMEOUT):
            return await asyncio.to_thread(name_of, uid)
    except TimeoutError:
        return f"uid {uid}"


def _listen(path: Path, group: int | None = None) -> socket.socket:
    """Make a socket with its mode before its name becomes visible: 0600, or 0660 with a group."""
    unready = path.with_name(path.name + "~")
    unready.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(str(unready))
        unready.chmod(0o600)
        if group is not None:
            os.chown(unready, -1, group)
            unready.chmod(SOCKET_MODE)
        listening.listen(BACKLOG)
        unready.rename(path)
    except BaseException:
        listening.close()
        raise
    return listening
