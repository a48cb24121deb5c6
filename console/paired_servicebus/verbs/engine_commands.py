"""Commands engines of this machine from the command line: selects them, sends an order to each, prints the outcomes.

A dangerous order needs `--yes NAME` in place of the confirmation on the screen. Without it only a preview is printed.
The engine's guard decides whether the order is permitted. Not here: the orders' verbs (order_verbs.py).

Exit status: 0 done; 2 if an engine refused, failed, or was not asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from paired_servicebus.config import find_config, load_settings
from paired_servicebus.core.errors import (
    ConfigurationError,
    ConfigurationMissingError,
    ControlError,
    EngineNotRunningError,
)
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.snapshot import Snapshot, UnusedQueue
from paired_servicebus.core.operator import action_row
from paired_servicebus.core.operator.action_row import Action
from paired_servicebus.core.operator.actions import BY_ID, BY_VERB
from paired_servicebus.core.operator.targets import Scope
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import clock, day_and_clock
from paired_servicebus.engine.control.control_client import ControlClient, user_name
from paired_servicebus.engine.control.discovery import (
    explain_closed_services,
    find_socket,
    first_snapshot,
    local_engines,
)
from paired_servicebus.engine.instance.engine_paths import EnginePaths, engine_paths
from paired_servicebus.engine.instance.lock import running
from paired_servicebus.engine.service.launcher import wait_until_gone
from paired_servicebus.printing import print_lines, report_error
from paired_servicebus.verbs.parameters import EngineSelection

ALL: Final = "all"
DOWN_TIMEOUT: Final = 90.0
"""Seconds that an engine has to end cleanly: sends in flight, pumps, links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbRequest:
    """A command as given on the command line, before an engine's snapshot resolves its targets.

    matching: instead of targets, all entities whose path has it.
    yes, confirmed: the operator's consent to a dangerous command, and the confirmation that some need besides.
    """

    command: Command
    matching: str | None = None
    yes: str | None = None
    confirmed: bool = False

    @property
    def action(self) -> Action:
        return BY_ID[self.command.action_id]

    @property
    def typed(self) -> str:
        """The text that the screen would require."""
        confirmed = self.action.confirms if self.confirmed else ""
        return f"{self.yes or ''} {confirmed}".strip()

    def aimed(self, snapshot: Snapshot) -> Command:
        """Return the command with this engine's names. Raises ConfigurationError: none of its entities match."""
        return replace(self.command, targets=self._targets(snapshot))

    def _targets(self, snapshot: Snapshot) -> tuple[str, ...]:
        if self.matching is not None:
            part = self.matching.casefold()
            found = tuple(one.path for one in snapshot.entities if part in one.path.casefold())
            if not found:
                raise ConfigurationError(
                    f"none of its {len(snapshot.entities)} entities has {self.matching!r} in its path"
                )
            return found
        return tuple(_resolve(snapshot, self.command.scope, target) for target in self.command.targets)


def _resolve(snapshot: Snapshot, scope: str, target: str) -> str:
    """Resolve a target; a queue may have its bare index or the screen's form."""
    bare = target.removeprefix("backlog/")
    if scope == Scope.QUEUE:
        return bare
    if scope == Scope.UNUSED:
        return next((one.path for one in snapshot.unused.queues if str(one.index) == bare), target)
    return target


def down(*, engines: EngineSelection = EngineSelection()) -> int:
    """End the engine cleanly: sends in flight finish, locks are released, the last audit line is written."""
    return max(_end(places) for places in select_engines(engines))


# -- the engines -----------------------------------------------------------------------------------------------------


def select_engines(engines: EngineSelection) -> tuple[EnginePaths, ...]:
    """Return the selected engines that run.

    Raises:
        EngineNotRunningError: none runs.
    """
    chosen = _select(engines)
    running = tuple(places for places in chosen if find_socket(places) is not None)
    if running:
        return running
    raise EngineNotRunningError(
        f"no engine of {_selection_name(engines, chosen)} runs here: start one with paired up; "
        f"those that run: {_names(_running_here()) or 'none'}{_closed()}"
    )


def only_engine(name: str) -> EnginePaths:
    """Return the running engine of that name. Raises EngineNotRunningError: there is none."""
    if name == ALL:
        raise ConfigurationError("--engine all names several engines: choose one")
    return select_engines(EngineSelection(engine=name))[0]


def _selection_name(engines: EngineSelection, chosen: tuple[EnginePaths, ...]) -> str:
    name = engines.engine if engines.engine is not None else chosen[0].name
    return "any pairing" if name == ALL else f"the pairing {name}"


def _running_here() -> list[EnginePaths]:
    return [places for places in local_engines() if find_socket(places) is not None]


def _names(engines: Iterable[EnginePaths]) -> str:
    return ", ".join(places.name for places in engines)


def _closed() -> str:
    """Return the end of a sentence about services that this user may not ask."""
    return f"; {said}" if (said := explain_closed_services()) else ""


def _select(engines: EngineSelection) -> tuple[EnginePaths, ...]:
    """Select by name: this user's own before a service's. Without a name or a pairing.toml: the only running one."""
    if engines.engine == ALL:
        return local_engines()
    if engines.engine is not None:
        return tuple(places for places in local_engines() if places.name == engines.engine)[:1]
    try:
        return (engine_paths(load_settings(find_config(engines.config)).name),)
    except ConfigurationMissingError as error:
        return (_only_one(error),)


