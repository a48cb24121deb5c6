"""The loop of batches: new journal files into the tables, again and again, and what is due beside it.

A batch that failed is repeated; nothing of it was taken. Spark tries a task four times by itself, but not the batch
around it.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

import msgspec

from paired_servicebus.core.errors import PairedError, PipelineError
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.engine.journal.spool import SUFFIX
from paired_servicebus.pipeline.ingest import journal_files
from paired_servicebus.pipeline.ingest.batch_tables import BatchTables
from paired_servicebus.pipeline.ingest.table_files import (
    Existing,
    as_frame,
    frame,
    merge_parts,
    parts,
    staged_parts,
    write_dated,
    write_rows,
)
from paired_servicebus.pipeline.judging import audit_sql, verdict_sql
from paired_servicebus.pipeline.judging.derived_sql import EPISODE_FIGURES, EPISODES_JUDGED
from paired_servicebus.pipeline.spark import spark_session
from paired_servicebus.pipeline.spark_processes import NOTE, write_line
from paired_servicebus.pipeline.table_store.lake import STAGING, Change, Files, Lake, Staged, file_of
from paired_servicebus.pipeline.table_store.manifest import File, Manifest, Version
from paired_servicebus.pipeline.table_store.schema import DATED, TABLES, date_sql
from paired_servicebus.pipeline.table_store.sql_engine import DuckdbEngine
from paired_servicebus.pipeline.table_store.store_path import Place, place_of
from paired_servicebus.pipeline.table_store.table_reader import opened_engine

# What is due beside the batches: judgements, and compaction.
#
# Both are done at the end of `--once`. Following, a thread does one work at a time beside the batches, in Spark's fair
# order (spark_session) and in small tasks. A work is of its first version; later additions stay.

# Compaction: of many small files of a table's day one. Rows are copied by Arrow; nothing is computed.
#
# A batch adds a file to `events` and `timeline`. FAN files that were merged as often are merged to one, so a row is
# copied a few times, however many batches a day has. When a day is over, its small files are made one. Files with LARGE
# rows or more are left alone.

FAN: Final = 10
LARGE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Crowd:
    """Files of one table that are to be one."""

    table: str
    files: tuple[File, ...]


def crowds(manifest: Manifest) -> list[Crowd]:
    """Return the files that are to be merged."""
    found: list[Crowd] = []
    newest = max((file.date for file in manifest.of("events")), default="")
    for table in sorted(DATED):
        groups: dict[tuple[str, bool, int], list[File]] = defaultdict(list)
        for file in manifest.of(table):
            if 0 < file.rows < LARGE and _OPEN not in file.name:
                is_over = file.date < newest
                is_judged = table != "events" or file.batch <= manifest.judged
                groups[file.date, is_judged, -1 if is_over else file.merged].append(file)
        found += [
            Crowd(table, tuple(files))
            for (_, _, merged), files in groups.items()
            if len(files) >= (FAN if merged >= 0 else 2)
        ]
    return found


def compact(lake: Lake) -> None:
    """Merge the files that are to be merged, and commit. Raises OSError; then the tables are as they were."""
    with lake.pinned() as version, lake.staged("compact") as place:
        made: dict[str, list[tuple[Crowd, Staged]]] = defaultdict(list)
        for number, crowd in enumerate(crowds(version.manifest)):
            path = place / f"{number}.parquet"
            merge_parts([version.path / crowd.table / file.name for file in crowd.files], path, crowd.table)
            made[crowd.table].append((crowd, Staged(path, _one(crowd, f"{version.manifest.batch:010d}-{number}"))))
        lake.commit(lambda now: Change(files={table: _replaced(now, table, new) for table, new in made.items()}))


def _one(crowd: Crowd, name: str) -> File:
    files = crowd.files
    return File(
        name=f"date={files[0].date}/c{name}.parquet",
        rows=sum(file.rows for file in files),
        first_at=min((file.first_at for file in files if file.first_at), default=0),
        last_at=max(file.last_at for file in files),
        batch=max(file.batch for file in files),
        merged=max(file.merged for file in files) + 1,
    )


def _replaced(now: Manifest, table: str, made: Sequence[tuple[Crowd, Staged]]) -> list[File | Staged]:
    """Return a table's files with the new ones for the merged ones; where these have changed since, they stay."""
    present = set(now.of(table))
    new = [(crowd, one) for crowd, one in made if present.issuperset(crowd.files)]
    gone = {file for crowd, _ in new for file in crowd.files}
    return [*(file for file in now.of(table) if file not in gone), *(one for _, one in new)]


