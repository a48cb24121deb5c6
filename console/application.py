"""Pairing for applications: `pair_namespaces` as `console` exports it, with an engine around it where that is wanted.

With `control` the application's own process is an engine: it has a journal and a control socket, consoles list it and
command it, and it ends with the pairing. It is called after the primary namespace; where several processes of one
machine pair the same, the next ones are NAME-2, NAME-3, …, and each finds its own journal again.

Without `control` nothing here costs anything: it is the pairing's own function.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from azure.servicebus.aio import ServiceBusClient

from console.core.errors import EngineRunningError, EngineStartError
from console.core.events import Event
from console.core.readiness import Evidence
from console.core.snapshot import SyphonStatus
from console.core.verdict import Judge, judge
from console.engine.host import EngineHost
from console.engine.identity import EngineIdentity
from console.engine.lock import Holder, leave, take
from console.engine.places import Places, places_of
from console.engine.surroundings import syphons_here
from console.pairing import PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions
from console.pairing import pair_namespaces as pair
from console.pairing.client import first_label

MOST: Final = 100
"""Engines of one name on a machine."""
LOG: Final = "the application's own"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")

OnEvent = Callable[[Event], object]


async def pair_namespaces(
    primary_client: ServiceBusClient,
    options: SendAvailabilityPairedNamespaceOptions,
    *,
    control: bool | str = False,
    environment: str = "",
    read_only: bool = False,
    require_reason: bool = False,
    on_event: OnEvent | None = None,
    judge: Judge = judge,
) -> PairedServiceBusClient:
    """Pair the primary with the secondary namespace; nothing can be sent before this has returned.

    Args:
        primary_client: the namespace the application talks to.
        options: the secondary namespace's clients, and how to behave.
        control: have a journal and a control socket in this process, for consoles of this user on this machine; a
            text names the engine, else it is named after the primary namespace.
        environment, read_only, require_reason: with `control`, as in pairing.toml.
        on_event: told every journalled event, in order, at once; must not block.
        judge: the verdict on failures, replaceable (SPEC.md section 5).

    Raises:
        ConfigurationError: an option out of range, or no place for the control socket.
        SameNamespaceError: both clients belong to one namespace.
        NamespaceUnreachableError, BacklogQueueError: as SPEC.md section 4.4 says.
        EngineStartError: journal or control socket cannot be made.
    """
    if not control:
        return await pair(primary_client, options, on_event=on_event, judge=judge)
    options.policy()  # before anything is made
    wanted = control if isinstance(control, str) else options.primary_name or _host(primary_client)
    places, fd = await asyncio.to_thread(_taken, _NOT_IN_NAMES.sub("-", wanted).strip("-.") or "application")
    identity = EngineIdentity.of(
        places.name,
        environment=environment,
        read_only=read_only,
        require_reason=require_reason,
        own_process=False,
    )
    engine = _Engine(identity, places, fd, options)
    return await engine.around(lambda record: pair(primary_client, options, on_event=record, judge=judge), on_event)


class _Engine:
    """The host of one pairing, and the lock that says where it is."""

    def __init__(
        self, identity: EngineIdentity, places: Places, fd: int, options: SendAvailabilityPairedNamespaceOptions
    ) -> None:
        self._places = places
        self._fd = fd
        self._host = EngineHost(
            identity,
            spool=places.spool,
            socket=places.socket,
            policy=options.policy(),
            surroundings=self._neighbours,
        )

    async def around(
        self, make: Callable[[OnEvent], Awaitable[PairedServiceBusClient]], on_event: OnEvent | None
    ) -> PairedServiceBusClient:
        """The pairing, hosted until it is closed."""

        def record(event: Event) -> None:
            self._host.record(event)
            if on_event is not None:
                on_event(event)

        try:
            await self._host.__aenter__()
        except OSError as error:
            self._left()
            raise EngineStartError(
                f"the journal in {self._places.spool} cannot be made: {error.strerror or error}"
            ) from error
        try:
            paired = await make(record)
        except BaseException:
            await self._end()
            raise
        paired.when_closed(self._end)
        try:
            await self._host.adopt(paired)
        except OSError as error:
            await paired.close()
            raise EngineStartError(f"the control socket {self._places.socket} cannot be made: {error}") from error
        return paired

    async def _end(self) -> None:
        self._host.stop("the application closed the pairing")
        await self._host.__aexit__(None, None, None)
        self._left()

    def _left(self) -> None:
        leave(self._fd)
        os.close(self._fd)

    async def _neighbours(self, evidence: Evidence) -> Evidence:
        if evidence.syphon not in (None, SyphonStatus.OFF):
            return evidence
        syphons = await syphons_here(self._places, primary=evidence.primary, secondary=evidence.secondary)
        return replace(evidence, syphons_elsewhere=syphons)


def _taken(name: str) -> tuple[Places, int]:
    """The first name that no running engine has, and its lock."""
    for number in range(1, MOST + 1):
        places = places_of(name if number == 1 else f"{name}-{number}")
        places.prepare()
        try:
            return places, take(places.lock, Holder(pid=os.getpid(), socket=str(places.socket), log=LOG))
        except EngineRunningError:
            continue
        except OSError as error:
            raise EngineStartError(f"the lock {places.lock} cannot be made: {error.strerror or error}") from error
    raise EngineRunningError(f"{MOST} engines called {name} run on this machine already: name this one by control=")


def _host(client: ServiceBusClient) -> str:
    return first_label(client.fully_qualified_namespace.rstrip("/"))
