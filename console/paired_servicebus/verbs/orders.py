"""The verbs that act: each is an order of paired_servicebus.core.actions to one engine of this machine, or to several.

A dangerous one needs `--yes NAME` in place of typing the name on the screen; without it nothing is done, and what
would be is said. Whether it may be done is the engine's guard's to say, here as everywhere.

Exit status: 0 done, 2 if an engine refused it, failed at it, or was not asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from cyclopts import App, Parameter

from paired_servicebus.config import find_config, load_config
from paired_servicebus.core import actions
from paired_servicebus.core.actions import Action, Scope
from paired_servicebus.core.errors import (
    ConfigurationError,
    ConfigurationMissingError,
    ControlError,
    EngineNotRunningError,
)
from paired_servicebus.core.moments import clock, day_and_clock
from paired_servicebus.core.snapshot import Snapshot, UnusedQueue
from paired_servicebus.engine.client import ControlClient, user_name
from paired_servicebus.engine.here import closed_here, engines_here, first_snapshot, socket_of
from paired_servicebus.engine.launch import wait_until_gone
from paired_servicebus.engine.lock import running
from paired_servicebus.engine.places import Places, places_of
from paired_servicebus.printing import complain, print_lines
from paired_servicebus.verbs.parameters import Consent, Engines, Why

ALL: Final = "all"
DOWN_TIMEOUT: Final = 90.0
"""Seconds that an engine has to end in order: sends in hand, pumps, links."""

Entity = Annotated[str, Parameter(help="Entities, by path.")]
Matching = Annotated[str | None, Parameter(help="All entities whose path has this in it, instead of names.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Which part of the syphon; neither: all of it."""

    queue: str | None = None
    """One backlog queue, by its index."""
    destination: str | None = None
    """One destination, by its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the command line asks for, before an engine's snapshot says what it comes to there."""

    verb: str
    consent: Consent
    scope: Scope = Scope.ALL
    targets: tuple[str, ...] = ()
    matching: str | None = None
    confirmed: bool = False
    """Whether the command line states what the act has a person confirm."""

    @property
    def typed(self) -> str:
        """What would be typed on the screen."""
        confirmed = self.action.confirms if self.confirmed else ""
        return f"{self.consent.yes or ''} {confirmed}".strip()

    @property
    def action(self) -> Action:
        """The row of the table."""
        return actions.BY_ID[self.verb]

    def aimed(self, snapshot: Snapshot) -> tuple[str, ...]:
        """The targets as this engine names them. Raises ConfigurationError: none of its entities match."""
        if self.matching is not None:
            part = self.matching.casefold()
            found = tuple(one.path for one in snapshot.entities if part in one.path.casefold())
            if not found:
                raise ConfigurationError(
                    f"none of its {len(snapshot.entities)} entities has {self.matching!r} in its path"
                )
            return found
        return tuple(_named(snapshot, self.scope, target) for target in self.targets)


def _named(snapshot: Snapshot, scope: Scope, target: str) -> str:
    """A queue may be called by its bare index, or as screens write it."""
    bare = target.removeprefix("backlog/")
    if scope is Scope.QUEUE:
        return bare
    if scope is Scope.UNUSED:
        return next((one.path for one in snapshot.unused.queues if str(one.index) == bare), target)
    return target


# -- the verbs -------------------------------------------------------------------------------------------------------


def failover(
    *entities: Entity, matching: Matching = None, consent: Consent = Consent(), engines: Engines = Engines()
) -> int:
    """Send to the backlog until released; dangerous. It diverts the asked engine's own senders, and none elsewhere."""
    return _order(_of_entities("force", entities, matching, consent), engines)


def pin(
    *entities: Entity, matching: Matching = None, consent: Consent = Consent(), engines: Engines = Engines()
) -> int:
    """Send to the primary whatever fails; dangerous. It pins the asked engine's own senders, and none elsewhere."""
    return _order(_of_entities("pin", entities, matching, consent), engines)


def release(
    *entities: Entity, matching: Matching = None, consent: Consent = Consent(), engines: Engines = Engines()
) -> int:
    """Give entities back to the rules; dangerous. It reaches the asked engine's own senders, and none elsewhere."""
    return _order(_of_entities("release", entities, matching, consent), engines)


def cleanup(
    *queues: Annotated[str, Parameter(help="Unused backlog queues, by path or index; none: they are listed.")],
    no_other_host_uses_it: Annotated[
        bool, Parameter(help="You know that no engine or application of another host or user uses them.")
    ] = False,
    consent: Consent = Consent(),
    engines: Engines = Engines(),
) -> int:
    """Delete unused backlog queues that are proven to be empty; dangerous. Without a name: list them.

    The engine knows which queues the engines of its user on this machine use. Others are unknown to it.
    """
    if not queues:
        return _list_unused(asked_for(engines))
    wish = Wish(verb="clean-up", scope=Scope.UNUSED, targets=queues, consent=consent, confirmed=no_other_host_uses_it)
    return _order(wish, engines)


