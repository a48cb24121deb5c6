"""An engine's part in the fleet: it performs the machine's effects on the boards, and has the views for its host.

Documents are posted one after the other, in their order. Each call on a board has its own deadline inside the board's
adapter. A failure ends in the machine and in its view; neither sends nor pumps depend on it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf, isfinite
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from paired_servicebus.core.backlog.depth_readings import QueueUsage
from paired_servicebus.core.errors import CleanUpError, FleetBoardError, WireUnavailableError
from paired_servicebus.core.fleet.engine_orders import EngineOrders, Kept
from paired_servicebus.core.fleet.fleet_documents import (
    Author,
    Board,
    Order,
    Outcome,
    Signer,
    Unverified,
    decode_order_text,
)
from paired_servicebus.core.fleet.fleet_events import (
    BoardRead,
    CarryOut,
    Clean,
    CleaningEnded,
    Ending,
    FleetEffect,
    FleetEvent,
    OrderEnded,
    OwnState,
    ReadBoard,
    ReadFailed,
    Say,
    Ticked,
    Undo,
    Watched,
    Write,
    WriteFailed,
    Written,
)
from paired_servicebus.core.fleet.fleet_member import FleetMember
from paired_servicebus.core.fleet.order_rules import ORDER_SECONDS
from paired_servicebus.core.fleet.roster import syphons_elsewhere, usage_from
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.fleet_view import FleetView
from paired_servicebus.core.model.snapshot import Snapshot, Trouble, TroubleKind
from paired_servicebus.core.operator.actions import BY_ID, FLEET_VERBS
from paired_servicebus.core.operator.failover_readiness import Evidence
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.durable_file import replace_file
from paired_servicebus.engine.fleet.board_setup import set_up_boards
from paired_servicebus.engine.fleet.order_signatures import CurrentSigners
from paired_servicebus.engine.fleet.service_bus_board import ServiceBusBoard, open_board
from paired_servicebus.engine.instance.identity import EngineIdentity, program_version
from paired_servicebus.engine.instance.task_supervisor import TaskSupervisor
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pairing.management.management_port import Management
from paired_servicebus.pairing.paired_client import PairedServiceBusClient
from paired_servicebus.sections.fleet_options import Fleet

log = logging.getLogger(__name__)

T = TypeVar("T")

# What an engine has seen, on disk, for the next one of this name.
#
# The file is beside the journal. Only the engine's own user can write there.

NAME: Final = "fleet-seen.json"
_DECODER: Final = msgspec.json.Decoder(Kept)


def read_kept(spool: Path) -> Kept:
    """Return what the engine before kept; nothing if there is no file.

    Raises:
        OSError: the file cannot be read.
        UnreadableError: it is not such a file.
    """
    try:
        kept: Kept = read_json(_DECODER, (spool / NAME).read_bytes())
    except FileNotFoundError:
        return Kept()
    for one in kept.seen:
        decode_order_text(one.order.signed.encode())
    return kept


def write_kept(spool: Path, kept: Kept) -> None:
    """Replace the file. Raises OSError."""
    replace_file(spool / NAME, msgspec.json.encode(kept))


MAX_UNSENT: Final = 100
"""Documents that wait to be posted; the machine is told that further ones failed."""
GOODBYE_SECONDS: Final = 2.0
"""Seconds that an ending engine has for its goodbye."""
CLOSING_SECONDS: Final = 2.0
STAYING_SECONDS: Final = 3.0
"""Seconds after which a console that shows the fleet counts as a watch, and no more as a query."""
SET_UP_AGAIN: Final = 600.0
"""Seconds between two tries to create missing boards."""
KEEP_AGAIN: Final = 30.0
"""Seconds until what was seen is written again after the disk refused it."""
MAX_ROSTER_AGE: Final = 120.0
"""Seconds since the last reading of the reports within which a queue may be deleted."""
ROSTER_SECONDS: Final = 8.0
"""Seconds that clean-up waits for a reading of the reports."""
TAKE_UP_SECONDS: Final = 4.8
"""Seconds that the first send waits for a reading of the orders."""

CarryOutOrder = Callable[[CarryOut | Undo], Awaitable[OrderEnded]]
"""Carries an order of the fleet out, or refuses it."""


class FleetPart:
    """One engine in the fleet, from `start` to `close`. Made by `join_fleet`.

    Args:
        member: the pure machine.
        board: the boards in the secondary namespace.
        signers: the file of operators.
        admin: the secondary's management, which creates missing boards.
        primary: the primary's name in the paths of the boards.
        warn: called with a subject and a sentence for the operator.
        changed: called when the view may have changed.
        clock: seconds since the epoch.
        carry_out: carries an order out through the guard.
        keep: writes what was seen to disk; called off the event loop, before an order acts. Raises OSError.
    """

    def __init__(
        self,
        member: FleetMember,
        board: ServiceBusBoard,
        signers: CurrentSigners,
        *,
        admin: Management,
        primary: str,
        warn: Callable[[str, str], object],
        changed: Callable[[], object],
        clock: Callable[[], float],
        carry_out: CarryOutOrder,
        keep: Callable[[Kept], object],
    ) -> None:
        self._member, self._book = member, member.orders
        self._board, self._signers = board, signers
        self._admin, self._primary = admin, primary
        self._warn, self._changed, self._clock = warn, changed, clock
        self._carry_out, self._keep = carry_out, keep
        self._tasks = TaskSupervisor()
        self._operations = 0
        """Billed operations on the boards."""
        self._unsent: asyncio.Queue[Write] = asyncio.Queue(MAX_UNSENT)
        self._acts: asyncio.Queue[CarryOut | Undo] = asyncio.Queue()
        self._deadline_moved, self._reports_read = asyncio.Event(), asyncio.Event()
        self._setting_up: asyncio.Future[bool] | None = None
        self._set_up_at = -inf
        self._staying: asyncio.TimerHandle | None = None
        self._kept_version = 0
        self._kept_changed = asyncio.Event()
        self._is_informed, self._is_stored = asyncio.Event(), asyncio.Event()
        self._is_stored.set()
        self._orders_trouble = ""
        signers.changed = self._note_signers

    # -- for the host -------------------------------------------------------------------------------------------------

    def start(self, snapshot: Snapshot) -> None:
        """Begin to read and post."""
        self._tasks.start(self._post(), name="the fleet's posts")
        self._tasks.start(self._tick(), name="the fleet's deadlines")
        self._tasks.start(self._act(), name="the fleet's orders")
        self._tasks.start(self._store(), name="the fleet's seen orders")
        self.note(snapshot)

    async def take_up(self) -> None:
        """Read the boards and carry out what stands before the first send, within TAKE_UP_SECONDS."""
        if self._signers.signers is None:
            return
        trouble = ""
        try:
            async with asyncio.timeout(TAKE_UP_SECONDS):
                await self._is_informed.wait()
                await self._is_stored.wait()
                await self._acts.join()
        except TimeoutError:
            trouble = f"not read to the end within {TAKE_UP_SECONDS:g} s"
        if trouble := self._orders_trouble or trouble:
            self._warn(
                "fleet",
                f"the orders of the fleet are not read ({trouble}): those that held before stand until their end, "
                "else the rules decide; newer ones are carried out as soon as the boards are read",
            )

    def note(self, snapshot: Snapshot) -> None:
        """Take the engine's own state."""
        self._tell(OwnState(at=self._clock(), snapshot=snapshot))

    def note_order(self, command: Command) -> None:
        """Note a local operator's order: what the fleet ordered about the same does not hold here."""
        action = BY_ID[command.action_id]
        how = f"{action.participle or action.label} here by {repeated(command.by)}"
        self._book.note_local(action.subjects(command.scope, command.targets), how, self._now())
        self._tell_time()

    def _now(self) -> float:
        return self._member.clock.namespace_time(self._clock())

    async def check(self, order: Order) -> str:
        """Return why an order would be void if it were posted; empty if it would count, as far as is known here."""
        await self._signers.refresh()
        return self._book.check(order, self._signer(order), self._now())

    def _signer(self, order: Order) -> Signer | Unverified:
        """Return who signed an order; an engine that looks only posts what its console signed, without a verdict."""
        return Signer(by="", fingerprint="") if self._signers.signers is None else self._signers.verify(order)

    async def post_order(self, order: Order) -> None:
        """Post a signed order. Raises FleetBoardError: it may be on the board after a timeout.

        An engine that verifies none learns of the order by reading the board.
        """
        if self._staying is not None:  # the console that orders watches without a wait
            self._staying.cancel()
            self._begin_watch()
        signer = self._signer(order)
        self._operations += 1
        await self._with_boards(partial(self._board.write, order, ORDER_SECONDS))
        proven = signer if isinstance(signer, Signer) and self._signers.signers is not None else None
        self._member.note_posted(order, proven, self._clock())
        self._tell_time()

    def watch(self, watchers: int) -> None:
        """Note the number of consoles that show the fleet through this engine.

        The boards are read at once. All engines look fast only if a console stays: a query ends before.
        """
        if self._staying is not None:
            self._staying.cancel()
            self._staying = None
        if watchers > 0:
            self._member.want_reports(self._clock())
            self._tell_time()
            self._staying = asyncio.get_running_loop().call_later(STAYING_SECONDS, self._begin_watch)
        else:
            self._tell(Watched(at=self._clock(), is_watched=False))

    def _begin_watch(self) -> None:
        self._tell(Watched(at=self._clock(), is_watched=True))

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """Return the engine's snapshot with the fleet, and the operations on its boards."""
        unusable = self._signers.trouble
        trouble = (Trouble(kind=TroubleKind.SIGNERS, reason=unusable),) if unusable else ()
        billed = replace(snapshot.billed, fleet=self._operations)
        return replace(snapshot, fleet=self._member.view(), troubles=(*snapshot.troubles, *trouble), billed=billed)

    def usage(self) -> QueueUsage:
        """Return the backlog queues that other engines of the fleet use, as far as it is known."""
        return usage_from(self._member.view()) or QueueUsage()

    def add_evidence(self, evidence: Evidence) -> Evidence:
        """Return the evidence with the syphons of other hosts; a silent engine's is unknown, and not counted."""
        known = dict.fromkeys((*evidence.syphons_elsewhere, *(syphons_elsewhere(self._member.view()) or ())))
        return replace(evidence, syphons_elsewhere=tuple(known))

    async def queues_in_use(self) -> frozenset[int]:
        """Return the backlog queues that other engines of the fleet use, by a reading of now.

        Raises:
            CleanUpError: the fleet is not known now.
        """
        view = await self._read_reports()
        used = usage_from(view)
        if view is None or used is None or view.trouble:
            reason = view.trouble if view is not None and view.trouble else "its board was not read in time"
            raise CleanUpError(f"nothing is deleted: which engines of the fleet use it is unknown ({reason})")
        return used.used

    async def _read_reports(self) -> FleetView | None:
        """Return the fleet by a recent reading of the reports; None: there is none in time."""
        end = asyncio.get_running_loop().time() + ROSTER_SECONDS
        while True:
            view = self._member.view()
            if view.read_at is not None and self._clock() - view.read_at <= MAX_ROSTER_AGE:
                return view
            self._reports_read.clear()
            self._member.want_reports(self._clock())
            self._tell_time()
            try:
                async with asyncio.timeout_at(end):
                    await self._reports_read.wait()
            except TimeoutError:
                return None

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
        if self._setting_up is not None:
            self._setting_up.cancel()
        if self._kept_changed.is_set():
            await self._store_once()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                await self._board.close()

    # -- the machine's effects ----------------------------------------------------------------------------------------

    def _tell(self, event: FleetEvent) -> None:
        before = self._member.next_deadline
        for effect in self._member.step(event):
            self._perform(effect)
        if self._member.next_deadline != before:
            self._deadline_moved.set()
        if self._book.version != self._kept_version:
            self._kept_changed.set()
            self._is_stored.clear()
        if self._book.is_informed:
            self._is_informed.set()

    def _tell_time(self) -> None:
        self._tell(Ticked(at=self._clock()))

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
                self._tell_time()

    async def _act(self) -> None:
        """Carry orders out one after the other."""
        while True:
            effect = await self._acts.get()
            try:
                await self._carry(effect)
            finally:
                self._acts.task_done()

    async def _carry(self, effect: CarryOut | Undo) -> None:
        try:
            ended = await self._carry_out(effect)
        except Exception:
            log.exception("an order of the fleet failed")
            ended = None
        if isinstance(effect, Undo):
            self._book.note_undone(effect.order)
        else:
            named, text = effect.command.targets or ("",), "failed; see the log"
            failed = OrderEnded(order_id=effect.order.id, outcome=Outcome.FAILED, text=text, not_held=named)
            self._book.note_outcome(ended or failed)
        self._tell_time()
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
        trouble, version, kept = "", self._book.version, self._book.kept
        try:
            await asyncio.to_thread(self._keep, kept)
        except OSError as error:
            trouble = error.strerror or str(error)
        else:
            self._kept_version = version
        if warning := self._book.note_kept(version, trouble):
            self._warn("fleet", warning)
        self._tell_time()
        if trouble or self._kept_version == self._book.version:
            self._is_stored.set()
        return not trouble

    def _note_signers(self, signers: str) -> None:
        """Judge every seen order again, since the file of operators changed."""
        self._member.note_signers(signers, verdicts_by(self._book, self._signers), self._clock())
        self._tell_time()

    async def _post(self) -> None:
        while True:
            effect = await self._unsent.get()
            self._operations += 1
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
            self._operations += 1
            self._tell(ReadFailed(at=self._clock(), board=effect.board, reason=str(error), is_busy=error.is_busy))
            self._orders_trouble = str(error)
            self._is_informed.set()
        else:
            self._operations += max(1, len(posts))
            verified = tuple(await self._signers.verify_posts(posts))
            self._tell(
                BoardRead(at=self._clock(), board=effect.board, since=effect.since, posts=verified, is_end=is_end)
            )
            if effect.board is Board.REPORTS and is_end:
                self._reports_read.set()
            self._orders_trouble = ""
        self._changed()

    async def _clean(self, effect: Clean) -> None:
        try:
            self._operations += await self._board.clean(effect)
        except FleetBoardError as error:
            self._operations += 1
            log.info("the board %s was not cleaned: %s", effect.board, error)
        self._tell(CleaningEnded(at=self._clock(), wanted=effect))

    # -- missing boards -----------------------------------------------------------------------------------------------

    async def _with_boards(self, act: Callable[[], Awaitable[T]]) -> T:
        """Await an act; if a board is missing, create it and try again. Raises FleetBoardError."""
        try:
            return await act()
        except FleetBoardError as error:
            if not error.is_missing or not await self._has_boards():
                raise
            return await act()

    async def _has_boards(self) -> bool:
        """Create missing boards, not too often; return whether they exist now."""
        now = asyncio.get_running_loop().time()
        if self._setting_up is None or (self._setting_up.done() and now - self._set_up_at >= SET_UP_AGAIN):
            self._setting_up, self._set_up_at = asyncio.ensure_future(self._set_up()), now
        return await asyncio.shield(self._setting_up)  # for all readings and posts that wait for it

    async def _set_up(self) -> bool:
        try:
            done = await set_up_boards(self._admin, self._primary)
        except FleetBoardError as error:
            self._warn("fleet", f"the boards of the fleet cannot be created: {error}")
            return False
        for remark in done.remarks:
            self._warn("fleet", remark)
        log.info("the boards of the fleet exist; created: %s", ", ".join(done.created) or "none")
        return True


