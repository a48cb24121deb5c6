"""The pairing of two namespaces: a caller's options, and all checks before a paired client exists (SPEC.md 3 and 4).

The clients stay the caller's until pairing has succeeded. A failure closes the links opened over them, and leaves them
usable. Errors name the argument and its expected value. A text in place of a client may be a connection string, so no
error repeats it.

Backlog queues carry the name of the primary namespace, so every program that pairs it has to find the same one. The
rule (SPEC.md section 4.1): the configured name, else the name that the namespace reports, else the first label of its
host. A host may be an alias or an address, whose first label is not the namespace's name.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, Final, TypedDict
from weakref import WeakSet
from xml.etree import ElementTree

import aiohttp
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.backlog import queue_settings
from paired_servicebus.core.errors import (
    BacklogQueueError,
    ConfigurationError,
    NamespaceUnreachableError,
    PairingError,
    SameNamespaceError,
    WireError,
)
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.namespace_info import alias_remark, first_label, name_of
from paired_servicebus.core.model.pairing_events import Event
from paired_servicebus.core.model.policy import JournalKind, PingKind, Policy, PumpKind, TtlPolicy
from paired_servicebus.core.model.verdict import Judge, judge
from paired_servicebus.pairing.amqp_client.endpoint import SAS, Endpoint, proxy_authorization, tls_context, token_for
from paired_servicebus.pairing.management import backlog_queues
from paired_servicebus.pairing.management.backlog_queues import START_SECONDS, DegradedStart
from paired_servicebus.pairing.management.management_port import Management, SecondaryAdmin, management_of
from paired_servicebus.pairing.paired_client import PairedServiceBusClient
from paired_servicebus.pairing.runtime.deadlines import CLOSING, TaskOwner, bounded, end_all
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime, register_client
from paired_servicebus.pairing.sending.pairing_links import PrimaryLinks, Standby
from paired_servicebus.pairing.sending.sender_link import OpenLimiter

DEFAULTS = Policy()
Duration = timedelta | float


@dataclass(frozen=True, kw_only=True)
class PairedNamespaceOptions:
    """The base of pairing kinds.

    The clients stay the caller's until pairing has succeeded; the pairing closes them at its end.
    """

    secondary_admin: SecondaryAdmin
    """Finds and creates the backlog queues: the SDK's asynchronous admin client, or an `ArmAdmin`; needs Manage."""
    secondary_client: ServiceBusClient
    """Sends to the backlog queues; needs Send, and Listen with the syphon."""


