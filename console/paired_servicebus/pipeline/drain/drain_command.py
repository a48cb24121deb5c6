"""`paired drain`: the pumps of many processes drain a large backlog, on the executors of a Spark cluster.

    this process ── order.json ──▶ the process with Spark ── waves of tasks ──▶ executors, a pump each
         ▲  progress bar, Ctrl-C                                                     │
         └────────────── the run's folder: progress, receipts, stop ◀────────────────┘

This process surveys the queues and their syphons, writes the audit line, shows the progress and moves receipts into the
pairing's journal. It runs no Spark, which takes over Ctrl-C and writes to the terminal. Tasks share queues and do not
keep order, as in every failover (SPEC.md section 1). A kill loses nothing: an uncompleted message stays in its queue.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Final

import msgspec
from azure.core.exceptions import AzureError

from paired_servicebus.config import PairingConfig
from paired_servicebus.core.errors import ConfigurationError, DrainError
from paired_servicebus.core.model.namespace_info import first_label
from paired_servicebus.core.model.pairing_events import Commanded, CommandEnded
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.core.operator.action_row import typed_right
from paired_servicebus.engine.clients.client_factory import open_admin
from paired_servicebus.engine.clients.start_checks import look_up_name
from paired_servicebus.engine.commands import drain_process
from paired_servicebus.engine.control.control_client import sudo_user, user_name
from paired_servicebus.engine.control.discovery import local_engines, query_engines
from paired_servicebus.engine.control.protocol import audit_name
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.journal import spool
from paired_servicebus.ownership import foreign_access
from paired_servicebus.pairing.management import backlog_queues
from paired_servicebus.pairing.management.management_port import Management
from paired_servicebus.pipeline.drain import drain_files
from paired_servicebus.pipeline.spark_processes import (
    TOOK,
    TROUBLE,
    Bar,
    LogReader,
    end_process,
    said,
    start_process,
)
from paired_servicebus.printing import print_lines, print_object

LOOK: Final = 0.5
GATHER: Final = 2.0
"""Seconds between two times that receipts are moved into the journal."""
END: Final = 30.0
"""Seconds that the process with Spark has to end after its outcome."""
LISTING: Final = 30.0
"""Seconds for the list of queues of the secondary namespace."""
CANNOT_KNOW: Final = "engines on other machines and of other users are not known here: see that none of them syphons"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPlan:
    """The options of a drain.

    master: a Spark master URL. parallelism: tasks at a time; None: the processors here, or one for each backlog queue
    on a cluster. rate: messages a second in total. journal: the spool folder that all executors see; None: the
    pairing's. settings: Spark's own.
    """

    config: PairingConfig
    places: EnginePaths
    master: str = "local[*]"
    parallelism: int | None = None
    rate: float | None = None
    journal: Path | None = None
    beside_syphon: bool = False
    yes: str = ""
    """The confirmation: the drain runs only if it equals the pairing's name."""
    why: str = ""
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ConfigurationError, with the option and its valid values."""
        if self.parallelism is not None and self.parallelism < 1:
            raise ConfigurationError(f"--parallelism is {self.parallelism}; it must be at least 1")
        if self.rate is not None and not 0 < self.rate < inf:
            raise ConfigurationError(f"--rate is {self.rate:g}; it is a number of messages a second, more than 0")

    @property
    def spool(self) -> Path:
        """The journal's folder."""
        return (self.journal or self.places.spool).absolute()


def run_drain(plan: DrainPlan, *, json_line: bool = False) -> int:
    """Drain; return the exit status: 0 if all is drained, 1 if some messages are left.

    Raises PairedError: the drain cannot begin or go on.
    """
    outcome = asyncio.run(_Drain(plan, Bar(quiet=json_line)).run())
    if json_line:
        print_object(msgspec.json.encode(outcome).decode())
    else:
        print_lines([_for_a_person(outcome)])
    return 0 if outcome.complete else 1


def _for_a_person(outcome: drain_files.DrainOutcome) -> str:
    aside = f"; {outcome.set_aside:,} wait in their queues for destinations that take nothing now"
    dead = f", {outcome.dead_lettered:,} dead-lettered"
    text = (
        f"{outcome.moved:,} messages moved in {outcome.seconds:.0f} s, {outcome.waves} waves"
        f"{dead if outcome.dead_lettered else ''}{aside if outcome.set_aside else ''}"
    )
    return f"drained: {text}" if outcome.complete else f"not all is drained, {outcome.text}: {text}"


@dataclass(frozen=True, slots=True)
class DrainTargets:
    """The queues to drain, their known depths in total, and the engines whose syphons move them too."""

    queues: dict[int, str]
    lying: int | None
    syphons: tuple[str, ...]
    unknown: tuple[str, ...]


