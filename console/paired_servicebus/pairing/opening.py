"""The pairing of two namespaces: all checks before a paired client exists (SPEC.md section 4).

The clients stay the caller's until pairing has succeeded. A failure closes the links opened over them, and leaves them
usable.

Errors name the argument and its expected value. A text in place of a client may be a connection string, so no error
repeats it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from weakref import WeakSet

from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.errors import (
    BacklogQueueError,
    ConfigurationError,
    NamespaceUnreachableError,
    PairingError,
    SameNamespaceError,
)
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.namespace_info import first_label
from paired_servicebus.core.model.pairing_events import Event
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import Judge, judge
from paired_servicebus.pairing.management import backlog_queues
from paired_servicebus.pairing.management.atom_admin import management_of
from paired_servicebus.pairing.management.backlog_queues import START_SECONDS, DegradedStart
from paired_servicebus.pairing.management.management_port import Management
from paired_servicebus.pairing.management.primary_name import alias_remark, host_of, name_of, reported_name
from paired_servicebus.pairing.options import SendAvailabilityPairedNamespaceOptions
from paired_servicebus.pairing.paired_client import PairedServiceBusClient
from paired_servicebus.pairing.runtime.deadlines import CLOSING, TaskOwner, end_all
from paired_servicebus.pairing.runtime.event_log import register_client
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.pairing_links import Standby
from paired_servicebus.pairing.sending.sender_link import OpenLimiter

FIRST_LINK_SECONDS: Final = 4.0
"""Seconds that pairing waits for the first link to a backlog queue; a slow link does not fail it."""

log = logging.getLogger(__name__)


async def pair_namespaces(
    primary_client: ServiceBusClient,
    options: SendAvailabilityPairedNamespaceOptions,
    *,
    receiving: ServiceBusClient | None = None,
    on_event: Callable[[Event], object] | None = None,
    judge: Judge = judge,
    must_start: bool = False,
) -> PairedServiceBusClient:
    """Pair the primary with the secondary namespace; nothing can be sent before this has returned.

    If it raises, the clients are still the caller's, and usable.

    Args:
        primary_client: the application's namespace.
        options: the secondary namespace's clients, and the policy.
        receiving: another client of the primary, for the application's receivers, with the retries they need; closed
            with the pairing. None: `primary_client`.
        on_event: called with every journalled event, in order and synchronously; must not block.
        judge: the verdict on failures, replaceable (SPEC.md section 5).
        must_start: pair whatever the secondary answers, as an engine does; what is missing is an alarm.

    Raises:
        ConfigurationError: an option out of range, or a client that cannot be paired.
        SameNamespaceError: both clients belong to one namespace.
        NamespaceUnreachableError: no answer of the secondary for 2 min; or, within seconds, an unusable credential,
            host or certificate.
        BacklogQueueError: no backlog queue exists or could be created.
    """
    check_arguments(primary_client, options)
    policy = options.policy()
    hosts = host_of(primary_client), host_of(options.secondary_client)
    if hosts[0].casefold() == hosts[1].casefold():
        raise SameNamespaceError(
            f"{hosts[0]} would be paired with itself: the secondary has to be another namespace, best in another region"
        )
    clients = {
        "primary_client": primary_client,
        "secondary_client": options.secondary_client,
        "secondary_admin": options.secondary_admin,
    }
    with claim_clients(clients):
        opening = _Opening(primary_client, receiving or primary_client, options, policy, hosts, must_start)
        paired = await opening.pair(on_event, judge)

    async def free() -> None:
        release(clients)

    paired.when_closed(free)
    return paired


@dataclass(frozen=True, slots=True)
class _Opening:
    """One pairing in preparation. hosts: the primary's and the secondary's."""

    primary: ServiceBusClient
    receiving: ServiceBusClient
    options: SendAvailabilityPairedNamespaceOptions
    policy: Policy
    hosts: tuple[str, str]
    must_start: bool

    async def pair(self, on_event: Callable[[Event], object] | None, judge: Judge) -> PairedServiceBusClient:
        """Return the paired client, unless each link to a backlog queue is refused permanently."""
        admin = management_of(self.options.secondary_admin)
        name = await self._name()
        listed, info = await asyncio.gather(
            self._find(admin, name), backlog_queues.told(admin), return_exceptions=True
        )  # no failure of one leaves the other running
        if isinstance(listed, BaseException):
            raise listed
        if isinstance(info, BaseException):
            raise info
        found, missing = listed
        register_client(self.options.secondary_client)
        info = info if info.name else replace(info, name=first_label(self.hosts[1]))
        tasks = TaskOwner()
        await tasks.open()
        steering, gate = (
            PairingRuntime(PairingMachine(self.policy, queues=found.paths), tasks, judge, on_event),
            OpenLimiter(),
        )
        standby = Standby(steering, self.options.secondary_client, found.paths, gate, assumed=info.message_limit)
        degraded = None
        if missing is not None:
            degraded = DegradedStart(steering, admin, primary=name, host=self.hosts[1], reason=str(missing))
            degraded.take_out()
        backlog_queues.apply_hazards(steering, found)
        await self._prove(standby, tasks, wait=degraded is None and not self.must_start)
        paired = PairedServiceBusClient(
            self.primary,
            self.options,
            steering,
            admin,
            found,
            receiving=self.receiving,
            primary=name,
            secondary=info,
            gate=gate,
            standby=standby,
            degraded=degraded,
        )
        for text in self.policy.remarks:
            steering.warn("options", text)
        others = () if missing is not None else await self._others(admin, name)
        for text in (*found.warnings, *others):
            steering.warn("backlog queues", text)
        return paired

    async def _name(self) -> str:
        configured, host = self.options.primary_name, self.hosts[0]
        reported = "" if configured else await reported_name(self.primary)
        remark = alias_remark(host, reported)
        if remark:
            log.info("%s", remark)
        return name_of(host, configured=configured, reported=reported)

    async def _find(self, admin: Management, name: str) -> tuple[backlog_queues.BacklogQueues, PairingError | None]:
        """Return the backlog queues; for a degraded start the expected ones, and the failure to find them."""
        count, host = self.policy.backlog_queue_count, self.hosts[1]
        if not (self.policy.start_degraded or self.must_start):
            try:
                return await backlog_queues.ensure(admin, name, count, host=host), None
            except NamespaceUnreachableError as error:
                if not error.is_outage:
                    raise
                text = f"{error}; start_degraded=True pairs without waiting for it"
                raise NamespaceUnreachableError(text, is_outage=True) from error
        try:
            return await backlog_queues.ensure(admin, name, count, patience=START_SECONDS, host=host), None
        except (NamespaceUnreachableError, BacklogQueueError) as error:
            if isinstance(error, NamespaceUnreachableError) and not (error.is_outage or self.must_start):
                raise
            return backlog_queues.BacklogQueues(
                {index: backlog_queues.queue_path(name, index) for index in range(count)}, ()
            ), error

    async def _prove(self, standby: Standby, tasks: TaskOwner, *, wait: bool) -> None:
        """Raise NamespaceUnreachableError if every link to a backlog queue is refused permanently."""
        opening = tasks.start(standby.run(), name="the links to the backlog queues")
        if not wait:
            return
        try:
            refusals = await standby.refusals(FIRST_LINK_SECONDS)
            if refusals:
                first = refusals[0]
                raise NamespaceUnreachableError(
                    f"the secondary {self.hosts[1]} lets secondary_client open no link to its {len(refusals)} backlog "
                    f"queues: {first}"
                )
        except BaseException:
            if opening is not None:
                await end_all([opening], CLOSING)
            await standby.close()
            await tasks.finish(CLOSING)
            await tasks.close()
            raise

    async def _others(self, admin: Management, name: str) -> tuple[str, ...]:
        """Return a remark on backlog queues under the name of the primary's host, if that is not its own name."""
        label = first_label(self.hosts[0])
        others = await backlog_queues.count_strangers(admin, label) if label.casefold() != name.casefold() else 0
        if not others:
            return ()
        return (
            f"the secondary also has {others} backlog queues under {label}/{backlog_queues.SEGMENT}/: a program that "
            "names the primary after its host parks there, and no syphon here moves its messages; "
            f'set its primary_name="{name}"',
        )


