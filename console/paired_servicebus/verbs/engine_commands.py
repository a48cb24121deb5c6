"""The verbs that command engines of this machine; each is a row of paired_servicebus.core.operator.actions.

A dangerous one needs `--yes NAME` in place of the confirmation on the screen. Without it the verb only prints a
preview. The engine's guard decides whether the command is permitted.

Exit status: 0 done; 2 if an engine refused, failed, or was not asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from cyclopts import App, Parameter

from paired_servicebus.config import find_config, load_config
from paired_servicebus.core.errors import (
    ConfigurationError,
    ConfigurationMissingError,
    ControlError,
    EngineNotRunningError,
)
from paired_servicebus.core.model.snapshot import Snapshot, UnusedQueue
from paired_servicebus.core.operator import actions
from paired_servicebus.core.operator.actions import Action, Scope
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
from paired_servicebus.verbs.parameters import Consent, EngineSelection, Why

ALL: Final = "all"
DOWN_TIMEOUT: Final = 90.0
"""Seconds that an engine has to end cleanly: sends in flight, pumps, links."""

OWN_VERBS: Final = ("cleanup", "down", "drain")
"""Verbs that are not derived from the table, beside those of two words."""

Verb = Callable[..., int]
Entity = Annotated[str, Parameter(help="Entities, by path.")]
Matching = Annotated[str | None, Parameter(help="All entities whose path has this in it, instead of names.")]

Queue = Annotated[str, Parameter(help="Backlog queues, by index; unused ones also by path.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonPart:
    """Which part of the syphon; neither: all of it."""

    queue: str | None = None
    """One backlog queue, by its index."""
    destination: str | None = None
    """One destination, by its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRequest:
    """A command as given on the command line, before an engine's snapshot resolves its targets."""

    verb: str
    consent: Consent
    scope: Scope = Scope.ALL
    targets: tuple[str, ...] = ()
    matching: str | None = None
    confirmed: bool = False
    """Whether the command line contains the operator's confirmation."""

    @property
    def typed(self) -> str:
        """The text that the screen would require."""
        confirmed = self.action.confirms if self.confirmed else ""
        return f"{self.consent.yes or ''} {confirmed}".strip()

    @property
    def action(self) -> Action:
        """The command's row of the table."""
        return actions.BY_ID[self.verb]

    def aimed(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the targets by this engine's names. Raises ConfigurationError: none of its entities match."""
        if self.matching is not None:
            part = self.matching.casefold()
            found = tuple(one.path for one in snapshot.entities if part in one.path.casefold())
            if not found:
                raise ConfigurationError(
                    f"none of its {len(snapshot.entities)} entities has {self.matching!r} in its path"
                )
            return found
        return tuple(_resolve(snapshot, self.scope, target) for target in self.targets)


def _resolve(snapshot: Snapshot, scope: Scope, target: str) -> str:
    """Resolve a target; a queue may have its bare index or the screen's form."""
    bare = target.removeprefix("backlog/")
    if scope is Scope.QUEUE:
        return bare
    if scope is Scope.UNUSED:
        return next((one.path for one in snapshot.unused.queues if str(one.index) == bare), target)
    return target


# -- the verbs -------------------------------------------------------------------------------------------------------


def cleanup(
    *queues: Annotated[str, Parameter(help="Unused backlog queues, by path or index; none: they are listed.")],
    no_other_host_uses_it: Annotated[
        bool, Parameter(help="You know that no engine or application of another host or user uses them.")
    ] = False,
    consent: Consent = Consent(),
    engines: EngineSelection = EngineSelection(),
) -> int:
    """Delete unused backlog queues that are proven to be empty; dangerous. Without a name: list them.

    The engine knows which queues the engines of its user on this machine use. Others are unknown to it.
    """
    if not queues:
        return _list_unused(select_engines(engines))
    wish = CommandRequest(
        verb="clean-up", scope=Scope.UNUSED, targets=queues, consent=consent, confirmed=no_other_host_uses_it
    )
    return _order(wish, engines)


syphon = App(name="syphon", help="Pause and resume the syphon: all of it, one queue, one destination.")
read_only = App(name="read-only", help="Have an engine refuse orders, or take them again.")


@syphon.command
def pause(*, part: SyphonPart = SyphonPart(), why: Why = "", engines: EngineSelection = EngineSelection()) -> int:
    """Have the asked engine move no parked messages; engines elsewhere may still move them."""
    return _order(_of_syphon("pause-syphon", part, why), engines)


@syphon.command
def resume(*, part: SyphonPart = SyphonPart(), why: Why = "", engines: EngineSelection = EngineSelection()) -> int:
    """Move parked messages again."""
    return _order(_of_syphon("resume-syphon", part, why), engines)


@read_only.command
def on(*, why: Why = "", engines: EngineSelection = EngineSelection()) -> int:
    """Refuse every order that changes something."""
    return _order(CommandRequest(verb="read-only", consent=Consent(why=why)), engines)


@read_only.command
def off(*, consent: Consent = Consent(), engines: EngineSelection = EngineSelection()) -> int:
    """Take orders again; dangerous, and named by the pairing."""
    return _order(CommandRequest(verb="read-write", consent=consent), engines)


def down(*, engines: EngineSelection = EngineSelection()) -> int:
    """End the engine cleanly: sends in flight finish, locks are released, the last audit line is written."""
    return max(_end(places) for places in select_engines(engines))


def _entity_verb(action: Action) -> Verb:
    def verb(
        *entities: Entity,
        matching: Matching = None,
        consent: Consent = Consent(),
        engines: EngineSelection = EngineSelection(),
    ) -> int:
        if bool(entities) == (matching is not None):
            raise ConfigurationError("name the entities, or --matching TEXT for all that have it in their path")
        wish = CommandRequest(verb=action.id, scope=action.scope, targets=entities, matching=matching, consent=consent)
        return _order(wish, engines)

    return verb


def _queue_verb(action: Action) -> Verb:
    def verb(*queues: Queue, consent: Consent = Consent(), engines: EngineSelection = EngineSelection()) -> int:
        return _order(CommandRequest(verb=action.id, scope=action.scope, targets=queues, consent=consent), engines)

    return verb


def _engine_verb(action: Action) -> Verb:
    def verb(*, consent: Consent = Consent(), engines: EngineSelection = EngineSelection()) -> int:
        return _order(CommandRequest(verb=action.id, consent=consent), engines)

    def harmless_verb(*, why: Why = "", engines: EngineSelection = EngineSelection()) -> int:
        return _order(CommandRequest(verb=action.id, consent=Consent(why=why)), engines)

    return verb if action.dangerous else harmless_verb


_FACTORIES: Final = {Scope.ENTITY: _entity_verb, Scope.QUEUE: _queue_verb, Scope.UNUSED: _queue_verb}


def _make_verb(action: Action) -> Verb:
    """Return the verb of a row of the table that has none of its own here."""
    verb = _FACTORIES.get(action.scope, _engine_verb)(action)
    verb.__name__ = action.verb.replace("-", "_")
    reach = " It reaches the asked engine's own senders, and none elsewhere." if action.scope is Scope.ENTITY else ""
    danger = "; dangerous" if action.dangerous else ""
    verb.__doc__ = f"{action.help[0].upper()}{action.help[1:]}{danger}.{reach}"
    return verb


VERBS: Final[tuple[Verb, ...]] = (
    down,
    cleanup,
    *(_make_verb(action) for action in actions.ACTIONS if " " not in action.verb and action.verb not in OWN_VERBS),
)
GROUPS: Final = (syphon, read_only)


def _of_syphon(verb: str, part: SyphonPart, why: str) -> CommandRequest:
    said = Consent(why=why)
    if part.queue is not None and part.destination is not None:
        raise ConfigurationError("--queue and --destination are two orders: give them one after the other")
    if part.queue is not None:
        return CommandRequest(verb=verb, scope=Scope.QUEUE, targets=(part.queue,), consent=said)
    if part.destination is not None:
        return CommandRequest(verb=verb, scope=Scope.DESTINATION, targets=(part.destination,), consent=said)
    return CommandRequest(verb=verb, consent=said)


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
    names = ", ".join(_running_here()) or "none"
    closed = f"; {said}" if (said := explain_closed_services()) else ""
    raise EngineNotRunningError(
        f"no engine of {_selection_name(engines, chosen)} runs here: start one with paired up; "
        f"those that run: {names}{closed}"
    )


def _selection_name(engines: EngineSelection, chosen: tuple[EnginePaths, ...]) -> str:
    name = engines.engine if engines.engine is not None else chosen[0].name
    return "any pairing" if name == ALL else f"the pairing {name}"


def _running_here() -> list[str]:
    return [places.name for places in local_engines() if find_socket(places) is not None]


def _select(engines: EngineSelection) -> tuple[EnginePaths, ...]:
    """Select by name: this user's own before a service's. Without a name or a pairing.toml: the only running one."""
    if engines.engine == ALL:
        return local_engines()
    if engines.engine is not None:
        return tuple(places for places in local_engines() if places.name == engines.engine)[:1]
    try:
        return (engine_paths(load_config(find_config(engines.config)).name),)
    except ConfigurationMissingError as error:
        return (_only_one(error),)


def _only_one(missing: ConfigurationMissingError) -> EnginePaths:
    """Return the only running engine, for use without a pairing.toml."""
    here = [places for places in local_engines() if find_socket(places) is not None]
    if len(here) > 1:
        names = ", ".join(places.name for places in here)
        raise ConfigurationError(f"several engines run here: choose one by --engine ({names})") from missing
    if not here:
        closed = f"; {said}" if (said := explain_closed_services()) else ""
        raise ConfigurationMissingError(f"{missing}{closed}") from missing
    return here[0]


def require_socket(places: EnginePaths) -> Path:
    """Return the engine's socket. Raises EngineNotRunningError: it has ended meanwhile."""
    socket = find_socket(places)
    if socket is None:
        raise EngineNotRunningError(f"the engine of {places.name} has ended meanwhile")
    return socket


def _order(wish: CommandRequest, engines: EngineSelection) -> int:
    status = max(asyncio.run(_ask(places, wish)) for places in select_engines(engines))
    if wish.scope is Scope.ENTITY and status == 0:
        print_lines(["senders elsewhere are not affected; their state is unknown"])
    return status


async def _ask(places: EnginePaths, wish: CommandRequest) -> int:
    """Execute the request at one engine; print the result on standard output, or a failure on standard error."""
    try:
        socket = require_socket(places)
        snapshot = await first_snapshot(socket, watches=True)
        targets = wish.aimed(snapshot)
        fault = actions.fault(wish.action, snapshot, wish.scope, targets)
        if fault:
            raise ConfigurationError(fault)
        if wish.action.dangerous and not _is_named(wish, snapshot, targets):
            return _preview(wish, snapshot, targets)
        said = await _fire(socket, wish, targets)
    except (ControlError, ConfigurationError) as error:
        return _refused(places, str(error))
    print_lines([f"{snapshot.engine}: {said}"])
    return 0


async def _fire(socket: Path, wish: CommandRequest, targets: tuple[str, ...]) -> str:
    client = await ControlClient.connect(socket, watches=False)
    try:
        done = await client.order(
            wish.verb,
            targets=targets,
            scope=wish.scope,
            by=user_name(),
            why=wish.consent.why,
            typed=wish.typed,
        )
    finally:
        await client.close()
    return done.text


def _is_named(wish: CommandRequest, snapshot: Snapshot, targets: tuple[str, ...]) -> bool:
    return actions.typed_right(wish.typed, actions.to_fire(wish.action, snapshot, wish.scope, targets))


def _preview(wish: CommandRequest, snapshot: Snapshot, targets: tuple[str, ...]) -> int:
    """Print the preview of the screen's confirmation."""
    from paired_servicebus.ui.commands.action_table import ActionTarget
    from paired_servicebus.ui.commands.consequences import facts, title

    aim = ActionTarget(wish.scope, targets)
    asked = title(wish.verb, wish.action.label.capitalize(), snapshot, aim, snapshot.pairing)
    print_lines([asked, *(f"{fact.label:<13}{fact.text}" for fact in facts(wish.verb, snapshot, aim))])
    needed = actions.to_type(snapshot, wish.scope, targets)
    yes = wish.consent.yes
    given = "" if yes is None or actions.typed_right(yes, needed) else f", not {yes}"
    if wish.action.confirms and not wish.confirmed:
        needed += f" and --{wish.action.confirms.replace(' ', '-')}"
    return report_error(f"nothing was done: {wish.action.label} needs --yes {needed}{given}")


def _refused(places: EnginePaths, text: str) -> int:
    return report_error(f"{places.name}: {text}")


def _end(places: EnginePaths) -> int:
    stop = CommandRequest(verb="stop", consent=Consent(yes=places.name, why="paired down"))
    if places.is_service:
        return _end_service(places, stop)
    holder = running(places.lock)
    if holder is None:
        return _refused(places, "the engine has ended meanwhile")
    try:
        asyncio.run(_fire(Path(holder.socket), stop, ()))
    except ControlError as error:
        return _refused(places, str(error))
    if not wait_until_gone(places, DOWN_TIMEOUT):
        return _refused(
            places, f"the engine (pid {holder.pid}) has not ended within {DOWN_TIMEOUT:g} s; its log is {holder.log}"
        )
    print_lines([f"the engine of {places.name} has ended"])
    return 0


def _end_service(places: EnginePaths, stop: CommandRequest) -> int:
    """Wait for the end of a service's engine by its socket, because its lock is not readable here."""
    try:
        said = asyncio.run(_fire(places.socket, stop, ()))
    except ControlError as error:
        return _refused(places, str(error))
    print_lines([f"{places.name}: {said}; its service manager decides about a restart"])
    return 0


def _list_unused(engines: Iterable[EnginePaths]) -> int:
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
    counts = "counts not known" if queue.messages is None else f"{queue.messages} messages, {queue.dead_lettered} dead"
    parts = [
        f"  {queue.path}",
        counts,
        f"last active {_format_time(queue.last_active)}",
        f"made {_format_time(queue.created_at)}",
    ]
    return "  ".join([*parts, *((f"differs: {', '.join(queue.differences)}",) if queue.differences else ())])


def _format_time(at: float | None) -> str:
    return "not known" if at is None else day_and_clock(at)
