"""The two queries: journal to tables, and story to episodes. Each record takes effect once, despite kills and losses.

A batch parses lines into events, drops those in the tables, writes the rest and aggregates the written file. Then it
replaces the manifest, which changes all tables atomically. Spark sees only files that are not in the tables (Inbox), so
the journal's checkpoint is new at each start, and after FORGET files. A killed batch is delivered again; the numbers of
the records decide.

    journal files ──▶ events, minutes, backlog, syphon, cost ──▶ story files ──▶ episodes (transformWithState)
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from paired_servicebus.engine.journal.spool import SUFFIX
from paired_servicebus.pipeline.ingest import table_maintenance
from paired_servicebus.pipeline.ingest.event_frames import typed, unseen
from paired_servicebus.pipeline.ingest.journal_source import (
    ASK,
    SHOW,
    Inbox,
    JournalFlusher,
    PollCountdown,
    journal_files,
    require_whole_files,
)
from paired_servicebus.pipeline.ingest.partial_aggregates import PARTIALS, STORY_COLUMNS, Contents, look_into, split
from paired_servicebus.pipeline.ingest.table_maintenance import MaintenanceThread, write_arrow
from paired_servicebus.pipeline.spark.restarted_query import Query
from paired_servicebus.pipeline.table_store.lake import STORY, Lake, batch_name
from paired_servicebus.pipeline.table_store.manifest import File, QueryPosition, merged
from paired_servicebus.pipeline.table_store.schema import EPISODES, EVENTS, spark_ddl

MOST_BYTES: Final = 128 * 1024 * 1024
"""Of the journal in one batch."""
FOREVER: Final = "36500d"
"""An engine that was killed leaves a file that is found days later: no file is too old."""
FORGET: Final = 100_000
"""Files that Spark saw, some days of them, after which it forgets them: it writes all of them every ten batches."""
JOURNAL: Final = "journal"
LOOK: Final = 0.2
"""Seconds between two looks at how the queries do."""
EPISODE_TRIGGER: Final = 0.4
"""Of the journal's trigger: the second query follows soon, and costs next to nothing when there is nothing."""

Take = Callable[[Any, int], None]