_MANAGEMENT: Final = ("queues", "create_queue", "depth", "depths", "namespace", "close")
"""The methods of a `Management` that replaces the SDK's management client."""

_paired: Final[WeakSet[Any]] = WeakSet()
"""The clients of open pairings."""


def check_arguments(primary_client: object, options: object) -> None:
    """Raise ConfigurationError for arguments that make no pairing."""
    if not isinstance(options, SendAvailabilityPairedNamespaceOptions):
        raise ConfigurationError(
            f"options is {_kind(options)}; it is SendAvailabilityPairedNamespaceOptions(secondary_admin=..., "
            "secondary_client=...)"
        )
    _check_client("primary_client", primary_client)
    _check_client("secondary_client", options.secondary_client)
    _check_admin(options.secondary_admin)


@contextmanager
def claim_clients(clients: Mapping[str, Any]) -> Iterator[None]:
    """Mark clients, by their arguments' names, as paired; release them if the block raises.

    Raises:
        ConfigurationError: one is paired already, and would be closed with that pairing.
    """
    weakable = [client for client in clients.values() if type(client).__weakrefoffset__]
    for name, client in clients.items():
        if client in weakable and client in _paired:
            raise ConfigurationError(
                f"{name} is part of another pairing, which closes it at its end: make a separate client for this one"
            )
    _paired.update(weakable)
    try:
        yield
    except BaseException:
        release(clients)
        raise


