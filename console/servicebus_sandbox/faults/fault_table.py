"""What each kind of fault does at which moment: tables, and the words they are written in.

Nothing here knows which faults there are (`board`), how one is ordered (`orders`) or how a verdict is carried
out: that is the business of those who ask for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final


class FaultKind(StrEnum):
    """What can be wrong."""

    REFUSED = "refused"  # connections are refused; for an entity: links are detached, attaches refused
    BLACK_HOLED = "black-holed"  # what comes is swallowed, nothing is answered, connections stay
    UNANSWERED = "unanswered"  # messages are taken in, and nobody is told
    BUSY = "busy"  # sends and management requests are refused as "server busy"
    RESET = "reset"  # connections are taken, and reset
    HALF_OPEN = "half-open"  # connections that lived when it began stand, but are dead; new ones are served
    ACKNOWLEDGEMENT_LOST = "acknowledgement-lost"  # messages are taken in, and the connection breaks before the answer
    LATE = "late"  # messages are accepted, and to be seen only `delay_s` later
    DETACHED = "detached"  # links are detached once, from our side, and may come back
    DISCONNECTED = "disconnected"  # the same with connections
    DISABLED = "disabled"
    NOT_FOUND = "not-found"
    UNAUTHORIZED = "unauthorized"
    FULL = "full"  # sends are refused: the quota is reached
    LATENCY = "latency"  # what passes takes `delay_s` longer, in the order in which it came
    NODE_RESTART = "node-restart"  # the entities of one node are refused for `duration_s`, then slow for `slow_s`


class Operation(StrEnum):
    """What can go wrong alone."""

    ATTACH = "attach"
    SEND = "send"
    RECEIVE = "receive"
    SETTLE = "settle"
    MANAGE = "manage"  # `$management` of entities, and the management API over HTTPS
    CONTACT = "contact"  # connections, and the tokens they need


class Direction(StrEnum):
    """As the namespace sees it."""

    IN = "in"
    OUT = "out"


class InjectionPoint(Enum):
    """When a verdict is asked for."""

    ATTACH = "attach"
    LIVING_LINK = "living link"  # may it go on, may messages leave on it
    TRANSFER = "transfer"  # a message comes in, on a link or as a request to schedule it
    DELIVERY = "delivery"  # a message leaves for a receiver, who has it locked
    SETTLE = "settle"
    REQUEST = "request"  # any other request to `$management`
    HTTP = "http"  # a request to the management API
    TOKEN = "token"  # a token is put on `$cbs`


class ConnectionVerdict(Enum):
    """What happens to a connection, new or living; the later, the stronger."""

    SERVE = "serve"
    DEAF = "deaf"  # what comes is swallowed, what there is to say leaves
    MUTE = "mute"  # what comes is heard and acted on, nothing leaves
    SWALLOW = "swallow"  # neither heard nor answered
    CLOSE = "close"  # ended with a reason
    RESET = "reset"


class FaultVerdict(Enum):
    """What happens to one attach, message, outcome or request, and to a link."""

    SERVE = "serve"
    REFUSE = "refuse"  # answered: unavailable
    SWALLOW = "swallow"  # neither answered nor done
    TAKE_SILENTLY = "take silently"  # done, not answered
    BUSY = "busy"  # answered: server busy
    DISABLED = "disabled"
    NOT_FOUND = "not found"
    UNAUTHORIZED = "unauthorized"
    FULL = "full"
    DETACH = "detach"  # not done, the link is detached
    DISCONNECT = "disconnect"  # not done, the connection is closed with a reason
    RESET = "reset"  # not done, the connection is reset
    TAKE_AND_RESET = "take and reset"  # done, and the connection is reset before the answer leaves


OWN_OPERATION: Final[Mapping[InjectionPoint, frozenset[Operation]]] = {
    InjectionPoint.ATTACH: frozenset({Operation.ATTACH}),
    InjectionPoint.LIVING_LINK: frozenset(),
    InjectionPoint.TRANSFER: frozenset({Operation.SEND}),
    InjectionPoint.DELIVERY: frozenset({Operation.RECEIVE}),
    InjectionPoint.SETTLE: frozenset({Operation.SETTLE}),
    InjectionPoint.REQUEST: frozenset({Operation.MANAGE}),
    InjectionPoint.HTTP: frozenset({Operation.MANAGE}),
    InjectionPoint.TOKEN: frozenset({Operation.CONTACT}),
}
"""The operations a moment belongs to. Whoever asks may know of more: a sender's attach is a send as well."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a kind makes of the moments in `always`, and of those in `named` where its fault names their operation."""

    verdict: FaultVerdict
    always: frozenset[InjectionPoint]
    named: frozenset[InjectionPoint] = frozenset()