# A judgement: `receipts`, `audit`, `verdicts`, and what episodes have of them. Spark runs the SQL of `judging`.
#
# New receipts are added to the known ones, in files that have rows of the same messages. Then the messages that they
# touch are judged, and those whose fate is open; all of them, where a boot's records came after later ones of the same
# boot, or where two names turned out to be one pairing. Open fates are in files of their own, which each judgement
# replaces. Settled messages older than KEPT are dropped.

KEPT: Final = 30 * 24 * 3600 * 1_000_000
"""Microseconds, back from the newest record, or from now if that claims to be later."""
_UNSETTLED: Final = f"select count(*) as n from audit where status not in ({audit_sql.SETTLED})"
_OPEN: Final = "-open-"
"""Part of the name of an audit's file with open fates."""
_FILE: Final = "substring_index(_metadata.file_path, '/', -2) as file"
_WITH_KEYS: Final = """
select distinct file from rows_of_files left semi join {keys} as keys
on rows_of_files.pairing = keys.pairing and rows_of_files.folded = keys.folded
   and rows_of_files.message_id = keys.message_id
"""
_WITH_NAMES: Final = "select distinct file from rows_of_files left semi join other_names on pairing = other_name"
_OTHER_NAMES: Final = """
select distinct pairing_name as other_name, pairing as shared_name from engines where pairing_name <> pairing
"""
_RENAMED: Final = """
select known.* except (pairing), coalesce(shared_name, pairing) as pairing
from {rows} as known left join other_names on pairing = other_name
"""
_EPISODES: Final = """
select known.* replace (coalesce(shared_name, pairing) as pairing)
from stored.episodes as known left join other_names on pairing = other_name
"""
"""An engine that was heard later can show that two names are one pairing."""
_KEPT: Final = f"""
with latest as (select *, max(received_at) over (partition by pairing, lower(entity)) as last_received from audit)
select pairing as kept_pairing, lower(entity) as kept_entity, message_id as kept_id from latest
where last_at >= timestamp_micros({{horizon}}) or status not in ({audit_sql.SETTLED}) or received_at = last_received
"""
"""The message that an entity's receivers reported last stays: with none, it would seem that they report nothing."""


def judge(spark: Any, lake: Lake) -> None:
    """Judge the messages, and commit. Raises Spark's errors and OSError; then the tables are as they were."""
    with lake.pinned() as version, lake.staged("judged") as place, opened_engine(version) as engine:
        began = version.manifest
        end = began.end(time.time())
        rows = sum(file.rows for file in (*began.of("receipts"), *began.unjudged()))
        work = _Judgement(spark_session.session_for(spark, rows), engine, version, place, end)
        new = work.dropped({"receipts": work.receipts(), **work.audit()})

        def change(now: Manifest) -> Change:
            events = tuple(file for file in now.of("events") if file.last_at >= end - KEPT or not file.last_at)
            episodes = _with_figures(place, lake.version, work.figures, work.shared_names)
            fields = {
                "judged": began.batch,
                "judged_at": time.time(),
                "unsettled": work.unsettled,
                "receipts": now.receipts - began.receipts,
            }
            return Change(files={**new, "events": events, **episodes}, fields=fields)

        lake.commit(change)