async def look(config: PairingConfig, places: EnginePaths) -> DrainTargets:
    """Find the backlog queues, their depths and other syphons.

    Raises NamespaceUnreachableError, BacklogQueueError, ConfigurationError.
    """
    primary = await look_up_name(config.primary, places)
    async with open_admin(config.secondary) as admin:
        count = config.policy.backlog_queue_count
        queues = await backlog_queues.standing(admin, primary, count, patience=LISTING)
        secondary = (await backlog_queues.told(admin)).name or first_label(config.secondary.host)
        lying = await _lying(admin, queues)
    syphons, unknown = await _syphons(primary, secondary)
    return DrainTargets(queues, lying, syphons, unknown)


async def _lying(admin: Management, queues: Mapping[int, str]) -> int | None:
    try:
        depths = await asyncio.gather(*(backlog_queues.depth(admin, path) for path in queues.values()))
    except (AzureError, OSError, TimeoutError):
        return None
    return sum(depth.messages for depth in depths)


async def _syphons(primary: str, secondary: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return this user's local engines that move messages out of these queues, and those that do not answer."""
    namespaces = (primary.casefold(), secondary.casefold())
    syphons: list[str] = []
    unknown: list[str] = []
    for standing in await query_engines(local_engines()):
        snapshot = standing.snapshot
        if snapshot is None:
            unknown.append(f"the engine of {standing.pairing} is not known to rest ({standing.trouble})")
        elif (snapshot.primary.casefold(), snapshot.secondary.casefold()) == namespaces and (
            snapshot.syphon.status not in (SyphonStatus.OFF, SyphonStatus.PAUSED)
        ):
            syphons.append(snapshot.engine)
    return tuple(syphons), tuple(unknown)


async def _is_read_only(plan: DrainPlan) -> bool:
    """Return the state of the pairing's local engine, which may have been switched.

    Without an engine, return that of pairing.toml.
    """
    for standing in await query_engines(one for one in local_engines() if one.name == plan.places.name):
        if standing.snapshot is not None:
            return standing.snapshot.read_only
    return plan.config.read_only


def would(plan: DrainPlan, found: DrainTargets) -> tuple[str, ...]:
    """Return a preview of the drain as lines, for a command without the confirmation."""
    lying = "not known how many" if found.lying is None else f"{found.lying:,}"
    beside = f"engines that move the same messages here: {', '.join(found.syphons) or 'none'}"
    return (
        f"messages parked in {len(found.queues)} backlog queues: {lying}",
        f"moved by tasks of Spark on {plan.master}, to where they were sent; order may change",
        beside,
    )


def refusal(found: DrainTargets) -> str:
    """Why a drain would be beside a syphon; empty if none is known."""
    if not found.syphons:
        return ""
    names = ", ".join(found.syphons)
    return (
        f"{names} syphons the same backlog queues: pause it with `paired syphon pause`, or use --beside-syphon "
        "(nothing is lost then, but both take turns at every queue)"
    )


class _Drain:
    """One run."""

    def __init__(self, plan: DrainPlan, bar: Bar) -> None:
        self._plan = plan
        self._bar = bar
        self._tally = drain_files.ReceiptTally()
        self._stops = 0

    async def run(self) -> drain_files.DrainOutcome:
        """Run the drain to its end. Raises PairedError."""
        plan = self._plan
        if await _is_read_only(plan):
            raise DrainError(f"refused: the pairing {plan.config.name} is read-only, and a drain changes something")
        found = await look(plan.config, plan.places)
        if not typed_right(plan.yes, plan.config.name):
            print_lines(would(plan, found))
            raise DrainError(f"nothing was done: drain needs --yes {plan.config.name}")
        if found.syphons and not plan.beside_syphon:
            raise DrainError(refusal(found))
        for text in (*found.unknown, CANNOT_KNOW):
            self._bar.say(text)
        order = self._order(found)
        try:
            await asyncio.to_thread(self._prepare, order)
            return await self._drained(order, found)
        except OSError as error:
            raise DrainError(f"the journal's folder {plan.spool} cannot be used: {error}") from error

    def _order(self, found: DrainTargets) -> drain_files.DrainOrder:
        plan = self._plan
        local = plan.master.startswith("local")
        return drain_files.DrainOrder(
            run=f"{int(time.time())}-{uuid.uuid4().hex[:8]}",
            pairing=plan.config.name,
            config=str(plan.config.path.absolute()),
            spool=str(plan.spool),
            queues=list(found.queues.values()),
            master=retrying(plan.master),
            parallelism=plan.parallelism or ((os.cpu_count() or 1) if local else len(found.queues)),
            rate=plan.rate,
        )

    def _prepare(self, order: drain_files.DrainOrder) -> None:
        self._plan.places.prepare()
        spool.prepare(self._plan.spool)
        if files := drain_files.left_by_others(self._plan.spool):
            self._bar.say(f"{files} files of receipts, left by a drain that was killed, were moved into the journal")
        order.folder.parent.mkdir(mode=0o700, exist_ok=True)
        refuse_foreign(self._plan.spool, order.folder.parent)
        order.folder.mkdir(mode=0o700)
        drain_files.write(order.folder / "order.json", order)

    async def _drained(self, order: drain_files.DrainOrder, found: DrainTargets) -> drain_files.DrainOutcome:
        async with drain_files.Receipts(order.folder, order.pairing) as receipts:
            target = f"{len(order.queues)} backlog queues on {order.master}"
            by = audit_name(user_name(), claimed="", sudo_user=sudo_user())
            commanded = Commanded(at=time.time(), command="drain", target=target, by=by, why=self._plan.why)
            number = receipts.record(commanded)
            ended = "failed"
            try:
                outcome = await self._watched(order, found)
                ended = _for_a_person(outcome)
            finally:
                receipts.record(CommandEnded(at=time.time(), command_seq=number, outcome=ended))
        await asyncio.to_thread(self._clear_away, order)
        return outcome

    async def _watched(self, order: drain_files.DrainOrder, found: DrainTargets) -> drain_files.DrainOutcome:
        """Start the process with Spark, and look after it until it has ended."""
        log = self._plan.places.logs / f"drain-{order.run}.log"
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._stop, order)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop, order)
        try:
            with _process(order, self._plan.settings, log) as process, self._bar.shown("draining", found.lying):
                await self._until_ended(order, found, process, log)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().remove_signal_handler(number)
            await asyncio.to_thread(drain_files.gather, order.folder, self._plan.spool, self._tally)
            drain_process.clear_progress(self._plan.spool)
        text = said(log, TOOK)
        if not text:
            why = "killed" if self._stops > 1 else said(log, TROUBLE) or "the process with Spark ended before it did"
            raise DrainError(f"the drain did not go on: {why}; its log is {log}")
        counts = {"moved": self._tally.moved, "dead_lettered": self._tally.dead_lettered}
        return msgspec.structs.replace(msgspec.json.decode(text, type=drain_files.DrainOutcome), **counts)

    async def _until_ended(
        self, order: drain_files.DrainOrder, found: DrainTargets, process: subprocess.Popen[bytes], log: Path
    ) -> None:
        """Show the drain and gather its receipts until its process has ended, or is stopped twice, or late to end."""
        reader, gathered_at, ends_at = LogReader(log, self._bar), 0.0, inf
        while process.poll() is None and self._stops < 2:
            await asyncio.sleep(LOOK)
            now = time.monotonic()
            if now - gathered_at >= GATHER:
                gathered_at = now
                await asyncio.to_thread(drain_files.gather, order.folder, self._plan.spool, self._tally)
                self._show(
                    found,
                    await asyncio.to_thread(drain_files.progress_of, order.folder, self._tally),
                    reader.read().what,
                )
            if said(log, TOOK):
                ends_at = min(ends_at, now + END)
            if now > ends_at:
                self._bar.say("the process with Spark did not end by itself, and was ended")
                return

    def _show(self, found: DrainTargets, progress: drain_files.ReceiptTally, what: str) -> None:
        done = progress.moved + progress.dead_lettered
        total = None if found.lying is None else max(found.lying, done)
        self._bar.show("ending in order" if self._stops else what, done, total)
        text = f"a drain runs beside: {progress.moved:,} moved, {what}"
        drain_process.write_progress(self._plan.spool, drain_process.DrainProgress.now(text))

    def _stop(self, order: drain_files.DrainOrder) -> None:
        self._stops += 1
        (order.folder / "stop").touch()

    def _clear_away(self, order: drain_files.DrainOrder) -> None:
        if not drain_files.gather(order.folder, self._plan.spool, self._tally):
            shutil.rmtree(order.folder)


def refuse_foreign(*folders: Path) -> None:
    """Refuse folders in which another user could replace the order: executors follow it with the pairing's keys.

    Raises DrainError: another user can change one of them.
    """
    for folder in folders:
        how = foreign_access(folder)
        if how:
            raise DrainError(
                f"the journal's folder {folder} {how}, and executors obey its files: chmod go-w it, or name "
                "another with --journal"
            )


def retrying(master: str) -> str:
    """Return a local master that tries a task again, as clusters do: local[2] alone would not."""
    if master == "local":
        return "local[1,4]"
    if master.startswith("local[") and "," not in master:
        return master.replace("]", ",4]")
    return master


@contextmanager
def _process(order: drain_files.DrainOrder, settings: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the process with Spark; end it and its children at the end."""
    work = Path(tempfile.mkdtemp(prefix="paired-drain-"))
    main, text = "paired_servicebus.pipeline.drain.drain_main", msgspec.json.encode(settings)
    process = start_process(main, str(order.folder), str(work), log=log, order=text)
    try:
        yield process
    finally:
        end_process(process)
        shutil.rmtree(work, ignore_errors=True)
