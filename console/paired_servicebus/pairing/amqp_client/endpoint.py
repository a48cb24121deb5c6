"""The way to a namespace: its address and settings, tokens, TLS and sockets, and its failures as errors of ours.

Each error names the action, the entity and the peer's text, and has the AMQP condition. The core decides which of them
count (verdict).

The address is read from a caller's `azure.servicebus.aio.ServiceBusClient`, through sdk_internals.py. A missing or
unexpected attribute (compared with 7.15) is a `WireUnavailableError` with one sentence, and the caller's client is then
used through the SDK. A proxy's password and the credential are never in a repr.

A token comes from a key, a ready signature or Microsoft Entra ID. The credential is read again for each token, so that
a key, signature or secret changed in place takes effect with the next renewal or connection. Tokens are never logged.

A socket is TCP, TLS, or a WebSocket with the interface of a transport. An HTTP proxy serves only WebSockets, as in the
SDK, which uses them whenever a proxy is set. TCP through a proxy's CONNECT is not supported. aiohttp does the
handshakes of WebSocket and proxy.

A client's connections share one TLS context. The SDK makes one for each connection, also for plain ones, and loads all
certificate authorities into it. That is most of the cost of opening a link: 20 ms of blocked event loop and 700 kB of
memory. A given context is shared, and trusts the same authorities.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import certifi
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.errors import (
    WireAuthenticationError,
    WireConnectionError,
    WireError,
    WireLinkError,
    WireOutcomeError,
    WireRequestError,
    WireUnavailableError,
)
from paired_servicebus.pairing import sdk_internals
from servicebus_amqp.access import sign
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    Accepted,
    DeliveryState,
    Error,
    Modified,
    Rejected,
    Released,
)
from servicebus_amqp.transport import CLOSE_SECONDS, SUBPROTOCOL, WEBSOCKET_PATH, WebSocketTransport

SOCKET_ERROR: Final = "amqp:socket-error"
DETACH_FORCED: Final = "amqp:link:detach-forced"
CONNECTION_FORCED: Final = "amqp:connection:forced"
SERVER_BUSY: Final = "com.microsoft:server-busy"
INTERNAL: Final = "amqp:internal-error"
REFUSES_US: Final = frozenset(
    {
        "amqp:not-allowed",
        "amqp:not-implemented",
        "amqp:invalid-field",
        "amqp:decode-error",
        "amqp:frame-size-too-small",
        "amqp:connection:framing-error",
    }
)
"""Conditions that reject our protocol. A connection that they end before it has served anything never will."""
_IDLE_WORDS: Final = ("idle", "inactive", "active links")
"""Words in the texts of the service; the conditions are those of every forced end."""
_TOKEN_CONDITIONS: Final = {404: "amqp:not-found", 408: "com.microsoft:timeout", 429: SERVER_BUSY, 503: SERVER_BUSY}
"""The conditions of refused tokens whose answer names none, by status; other failures of the namespace are INTERNAL."""


def failure_of(state: DeliveryState | None, path: str) -> WireError | None:
    """Return the reason why a message was not accepted; None if it was."""
    if state is ACCEPTED or isinstance(state, Accepted):
        return None
    if isinstance(state, Rejected):
        return WireOutcomeError(f"{path} rejected the message: {format_error(state.error)}", condition_of(state.error))
    if isinstance(state, Released):
        return WireOutcomeError(f"{path} released the message: it accepted no responsibility for it")
    if isinstance(state, Modified):
        return WireOutcomeError(f"{path} returned the message as modified")
    return WireOutcomeError(f"{path} settled the message without an outcome ({state!r})")


def link_failure(path: str, error: Error | None, *, refused: bool = False) -> WireLinkError:
    """Return the error of a refused or detached link."""
    event = "refused a link" if refused else "detached a link"
    return WireLinkError(f"{path} {event}: {format_error(error)}", condition_of(error), peers_error=error)


def connection_failure(where: str, error: Error | None) -> WireConnectionError:
    """Return the error of a connection that the peer closed, or that broke a rule of the protocol."""
    return WireConnectionError(f"{where} closed the connection: {format_error(error)}", condition_of(error))


def token_failure(audience: str, status: int, description: str, condition: str | None) -> WireError:
    """Return the error of a refused token: the credential's fault, or the namespace's own by its condition."""
    text = f"the token for {audience} was refused: {status} {description}"
    condition = condition or _TOKEN_CONDITIONS.get(status, INTERNAL if status >= 500 else None)
    if status >= 500:
        return WireRequestError(text, condition, status=status)
    return WireAuthenticationError(text, condition)


def is_idle_detach(error: BaseException) -> bool:
    """Return whether a link or a connection ended only because it was idle for minutes, which is expected."""
    return (
        isinstance(error, WireLinkError | WireConnectionError)
        and error.condition in (DETACH_FORCED, CONNECTION_FORCED)
        and any(word in str(error).lower() for word in _IDLE_WORDS)
    )


def condition_of(error: Error | None) -> str | None:
    return None if error is None else str(error.condition)


def format_error(error: Error | None) -> str:
    """Format an error of the peer in one line."""
    if error is None:
        return "no reason given"
    description = " ".join(error.description.split())
    return f"{error.condition}: {description}" if description else str(error.condition)


# -- failures to connect that no retry mends: a certificate that is not trusted, a host without an address ------------


_UNKNOWN: Final = frozenset(getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name))
_LINKS: Final = ("__cause__", "__context__", "inner_exception")


def is_untrusted(error: BaseException) -> bool:
    """Return whether it failed because the peer's certificate is not trusted."""
    return any(isinstance(one, ssl.SSLCertVerificationError) for one in _causes(error))