def redrive(
    *queues: Annotated[str, Parameter(help="Backlog queues, by index.")],
    consent: Consent = Consent(),
    engines: Engines = Engines(),
) -> int:
    """Put the dead letters of backlog queues back to work; dangerous."""
    return _order(Wish(verb="redrive", scope=Scope.QUEUE, targets=queues, consent=consent), engines)


def move_stranded(
    *queues: Annotated[str, Parameter(help="Unused backlog queues, by path or index.")],
    consent: Consent = Consent(),
    engines: Engines = Engines(),
) -> int:
    """Move what lies in unused backlog queues to where it belongs; dangerous."""
    return _order(Wish(verb="move-stranded", scope=Scope.UNUSED, targets=queues, consent=consent), engines)


def end_drain(*, why: Why = "", engines: Engines = Engines()) -> int:
    """Have the drain of a pairing settle what it has in hand, and end."""
    return _order(Wish(verb="end-drain", consent=Consent(why=why)), engines)


syphon = App(name="syphon", help="Pause and resume the syphon: all of it, one queue, one destination.")
read_only = App(name="read-only", help="Have an engine refuse orders, or take them again.")


@syphon.command
def pause(*, part: Part = Part(), why: Why = "", engines: Engines = Engines()) -> int:
    """Have the asked engine move no parked messages; engines elsewhere may still move them."""
    return _order(_of_syphon("pause-syphon", part, why), engines)


@syphon.command
def resume(*, part: Part = Part(), why: Why = "", engines: Engines = Engines()) -> int:
    """Move parked messages again."""
    return _order(_of_syphon("resume-syphon", part, why), engines)


@read_only.command
def on(*, why: Why = "", engines: Engines = Engines()) -> int:
    """Refuse every order that changes something."""
    return _order(Wish(verb="read-only", consent=Consent(why=why)), engines)


@read_only.command
def off(*, consent: Consent = Consent(), engines: Engines = Engines()) -> int:
    """Take orders again; dangerous, and named by the pairing."""
    return _order(Wish(verb="read-write", consent=consent), engines)


def down(*, engines: Engines = Engines()) -> int:
    """End the engine in order: sends in hand finish, locks are released, the last audit line is written."""
    return max(_end(places) for places in asked_for(engines))


VERBS: Final = (down, failover, pin, release, cleanup, redrive, move_stranded, end_drain)
GROUPS: Final = (syphon, read_only)


def _of_entities(verb: str, entities: tuple[str, ...], matching: str | None, consent: Consent) -> Wish:
    if bool(entities) == (matching is not None):
        raise ConfigurationError("name the entities, or --matching TEXT for all that have it in their path")
    return Wish(verb=verb, scope=Scope.ENTITY, targets=entities, matching=matching, consent=consent)


def _of_syphon(verb: str, part: Part, why: str) -> Wish:
    said = Consent(why=why)
    if part.queue is not None and part.destination is not None:
        raise ConfigurationError("--queue and --destination are two orders: give them one after the other")
    if part.queue is not None:
        return Wish(verb=verb, scope=Scope.QUEUE, targets=(part.queue,), consent=said)
    if part.destination is not None:
        return Wish(verb=verb, scope=Scope.DESTINATION, targets=(part.destination,), consent=said)
    return Wish(verb=verb, consent=said)


# -- the engines -----------------------------------------------------------------------------------------------------


def asked_for(engines: Engines) -> tuple[Places, ...]:
    """Those that are asked for and run.

    Raises:
        EngineNotRunningError: none does.
    """
    chosen = _chosen(engines)
    running = tuple(places for places in chosen if socket_of(places) is not None)
    if running:
        return running
    names = ", ".join(_running_here()) or "none"
    closed = f"; {said}" if (said := closed_here()) else ""
    raise EngineNotRunningError(
        f"no engine of {_wanted(engines, chosen)} runs here: start one with paired up; those that run: {names}{closed}"
    )


def _wanted(engines: Engines, chosen: tuple[Places, ...]) -> str:
    name = engines.engine if engines.engine is not None else chosen[0].name
    return "any pairing" if name == ALL else f"the pairing {name}"


def _running_here() -> list[str]:
    return [places.name for places in engines_here() if socket_of(places) is not None]


def _chosen(engines: Engines) -> tuple[Places, ...]:
    """By name: this user's own before a service's. Without a name or a pairing.toml: the only one that runs here."""
    if engines.engine == ALL:
        return engines_here()
    if engines.engine is not None:
        return tuple(places for places in engines_here() if places.name == engines.engine)[:1]
    try:
        return (places_of(load_config(find_config(engines.config)).name),)
    except ConfigurationMissingError as error:
        return (_only_one(error),)


