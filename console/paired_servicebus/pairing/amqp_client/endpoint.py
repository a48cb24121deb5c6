"""A namespace's address and settings, read from a caller's `azure.servicebus.aio.ServiceBusClient`.

The SDK's private attributes are read by sdk_internals.py. A missing or unexpected attribute (compared with 7.15) is a
`WireUnavailableError` with one sentence, and the caller's client is then used through the SDK. Nothing here connects;
a proxy's password and the credential are never in a repr.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

import certifi
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.errors import WireUnavailableError
from paired_servicebus.pairing import sdk_internals

AMQPS_PORT: Final = 5671
AMQP_PORT: Final = 5672
WEBSOCKET_PORT: Final = 443
WEBSOCKET_PATH: Final = "/$servicebus/websocket"
_WEBSOCKETS: Final = "AmqpOverWebsocket"


class Transport(StrEnum):
    AMQP = "amqp"
    WEBSOCKET = "websocket"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """An HTTP proxy. url: without the user."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Everything that a connection needs.

    host, port: the socket's address. namespace: the client's name for the namespace, with a port if it uses no TLS;
    audiences contain it. hostname: the same without the port, for the AMQP open. ca_file: the trusted certificates.
    context: the caller's own TLS context, which replaces them. proxy: WebSockets only.
    """

    host: str
    port: int
    namespace: str
    hostname: str
    transport: Transport
    tls: bool
    credential: Any = field(repr=False)
    ca_file: str | None = None
    context: ssl.SSLContext | None = field(default=None, repr=False)
    proxy: Proxy | None = None

    @classmethod
    def of(cls, client: ServiceBusClient) -> Endpoint:
        """Read a client's settings. Raises WireUnavailableError: they cannot be read from this client."""
        try:
            return cls._read(client)
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            raise WireUnavailableError(
                f"this {type(client).__name__} cannot be read as one of azure-servicebus 7.15: {error}"
            ) from error

    @classmethod
    def _read(cls, client: Any) -> Endpoint:
        config = sdk_internals.client_config(client)
        namespace = _a_text(client.fully_qualified_namespace, "fully_qualified_namespace")
        tls = config.use_tls
        if not isinstance(tls, bool):
            raise TypeError(f"use_tls is {tls!r}, neither true nor false")
        named = urlsplit(f"//{namespace}")
        hostname = _a_text(named.hostname, "the host in fully_qualified_namespace")
        over_websocket = config.transport_type.name == _WEBSOCKETS
        usual = AMQPS_PORT if tls else named.port or AMQP_PORT
        if over_websocket:
            usual = WEBSOCKET_PORT
        host, port = hostname, usual
        if config.custom_endpoint_address:
            custom = urlsplit(_a_text(config.custom_endpoint_address, "custom_endpoint_address"))
            host = _a_text(custom.hostname, "the host in custom_endpoint_address")
            port = custom.port or (WEBSOCKET_PORT if over_websocket else AMQPS_PORT)
        return cls(
            host=host,
            port=port,
            namespace=namespace,
            hostname=hostname,
            transport=Transport.WEBSOCKET if over_websocket else Transport.AMQP,
            tls=tls,
            credential=_a_credential(sdk_internals.client_credential(client)),
            ca_file=config.connection_verify,
            context=_a_context(config.ssl_context),
            proxy=_a_proxy(config.http_proxy),
        )

    def audience(self, path: str) -> str:
        """Return the audience of an entity's token."""
        return f"sb://{self.namespace}/{path}"

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context, None without TLS. Reads the trusted certificates.

        Raises:
            WireUnavailableError: they cannot be read.
        """
        if not self.tls:
            return None
        if self.context is not None:
            return self.context
        trusted = self.ca_file or certifi.where()
        try:
            return ssl.create_default_context(cafile=trusted)
        except (OSError, ssl.SSLError) as error:
            raise WireUnavailableError(f"the certificates to trust, {trusted}, cannot be read: {error}") from error

    def __str__(self) -> str:
        return f"{self.hostname} ({self.host}:{self.port}, {self.transport})"


def _a_text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {value!r}, not a name")
    return value


def _a_credential(credential: Any) -> Any:
    if any(hasattr(credential, name) for name in ("get_token", "named_key", "signature")):
        return credential
    raise ValueError(f"a credential of type {type(credential).__name__} gives neither a token, a key nor a signature")


def _a_context(context: Any) -> ssl.SSLContext | None:
    if context is None or isinstance(context, ssl.SSLContext):
        return context
    raise ValueError(f"ssl_context is a {type(context).__name__}")


def _a_proxy(proxy: dict[str, Any] | None) -> Proxy | None:
    if not proxy:
        return None
    host = _a_text(proxy["proxy_hostname"], "proxy_hostname")
    port = proxy.get("proxy_port")
    address = f"{host}:{port}" if port else host
    return Proxy(
        url=address if "://" in address else f"http://{address}",
        username=proxy.get("username"),
        password=proxy.get("password"),
    )