def is_unknown_host(error: BaseException) -> bool:
    """Return whether it failed because the host has no address. A resolver that does not answer is another matter."""
    return any(isinstance(one, socket.gaierror) and one.errno in _UNKNOWN for one in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, as Python and the SDK chain errors."""
    left, seen = [error], set[int]()
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        causes = (getattr(one, name, None) for name in _LINKS)
        left += [cause for cause in causes if isinstance(cause, BaseException)]


def tls_context(ca_file: str | Path | None = None) -> ssl.SSLContext:
    """Make a context for `ServiceBusClient(..., ssl_context=...)`; any number of clients may share it.

    Args:
        ca_file: the authorities to trust, as PEM; None: those of certifi, as in the SDK.

    Raises:
        OSError: the file cannot be read. ssl.SSLError: it contains no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca_file if ca_file is not None else certifi.where())
    return context


AMQPS_PORT: Final = 5671
AMQP_PORT: Final = 5672
WEBSOCKET_PORT: Final = 443
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
        try:
            return tls_context(self.ca_file)
        except (OSError, ssl.SSLError) as error:
            trusted = self.ca_file or certifi.where()
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


# -- tokens -----------------------------------------------------------------------------------------------------------


SAS: Final = "servicebus.windows.net:sastoken"
JWT: Final = "jwt"
SCOPE: Final = "https://servicebus.azure.net//.default"
KEY_SECONDS: Final = 3600
"""Lifetime of a token signed here."""
_EARLY_SECONDS: Final = 300
_EARLY_SHARE: Final = 0.1
_UNKNOWN_LIFE: Final = 3600
_SIGNED_UNTIL: Final = re.compile(r"\bse=(\d+)")


@dataclass(frozen=True, slots=True)
class CbsToken:
    """expires_at: seconds since 1970. kind: the token type of `$cbs`."""

    text: str = field(repr=False)
    kind: str
    expires_at: float

    def renew_at(self, now: float) -> float:
        """Return the time of renewal: five minutes early, a tenth of a long life, half of a short one."""
        life = max(0.0, self.expires_at - now)
        return self.expires_at - max(_EARLY_SHARE * life, min(_EARLY_SECONDS, life / 2))


async def token_for(credential: Any, audience: str, *, now: float) -> CbsToken:
    """Return a token for an audience such as `sb://contoso.servicebus.windows.net/orders`.

    credential: as for `ServiceBusClient`. A `named_key` signs, a `signature` is used unchanged, and `get_token` is
    called, and awaited if it is a coroutine.

    Raises:
        WireAuthenticationError: the credential returned no token; chained to its own error.
    """
    try:
        if (named := getattr(credential, "named_key", None)) is not None:
            expires_at = float(int(now) + KEY_SECONDS)
            return CbsToken(sign(audience, named[0], named[1], expires_at), SAS, expires_at)
        if (signature := getattr(credential, "signature", None)) is not None:
            return CbsToken(signature, SAS, expiry_of(signature) or now + _UNKNOWN_LIFE)
        return await _request_token(credential, audience)
    except Exception as error:  # azure-identity and callers' credentials raise any error
        raise WireAuthenticationError(
            f"{type(credential).__name__} gave no token for {audience}: {type(error).__name__}: {error}"
        ) from error