def _only_one(missing: ConfigurationMissingError) -> Places:
    """The engine that is meant where no pairing.toml says so."""
    here = [places for places in engines_here() if socket_of(places) is not None]
    if len(here) > 1:
        names = ", ".join(places.name for places in here)
        raise ConfigurationError(f"several engines run here: choose one by --engine ({names})") from missing
    if not here:
        closed = f"; {said}" if (said := closed_here()) else ""
        raise ConfigurationMissingError(f"{missing}{closed}") from missing
    return here[0]


def listening(places: Places) -> Path:
    """Where the engine there listens. Raises EngineNotRunningError: it has ended meanwhile."""
    socket = socket_of(places)
    if socket is None:
        raise EngineNotRunningError(f"the engine of {places.name} has ended meanwhile")
    return socket


def _order(wish: Wish, engines: Engines) -> int:
    status = max(asyncio.run(_ask(places, wish)) for places in asked_for(engines))
    if wish.scope is Scope.ENTITY and status == 0:
        print_lines(["senders elsewhere are not affected; their state is unknown"])
    return status


async def _ask(places: Places, wish: Wish) -> int:
    """One engine's answer, on standard output if it is done and on standard error if not."""
    try:
        socket = listening(places)
        snapshot = await first_snapshot(socket, watches=True)
        targets = wish.aimed(snapshot)
        fault = actions.fault(wish.action, snapshot, wish.scope, targets)
        if fault:
            raise ConfigurationError(fault)
        if wish.action.dangerous and not _is_named(wish, snapshot, targets):
            return _would(wish, snapshot, targets)
        said = await _fire(socket, wish, targets)
    except (ControlError, ConfigurationError) as error:
        return _refused(places, str(error))
    print_lines([f"{snapshot.engine}: {said}"])
    return 0


async def _fire(socket: Path, wish: Wish, targets: tuple[str, ...]) -> str:
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


def _is_named(wish: Wish, snapshot: Snapshot, targets: tuple[str, ...]) -> bool:
    return actions.typed_right(wish.typed, actions.to_fire(wish.action, snapshot, wish.scope, targets))


def _would(wish: Wish, snapshot: Snapshot, targets: tuple[str, ...]) -> int:
    """What firing would mean: the preview of the screen's question."""
    from paired_servicebus.ui.actions import Aim
    from paired_servicebus.ui.consequences import facts, title

    aim = Aim(wish.scope, targets)
    asked = title(wish.verb, wish.action.label.capitalize(), snapshot, aim, snapshot.pairing)
    print_lines([asked, *(f"{fact.label:<13}{fact.text}" for fact in facts(wish.verb, snapshot, aim))])
    needed = actions.to_type(snapshot, wish.scope, targets)
    yes = wish.consent.yes
    given = "" if yes is None or actions.typed_right(yes, needed) else f", not {yes}"
    if wish.action.confirms and not wish.confirmed:
        needed += f" and --{wish.action.confirms.replace(' ', '-')}"
    return complain(f"nothing was done: {wish.action.label} needs --yes {needed}{given}")


def _refused(places: Places, text: str) -> int:
    return complain(f"{places.name}: {text}")


def _end(places: Places) -> int:
    stop = Wish(verb="stop", consent=Consent(yes=places.name, why="paired down"))
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


def _end_service(places: Places, stop: Wish) -> int:
    """Its lock is not ours to read, so that its socket has to tell."""
    try:
        said = asyncio.run(_fire(places.socket, stop, ()))
    except ControlError as error:
        return _refused(places, str(error))
    print_lines([f"{places.name}: {said}; its service says what comes after"])
    return 0


def _list_unused(engines: Iterable[Places]) -> int:
    status = 0
    for places in engines:
        try:
            snapshot = asyncio.run(first_snapshot(listening(places), watches=True))
        except ControlError as error:
            status = _refused(places, str(error))
        else:
            print_lines(_listed(snapshot))
    return status


def _listed(snapshot: Snapshot) -> list[str]:
    unused = snapshot.unused
    if unused.read_at is None:
        return [f"{snapshot.engine}: unused backlog queues are not known: {unused.trouble or 'not listed yet'}"]
    stale = f"; since then: {unused.trouble}" if unused.trouble else ""
    count = len(unused.queues) or "none"
    head = f"{snapshot.engine}: unused backlog queues: {count} (read {clock(unused.read_at)} UTC{stale})"
    return [head, *(_described(queue) for queue in unused.queues)]


def _described(queue: UnusedQueue) -> str:
    counts = "counts not known" if queue.messages is None else f"{queue.messages} messages, {queue.dead_lettered} dead"
    parts = [f"  {queue.path}", counts, f"last active {_when(queue.last_active)}", f"made {_when(queue.created_at)}"]
    return "  ".join([*parts, *((f"differs: {', '.join(queue.differences)}",) if queue.differences else ())])


def _when(at: float | None) -> str:
    return "not known" if at is None else day_and_clock(at)
