"""What is away at the start of an engine: a namespace, an entity, a permission. Each is an alarm until it is there.

An engine serves whatever is away (SPEC.md section 4). A configuration mistake and an outage look alike from outside,
so an alarm names both: what does not answer, and the setting to check.

An engine also remembers the primary's name, which is part of its backlog queues' names, so that it can start during an
outage and find them (paired_servicebus.pairing.opening has the rule).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from azure.core.exceptions import AzureError
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.config import NamespaceConfig, PairingConfig
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.namespace_info import UNKNOWN_NAMESPACE, NamespaceInfo, alias_remark, name_of
from paired_servicebus.core.model.snapshot import PRIMARY, Trouble, TroubleKind
from paired_servicebus.core.model.verdict import CREDENTIALS, FailureKind, kind_of
from paired_servicebus.core.text.masking import masked
from paired_servicebus.engine.clients.client_factory import HttpProxy, close_quietly, open_admin
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.pairing.management.backlog_queues import told
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.secret import Secret

log = logging.getLogger(__name__)

CONNECT_TIMEOUT: Final = 10.0
ATTACH_TIMEOUT: Final = 10.0
NAME_SECONDS: Final = 3.0
"""Seconds that a start waits for the primary's name."""
AGAIN_SECONDS: Final = 10.0
"""Seconds between two looks while something is away."""
Timed = Callable[[str, Awaitable[str]], Awaitable[str]]
"""Awaits a namespace's failure, "" if it has none."""
CHECK_TIMEOUT: Final = 20.0
"""Seconds for all entities together; those not looked at by then are taken to be there."""
MAX_CONCURRENT_LINKS: Final = 16
"""Links opened at the same time; each is a connection."""
MAX_NAMED: Final = 5
"""Entities that an alarm names."""

_MESSAGING_PORTS: Final = {"amqp": 5671, "websocket": 443}
_EMULATOR_PORT: Final = 5672
_MANAGEMENT_PORT: Final = 443


async def _untold(_name: str, asked: Awaitable[str]) -> str:
    return await asked


class StartChecks:
    """Looks whether the namespaces answer, and whether the primary has the listed entities and permits sends.

    Ends with the first look that finds nothing away: from then on sends and probes know better.

    Args:
        primary: the primary's description, with the name that its backlog queues are given.
        timed: awaits the first answer of a namespace, given its host, and tells how long it took.
    """

    def __init__(
        self, config: PairingConfig, places: EnginePaths, primary: NamespaceInfo, *, timed: Timed = _untold
    ) -> None:
        self._config = config
        self._places = places
        self._primary = primary
        self._timed = timed
        self._looked = asyncio.Event()
        self.troubles: tuple[Trouble, ...] = ()
        """What was away at the last look."""

    async def wait(self, until: float) -> None:
        """Wait for the first look, at most until that time of the loop."""
        try:
            async with asyncio.timeout_at(until):
                await self._looked.wait()
        except TimeoutError:
            log.info("the checks of the start go on while the engine serves")

    async def run(self, primary: ServiceBusClient) -> None:
        """Look until nothing is away."""
        while True:
            self.troubles = await self.look(primary)
            self._looked.set()
            self._timed = _untold
            if not self.troubles:
                return
            await asyncio.sleep(AGAIN_SECONDS)

    async def look(self, primary: ServiceBusClient) -> tuple[Trouble, ...]:
        """Return what is away now. A secondary that does not answer is the pairing's own alarm."""
        config = self._config
        away, _ = await asyncio.gather(
            self._timed(config.primary.host, _try_messaging(config.primary)),
            self._timed(config.secondary.host, _try_management(config.secondary)),
        )
        if away:
            return (self._unreachable(away),)
        return await self._entities(primary) + await self._other_name()

    def _unreachable(self, reason: str) -> Trouble:
        text = f"{self._config.primary.host}: {reason}"
        return Trouble(kind=TroubleKind.NAMESPACE_UNREACHABLE, what=PRIMARY, reason=text)

    async def _entities(self, client: ServiceBusClient) -> tuple[Trouble, ...]:
        """Return what keeps senders from the listed entities, by kind; nothing where one could not be looked at."""
        config = self._config
        limit, end = asyncio.Semaphore(MAX_CONCURRENT_LINKS), asyncio.get_running_loop().time() + CHECK_TIMEOUT
        outcomes = await asyncio.gather(*(_attach(client, path, limit, end) for path in config.entities))
        failed = {path: error for path, error in zip(config.entities, outcomes, strict=True) if error is not None}
        missing = [path for path, error in failed.items() if kind_of(error) is FailureKind.NOT_FOUND]
        refused = [path for path, error in failed.items() if kind_of(error) in CREDENTIALS]
        found = []
        if missing:
            tier = "" if self._primary.has_topics else f" (its tier {self._primary.tier} has queues and no topics)"
            reason = f"{config.primary.host} has no queue or topic of that name{tier}"
            found.append(Trouble(kind=TroubleKind.ENTITY_MISSING, what=_named(missing), reason=reason))
        if refused:
            reason = f"{config.primary.host}: {_describe(failed[refused[0]])}"
            if len(refused) == len(outcomes):
                reason += "; its key or role in [primary] needs Send"
                found.append(Trouble(kind=TroubleKind.CREDENTIAL_REFUSED, what=PRIMARY, reason=reason))
            else:
                found.append(Trouble(kind=TroubleKind.ENTITY_UNAUTHORIZED, what=_named(refused), reason=reason))
        if failed and len(failed) == len(outcomes) and not found:
            found.append(self._unreachable(_describe(next(iter(failed.values())))))
        return tuple(found)

    async def _other_name(self) -> tuple[Trouble, ...]:
        """Return a trouble if the primary reports another name than the one that its backlog queues were given."""
        assumed = self._primary.name
        if self._config.primary.name:
            return ()
        reported = (await read_primary_info(self._config.primary, self._places)).name
        if reported.casefold() == assumed.casefold():
            return ()
        reason = (
            f"the primary namespace {self._config.primary.host} is called {reported}, which was not known at the "
            f"start: its backlog queues here are named after {assumed}"
        )
        return (Trouble(kind=TroubleKind.OTHER_NAME, reason=reason),)


def _named(paths: list[str]) -> str:
    more = f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else ""
    return ", ".join(map(repr, paths[:MAX_NAMED])) + more


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


async def read_primary_info(namespace: NamespaceConfig, places: EnginePaths) -> NamespaceInfo:
    """Return the namespace's description; in an outage its name as configured, remembered, or by its host."""
    try:
        async with asyncio.timeout(NAME_SECONDS):
            info = await _ask(namespace)
    except TimeoutError:
        info = UNKNOWN_NAMESPACE
    if info.name:
        remark = "" if namespace.name else alias_remark(namespace.host, info.name)
        if remark:
            log.info("%s", remark)
        _remember(namespace, places, info.name)
    reported = info.name or _remembered(namespace, places)
    return replace(info, name=name_of(namespace.host, configured=namespace.name, reported=reported))


def _remember(namespace: NamespaceConfig, places: EnginePaths, name: str) -> None:
    try:
        places.named.write_text(f"{namespace.host}\n{name}\n")
    except OSError as error:
        log.warning("the name of the primary cannot be remembered in %s: %s", places.named, error.strerror or error)


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
