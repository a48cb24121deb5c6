"""Tokens for `$cbs` from a key, a ready signature or Microsoft Entra ID, and the times of their renewal.

The credential is read again for each token, so that a key, signature or secret changed in place takes effect with the
next renewal or connection. Tokens are never logged.

A token is put to `$cbs` before an entity's link is attached, and renewed while the connection has links. Each entity
has its own token, as in the SDK, so that keys of single entities work.
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

from paired_servicebus.core.errors import WireAuthenticationError, WireError
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.amqp_client.endpoint import Endpoint
from paired_servicebus.pairing.amqp_client.request_channel import RequestChannel
from paired_servicebus.pairing.amqp_client.wire_errors import token_failure
from paired_servicebus.pairing.runtime.deadlines import bounded
from servicebus_amqp.encoding.amqp_types import Timestamp

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


class CbsConnection(Protocol):
    """The connection that needs tokens, a `ClientConnection`."""

    endpoint: Endpoint
    loop: asyncio.AbstractEventLoop

    async def requests(self, node: str) -> RequestChannel: ...
    def paths_in_use(self) -> set[str]: ...
    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> None: ...


class CbsAuthorizer:
    """The tokens that the namespace accepted, and their renewal. failure: the reason why the last renewal failed."""

    def __init__(self, line: CbsConnection, clock: Callable[[], float]) -> None:
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
