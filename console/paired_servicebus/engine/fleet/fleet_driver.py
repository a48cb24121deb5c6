"""Drives an engine's fleet machine: performs its effects on the boards and tells it the results.

Documents are posted one after the other, in their order. Each call on a board has its own deadline inside the board's
adapter. A failure ends in the machine and in its view; neither sends nor pumps depend on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from math import inf, isfinite
from typing import Final, TypeVar

from paired_servicebus.core.errors import FleetBoardError
from paired_servicebus.core.fleet.fleet_documents import (
    Board,
    Order,
    Outcome,
    Signer,
    Subject,
    VerifiedOrder,
)
from paired_servicebus.core.fleet.fleet_events import (
    BoardRead,
    CarryOut,
    Clean,
    CleaningEnded,
    Ending,
    FleetEffect,
    FleetEvent,
    KeptOnDisk,
    LocallyOrdered,
    OrderEnded,
    OrderPosted,
    OwnState,
    ReadBoard,
    ReadFailed,
    RosterWanted,
    Say,
    SignersChanged,
    Ticked,
    Undo,
    Undone,
    Watched,
    Write,
    WriteFailed,
    Written,
)
from paired_servicebus.core.fleet.fleet_member import FleetMember
from paired_servicebus.core.fleet.orders.engine_orders import Kept
from paired_servicebus.core.fleet.orders.order_rules import ORDER_SECONDS
from paired_servicebus.core.model.fleet_view import FleetView
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.engine.fleet.board_port import FleetBoard
from paired_servicebus.engine.fleet.board_setup import set_up_boards
from paired_servicebus.engine.instance.task_supervisor import TaskSupervisor
from paired_servicebus.pairing.management.management_port import Management

MAX_UNSENT: Final = 100
"""Documents that wait to be posted; the machine is told that further ones failed."""
GOODBYE_SECONDS: Final = 2.0
"""Seconds that an ending engine has for its goodbye."""
CLOSING_SECONDS: Final = 2.0
STAYING_SECONDS: Final = 3.0
"""Seconds after which a console that shows the fleet counts as a watch, and no more as a query."""
SET_UP_AGAIN: Final = 600.0
"""Seconds between two tries to create missing boards."""

log = logging.getLogger(__name__)

T = TypeVar("T")

CarryOutOrder = Callable[[CarryOut | Undo], Awaitable[OrderEnded]]
"""Carries an order of the fleet out, or refuses it."""
KEEP_AGAIN: Final = 30.0
"""Seconds until what was seen is written again after the disk refused it."""


class FleetDriver:
    """One engine's part in the fleet, from `start` to `close`.

    Args:
        member: the pure machine.
        board: the boards in the secondary namespace.
        admin: the secondary's management, which creates missing boards.
        primary: the primary's name in the paths of the boards.
        warn: called with a subject and a sentence for the operator.
        changed: called when the view may have changed.
        clock: seconds since the epoch.
        carry_out: carries an order out through the guard; None: this engine carries none out.
        keep: writes what was seen to disk; called off the event loop, before an order acts. Raises OSError.

    operations: billed operations on the boards.
    """

    def __init__(
        self,
        member: FleetMember,
        board: FleetBoard,
        *,
        admin: Management,
        primary: str,
        warn: Callable[[str, str], object],
        changed: Callable[[], object],
        clock: Callable[[], float],
        carry_out: CarryOutOrder | None = None,
        keep: Callable[[Kept], object] = lambda _kept: None,
    ) -> None:
        self.operations = 0
        self._member = member
        self._board = board
        self._admin = admin
        self._primary = primary
        self._warn = warn
        self._changed = changed
        self._clock = clock
        self._tasks = TaskSupervisor()
        self._unsent: asyncio.Queue[Write] = asyncio.Queue(MAX_UNSENT)
        self._deadline_moved = asyncio.Event()
        self._reports_read = asyncio.Event()
        self._setting_up = asyncio.Lock()
        self._set_up_at = self._set_up_done_at = -inf
        self._staying: asyncio.TimerHandle | None = None
        self._is_set_up = False
        self._carry_out = carry_out
        self._keep = keep
        self._kept_version = 0
        self._acts: asyncio.Queue[CarryOut | Undo] = asyncio.Queue()
        self._kept_changed = asyncio.Event()
        self._is_informed, self._is_stored = asyncio.Event(), asyncio.Event()
        self._is_stored.set()
        self._orders_trouble = ""

    def start(self, snapshot: Snapshot) -> None:
        """Begin to read and post."""
        self._tasks.start(self._post(), name="the fleet's posts")
        self._tasks.start(self._tick(), name="the fleet's deadlines")
        self._tasks.start(self._act(), name="the fleet's orders")
        self._tasks.start(self._store(), name="the fleet's seen orders")
        self.note(snapshot)

    def note(self, snapshot: Snapshot) -> None:
        """Take the engine's own state."""
        self._tell(OwnState(at=self._clock(), snapshot=snapshot))

    def watch(self, *, is_watched: bool) -> None:
        """Note that a console shows the fleet through this engine, or none does any more.

        The boards are read at once. All engines look fast only if a console stays: a query ends before.
        """
        if self._staying is not None:
            self._staying.cancel()
            self._staying = None
        if is_watched:
            self._tell(RosterWanted(at=self._clock()))
            self._staying = asyncio.get_running_loop().call_later(STAYING_SECONDS, self._watched)
        else:
            self._tell(Watched(at=self._clock(), is_watched=False))

    def watch_now(self) -> None:
        """Post the watch of a console that is connected without a wait: it orders something."""
        if self._staying is not None:
            self._staying.cancel()
            self._watched()

    def _watched(self) -> None:
        self._tell(Watched(at=self._clock(), is_watched=True))

    def view(self) -> FleetView:
        """Return the fleet as this engine knows it."""
        return self._member.view()

    async def read_reports(self, within: float, *, most_age: float) -> FleetView | None:
        """Return the fleet by a reading of the reports at most `most_age` seconds old; None: none within `within`."""
        end = asyncio.get_running_loop().time() + within
        while True:
            view = self._member.view()
            if view.read_at is not None and self._clock() - view.read_at <= most_age:
                return view
            self._reports_read.clear()
            self._tell(RosterWanted(at=self._clock()))
            try:
                async with asyncio.timeout_at(end):
                    await self._reports_read.wait()
            except TimeoutError:
                return None

    async def take_up(self, within: float) -> str:
        """Read the boards and carry out what stands; return why they are not read, or ""."""
        try:
            async with asyncio.timeout(within):
                await self._is_informed.wait()
                await self._is_stored.wait()
                await self._acts.join()
        except TimeoutError:
            return self._orders_trouble or f"not read to the end within {within:g} s"
        return self._orders_trouble

    async def post_order(self, order: Order, signer: Signer | None) -> None:
        """Post a signed order. Raises FleetBoardError: it may be on the board after a timeout.

        signer: whose key verified; None: this engine verifies none, so it learns of the order by reading the board.
        """
        self.operations += 1
        await self._with_boards(partial(self._board.write, order, ORDER_SECONDS))
        verified = None if signer is None else VerifiedOrder(order=order, signer=signer)
        self._tell(OrderPosted(at=self._clock(), order=order, verified=verified))

    def note_local(self, subjects: tuple[Subject, ...], how: str) -> None:
        """Note a local operator's order about these subjects."""
        self._tell(LocallyOrdered(at=self._clock(), subjects=subjects, how=how))

    def note_signers(self, signers: str, verdicts: tuple[tuple[str, bool], ...]) -> None:
        """Note that the file of operators changed; SignersChanged has the arguments."""
        self._tell(SignersChanged(at=self._clock(), signers=signers, verdicts=verdicts))

    async def close(self, reason: str) -> None:
        """Post a goodbye within seconds, and end."""
        if self._staying is not None:
            self._staying.cancel()
        self._tell(Ending(at=self._clock(), reason=reason))
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._unsent.join()
        except TimeoutError:
            log.info("the goodbye was not posted: the fleet will show this engine as silent")
        await self._tasks.close()
        if self._kept_changed.is_set():
            await self._store_once()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                await self._board.close()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _tell(self, event: FleetEvent) -> None:
        before = self._member.next_deadline
        for effect in self._member.step(event):
            self._perform(effect)
        if self._member.next_deadline != before:
            self._deadline_moved.set()
        if self._member.orders.version != self._kept_version:
            self._kept_changed.set()
            self._is_stored.clear()
        if self._member.orders.is_informed:
            self._is_informed.set()

    def _perform(self, effect: FleetEffect) -> None:
        match effect:
            case ReadBoard():
                self._tasks.start(self._read(effect), name=f"a reading of the board {effect.board}")
            case Write():
                self._put(effect)
            case Clean():
                self._tasks.start(self._clean(effect), name=f"the cleaning of the board {effect.board}")
            case Say():
                self._warn(effect.about, effect.text)
            case CarryOut() | Undo():
                self._acts.put_nowait(effect)

    def _put(self, effect: Write) -> None:
        try:
            self._unsent.put_nowait(effect)
        except asyncio.QueueFull:
            reason = f"{MAX_UNSENT} documents wait to be posted already"
            failed = WriteFailed(at=self._clock(), document=effect.document, reason=reason)
            asyncio.get_running_loop().call_soon(partial(self._tell, failed))  # not inside of the machine's step

    async def _tick(self) -> None:
        while True:
            self._deadline_moved.clear()
            due = self._member.next_deadline
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due - self._clock()) if isfinite(due) else None):
                    await self._deadline_moved.wait()
            if due <= self._clock():
                self._tell(Ticked(at=self._clock()))

    async def _act(self) -> None:
        """Carry orders out one after the other."""
        while True:
            effect = await self._acts.get()
            try:
                await self._carry(effect)
            finally:
                self._acts.task_done()

    async def _carry(self, effect: CarryOut | Undo) -> None:
        if self._carry_out is None:
            log.error("an order came, and this engine carries none out")
            return
        try:
            ended = await self._carry_out(effect)
        except Exception:
            log.exception("an order of the fleet failed")
            ended = None
        if isinstance(effect, Undo):
            self._tell(Undone(at=self._clock(), order=effect.order))
        else:
            failed = OrderEnded(
                at=self._clock(),
                order_id=effect.order.id,
                outcome=Outcome.FAILED,
                text="failed; see the log",
                not_held=effect.command.targets or ("",),
            )
            self._tell(ended or failed)
        self._changed()

    async def _store(self) -> None:
        while True:
            await self._kept_changed.wait()
            if not await self._store_once():
                await asyncio.sleep(KEEP_AGAIN)
                self._kept_changed.set()

    async def _store_once(self) -> bool:
        """Write what was seen; return whether it is on disk."""
        self._kept_changed.clear()
        orders, trouble = self._member.orders, ""
        version, kept = orders.version, orders.kept
        try:
            await asyncio.to_thread(self._keep, kept)
        except OSError as error:
            trouble = error.strerror or str(error)
        else:
            self._kept_version = version
        self._tell(KeptOnDisk(at=self._clock(), version=version, trouble=trouble))
        if trouble or self._kept_version == orders.version:
            self._is_stored.set()
        return not trouble

    async def _post(self) -> None:
        while True:
            effect = await self._unsent.get()
            self.operations += 1
            try:
                await self._with_boards(partial(self._board.write, effect.document, effect.ttl))
            except FleetBoardError as error:
                failed = WriteFailed(
                    at=self._clock(),
                    document=effect.document,
                    reason=str(error),
                    is_busy=error.is_busy,
                    is_refused=error.is_refused,
                )
                self._tell(failed)
            else:
                self._tell(Written(at=self._clock(), document=effect.document))
            finally:
                self._unsent.task_done()
            self._changed()

    async def _read(self, effect: ReadBoard) -> None:
        try:
            posts, is_end = await self._with_boards(partial(self._board.read, effect.board, effect.since, effect.most))
        except FleetBoardError as error:
            self.operations += 1
            self._tell(ReadFailed(at=self._clock(), board=effect.board, reason=str(error), is_busy=error.is_busy))
            self._orders_trouble = str(error)
            self._is_informed.set()
        else:
            self.operations += max(1, len(posts))
            self._tell(
                BoardRead(at=self._clock(), board=effect.board, since=effect.since, posts=tuple(posts), is_end=is_end)
            )
            if effect.board is Board.REPORTS and is_end:
                self._reports_read.set()
            self._orders_trouble = ""
        self._changed()

    async def _clean(self, effect: Clean) -> None:
        deleted = None
        try:
            done = await self._board.clean(effect)
        except FleetBoardError as error:
            self.operations += 1
            log.info("the board %s was not cleaned: %s", effect.board, error)
        else:
            self.operations, deleted = self.operations + done.operations, done.deleted
        self._tell(CleaningEnded(at=self._clock(), wanted=effect, deleted=deleted))

    # -- missing boards -----------------------------------------------------------------------------------------------

    async def _with_boards(self, act: Callable[[], Awaitable[T]]) -> T:
        """Await an act; if a board is missing, create it and try again. Raises FleetBoardError."""
        try:
            return await act()
        except FleetBoardError as error:
            if not error.is_missing or not await self._set_up():
                raise
            return await act()

    async def _set_up(self) -> bool:
        """Create missing boards, not too often; return whether they exist now."""
        wanted_at = asyncio.get_running_loop().time()
        async with self._setting_up:
            if self._set_up_done_at >= wanted_at:  # another reading or post waited for it too
                return self._is_set_up
            now = asyncio.get_running_loop().time()
            if now - self._set_up_at < SET_UP_AGAIN:
                return False
            self._set_up_at, self._is_set_up = now, False
            try:
                done = await set_up_boards(self._admin, self._primary)
            except FleetBoardError as error:
                self._warn("fleet", f"the boards of the fleet cannot be created: {error}")
                return False
            finally:
                self._set_up_done_at = asyncio.get_running_loop().time()
            self._is_set_up = True
            for remark in done.remarks:
                self._warn("fleet", remark)
            log.info("the boards of the fleet exist; created: %s", ", ".join(done.created) or "none")
            return True