def release(clients: Mapping[str, Any]) -> None:
    """Release the clients of a pairing that was closed, or not made."""
    for client in clients.values():
        if type(client).__weakrefoffset__:
            _paired.discard(client)


def _check_client(name: str, client: object) -> None:
    is_async = inspect.iscoroutinefunction(getattr(client, "close", None))
    if hasattr(client, "backlog_queue_count"):
        raise ConfigurationError(f"{name} is a paired client already: pass the ServiceBusClient it was made from")
    if hasattr(client, "get_queue_sender") and not is_async:
        raise ConfigurationError(
            f"{name} is the synchronous ServiceBusClient: use the one of azure.servicebus.aio, or pair_namespaces of "
            "paired_servicebus.sync, which needs no asyncio"
        )
    is_client = isinstance(getattr(client, "fully_qualified_namespace", None), str)
    if not (is_client and is_async and hasattr(client, "get_queue_sender")):
        raise ConfigurationError(
            f"{name} is {_kind(client)}; it is a ServiceBusClient of azure.servicebus.aio, such as "
            "ServiceBusClient.from_connection_string(...)"
        )


def _check_admin(admin: object) -> None:
    if isinstance(admin, ServiceBusAdministrationClient):
        return
    if all(inspect.iscoroutinefunction(getattr(admin, name, None)) for name in _MANAGEMENT):
        return
    kind = type(admin)
    if kind.__name__ == "ServiceBusAdministrationClient":
        todo = "use the one of azure.servicebus.aio.management"
    elif kind.__name__ == "ServiceBusManagementClient":
        todo = "pass ArmAdmin(client, resource_group=..., namespace=...), and the client of azure.mgmt.servicebus.aio"
    else:
        todo = "it is a ServiceBusAdministrationClient of azure.servicebus.aio.management, or an ArmAdmin"
    raise ConfigurationError(f"secondary_admin is {_kind(admin)}: {todo}")


def _kind(thing: object) -> str:
    """Return a description of a value's type, without the value."""
    if isinstance(thing, str | bytes):
        return "a text"
    return (
        f"the class {thing.__name__}"
        if isinstance(thing, type)
        else f"a {type(thing).__module__} {type(thing).__name__}"
    )