class _Judgement:
    """One judgement's steps, each with its files; `engine` makes what is of a few rows, `spark` all else."""

    def __init__(self, spark: Any, engine: DuckdbEngine, version: Version, place: Place, end: int) -> None:
        self._spark = spark
        self._engine = engine
        self._existing = Existing(spark, version)
        self._manifest = version.manifest
        self._place = place
        self._end = end
        self._batch = version.manifest.batch + 1
        self._whole = not self._existing.of("audit") or self._manifest.late_batch > self._manifest.judged
        self.unsettled = 0
        self.figures: Any = None
        """The figures of each episode, an Arrow table, once the audit is made."""
        for table in ("engines", "backlog", "episodes"):
            self._existing.rows(table).createOrReplaceTempView(table)
        engine.make("engines", "select * from stored.engines")
        self.shared_names = self._shared_names()

    def receipts(self) -> Files:
        """Add the new receipts to the known ones; make the view `receipts` of all."""
        existing, table = self._existing, "receipts"
        existing.rows("events", self._manifest.unjudged()).createOrReplaceTempView("new_events")
        partial = audit_sql.PARTIAL.format(events="new_events")
        files = existing.of(table)
        changed: set[str] = set()
        if files:
            self._keep("new_receipts", partial)
            self._keep("touched", audit_sql.TOUCHED)
            changed = self._files_of(table, files, _WITH_KEYS.format(keys="touched"))
            stale = self._files_of(table, files, _WITH_NAMES) if self.shared_names.num_rows else set[str]()
            self._whole = self._whole or bool(stale)
            changed |= stale
            existing.rows(table, [one for one in files if one.name in changed]).createOrReplaceTempView("known")
            self._keep("touched_before", audit_sql.TOUCHED_BEFORE.format(known="known"))
            known = f"({_RENAMED.format(rows='known')})" if stale else "known"
            columns = ", ".join(f"`{name}`" for name in TABLES[table])
            partial = f"select {columns} from new_receipts union all select {columns} from {known}"
        kept = [one for one in files if one.name not in changed]
        new: list[File | Staged] = [*kept, *self._write(table, audit_sql.MERGE.format(partials=f"({partial})"))]
        self._view(table, new)
        return new

    def _files_of(self, table: str, files: Sequence[File], query: str) -> set[str]:
        """Return the names of the files, of some of a table's, that a query finds by the keys of their rows."""
        if not files:
            return set()
        rows = self._existing.rows(table, files)
        rows = rows.selectExpr("pairing", "lower(entity) as folded", "message_id", _FILE)
        rows.createOrReplaceTempView("rows_of_files")
        return set(self._arrow(query)["file"].to_pylist())

    def _shared_names(self) -> Any:
        """Return the pairing of each other name that engines gave it, an Arrow table; make the view `other_names`."""
        self._engine.make("other_names", _OTHER_NAMES)
        names = self._engine.arrow("other_names")
        as_frame(self._spark, names).createOrReplaceTempView("other_names")
        return names

    def audit(self) -> dict[str, Files]:
        """Judge; make the view `audit`."""
        spark, existing = self._spark, self._existing
        existing.rows("audit").createOrReplaceTempView("known_audit")
        for independent in audit_sql.parts(whole=self._whole, now=self._end):
            spark_session.side_by_side(spark, [partial(self._make, name, query) for name, query in independent.items()])
        new: list[File | Staged] = [] if self._whole else self._kept_fates()
        new += self._write("audit", audit_sql.AUDIT)
        self._view("audit", new)
        return {"audit": new, "verdicts": self._verdicts()}

    def _kept_fates(self) -> list[File | Staged]:
        """Return the audit's files of messages that are not judged again; those with others are written again."""
        settled = [one for one in self._existing.of("audit") if _OPEN not in one.name]
        changed = self._files_of("audit", settled, _WITH_KEYS.format(keys="scope"))
        kept: list[File | Staged] = [one for one in settled if one.name not in changed]
        if changed:
            rows = self._existing.rows("audit", [one for one in settled if one.name in changed])
            rows.createOrReplaceTempView("known_audit")
            kept += self._write("audit", audit_sql.KEPT, "kept")
        return kept

    def _verdicts(self) -> Files:
        """Sum up the view `audit`."""
        parts = verdict_sql.PARTS
        unsettled, self.figures, *made = spark_session.side_by_side(
            self._spark,
            [partial(self._arrow, query) for query in (_UNSETTLED, EPISODE_FIGURES, *parts.values())],
        )
        self.unsettled = unsettled["n"][0].as_py()
        for name, rows in zip(parts, made, strict=True):
            self._engine.put(name, rows)
        self._engine.make("verdicts", verdict_sql.VERDICTS.format(now=self._end, journals="engines"))
        return write_rows(self._place, "verdicts", self._engine.arrow("verdicts"), self._batch)

    def _make(self, name: str, query: str) -> None:
        """Make a part of the audit, once, however often it is read."""
        if name in audit_sql.LARGE:  # its size is not bounded, and decides how it is joined
            self._keep(name, query)
            return
        if name in audit_sql.OF_PARTS:
            self._engine.make(name, query)
        else:
            self._engine.put(name, self._arrow(query))
        as_frame(self._spark, self._engine.arrow(name)).createOrReplaceTempView(name)

    def _keep(self, name: str, query: str) -> None:
        """Write a query's rows once, for the view of that name."""
        self._spark.sql(query).write.parquet(str(self._place / name))
        self._spark.read.parquet(spark_session.spark_path(self._place / name)).createOrReplaceTempView(name)

    def _view(self, table: str, files: Files) -> None:
        """Make the view of a table of its files, old and new."""
        paths = [one.path if isinstance(one, Staged) else self._existing.paths(table, [one])[0] for one in files]
        frame(self._spark, table, paths).createOrReplaceTempView(table)

    def _arrow(self, query: str) -> Any:
        return self._spark.sql(query).toArrow()

    def dropped(self, new: dict[str, Files]) -> dict[str, Files]:
        """Return the files without the settled messages of long ago: those that have any are written again."""
        horizon = self._end - KEPT
        if not any(0 < file_of(one).first_at < horizon for one in new["audit"]):
            return new
        spark = self._spark
        spark.sql(_KEPT.format(horizon=horizon)).createOrReplaceTempView("kept")
        found = dict(new)
        for table in ("receipts", "audit"):
            old = [one for one in new[table] if 0 < file_of(one).first_at < horizon]
            self._view(table, old)
            kept = (
                f"select {table}.* from {table} left semi join kept on pairing = kept_pairing and "
                "message_id = kept_id and lower(entity) = kept_entity"
            )
            found[table] = [*(one for one in new[table] if one not in old), *self._write(table, kept, "recent")]
        return found

    def _write(self, table: str, query: str, what: str = "all") -> list[Staged]:
        """Write a query's rows as files of a table; open fates are in files of their own."""
        columns = ", ".join(f"`{name}`" for name in TABLES[table])
        folder = self._place / f"{table}-{what}"
        part = f"case when status in ({audit_sql.SETTLED}) then '-{what}' else '{_OPEN}{what}' end"
        parted = part if table == "audit" else f"'-{what}'"
        rows = self._spark.sql(f"select {columns}, {parted} as part, {date_sql(table)} from ({query})")
        write_dated(rows, folder, "part")
        return staged_parts(parts(folder), table, self._batch, f"j{self._batch:010d}{{}}")


