"""A namespace's answers: replies to requests, and failures as errors of ours, with the AMQP condition.

Each error names the action, the entity and the peer's text. The core decides which of them count (verdict).
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from paired_servicebus.core.errors import (
    WireAuthenticationError,
    WireConnectionError,
    WireError,
    WireLinkError,
    WireOutcomeError,
    WireRequestError,
)
from servicebus_amqp.encoding.message_sections import read_map, read_properties, read_value, split
from servicebus_amqp.encoding.messaging_types import (
    ACCEPTED,
    Accepted,
    DeliveryState,
    Error,
    Modified,
    Rejected,
    Released,
)
from servicebus_amqp.protocol_errors import DecodeError

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
_IDLE_WORDS: Final = ("idle", "inactive", "active links", "nothing passed")
"""Words in the texts of the service and of the sandbox; the conditions are those of every forced end."""
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


# -- replies to requests -----------------------------------------------------------------------------------------------


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


def read_reply(payload: bytes) -> tuple[Any, RequestReply]:
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
