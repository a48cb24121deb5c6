"""Checks before an engine reports that it is ready: do the namespaces and entities of pairing.toml exist?

A configuration mistake and an outage look alike from outside. Memory distinguishes them: if an engine here has reached
the primary before, it is an outage, and the engine starts. Otherwise it is a mistake, and the engine does not start.
The secondary must always answer, because its backlog queues are listed.

An engine also remembers the primary's name, which is part of its backlog queues' names, so that it can start during an
outage and find them (paired_servicebus.pairing.management.primary_name has the rule).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import Final

from azure.core.exceptions import AzureError
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.config import NamespaceConfig, PairingConfig
from paired_servicebus.core.errors import ConfigurationError, NamespaceUnreachableError
from paired_servicebus.core.model.namespace_info import UNKNOWN_NAMESPACE, NamespaceInfo
from paired_servicebus.core.model.verdict import CREDENTIALS, FailureKind, kind_of
from paired_servicebus.core.text.masking import masked
from paired_servicebus.engine.clients.client_factory import HttpProxy, close_quietly, open_admin
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.pairing.management.backlog_queues import told
from paired_servicebus.pairing.management.primary_name import alias_remark, name_of
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.secret import Secret

log = logging.getLogger(__name__)

CONNECT_TIMEOUT: Final = 10.0
ATTACH_TIMEOUT: Final = 10.0
Timed = Callable[[str, Awaitable[str]], Awaitable[str]]
"""Awaits a namespace's failure, "" if it has none."""
CHECK_TIMEOUT: Final = 20.0
"""Seconds for all entities together; those not looked at by then are taken to be there."""
MAX_CONCURRENT_LINKS: Final = 16
"""Links opened at the same time; each is a connection."""

_MESSAGING_PORTS: Final = {"amqp": 5671, "websocket": 443}
_EMULATOR_PORT: Final = 5672
_MANAGEMENT_PORT: Final = 443


async def _untold(_name: str, asked: Awaitable[str]) -> str:
    return await asked


async def check_ports(config: PairingConfig, places: EnginePaths, *, timed: Timed = _untold) -> str:
    """Check that both namespaces' ports answer. Return the primary's failure if it is an outage, else "".

    Args:
        timed: awaits the answer of a namespace, given its host, and tells how long it took.

    Raises:
        NamespaceUnreachableError: one does not answer; the text has host, reason and advice.
    """
    primary, secondary = await asyncio.gather(
        timed(config.primary.host, _try_messaging(config.primary)),
        timed(config.secondary.host, _try_management(config.secondary)),
    )
    if secondary and not config.policy.start_degraded:  # else pairing decides whether it is an outage
        raise NamespaceUnreachableError(
            f"the secondary namespace {config.secondary.host} cannot be reached: {secondary}; check [secondary] in "
            f"{config.path}, and the network"
        )
    if primary:
        _refuse_unless_known(config, places, primary)
    return primary


async def check_entities(client: ServiceBusClient, config: PairingConfig, places: EnginePaths) -> str:
    """Check that the primary has the listed entities and permits sends. Return its failure if it is an outage, else "".

    Raises:
        ConfigurationError: entities are missing; the text names all of them.
        NamespaceUnreachableError: the credential was refused, or a primary never reached before did not answer.
    """
    limit, end = asyncio.Semaphore(MAX_CONCURRENT_LINKS), asyncio.get_running_loop().time() + CHECK_TIMEOUT
    outcomes = await asyncio.gather(*(_attach(client, path, limit, end) for path in config.entities))
    missing = [path for path, outcome in zip(config.entities, outcomes, strict=True) if _is(outcome, _MISSING)]
    if missing:
        raise ConfigurationError(
            f"{config.path}: [pairing] entities names {', '.join(map(repr, missing))}, and the primary namespace "
            f"{config.primary.host} has no queue or topic of that name: create it, or take it out"
        )
    for path, outcome in zip(config.entities, outcomes, strict=True):
        if _is(outcome, CREDENTIALS):
            raise NamespaceUnreachableError(
                f"the primary namespace {config.primary.host} refused the credential for {path} "
                f"({_describe(outcome)}): check [primary] in {config.path}; its key or role needs Send"
            )
    if not outcomes or None in outcomes:
        places.reached.write_text(config.primary.host)
        return ""
    reason = _describe(outcomes[0])
    _refuse_unless_known(config, places, reason)
    return reason


_MISSING: Final = (FailureKind.NOT_FOUND,)


def _is(outcome: Exception | None, kinds: Collection[FailureKind]) -> bool:
    return outcome is not None and kind_of(outcome) in kinds


