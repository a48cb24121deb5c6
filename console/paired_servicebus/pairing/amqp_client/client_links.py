"""The links of a connection for their owners, and the requests and tokens over them.

A link is a sender to an entity, or a receiver from one. It lives once and ends with one call of `on_lost`, or with none
after the owner's detach. The owner tracks unsettled messages: a message of a lost link may have been accepted or not.
Callbacks run inside the socket's read and must neither block nor raise.

Requests go to one node, `$cbs` or `{entity}/$management`, over a pair of links. Several may run concurrently; a reply
names its request by correlation-id. The credit for replies is renewed here.

A token comes from a key, a ready signature or Microsoft Entra ID. The credential is read again for each token, so that
a key, signature or secret changed in place takes effect with the next renewal or connection. Tokens are never logged. A
token is put to `$cbs` before an entity's link is attached, and renewed while the connection has links. Each entity has
its own token, as in the SDK, so that keys of single entities work.
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
import logging
from base64 import b64encode
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Protocol
from urllib.parse import quote_plus

from paired_servicebus.core.errors import WireAuthenticationError, WireConnectionError, WireError
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.amqp_client.endpoint import Endpoint
from paired_servicebus.pairing.amqp_client.wire_errors import failure_of, token_failure
from paired_servicebus.pairing.runtime.deadlines import CLOSING, bounded
from servicebus_amqp.encoding.amqp_types import Timestamp
from servicebus_amqp.encoding.message_sections import (
    Properties,
    Sections,
    read_map,
    read_properties,
    read_value,
    split,
    write_application_properties,
    write_properties,
    write_value,
)
from servicebus_amqp.encoding.messaging_types import ACCEPTED, DeliveryState, Source, Target
from servicebus_amqp.protocol.link_receiver import ReceiverLink
from servicebus_amqp.protocol.link_sender import Payload, SenderLink
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived, FlowReceived, LinkEnd
from servicebus_amqp.protocol_errors import DecodeError

MIB: Final = 1024 * 1024
STANDARD_BATCH: Final = 256 * 1024
_BATCH_SIZE: Final = "com.microsoft:max-message-batch-size"

OnOutcome = Callable[[DispositionReceived], None]
OnDelivery = Callable[[DeliveryReceived], None]
OnLost = Callable[[WireError], None]
OnRoom = Callable[[], None]
OnFlow = Callable[[FlowReceived], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachFields:
    """An attach that is passed on from another connection; a field left out is ours.

    passed_on: as of `Session.attach_sender`, such as settle_modes, properties and desired_capabilities.
    """

    name: str | None = None
    source: Source | None = None
    target: Target | None = None
    passed_on: dict[str, Any] = field(default_factory=dict)


OURS: Final = AttachFields()


def _ignore(error: WireError) -> None:
    """Ignore the end of a link that its owner detached."""


class OwningConnection(Protocol):
    """The connection of links, requests and tokens, a `ClientConnection`."""

    endpoint: Endpoint
    loop: asyncio.AbstractEventLoop
    will_write: bool
    is_writable: bool
    asks: int

    def touch(self) -> None: ...
    def collect(self, size: int) -> None: ...
    def forget(self, link: LinkEnd) -> None: ...
    async def attach_sender(
        self, path: str, *, on_outcome: OnOutcome, on_lost: OnLost, reply_address: str | None = None
    ) -> WireSender: ...
    async def attach_receiver(
        self, path: str, *, on_delivery: OnDelivery, on_lost: OnLost, reply_address: str | None = None
    ) -> WireReceiver: ...
    async def requests(self, node: str) -> RequestChannel: ...
    def forget_requests(self, requests: RequestChannel) -> None: ...
    def paths_in_use(self) -> set[str]: ...
    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> None: ...


class _WireLink:
    """The common part of both ends, made only by a connection."""

    __slots__ = ("_answered", "_ended", "_on_lost", "failure", "is_established", "line", "link", "passes_flow", "path")
    link: SenderLink | ReceiverLink

    def __init__(self, line: OwningConnection, path: str, on_lost: OnLost) -> None:
        self.line = line
        self.path = path
        self.failure: WireError | None = None
        self.passes_flow: OnFlow | None = None
        """Gets the peer's flows, for an owner that passes them on."""
        self._on_lost = on_lost
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_established = False
        self._ended: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}, {'up' if self.is_up else 'down'}>"

    @property
    def is_up(self) -> bool:
        return self.failure is None and self._ended is None and self.link.is_attached

    @property
    def link_name(self) -> str:
        """The name of the link in the namespace."""
        return self.link.name

    def drop(self, error: WireError) -> None:
        """Detach immediately, without a wait, and call `on_lost` with `error`."""
        if self.failure is None and self._ended is None:
            self.link.detach()
            self.line.touch()
            self.line.forget(self.link)
            self.end(error)

    async def detach(self, timeout: float = CLOSING) -> None:
        """Detach cleanly, within `timeout` seconds; never raises and never calls `on_lost`."""
        if self.failure is not None or self._ended is not None:
            return
        self._ended = asyncio.get_running_loop().create_future()
        self.link.detach()
        self.line.touch()
        await asyncio.wait((self._ended,), timeout=timeout)
        self.line.forget(self.link)

    # called by the connection

    async def established(self) -> None:
        """Wait for the peer's answer to the attach. Raises WireError for a refusal."""
        await self._answered
        if self.failure is not None:
            raise self.failure
        self.is_established = True

    def answer(self) -> None:
        """Handle an accepted attach."""
        if not self._answered.done():
            self._answered.set_result(None)

    def on_flow(self, event: FlowReceived) -> None:
        """Handle a flow of the peer."""
        if self.passes_flow is not None:
            self.passes_flow(event)

    def end(self, error: WireError) -> None:
        """Handle the end of the link; call `on_lost`, once."""
        if self._ended is not None:
            if not self._ended.done():
                self._ended.set_result(None)
        elif self.failure is None:
            self.failure = error
            self.answer()
            if self.is_established:
                self._on_lost(error)