def _with_figures(place: Place, version: Version, figures: Any, names: Any) -> dict[str, Files]:
    """Return the file of `episodes` with new figures and pairings; figures of messages that were dropped stay."""
    with opened_engine(version) as engine:
        engine.put("figures", figures)
        engine.put("other_names", names)
        engine.make("episodes", _EPISODES)
        engine.make("episodes", EPISODES_JUDGED)
        return {"episodes": write_rows(place, "episodes", engine.arrow("episodes"), version.manifest.batch + 1)}


NEW_SHARE: Final = 4
REST: Final = 60.0
"""Seconds at least between two judgements while a journal is followed."""
AGAIN: Final = 300.0
"""Seconds after which open fates are judged again without new receipts."""
STOP: Final = 5.0
"""Seconds that it has to end in once it is interrupted."""
TAG: Final = "judging"

Work = Callable[[], None]
log = logging.getLogger(__name__)


def finish(spark: Any, lake: Lake) -> None:
    """Judge what is not judged, and compact. Raises Spark's errors and OSError."""
    if lake.manifest.unjudged() or (lake.manifest.batch and not lake.manifest.judged_at):
        judge(spark, lake)
    if crowds(lake.manifest):
        compact(lake)


def judgement_is_due(manifest: Manifest, now: float) -> bool:
    """Return whether it is time for a judgement while a journal is followed; `now` in seconds since the epoch."""
    since = now - manifest.judged_at
    if since < REST or not manifest.unjudged():
        return False
    if manifest.receipts:
        known = sum(file.rows for file in manifest.of("receipts"))
        return manifest.receipts * NEW_SHARE >= known or manifest.batch > manifest.receipts_batch or since >= AGAIN
    return manifest.unsettled > 0 and since >= AGAIN


