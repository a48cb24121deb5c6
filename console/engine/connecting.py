"""SDK clients from a pairing.toml's values. The only place that looks into a Secret.

Clients made here do not retry by themselves: the pairing owns the time (SPEC.md section 3).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError
from azure.servicebus import TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from console.config import NamespaceConfig, PairingConfig
from console.core.errors import ConfigurationError
from console.pairing.deadlines import CLOSING, bounded
from console.pairing.management import Management, management_of

CREDENTIALS: Final = {
    "default": "DefaultAzureCredential",
    "managed": "ManagedIdentityCredential",
    "cli": "AzureCliCredential",
    "client-secret": "EnvironmentCredential",
}
"""Names in pairing.toml to classes of azure-identity; the client's secret comes from AZURE_CLIENT_SECRET."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """What a pairing is made of."""

    primary: ServiceBusClient
    secondary: ServiceBusClient
    secondary_admin: ServiceBusAdministrationClient


@asynccontextmanager
async def open_clients(config: PairingConfig) -> AsyncIterator[Clients]:
    """Clients for both namespaces, closed again at the end, each within seconds.

    Raises:
        ConfigurationError: a setting that the SDK does not accept.
    """
    async with AsyncExitStack() as stack:
        try:
            clients = Clients(
                primary=_client(config.primary, stack),
                secondary=_client(config.secondary, stack),
                secondary_admin=_admin(config.secondary, stack),
            )
        except ValueError as error:
            raise ConfigurationError(f"{config.path}: the SDK does not accept these settings: {error}") from error
        yield clients


@asynccontextmanager
async def open_admin(namespace: NamespaceConfig) -> AsyncIterator[Management]:
    """A management client of one namespace for a moment.

    Raises:
        ConfigurationError: its management cannot be used.
    """
    async with AsyncExitStack() as stack:
        yield management_of(_admin(namespace, stack))


def _client(namespace: NamespaceConfig, stack: AsyncExitStack) -> ServiceBusClient:
    options: dict[str, Any] = {"retry_total": 0}
    if namespace.transport == "websocket":
        options["transport_type"] = TransportType.AmqpOverWebsocket
    if namespace.proxy is not None:
        options["http_proxy"] = _proxy(namespace.proxy.reveal())
    if namespace.ca_file is not None and not namespace.emulated:
        options["connection_verify"] = str(namespace.ca_file)
    if namespace.connection_string is not None:
        client = ServiceBusClient.from_connection_string(namespace.connection_string.reveal(), **options)
    else:
        client = ServiceBusClient(namespace.host, _credential(namespace, stack), **options)
    stack.push_async_callback(close_quietly, client.close, f"the client of {namespace.host}")
    return client


def _admin(namespace: NamespaceConfig, stack: AsyncExitStack) -> ServiceBusAdministrationClient:
    if namespace.management == "arm":
        raise ConfigurationError(
            f'management = "arm" of {namespace.host} cannot be used by this release: say management = "atom"'
        )
    options: dict[str, Any] = {}
    if namespace.ca_file is not None:
        options["connection_verify"] = str(namespace.ca_file)
    if namespace.proxy is not None:
        options["proxies"] = {"https": namespace.proxy.reveal()}
    if namespace.connection_string is not None:
        client = ServiceBusAdministrationClient.from_connection_string(namespace.connection_string.reveal(), **options)
    else:
        client = ServiceBusAdministrationClient(namespace.host, _credential(namespace, stack), **options)
    stack.push_async_callback(close_quietly, client.close, f"the management client of {namespace.host}")
    return client


def _credential(namespace: NamespaceConfig, stack: AsyncExitStack) -> AsyncTokenCredential:
    from azure.identity import aio as identity  # slow to import, and holders of keys don't need it

    credential: Any = getattr(identity, CREDENTIALS[namespace.credential])()
    stack.push_async_callback(close_quietly, credential.close, f"the credential for {namespace.host}")
    return cast(AsyncTokenCredential, credential)


def _proxy(url: str) -> dict[str, Any]:
    """As the SDK's messaging clients want it."""
    parts = urlsplit(url)
    proxy: dict[str, Any] = {"proxy_hostname": parts.hostname, "proxy_port": parts.port}
    if parts.username:
        proxy |= {"username": unquote(parts.username), "password": unquote(parts.password or "")}
    return proxy


async def close_quietly(close: Callable[[], Awaitable[None]], what: str) -> None:
    """Closes something of the SDK within seconds; a failure is logged, since nobody needs the thing any more."""
    try:
        await bounded(close(), CLOSING, f"closing {what}")
    except (AzureError, OSError, TimeoutError) as error:
        log.warning("%s was not closed in order: %s", what, error)