class WireSender(_WireLink):
    """Sends encoded messages to one entity; each gets one outcome, by its tag."""

    __slots__ = ("on_room",)
    link: SenderLink

    def __init__(self, line: OwningConnection, path: str, on_lost: OnLost, on_room: OnRoom | None) -> None:
        super().__init__(line, path, on_lost)
        self.on_room = on_room

    def on_flow(self, event: FlowReceived) -> None:
        super().on_flow(event)
        if self.on_room is not None and event.credit:
            self.on_room()

    @property
    def max_message_size(self) -> int:
        """Bytes of one message, by the entity's attach."""
        return self.link.max_message_size or MIB

    @property
    def max_batch_size(self) -> int:
        """Bytes of a whole batch; by the SDK's rule if the entity's attach gives none."""
        remote = self.link.remote
        given = (remote.properties or {}).get(_BATCH_SIZE) if remote is not None else None
        if isinstance(given, int) and given > 0:
            return given
        return MIB if self.max_message_size >= MIB else STANDARD_BATCH

    @property
    def room(self) -> int:
        """Messages that would leave immediately."""
        is_open = self.failure is None and self._ended is None and self.line.is_writable
        return self.link.credit if is_open else 0  # 0 on a detached link

    def send(self, payload: Payload, tag: bytes, *, message_format: int = 0) -> None:
        """Send one encoded message, whole or in pieces; beyond `room` it waits in memory, in order.

        tag: at most 32 bytes, unique among unsettled messages. message_format: BATCH_FORMAT for a batch.

        Raises:
            StateError: the link is gone.
            EncodeError: the tag is too long.
        """
        self.link.send(payload, tag=tag, message_format=message_format)
        line = self.line
        line.collect(len(payload) if isinstance(payload, bytes) else sum(map(len, payload)))
        if not line.will_write:
            line.touch()