class Upkeep:
    """Does due work when it is polled. A context manager, for one thread."""

    def __init__(self, spark: Any, lake: Lake, publish: Work | None = None) -> None:
        self._spark = spark_session.session_beside(spark, _SETTINGS)
        self._publish = publish
        self._lake = lake
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel the running work; its files count for nothing, and the next start removes them."""
        if self._thread is not None:
            self._spark.interruptTag(TAG)
            self._thread.join(STOP)

    def look(self) -> None:
        """Begin due work. Raises the error of work that has ended."""
        if self._thread is None:
            work = self._due()
            if work is not None:
                self._begin(work)
        elif not self._thread.is_alive():
            self._thread = None
            if self._error is not None:
                raise self._error

    def _due(self) -> Work | None:
        manifest = self._lake.manifest
        if judgement_is_due(manifest, time.time()):
            return lambda: judge(self._spark, self._lake)
        return (lambda: compact(self._lake)) if crowds(manifest) else None

    def _begin(self, work: Work) -> None:
        self._error = None
        self._thread = threading.Thread(target=self._do, args=(work,), name="judging", daemon=True)
        self._thread.start()

    def _do(self, work: Work) -> None:
        try:
            self._spark.addTag(TAG)  # of this thread's jobs
            work()
            if self._publish is not None:
                self._publish()
        except Exception as error:  # noqa: BLE001 - raised by the next look
            self._error = error


_SETTINGS: Final = {
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "8m",
    "spark.sql.files.maxPartitionBytes": "8m",
}
"""Tasks of a second or so: Spark interrupts none for another job's."""


TRIES: Final = 4
"""Tries in a row of one batch; after them the error is raised."""
PAUSE: Final = 1.0
"""Seconds before the next try."""
LOOK: Final = 0.2
BATCH_BYTES: Final = 256 * 1024 * 1024
"""Of journal files in one batch, unless the session's setting FILES_SETTING gives their number."""
FILES_SETTING: Final = "spark.paired.maxFilesPerTrigger"
READING: Final = "reading journals, in events"
CHECKPOINTS: Final = "checkpoints"
Show = Callable[[str, int, int | None], None]
"""Shows what is done, how much of it, and of how much in all; None: that is not known."""
_MISSED: Final = re.compile(r"reading file (?P<place>\S+?)\.? File does not exist")
_NOT_THERE: Final = ("FAILED_READ_FILE.FILE_NOT_EXIST", "PATH_NOT_FOUND", "FileNotFoundException")


