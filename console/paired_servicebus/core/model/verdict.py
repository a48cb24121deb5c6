"""The classification of failures for failover (SPEC.md section 5): one function, one table.

An exception gets its kind from the names of its classes, so this module imports nothing of the SDK. The AMQP condition
refines it: a `WireError` carries one, the SDK's bare `ServiceBusError` has one in its text. Each kind has one verdict.
`_retryable` is ignored, since the SDK overwrites it.

Replaceable: pass another `exception -> Judgement` to the pairing.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from paired_servicebus.core.errors import WireError
from paired_servicebus.core.text.masking import masked


class Verdict(StrEnum):
    """A failure's consequence for the entity."""

    COUNTS = "counts"
    """Starts or continues a failover."""
    THROTTLED = "throttled"
    """Wait ten seconds, then retry; never a failover."""
    CALLERS = "callers"
    """The caller's own error; raised, without other consequence."""


class FailureKind(StrEnum):
    """The rows of the table."""

    TIMEOUT = "timeout"
    CONNECTION = "connection lost"
    COMMUNICATION = "communication error"
    INTERNAL = "internal server error"
    DETACHED = "link detached"
    UNEXPLAINED = "failure without a condition"
    DISABLED = "entity disabled"
    NOT_FOUND = "entity not found"
    FULL = "entity full"
    BUSY = "server busy"
    UNAUTHENTICATED = "not authenticated"
    UNAUTHORIZED = "not authorized"
    REVOKED = "authorization ended"
    """A link was detached because its token or its right ended; a message on its way may have arrived."""
    TOO_LARGE = "message too large"
    ARGUMENT = "bad argument"
    IMPOSSIBLE = "impossible message"
    """Answered as an internal error of the namespace, and explained by the message."""
    UNLISTED = "not listed"


VERDICTS: Final[dict[FailureKind, Verdict]] = {
    FailureKind.TIMEOUT: Verdict.COUNTS,
    FailureKind.CONNECTION: Verdict.COUNTS,
    FailureKind.COMMUNICATION: Verdict.COUNTS,
    FailureKind.INTERNAL: Verdict.COUNTS,
    FailureKind.DETACHED: Verdict.COUNTS,
    FailureKind.UNEXPLAINED: Verdict.COUNTS,
    FailureKind.DISABLED: Verdict.COUNTS,
    FailureKind.NOT_FOUND: Verdict.COUNTS,
    FailureKind.FULL: Verdict.COUNTS,
    FailureKind.BUSY: Verdict.THROTTLED,
    FailureKind.UNAUTHENTICATED: Verdict.CALLERS,
    FailureKind.UNAUTHORIZED: Verdict.CALLERS,
    FailureKind.REVOKED: Verdict.CALLERS,
    FailureKind.TOO_LARGE: Verdict.CALLERS,
    FailureKind.ARGUMENT: Verdict.CALLERS,
    FailureKind.IMPOSSIBLE: Verdict.CALLERS,
    FailureKind.UNLISTED: Verdict.CALLERS,
}

BACKLOG_VERDICTS: Final[dict[FailureKind, Verdict]] = {
    **VERDICTS,
    FailureKind.UNAUTHENTICATED: Verdict.COUNTS,
    FailureKind.UNAUTHORIZED: Verdict.COUNTS,
    FailureKind.REVOKED: Verdict.COUNTS,
}
"""The verdicts for a backlog queue (SPEC.md section 7.1). COUNTS pulls the queue, and the call tries another one. The
pairing is responsible for the rights to a queue. Unlisted failures stay the caller's, since one bad message must not
pull every queue."""

CREDENTIALS: Final = frozenset({FailureKind.UNAUTHENTICATED, FailureKind.UNAUTHORIZED, FailureKind.REVOKED})
"""Kinds by which a namespace refuses the pairing's credential."""

DOUBTFUL: Final = frozenset(
    {
        FailureKind.TIMEOUT,
        FailureKind.CONNECTION,
        FailureKind.COMMUNICATION,
        FailureKind.DETACHED,
        FailureKind.INTERNAL,
        FailureKind.UNEXPLAINED,
        FailureKind.REVOKED,
    }
)
"""Kinds after which the message may have arrived; after all others it has not."""

LOST_LINKS: Final = frozenset({FailureKind.CONNECTION, FailureKind.COMMUNICATION, FailureKind.DETACHED})
"""Kinds after which an attempt is made again over a fresh link, as the SDK does (SPEC.md section 5)."""

