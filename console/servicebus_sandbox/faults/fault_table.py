"""The effect of each kind of fault on each event, and the vocabulary of the tables.

Not here: active faults (`fault_board`), their JSON (`fault_terms`), and the servers that carry verdicts out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final


class FaultKind(StrEnum):
    """A kind of fault."""

    REFUSED = "refused"  # connections are refused; for an entity: links are detached, attaches refused
    BLACK_HOLED = "black-holed"  # input is swallowed, nothing is answered, connections stay
    UNANSWERED = "unanswered"  # messages are accepted, but not confirmed
    BUSY = "busy"  # sends and management requests are refused as "server busy"
    RESET = "reset"  # connections are accepted and reset
    HALF_OPEN = "half-open"  # existing connections stay open but dead; new ones are served
    ACKNOWLEDGEMENT_LOST = "acknowledgement-lost"  # messages are accepted; the connection breaks before the answer
    LATE = "late"  # accepted messages become visible after `delay_s`
    DETACHED = "detached"  # links are detached once, from our side, and may return
    DISCONNECTED = "disconnected"  # the same with connections
    DISABLED = "disabled"
    NOT_FOUND = "not-found"
    UNAUTHORIZED = "unauthorized"
    FULL = "full"  # sends are refused: the quota is reached
    LATENCY = "latency"  # traffic takes `delay_s` longer and keeps its order
    NODE_RESTART = "node-restart"  # the entities of one node are refused for `duration_s`, then slow for `slow_s`


class Operation(StrEnum):
    """An operation that can fail by itself."""

    ATTACH = "attach"
    SEND = "send"
    RECEIVE = "receive"
    SETTLE = "settle"
    MANAGE = "manage"  # `$management` of entities, and the management API over HTTPS
    CONTACT = "contact"  # connections, and the tokens they need


class Direction(StrEnum):
    """A direction from the namespace's view."""

    IN = "in"
    OUT = "out"


class InjectionPoint(Enum):
    """An event that needs a verdict."""

    ATTACH = "attach"
    LIVING_LINK = "living link"  # may the link and its deliveries continue
    TRANSFER = "transfer"  # a message comes in, on a link or as a request to schedule it
    DELIVERY = "delivery"  # a locked message leaves for a receiver
    SETTLE = "settle"
    REQUEST = "request"  # any other request to `$management`
    HTTP = "http"  # a request to the management API
    TOKEN = "token"  # a token is put on `$cbs`


class ConnectionVerdict(Enum):
    """The fate of a connection, new or existing; later ones are stronger."""

    SERVE = "serve"
    DEAF = "deaf"  # input is swallowed, output leaves
    MUTE = "mute"  # input is processed, output is held
    SWALLOW = "swallow"  # input is swallowed, output is held
    CLOSE = "close"  # ended with a reason
    RESET = "reset"


class FaultVerdict(Enum):
    """The fate of one attach, message, outcome or request, or of a link."""

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
"""The operations of an event. The caller may add more: a sender's attach is a send too."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The verdict on the events in `always`, and on those in `named` if the fault names their operation."""

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
"""Missing kinds have no verdicts: they affect only connections or latency."""

LINKS: Final = frozenset({_A, _L})
NEED_A_LINK: Final = frozenset({Operation.ATTACH, Operation.RECEIVE})
"""Operations that can only be refused with their link; messages and requests are refused one by one."""

ONE_WAY: Final[Mapping[Direction, Mapping[InjectionPoint, FaultVerdict]]] = {
    Direction.IN: {_L: FaultVerdict.SERVE},
    Direction.OUT: {_T: FaultVerdict.TAKE_SILENTLY, _S: FaultVerdict.TAKE_SILENTLY, _R: FaultVerdict.TAKE_SILENTLY},
}
"""The differences of a black hole in one direction from one in both."""

ON_CONNECTIONS: Final[Mapping[tuple[FaultKind, Direction | None], ConnectionVerdict]] = {
    (FaultKind.REFUSED, None): ConnectionVerdict.RESET,
    (FaultKind.RESET, None): ConnectionVerdict.RESET,
    (FaultKind.BLACK_HOLED, None): ConnectionVerdict.SWALLOW,
    (FaultKind.BLACK_HOLED, Direction.IN): ConnectionVerdict.DEAF,
    (FaultKind.BLACK_HOLED, Direction.OUT): ConnectionVerdict.MUTE,
    (FaultKind.HALF_OPEN, None): ConnectionVerdict.SWALLOW,
    (FaultKind.DISCONNECTED, None): ConnectionVerdict.CLOSE,
}
"""The verdict on connections by a fault of the whole namespace."""

LIVING_ONES_ALONE: Final = frozenset({FaultKind.HALF_OPEN, FaultKind.DISCONNECTED})
"""Kinds that affect only connections that are older than the fault."""
