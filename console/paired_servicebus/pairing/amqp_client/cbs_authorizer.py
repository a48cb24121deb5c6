"""The tokens of one line: shown to `$cbs` before a link of an entity is attached, and renewed as long as it has links.

One token per entity, as the SDK has it, so that keys of single entities work. What a token is made of belongs to
tokens.
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
"""Seconds that one renewal may take."""
_LOOK: Final = 60.0
"""Seconds between looks, so that a clock that was put right is noticed."""
_SOON: Final = 1.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Shown:
    """A token that was taken: when the next one is due, and when it ends itself."""

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
    """What the namespace has been shown, and when it is due again. failure: why the last renewal did not succeed."""

    def __init__(self, line: CbsConnection, clock: Callable[[], float]) -> None:
        self.failure: WireError | None = None
        self._line = line
        self._clock = clock
        self._shown: dict[str, _Shown] = {}
        self._showing: dict[str, asyncio.Future[None]] = {}
        self._is_renewing = False

    async def show(self, path: str) -> None:
        """Have the namespace let us into an entity, unless it does already. Raises WireError."""
        while (showing := self._showing.get(path)) is not None:
            await asyncio.wait((showing,))
        if self._is_due(path):
            showing = self._showing[path] = self._line.loop.create_future()
            try:
                await self._put(path)
            finally:
                del self._showing[path]
                showing.set_result(None)
        if not self._is_renewing:
            self._is_renewing = True
            self._line.start(self._renew(), name=f"renew tokens for {self._line.endpoint.hostname}")

    def forget(self, path: str) -> None:
        """A link of the entity has ended: its token is due, since it may be why."""
        if path in self._shown:
            self._shown[path].due = 0.0

    def _is_due(self, path: str) -> bool:
        return path not in self._shown or self._shown[path].due <= self._clock()

    async def _put(self, path: str) -> None:
        endpoint, now = self._line.endpoint, self._clock()
        audience = endpoint.audience(path)
        token = await token_for(endpoint.credential, audience, now=now)
        node = await self._line.requests(CBS)
        reply = await node.ask(_request(token, audience), token.text)
        if not reply.is_yes:
            raise token_failure(audience, reply.status, reply.description, reply.condition)
        self._shown[path] = _Shown(due=token.renew_at(now), expires_at=token.expires_at)

    async def _renew(self) -> None:
        """Renew what is due, for as long as the line lives; a failure is tried again, and said once."""
        while True:
            soonest = min((shown.due for shown in self._shown.values()), default=self._clock() + _LOOK)
            await asyncio.sleep(max(_SOON, min(_LOOK, soonest - self._clock())))
            in_use = self._line.paths_in_use()
            for path in [path for path in self._shown if self._is_due(path)]:
                if path not in in_use:
                    del self._shown[path]
                    continue
                try:
                    await bounded(self._put(path), RENEWAL, f"the renewal of the token for {path}")
                    self.failure = None
                except (WireError, TimeoutError) as error:
                    self._failed(path, error)

    def _failed(self, path: str, error: Exception) -> None:
        now, shown = self._clock(), self._shown[path]
        left = shown.expires_at - now
        shown.due = now + (min(_LOOK, max(_SOON, left / 4)) if left > 0 else _LOOK)
        if self.failure is None:
            log.warning("the token for %s was not renewed, and is tried again: %s", path, error)
            self.failure = error if isinstance(error, WireError) else WireError(str(error))


def _request(token: CbsToken, audience: str) -> dict[str, object]:
    return {
        "operation": "put-token",
        "type": token.kind,
        "name": audience,
        "expiration": Timestamp(round(1000 * token.expires_at)),
    }
