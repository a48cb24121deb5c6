"""`paired tables publish`: the tables as Delta tables in a folder or a store.

There is one commit a table, and each commit has the batch that it holds.

A commit replaces the dates whose files changed since the last one. It carries a transaction id (the tables' life, and
the batch) and the state of the files of each date: so a repeated publish changes nothing, and a lost local state costs
nothing. Dates that the tables dropped by age stay; a date between others that has no more rows is emptied.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import msgspec

from paired_servicebus.core.errors import NoTablesError, PipelineError, SparkFailedError, UnreadableError
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line, repeated
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pipeline.spark.spark_session import first_line
from paired_servicebus.pipeline.spark_processes import Bar
from paired_servicebus.pipeline.table_store import manifest as commits
from paired_servicebus.pipeline.table_store.lake import Lake
from paired_servicebus.pipeline.table_store.manifest import DELTA, File, Manifest, Version
from paired_servicebus.pipeline.table_store.schema import DATED, NO_DATE, TABLES, date_sql
from paired_servicebus.pipeline.table_store.sql_engine import rows_sql
from paired_servicebus.pipeline.table_store.store_path import Place
from paired_servicebus.printing import print_lines, print_object

if TYPE_CHECKING:
    from deltalake import DeltaTable


# Where tables are published: a folder, or a container of Azure's storage, with the access to it.
#
# Access comes from the environment or from azure-identity. It is in no argument, file, message or log of ours.

SCHEMES: Final = ("abfss", "abfs", "az")
WRITTEN: Final = "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH, or az://CONTAINER/PATH"
KEYS: Final = (
    "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TOKEN", "AZURE_STORAGE_USE_EMULATOR",
)  # fmt: skip
"""Variables by which the library reaches the store itself; without any, azure-identity is asked for a token."""
PATIENCE: Final = {"connect_timeout": "5s", "timeout": "60s", "max_retries": "2", "retry_timeout": "20s"}
"""Of one request. The library's own are ten tries in three minutes."""
SCOPE: Final = "https://storage.azure.com/.default"
_MAX_REASON: Final = 300
_URL: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):/", re.IGNORECASE)
_STEERING: Final = re.compile(r"\x1b\[[0-9;]*m")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_STATUS: Final = re.compile(r"\b([45]\d\d [A-Z][A-Za-z ]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishTarget:
    """A place for tables. `options`: the library's, with the access."""

    place: str
    folder: Path | None
    """None: a store."""
    options: dict[str, str] = field(default_factory=dict, repr=False)

    def of(self, table: str) -> str:
        """Return the place of one table."""
        return f"{self.place.rstrip('/')}/{table}"


def find_target(to: str, environ: Mapping[str, str], *, token: Callable[[], str] | None = None) -> PublishTarget:
    """Return the target of a written place.

    Args:
        to: a folder or a URL.
        environ: the variables that may have the access to a store.
        token: fetches a bearer token for Azure's storage; by default azure-identity.

    Raises PipelineError: the URL is of another kind or has a key in it, or there is no access.
    """
    found = _URL.match(to)
    if found is None:
        folder = Path(to).expanduser().absolute()
        return PublishTarget(place=str(folder), folder=folder)
    scheme = found["scheme"].lower()
    if scheme not in SCHEMES:
        raise PipelineError(
            f"--to is {repeated(masked(to))}, and paired tables publish writes to folders and to Azure's storage: "
            f"{WRITTEN}"
        )
    if any(sign in to for sign in "?#") or not re.fullmatch(r"\w+://[^/@:]+(@[^/@:]+)?(/.*)?", to):
        raise PipelineError(
            f"--to is no URL of a container ({WRITTEN}). A key or signature belongs into the environment, as in "
            f"{KEYS[0]} or {KEYS[3]}"
        )
    options = dict(PATIENCE)
    if not any(environ.get(name) for name in KEYS):
        options["bearer_token"] = (token or azure_token)()
    return PublishTarget(place=to, folder=None, options=options)


def azure_token() -> str:
    """Return a token for Azure's storage by azure-identity. Raises PipelineError: it finds no credential."""
    from azure.core.exceptions import ClientAuthenticationError
    from azure.identity import DefaultAzureCredential

    logging.getLogger("azure").addHandler(logging.NullHandler())  # its warnings are for programs that log
    try:
        with DefaultAzureCredential(process_timeout=10) as credential:
            return credential.get_token(SCOPE).token
    except ClientAuthenticationError as error:
        raise PipelineError(
            "there is no access to Azure's storage: set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, sign in "
            "with az login, or run where a managed identity is"
        ) from error


def store_reason(error: Exception) -> str:
    """Return the reason in an error of the library, without its URLs: those may have a signature."""
    text = _STEERING.sub("", str(error))
    code, status = _CODE.search(text), _STATUS.search(text)
    if code is not None:
        return f"{code[1]}{f', {status[1]}' if status is not None else ''}"
    lines = [line.strip(" ↳\t") for line in text.splitlines() if line.strip(" ↳\t")]
    last = lines[-1] if lines else type(error).__name__
    return one_line(masked(re.sub(r"https?://\S+", "its URL", last)), most=_MAX_REASON)


FILES: Final = "paired.files"
BATCH: Final = "paired.batch"
LIFE: Final = "paired.life"
HISTORY: Final = 100
"""Commits that are looked into for our latest: others may compact the tables."""
ALL: Final = ""
"""The date of a table without dates."""
_FILES: Final = msgspec.json.Decoder(dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """The change of one published table. No dates: there was none."""

    table: str
    dates: tuple[str, ...] = ()
    rows: int = 0


def publish_delta(
    version: Version, target: PublishTarget, *, shown: Callable[[str, int], object]
) -> tuple[PublishedTable, ...]:
    """Publish a version's tables. All targets are looked at before the first is written.

    Args:
        version: its files have to stay until the end.
        target: where.
        shown: is called with a table's name and the number of tables before it.

    Raises PipelineError: a target has another table, or the store refuses or does not answer.
    """
    before = {table: _before(target, table, version.manifest) for table in TABLES}
    done = []
    for number, table in enumerate(TABLES):
        shown(table, number)
        done.append(_publish(version, target, table, before[table]))
    return tuple(done)


@dataclass(frozen=True, slots=True)
class _Before:
    """A table at the target: whether it is there, its batch, and the state of its dates."""

    exists: bool = False
    batch: int = -1
    states: Mapping[str, str] | None = None
    """None: not known, so all is published."""


def app_id(manifest: Manifest) -> str:
    """Return the name under which Delta tables keep the batch of these tables."""
    return f"paired/{manifest.life}"


def _before(target: PublishTarget, table: str, manifest: Manifest) -> _Before:
    from deltalake import DeltaTable

    place = target.of(table)
    with _store_errors(target, table):
        if not DeltaTable.is_deltatable(place, target.options):
            _refuse_files(target, table)
            return _Before()
        found = DeltaTable(place, storage_options=target.options)
        batch = found.transaction_version(app_id(manifest))
        if batch is None:
            raise PipelineError(
                f"{masked(place)} is a table of something else, or of tables that were made from nothing since: "
                "nothing was written; publish to another place"
            )
        return _Before(exists=True, batch=batch, states=_states(found, manifest.life))


def _refuse_files(target: PublishTarget, table: str) -> None:
    folder = target.folder
    if folder is not None and (folder / table).exists() and any((folder / table).iterdir()):
        raise PipelineError(
            f"{folder / table} has files that are of no Delta table: nothing was written; name a new or empty folder "
            "with --to"
        )


def _states(found: DeltaTable, life: str) -> dict[str, str] | None:
    """Return the state of each date in our latest commit; None: it is too long ago."""
    for commit in found.history(HISTORY):
        if commit.get(LIFE) == life and isinstance(commit.get(FILES), str):
            return read_json(_FILES, commit[FILES])
    return None


def _publish(version: Version, target: PublishTarget, table: str, before: _Before) -> PublishedTable:
    from deltalake import CommitProperties, Transaction, write_deltalake

    manifest = version.manifest
    states = states_of(version.path / table, manifest.of(table), is_dated=table in DATED)
    changed = sorted(changed_dates(states, before.states or {}))
    if before.exists and (before.batch >= manifest.batch or not changed):
        return PublishedTable(table=table)
    kept = {date: state for date, state in (before.states or {}).items() if date not in changed}
    properties = CommitProperties(
        custom_metadata={
            FILES: msgspec.json.encode({**kept, **states}).decode(), BATCH: str(manifest.batch), LIFE: manifest.life,
        },
        app_transactions=[Transaction(app_id(manifest), manifest.batch)],
    )  # fmt: skip
    dated = table in DATED
    files = [file for file in manifest.of(table) if file.rows and file.date in changed]
    with _store_errors(target, table), duckdb.connect(config={"threads": 1}) as connection:
        write_deltalake(
            target.of(table),
            connection.sql(rows_sql(table, [version.path / table / file.name for file in files])),
            mode="overwrite",
            partition_by=["date"] if dated else None,
            predicate=_replaced(changed, before) if before.exists and dated else None,
            schema_mode="merge",
            storage_options=target.options,
            commit_properties=properties,
        )
    return PublishedTable(table=table, dates=tuple(changed), rows=sum(file.rows for file in files))


def states_of(place: Place, files: Iterable[File], *, is_dated: bool) -> dict[str, str]:
    """Return a short text for each date of a table that changes with any of its files.

    An unchanged file is a hard link from version to version, with its time. Raises OSError.
    """
    found = sorted((file for file in files if file.rows), key=lambda file: file.name)
    by_date: dict[str, list[tuple[str, int, int]]] = {} if is_dated else {ALL: []}
    for file in found:
        by_date.setdefault(file.date, []).append((file.name, file.size, (place / file.name).stat().st_mtime_ns))
    return {date: hashlib.sha256(repr(one).encode()).hexdigest()[:16] for date, one in by_date.items()}


def changed_dates(now: Mapping[str, str], before: Mapping[str, str]) -> set[str]:
    """Return the dates to replace: new ones, other ones, and those since the oldest that have no rows any more."""
    oldest = _oldest(now)
    emptied = {date for date in before.keys() - now.keys() if date >= oldest}
    return {date for date, state in now.items() if before.get(date) != state} | emptied


def _oldest(dates: Iterable[str]) -> str:
    """Return the oldest date that is of a time; later than all without one."""
    return min((date for date in dates if date != NO_DATE), default="9999-12-31")


def _replaced(changed: Sequence[str], before: _Before) -> str:
    """Return the rows that a commit replaces; without a known state, all since the oldest date."""
    listed = ", ".join(f"'{date}'" for date in changed)
    return f"date IN ({listed})" + (f" OR date >= '{_oldest(changed)}'" if before.states is None else "")


@contextmanager
def _store_errors(target: PublishTarget, table: str) -> Iterator[None]:
    """Make any error of the library one sentence with the table, the place and the reason."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, ValueError, duckdb.Error) as error:
        raise PipelineError(
            f"{table} was not published to {masked(target.place)}: {store_reason(error)}. The tables there are whole; "
            "the next publish adds the rest"
        ) from error


def run_publish(folder: Place, *, to: str, json_line: bool) -> int:
    """Publish the tables in `folder`, and print the changes.

    Raises PairedError: there are no tables, the target has other tables, or refuses; one sentence.
    """
    if not isinstance(folder, Path):
        raise PipelineError(f"the tables in {folder} are in a store already: only those of a folder are published")
    target = find_target(to, os.environ)
    if target.folder is not None and _overlap(target.folder, folder):
        raise PipelineError(f"--to is {target.folder}, which is in the tables' own folder or around it: name another")
    bar = Bar(quiet=json_line)
    with held(folder) as version, bar.shown("publishing", len(TABLES)):
        done = publish_delta(
            version, target, shown=lambda table, number: bar.show(f"publishing {table}", number, len(TABLES))
        )
    if version.note:
        bar.say(version.note)
    if json_line:
        tables = {one.table: {"rows": one.rows, "dates": one.dates} for one in done if one.dates}
        told = {"to": target.place, "batch": version.manifest.batch, "tables": tables}
        print_object(msgspec.json.encode(told).decode())
    else:
        print_lines(as_lines(version, target, done))
    return 0


def as_lines(version: Version, target: PublishTarget, done: tuple[PublishedTable, ...]) -> list[str]:
    """Return the changes of a publish as lines."""
    changed = [one for one in done if one.dates]
    batch = f"batch {version.manifest.batch} of the tables is in {masked(target.place)}"
    if not changed:
        return [f"{batch}: nothing had changed"]
    rows = sum(one.rows for one in changed)
    return [
        f"{batch}: {len(changed)} of {len(done)} tables changed, {rows:,} rows",
        *(f"  {one.table}: {one.rows:,} rows{_dates(one.dates)}" for one in changed if one.rows or any(one.dates)),
    ]


@contextmanager
def held(folder: Path) -> Iterator[Version]:
    """Yield the newest version of the tables; its files stay inside the block, also when a pipeline commits.

    Raises NoTablesError: there are none.
    """
    found = commits.newest(folder)
    mark = folder / commits.HELD / f"{uuid.uuid4().hex}.{found.manifest.batch}"
    try:
        mark.parent.mkdir(mode=0o700, exist_ok=True)
        mark.touch()
        yield found
    except FileNotFoundError as error:
        raise NoTablesError(f"the tables in {folder} are removed as they are read: {error.filename}") from error
    except OSError as error:
        why = error.strerror or error
        raise PipelineError(f"the tables in {folder} cannot be kept while they are published: {why}") from error
    finally:
        mark.unlink(missing_ok=True)


def _overlap(one: Path, other: Path) -> bool:
    first, second = one.resolve(), other.resolve()
    return first == second or first in second.parents or second in first.parents


def _dates(dates: tuple[str, ...]) -> str:
    if not any(dates):
        return ""
    return f" of {dates[0]}" if len(dates) == 1 else f" of {len(dates)} dates, {dates[0]} to {dates[-1]}"


# `paired pipeline --format delta`: Delta tables beside the tables' own files, by the Delta of the Spark session.
#
# They are in `delta/` of the tables' place. A commit's metadata has the state of each date's files.


class _State(msgspec.Struct):
    life: str
    files: dict[str, str]


_STATE: Final = msgspec.json.Decoder(_State)


def write_delta(spark: Any, lake: Lake) -> None:
    """Bring every Delta table up to the newest version. Raises SparkFailedError: this Spark has no Delta."""
    with lake.pinned() as version:
        for table in TABLES:
            try:
                _write_in_session(spark, version, lake.folder / DELTA / table, table)
            except Exception as error:
                raise SparkFailedError(
                    f"the Delta table {lake.folder / DELTA / table} cannot be written: {first_line(error)}. A Spark "
                    "session has Delta by its jars: --conf spark.jars=…"
                ) from error


def _write_in_session(spark: Any, version: Version, place: Place, table: str) -> None:
    manifest, dated = version.manifest, table in DATED
    before = _session_states(spark, place, manifest.life)
    states = states_of(version.path / table, manifest.of(table), is_dated=dated)
    changed = changed_dates(states, before or {})
    if before is not None and not changed:
        return
    files = [file for file in manifest.of(table) if file.rows and file.date in changed]
    from paired_servicebus.pipeline.ingest.table_files import Existing  # with pyarrow, which Spark brings

    rows = Existing(spark, version).rows(table, files)
    kept = {date: state for date, state in (before or {}).items() if date not in changed}
    state = msgspec.json.encode(_State(manifest.life, {**kept, **states})).decode()
    if dated:
        rows = rows.selectExpr("*", date_sql(table))
    writer = rows.write.format("delta").mode("overwrite").option("userMetadata", state)
    if dated:
        writer = writer.partitionBy("date")
    if dated and before is not None:
        dates = ", ".join(f"'{date}'" for date in sorted(changed))
        writer = writer.option("replaceWhere", f"date in ({dates})")
    writer.save(str(place))


def _session_states(spark: Any, place: Place, life: str) -> dict[str, str] | None:
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