async def _request_token(credential: Any, audience: str) -> CbsToken:
    """Request a token as the SDK does: connection strings' keys by audience, others by the Service Bus scope."""
    kind = sdk_internals.token_type(credential) or JWT
    given = credential.get_token(audience if kind == SAS else SCOPE)
    if inspect.isawaitable(given):
        given = await given
    return CbsToken(_text(given.token), kind, float(given.expires_on))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def expiry_of(signature: str) -> float | None:
    """Return when a ready signature expires, in seconds since 1970; None: it has no expiry."""
    ends = _SIGNED_UNTIL.search(signature)
    return float(ends[1]) if ends else None


# -- sockets ----------------------------------------------------------------------------------------------------------


HIGH_WATER: Final = 512 * 1024
LOW_WATER: Final = 128 * 1024
"""Unwritten bytes at which a connection's senders pause, and at which they continue."""

ProtocolFactory = Callable[[], asyncio.Protocol]


async def connect(endpoint: Endpoint, protocol: ProtocolFactory) -> None:
    """Connect, and pass the transport to a new protocol.

    Raises:
        WireConnectionError: no answer, or an answer that contradicts the certificates.
        WireUnavailableError: the answer is not AMQP over WebSockets.
    """
    try:
        if endpoint.transport is Transport.WEBSOCKET:
            await _websocket(endpoint, protocol)
        else:
            await asyncio.get_running_loop().create_connection(
                protocol,
                endpoint.host,
                endpoint.port,
                ssl=await _tls_context(endpoint),
                server_hostname=endpoint.host if endpoint.tls else None,
            )
    except aiohttp.WSServerHandshakeError as error:  # its own text contains the request's headers
        raise WireUnavailableError(f"{endpoint} takes no WebSocket: {error.status} {error.message}") from None
    except (OSError, aiohttp.ClientError) as error:
        raise WireConnectionError(f"{endpoint} cannot be connected: {_reason(error)}", SOCKET_ERROR) from error


async def _tls_context(endpoint: Endpoint) -> ssl.SSLContext | None:
    """Read the TLS context in a thread, since certificates take tens of milliseconds."""
    return await asyncio.to_thread(endpoint.tls_context) if endpoint.tls else None


def _reason(error: BaseException) -> str:
    """Return a proxy's refusal without its headers, which contain the password."""
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the proxy answered {error.status} {error.message}"
    return str(error) or type(error).__name__


async def _websocket(endpoint: Endpoint, protocol: ProtocolFactory) -> None:
    scheme, proxy = ("wss" if endpoint.tls else "ws"), endpoint.proxy
    session = aiohttp.ClientSession()
    try:
        socket = await session.ws_connect(
            f"{scheme}://{endpoint.host}:{endpoint.port}{WEBSOCKET_PATH}",
            protocols=[SUBPROTOCOL],
            max_msg_size=0,
            compress=0,
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
            ssl=await _tls_context(endpoint) or True,
            proxy=proxy.url if proxy else None,
            proxy_headers=proxy_authorization(proxy) if proxy else None,
        )
    except BaseException:
        await session.close()
        raise
    errors = (OSError, aiohttp.ClientError)
    transport = WebSocketTransport(socket, protocol(), lambda: carrying.cancel(), errors=errors, release=session.close)
    carrying = asyncio.create_task(transport.run(), name="carry a WebSocket")
    await asyncio.sleep(0)  # the protocol has its transport then


def proxy_authorization(proxy: Proxy) -> dict[str, str] | None:
    """Return the header that names the proxy's user; None without one."""
    if not (proxy.username or proxy.password):
        return None
    user = f"{proxy.username or ''}:{proxy.password or ''}".encode()
    return {"Proxy-Authorization": f"Basic {b64encode(user).decode()}"}