class StreamingPipeline:
    """The queries of one session over one folder of tables."""

    def __init__(self, spark: Any, lake: Lake, journal: Path) -> None:
        self._spark = spark
        self._lake = lake
        self._journal = journal
        self._inbox = Inbox(lake.checkpoints / "inbox", journal_files(journal))
        self._forget()

    def once(self) -> None:
        """Make the tables of the present files. Raises Spark's errors, and PipelineError without any file."""
        require_whole_files(self._journal)
        self._query(JOURNAL, self._start_all, {"availableNow": True}).finish()
        self._inbox.settle()
        story = self._query(STORY, self._start_story, {"availableNow": True})  # waits for its Python more than it works
        table_maintenance.judge(self._spark, self._lake)
        story.finish()

    def follow(self, trigger: float, ended: Callable[[], bool]) -> None:
        """Keep the tables up to date until `ended`. Raises Spark's errors."""
        journal = self._query(JOURNAL, self._start_new, _every(trigger))
        story = self._query(STORY, self._start_story, _every(trigger * EPISODE_TRIGGER))
        asking, is_asked, is_shown = (
            JournalFlusher(self._journal),
            PollCountdown(ASK, trigger),
            PollCountdown(SHOW, trigger),
        )
        with MaintenanceThread(self._spark, self._lake) as judge:
            while not ended():
                journal.keep_up()
                story.keep_up()
                if is_asked.is_due():
                    asking.ask()
                if is_shown.is_due():
                    self._inbox.deliver(MOST_BYTES)
                if self._inbox.is_idle_after(FORGET):
                    journal.begin_anew()
                judge.look()
                time.sleep(LOOK)
        journal.stop()
        story.stop()

    # -- journal ------------------------------------------------------------------------------------------------------

    def _start_all(self, trigger: dict[str, Any]) -> Any:
        """All that is new, in batches as Spark cuts it."""
        self._inbox.begin()
        self._inbox.deliver()
        return self._start_journal(trigger, self._take_journal, {"maxBytesPerTrigger": str(MOST_BYTES)})

    def _start_new(self, trigger: dict[str, Any]) -> Any:
        """Follow new files, each delivery a batch."""
        self._inbox.begin()
        self._inbox.deliver(MOST_BYTES)
        return self._start_journal(trigger, self._take_delivery, {})

    def _start_journal(self, trigger: dict[str, Any], take: Take, options: dict[str, str]) -> Any:
        """Start the query with an empty checkpoint: files in the tables are not delivered."""
        from pyspark.sql import functions as f

        self._forget()
        lines = (
            self._spark.readStream.format("text")
            .options(lineSep="\n", pathGlobFilter=f"*{SUFFIX}", recursiveFileLookup="true", maxFileAge=FOREVER)
            .options(**options)
            .load(str(self._inbox.shown))
            .select("value", f.col("_metadata.file_name").alias("file"))
        )
        return self._start(JOURNAL, lines, take, trigger, "append")

    def _forget(self) -> None:
        """Spark's checkpoint of the journal, whole or not."""
        shutil.rmtree(self._lake.checkpoints / JOURNAL, ignore_errors=True)

    def _take_delivery(self, lines: Any, batch: int) -> None:
        self._take_journal(lines, batch)
        self._inbox.settle()

    def _take_journal(self, lines: Any, batch: int) -> None:
        with self._lake.writing:
            self._take_lines(lines, self._source(JOURNAL, batch))

    def _take_lines(self, lines: Any, source: QueryPosition) -> None:
        lake, now = self._lake, self._lake.manifest
        batch = now.batch + 1
        place, found, again = self._write_events(lines, lake.place("events", batch_name(batch)))
        done = {"sources": {**now.sources, JOURNAL: source}, "repeated": now.repeated + again}
        made = self._sum_up(place, found, batch) if found.rows else {}
        lake.commit(lambda _: {**done, **made})

    def _sum_up(self, place: Path, found: Contents, batch: int) -> dict[str, Any]:
        """Write a batch's aggregates; return their additions to the manifest."""
        lake, now = self._lake, self._lake.manifest
        newest = max((file.last_ts for file in now.of("events")), default=0)  # lines without a time are of now
        events = File(place.name, found.rows, found.last_ts or newest, batch)
        entities = set(now.entities)
        made = split(f"{place}/*.parquet", entities)
        files = {"events": (events,), **{table: self._write_partial(table, made[table], events) for table in PARTIALS}}
        if made[STORY].num_rows:
            write_arrow(made[STORY], lake.folder / STORY / f".{batch_name(batch)}.parquet")
        return {
            "files": {**now.files, **{table: (*now.of(table), *part) for table, part in files.items()}},
            "seen": merged(now.seen + found.spans),
            "troubled": tuple(sorted({*now.troubled, *found.troubled})),
            "entities": tuple(sorted(entities)),
        }

    def _write_events(self, lines: Any, place: Path) -> tuple[Path, Contents, int]:
        """Return the batch's events, each once: the file, its content, and the number of repeated records."""
        typed(lines).write.mode("overwrite").parquet(str(place))  # the one job of Spark's, unless something came twice
        came, manifest = look_into(place), self._lake.manifest
        if not came.repeats(manifest):
            return place, came, 0
        once = place.with_name(f"{place.name}-once")
        events = self._spark.read.schema(spark_ddl(EVENTS)).parquet(str(place))
        unseen(events, manifest.seen, manifest.troubled).write.mode("overwrite").parquet(str(once))
        shutil.rmtree(place, ignore_errors=True)
        found = look_into(once)
        return once, found, came.rows - found.rows

    def _write_partial(self, table: str, rows: Any, events: File) -> tuple[File, ...]:
        if not rows.num_rows:
            return ()
        path = write_arrow(rows, self._lake.place(table, f"{batch_name(events.batch)}.parquet"))
        return (File(path.name, rows.num_rows, events.last_ts, events.batch),)

    # -- episodes -----------------------------------------------------------------------------------------------------

    def _start_story(self, trigger: dict[str, Any]) -> Any:
        from paired_servicebus.pipeline.ingest.episode_processor import EpisodeProcessor

        rows = (
            self._spark.readStream.schema(spark_ddl(STORY_COLUMNS))
            .option("maxFileAge", FOREVER)
            .parquet(str(self._lake.folder / STORY))
        )
        episodes = rows.groupBy("key").transformWithState(
            statefulProcessor=EpisodeProcessor(),
            outputStructType=spark_ddl(EPISODES),
            outputMode="Update",
            timeMode="None",
        )
        return self._start(STORY, episodes, self._take_episodes, trigger, "update")

    def _take_episodes(self, episodes: Any, batch: int) -> None:
        """No harm if it is done again: of an episode's rows the one made from most of its history counts."""
        rows = episodes.toArrow()
        with self._lake.writing:
            source = self._source(STORY, batch)
            files: tuple[File, ...] = ()
            if rows.num_rows:
                number = self._lake.manifest.batch + 1
                path = write_arrow(rows, self._lake.place("episodes", f"{batch_name(number)}.parquet"))
                files = (File(path.name, rows.num_rows, max(rows["last_ts"].to_pylist()), number),)
            self._lake.commit(
                lambda now: {
                    "files": {**now.files, "episodes": (*now.of("episodes"), *files)},
                    "sources": {**now.sources, STORY: source},
                }
            )

    # -- both ---------------------------------------------------------------------------------------------------------

    def _query(self, name: str, start: Callable[[dict[str, Any]], Any], trigger: dict[str, Any]) -> Query:
        checkpoint = self._lake.checkpoints / name
        return Query(name, checkpoint, lambda: start(trigger), lambda: self._lake.manifest.sources.get(name))

    def _start(self, name: str, rows: Any, take: Take, trigger: dict[str, Any], mode: str) -> Any:
        writer = (
            rows.writeStream.queryName(name)
            .outputMode(mode)
            .option("checkpointLocation", str(self._lake.checkpoints / name))
            .foreachBatch(take)
        )
        return writer.trigger(**trigger).start()

    def _source(self, name: str, batch: int) -> QueryPosition:
        """How far a query is with this batch.

        No batch is passed over for its number: where a checkpoint's newest files are lost, Spark gives the same number
        to another batch.
        """
        told = (self._lake.checkpoints / name / "metadata").read_bytes()
        return QueryPosition(str(msgspec.json.decode(told)["id"]), batch)


def _every(seconds: float) -> dict[str, Any]:
    return {"processingTime": f"{int(seconds * 1000)} milliseconds"}