_SDK = "azure.servicebus.exceptions."
KIND_BY_CLASS: Final[dict[str, FailureKind]] = {
    _SDK + "OperationTimeoutError": FailureKind.TIMEOUT,
    _SDK + "ServiceBusConnectionError": FailureKind.CONNECTION,
    _SDK + "ServiceBusCommunicationError": FailureKind.COMMUNICATION,
    _SDK + "MessagingEntityDisabledError": FailureKind.DISABLED,
    _SDK + "MessagingEntityNotFoundError": FailureKind.NOT_FOUND,
    _SDK + "ServiceBusQuotaExceededError": FailureKind.FULL,
    _SDK + "ServiceBusServerBusyError": FailureKind.BUSY,
    _SDK + "ServiceBusAuthenticationError": FailureKind.UNAUTHENTICATED,
    _SDK + "ServiceBusAuthorizationError": FailureKind.UNAUTHORIZED,
    _SDK + "MessageSizeExceededError": FailureKind.TOO_LARGE,
    # About one message, session or management call, not about the entity.
    _SDK + "MessageLockLostError": FailureKind.UNLISTED,
    _SDK + "MessageNotFoundError": FailureKind.UNLISTED,
    _SDK + "SessionLockLostError": FailureKind.UNLISTED,
    _SDK + "SessionCannotBeLockedError": FailureKind.UNLISTED,
    _SDK + "MessagingEntityAlreadyExistsError": FailureKind.UNLISTED,
    _SDK + "AutoLockRenewFailed": FailureKind.UNLISTED,
    _SDK + "AutoLockRenewTimeout": FailureKind.UNLISTED,
    _SDK + "ServiceBusError": FailureKind.UNEXPLAINED,
    "azure.core.exceptions.ClientAuthenticationError": FailureKind.UNAUTHENTICATED,
    "azure.core.exceptions.ServiceRequestError": FailureKind.CONNECTION,
    "azure.core.exceptions.ServiceResponseError": FailureKind.CONNECTION,
    "azure.servicebus._pyamqp.error.AMQPConnectionError": FailureKind.CONNECTION,
    "azure.servicebus._pyamqp.error.AMQPLinkError": FailureKind.DETACHED,
    "azure.servicebus._pyamqp.error.AMQPException": FailureKind.UNEXPLAINED,
    "paired_servicebus.core.errors.WireTimeoutError": FailureKind.TIMEOUT,
    "paired_servicebus.core.errors.WireConnectionError": FailureKind.CONNECTION,
    "paired_servicebus.core.errors.WireAuthenticationError": FailureKind.UNAUTHENTICATED,
    "paired_servicebus.core.errors.WireLinkError": FailureKind.DETACHED,
    "paired_servicebus.core.errors.WireError": FailureKind.UNEXPLAINED,
    "builtins.TimeoutError": FailureKind.TIMEOUT,
    "builtins.OSError": FailureKind.CONNECTION,
    "builtins.ValueError": FailureKind.ARGUMENT,
    "builtins.TypeError": FailureKind.ARGUMENT,
}
"""Looked up along the exception's classes, nearest first."""

KIND_BY_CONDITION: Final[dict[str, FailureKind]] = {
    "amqp:internal-error": FailureKind.INTERNAL,
    "amqp:resource-locked": FailureKind.INTERNAL,
    "com.microsoft:operation-cancelled": FailureKind.INTERNAL,
    "amqp:link:detach-forced": FailureKind.DETACHED,
    "amqp:connection:forced": FailureKind.CONNECTION,
    "com.microsoft:timeout": FailureKind.TIMEOUT,
    "com.microsoft:server-busy": FailureKind.BUSY,
    "com.microsoft:entity-disabled": FailureKind.DISABLED,
    "com.microsoft:argument-error": FailureKind.ARGUMENT,
    "com.microsoft:argument-out-of-range": FailureKind.ARGUMENT,
    "amqp:not-allowed": FailureKind.ARGUMENT,
    "amqp:not-implemented": FailureKind.ARGUMENT,
    "amqp:decode-error": FailureKind.ARGUMENT,
    "amqp:not-found": FailureKind.NOT_FOUND,
    "amqp:resource-limit-exceeded": FailureKind.FULL,
    "amqp:unauthorized-access": FailureKind.UNAUTHORIZED,
    "com.microsoft:auth-failed": FailureKind.UNAUTHORIZED,
    "amqp:link:message-size-exceeded": FailureKind.TOO_LARGE,
    # About one transaction.
    "amqp:transaction:unknown-id": FailureKind.ARGUMENT,
    "amqp:transaction:rollback": FailureKind.ARGUMENT,
    "amqp:transaction:timeout": FailureKind.ARGUMENT,
    # About one message, session or request.
    "com.microsoft:message-lock-lost": FailureKind.UNLISTED,
    "com.microsoft:message-not-found": FailureKind.UNLISTED,
    "com.microsoft:session-lock-lost": FailureKind.UNLISTED,
    "com.microsoft:session-cannot-be-locked": FailureKind.UNLISTED,
    "com.microsoft:entity-already-exists": FailureKind.UNLISTED,
}
"""Used when the class is unspecific, and always first for errors that carry a condition."""

_NOT_WRITABLE: Final = "Unable to encode"
_TOKEN_WORDS: Final = {
    "could not be found": FailureKind.NOT_FOUND,
    "currently disabled": FailureKind.DISABLED,
    "being throttled": FailureKind.BUSY,
}
"""Words of the service by which a refused token is not the credential's fault; the SDK names no condition there."""
_REVOKED: Final = "unauthorized access"
"""The words of a forced detach after a token or a right has ended."""
_CONDITION = re.compile(r"Error condition: ([\w.:-]+?)\.?(?:\s|$)")


