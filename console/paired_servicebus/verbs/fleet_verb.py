"""`paired fleet`: every engine of a pairing on every host, as one engine of this machine knows them from the boards.

Exit status: 0 all healthy; 1 if something is failed over, silent or missing; 2 bad input, or the fleet is off; 3 if no
engine answers or the boards cannot be read, because what cannot be read is unknown.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cyclopts import App, Parameter

from paired_servicebus.config import PairingConfig, find_config, load_config
from paired_servicebus.core.errors import ControlError, PairedError
from paired_servicebus.core.model.fleet_view import FleetView
from paired_servicebus.core.model.pairing_condition import condition_of
from paired_servicebus.core.model.pairing_fold import PairingView, pairing_of
from paired_servicebus.core.model.snapshot import Finding, FindingVerdict, Snapshot
from paired_servicebus.core.operator.alarms import Alarm, alarms, fleet_alarms
from paired_servicebus.core.operator.fleet_sentences import (
    WATCH_NOTICE,
    fleet_health,
    fleet_lines,
    fleet_word,
)
from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.durable_file import replace_file
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.discovery import first_snapshot
from paired_servicebus.printing import print_lines, print_object, report_error
from paired_servicebus.verbs.engine_commands import require_socket, select_engines
from paired_servicebus.verbs.parameters import Config, EngineSelection, JsonLine

# `paired fleet setup` and `check`: the boards of a pairing and their rules. Both need Manage on the secondary.


def setup(
    *,
    config: Config = None,
    keys: Annotated[
        Path | None, Parameter(help="A folder for the connection strings of the boards' own rules, for [fleet].")
    ] = None,
) -> int:
    """Create the two queues in the secondary namespace by which the engines of a pairing see each other.

    Each gets rules of its own for operators and engines. Needs Manage there. Exit status 0 ready, 1 ready with settings
    that differ, 2 not ready.
    """
    settings = load_config(find_config(config))
    lines, differs = asyncio.run(_set_up(settings, keys))
    print_lines(lines)
    return int(differs)


async def _set_up(settings: PairingConfig, keys: Path | None) -> tuple[list[str], bool]:
    from paired_servicebus.engine.clients.client_factory import open_admin, open_clients  # with the SDK behind them
    from paired_servicebus.engine.clients.start_checks import look_up_name
    from paired_servicebus.engine.fleet import board_setup
    from paired_servicebus.engine.fleet.service_bus_board import find_missing_right
    from paired_servicebus.engine.instance.engine_paths import engine_paths

    primary = await look_up_name(settings.primary, engine_paths(settings.name))
    async with open_admin(settings.secondary) as admin, open_clients(settings) as clients:
        found = await board_setup.set_up_boards(admin, primary)
        rules = await board_setup.set_up_rules(admin, primary, partial(find_missing_right, clients.secondary))
    lines = [f"{path} was created" for path in found.created]
    lines += [f"{path} exists" for path in found.existing]
    lines += [*found.remarks, *rules.remarks]
    if keys is not None:
        host, is_emulated = settings.secondary.host, settings.secondary.emulated
        files = board_setup.key_files(rules, primary, host, is_emulated=is_emulated)
        lines += [_write_key(keys / name, text) for name, text in files.items()]
    if settings.fleet is None:
        lines.append(f"{settings.path} has no [fleet]: its engine takes no part until it has one")
    return lines, bool(found.remarks)


def _write_key(path: Path, text: str) -> str:
    """Write a connection string that only its owner can read. Raises PairedError: the file cannot be written."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, text.encode(), mode=0o600)
    except OSError as error:
        raise PairedError(f"{path} cannot be written: {error.strerror or error}") from error
    return f"{path} has the connection string: [fleet] {path.name.partition('.')[0]} = {{ file = … }}"


def check(*, config: Config = None, json: JsonLine = False) -> int:
    """Show what each rule of the boards permits, and which rights are too wide.

    Needs Manage on the secondary namespace. Exit status 0 none too wide and none missing, 1 otherwise, 2 not known.
    """
    found = asyncio.run(_check_rights(load_config(find_config(config))))
    if json:
        print_object(msgspec.json.encode({"rights": found}).decode())
    else:
        print_lines([line for one in found for line in _finding_lines(one)])
    return int(any(one.verdict in (FindingVerdict.WARN, FindingVerdict.NO) for one in found))


async def _check_rights(settings: PairingConfig) -> Sequence[Finding]:
    from paired_servicebus.engine.clients.client_factory import open_admin  # with the SDK behind it
    from paired_servicebus.engine.clients.start_checks import look_up_name
    from paired_servicebus.engine.fleet.board_setup import check_rights
    from paired_servicebus.engine.instance.engine_paths import engine_paths

    primary = await look_up_name(settings.primary, engine_paths(settings.name))
    async with open_admin(settings.secondary) as admin:
        return await check_rights(admin, primary, {} if settings.fleet is None else settings.fleet.key_names)


