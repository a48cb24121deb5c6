"""The command: one short function per verb. Implementations are elsewhere, and imported on demand.

Exit status: 0; 1 for an unbalanced demo, a failed dashboard or a negative answer; 3 if no engine answers
a status query; 2 for an error that the user can correct. Such an error is one sentence on standard error with problem,
place and remedy. Never a traceback.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import App, CycloptsError, Group, Parameter, UnusedCliTokensError

from paired_servicebus.config import PairingConfig, PairingSettings, find_config, load_config, load_settings
from paired_servicebus.core.errors import ControlError, EngineRunningError, PairedError
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.untrusted_text import indent_lines
from paired_servicebus.engine.instance.engine_paths import EnginePaths, engine_paths
from paired_servicebus.engine.instance.identity import program_version
from paired_servicebus.engine.instance.lock import running
from paired_servicebus.engine.service.launcher import Launch, Ready, become_engine
from paired_servicebus.extras import explain_missing
from paired_servicebus.printing import print_lines, print_object, report_error
from paired_servicebus.ui.display.profile import ScreenOptions
from paired_servicebus.verbs import engine_commands, order_verbs, spark_commands
from paired_servicebus.verbs import spark_commands as table_verbs
from paired_servicebus.verbs.browse_verb import browse
from paired_servicebus.verbs.fleet_verb import fleet as fleet_verbs
from paired_servicebus.verbs.gateway_verb import gateway
from paired_servicebus.verbs.parameters import DEFAULT_KEY, Config, EngineSelection, JsonLine, OrderKey
from paired_servicebus.verbs.snapshot_verb import snapshot
from paired_servicebus.verbs.trial_verbs import bench, drill, verify

if TYPE_CHECKING:
    from paired_servicebus.verbs.check_verb import CheckResult

BROKEN_PIPE_STATUS: Final = 128 + signal.SIGPIPE
"""The status that a shell expects of a command ended by SIGPIPE."""

HELP_GROUPS: Final = {
    "Watch": ("up", "status", "attach", "check", "fleet", "find", "browse", "snapshot", "gateway", "config", "down"),
    "Steer": (),
    "Prove": ("demo", "verify", "drill", "bench", "sandbox"),
    "Data": ("report", "pipeline", "tables", "rehearse"),
}
"""The commands of `paired --help`, the most used first. Steer has all others: the orders, as in their table."""

ReadOnly = Annotated[
    bool, Parameter(help="The engine, if it is started here, refuses orders; the dashboard gives none in any case.")
]
ScreenWishes = Annotated[ScreenOptions | None, Parameter(name="*")]

app = App(
    name="paired",
    help="Paired namespaces for Azure Service Bus: keep sending while the primary namespace is down, and watch it.",
    version=program_version,
    default_parameter=Parameter(negative=()),
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
configuration = App(name="config", help="Check a pairing.toml.")
app.command(configuration)
app.command(bench)
app.command(verify)
app.command(drill)
app.command(fleet_verbs)
app.command(gateway)
app.command(browse)
app.command(snapshot)
app.command(table_verbs.tables)
for _verb in (engine_commands.down, *order_verbs.VERBS, *spark_commands.VERBS):
    app.command(_verb)
for _group in order_verbs.GROUPS:
    app.command(_group)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (by default this process's); return the exit status."""
    try:
        status = app(arguments, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except BrokenPipeError as error:
        return BROKEN_PIPE_STATUS if _reader_gone() else _report_failure(error)
    except UnusedCliTokensError as error:
        return report_error(f"{' '.join(error.unused_tokens or ())!r} is an unknown argument; see paired --help")
    except CycloptsError as error:
        return report_error(f"{str(error).rstrip()} (see paired --help)")
    except PairedError as error:
        return report_error(str(error))
    except KeyboardInterrupt:
        return 130
    except ModuleNotFoundError as error:
        sentence = explain_missing(error, what="this command")
        return report_error(sentence) if sentence else _report_failure(error)
    except Exception as error:  # noqa: BLE001 - the last resort: kept for us in a file, one sentence for a person
        return _report_failure(error)
    return status if isinstance(status, int) else 0


@app.default
def default(
    *, config: Config = None, read_only: ReadOnly = False, screen: ScreenWishes = None, key: OrderKey = DEFAULT_KEY
) -> int:
    """Start or find the engine and open the dashboard: the same as paired up."""
    return up(config=config, read_only=read_only, screen=screen, key=key)


@app.command
def up(
    *,
    config: Config = None,
    headless: Annotated[bool, Parameter(help="Only the engine; returns when it serves.")] = False,
    foreground: Annotated[
        bool, Parameter(help="Only the engine, as this process, for systemd or a container.")
    ] = False,
    read_only: ReadOnly = False,
    screen: ScreenWishes = None,
    key: OrderKey = DEFAULT_KEY,
) -> int:
    """Start the engine for a pairing.toml, or find the running one, and open the dashboard on it."""
    settings = load_settings(find_config(config))
    places = engine_paths(settings.name)
    if foreground:
        become_engine(settings.path, read_only=read_only)
    if headless:
        ready = _start(settings, places, read_only=read_only)
        queues = f"{ready.backlog_queues} of {settings.policy.backlog_queue_count} backlog queues"
        serves = f"the engine of {settings.name} serves, {queues}"
        print_lines([f"{serves}: pid {ready.pid}, socket {ready.socket}, log {ready.log}"])
        for alarm in ready.alarms:
            report_error(f"alarm: {alarm}")
        return 0
    _needs_terminal("paired up --headless runs the engine without one")
    socket = _find_or_start(settings, places, read_only=read_only)
    return _dashboard(socket, places, screen, key, read_only=read_only)


@app.command
def attach(
    *,
    engines: EngineSelection = EngineSelection(),  # noqa: B008 - frozen
    read_only: Annotated[bool, Parameter(help="Look, and command nothing.")] = False,
    screen: ScreenWishes = None,
    key: OrderKey = DEFAULT_KEY,
) -> int:
    """Open the dashboard on a running engine."""
    places = engine_commands.select_engines(engines)[0]
    _needs_terminal("a dashboard is nothing without one")
    return _dashboard(engine_commands.require_socket(places), places, screen, key, read_only=read_only)


@app.command
def check(
    *,
    config: Config = None,
    engine: Annotated[str | None, Parameter(help="A running engine by its name; needs no pairing.toml.")] = None,
    json: JsonLine = False,
) -> int:
    """Would a failover work now? Exit status 0 ready, 1 not ready, 2 bad input, 3 unreachable."""
    from paired_servicebus.verbs.check_verb import UNREACHABLE, as_json, as_lines, check_engine

    if engine is not None:
        _choose_one(config, engine)
        name = engine
        looks = check_engine(engine_commands.require_socket(engine_commands.only_engine(engine)))
    else:
        settings = load_config(find_config(config))
        name, looks = settings.name, _check(settings, engine_paths(settings.name))
    try:
        checked = asyncio.run(looks)
    except ControlError as error:
        report_error(str(error))
        return UNREACHABLE
    _print_result(as_json(checked, name) if json else as_lines(checked, name))
    return checked.status


@configuration.command(name="check")
def check_configuration(file: Annotated[Path | None, Parameter(help="As --config elsewhere.")] = None) -> int:
    """Read a pairing.toml and the secrets that it names, and contact nothing. Exit status 0 valid, 2 not."""
    found = load_config(find_config(file))
    for remark in found.remarks:
        report_error(f"warning: {remark}")
    served = f", a gateway on port {found.gateway.port}" if found.gateway is not None else ""
    entities = plural(len(found.entities), "entity", "entities")
    print_lines(
        [f"{found.path} is valid: {found.name}, {found.primary.host} with {found.secondary.host}, {entities}{served}"]
    )
    return 0


def _choose_one(config: Path | None, engine: str | None) -> None:
    if config is not None and engine is not None:
        raise PairedError("--config and --engine both name an engine: choose one of them")


async def _check(settings: PairingConfig, places: EnginePaths) -> CheckResult:
    from paired_servicebus.verbs.check_verb import check as look
    from paired_servicebus.verbs.gateway_check import check_gateway

    checked = await look(settings, places)
    if settings.gateway is None:
        return checked
    return checked.with_finding(await check_gateway(settings, settings.gateway, places))


@app.command
def status(
    *,
    config: Annotated[
        Path | None, Parameter(help="Only this pairing's engine; else all engines of this user here.")
    ] = None,
    engine: Annotated[str | None, Parameter(help="Only this engine, by its name; all: each.")] = None,
    json: JsonLine = False,
    watch: Annotated[bool, Parameter(help="A line for each change from now on, until Ctrl-C.")] = False,
    fleet: Annotated[bool, Parameter(help="Also the pairing's engines on every host.")] = False,
) -> int:
    """Show the status of this machine's engines. Exit status 0 healthy, 1 degraded, 2 bad input, 3 unreachable."""
    from paired_servicebus.verbs.status import run_status, run_watch

    _choose_one(config, engine)
    chosen = engine_paths(load_settings(find_config(config)).name) if config is not None else None
    if engine is not None and engine != engine_commands.ALL:
        chosen = engine_commands.only_engine(engine)
    if watch and json:
        raise PairedError("--watch writes lines for people and --json one object: choose one of them")
    if watch and fleet:
        raise PairedError("paired fleet --watch shows the fleet; paired status --watch has this machine's engines")
    return run_watch(chosen) if watch else run_status(chosen, json_line=json, fleet=fleet)


@app.command
def find(
    message_id: Annotated[str, Parameter(help="As its sender set it, or as the pairing gave it.")],
    /,
    *,
    config: Config = None,
    json: JsonLine = False,
) -> int:
    """Trace a message through this machine's journal of the pairing; exit status 1 if it is unknown."""
    from paired_servicebus.engine.journal.message_trace import as_json, as_lines
    from paired_servicebus.engine.journal.message_trace import find as look_for

    settings = load_settings(find_config(config))
    found = look_for(engine_paths(settings.name).spool, message_id)
    kind = settings.policy.journal
    _print_result(as_json(found, kind) if json else as_lines(found, kind))
    return 0 if found.steps else 1


@app.command
def demo(
    *,
    scenario: Annotated[str, Parameter(help="The failure; --list names all scenarios.")] = "datacenter-outage",
    duration: Annotated[float, Parameter(help="Seconds of sending; draining comes on top.")] = 60.0,
    seed: Annotated[int, Parameter(help="Draws the application's sends.")] = 1,
    headless: Annotated[bool, Parameter(help="Without a screen.")] = False,
    list_: Annotated[bool, Parameter(name="--list", negative=(), help="List the scenarios.")] = False,
    spark: Annotated[
        bool, Parameter(negative="--no-spark", help="Audit the journal and write the incident report, if it is there.")
    ] = True,
    keep: Annotated[
        Path | None, Parameter(show_default=False, help="A new folder for the journals, the tables and the report.")
    ] = None,
    json: JsonLine = False,
) -> int:
    """Everything on this machine: two sandbox namespaces, an application, the engine, an outage to watch."""
    from paired_servicebus.demo.runner import run_demo  # with its process starters behind it
    from paired_servicebus.demo.scenarios import scenario_list

    if list_:
        print(scenario_list())
        return 0
    if not headless:
        _needs_terminal("paired demo --headless plays without one")
    return run_demo(
        scenario=scenario, duration=duration, seed=seed, headless=headless, json_line=json, spark=spark, keep=keep
    )


@app.command
def sandbox(
    *,
    json: Annotated[bool, Parameter(help="Print its addresses in one line of JSON.")] = False,
    config: Annotated[
        Path | None, Parameter(help="A TOML file with namespaces; else a primary and a secondary.")
    ] = None,
    listen: Annotated[
        str, Parameter(help="The namespaces' address; beyond loopback, others can reach them.")
    ] = "127.0.0.1",
    primary_port: Annotated[int, Parameter(help="0: any that is free.")] = 0,
    secondary_port: Annotated[int, Parameter(help="0: any that is free.")] = 0,
    standard_ports: Annotated[bool, Parameter(help="Ports 5672, 5671 and 443, as in Azure.", negative="")] = False,
    control_port: Annotated[int, Parameter(help="0: any that is free.")] = 0,
    token_port: Annotated[int, Parameter(help="0: any that is free.")] = 0,
) -> int:
    """Run only the embedded namespaces, until SIGTERM or Ctrl-C."""
    from servicebus_sandbox.sandbox_command import run_sandbox  # with cryptography and aiohttp behind it

    return run_sandbox(
        json_line=json,
        config=config,
        listen=listen,
        primary_port=primary_port,
        secondary_port=secondary_port,
        standard_ports=standard_ports,
        control_port=control_port,
        token_port=token_port,
    )


def _start(settings: PairingSettings, places: EnginePaths, *, read_only: bool = False, shown: bool = False) -> Ready:
    """Start the engine. `shown`: with its steps on the terminal."""
    from paired_servicebus.verbs.start_display import start_display

    with Launch.begin(load_config(settings.path), places, read_only=read_only) as launch:
        return launch.wait(told=start_display(settings.name)) if shown else launch.wait()


def _find_or_start(settings: PairingSettings, places: EnginePaths, *, read_only: bool) -> Path:
    """Return the engine's socket."""
    holder = running(places.lock)
    if holder is not None:
        return Path(holder.socket)
    try:
        return Path(_start(settings, places, read_only=read_only, shown=True).socket)
    except EngineRunningError:  # another process was as quick
        return places.socket


def _dashboard(
    socket: Path, places: EnginePaths, screen: ScreenOptions | None, key: Path, *, read_only: bool = False
) -> int:
    from paired_servicebus.engine.fleet.order_signatures import sign
    from paired_servicebus.ui import run_dashboard  # with Textual behind it
    from paired_servicebus.ui.engines.feed import OrderSigner

    signer = OrderSigner(key=str(key), sign=partial(sign, key=key.expanduser()))
    return run_dashboard(
        socket,
        config_name=places.name,
        read_only=read_only,
        wishes=screen,
        tables=places.tables,
        journal=places.spool,
        signer=signer,
    )


def _needs_terminal(instead: str) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise PairedError(f"the dashboard needs a terminal for its input and output; {instead}")


def _reader_gone() -> bool:
    """Return whether the reader of standard output has gone, as with `| head`; then redirect it to /dev/null."""
    output = select.poll()
    output.register(sys.stdout, 0)
    if not output.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def _report_failure(error: Exception) -> int:
    return report_error(f"internal error ({type(error).__name__}); traceback saved to {_save_traceback(error)}")


def _print_result(said: str | list[str]) -> None:
    """Print a JSON object, or lines."""
    if isinstance(said, str):
        print_object(said)
    else:
        print_lines(said)


def _save_traceback(error: Exception) -> str:
    """Write the traceback, without locals, to a file; return the file's name."""
    with tempfile.NamedTemporaryFile("w", prefix="paired-failure-", suffix=".log", delete=False) as file:
        file.write(masked(indent_lines("".join(traceback.format_exception(error)))))
    return file.name


_named = {name for names in HELP_GROUPS.values() for name in names}
_others = tuple(name for name in app if not name.startswith("-") and name not in _named)
for _title, _names in HELP_GROUPS.items():
    _group_of_help = Group(_title, sort_key=tuple(HELP_GROUPS).index(_title))
    for _place, _name in enumerate(_names or _others):
        app[_name].group = (_group_of_help,)
        app[_name].sort_key = _place
app.group_parameters = Group("Options", sort_key=len(HELP_GROUPS))
for _name in ("--help", "--version"):
    app[_name].group = (app.group_parameters,)


if __name__ == "__main__":
    sys.exit(main())