def _refuse_unless_known(config: PairingConfig, places: EnginePaths, reason: str) -> None:
    try:
        known = places.reached.read_text()
    except (OSError, UnicodeDecodeError):
        known = ""
    if known != config.primary.host:
        raise NamespaceUnreachableError(
            f"the primary namespace {config.primary.host} cannot be reached, and no engine here ever reached it: "
            f"{reason}; check [primary] in {config.path}, and the network"
        )


async def _attach(client: ServiceBusClient, path: str, limit: asyncio.Semaphore, end: float) -> Exception | None:
    """Return the error of opening a link to the entity. `end`: the loop's time after which it is not tried."""
    async with limit:
        left = min(ATTACH_TIMEOUT, end - asyncio.get_running_loop().time())
        if left <= 0:
            return TimeoutError("too many entities to look at all of them in time")
        sender = client.get_queue_sender(path)  # a topic's address is made the same way
        try:
            await bounded(sender.__aenter__(), left, f"attaching to {path}")
        except (AzureError, OSError, TimeoutError) as error:
            return error
        finally:
            await close_quietly(sender.close, f"the link to {path}")
    return None


async def _try_messaging(namespace: NamespaceConfig) -> str:
    if namespace.proxy is not None:
        return await _try_proxy(namespace.proxy)
    usual = _EMULATOR_PORT if namespace.emulated else _MESSAGING_PORTS[namespace.transport]
    host, port = _host_and_port((namespace.custom_endpoint or namespace.host).removeprefix("sb://"))
    return await _try(host, port if port and (namespace.emulated or namespace.custom_endpoint) else usual, None)


async def _try_management(namespace: NamespaceConfig) -> str:
    try:
        context = ssl.create_default_context(cafile=namespace.ca_file)
    except ssl.SSLError:
        return f"its ca_file {namespace.ca_file} holds no certificate"
    if namespace.proxy is not None:
        return await _try_proxy(namespace.proxy)
    if namespace.management == "arm":
        address = namespace.arm_url
        if address is None:
            return ""  # which one it is, the SDK knows
    else:
        address = f"https://{namespace.host}"
    host, port = _host_and_port(address.removeprefix("https://"))
    return await _try(host, port or _MANAGEMENT_PORT, context)


async def _try_proxy(proxy: Secret) -> str:
    found = HttpProxy.of(proxy)
    why_not = await _try(found.host, found.port, None)
    return f"the proxy {found.host}, {why_not}" if why_not else ""


async def _try(host: str, port: int, context: ssl.SSLContext | None) -> str:
    """Return the reason why no connection can be made; empty if one can."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLCertVerificationError as error:
        return f"its certificate is not trusted ({error.verify_message}); ca_file names the authority to trust"
    except TimeoutError:
        return f"port {port} did not answer within {CONNECT_TIMEOUT:g} s"
    except OSError as error:
        return f"port {port}: {error.strerror or error}"
    writer.transport.abort()
    return ""


def _host_and_port(host: str) -> tuple[str, int | None]:
    name, colon, port = host.rpartition(":")
    if not colon or port.endswith("]"):
        return host.strip("[]"), None
    return name.strip("[]"), int(port)


def _describe(error: Exception | None) -> str:
    lines = str(error).strip().splitlines()
    return masked(lines[0])[:200] if lines else type(error).__name__


async def read_primary_info(namespace: NamespaceConfig, places: EnginePaths, *, reachable: bool) -> NamespaceInfo:
    """Return the namespace's information. `reachable` False: do not contact it; only a remembered name is available."""
    info = await _ask(namespace) if reachable else UNKNOWN_NAMESPACE
    if info.name:
        remark = "" if namespace.name else alias_remark(namespace.host, info.name)
        if remark:
            log.info("%s", remark)
        places.named.write_text(f"{namespace.host}\n{info.name}\n")
    return replace(info, name=namespace.name or info.name or _remembered(namespace, places))


async def look_up_name(namespace: NamespaceConfig, places: EnginePaths) -> str:
    """Return the name without remembering it."""
    reported = "" if namespace.name else (await _ask(namespace)).name or _remembered(namespace, places)
    return name_of(namespace.host, configured=namespace.name, reported=reported)


async def _ask(namespace: NamespaceConfig) -> NamespaceInfo:
    try:
        async with open_admin(namespace) as admin:
            return await told(admin)
    except (ConfigurationError, ValueError):
        return UNKNOWN_NAMESPACE  # no management on this side: a name and some warnings are all that is missed


def _remembered(namespace: NamespaceConfig, places: EnginePaths) -> str:
    try:
        host, name = places.named.read_text().split()
    except (OSError, ValueError):
        return ""
    return name if host == namespace.host else ""