@dataclass(frozen=True, kw_only=True)
class SendAvailabilityPairedNamespaceOptions(PairedNamespaceOptions):
    """Options for send availability: messages are parked in the secondary namespace while the primary accepts none.

    Durations are `timedelta` or seconds (SPEC.md section 3). They are checked when the pairing is made.

    Args:
        secondary_admin, secondary_client: as of `PairedNamespaceOptions`; without defaults.
        primary_name: the prefix of the backlog queues' paths; None: the name that the primary namespace reports, else
            the first label of its host.
        backlog_queue_count: queues `{primary}/x-servicebus-transfer/0…` in the secondary; 10; at least 1.
        failover_interval: from the first failure that counts to the backlog; 1 min; 0 to 60 min. 0: in the same call.
        enable_syphon: move parked messages home from here; False. At least one program has to.
        ping_primary_interval: between two pings of an entity that failed over; 1 min; 1 s to 30 min.
        ping_timeout: of one ping; 2 min; 1 s to 2 min.
        ping: "message"; or "link": only attach, no ping messages.
        syphon_retry_interval: a pump's pause after a failure; 1 s; 1 s to 2 min.
        syphon_receive_window: of one receive at an empty queue; 15 min; 1 s to 60 min.
        close_grace: for sends under way when the pairing closes, and for one side to follow the other; 5 s; 0 to 60
            min.
        send_timeout: one attempt; 30 s; 1 s to 5 min.
        hold_until_failover: False; True: a send waits instead of raising while its entity is suspect.
        failback_pings: accepted pings in a row until failback; 1; at least 1.
        cool_down: minimum time that an entity stays failed over; 0; at least 0.
        ttl_policy: a parked message's time to live at its arrival: "restart", its full time, or "elapsed", the rest.
        undeliverable_after: time that a destination may be missing until its messages are dead-lettered; 15 min; at
            least 0.
        throttle_wait: after "server busy", which never fails over; 10 s; at least 10 s.
        quiet_period: inactive time of an unused backlog queue before it may be deleted; 15 min; at least 1 s.
        journal: the messages that it names: "diverted", those that left the direct path or are in doubt, or "all".
        pump: the syphon's transport: "amqp", our own AMQP, bit for bit; "sdk", the SDK's; "auto": the first, or the
            second with a warning. With "sdk" each link to a backlog queue also has a connection of its own.
        syphon_rate: maximum of messages a second that this syphon moves; 0, no limit; at least 0.
        syphon_live_share: the part of that rate, or of the throttled rate, reserved for this pairing's live senders;
            0.5; 0 to 0.9.
        destinations: the only entities that this syphon delivers to; messages for others are dead-lettered in their
            backlog queue. None: any entity that the primary client's key reaches, as named by the backlog's senders.
        record_received: False; True: journal each message that a receiver made by this pairing, or a client of its
            gateway, gets. Then the audit follows messages to their receivers.
        start_degraded: False; True: pair without the secondary's answer, and retry in the background. Sends that need
            the backlog are refused until a backlog queue answers.
    """

    primary_name: str | None = None
    backlog_queue_count: int = DEFAULTS.backlog_queue_count
    failover_interval: Duration = DEFAULTS.failover_interval
    enable_syphon: bool = DEFAULTS.enable_syphon
    ping_primary_interval: Duration = DEFAULTS.ping_primary_interval
    ping_timeout: Duration = DEFAULTS.ping_timeout
    ping: PingKind = DEFAULTS.ping
    syphon_retry_interval: Duration = DEFAULTS.syphon_retry_interval
    syphon_receive_window: Duration = DEFAULTS.syphon_receive_window
    close_grace: Duration = DEFAULTS.close_grace
    send_timeout: Duration = DEFAULTS.send_timeout
    hold_until_failover: bool = DEFAULTS.hold_until_failover
    failback_pings: int = DEFAULTS.failback_pings
    cool_down: Duration = DEFAULTS.cool_down
    ttl_policy: TtlPolicy = DEFAULTS.ttl_policy
    undeliverable_after: Duration = DEFAULTS.undeliverable_after
    throttle_wait: Duration = DEFAULTS.throttle_wait
    quiet_period: Duration = DEFAULTS.quiet_period
    journal: JournalKind = DEFAULTS.journal
    pump: PumpKind = DEFAULTS.pump
    syphon_rate: float = DEFAULTS.syphon_rate
    syphon_live_share: float = DEFAULTS.syphon_live_share
    destinations: tuple[str, ...] | None = DEFAULTS.destinations
    record_received: bool = DEFAULTS.record_received
    start_degraded: bool = DEFAULTS.start_degraded

    def policy(self) -> Policy:
        """Return the options that are values, checked.

        Raises:
            ConfigurationError (a ValueError): naming the option, its value and its range.
        """
        chosen: dict[str, Any] = {field.name: _seconds(getattr(self, field.name)) for field in fields(Policy)}
        return Policy(**chosen)


class PairingOptions(TypedDict, total=False):
    """The options of `SendAvailabilityPairedNamespaceOptions` that are values, as keyword arguments."""

    primary_name: str | None
    backlog_queue_count: int
    failover_interval: Duration
    enable_syphon: bool
    ping_primary_interval: Duration
    ping_timeout: Duration
    ping: PingKind
    syphon_retry_interval: Duration
    syphon_receive_window: Duration
    close_grace: Duration
    send_timeout: Duration
    hold_until_failover: bool
    failback_pings: int
    cool_down: Duration
    ttl_policy: TtlPolicy
    undeliverable_after: Duration
    throttle_wait: Duration
    quiet_period: Duration
    journal: JournalKind
    pump: PumpKind
    syphon_rate: float
    syphon_live_share: float
    destinations: tuple[str, ...] | None
    record_received: bool
    start_degraded: bool


def _seconds(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else value


NAME_SECONDS: Final = 5.0
"""Seconds in which a namespace has to report its name."""
MAX_ANSWER_BYTES: Final = 64 * 1024
_ADDRESS: Final = "/$namespaceinfo?api-version=2021-05"
_NAME: Final = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}Name"
_USABLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

