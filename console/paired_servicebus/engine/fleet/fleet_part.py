"""An engine's part in the fleet, as its host uses it: views, evidence and usage from the boards of its pairing."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.backlog.depth_readings import QueueUsage
from paired_servicebus.core.errors import CleanUpError, FleetBoardError, UnreadableError, WireUnavailableError
from paired_servicebus.core.fleet.board.board_reader import carried_by
from paired_servicebus.core.fleet.fleet_documents import (
    Author,
    Board,
    CarriedOrder,
    Document,
    Order,
    Posted,
    Signer,
    Unverified,
    VerifiedOrder,
)
from paired_servicebus.core.fleet.fleet_events import Clean
from paired_servicebus.core.fleet.fleet_member import FleetMember, Identity
from paired_servicebus.core.fleet.orders.engine_orders import EngineOrders, Kept
from paired_servicebus.core.fleet.orders.order_rules import ThisEngine, decode_order_text
from paired_servicebus.core.fleet.roster.roster import syphons_elsewhere, usage_from
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.snapshot import Snapshot, Trouble, TroubleKind
from paired_servicebus.core.operator.actions import BY_ID, FLEET_VERBS
from paired_servicebus.core.operator.failover_readiness import Evidence
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.durable_file import replace_file
from paired_servicebus.engine.fleet.board_codec import PostedBy
from paired_servicebus.engine.fleet.board_port import Cleaned, FleetBoard
from paired_servicebus.engine.fleet.fleet_driver import CarryOutOrder, FleetDriver
from paired_servicebus.engine.fleet.order_signatures import CurrentSigners
from paired_servicebus.engine.fleet.service_bus_board import open_board
from paired_servicebus.engine.instance.identity import EngineIdentity, program_version
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pairing.paired_client import PairedServiceBusClient
from paired_servicebus.sections.fleet_options import Fleet

# A board whose orders are verified as they are read: each once, off the event loop, before the rules see them.

MAX_VERDICTS: Final = 2_000
"""Signed orders whose verdict is remembered: every presence carries the same few."""


class VerifiedBoard:
    """A FleetBoard that adds the signer to each order. signers: the file of operators, read before the orders are."""

    def __init__(self, board: FleetBoard, signers: CurrentSigners) -> None:
        self._board, self._signers = board, signers
        self._verdicts: dict[tuple[CarriedOrder, str], VerifiedOrder | None] = {}
        """By the signed order and the hash of the file of operators."""

    async def read(self, board: Board, since: int, most: int) -> tuple[Sequence[Posted], bool]:
        """Read posts as the board does, with the signers of orders, and the orders that presences carry."""
        posts, is_end = await self._board.read(board, since, most)
        await self._signers.refresh()
        if not any(isinstance(post.document, Order) or carried_by(post.document) for post in posts):
            return posts, is_end
        return await asyncio.to_thread(self._all, posts), is_end

    def _all(self, posts: Sequence[Posted]) -> list[Posted]:
        return [self._verified(post) for post in posts]

    def _verified(self, post: Posted) -> Posted:
        if isinstance(post.document, Order):
            return replace(post, signer=self._signers.verify(post.document))
        found = (self._carried(one) for one in carried_by(post.document))
        return replace(post, carried=tuple(one for one in found if one is not None))

    def _carried(self, one: CarriedOrder) -> VerifiedOrder | None:
        """Return an order that a presence carries; None: its signer is no operator, so it is nothing."""
        key = (one, self._signers.hash)
        if key not in self._verdicts:
            if len(self._verdicts) >= MAX_VERDICTS:
                self._verdicts.clear()
            self._verdicts[key] = self._verify_carried(one)
        return self._verdicts[key]

    def _verify_carried(self, one: CarriedOrder) -> VerifiedOrder | None:
        signed = one.signed.encode(errors="replace")
        try:
            order = Order(text=decode_order_text(signed), signed=signed, signature=one.signature)
        except UnreadableError:
            return None
        signer = self._signers.verify(order)
        return VerifiedOrder(order=order, signer=signer) if isinstance(signer, Signer) else None

    async def write(self, document: Document, ttl: float) -> None:
        """Post a document."""
        await self._board.write(document, ttl)

    async def clean(self, wanted: Clean) -> Cleaned:
        """Delete what no longer counts."""
        return await self._board.clean(wanted)

    async def close(self) -> None:
        """Close the connections."""
        await self._board.close()


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
        return read_json(_DECODER, (spool / NAME).read_bytes())
    except FileNotFoundError:
        return Kept()


def write_kept(spool: Path, kept: Kept) -> None:
    """Replace the file. Raises OSError."""
    replace_file(spool / NAME, msgspec.json.encode(kept))


MAX_ROSTER_AGE: Final = 120.0
"""Seconds since the last reading of the reports within which a queue may be deleted."""
ROSTER_SECONDS: Final = 8.0
"""Seconds that clean-up waits for a reading of the reports."""
TAKE_UP_SECONDS: Final = 4.8
"""Seconds that the first send waits for a reading of the orders."""


class FleetPart:
    """One engine in the fleet. Made by `join_fleet`; `close` ends it.

    Args:
        signers: the file of operators.
        warn: called with a subject and a sentence for the operator.
        now: returns the namespace's time.
    """

    def __init__(
        self,
        driver: FleetDriver,
        book: EngineOrders,
        signers: CurrentSigners,
        *,
        warn: Callable[[str, str], object],
        now: Callable[[], float],
    ) -> None:
        self._driver = driver
        self._book = book
        self._signers = signers
        self._warn = warn
        self._now = now

    def start(self, snapshot: Snapshot) -> None:
        """Begin to read and post."""
        self._driver.start(snapshot)

    async def take_up(self) -> None:
        """Carry out what stands on the board before the first send, within TAKE_UP_SECONDS."""
        if self._signers.signers is None:
            return
        if trouble := await self._driver.take_up(TAKE_UP_SECONDS):
            self._warn(
                "fleet",
                f"the orders of the fleet are not read ({trouble}): those that held before stand until their end, "
                "else the rules decide; newer ones are carried out as soon as the boards are read",
            )

    def note(self, snapshot: Snapshot) -> None:
        """Take the engine's own state."""
        self._driver.note(snapshot)

    def note_order(self, command: Command) -> None:
        """Note a local operator's order: what the fleet ordered about the same does not hold here."""
        action = BY_ID[command.action_id]
        subjects = tuple((action.stands_for, command.scope, one.casefold()) for one in command.targets or ("",))
        self._driver.note_local(subjects, f"{action.participle or action.label} here by {repeated(command.by)}")

    async def check(self, order: Order) -> str:
        """Return why an order would be void if it were posted; empty if it would count, as far as is known here."""
        await self._signers.refresh()
        return self._book.check(order, self._signer(order), self._now())

    def _signer(self, order: Order) -> Signer | Unverified:
        """Return who signed an order; an engine that looks only posts what its console signed, without a verdict."""
        return Signer(by="", fingerprint="") if self._signers.signers is None else self._signers.verify(order)

    async def post_order(self, order: Order) -> None:
        """Post a signed order. Raises FleetBoardError."""
        self._driver.watch_now()
        signer = self._signer(order)
        is_proven = self._signers.signers is not None and isinstance(signer, Signer)
        await self._driver.post_order(order, signer if is_proven and isinstance(signer, Signer) else None)

    def watch(self, watchers: int) -> None:
        """Note the number of consoles that watch through this engine."""
        self._driver.watch(is_watched=watchers > 0)

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """Return the engine's snapshot with the fleet, and the operations on its boards."""
        view, unusable = self._driver.view(), self._signers.trouble
        trouble = (Trouble(kind=TroubleKind.SIGNERS, reason=unusable),) if unusable else ()
        billed = replace(snapshot.billed, fleet=self._driver.operations)
        return replace(snapshot, fleet=view, troubles=(*snapshot.troubles, *trouble), billed=billed)

    def usage(self) -> QueueUsage:
        """Return the backlog queues that other engines of the fleet use, as far as it is known."""
        return usage_from(self._driver.view()) or QueueUsage()

    def add_evidence(self, evidence: Evidence) -> Evidence:
        """Return the evidence with the syphons of other hosts; a silent engine's is unknown, and not counted."""
        known = dict.fromkeys((*evidence.syphons_elsewhere, *(syphons_elsewhere(self._driver.view()) or ())))
        return replace(evidence, syphons_elsewhere=tuple(known))

    async def queues_in_use(self) -> frozenset[int]:
        """Return the backlog queues that other engines of the fleet use, by a reading of now.

        Raises:
            CleanUpError: the fleet is not known now.
        """
        view = await self._driver.read_reports(ROSTER_SECONDS, most_age=MAX_ROSTER_AGE)
        used = usage_from(view)
        if view is None or used is None or view.trouble:
            reason = view.trouble if view is not None and view.trouble else "its board was not read in time"
            raise CleanUpError(f"nothing is deleted: which engines of the fleet use it is unknown ({reason})")
        return used.used

    async def close(self, reason: str) -> None:
        """Say goodbye, and end."""
        await self._driver.close(reason)