async def join_fleet(
    fleet: Fleet,
    paired: PairedServiceBusClient,
    identity: EngineIdentity,
    *,
    warn: Callable[[str, str], object],
    changed: Callable[[], object],
    clock: Callable[[], float],
    carry_out: CarryOutOrder,
    spool: Path,
    kept: Kept,
) -> FleetPart | None:
    """Return an engine's part in the fleet, which reads and posts nothing before its `start`; None: it takes none.

    Args:
        fleet: the settings.
        warn: called with a subject and a sentence for the operator, also if the boards cannot be reached at all.
        changed: called when the view may have changed.
        clock: seconds since the epoch.
        carry_out: carries an order out through the guard.
        spool: the folder for what the next engine needs.
        kept: what the engine before kept there, with what this one has taken up.
    """
    author = author_of(fleet, paired, identity)
    try:
        board = open_board(
            paired.secondary_client,
            primary=paired.primary_name,
            posted_by=author,
            orders=fleet.orders,
            reports=fleet.reports,
        )
    except WireUnavailableError as error:
        warn("fleet", f"this engine takes no part in the fleet: {error}")
        return None
    signers = CurrentSigners(fleet.operators, warn=warn)
    await signers.load()
    book = EngineOrders(engine=author, verbs=FLEET_VERBS, kept=kept)
    book.judge_again(verdicts_by(book, signers))
    member = FleetMember(
        author,
        signers=signers.hash,
        expect=fleet.expect,
        spread=random.random(),
        orders=book,
    )
    return FleetPart(
        member,
        board,
        signers,
        admin=paired.secondary_admin,
        primary=paired.primary_name,
        warn=warn,
        changed=changed,
        clock=clock,
        carry_out=carry_out,
        keep=partial(write_kept, spool),
    )


def verdicts_by(book: EngineOrders, signers: CurrentSigners) -> dict[str, bool]:
    """Return which seen orders the file of operators verifies now; none while it is unusable: what stands stays."""
    if signers.signers is None:
        return {}
    return {one.order.id: one.is_signed_by(signers.verify(one.order)) for one in book.register.orders}


def author_of(fleet: Fleet, paired: PairedServiceBusClient, identity: EngineIdentity) -> Author:
    """Return the head of an engine's documents."""
    return Author(
        engine=fleet.name or identity.engine,
        boot=identity.boot,
        host=socket.gethostname(),
        pid=os.getpid(),
        program="paired" if identity.own_process else Path(sys.argv[0]).name or "python",
        version=program_version(),
        pairing=identity.pairing,
        environment=identity.environment,
        primary=paired.primary_name,
        secondary=paired.secondary_name,
    )
