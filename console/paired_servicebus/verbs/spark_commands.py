"""The verbs that use Spark: drain, tables, reports and rehearsals. Spark runs only in child processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import App, Parameter

from paired_servicebus.config import PairingSettings, find_config, load_config, load_settings
from paired_servicebus.core.errors import ConfigurationError, ConfigurationMissingError
from paired_servicebus.engine.instance.engine_paths import engine_paths, journals_here
from paired_servicebus.verbs.parameters import Config, Consent, JsonLine

if TYPE_CHECKING:
    from paired_servicebus.pipeline.table_store.store_path import Place

# The verbs of the pipeline's tables: query, check, publish, retire. No Spark.

Folder = Annotated[Path | None, Parameter(name="--tables", help="The tables' folder or URL; else the pairing.toml's.")]

tables: Final = App(
    name="tables", help="The tables that paired pipeline makes: query, check, publish, or retire an engine."
)


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
    from paired_servicebus.pipeline.table_commands import run_query  # with duckdb behind it

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
    from paired_servicebus.pipeline.table_commands import run_check

    return run_check(_folder(folder, config), max_age=max_age, json_line=json)


@tables.command
def publish(
    *,
    to: Annotated[str, Parameter(help="A folder, or abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH.")],
    folder: Folder = None,
    json: JsonLine = False,
    config: Config = None,
) -> int:
    """Write the tables' changes to Delta tables in a store or a folder; a second publish of the same changes nothing.

    Access to a store comes from AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or by azure-identity.
    """
    from paired_servicebus.pipeline.publishing.delta_tables import run_publish

    return run_publish(_folder(folder, config), to=to, json_line=json)


@tables.command
def retire(
    engine: Annotated[str, Parameter(help="Its name, as the tables have it.")],
    /,
    *,
    why: Annotated[str, Parameter(help="How you know that it is gone; every verdict says it.")],
    journal: Annotated[
        Path | None, Parameter(show_default=False, help="The journals' folder; else the pairing.toml's.")
    ] = None,
    config: Config = None,
) -> int:
    """Declare an engine gone for good: its last record is its end, so that nothing stays unknown for its sake."""
    from paired_servicebus.pipeline.table_commands import run_retire

    place = journal or engine_paths(load_settings(find_config(config)).name).spool
    return run_retire(place, engine, why=why)


def _folder(folder: Path | None, config: Path | None) -> Place:
    """Return the tables' place. Raises PairedError: there is no pairing.toml, or the URL is of no store."""
    from paired_servicebus.pipeline.table_store.store_path import place_of

    return place_of(folder or engine_paths(load_settings(find_config(config)).name).tables)


Journals = Annotated[
    tuple[Path, ...],
    Parameter(
        name="--journal",
        show_default=False,
        help="A journal, a folder of its files, or a tree of many hosts' journals; as often as needed. "
        "Else the pairing.toml's engine's.",
    ),
]
Conf = Annotated[
    tuple[str, ...], Parameter(show_default=False, help="A setting of Spark's, NAME=VALUE; as often as needed.")
]
JavaHome = Annotated[Path | None, Parameter(help="A Java to run Spark on; else one is looked for.")]
ReportFormat = Annotated[
    Literal["text", "html", "json"], Parameter(help="Text for a terminal, a page in one file, or one JSON object.")
]
Reader = Annotated[
    Literal["boss", "customers", "engineers"],
    Parameter(name="--for", help="Impact and cost; three sentences and a table; or all that is known."),
]


def drain(
    *,
    master: Annotated[str, Parameter(help="A Spark cluster, as Spark's master URL.")] = "local[*]",
    parallelism: Annotated[
        int | None, Parameter(help="Tasks at a time; else the processors here, or on a cluster one a backlog queue.")
    ] = None,
    rate: Annotated[
        float | None, Parameter(help="Messages a second in all, so that live traffic has its share.")
    ] = None,
    journal: Annotated[
        Path | None, Parameter(help="The journal's folder as every executor sees it; else this pairing's.")
    ] = None,
    beside_syphon: Annotated[bool, Parameter(help="Though an engine here moves the same messages.")] = False,
    conf: Conf = (),
    consent: Consent = Consent(),
    config: Config = None,
    json: JsonLine = False,
) -> int:
    """Move a large backlog with the executors of a Spark cluster; dangerous, and named by the pairing.

    Ctrl-C ends it cleanly.
    """
    from paired_servicebus.pipeline.drain.drain_command import DrainPlan, run_drain  # with the SDK
    from paired_servicebus.pipeline.spark.spark_session import spark_settings

    found = load_config(find_config(config))
    plan = DrainPlan(
        config=found,
        places=engine_paths(found.name),
        master=master,
        parallelism=parallelism,
        rate=rate,
        journal=journal,
        beside_syphon=beside_syphon,
        settings=spark_settings(conf),
        why=consent.why,
        yes=consent.yes or "",
    )
    return run_drain(plan, json_line=json)


