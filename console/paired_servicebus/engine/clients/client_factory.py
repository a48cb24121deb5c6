"""SDK clients from a pairing.toml.

The clients do not retry: the pairing owns all deadlines (SPEC.md section 3). namespace_credentials.py owns their
credentials.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from azure.core import AzureClouds
from azure.core.exceptions import AzureError
from azure.servicebus import TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.config import NamespaceConfig, PairingConfig
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.engine.clients.http_transport import HttpProxy, HttpTransport, UnsignedCredential
from paired_servicebus.engine.clients.namespace_credentials import NamespaceCredentials
from paired_servicebus.pairing import ArmAdmin
from paired_servicebus.pairing.management.atom_admin import AtomAdmin
from paired_servicebus.pairing.management.management_port import TopicManagement
from paired_servicebus.pairing.runtime.deadlines import CLOSING, bounded
from paired_servicebus.pairing.runtime.tls import tls_context

CLOUDS: Final = {
    "login.microsoftonline.us": AzureClouds.AZURE_US_GOVERNMENT,
    "login.chinacloudapi.cn": AzureClouds.AZURE_CHINA_CLOUD,
}
"""Authorities of clouds with their own Resource Manager; others use AZURE_SDK_CLOUD_CONF, else the public cloud."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceClients:
    """The clients and credentials of both namespaces."""

    primary: ServiceBusClient
    secondary: ServiceBusClient
    secondary_admin: TopicManagement
    primary_credentials: NamespaceCredentials
    secondary_credentials: NamespaceCredentials


@asynccontextmanager
async def open_clients(config: PairingConfig) -> AsyncIterator[NamespaceClients]:
    """Open clients for both namespaces; close each within CLOSING seconds at the end.

    Raises:
        ConfigurationError: a setting that the SDK does not accept.
    """
    async with AsyncExitStack() as stack:
        try:
            primary, secondary = (_access(namespace, stack) for namespace in (config.primary, config.secondary))
            clients = NamespaceClients(
                primary=_client(config.primary, primary, stack),
                secondary=_client(config.secondary, secondary, stack),
                secondary_admin=_management(config.secondary, secondary, stack),
                primary_credentials=primary,
                secondary_credentials=secondary,
            )
        except ValueError as error:
            raise ConfigurationError(f"{config.path}: the SDK does not accept these settings: {error}") from error
        yield clients


@asynccontextmanager
async def open_admin(namespace: NamespaceConfig) -> AsyncIterator[TopicManagement]:
    """Open the management client of one namespace.

    Raises:
        ConfigurationError, ValueError: a setting that the SDK does not accept.
    """
    async with AsyncExitStack() as stack:
        yield _management(namespace, _access(namespace, stack), stack)


def _access(namespace: NamespaceConfig, stack: AsyncExitStack) -> NamespaceCredentials:
    access = NamespaceCredentials(namespace)
    stack.push_async_callback(close_quietly, access.close, f"the credential for {namespace.host}")
    return access


def _client(namespace: NamespaceConfig, access: NamespaceCredentials, stack: AsyncExitStack) -> ServiceBusClient:
    websocket = namespace.transport == "websocket" or namespace.proxy is not None  # the SDK's only way through a proxy
    plain = namespace.emulated and not websocket
    options: dict[str, Any] = {
        "retry_total": 0,
        "use_tls": not plain,
        "transport_type": TransportType.AmqpOverWebsocket if websocket else TransportType.Amqp,
    }
    if namespace.proxy is not None:
        options["http_proxy"] = HttpProxy.of(namespace.proxy).for_messaging()
    if namespace.custom_endpoint is not None:
        options["custom_endpoint_address"] = namespace.custom_endpoint
    elif websocket and namespace.emulated:
        options["custom_endpoint_address"] = f"sb://{namespace.host}"
    options["ssl_context"] = _tls_context(None if plain else namespace.ca_file)
    host = namespace.host if plain or not namespace.emulated else _without_port(namespace.host)
    client = ServiceBusClient(host, access.credential, **options)
    stack.push_async_callback(close_quietly, client.close, f"the client of {namespace.host}")
    return client


def _tls_context(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return tls_context(ca_file)
    except OSError as error:
        raise ConfigurationError(f"ca_file {ca_file} cannot be used as certificates in PEM: {error}") from error


def _without_port(host: str) -> str:
    """Return a distinct name for each sandbox on a machine: over TLS the SDK drops the port."""
    return host.strip("[]").replace("]", "").replace(":", "-")


def _management(namespace: NamespaceConfig, access: NamespaceCredentials, stack: AsyncExitStack) -> TopicManagement:
    management = _arm(namespace, access) if namespace.management == "arm" else _atom(namespace, access)
    stack.push_async_callback(close_quietly, management.close, f"the management client of {namespace.host}")
    return management


def _atom(namespace: NamespaceConfig, access: NamespaceCredentials) -> AtomAdmin:
    sign = access.signing(f"https://{namespace.host}")
    transport = HttpTransport(ca_file=namespace.ca_file, proxy=namespace.proxy, authorization=sign)
    credential = UnsignedCredential() if sign is not None else access.of_identity()
    client = ServiceBusAdministrationClient(namespace.host, credential, transport=transport, retry_total=0)
    return AtomAdmin(client)


def _arm(namespace: NamespaceConfig, access: NamespaceCredentials) -> ArmAdmin:
    from azure.mgmt.servicebus.aio import ServiceBusManagementClient  # slow to import, and most use Atom

    client = ServiceBusManagementClient(
        access.of_identity(),
        namespace.subscription or "",
        namespace.arm_url,
        cloud_setting=CLOUDS.get(namespace.authority or ""),
        transport=HttpTransport(ca_file=namespace.ca_file, proxy=namespace.proxy),
        retry_total=0,
    )
    name = namespace.name or namespace.host.split(".", 1)[0]
    return ArmAdmin(client, resource_group=namespace.resource_group or "", namespace=name)


async def close_quietly(close: Callable[[], Awaitable[None]], what: str) -> None:
    """Close an SDK object within CLOSING seconds; log a failure."""
    try:
        await bounded(close(), CLOSING, f"closing {what}")
    except (AzureError, OSError, TimeoutError) as error:
        log.warning("%s was not closed cleanly: %s", what, error)