class BatchLoop:
    """The stream of journal files into one folder of tables.

    Spark's file source lists each file once, and its checkpoint has what was listed. A batch that was committed and
    comes again, after a kill, is known by its number.

    Args:
        roots: of the journals.
        show: shows the progress of `once`.
        name: of the stream; by default that of its checkpoint for these roots and tables.
        publish: is called after a judgement.
    """

    def __init__(
        self,
        spark: Any,
        lake: Lake,
        roots: Sequence[Place],
        show: Show = lambda what, done, total: None,
        name: str = "",
        publish: Work | None = None,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._tables = BatchTables(spark, lake)
        self._roots = tuple(roots)
        self._noted: set[str] = set()
        self._show = show
        self._failure: Exception | None = None
        self._name = name or _stream_name(lake, self._roots)
        self._leaves_gone_files = False
        self._is_remote = spark_session.is_remote(spark)
        self._publish = publish

    def once(self) -> None:
        """Make the tables of the present files. Raises Spark's errors, and PipelineError without any file."""
        listed = self._listed()
        listed.require_whole()
        self.read_new()
        self._show("judging messages", 0, None)
        if left := sum(size < 0 for size in self._lake.manifest.young.values()):
            write_line(f"{NOTE}{unfinished(left)}")
        self._finish()

    def _finish(self) -> None:
        finish(self._spark, self._lake)
        if self._publish is not None:
            self._publish()

    def follow(self, period: float, ended: Callable[[], bool]) -> None:
        """Keep the tables up to date until `ended`, with a batch every `period` seconds. Raises Spark's errors."""
        flusher, is_asked = journal_files.JournalFlusher(), journal_files.Countdown(journal_files.ASK, period)
        if self._is_remote:
            self._follow_in_turns(period, ended)
            return
        with Upkeep(self._spark, self._lake, self._publish) as upkeep:

            def look(query: Any) -> bool:
                if is_asked.is_due():
                    flusher.ask(self._listed().journals)
                    self.read_changed()
                upkeep.look()
                if ended():
                    query.stop()
                return ended()

            self._run(look, period=period)

    def _follow_in_turns(self, period: float, ended: Callable[[], bool]) -> None:
        """Follow with a server's process as the writer of the batches, and this one as the writer between them."""
        while not ended():
            until = time.monotonic() + period
            journal_files.JournalFlusher().ask(self._listed().journals)
            self.read_new()
            if judgement_is_due(self._lake.manifest, time.time()) or crowds(self._lake.manifest):
                self._finish()
            while not ended() and time.monotonic() < until:
                time.sleep(LOOK)

    def read_new(self) -> None:
        """Read what is there now and was not read. Raises as `once`."""
        self._run(lambda _: self._show_read())
        self.read_changed()

    def read_changed(self) -> None:
        """Read the files again that were changed after they were read. Raises as `once`."""
        young = self._lake.manifest.young
        if not young:
            return
        now = journal_files.young_files(self._listed().files, time.time())
        changed = [path for path, size in young.items() if Path(path).exists() and now.get(path, _size(path)) != size]
        changed = [path for path in changed if now.get(path, 0) >= 0]
        if changed:
            reader = self._spark.read.option("lineSep", "\n")
            self._tables.add(
                lines_of(reader.text([spark_session.spark_path(Path(path)) for path in changed])), {"young": now}
            )

    # -- the stream ---------------------------------------------------------------------------------------------------

    def _run(self, look: Callable[[Any], bool | None], period: float | None = None) -> None:
        """Run the stream until it has read everything, or until `look` is true; repeat a batch that failed."""
        failed_at, tries = -1, 0
        while True:
            self._failure = None
            try:
                with self._lake.lent() if self._is_remote else nullcontext():
                    if self._awaited(look, period):
                        return
            except Exception as error:  # noqa: BLE001 - Spark's kinds of errors are many: the last is raised
                cause = self._failure or error
                tries = tries + 1 if failed_at == self._lake.manifest.batch else 1
                failed_at = self._lake.manifest.batch
                self._after(cause, tries)
            else:
                look(None)
                return

    def _awaited(self, look: Callable[[Any], bool | None], period: float | None) -> bool:
        """Run the stream until it has read everything, or until `look` is true; return whether that ended it."""
        query = self._start(period)
        try:
            while not query.awaitTermination(LOOK):
                if look(query):
                    return True
        finally:
            query.stop()
        return False

    def _start(self, period: float | None) -> Any:
        """Start the stream's query. Raises Spark's errors."""
        lines = [self._source(root) for root in self._roots]
        there = partial(_write_there, str(self._lake.folder), [str(root) for root in self._roots], self._name)
        batch = there if self._is_remote else self.add_batch
        writer = reduce(lambda one, other: one.unionAll(other), lines).writeStream.foreachBatch(batch)
        writer = writer.option("checkpointLocation", str(self._lake.folder / CHECKPOINTS / self._name))
        how = {"availableNow": True} if period is None else {"processingTime": f"{period} seconds"}
        return writer.trigger(**how).start()

    def _source(self, root: Place) -> Any:
        files = self._spark.conf.get(FILES_SETTING, None)
        limit = ("maxBytesPerTrigger", BATCH_BYTES) if files is None else ("maxFilesPerTrigger", int(files))
        reader = self._spark.readStream.format("text").option("lineSep", "\n").option("pathGlobFilter", f"*{SUFFIX}")
        reader = reader.option("recursiveFileLookup", "true").option(*limit)
        reader = reader.option("ignoreMissingFiles", str(self._leaves_gone_files).lower())
        return lines_of(reader.load(spark_session.spark_path(root.absolute())))

    def add_batch(self, lines: Any, number: int) -> None:
        """Add one batch to the tables, unless it is in them. Called by Spark, with the batch's rows and number."""
        try:
            now = self._lake.manifest
            if now.stream == self._name and number <= now.stream_batch:
                return
            young = journal_files.young_files(self._listed().files, time.time())
            left = [Path(path).as_uri() for path, size in young.items() if size < 0]
            if left:
                from pyspark.sql import functions as f

                lines = lines.where(~f.col("file_path").isin(left))
            self._tables.add(lines, {"stream": self._name, "stream_batch": number, "young": young})
        except Exception as error:
            self._failure = error
            raise

    def _after(self, error: Exception, tried: int) -> None:
        """Go on to the next try, or raise."""
        if isinstance(error, OSError | PairedError):
            raise error
        if any(word in str(error) for word in _NOT_THERE):
            self._leave_gone_files(error)
        if tried >= TRIES:
            raise error
        write_line(one_line(f"a batch is repeated ({tried} of {TRIES - 1}): {spark_session.first_line(error)}"))
        time.sleep(PAUSE)

    def _leave_gone_files(self, error: Exception) -> None:
        """Go on without files that the journal gave up meanwhile, if this is the reason.

        Raises PipelineError: a worker misses a file that is there, and would miss others without a word.
        """
        found = _MISSED.search(str(error))
        if found is not None and Path(unquote(urlsplit(found["place"]).path)).exists():
            raise PipelineError(
                f"a worker of Spark's does not see {unquote(found['place'])}, which is there: nothing of its batch is "
                "taken; see that every worker has the same journal and table folders"
            ) from error
        if not spark_session.is_local(self._spark.conf.get("spark.master", "local")):
            folders = sorted({one.path.parent for one in self._listed().files if isinstance(one.path, Path)})
            spark_session.require_sight(self._spark, read=folders, written=self._lake.folder / STAGING)
        self._leaves_gone_files = True

    def _show_read(self) -> None:
        self._show(READING, sum(file.rows for file in self._lake.manifest.of("events")), None)

    def _listed(self) -> journal_files.JournalFiles:
        """List the journals' files, and report skipped ones, once."""
        listed = journal_files.find_journal_files(self._roots)
        for note in listed.notes:
            if note not in self._noted:
                self._noted.add(note)
                write_line(NOTE + one_line(note))
        return listed


def _write_there(tables: str, roots: Sequence[str], name: str, lines: Any, number: int) -> None:
    """Add a batch to the tables, in the process that a Spark Connect server starts for the batches of a stream."""
    with Lake(place_of(tables)) as lake:
        BatchLoop(lines.sparkSession, lake, [place_of(root) for root in roots], name=name).add_batch(lines, number)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return -1


def _stream_name(lake: Lake, roots: Sequence[Place]) -> str:
    """Return the name of the checkpoint for these roots and tables.

    A checkpoint that was lost, or that is ahead of tables which lost their newest version, is left: all files are read
    again, and what the tables have is known by its numbers.
    """
    known = msgspec.json.encode([lake.manifest.life, *sorted({str(root.absolute()) for root in roots})])
    name = hashlib.sha256(known).hexdigest()[:12]
    manifest = lake.manifest
    taken = -1
    if manifest.stream.startswith(name):
        name, taken = manifest.stream, manifest.stream_batch
    place = lake.folder / CHECKPOINTS / name
    done = max((int(path.name) for path in _names(place / "commits") if path.name.isdigit()), default=-1)
    has_taken = taken < 0 or (place / "offsets" / str(taken)).exists()
    return name if has_taken and done in (taken - 1, taken) else f"{name[:12]}-{manifest.batch}"


def _names(folder: Place) -> list[Place]:
    return list(folder.iterdir()) if folder.exists() else []


def unfinished(count: int) -> str:
    """Return the sentence about files that were left for later."""
    files = "1 journal file does" if count == 1 else f"{count} journal files do"
    return f"{files} not end with a whole line and may be a copy in progress: left for the next run"


def lines_of(texts: Any) -> Any:
    """Return the rows of Spark's text source with their files."""
    return texts.select("value", "_metadata.file_path", "_metadata.file_name")
