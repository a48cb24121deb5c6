"""The content of a batch's file of events, read after the write: numbers as spans, rows, newest record.

Spark writes the file, and duckdb reads it in the pipeline's process. A batch has at most 128 MB of the journal: another
Spark job costs more than this.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from paired_servicebus.pipeline.table_store.manifest import Manifest, RecordSpan, held, merged

THREADS: Final = 2


@dataclass(frozen=True, slots=True)
class Contents:
    """The content of one file of events.

    `rows` are all rows, `numbered` those with a number; `last_ts` is the newest record's time, None without one;
    `troubled` are the journal files of its lines without a number.
    """

    rows: int
    numbered: int
    last_ts: int | None
    troubled: tuple[str, ...]
    spans: tuple[RecordSpan, ...]

    def repeats(self, manifest: Manifest) -> bool:
        """Whether a record is in it twice, or in the tables already."""
        once = held(self.spans) == self.numbered
        new = held(merged(manifest.seen + self.spans)) == held(manifest.seen) + held(self.spans)
        return not (once and new and set(self.troubled).isdisjoint(manifest.troubled))


def look_into(place: Path) -> Contents:
    """Return a folder of Parquet files of schema.EVENTS."""
    with duckdb.connect(config={"threads": THREADS}) as connection:
        connection.read_parquet(f"{place}/*.parquet").create_view("events")
        whole = connection.execute(_WHOLE).fetchone()
        assert whole is not None, "a count has a row"
        spans = connection.execute(_SPANS).fetchall()
    rows, numbered, last_ts, troubled = whole
    return Contents(rows, numbered, last_ts, tuple(troubled or ()), merged(tuple(RecordSpan(*span) for span in spans)))


_WHOLE: Final = """
select count(*), count(seq), max(ts), list(distinct file) filter (seq is null) from events
"""
_SPANS: Final = """
select engine, boot, min(seq), max(seq) from (
    select engine, boot, seq, seq - dense_rank() over (partition by engine, boot order by seq) as island
    from events where seq is not null
) group by engine, boot, island
"""
"""Numbers that follow each other are as far from their ranks."""