log = logging.getLogger(__name__)


def host_of(client: ServiceBusClient) -> str:
    """Return the host of a client's namespace, with its port if it has one."""
    return client.fully_qualified_namespace.rstrip("/")


async def reported_name(client: ServiceBusClient) -> str:
    """Read the name from a client's namespace, with the client's own credential; "" if it is not reported.

    A credential with Send only is refused, which is no fault. No connection stays open.
    """
    try:
        return await bounded(_ask_name(Endpoint.of(client)), NAME_SECONDS, "asking a namespace for its name")
    except (WireError, OSError, TimeoutError, aiohttp.ClientError, ElementTree.ParseError) as error:
        log.debug("%s does not report its name: %s", host_of(client), type(error).__name__)
        return ""


async def _ask_name(endpoint: Endpoint) -> str:
    address = f"https://{endpoint.namespace}{_ADDRESS}"
    token = await token_for(endpoint.credential, address, now=time.time())
    proxy = endpoint.proxy
    trust = endpoint.context
    if trust is None:  # management uses TLS, also where messaging does not
        trust = await asyncio.to_thread(tls_context, endpoint.ca_file)
    async with (
        aiohttp.ClientSession() as session,
        session.get(
            address,
            headers={"Authorization": token.text if token.kind == SAS else f"Bearer {token.text}"},
            ssl=trust,
            proxy=proxy.url if proxy else None,
            proxy_headers=proxy_authorization(proxy) if proxy else None,
            allow_redirects=False,
        ) as answer,
    ):
        answer.raise_for_status()
        return _read_name(await answer.content.read(MAX_ANSWER_BYTES))


def _read_name(answer: bytes) -> str:
    if b"<!DOCTYPE" in answer:
        raise ElementTree.ParseError("a description of a namespace declares no document type")
    name = (ElementTree.fromstring(answer).findtext(f".//{_NAME}") or "").strip()
    return name if _USABLE.fullmatch(name) else ""


FIRST_LINK_SECONDS: Final = 4.0
"""Seconds that pairing waits for the first link to a backlog queue; a slow link does not fail it."""


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
        machine, gate = PairingMachine(self.policy, queues=found.paths), OpenLimiter()
        steering = PairingRuntime(machine, tasks, judge, on_event)
        standby = Standby(steering, self.options.secondary_client, found.paths, gate, assumed=info.message_limit)
        degraded = None
        if missing is not None:
            degraded = DegradedStart(steering, admin, primary=name, host=self.hosts[1], reason=str(missing))
            degraded.take_out()
        backlog_queues.apply_hazards(steering, found)
        await self._prove(standby, tasks, wait=degraded is None and not self.must_start)
        paired = PairedServiceBusClient(
            self.primary,
            self.options.secondary_client,
            steering,
            admin,
            found,
            receiving=self.receiving,
            primary=name,
            secondary=info,
            primaries=PrimaryLinks(steering, self.primary, gate, standby),
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

    async def _find(self, admin: Management, name: str) -> tuple[queue_settings.BacklogQueues, PairingError | None]:
        """Return the backlog queues; for a degraded start the expected ones, and the failure to find them."""
        count, is_optional = self.policy.backlog_queue_count, self.policy.start_degraded or self.must_start
        patience = START_SECONDS if is_optional else backlog_queues.LIST_SECONDS
        try:
            return await backlog_queues.ensure(admin, name, count, patience=patience, host=self.hosts[1]), None
        except (NamespaceUnreachableError, BacklogQueueError) as error:
            is_outage = isinstance(error, NamespaceUnreachableError) and error.is_outage
            if is_optional and (is_outage or self.must_start or isinstance(error, BacklogQueueError)):
                expected = {index: queue_settings.queue_path(name, index) for index in range(count)}
                return queue_settings.BacklogQueues(expected, ()), error
            if not is_outage:
                raise
            text = f"{error}; start_degraded=True pairs without waiting for it"
            raise NamespaceUnreachableError(text, is_outage=True) from error

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
            f"the secondary also has {others} backlog queues under {label}/{queue_settings.SEGMENT}/: a program that "
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
