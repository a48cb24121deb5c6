"""The way to a namespace: its address and settings, tokens, TLS, sockets and their reads.

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

A long read is handled in pieces, one for each turn of the event loop. A socket hands over up to 256 KB together,
hundreds of messages, whose handling takes many milliseconds. In a loop that serves clients, a drain or a flood must not
delay the others' sends: they get their turn between two pieces. Pieces cost a tenth to a third more CPU for a message,
so other loops handle a read together.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import inspect
import ssl
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus, urlsplit
from weakref import WeakKeyDictionary

import aiohttp
import certifi
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.errors import WireAuthenticationError, WireConnectionError, WireUnavailableError
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.amqp_client.wire_errors import SOCKET_ERROR


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
            return sign(audience, named[0], named[1], now + KEY_SECONDS)
        if (signature := getattr(credential, "signature", None)) is not None:
            return CbsToken(signature, SAS, _expiry_of(signature, now))
        return await _request_token(credential, audience)
    except Exception as error:  # azure-identity and callers' credentials raise any error
        raise WireAuthenticationError(
            f"{type(credential).__name__} gave no token for {audience}: {type(error).__name__}: {error}"
        ) from error


def sign(audience: str, key_name: str, key: str, expires_at: float) -> CbsToken:
    """Sign the audience with HMAC-SHA256 over its encoded form, a line feed and the expiry."""
    resource, expiry = quote_plus(audience), str(int(expires_at))
    digest = hmac.digest(key.encode(), f"{resource}\n{expiry}".encode(), sha256)
    signature = quote_plus(b64encode(digest))
    text = f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={quote_plus(key_name)}"
    return CbsToken(text, SAS, float(expiry))


async def _request_token(credential: Any, audience: str) -> CbsToken:
    """Request a token as the SDK does: connection strings' keys by audience, others by the Service Bus scope."""
    kind = sdk_internals.token_type(credential) or JWT
    given = credential.get_token(audience if kind == SAS else SCOPE)
    if inspect.isawaitable(given):
        given = await given
    return CbsToken(_text(given.token), kind, float(given.expires_on))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _expiry_of(signature: str, now: float) -> float:
    for part in signature.split("&"):
        name, _, value = part.partition("=")
        if name == "se":
            return float(value)
    return now + _UNKNOWN_LIFE


# -- sockets ----------------------------------------------------------------------------------------------------------


HIGH_WATER: Final = 512 * 1024
LOW_WATER: Final = 128 * 1024
"""Unwritten bytes at which a connection's senders pause, and at which they continue."""
SUBPROTOCOL: Final = "AMQPWSB10"
_PIECE_BYTES: Final = 256 * 1024
_CLOSE_SECONDS: Final = 2.0

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
            timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS),
            ssl=await _tls_context(endpoint) or True,
            proxy=proxy.url if proxy else None,
            proxy_headers=proxy_authorization(proxy) if proxy else None,
        )
    except BaseException:
        await session.close()
        raise
    WebSocketTransport(session, socket, protocol()).start()


def proxy_authorization(proxy: Proxy) -> dict[str, str] | None:
    """Return the header that names the proxy's user; None without one."""
    if not (proxy.username or proxy.password):
        return None
    user = f"{proxy.username or ''}:{proxy.password or ''}".encode()
    return {"Proxy-Authorization": f"Basic {b64encode(user).decode()}"}


