"""Tokens of one connection: put to `$cbs` before an entity's link is attached, and renewed while it has links.

Each entity has its own token, as in the SDK, so that keys of single entities work. cbs_tokens makes the tokens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol

from paired_servicebus.core.errors import WireError
from paired_servicebus.pairing.amqp_client.cbs_tokens import CbsToken, token_for
from paired_servicebus.pairing.amqp_client.endpoint import Endpoint
from paired_servicebus.pairing.amqp_client.wire_errors import token_failure
from paired_servicebus.pairing.runtime.deadlines import bounded
from servicebus_amqp.encoding.amqp_types import Timestamp

CBS: Final = "$cbs"
RENEWAL: Final = 30.0
"""Seconds for one renewal."""
_MAX_CHECK_SECONDS: Final = 60.0
"""Maximum seconds between checks, so that a clock correction is noticed."""
_MIN_CHECK_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _AcceptedToken:
    """An accepted token: the time of its renewal, and its expiry."""

    due: float
    expires_at: float


class CbsReply(Protocol):
    """The reply to a put-token request, a `RequestReply`."""

    @property
    def status(self) -> int: ...
    @property
    def description(self) -> str: ...
    @property
    def condition(self) -> str | None: ...
    @property
    def is_yes(self) -> bool: ...


class CbsNode(Protocol):
    """The requests to `$cbs`, a `RequestChannel`."""

    async def ask(self, properties: dict[str, Any], body: Any) -> CbsReply: ...


class CbsConnection(Protocol):
    """The connection that needs tokens, a `ClientConnection`."""

    endpoint: Endpoint
    loop: asyncio.AbstractEventLoop

    async def requests(self, node: str) -> CbsNode: ...
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
        """Put a token for an entity unless the present one is valid. Raises WireError."""
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
        if path in self._accepted:
            self._accepted[path].due = 0.0

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
                if path not in in_use:
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
