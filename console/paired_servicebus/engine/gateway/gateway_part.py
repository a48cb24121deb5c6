"""An engine's gateway, from its configuration to its end.

Port and keys are checked before the pairing opens, so that a mistake in them ends the start immediately. From then on
clients connect, and wait in the port. They are served once the pairing is adopted: standing orders hold for their first
send.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import fields
from types import TracebackType
from typing import Final, Self

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.gateway.gateway_sentences import with_gateway
from paired_servicebus.core.model.gateway_view import GatewayView
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.engine.gateway.gateway_listener import Gateway, bind_port
from paired_servicebus.engine.gateway.keys.keys_in_force import LOOK_SECONDS, KeysInForce
from paired_servicebus.engine.gateway.known_entities import KnownEntities
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.instance.task_supervisor import TaskSupervisor
from paired_servicebus.pairing.options import SendAvailabilityPairedNamespaceOptions
from paired_servicebus.pairing.paired_client import PairedServiceBusClient
from paired_servicebus.sections.gateway_options import GatewayOptions


class _RetriedPolicy(Policy):
    """A policy whose callers send again what was not accepted in time, as every SDK does behind a gateway."""

    @property
    def remarks(self) -> tuple[str, ...]:
        return ()


class GatewayPairingOptions(SendAvailabilityPairedNamespaceOptions):
    """The options of a pairing behind a gateway: a short send_timeout beside a long failover_interval is right."""

    def policy(self) -> Policy:
        policy = super().policy()
        return _RetriedPolicy(**{field.name: getattr(policy, field.name) for field in fields(policy)})


class NoGateway:
    """The part of an engine without a gateway."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing."""

    async def serve(self, paired: PairedServiceBusClient) -> None:
        """Do nothing."""

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot."""
        return snapshot

    async def close(self, grace: float) -> None:
        """Do nothing."""


class GatewayPart(NoGateway):
    """The gateway of one engine. An asynchronous context manager; entering it listens on the port.

    Args:
        options: as pairing.toml's [gateway] has them.
        places: the engine's files.
        primary: the host of the primary namespace.
        warn: called with a sentence for the operator.
    """

    def __init__(
        self, options: GatewayOptions, places: EnginePaths, *, primary: str, warn: Callable[[str], object]
    ) -> None:
        self._options = options
        self._warn = warn
        self._keys_file: Final = options.keys or places.gateway_keys
        self._keys: KeysInForce | None = None
        self._known = KnownEntities(places.gateway_entities, primary=primary, warn=warn)
        self._crew = TaskSupervisor()
        self._bound: socket.socket | None = None
        self._bound_at: float | None = None
        self.gateway: Gateway | None = None
        """None before `serve`."""

    async def __aenter__(self) -> Self:
        """Read the keys, or make them, and listen on the port. Raises ConfigurationError."""
        port, address = self._options.port, self._options.address
        try:
            self._keys = KeysInForce(self._keys_file, revoked=self._revoke, warn=self._warn)
        except OSError as error:
            text = f"the gateway's keys {self._keys_file} cannot be read or made: {error.strerror or error}"
            raise ConfigurationError(f"{text}; mend it, or name another file as keys in [gateway]") from error
        self._bound = bind_port(port, host=address, allow_other_hosts=True)  # the options were checked for it
        self._bound_at = time.time()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(0.0)

    async def serve(self, paired: PairedServiceBusClient) -> None:
        """Accept clients, whose sends go through `paired`."""
        assert self._bound is not None, "entered"
        assert self._keys is not None, "entered"
        await asyncio.to_thread(self._known.read)
        self.gateway = Gateway(paired, self._keys, known=self._known)
        bound, self._bound = self._bound, None
        await self.gateway.serve(bound)
        self._crew.start(self._follow_files(self._keys), name="the gateway's files")

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """Return the engine's snapshot with the gateway and its alarms."""
        if self.gateway is not None:
            view = self.gateway.view(snapshot.entities)
        else:
            view = GatewayView(address=self._options.address, port=self._options.port, since=self._bound_at)
        return with_gateway(snapshot, view)

    async def close(self, grace: float) -> None:
        """End it: sends under way have `grace` seconds, then connections close. A second call does nothing."""
        await self._crew.close()
        if self._bound is not None:
            self._bound.close()
            self._bound = None
        if self.gateway is not None:
            await self.gateway.close(grace)
            await asyncio.to_thread(self._known.write)

    def _revoke(self, names: frozenset[str]) -> None:
        if self.gateway is not None:
            self.gateway.revoke(names)

    async def _follow_files(self, keys: KeysInForce) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            keys.refresh()
            if self._known.is_changed:
                await asyncio.to_thread(self._known.write)


def open_gateway(
    options: GatewayOptions | None, places: EnginePaths, *, primary: str, warn: Callable[[str], object]
) -> NoGateway:
    """Return an engine's gateway, to be entered."""
    return NoGateway() if options is None else GatewayPart(options, places, primary=primary, warn=warn)
