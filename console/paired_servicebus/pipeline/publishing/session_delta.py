"""`paired pipeline --format delta`: Delta tables beside the tables' own files, by the Delta of the Spark session.

They are in `delta/` of the tables' place, one for each table. A commit replaces the dates whose files changed since the
last one, and its metadata has the state of each date's files: so a repeated call changes nothing.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from paired_servicebus.core.errors import SparkFailedError, UnreadableError
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pipeline.ingest.table_files import Existing
from paired_servicebus.pipeline.publishing.delta_tables import HISTORY, changed_dates, states_of
from paired_servicebus.pipeline.spark.spark_session import first_line
from paired_servicebus.pipeline.table_store.lake import Lake
from paired_servicebus.pipeline.table_store.manifest import DELTA, Version
from paired_servicebus.pipeline.table_store.schema import DATED, NO_DATE, TABLES, time_column
from paired_servicebus.pipeline.table_store.store_path import Place


class _State(msgspec.Struct):
    life: str
    files: dict[str, str]


_STATE: Final = msgspec.json.Decoder(_State)


def write_delta(spark: Any, lake: Lake) -> None:
    """Bring every Delta table up to the newest version. Raises SparkFailedError: this Spark has no Delta."""
    with lake.pinned() as version:
        for table in TABLES:
            try:
                _write(spark, version, lake.folder / DELTA / table, table)
            except Exception as error:
                raise SparkFailedError(
                    f"the Delta table {lake.folder / DELTA / table} cannot be written: {first_line(error)}. A Spark "
                    "session has Delta by its jars: --conf spark.jars=…"
                ) from error


def _write(spark: Any, version: Version, place: Place, table: str) -> None:
    manifest, dated = version.manifest, table in DATED
    before = _before(spark, place, manifest.life)
    states = states_of(version.path / table, manifest.of(table), is_dated=dated)
    changed = changed_dates(states, before or {})
    if before is not None and not changed:
        return
    files = [file for file in manifest.of(table) if file.rows and file.date in changed]
    rows = Existing(spark, version).rows(table, files)
    kept = {date: state for date, state in (before or {}).items() if date not in changed}
    state = msgspec.json.encode(_State(manifest.life, {**kept, **states})).decode()
    if dated:
        rows = rows.selectExpr("*", f"coalesce(to_date({time_column(table)}), date '{NO_DATE}') as date")
    writer = rows.write.format("delta").mode("overwrite").option("userMetadata", state)
    if dated:
        writer = writer.partitionBy("date")
    if dated and before is not None:
        dates = ", ".join(f"'{date}'" for date in sorted(changed))
        writer = writer.option("replaceWhere", f"date in ({dates})")
    writer.save(str(place))


def _before(spark: Any, place: Place, life: str) -> dict[str, str] | None:
    """Return the state of each date in our latest commit; None: there is none, and all is written."""
    if not (place / "_delta_log").exists():
        return None
    for row in spark.sql(f"describe history delta.`{place}`").limit(HISTORY).collect():
        try:
            found = read_json(_STATE, row["userMetadata"] or "")
        except UnreadableError:  # a commit of others
            continue
        return found.files if found.life == life else None
    return None