_A, _L, _T, _D, _S, _R, _H, _C = InjectionPoint
_MESSAGING: Final = frozenset({_A, _L, _T, _S, _R})

EFFECTS: Final[Mapping[FaultKind, Effect]] = {
    FaultKind.REFUSED: Effect(FaultVerdict.REFUSE, _MESSAGING, frozenset({_H})),
    FaultKind.BLACK_HOLED: Effect(FaultVerdict.SWALLOW, _MESSAGING, frozenset({_H})),
    FaultKind.UNANSWERED: Effect(FaultVerdict.TAKE_SILENTLY, frozenset({_T}), frozenset({_S, _R, _H})),
    FaultKind.BUSY: Effect(FaultVerdict.BUSY, frozenset({_T, _R}), frozenset({_A, _L, _S, _H, _C})),
    FaultKind.RESET: Effect(FaultVerdict.RESET, _MESSAGING, frozenset({_D, _H})),
    FaultKind.ACKNOWLEDGEMENT_LOST: Effect(FaultVerdict.TAKE_AND_RESET, frozenset({_T}), frozenset({_D, _S, _R, _H})),
    FaultKind.DETACHED: Effect(FaultVerdict.DETACH, frozenset({_L}), frozenset({_T, _D, _S, _R})),
    FaultKind.DISCONNECTED: Effect(FaultVerdict.DISCONNECT, frozenset({_L}), frozenset({_A, _T, _D, _S, _R})),
    FaultKind.DISABLED: Effect(FaultVerdict.DISABLED, frozenset({_A, _L, _T}), frozenset({_S, _R})),
    FaultKind.NOT_FOUND: Effect(FaultVerdict.NOT_FOUND, _MESSAGING | {_H}),
    FaultKind.UNAUTHORIZED: Effect(FaultVerdict.UNAUTHORIZED, _MESSAGING, frozenset({_H, _C})),
    FaultKind.FULL: Effect(FaultVerdict.FULL, frozenset({_T})),
}
"""Kinds that are missing give no verdicts: they concern connections alone, or are a matter of time."""

LINKS: Final = frozenset({_A, _L})
NEED_A_LINK: Final = frozenset({Operation.ATTACH, Operation.RECEIVE})
"""What can only be refused with its link. Messages and requests that come in are refused one by one: each is told."""

ONE_WAY: Final[Mapping[Direction, Mapping[InjectionPoint, FaultVerdict]]] = {
    Direction.IN: {_L: FaultVerdict.SERVE},
    Direction.OUT: {_T: FaultVerdict.TAKE_SILENTLY, _S: FaultVerdict.TAKE_SILENTLY, _R: FaultVerdict.TAKE_SILENTLY},
}
"""Where a black hole in one direction differs from one in both."""

ON_CONNECTIONS: Final[Mapping[tuple[FaultKind, Direction | None], ConnectionVerdict]] = {
    (FaultKind.REFUSED, None): ConnectionVerdict.RESET,
    (FaultKind.RESET, None): ConnectionVerdict.RESET,
    (FaultKind.BLACK_HOLED, None): ConnectionVerdict.SWALLOW,
    (FaultKind.BLACK_HOLED, Direction.IN): ConnectionVerdict.DEAF,
    (FaultKind.BLACK_HOLED, Direction.OUT): ConnectionVerdict.MUTE,
    (FaultKind.HALF_OPEN, None): ConnectionVerdict.SWALLOW,
    (FaultKind.DISCONNECTED, None): ConnectionVerdict.CLOSE,
}
"""What a fault of the whole namespace makes of connections."""

LIVING_ONES_ALONE: Final = frozenset({FaultKind.HALF_OPEN, FaultKind.DISCONNECTED})
"""Kinds that leave connections alone which were made after they began."""
