"""AMQP conditions and status codes of refusals, by table: the broker's errors and the faults' verdicts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Final

from servicebus_amqp.nodes.request_ends import AmqpRefusal
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
)


def refusal_of(error: errors.BrokerError) -> AmqpRefusal:
    """Return the refusal for a broker's error."""
    for kind, condition, status in _BY_ERROR:
        if isinstance(error, kind):
            return AmqpRefusal(condition, str(error), status)
    return AmqpRefusal("amqp:internal-error", str(error), 500)


def detached(path: str) -> AmqpRefusal:
    return AmqpRefusal("amqp:link:detach-forced", f"'{path}' has become unavailable; open the link again", 500)


def closed_by_fault(name: str) -> AmqpRefusal:
    return AmqpRefusal("amqp:connection:forced", f"'{name}' has ended this connection; connect again", 500)


def idle(path: str, seconds: float) -> AmqpRefusal:
    return AmqpRefusal(
        "amqp:link:detach-forced",
        f"nothing passed on this link to '{path}' for {seconds:g} seconds; open it again",
        500,
    )


def unlinked(name: str, seconds: float) -> AmqpRefusal:
    return AmqpRefusal(
        "amqp:connection:forced",
        f"The connection was closed by container '{name}' because it did not have any active links in the past "
        f"{seconds * 1000:.0f} milliseconds.",
        500,
    )


def no_session_in_time(path: str) -> AmqpRefusal:
    return AmqpRefusal("com.microsoft:timeout", f"no session of '{path}' became available in time; try again", 408)


_BY_VERDICT: Final[Mapping[FaultVerdict, tuple[str, str, int]]] = {
    FaultVerdict.REFUSE: ("amqp:internal-error", "'{}' is not available at the moment; try again", 500),
    FaultVerdict.BUSY: ("com.microsoft:server-busy", "'{}' is too busy; wait 10 seconds and try again", 503),
    FaultVerdict.UNAUTHORIZED: (
        "amqp:unauthorized-access", "the tokens of this connection give no access to '{}'", 401
    ),
    FaultVerdict.FULL: ("amqp:resource-limit-exceeded", "'{}' is full; receive messages and send again", 403),
}  # fmt: skip


def refusal_by(verdict: FaultVerdict, path: str) -> AmqpRefusal | None:
    """Return the refusal for a fault's verdict; None if the verdict sends none."""
    if verdict is FaultVerdict.DISABLED:
        return refusal_of(errors.EntityDisabled(path, "Disabled", "messages or receivers"))
    if verdict is FaultVerdict.NOT_FOUND:
        return refusal_of(errors.EntityNotFound(path))
    condition, sentence, status = _BY_VERDICT.get(verdict, ("", "", 0))
    return AmqpRefusal(condition, sentence.format(path), status) if condition else None