def _only_one(missing: ConfigurationMissingError) -> EnginePaths:
    """Return the only running engine, for use without a pairing.toml."""
    here = _running_here()
    if len(here) > 1:
        raise ConfigurationError(f"several engines run here: choose one by --engine ({_names(here)})") from missing
    if not here:
        raise ConfigurationMissingError(f"{missing}{_closed()}") from missing
    return here[0]


def require_socket(places: EnginePaths) -> Path:
    """Return the engine's socket. Raises EngineNotRunningError: it has ended meanwhile."""
    socket = find_socket(places)
    if socket is None:
        raise EngineNotRunningError(f"the engine of {places.name} has ended meanwhile")
    return socket


def order(request: VerbRequest, engines: EngineSelection) -> int:
    """Send the order to each selected engine; return the worst exit status."""
    status = max(asyncio.run(_ask(places, request)) for places in select_engines(engines))
    if request.command.scope == Scope.ENTITY and status == 0:
        print_lines(["senders elsewhere are not affected; their state is unknown"])
    return status


async def _ask(places: EnginePaths, request: VerbRequest) -> int:
    """Execute the request at one engine; print the result on standard output, or a failure on standard error."""
    try:
        socket = require_socket(places)
        snapshot = await first_snapshot(socket, watches=True)
        command = request.aimed(snapshot)
        fault = action_row.fault(request.action, snapshot, command)
        if fault:
            raise ConfigurationError(fault)
        needed = action_row.to_fire(request.action, snapshot, command)
        if request.action.dangerous and not action_row.typed_right(request.typed, needed):
            return _preview(request, snapshot, command)
        said = await _fire(socket, command, request.typed)
    except (ControlError, ConfigurationError) as error:
        return _refused(places, str(error))
    print_lines([f"{snapshot.engine}: {said}"])
    return 0


async def _fire(socket: Path, command: Command, typed: str) -> str:
    client = await ControlClient.connect(socket, watches=False)
    try:
        return (await client.order(command, typed=typed)).text
    finally:
        await client.close()


def _preview(request: VerbRequest, snapshot: Snapshot, command: Command) -> int:
    """Print the preview of the screen's confirmation."""
    from paired_servicebus.ui.commands.action_table import facts, title

    asked = title(request.action.id, request.action.label.capitalize(), snapshot, command, snapshot.pairing)
    print_lines([asked, *(f"{label:<13}{text}" for label, text in facts(request.action.id, snapshot, command))])
    needed = action_row.to_type(snapshot, command)
    yes = request.yes
    given = "" if yes is None or action_row.typed_right(yes, needed) else f", not {yes}"
    if request.action.confirms and not request.confirmed:
        needed += f" and --{request.action.confirms.replace(' ', '-')}"
    return report_error(f"nothing was done: {request.action.label} needs --yes {needed}{given}")


def _refused(places: EnginePaths, text: str) -> int:
    return report_error(f"{places.name}: {text}")


def _end(places: EnginePaths) -> int:
    stop = Command(action_id=BY_VERB[down.__name__].id, scope=Scope.ALL, by=user_name(), why="paired down")
    if places.is_service:
        return _end_service(places, stop)
    holder = running(places.lock)
    if holder is None:
        return _refused(places, "the engine has ended meanwhile")
    try:
        asyncio.run(_fire(Path(holder.socket), stop, places.name))
    except ControlError as error:
        return _refused(places, str(error))
    if not wait_until_gone(places, DOWN_TIMEOUT):
        return _refused(
            places, f"the engine (pid {holder.pid}) has not ended within {DOWN_TIMEOUT:g} s; its log is {holder.log}"
        )
    print_lines([f"the engine of {places.name} has ended"])
    return 0


def _end_service(places: EnginePaths, stop: Command) -> int:
    """Wait for the end of a service's engine by its socket, because its lock is not readable here."""
    try:
        said = asyncio.run(_fire(places.socket, stop, places.name))
    except ControlError as error:
        return _refused(places, str(error))
    print_lines([f"{places.name}: {said}; its service manager decides about a restart"])
    return 0


def list_unused(engines: Iterable[EnginePaths]) -> int:
    """Print the unused backlog queues that each engine knows."""
    status = 0
    for places in engines:
        try:
            snapshot = asyncio.run(first_snapshot(require_socket(places), watches=True))
        except ControlError as error:
            status = _refused(places, str(error))
        else:
            print_lines(_unused_lines(snapshot))
    return status


def _unused_lines(snapshot: Snapshot) -> list[str]:
    unused = snapshot.unused
    if unused.read_at is None:
        return [f"{snapshot.engine}: unused backlog queues are not known: {unused.trouble or 'not listed yet'}"]
    stale = f"; since then: {unused.trouble}" if unused.trouble else ""
    count = len(unused.queues) or "none"
    head = f"{snapshot.engine}: unused backlog queues: {count} (read {clock(unused.read_at)} UTC{stale})"
    return [head, *(_describe(queue) for queue in unused.queues)]


def _describe(queue: UnusedQueue) -> str:
    counts = "counts unknown"
    if queue.messages is not None:
        counts = f"{plural(queue.messages, 'message')}, {plural(queue.dead_lettered or 0, 'dead letter')}"
    parts = [
        f"  {queue.path}",
        counts,
        f"last active {_format_time(queue.last_active)}",
        f"made {_format_time(queue.created_at)}",
    ]
    return "  ".join([*parts, *((f"differs: {', '.join(queue.differences)}",) if queue.differences else ())])


def _format_time(at: float | None) -> str:
    return "unknown" if at is None else day_and_clock(at)
