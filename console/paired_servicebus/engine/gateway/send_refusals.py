"""The answers to sends that fail: conditions that every SDK understands, by table.

A sender gets accepted or rejected and nothing else. Every SDK retries `com.microsoft:timeout`; Go drops its whole
connection on `amqp:internal-error` or a forced close. A rejection carries info: Python 7.14 hangs without it.
"""

from __future__ import annotations

from typing import Final

from paired_servicebus.core.errors import (
    BacklogMessageSizeError,
    PairedError,
    PairingClosedError,
    ReservedPropertyError,
    UnreadableError,
    WireError,
)
from paired_servicebus.core.model.verdict import FailureKind, is_listed, kind_of
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line
from servicebus_amqp.encoding.codec import Symbol
from servicebus_amqp.encoding.performatives import Error, Rejected
from servicebus_amqp.nodes.request_ends import AmqpRefusal
from servicebus_amqp.protocol_errors import Condition

SEND_SECONDS: Final = 25.0
"""The whole time of a send: less than the time-out of every SDK for one try."""
TIMEOUT: Final = "com.microsoft:timeout"
ARGUMENT: Final = "com.microsoft:argument-error"
MAX_TEXT: Final = 400
_INFO: Final = {Symbol("com.microsoft:tracking-id"): "paired-gateway"}

_BY_KIND: Final[dict[FailureKind, tuple[str, int]]] = {
    FailureKind.ARGUMENT: (ARGUMENT, 400),
    FailureKind.TOO_LARGE: (Condition.MESSAGE_SIZE_EXCEEDED, 403),
    FailureKind.BUSY: ("com.microsoft:server-busy", 503),
    FailureKind.UNAUTHENTICATED: ("amqp:unauthorized-access", 401),
    FailureKind.UNAUTHORIZED: ("amqp:unauthorized-access", 401),
}
"""The namespace's refusals that a client can do something about; all others are worth another try."""


def is_unknown(error: BaseException) -> bool:
    """Return whether no table knows errors of this kind: the gateway's own mistake, and no word of a namespace."""
    return not (is_listed(error) or isinstance(error, PairedError | AmqpRefusal))


def refusal_of_send(error: BaseException) -> AmqpRefusal:
    """Return the refusal of a send, or of a request, that ended with `error`; a client tries an unknown one again."""
    if isinstance(error, AmqpRefusal):
        return error
    if is_unknown(error):
        return AmqpRefusal(TIMEOUT, f"the gateway could not serve it ({type(error).__name__}): try again", 408)
    text = one_line(masked(str(error) or type(error).__name__), most=MAX_TEXT)
    if isinstance(error, ReservedPropertyError | UnreadableError):
        return AmqpRefusal(ARGUMENT, text, 400)
    if isinstance(error, BacklogMessageSizeError):
        return AmqpRefusal(Condition.MESSAGE_SIZE_EXCEEDED, text, 403)
    if isinstance(error, PairingClosedError):  # a ValueError to its caller; a client finds the next engine
        return AmqpRefusal(TIMEOUT, text, 408)
    kind = kind_of(error)
    condition, status = _BY_KIND.get(kind, (TIMEOUT, 408))
    if kind is FailureKind.ARGUMENT and isinstance(error, WireError) and error.condition:
        condition = error.condition  # Go gives up its connection for an argument error, and tries again
    return AmqpRefusal(condition, text, status)


def rejection_of(error: BaseException) -> Rejected:
    """Return the outcome of a message whose send ended with `error`."""
    refusal = refusal_of_send(error)
    return Rejected(error=Error(condition=refusal.condition, description=refusal.description, info=dict(_INFO)))