_WORDS: Final = {FindingVerdict.WARN: "too wide", FindingVerdict.NO: "missing"}


def _finding_lines(found: Finding) -> list[str]:
    lines = [f"{_WORDS.get(found.verdict, found.verdict):<9} {found.what:<30} {found.evidence}"]
    return [*lines, f"{'':<9} {'':<30} -> {found.todo}"] if found.todo else lines


UNREACHABLE: Final = 3
REDRAW_SECONDS: Final = 1.0
CLEAR: Final = "\x1b[H\x1b[2J"

fleet = App(name="fleet", help="Show every engine of a pairing, on every host.")
fleet.command(setup)
fleet.command(check)


@fleet.default
def show(
    *,
    engines: EngineSelection = EngineSelection(),
    json: JsonLine = False,
    watch: Annotated[
        bool, Parameter(help="Redraw until Ctrl-C. All engines then report fast, which is billed.")
    ] = False,
) -> int:
    """Show engines, entities and orders over all hosts.

    Exit status 0 healthy, 1 degraded, 2 bad input, 3 unreachable.
    """
    if watch and json:
        raise PairedError("--watch draws for people and --json prints one object: choose one of them")
    try:
        socket = require_socket(select_engines(engines)[0])
        if watch:
            report_notice()
            return asyncio.run(_watch(socket))
        snapshot = asyncio.run(first_snapshot(socket, fleet=True))
    except ControlError as error:
        report_error(str(error))
        return UNREACHABLE
    return print_fleet(snapshot, time.time(), json=json)


def report_notice() -> None:
    """Announce on standard error what a watch costs."""
    sys.stderr.write(f"{WATCH_NOTICE}; Ctrl-C ends it\n")


def print_fleet(snapshot: Snapshot, now: float, *, json: bool = False) -> int:
    """Print the fleet as a table, or as one object; return the exit status."""
    if snapshot.fleet is None:
        return report_error(off_sentence(snapshot))
    found = _alarms(snapshot, now)
    if json:
        print_object(fleet_object(pairing_of(snapshot), now, found))
    else:
        print_lines(fleet_lines(pairing_of(snapshot), now, found))
    return int(fleet_health(snapshot.fleet, found))


def _alarms(snapshot: Snapshot, now: float) -> tuple[Alarm, ...]:
    return fleet_alarms(alarms(condition_of(snapshot, now)))


def off_sentence(snapshot: Snapshot) -> str:
    """Return that the fleet is off, and how to switch it on."""
    return (
        f"the fleet is off in the engine {snapshot.engine}: it knows only itself; "
        "add [fleet] to its pairing.toml, run paired fleet setup once, and start it again"
    )


def fleet_object(pairing: PairingView, now: float, found: Sequence[Alarm]) -> str:
    """Return one JSON object: `status` and `exit`, the time, the fleet's alarms, and the fleet.

    Its entities are those of all engines, this one included; `old_since` is set while what others reported is old.
    """
    view = pairing.fleet or FleetView(me="")
    status = {"status": fleet_word(view, found), "exit": int(fleet_health(view, found))}
    report = {**status, "at": now, "old_since": pairing.old_since, "alarms": found, "fleet": view}
    return msgspec.json.encode(report).decode()


async def _watch(socket: Path) -> int:
    """Redraw with each new snapshot until the engine ends; Ctrl-C leaves by KeyboardInterrupt."""
    client = await ControlClient.connect(socket, watches=False, fleet=True)
    try:
        return await draw_snapshots(client, _draw)
    finally:
        await client.close()


async def draw_snapshots(client: ControlClient, draw: Callable[[Sequence[str]], object]) -> int:
    """Draw the fleet of each snapshot, at most once a second; return the exit status of the last one."""
    drawn, status = float("-inf"), UNREACHABLE
    async for news in client.updates():
        if not isinstance(news, Snapshot) or time.monotonic() - drawn < REDRAW_SECONDS * 0.9:
            continue
        if news.fleet is None:
            return report_error(off_sentence(news))
        now = time.time()
        found = _alarms(news, now)
        draw(fleet_lines(pairing_of(news), now, found))
        drawn, status = time.monotonic(), int(fleet_health(news.fleet, found))
    report_error("the engine ended: start it again with paired up")
    return UNREACHABLE if status == 0 else status


def _draw(lines: Sequence[str]) -> None:
    """Draw over the last picture on a terminal; append to anything else."""
    if sys.stdout.isatty():
        rows = os.get_terminal_size(sys.stdout.fileno())
        lines = [harmless(line)[: rows.columns] for line in lines[: rows.lines - 1]]
        sys.stdout.write(CLEAR)
    print_lines(lines)
    sys.stdout.flush()
