"""The door for applications: `pair_namespaces`, with an engine around the pairing if `control` is given.

With `control` the application's own process is an engine. It has a journal and a control socket; consoles list and
command it; it ends with the pairing. It is named after the primary namespace. Further processes of one machine that
pair the same are NAME-2, NAME-3, …, and each finds its own journal again.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Unpack, overload

from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.errors import ConfigurationError, EngineRunningError
from paired_servicebus.core.model.namespace_info import first_label
from paired_servicebus.core.model.pairing_events import Event
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.model.verdict import Judge, judge
from paired_servicebus.engine.instance.engine_paths import EnginePaths, engine_paths
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.instance.lock import StateFolder
from paired_servicebus.engine.instance.task_supervisor import TaskSupervisor
from paired_servicebus.engine.readiness.readiness_check import LocalEvidence
from paired_servicebus.engine.service.engine_host import EngineHost, nobody
from paired_servicebus.engine.service.hook import Hook
from paired_servicebus.engine.service.metrics import SnapshotCollector
from paired_servicebus.engine.service.probes import ProbePort
from paired_servicebus.namespaces import Namespace
from paired_servicebus.pairing import PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions
from paired_servicebus.pairing import pair_namespaces as pair
from paired_servicebus.pairing.management.management_port import SecondaryAdmin
from paired_servicebus.pairing.opening import PairingOptions, check_arguments, host_of
from paired_servicebus.sections.fleet_options import Fleet
from paired_servicebus.settings import ListenAddress, SettingLocation, read_address, read_command

MAX_ENGINES_PER_NAME: Final = 100
"""Engines of one name on a machine."""
LOG_PLACE: Final = "the application's own"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")

log = logging.getLogger(__name__)

OnEvent = Callable[[Event], object]


@overload
def pair_namespaces(
    primary: Namespace,
    secondary: Namespace,
    /,
    *,
    admin: Callable[[], SecondaryAdmin] | None = None,
    control: bool | str = False,
    environment: str = "",
    read_only: bool = False,
    require_reason: bool = False,
    metrics: int | str | None = None,
    on_change: str = "",
    fleet: Fleet | None = None,
    on_event: OnEvent | None = None,
    judge: Judge = judge,
    **chosen: Unpack[PairingOptions],
) -> PairingOpener: ...
@overload
def pair_namespaces(
    primary_client: ServiceBusClient,
    options: SendAvailabilityPairedNamespaceOptions,
    *,
    control: bool | str = False,
    environment: str = "",
    read_only: bool = False,
    require_reason: bool = False,
    metrics: int | str | None = None,
    on_change: str = "",
    fleet: Fleet | None = None,
    on_event: OnEvent | None = None,
    judge: Judge = judge,
) -> PairingOpener: ...
def pair_namespaces(
    primary_client: ServiceBusClient | Namespace,
    options: SendAvailabilityPairedNamespaceOptions | Namespace,
    *,
    admin: Callable[[], SecondaryAdmin] | None = None,
    control: bool | str = False,
    environment: str = "",
    read_only: bool = False,
    require_reason: bool = False,
    metrics: int | str | None = None,
    on_change: str = "",
    fleet: Fleet | None = None,
    on_event: OnEvent | None = None,
    judge: Judge = judge,
    **chosen: Unpack[PairingOptions],
) -> PairingOpener:
    """Pair the primary with the secondary namespace. Await the result, or use it as an asynchronous context manager:

        async with pair_namespaces(primary, secondary, enable_syphon=True) as paired: ...

    Both namespaces are given as `Namespace`, then the clients are made here and closed with the pairing; or the
    primary as a ServiceBusClient and the secondary with the options. If pairing raises, the caller's clients stay open.

    Args:
        primary_client: the namespace that the application uses.
        options: the secondary namespace; its clients in `SendAvailabilityPairedNamespaceOptions`, or a `Namespace`
            with a Manage right (Send and Listen included).
        admin: with `Namespace`: makes the client that manages the secondary; default: Atom with its credential.
        control: run a journal and a control socket in this process, for consoles of this user on this machine; a
            text names the engine, else it is named after the primary namespace.
        environment, read_only, require_reason, metrics, on_change: with `control`, as in pairing.toml; a relative path
            in `on_change` starts from the working directory.
        fleet: with `control`: this engine's part in the fleet, so that consoles on other hosts see it.
        on_event: called with every journalled event, in order; must not block.
        judge: the verdict on failures, replaceable (SPEC.md section 5).
        chosen: with `Namespace`: the options of SPEC.md section 3 by name.

    Raises, when awaited:
        ConfigurationError: an option out of range or without its condition, an unusable client, or no place for the
            control socket.
        SameNamespaceError: both clients belong to one namespace.
        NamespaceUnreachableError, BacklogQueueError: see SPEC.md section 4.4.
        TypeError: an unknown option.
    """
    hosting = _Hosting(control, environment, read_only, require_reason, metrics, on_change, fleet, on_event, judge)
    return PairingOpener(_start(primary_client, options, admin, chosen, hosting))


class PairingOpener(Coroutine[Any, Any, PairedServiceBusClient]):
    """A pairing under construction: await it for the paired client, or enter it to close that client at the end.

    Once entered it has the paired client's names, too, as programs use that make the SDK's client in a plain function.
    """

    __slots__ = ("_opening", "_paired")

    def __init__(self, opening: Coroutine[Any, Any, PairedServiceBusClient]) -> None:
        self._opening = opening
        self._paired: PairedServiceBusClient | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"a pairing under construction has no attribute {name!r}")
            if self._paired is None:
                raise AttributeError(f"{name}: the pairing is not made yet; await it, or enter it with `async with`")
            return getattr(self._paired, name)

    def __await__(self) -> Generator[Any, Any, PairedServiceBusClient]:
        return self._opening.__await__()

    def send(self, value: Any, /) -> Any:
        """Resume the coroutine."""
        return self._opening.send(value)

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None, /) -> Any:
        """Raise an error in the coroutine."""
        return self._opening.throw(kind if value is None else value)

    def close(self) -> Any:
        """End the coroutine. Once entered, return the closing of the paired client, to be awaited."""
        return self._opening.close() if self._paired is None else self._paired.close()

    async def __aenter__(self) -> PairedServiceBusClient:
        self._paired = await self._opening
        return self._paired

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._paired is not None, "it was entered"
        await self._paired.close()


async def _start(
    primary: ServiceBusClient | Namespace,
    secondary: SendAvailabilityPairedNamespaceOptions | Namespace,
    admin: Callable[[], SecondaryAdmin] | None,
    chosen: PairingOptions,
    hosting: _Hosting,
) -> PairedServiceBusClient:
    """Pair by namespaces or by clients. Raises as `pair_namespaces`."""
    if isinstance(primary, Namespace) or isinstance(secondary, Namespace):
        return await _pair_by_name(primary, secondary, admin, chosen, hosting)
    if chosen or admin is not None:
        name = next(iter(chosen), "admin")
        raise TypeError(f"{name} goes with two Namespace objects: here it belongs into options")
    return await hosting.pair(primary, secondary)


async def _pair_by_name(
    primary: object,
    secondary: object,
    admin: Callable[[], SecondaryAdmin] | None,
    chosen: PairingOptions,
    hosting: _Hosting,
) -> PairedServiceBusClient:
    """Make the clients and pair them; close them if pairing fails."""
    for name in chosen.keys() - PairingOptions.__annotations__.keys():
        raise TypeError(f"pair_namespaces() has no option {name}; it has {', '.join(PairingOptions.__annotations__)}")
    primary, secondary = _checked("primary", primary), _checked("secondary", secondary)
    async with AsyncExitStack() as stack:
        try:
            clients = primary.client(), secondary.client(), primary.receiving_client()
            manager = (admin or secondary.admin)()
        except (ValueError, OSError) as error:  # OSError: a file of certificates that cannot be read
            raise ConfigurationError(f"the SDK does not accept these settings of a namespace: {error}") from error
        for one in (*clients, manager):
            stack.push_async_callback(one.close)
        options = SendAvailabilityPairedNamespaceOptions(secondary_client=clients[1], secondary_admin=manager, **chosen)
        paired = await hosting.pair(clients[0], options, receiving=clients[2])
        stack.pop_all()
        return paired


def _checked(name: str, given: object) -> Namespace:
    """Return the namespace. Raises ConfigurationError."""
    if isinstance(given, Namespace):
        return given
    kind = "text" if isinstance(given, str) else type(given).__name__  # a text may be a secret: it is not repeated
    raise ConfigurationError(
        f"{name} is a {kind}; it has to be a Namespace, such as Namespace.from_connection_string(...): the pairing "
        "makes its own clients"
    )


@dataclass(frozen=True, slots=True)
class _Hosting:
    """The arguments of `pair_namespaces` that are no options of the pairing."""

    control: bool | str
    environment: str
    read_only: bool
    require_reason: bool
    metrics: int | str | None
    on_change: str
    fleet: Fleet | None
    on_event: OnEvent | None
    judge: Judge

    async def pair(
        self,
        client: ServiceBusClient,
        options: SendAvailabilityPairedNamespaceOptions,
        *,
        receiving: ServiceBusClient | None = None,
    ) -> PairedServiceBusClient:
        """Pair two clients, inside an engine if `control` is set. Raises as `pair_namespaces`.

        receiving: the client of the application's receivers; None: `client`.
        """
        extras = _Extras.of(self.metrics, self.on_change, self.fleet)
        if not self.control:
            extras.refuse()
            if options.record_received and self.on_event is None:
                raise ConfigurationError("record_received needs a journal, which an engine has: pass control=True")
            return await pair(client, options, receiving=receiving, on_event=self.on_event, judge=self.judge)
        check_arguments(client, options)
        options.policy()  # before anything is made
        wanted = self.control if isinstance(self.control, str) else options.primary_name or first_label(host_of(client))
        places, folder = await asyncio.to_thread(
            _acquire_name, _NOT_IN_NAMES.sub("-", wanted).strip("-.") or "application"
        )
        identity = EngineIdentity.of(
            places.name,
            environment=self.environment,
            read_only=self.read_only,
            require_reason=self.require_reason,
            own_process=False,
        )
        engine = _Engine(identity, places, folder, options, extras)
        return await engine.around(
            lambda record: pair(client, options, receiving=receiving, on_event=record, judge=self.judge), self.on_event
        )


@dataclass(frozen=True, slots=True)
class _Extras:
    """The metrics port, the `on_change` command and the fleet of an engine."""

    metrics: ListenAddress | None
    command: tuple[str, ...]
    fleet: Fleet | None

    @classmethod
    def of(cls, metrics: int | str | None, on_change: str, fleet: Fleet | None) -> _Extras:
        """Read the arguments. Raises ConfigurationError."""
        address = read_address(_Argument("metrics"), metrics) if metrics is not None else None
        if fleet is not None and not isinstance(fleet, Fleet):
            raise ConfigurationError(f"fleet is a {type(fleet).__name__}; it has to be a Fleet, such as Fleet()")
        return cls(address, read_command(_Argument("on_change"), on_change) if on_change else (), fleet)

    def refuse(self) -> None:
        """Raise ConfigurationError if one is set, because there is no engine."""
        given = {"metrics": self.metrics is not None, "on_change": bool(self.command), "fleet": self.fleet is not None}
        for name in (name for name, is_given in given.items() if is_given):
            raise ConfigurationError(f"{name} needs an engine: pass control=True")


class _Argument(SettingLocation):
    """An argument of `pair_namespaces`, which is read as a setting of pairing.toml."""

    def __init__(self, key: str) -> None:
        super().__init__(Path(), "", key, {})

    def error(self, text: str) -> ConfigurationError:
        """Return an error that names the argument."""
        return ConfigurationError(f"{self.key} {text}")


class _Engine:
    """The host of one pairing, with its lock."""

    def __init__(
        self,
        identity: EngineIdentity,
        places: EnginePaths,
        folder: StateFolder,
        options: SendAvailabilityPairedNamespaceOptions,
        extras: _Extras,
    ) -> None:
        self._folder = folder
        self._crew = TaskSupervisor()
        self._ended = False
        self._hook = Hook(extras.command, folder=Path.cwd(), identity=identity) if extras.command else None
        self._host = EngineHost(
            identity,
            spool=places.spool,
            socket=places.socket,
            policy=options.policy(),
            surroundings=LocalEvidence(None, places).add,
            fleet=extras.fleet,
            found=lambda: self._probes.troubles,
            note=self._hook.note if self._hook is not None else nobody,
            prepare_spool=folder.open_again,
            prepare_socket=places.prepare_socket,
        )
        self._probes = ProbePort(
            extras.metrics,
            latest=self._host.latest,
            scraped=self._host.scraped,
            warn=lambda text: self._host.warn("metrics", text),
        )

    async def around(
        self, make: Callable[[OnEvent], Awaitable[PairedServiceBusClient]], on_event: OnEvent | None
    ) -> PairedServiceBusClient:
        """Make the pairing and host it until it is closed."""

        def record(event: Event) -> None:
            self._host.record(event)
            if on_event is not None:
                on_event(event)

        try:
            await self._host.__aenter__()
        except BaseException:
            self._folder.close()
            raise
        try:
            paired = await make(record)
        except BaseException:
            await self._end()
            raise
        paired.when_closed(self._end)
        await self._host.adopt(paired)
        paired.figures = SnapshotCollector(self._latest)
        if self._hook is not None:
            self._crew.start(self._hook.run(lambda text: self._host.warn("on_change", text)), name="on_change")
        self._crew.start(self._probes.run(), name="the probes")
        return paired

    def _latest(self) -> Snapshot | None:
        return None if self._ended else self._host.scraped()

    async def _end(self) -> None:
        self._ended = True
        await self._crew.close()
        self._host.stop("the application closed the pairing")
        await self._host.__aexit__(None, None, None)
        self._folder.close()


def _acquire_name(name: str) -> tuple[EnginePaths, StateFolder]:
    """Acquire the lock of the first name that is free; a folder that cannot be used counts as free."""
    for number in range(1, MAX_ENGINES_PER_NAME + 1):
        places = engine_paths(name if number == 1 else f"{name}-{number}")
        folder = StateFolder(places, log=LOG_PLACE)
        try:
            folder.open()
        except EngineRunningError:
            continue
        except OSError as error:
            log.warning("%s cannot be used: %s; sends do not need it", places.state, error.strerror or error)
        return places, folder
    raise EngineRunningError(
        f"{MAX_ENGINES_PER_NAME} engines called {name} run on this machine already: name this one by control="
    )