def pipeline(
    *,
    once: Annotated[bool, Parameter(help="Make the tables of the present journal, and end.")] = False,
    journal: Journals = (),
    tables: Annotated[Path | None, Parameter(help="Where the tables are; else beside the first journal.")] = None,
    master: Annotated[str | None, Parameter(help="Spark's master URL; else this machine.")] = None,
    trigger: Annotated[float, Parameter(help="Seconds between two looks for new journal files.")] = 5.0,
    format: Annotated[
        Literal["parquet", "delta"], Parameter(help="Parquet files; or Delta tables too, if this Spark has Delta.")
    ] = "parquet",
    java_home: JavaHome = None,
    conf: Conf = (),
    config: Config = None,
) -> int:
    """Make journals into tables by Spark.

    The tables are events, engines, episodes, minutes, backlog, syphon, cost and the audit of messages.
    """
    from paired_servicebus.pipeline.pipeline_command import run_pipeline  # with duckdb behind it
    from paired_servicebus.pipeline.spark.spark_session import spark_settings
    from paired_servicebus.pipeline.spark_processes import PipelineOrder

    found = journal or (engine_paths(load_settings(find_config(config)).name).spool,)
    order = PipelineOrder(
        journals=found,
        tables=tables or found[0].parent / "tables",
        once=once,
        master=master,
        trigger=trigger,
        java_home=java_home,
        settings=spark_settings(conf),
        format=format,
    )
    return run_pipeline(order)


def rehearse(
    *,
    journal: Journals = (),
    failover_interval: Annotated[str, Parameter(help="The failover intervals to try.")] = "0s,5s,30s,60s",
    failback_pings: Annotated[str, Parameter(help="How many accepted pings in a row to try.")] = "1,3",
    ping_interval: Annotated[str, Parameter(help="The ping intervals to try.")] = "10s,60s",
    seeds: Annotated[int, Parameter(help="Readings of the record, where it leaves a choice.")] = 200,
    master: Annotated[str, Parameter(help="Where Spark runs them, as Spark's master URL.")] = "local[*]",
    java_home: JavaHome = None,
    conf: Conf = (),
    config: Config = None,
    json: JsonLine = False,
) -> int:
    """Replay recorded failures through the shipped rules under other policies, on Spark.

    Without recorded failures a synthetic hour is replayed, and marked as such.
    """
    from paired_servicebus.pipeline.rehearsal.rehearsal_command import RehearsalRequest, SparkChoice, run_rehearsal
    from paired_servicebus.pipeline.spark.spark_session import spark_settings

    asked = RehearsalRequest(
        intervals=failover_interval,
        pings=failback_pings,
        ping_intervals=ping_interval,
        seeds=seeds,
        spark=SparkChoice(master=master, java_home=java_home, settings=spark_settings(conf)),
    )
    settings = _settings_if_any(config)
    places = engine_paths(settings.name) if settings is not None else None
    own = (places.spool,) if places is not None and places.spool.is_dir() else ()
    policy = settings.policy if settings is not None else None
    return run_rehearsal(asked, journals=journal or own, current=policy, json_line=json)


def report(
    *,
    episode: Annotated[str | None, Parameter(help="The incident of this episode; else the latest.")] = None,
    since: Annotated[str | None, Parameter(help='Everything since: "2h" ago, or "2026-11-21 08:30".')] = None,
    pairing: Annotated[str | None, Parameter(help="Of this pairing, if the tables have several.")] = None,
    reader: Reader = "engineers",
    format: ReportFormat = "text",
    zone: Annotated[
        str, Parameter(show_default=False, help="Your time zone, as Europe/Berlin; else this machine's.")
    ] = "",
    out: Annotated[Path | None, Parameter(help="A folder to write it to, with the ids of lost messages.")] = None,
    tables: Annotated[Path | None, Parameter(help="The pipeline's tables; else the pairing.toml's.")] = None,
    journal: Annotated[
        tuple[Path, ...],
        Parameter(
            show_default=False,
            help="Journals to read instead of tables, without Spark: up to five million events. As often as needed.",
        ),
    ] = (),
    config: Config = None,
) -> int:
    """Report an incident from the pipeline's tables, or from journals: impact, verdict, cost and timeline."""
    from paired_servicebus.pipeline.journal_tables import JournalTables
    from paired_servicebus.pipeline.report.report_command import Wording, chooser, reader_zone, report_from
    from paired_servicebus.pipeline.table_store.table_reader import Tables
    from paired_servicebus.ui.shell.preferences import config_folder, load_preferences

    if journal and tables is not None:
        raise ConfigurationError("--journal and --tables are two sources of a report: give one of them")
    named = bool(journal) or tables is not None
    settings = _settings_if_any(config) if named else load_settings(find_config(config))
    folder = tables or engine_paths(settings.name if settings else "").tables
    journals = journal or (() if named else _journals_without_tables(folder))
    if journals and not named and settings is not None and episode is None:
        pairing = pairing or settings.name
    choose = chooser(episode=episode, since=since, pairing=pairing)
    price = load_preferences(config_folder()).price
    wording = Wording(reader=reader, format=format, zone=reader_zone(zone), price=price)
    with JournalTables.open(journals) if journals else Tables.open(folder) as source:
        return report_from(
            source,
            choose=choose,
            wording=wording,
            out=out,
            environments={settings.name: settings.environment} if settings else {},
            expected=settings.expected if settings else (),
        )


def _journals_without_tables(folder: Path) -> tuple[Path, ...]:
    """Return every journal here where no tables were made yet; none where there are tables, or no journal."""
    return () if folder.exists() else tuple(one for one in journals_here() if one.is_dir())


VERBS: Final[tuple[Callable[..., int], ...]] = (drain, pipeline, rehearse, report)


def _settings_if_any(config: Path | None) -> PairingSettings | None:
    """Load the named or default pairing.toml; None if there is none."""
    try:
        found = find_config(config)
    except ConfigurationMissingError:
        return None
    return load_settings(found)
