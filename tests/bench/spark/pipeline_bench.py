"""How fast a journal becomes tables, and how far behind the tables are while one is written.

`--once` is measured for two sizes, and for the smaller one on a cluster of one master and two workers on this machine
besides: what is fixed and what grows can be told apart. Starting Spark is told apart from making the tables. Live, a
journal as engines have it is written at its events' pace; the lag is from an event's own time to the manifest that has
it, at its worst just before the next manifest.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Final

from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.bench.rounds import Figures, Targets
from paired_servicebus.core.errors import NoTablesError
from paired_servicebus.core.model.pairing_events import Delivered, MessageReceived, Record
from paired_servicebus.engine.journal import records
from paired_servicebus.engine.journal.spool import CLOSED, SUFFIX, prepare
from paired_servicebus.engine.journal.writer import Journal
from paired_servicebus.interpreter import python_command
from paired_servicebus.pipeline.spark_processes import PipelineOrder, PipelineProcess, PipelineTimes, start_pipeline
from paired_servicebus.pipeline.table_store import manifest as versions
from tests.bench.child_process import child_environment
from tests.bench.developer_plans import PipelinePlan
from tests.bench.spark.loopback_cluster import SETTINGS, cluster
from tests.bench.spark.synthetic_journal import events, write_journal

RATE_TARGET: Final = 30_000
MORE: Final = 200
"""Messages, received at once, of another boot of the engine."""
MORE_TARGET: Final = 1.3
LAG_TARGET: Final = 10.0
CORE_TARGET: Final = 0.5
TRIGGER: Final = 5.0
PLAYED: Final = 0.05
"""Seconds between two looks at what is to be written."""
WARM: Final = 40.0
"""Seconds of following before anything is measured: a JVM is slow at first."""
MOST: Final = 1_800.0
_TICK: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """One journal made into all tables."""

    events: int
    bytes: int
    start_s: float
    """Until Spark stood."""
    tables_s: float
    per_second: float
    """Events, while the tables were made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A journal followed: lag in seconds, and the CPU of the pipeline's processes in cores."""

    events_per_second: int
    trigger_s: float
    seconds: float
    batches: int
    lag_median_s: float
    lag_max_s: float
    cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFigures(Figures):
    """What was found, None: not asked for; `growth`: the large journal's time for an event by the small one's."""

    large: Once | None
    small: Once | None
    cluster: Once | None
    growth: float | None
    more_large_s: float | None
    more_small_s: float | None
    """Seconds for MORE messages on the tables of the large and of the small journal."""
    more_growth: float | None
    """Their ratio."""
    plain_s: float | None
    """Seconds of Spark alone for the large journal: see plain_spark.py."""
    live: Live | None
    load_average: float
    """Of the machine, when the measurement began."""

    @property
    def targets(self) -> Targets:
        """By name: what it should be, and whether it is."""
        found: Targets = {}
        if self.large is not None:
            found["large.per_second"] = (RATE_TARGET, self.large.per_second >= RATE_TARGET)
        if self.more_growth is not None:
            found["more_growth"] = (MORE_TARGET, self.more_growth <= MORE_TARGET)
        if self.live is not None:
            found["live.lag_max_s"] = (LAG_TARGET, self.live.lag_max_s <= LAG_TARGET)
            found["live.cores"] = (CORE_TARGET, self.live.cores <= CORE_TARGET)
        return found


async def measure_pipeline(plan: PipelinePlan) -> PipelineFigures:
    """Measure it in folders that are gone afterwards. Raises BenchError."""
    if find_spec("pyspark") is None:
        raise BenchError("Spark is not installed: pip install 'servicebus-paired-console[spark]' installs it")
    ended = threading.Event()
    try:
        return await asyncio.to_thread(_measured, plan, ended)
    finally:
        ended.set()


def _measured(plan: PipelinePlan, ended: threading.Event) -> PipelineFigures:
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="paired-bench-") as name:
        folder = Path(name)
        small = _once(folder / "small", plan.small, ended) if plan.has("once") else None
        spread = _spread(folder, plan.small, ended) if plan.has("cluster") else None
        large = _once(folder / "large", plan.events, ended) if plan.has("once") else None
        more = [_more(folder / one, ended) for one in ("small", "large")] if plan.has("once") else [None, None]
        plain = _plain(folder / "large" / "journal") if plan.has("once") else None
        live = _live(folder / "live", plan, ended) if plan.has("live") else None
    growth = round(small.per_second / large.per_second, 3) if small and large else None
    return PipelineFigures(
        large=large,
        small=small,
        cluster=spread,
        growth=growth,
        more_small_s=more[0],
        more_large_s=more[1],
        more_growth=round(more[1] / more[0], 3) if more[0] and more[1] else None,
        plain_s=plain,
        live=live,
        load_average=round(load, 1),
    )