class WebSocketTransport(asyncio.Transport):
    """A WebSocket as the transport of `protocol`. Two tasks move the bytes; both end with the WebSocket."""

    def __init__(
        self, session: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse, protocol: asyncio.Protocol
    ) -> None:
        super().__init__()
        self._session = session
        self._socket = socket
        self._protocol = protocol
        self._pending = bytearray()
        self._wake = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._is_closing = False
        self._has_paused = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Call `connection_made`, and start the tasks."""
        self._protocol.connection_made(self)
        self._task = asyncio.create_task(self._carry(), name="carry a WebSocket")

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._is_closing:
            return
        self._pending += data
        self._wake.set()
        if not self._has_paused and len(self._pending) > HIGH_WATER:
            self._has_paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """Write the pending bytes, then close; a peer that does not read is cut after a while."""
        if not self._is_closing:
            self._is_closing = True
            self._wake.set()
            asyncio.get_running_loop().call_later(_CLOSE_SECONDS, self.abort)

    def abort(self) -> None:
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore the limits: this module has its own."""

    async def _carry(self) -> None:
        writing = asyncio.create_task(self._write_all(), name="write a WebSocket")
        lost: Exception | None = None
        try:
            await self._read_all()
        except (OSError, aiohttp.ClientError) as error:
            lost = error
        except asyncio.CancelledError:  # only abort cancels this task
            pass
        finally:
            self._is_closing = True
            writing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writing
            await self._session.close()
            self._protocol.connection_lost(lost)

    async def _read_all(self) -> None:
        while True:
            await self._may_read.wait()
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                return  # closed, broken, or text, which AMQP never uses
            self._protocol.data_received(message.data)

    async def _write_all(self) -> None:
        try:
            while self._pending or not self._is_closing:
                if not self._pending:
                    await self._wake.wait()
                    self._wake.clear()
                    continue
                piece = bytes(memoryview(self._pending)[:_PIECE_BYTES])
                del self._pending[: len(piece)]
                await self._socket.send_bytes(piece)
                self._let_protocol_write()
            await self._socket.close()
        except (OSError, aiohttp.ClientError):  # the reader ends for the same reason and reports it
            return

    def _let_protocol_write(self) -> None:
        if self._has_paused and len(self._pending) <= LOW_WATER:
            self._has_paused = False
            self._protocol.resume_writing()


# -- reads in pieces --------------------------------------------------------------------------------------------------


PIECE: Final = 8 * 1024
"""Bytes of a piece: some six messages of 1 KB, or a thousand outcomes: one or two milliseconds of a drain."""

_clients: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, int]] = WeakKeyDictionary()
"""The number of clients that each loop serves."""


def count_clients(change: int) -> None:
    """Count clients of the running loop that come or go."""
    loop = asyncio.get_running_loop()
    _clients[loop] = _clients.get(loop, 0) + change


def serves_clients() -> bool:
    """Return whether the running loop serves clients, so that long work is done in portions."""
    return bool(_clients.get(asyncio.get_running_loop()))


class Pieces:
    """One connection's reads.

    Args:
        handle: gets the pieces in order.
        pause: stops the socket's reads, also twice.
        resume: allows them again.
        size: bytes of a piece.
    """

    __slots__ = ("_handle", "_is_held", "_pause", "_rest", "_resume", "_size")

    def __init__(
        self,
        handle: Callable[[bytes], None],
        *,
        pause: Callable[[], None],
        resume: Callable[[], None],
        size: int = PIECE,
    ) -> None:
        self._handle = handle
        self._pause = pause
        self._resume = resume
        self._size = size
        self._rest = b""
        self._is_held = False

    def hold(self, held: bool) -> None:
        """Stop the socket's reads for another reason than a turn, or allow them again."""
        self._is_held = held
        if held:
            self._pause()
        elif not self._rest:
            self._resume()

    def feed(self, data: bytes) -> None:
        """Handle a read; a long one beside clients in several turns."""
        if self._rest:
            self._rest += data  # a read that was under way when reading was paused
        elif len(data) <= self._size or not serves_clients():
            self._handle(data)
        else:
            self._rest = data
            self._pause()
            self._next()

    def finish(self) -> None:
        """Handle the rest now: the connection has ended, but what it brought counts."""
        rest, self._rest = self._rest, b""
        if rest:
            self._handle(rest)

    def _next(self) -> None:
        rest = self._rest
        if not rest:
            return
        self._rest = rest[self._size :]
        if self._rest:
            asyncio.get_running_loop().call_soon(self._next)
        elif not self._is_held:
            self._resume()
        self._handle(rest[: self._size])