class WireReceiver(_WireLink):
    """Receives from one entity with peek-lock; the tag of a delivery is its lock token, little-endian bytes."""

    __slots__ = ("_drained", "_granted")
    link: ReceiverLink

    def __init__(self, line: OwningConnection, path: str, on_lost: OnLost) -> None:
        super().__init__(line, path, on_lost)
        self._granted = False
        self._drained: asyncio.Future[None] | None = None

    @property
    def is_drained(self) -> bool:
        """Whether the namespace has answered the drain of `detach`: no message is on its way."""
        return self._drained is not None and self._drained.done() and self.failure is None

    @property
    def credit(self) -> int:
        """Messages that the namespace may still send."""
        return self.link.credit

    def grant(self, credit: int, *, drain: bool = False, properties: dict[Any, Any] | None = None) -> None:
        """Let the namespace send `credit` more messages; messages in flight arrive as well.

        drain: it sends what it has and returns the rest of the credit; the flow with its answer has `drain` too.
        """
        self._granted = True
        self.link.flow(credit, drain=drain, properties=properties)
        self.line.touch()

    async def detach(self, timeout: float = CLOSING) -> None:
        """Withdraw the credit, wait for messages in flight, then detach; each step within `timeout` seconds.

        `on_delivery` gets these messages while it can still release them: a message on a detached link stays locked
        until its lock expires. Never raises and never calls `on_lost`.
        """
        self._on_lost = _ignore
        if self.is_up and self._granted:
            self._drained = asyncio.get_running_loop().create_future()
            self.link.flow(0, drain=True)
            self.line.touch()
            await asyncio.wait((self._drained,), timeout=timeout)
        await super().detach(timeout)

    def settle(self, deliveries: int | range, state: DeliveryState, *, settled: bool = True) -> None:
        """Settle deliveries by their ids; neighbours with equal states share a frame.

        settled: final. Otherwise the namespace answers each with its own outcome, through `on_settled`.

        Raises:
            EncodeError: the state does not fit a frame.
        """
        self.link.settle(deliveries, state, settled=settled)
        line = self.line
        if not line.will_write:
            line.touch()

    # called by the connection

    def on_flow(self, event: FlowReceived) -> None:
        super().on_flow(event)
        if event.drain:
            self._end_drain()

    def _end_drain(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def end(self, error: WireError) -> None:
        super().end(error)
        self._end_drain()


# -- requests ---------------------------------------------------------------------------------------------------------


_CREDIT: Final = 100
_STATUS: Final = ("statusCode", "status-code")
_DESCRIPTION: Final = ("statusDescription", "status-description")
_CONDITION: Final = ("errorCondition", "error-condition")


@dataclass(frozen=True, slots=True)
class RequestReply:
    """status: 200 to 299 for success. condition: AMQP's, or None. body: the value, None for an empty one."""

    status: int
    description: str
    condition: str | None
    body: Any

    @property
    def is_yes(self) -> bool:
        return 200 <= self.status < 300


class RequestChannel:
    """The pair of links to one node. Open it once; if one link is lost both are, and all requests fail."""

    def __init__(self, line: OwningConnection, node: str) -> None:
        self.node = node
        self.failure: WireError | None = None
        self._line = line
        self._sender: WireSender | None = None
        self._receiver: WireReceiver | None = None
        self._pending: dict[str, asyncio.Future[RequestReply]] = {}
        self._last = 0

    async def open(self) -> None:
        """Attach both links. Raises WireError."""
        line, node = self._line, self.node
        self._receiver = await line.attach_receiver(
            node, on_delivery=self._on_delivery, on_lost=self._on_lost, reply_address=node
        )
        self._receiver.grant(_CREDIT)
        try:
            self._sender = await line.attach_sender(
                node, on_outcome=self._on_outcome, on_lost=self._on_lost, reply_address=node
            )
        except BaseException as error:
            self._on_lost(WireError(f"the links to {node} were not both attached: {error}"))
            raise

    async def ask(self, properties: dict[str, Any], body: Any) -> RequestReply:
        """Send one request. The caller sets a deadline. Raises WireError if no reply can arrive."""
        if self.failure is not None or self._sender is None:
            raise WireConnectionError(f"no requests can be sent to {self.node}: {self.failure}") from self.failure
        self._last += 1
        number = str(self._last)
        request = Sections(
            properties=write_properties(Properties(message_id=number, reply_to=self.node)),
            application_properties=write_application_properties(properties),
            body=write_value(body),
        )
        answered = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            self._line.asks += 1
            self._sender.send(request.join(), number.encode())
            reply: RequestReply = await answered
            return reply
        finally:
            self._pending.pop(number, None)

    def _on_delivery(self, event: DeliveryReceived) -> None:
        receiver = self._receiver
        if receiver is not None:
            receiver.settle(event.delivery_id, ACCEPTED)
            if receiver.credit <= _CREDIT // 2:
                receiver.grant(_CREDIT)
        try:
            number, reply = _read(event.payload)
        except DecodeError as error:
            self._on_lost(WireError(f"{self.node} sent an unreadable reply: {error}"))
            return
        answered = self._pending.get(number) if isinstance(number, str) else None
        if answered is not None and not answered.done():
            answered.set_result(reply)

    def _on_outcome(self, event: DispositionReceived) -> None:
        failure = failure_of(event.state, self.node)
        answered = self._pending.get(event.tag.decode())
        if failure is not None and answered is not None and not answered.done():
            answered.set_exception(failure)

    def _on_lost(self, error: WireError) -> None:
        if self.failure is None:
            self.failure = error
            self._line.forget_requests(self)
            for answered in self._pending.values():
                if not answered.done():
                    answered.set_exception(error)
            for link in (self._sender, self._receiver):
                if link is not None:
                    link.drop(error)


def _read(payload: bytes) -> tuple[Any, RequestReply]:
    """Return a reply and the id of its request. Raises DecodeError."""
    sections = split(payload)
    properties = read_map(sections.application_properties)
    status = _first(properties, _STATUS)
    if not isinstance(status, int):
        raise DecodeError(f"it carries no status, only {', '.join(map(str, properties)) or 'nothing'}")
    condition = _first(properties, _CONDITION)
    reply = RequestReply(
        status=int(status),
        description=str(_first(properties, _DESCRIPTION) or ""),
        condition=None if condition is None else str(condition),
        body=read_value(sections.body) if sections.body else None,
    )
    return read_properties(sections.properties).correlation_id, reply


def _first(properties: dict[Any, Any], names: tuple[str, ...]) -> Any:
    return next((properties[name] for name in names if name in properties), None)


# -- tokens -----------------------------------------------------------------------------------------------------------


log = logging.getLogger(__name__)

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


CBS: Final = "$cbs"
NAMESPACE: Final = ""
"""The path of the token that serves every entity, if the credential is the namespace's."""
MAX_TOKENS: Final = 900
"""Entities with a token of their own on one connection; the service accepts 1,000 tokens on one."""
RENEWAL: Final = 30.0
"""Seconds for one renewal."""
_MAX_CHECK_SECONDS: Final = 60.0
"""Maximum seconds between checks, so that a clock correction is noticed."""
_MIN_CHECK_SECONDS: Final = 1.0


@dataclass(slots=True)
class _AcceptedToken:
    """An accepted token: the time of its renewal, and its expiry."""

    due: float
    expires_at: float


class CbsAuthorizer:
    """The tokens that the namespace accepted, and their renewal. failure: the reason why the last renewal failed."""

    def __init__(self, line: OwningConnection, clock: Callable[[], float]) -> None:
        self.failure: WireError | None = None
        self._line = line
        self._clock = clock
        self._accepted: dict[str, _AcceptedToken] = {}
        self._pending: dict[str, asyncio.Future[None]] = {}
        self._is_renewing = False

    async def authorize(self, path: str) -> None:
        """Put a token for an entity unless the present one is valid. Raises WireError.

        Beyond MAX_TOKENS entities the namespace's token serves.
        """
        path = self._holder(path)
        while (pending := self._pending.get(path)) is not None:
            await asyncio.wait((pending,))
        if self._is_due(path):
            pending = self._pending[path] = self._line.loop.create_future()
            try:
                await self._put(path)
            finally:
                del self._pending[path]
                pending.set_result(None)
        if not self._is_renewing:
            self._is_renewing = True
            self._line.start(self._renew(), name=f"renew tokens for {self._line.endpoint.hostname}")

    def forget(self, path: str) -> None:
        """Mark the token of an entity as due because one of its links ended, possibly for it."""
        holder = self._holder(path)
        if holder in self._accepted:
            self._accepted[holder].due = 0.0

    def _holder(self, path: str) -> str:
        """Return the path whose token serves an entity."""
        has_own = path in self._accepted or path in self._pending
        return path if has_own or len(self._accepted) < MAX_TOKENS else NAMESPACE

    def _is_due(self, path: str) -> bool:
        return path not in self._accepted or self._accepted[path].due <= self._clock()

    async def _put(self, path: str) -> None:
        endpoint, now = self._line.endpoint, self._clock()
        audience = endpoint.audience(path)
        token = await token_for(endpoint.credential, audience, now=now)
        node = await self._line.requests(CBS)
        reply = await node.ask(_request(token, audience), token.text)
        if not reply.is_yes:
            raise token_failure(audience, reply.status, reply.description, reply.condition)
        self._accepted[path] = _AcceptedToken(due=token.renew_at(now), expires_at=token.expires_at)

    async def _renew(self) -> None:
        """Renew due tokens while the connection lives; retry failures, and log the first of them."""
        while True:
            soonest = min((token.due for token in self._accepted.values()), default=self._clock() + _MAX_CHECK_SECONDS)
            await asyncio.sleep(max(_MIN_CHECK_SECONDS, min(_MAX_CHECK_SECONDS, soonest - self._clock())))
            in_use = self._line.paths_in_use()
            for path in [path for path in self._accepted if self._is_due(path)]:
                if path not in in_use and path != NAMESPACE:
                    del self._accepted[path]
                    continue
                try:
                    await bounded(self._put(path), RENEWAL, f"the renewal of the token for {path}")
                    self.failure = None
                except (WireError, TimeoutError) as error:
                    self._failed(path, error)

    def _failed(self, path: str, error: Exception) -> None:
        now, token = self._clock(), self._accepted[path]
        left = token.expires_at - now
        token.due = now + (
            min(_MAX_CHECK_SECONDS, max(_MIN_CHECK_SECONDS, left / 4)) if left > 0 else _MAX_CHECK_SECONDS
        )
        if self.failure is None:
            log.warning("the token for %s was not renewed; next try follows: %s", path, error)
            self.failure = error if isinstance(error, WireError) else WireError(str(error))


def _request(token: CbsToken, audience: str) -> dict[str, object]:
    return {
        "operation": "put-token",
        "type": token.kind,
        "name": audience,
        "expiration": Timestamp(round(1000 * token.expires_at)),
    }