@dataclass(frozen=True, slots=True)
class Judgement:
    """A failure's kind, its verdict, and a one-line reason for the screen."""

    kind: FailureKind
    verdict: Verdict
    reason: str


Judge = Callable[[BaseException], Judgement]


_MAX_CAUSES: Final = 10


def at_backlog(judgement: Judgement) -> Verdict:
    """Return the verdict for a backlog queue, where a refused right is not the message's fault."""
    return BACKLOG_VERDICTS[judgement.kind] if judgement.kind in CREDENTIALS else judgement.verdict


def is_listed(error: BaseException) -> bool:
    """Return whether the table has the exception's class, or one that it is derived from."""
    return any(f"{cls.__module__}.{cls.__qualname__}" in KIND_BY_CLASS for cls in type(error).__mro__)


def kind_of(error: BaseException) -> FailureKind:
    """Return an exception's kind."""
    for cls in type(error).__mro__:
        kind = KIND_BY_CLASS.get(f"{cls.__module__}.{cls.__qualname__}")
        if kind is not None:
            break
    else:
        return FailureKind.UNLISTED
    if isinstance(error, WireError):
        kind = _wire_kind(error, kind)
    elif kind is FailureKind.UNEXPLAINED:
        found = _CONDITION.search(str(error))
        if found is not None:
            kind = KIND_BY_CONDITION.get(found.group(1), FailureKind.INTERNAL)
        elif _is_unencodable(error):
            kind = FailureKind.ARGUMENT
    if kind is FailureKind.UNAUTHENTICATED:
        return _token_kind(error)
    if kind in (FailureKind.DETACHED, FailureKind.CONNECTION) and _REVOKED in str(error).casefold():
        return FailureKind.REVOKED
    return kind


def _wire_kind(error: WireError, kind: FailureKind) -> FailureKind:
    """Return the kind by condition; for unknown conditions by class.

    A lost connection keeps its kind unless the namespace was busy, as in the SDK. A refused token keeps its kind unless
    the condition is about the entity or the namespace.
    """
    if error.condition is None:
        return kind
    unknown = FailureKind.INTERNAL if kind is FailureKind.UNEXPLAINED else kind
    by_condition = KIND_BY_CONDITION.get(error.condition, unknown)
    if kind is FailureKind.CONNECTION:
        return by_condition if by_condition is FailureKind.BUSY else kind
    if kind is FailureKind.UNAUTHENTICATED:
        return kind if VERDICTS[by_condition] is Verdict.CALLERS else by_condition
    return by_condition


def _token_kind(error: BaseException) -> FailureKind:
    """Return the kind of a refused token, which the SDK always reports as an authentication error."""
    inner = getattr(error, "inner_exception", None)
    texts = (str(error), str(getattr(inner, "status_description", "")))
    found = (kind for words, kind in _TOKEN_WORDS.items() if any(words in text for text in texts))
    return next(found, FailureKind.UNAUTHENTICATED)


def _is_unencodable(error: BaseException) -> bool:
    """Return whether the message could not be encoded as AMQP, which the SDK reports like a broken connection."""
    inner = getattr(error, "inner_exception", None)
    if isinstance(inner, TypeError):  # other texts are about a lost connection
        return str(inner).startswith(_NOT_WRITABLE)
    return isinstance(inner, ValueError | OverflowError | RecursionError | struct.error)


def judge(error: BaseException) -> Judgement:
    """Judge an exception (SPEC.md section 5).

    Never raises: an exception outside the table is `FailureKind.UNLISTED`.
    """
    kind = kind_of(error)
    return Judgement(kind, VERDICTS[kind], _reason(kind, error))


def _certificate_fault(error: BaseException) -> str:
    """Return what our own TLS found wrong with the peer's certificate, such as "certificate has expired"; else ""."""
    one: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if one is None:
            return ""
        fault = getattr(one, "verify_message", "")
        if isinstance(fault, str) and fault:
            return " ".join(fault.split())
        one = getattr(one, "inner_exception", None) or one.__cause__ or one.__context__
    return ""


def _reason(kind: FailureKind, error: BaseException) -> str:
    """Return the kind, with the error's own text if the kind is unspecific; one line of at most 160 characters.

    A lost connection names the fault of the certificate that ended it: no repeat mends that.
    """
    if kind is FailureKind.CONNECTION and (fault := _certificate_fault(error)):
        return f"{kind}: {fault}"[:160].rstrip()
    if kind not in (FailureKind.UNEXPLAINED, FailureKind.INTERNAL, FailureKind.UNLISTED, FailureKind.ARGUMENT):
        return str(kind)
    text = _untracked(masked(" ".join(str(error).split())))
    return f"{kind}: {text}"[:160].rstrip() if text else f"{kind}: {type(error).__name__}"


def _untracked(text: str) -> str:
    """Return a text of the service without its tail, which is another one each time."""
    head, found, _ = text.partition("TrackingId:")
    return (head.rpartition(" Reference:")[0] or head).rstrip(" ,.") if found else text
