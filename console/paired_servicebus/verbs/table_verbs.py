"""The verbs of the pipeline's tables: query, check, publish. No Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import App, Parameter

from paired_servicebus.config import find_config, load_settings
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.verbs.parameters import Config, JsonLine

Folder = Annotated[Path | None, Parameter(name="--tables", help="The tables' folder; else the pairing.toml's.")]

tables: Final = App(name="tables", help="The tables that paired pipeline makes: query, check or publish them.")


@tables.command
def query(
    sql: Annotated[str, Parameter(help="One SELECT, in duckdb's SQL.")],
    /,
    *,
    folder: Folder = None,
    format: Annotated[Literal["table", "csv"], Parameter(help="Aligned columns, or CSV.")] = "table",
    json: JsonLine = False,
    config: Config = None,
) -> int:
    """Print the rows of a query over the newest tables. It only reads, and only the tables."""
    from paired_servicebus.pipeline.query_command import run_query  # with duckdb behind it

    return run_query(_folder(folder, config), sql, format_="json" if json else format)


@tables.command
def check(
    *,
    folder: Folder = None,
    max_age: Annotated[str, Parameter(help="How old the newest record may be.")] = "10m",
    json: JsonLine = False,
    config: Config = None,
) -> int:
    """Are the tables fresh and whole? Exit status 0 yes, 1 stale or incomplete, 2 bad input, 3 no readable tables."""
    from paired_servicebus.pipeline.check_command import run_check

    return run_check(_folder(folder, config), max_age=max_age, json_line=json)


@tables.command
def publish(
    *,
    to: Annotated[str, Parameter(help="A folder, or abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH.")],
    format: Annotated[
        Literal["parquet", "delta"], Parameter(help="Plain Parquet files, for folders; or Delta tables.")
    ] = "delta",
    folder: Folder = None,
    json: JsonLine = False,
    config: Config = None,
) -> int:
    """Write the tables' changes to a store or another folder; a second publish of the same changes nothing.

    Access to a store comes from AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or by azure-identity.
    """
    from paired_servicebus.pipeline.publishing.publish_command import run_publish

    return run_publish(_folder(folder, config), to=to, format_=format, json_line=json)


def _folder(folder: Path | None, config: Path | None) -> Path:
    """Return the tables' folder. Raises PairedError: it is a URL, or there is no pairing.toml."""
    from paired_servicebus.pipeline.ingest.journal_files import refuse_url

    if folder is None:
        return engine_paths(load_settings(find_config(config)).name).tables
    refuse_url("--tables", folder)
    return folder