class NoFleet:
    """The part of an engine that takes none: nothing is known of other hosts."""

    def start(self, snapshot: Snapshot) -> None:
        """Do nothing."""

    def note(self, snapshot: Snapshot) -> None:
        """Do nothing."""

    def watch(self, watchers: int) -> None:
        """Do nothing."""

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot."""
        return snapshot

    async def take_up(self) -> None:
        """Do nothing."""

    def note_order(self, command: Command) -> None:
        """Do nothing."""

    async def check(self, order: Order) -> str:
        """Return that there is no fleet."""
        del order
        return "the fleet is off in this engine: add [fleet] to its pairing.toml"

    async def post_order(self, order: Order) -> None:
        """Raise FleetBoardError: `check` refuses every order."""
        raise FleetBoardError(await self.check(order))

    def usage(self) -> QueueUsage:
        """Return no queues."""
        return QueueUsage()

    def add_evidence(self, evidence: Evidence) -> Evidence:
        """Return the evidence."""
        return evidence

    async def queues_in_use(self) -> frozenset[int]:
        """Return no queues."""
        return frozenset()

    async def close(self, reason: str) -> None:
        """Do nothing."""


async def join_fleet(
    fleet: Fleet | None,
    paired: PairedServiceBusClient,
    identity: EngineIdentity,
    *,
    warn: Callable[[str, str], object],
    changed: Callable[[], object],
    clock: Callable[[], float],
    carry_out: CarryOutOrder,
    spool: Path,
    kept: Kept,
) -> FleetPart | NoFleet:
    """Return an engine's part in the fleet; it reads and posts nothing before its `start`.

    Args:
        fleet: the settings; None: the engine takes no part.
        warn: called with a subject and a sentence for the operator, also if the boards cannot be reached at all.
        changed: called when the view may have changed.
        clock: seconds since the epoch.
        carry_out: carries an order out through the guard.
        spool: the folder for what the next engine needs.
        kept: what the engine before kept there, with what this one has taken up.
    """
    if fleet is None:
        return NoFleet()
    author = author_of(fleet, paired, identity)
    try:
        board = open_board(
            paired.secondary_client,
            primary=paired.primary_name,
            posted_by=PostedBy(pairing=author.pairing, engine=author.engine, boot=author.boot),
            orders=fleet.orders,
            reports=fleet.reports,
        )
    except WireUnavailableError as error:
        warn("fleet", f"this engine takes no part in the fleet: {error}")
        return NoFleet()
    signers = CurrentSigners(fleet.operators, warn=warn)
    await signers.load()
    book = _open_book(author, kept, signers)
    member = FleetMember(
        Identity(author=author, signers=signers.hash),
        expect=fleet.expect,
        spread=random.random(),
        orders=book,
        verbs=FLEET_VERBS,
    )
    driver = FleetDriver(
        member,
        VerifiedBoard(board, signers),
        admin=paired.secondary_admin,
        primary=paired.primary_name,
        warn=warn,
        changed=changed,
        clock=clock,
        carry_out=carry_out,
        keep=partial(write_kept, spool),
    )
    signers.changed = lambda found: driver.note_signers(found, tuple(_verdicts(book, signers).items()))
    return FleetPart(driver, book, signers, warn=warn, now=lambda: member.clock.namespace_time(clock()))


def _open_book(author: Author, kept: Kept, signers: CurrentSigners) -> EngineOrders:
    """Return the orders that the engine before had seen, by the present file of operators."""
    me = ThisEngine(name=author.engine, primary=author.primary, secondary=author.secondary)
    book = EngineOrders(engine=me, verbs=FLEET_VERBS, kept=kept)
    book.judge_again(_verdicts(book, signers))
    return book


def _verdicts(book: EngineOrders, signers: CurrentSigners) -> dict[str, bool]:
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
