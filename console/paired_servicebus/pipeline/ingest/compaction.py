"""Compaction: of many small files of a table's day one. Rows are copied by Arrow; nothing is computed.

A batch adds a file to `events` and `timeline`. FAN files that were merged as often are merged to one, so a row is
copied a few times, however many batches a day has. When a day is over, its small files are made one. Files with LARGE
rows or more are left alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from paired_servicebus.pipeline.ingest.table_files import merge_parts
from paired_servicebus.pipeline.table_store.lake import Change, Lake, Staged
from paired_servicebus.pipeline.table_store.manifest import File, Manifest
from paired_servicebus.pipeline.table_store.schema import DATED

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
            if 0 < file.rows < LARGE:
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
