"""AMQP conditions and status codes of refusals, by table: the broker's errors and the faults' verdicts."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from servicebus_amqp.nodes.request_ends import AmqpRefusal, force_detached, revoked, unauthorized
from servicebus_amqp.protocol.connection_settings import LinkRole
from servicebus_amqp.protocol.links import Link
from servicebus_sandbox.broker import broker_errors as errors
from servicebus_sandbox.faults import FaultVerdict

# Refusals, logged once for each reason: a flood of invalid requests must not fill a disk.

log = logging.getLogger(__name__)

MAX_TEXT: Final = 300


class RefusalLog:
    """The refusals of the server `who`; `counts` has the number for each reason."""

    def __init__(self, who: str, logger: logging.Logger = log) -> None:
        self._who = who
        self._logger = logger
        self.counts: Counter[str] = Counter()

    def about(self, reason: str, sentence: str) -> None:
        """Count a refusal. `reason` is one of a few, such as a condition; `sentence` may quote the client."""
        self.counts[reason] += 1
        if self.counts[reason] == 1:
            self._logger.warning("%s %.*s (%s, logged once)", self._who, MAX_TEXT, sentence, reason)


_BY_ERROR: Final[tuple[tuple[type[errors.BrokerError], str, int], ...]] = (
    (errors.EntityNotFound, "amqp:not-found", 404),
    (errors.EntityExists, "com.microsoft:entity-already-exists", 409),
    (errors.EntityDisabled, "com.microsoft:entity-disabled", 403),
    (errors.InvalidSettings, "com.microsoft:argument-error", 400),
    (errors.FilterSyntaxError, "com.microsoft:argument-error", 400),
    (errors.InvalidOperation, "amqp:not-allowed", 400),
    (errors.MessageTooLarge, "amqp:link:message-size-exceeded", 403),
    (errors.QuotaExceeded, "amqp:resource-limit-exceeded", 403),
    (errors.Throttled, "com.microsoft:server-busy", 503),
    (errors.MessageLockLost, "com.microsoft:message-lock-lost", 410),
    (errors.SessionLockLost, "com.microsoft:session-lock-lost", 410),
    (errors.SessionCannotBeLocked, "com.microsoft:session-cannot-be-locked", 409),
    (errors.MessageNotFound, "com.microsoft:message-not-found", 404),
    (errors.TransactionRolledBack, "amqp:transaction:rollback", 400),
    (errors.TransactionLimit, "amqp:resource-limit-exceeded", 403),
)


def refusal_of(error: errors.BrokerError) -> AmqpRefusal:
    """Return the refusal for a broker's error."""
    for kind, condition, status in _BY_ERROR:
        if isinstance(error, kind):
            return AmqpRefusal(condition, str(error), status)
    return AmqpRefusal("amqp:internal-error", str(error), 500)


# Forced ends of links, and of connections.
#
# The service ends a link whose entity was disabled or deleted with `detach-forced`, and names the reason at the next
# attach (azure-sdk-for-java 6280, dapr components-contrib 1612). Clients and their tests search the words.

GATEWAY: Final = "gateway0"
"""The part of the service that refuses what belongs to no entity."""


def closed(link: Link) -> AmqpRefusal:
    """Return the end of a link whose entity was closed, deleted or moved."""
    details = "AmqpMessagePublisher" if _is_publisher(link) else "InnerMessageReceiver"
    return force_detached(link.name, _code(link), f"{details} was closed.")


def idle(link: Link, seconds: float) -> AmqpRefusal:
    """Return the end of a link that was not used for these seconds."""
    party = "AmqpMessagePublisher" if _is_publisher(link) else "AmqpMessageConsumer"
    return force_detached(link.name, _code(link), f"{party}.IdleTimerExpired: Idle timeout: {_span(seconds)}.")


def _is_publisher(link: Link) -> bool:
    return link.role is LinkRole.RECEIVER


def _code(link: Link) -> str:
    return f"{'publisher' if _is_publisher(link) else 'consumer'}(link{link.handle})"


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest:02}"


def closed_by_fault(name: str) -> AmqpRefusal:
    return AmqpRefusal("amqp:connection:forced", f"'{name}' has ended this connection; connect again", 500)


def unlinked(container_id: str, seconds: float) -> AmqpRefusal:
    return AmqpRefusal(
        "amqp:connection:forced",
        f"The connection was closed by container '{container_id}' because it did not have any active links in the past "
        f"{seconds * 1000:.0f} milliseconds.",
        500,
    )


def no_session_in_time(seconds: float) -> AmqpRefusal:
    """Return the refusal of a receiver that waited for the next session; both servers on the way leave their trace."""
    text = (
        f"The operation did not complete within the allotted timeout of {_span(seconds)}. The time allotted to this "
        "operation may have been a portion of a longer timeout."
    )
    return AmqpRefusal("com.microsoft:timeout", text + tracking(GATEWAY), 408)


def session_not_allowed(path: str) -> AmqpRefusal:
    """Return the refusal of a session's receiver on an entity without sessions."""
    text = (
        "A sessionful message receiver cannot be created on an entity that does not require sessions: attach to "
        f"'{path}' without a session filter."
    )
    return AmqpRefusal("amqp:not-allowed", text, 400)


_QUOTA: Final = 1024**3
"""Bytes that an entity holds which a fault has filled."""


def refusal_by(verdict: FaultVerdict, namespace: str, path: str, right: str | None) -> AmqpRefusal | None:
    """Return the refusal for a fault's verdict; None if the verdict sends none."""
    if verdict is FaultVerdict.REFUSE:
        return AmqpRefusal("amqp:internal-error", f"'{path}' is not available at the moment; try again", 500)
    if verdict is FaultVerdict.UNAUTHORIZED:
        return unauthorized(path, right)
    by_verdict: dict[FaultVerdict, errors.BrokerError] = {
        FaultVerdict.BUSY: errors.Throttled(namespace),
        FaultVerdict.FULL: errors.QuotaExceeded(path, _QUOTA),
        FaultVerdict.DISABLED: errors.EntityDisabled(path, "Disabled"),
        FaultVerdict.NOT_FOUND: errors.EntityNotFound(path),
    }
    return refusal_of(by_verdict[verdict]) if verdict in by_verdict else None


def end_by(verdict: FaultVerdict, namespace: str, link: Link, path: str, right: str | None) -> AmqpRefusal | None:
    """Return the end of a link by a fault's verdict, or a refusal of its attach; None: the verdict ends none."""
    if link.is_requested:
        return refusal_by(verdict, namespace, path, right)
    if verdict in (FaultVerdict.REFUSE, FaultVerdict.DETACH, FaultVerdict.DISABLED, FaultVerdict.NOT_FOUND):
        return closed(link)
    if verdict is FaultVerdict.UNAUTHORIZED:
        return revoked(link.name, path, right)
    return refusal_by(verdict, namespace, path, right)


# The tail of every description: ids for the service's support, which programs log and mask.


def tracking(tracker: str) -> str:
    """Return the tail, with the part of the service that refuses."""
    return f" TrackingId:{uuid4()}_G0, SystemTracker:{tracker}, Timestamp:{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}"


def tracked(refusal: AmqpRefusal, tracker: str = GATEWAY) -> AmqpRefusal:
    """Return the refusal with its tail."""
    return AmqpRefusal(refusal.condition, refusal.description + tracking(tracker), refusal.status)