def _plain(journal: Path) -> float:
    """Run Spark alone, in a process of its own."""
    command = python_command("tests.bench.spark.plain_spark", str(journal))
    done = subprocess.run(
        command, env=child_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    if done.returncode != 0:
        raise BenchError(f"Spark alone did not read {journal}: status {done.returncode}")
    return float(done.stdout)


def _spread(folder: Path, count: int, ended: threading.Event) -> Once:
    (folder / "daemons").mkdir()
    with cluster(folder / "daemons", workers=2) as standing:
        return _once(folder / "spread", count, ended, master=standing.master)


def _more(folder: Path, ended: threading.Event) -> float:
    """Add MORE messages to a journal whose tables are made; return how long the tables took."""
    start = _newest(folder / "tables") + 1.0
    pairs = [
        (
            Delivered(at=start + n / 100, entity="orders", message_id=f"more-{n}"),
            MessageReceived(at=start + n / 100, entity="orders", message_id=f"more-{n}", stream="more", number=n),
        )
        for n in range(1, MORE + 1)
    ]
    told = [event for pair in pairs for event in pair]
    lines = [
        records.encode(Record(engine="bench@here", boot="b1", seq=seq, event=event)) + b"\n"
        for seq, event in enumerate(told, 1)
    ]
    (folder / "journal" / CLOSED / f"bench@here-more{SUFFIX}").write_bytes(b"".join(lines))
    return _made(folder, ended).tables


def _once(folder: Path, count: int, ended: threading.Event, master: str | None = None) -> Once:
    size = write_journal(folder / "journal", count)
    took = _made(folder, ended, master)
    found = sum(file.rows for file in versions.newest(folder / "tables").manifest.of("events"))
    if found != count:
        raise BenchError(f"of {count:,} events {found:,} are in the tables")
    return Once(
        events=count,
        bytes=size,
        start_s=round(took.start, 2),
        tables_s=round(took.tables, 2),
        per_second=round(count / took.tables, 1),
    )


def _made(folder: Path, ended: threading.Event, master: str | None = None) -> PipelineTimes:
    settings = SETTINGS if master is not None else {}
    pipeline = start_pipeline(
        PipelineOrder(
            journals=(folder / "journal",), tables=folder / "tables", once=True, master=master, settings=settings
        )
    )
    try:
        until = time.monotonic() + MOST
        while (status := pipeline.wait(0.5)) is None and not ended.is_set() and time.monotonic() < until:
            continue
    finally:
        pipeline.stop()
    took = pipeline.took()
    if status != 0 or took is None:
        raise BenchError(f"the pipeline did not make its tables: {pipeline.trouble() or 'it took too long'}")
    return took


def _live(folder: Path, plan: PipelinePlan, ended: threading.Event) -> Live:
    journal, over = folder / "journal", threading.Event()
    prepare(journal)
    pipeline = start_pipeline(PipelineOrder(journals=(journal,), tables=folder / "tables", trigger=TRIGGER))
    with ThreadPoolExecutor(max_workers=1) as engine:
        played = engine.submit(asyncio.run, _play(journal, plan.rate, over))
        try:
            return _followed(pipeline, folder / "tables", plan, ended)
        finally:
            pipeline.stop()
            over.set()
            played.result()


def _followed(pipeline: PipelineProcess, tables: Path, plan: PipelinePlan, ended: threading.Event) -> Live:
    """Whenever the manifest changes, the lag just before was that of what it did not have yet."""
    began = time.time()
    lags: list[float] = []
    batches, newest, cpu, at = 0, began, 0.0, began
    while (now := time.time()) < began + WARM + plan.seconds and not ended.is_set():
        if not pipeline.running:
            raise BenchError(f"the pipeline ended: {pipeline.trouble()}")
        if now < began + WARM:
            cpu, at = _cpu(pipeline), now
        if (reached := _newest(tables)) > newest:
            if now >= began + WARM:
                batches += 1
                lags.append(now - newest)
            newest = reached
        time.sleep(0.05)
    if not lags:
        raise BenchError(f"the tables did not change in {plan.seconds:g} s")
    return Live(
        events_per_second=plan.rate,
        trigger_s=TRIGGER,
        seconds=round(now - at, 1),
        batches=batches,
        lag_median_s=round(median(lags), 2),
        lag_max_s=round(max(lags), 2),
        cores=round((_cpu(pipeline) - cpu) / (now - at), 3),
    )


async def _play(folder: Path, rate: int, over: threading.Event) -> None:
    """An engine's journal: events from now on, each when its time has come."""
    told = enumerate(events(1 << 62, per_second=rate, start=time.time()), start=1)
    seq, event = next(told)
    async with Journal(folder, engine="bench@here") as journal:
        while not over.is_set():
            with journal.together():
                while event.at <= time.time():
                    journal.append(records.encode(Record(engine="bench@here", boot="b0", seq=seq, event=event)))
                    seq, event = next(told)
            await asyncio.sleep(PLAYED)


def _newest(tables: Path) -> float:
    """The newest event in the tables, in seconds."""
    try:
        found = versions.newest(tables).manifest
    except NoTablesError:
        return 0.0
    return max((file.last_at for file in found.of("events")), default=0) / 1e6


def _cpu(pipeline: PipelineProcess) -> float:
    """Seconds of CPU of the pipeline's processes, Spark's and its Python workers among them."""
    parents: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        pid = int(stat.parent.name)
        parents.setdefault(int(fields[1]), []).append(pid)
        used[pid] = sum(map(int, fields[11:15]))  # its own, and its children's that ended
    pids = [pipeline.process.pid]
    for pid in pids:
        pids += parents.get(pid, [])
    return sum(used.get(pid, 0) for pid in pids) / _TICK
