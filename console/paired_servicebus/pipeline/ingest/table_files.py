"""Files of the tables, as Spark and Arrow read and write them: the present ones of a version, and new ones by day."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paired_servicebus.core.errors import SparkFailedError
from paired_servicebus.pipeline.spark.spark_session import is_remote, spark_path
from paired_servicebus.pipeline.table_store.lake import Staged
from paired_servicebus.pipeline.table_store.manifest import File, Version
from paired_servicebus.pipeline.table_store.schema import NO_DATE, TABLES, arrow_schema, spark_ddl, time_column
from paired_servicebus.pipeline.table_store.store_path import Place


class Existing:
    """The tables of one version, for Spark."""

    def __init__(self, spark: Any, version: Version) -> None:
        self._spark = spark
        self._version = version

    def of(self, table: str) -> tuple[File, ...]:
        """Return a table's files with rows."""
        return tuple(file for file in self._version.manifest.of(table) if file.rows)

    def paths(self, table: str, files: Iterable[File] | None = None) -> list[Place]:
        """Return the paths of some of a table's files, or of all."""
        return [self._version.path / table / file.name for file in (self.of(table) if files is None else files)]

    def rows(self, table: str, files: Iterable[File] | None = None) -> Any:
        """Return the rows of some of a table's files, or of all, as a DataFrame."""
        return frame(self._spark, table, self.paths(table, files))


def frame(spark: Any, table: str, paths: Sequence[Place]) -> Any:
    """Return the rows of Parquet files, or of folders of them, as a DataFrame of a table's columns."""
    if not paths:
        return as_frame(spark, arrow_schema(TABLES[table]).empty_table())
    reader = spark.read.schema(spark_ddl(TABLES[table])).option("recursiveFileLookup", "true")
    return reader.parquet(*map(spark_path, paths))


def as_frame(spark: Any, rows: Any) -> Any:
    """Return an Arrow table as a DataFrame."""
    if rows.num_rows or not is_remote(spark):
        return spark.createDataFrame(rows)
    from pyspark.sql.pandas.types import from_arrow_schema  # a server does not see the columns of no rows

    return spark.createDataFrame([], from_arrow_schema(rows.schema))


def write_dated(rows: Any, folder: Place, *by: str) -> None:
    """Write rows with their `date` into a folder, and into folders by other columns above it.

    Raises SparkFailedError: this process does not find all of them there. Spark itself does not notice if a worker
    writes into a folder of its own.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    written = Observation("written")
    rows.observe(written, f.count(f.lit(1)).alias("rows")).write.partitionBy(*by, "date").parquet(str(folder))
    found, wanted = rows_in(parts(folder)), written.get["rows"]
    if found != wanted:
        raise SparkFailedError(
            f"of {wanted:,} rows that Spark's workers wrote into {folder}, {found:,} are there: nothing is taken; see "
            "that every worker has the same table folder"
        )


def parts(folder: Place) -> list[Place]:
    """Return the Parquet files that Spark wrote into a folder."""
    return sorted(path for path in folder.rglob("*.parquet") if not path.name.startswith((".", "_")))


def rows_in(paths: Iterable[Place]) -> int:
    """Return the rows of those of some Parquet files that are there."""
    rows = 0
    for path in paths:
        if path.exists():
            with path.open("rb") as file:
                rows += pq.read_metadata(file).num_rows
    return rows


def staged_parts(paths: Iterable[Place], table: str, batch: int, name: str = "") -> list[Staged]:
    """Return files of rows with a date for a commit; not those without rows.

    Args:
        name: their name, by default that of the batch; braces in it stand for the folder above their date's.
    """
    found = []
    for number, path in enumerate(sorted(paths)):
        with path.open("rb") as file:
            times = pq.read_table(file, columns=[time_column(table)])[0]
        if not len(times):
            continue
        day = f"{path.parent.name}/"
        part = path.parent.parent.name.rpartition("=")[2]
        name_ = f"{day}{(name or f'b{batch:010d}').format(part)}-{number}.parquet"
        found.append(Staged(path, File(name=name_, rows=len(times), batch=batch, **_span(times))))
    return found


def write_days(place: Place, table: str, rows: Any, batch: int) -> list[Staged]:
    """Write an Arrow table as one file for each day. Raises OSError."""
    rows = _as(rows, arrow_schema(TABLES[table]))
    days = pc.fill_null(pc.strftime(rows[time_column(table)], "%Y-%m-%d"), NO_DATE)
    found = []
    for day in sorted(set(days.to_pylist())):
        some = rows.filter(pc.equal(days, day))
        path = place / f"{table}-{day}.parquet"
        _write(path, table, some)
        name, span = f"date={day}/b{batch:010d}.parquet", _span(some[time_column(table)])
        found.append(Staged(path, File(name=name, rows=some.num_rows, batch=batch, **span)))
    return found


def write_rows(place: Place, table: str, rows: Any, batch: int) -> list[Staged]:
    """Write an Arrow table as the one file of a table without dates. Raises OSError."""
    path = place / f"{table}.parquet"
    _write(path, table, rows)
    return [Staged(path, File(name=f"b{batch:010d}.parquet", rows=rows.num_rows, batch=batch))]


def merge_parts(sources: Sequence[Place], target: Place, table: str) -> None:
    """Write the rows of some files of a table as one, some at a time. Raises OSError."""
    schema = arrow_schema(TABLES[table])
    with target.open("wb") as written, pq.ParquetWriter(written, schema, compression="zstd") as writer:
        for source in sources:
            with source.open("rb") as opened, pq.ParquetFile(opened) as file:
                for group in range(file.num_row_groups):
                    writer.write_table(_as(file.read_row_group(group), schema))


def _write(path: Place, table: str, rows: Any) -> None:
    with path.open("wb") as file:
        pq.write_table(_as(rows, arrow_schema(TABLES[table])), file, compression="zstd")


def _as(rows: Any, schema: Any) -> Any:
    """Return the rows in exactly these columns; those that they lack are null."""
    have = set(rows.column_names)
    columns = [
        rows[field.name].cast(field.type) if field.name in have else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _span(times: Any) -> dict[str, int]:
    """Return the first and the last of some times as fields of a File."""
    found = pc.min_max(times.cast(pa.int64())).as_py()
    return {"first_at": found["min"] or 0, "last_at": found["max"] or 0}
