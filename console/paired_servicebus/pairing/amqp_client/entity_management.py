"""Typed requests of the pumps to an entity's `$management`. The service limits their size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from uuid import UUID

from paired_servicebus.core.errors import WireError
from paired_servicebus.pairing.amqp_client.reconnecting import REQUESTING, ReconnectingConnection
from servicebus_amqp.encoding.amqp_types import Array, Int, UInt

_PEEK_LOCK: Final = UInt(1)
Status = Literal["completed", "abandoned", "defered", "suspended"]
"""The service's own spelling; suspended means dead-lettered."""


@dataclass(frozen=True, slots=True)
class DeferredState:
    """A deferred message, received again and locked."""

    lock_token: UUID
    payload: bytes


async def peek(
    wire: ReconnectingConnection, path: str, *, from_number: int, count: int, timeout: float = REQUESTING
) -> list[bytes]:
    """Return at most `count` encoded messages from a sequence number on, unlocked; [] at the end. Raises WireError."""
    body = {"from-sequence-number": from_number, "message-count": Int(count)}
    reply = await wire.request(path, "com.microsoft:peek-message", body, timeout=timeout)
    return [_field(entry, "message", bytes, path) for entry in _listed(reply.body, "messages", path)]


async def receive_deferred(
    wire: ReconnectingConnection, path: str, numbers: Sequence[int], *, timeout: float = REQUESTING
) -> list[DeferredState]:
    """Receive and lock deferred messages by number, all or none: a missing or locked one fails the request.

    Raises:
        WireRequestError: com.microsoft:message-not-found, among others.
    """
    body = {"sequence-numbers": Array.of(int, numbers), "receiver-settle-mode": _PEEK_LOCK}
    reply = await wire.request(path, "com.microsoft:receive-by-sequence-number", body, timeout=timeout)
    return [
        DeferredState(_field(entry, "lock-token", UUID, path), _field(entry, "message", bytes, path))
        for entry in _listed(reply.body, "messages", path)
    ]


async def update_disposition(
    wire: ReconnectingConnection,
    path: str,
    tokens: Sequence[UUID],
    status: Status,
    *,
    reason: str = "",
    description: str = "",
    timeout: float = REQUESTING,
) -> None:
    """Settle locked messages by lock token; reason and description are for dead letters. Raises WireError."""
    body: dict[str, Any] = {"disposition-status": status, "lock-tokens": Array.of(UUID, tokens)}
    if status == "suspended":
        body |= {"deadletter-reason": reason, "deadletter-description": description}
    await wire.request(path, "com.microsoft:update-disposition", body, timeout=timeout)


async def renew_locks(
    wire: ReconnectingConnection, path: str, tokens: Sequence[UUID], *, timeout: float = REQUESTING
) -> list[int]:
    """Renew locks; return their ends in milliseconds since 1970, in the order of the tokens. Raises WireError."""
    body = {"lock-tokens": Array.of(UUID, tokens)}
    reply = await wire.request(path, "com.microsoft:renew-lock", body, timeout=timeout)
    return [int(until) for until in _listed(reply.body, "expirations", path)]


def _listed(body: Any, name: str, path: str) -> list[Any]:
    """Return a list or array of a reply; [] without a body."""
    if body is None:
        return []
    found = body.get(name) if isinstance(body, dict) else None
    if isinstance(found, Array):
        return list(found.values)
    if not isinstance(found, list):
        raise WireError(f"{path} answered without the list '{name}'")
    return found


def _field(entry: Any, name: str, kind: type, path: str) -> Any:
    found = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(found, kind):
        raise WireError(f"{path} answered with an entry whose '{name}' is a {type(found).__name__}")
    return found
