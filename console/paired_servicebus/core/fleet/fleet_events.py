"""What the fleet's machine is told, and what it wants done. The times of events are this engine's clock."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from paired_servicebus.core.fleet.fleet_documents import (
    Board,
    Document,
    Order,
    OrderRow,
    Posted,
    StandingFleetOrder,
)
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.snapshot import Snapshot

# -- events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRead:
    """A reading of a board succeeded. since: the first number asked for; is_end: no more messages lie behind."""

    at: float
    board: Board
    since: int
    posts: tuple[Posted, ...]
    is_end: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFailed:
    """A reading failed. is_busy: the namespace throttles."""

    at: float
    board: Board
    reason: str
    is_busy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The namespace accepted a document."""

    at: float
    document: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFailed:
    """The namespace did not accept a document, or did not answer: then it may lie on the board.

    is_busy: the namespace throttles. is_refused: the key lacks the right.
    """

    at: float
    document: Document
    reason: str
    is_busy: bool = False
    is_refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnState:
    """The state of this engine changed, or was taken again."""

    at: float
    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A console began to watch the fleet through this engine, or the last one left."""

    at: float
    is_watched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """A deadline of the machine has come."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A clean end of this engine: it posts a goodbye, and nothing after it."""

    at: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningEnded:
    """A Clean was performed, or failed."""

    at: float
    wanted: Clean


FleetEvent = BoardRead | ReadFailed | Written | WriteFailed | OwnState | Watched | Ticked | CleaningEnded | Ending

# -- effects ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBoard:
    """Peek a board from a number on, at most `most` messages. One reading of a board is under way at a time."""

    board: Board
    since: int
    most: int = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Post a document on its board, with a time to live in seconds."""

    document: Document
    ttl: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CarryOut:
    """Let the guard carry out an order that counts.

    command: by the signer whose key verified, for the targets that are still to act on; others have a newer order.
    late: how late it takes effect; empty: in time.
    """

    order: Order
    command: Command
    late: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderEnded(OrderRow):
    """The guard carried an order out, or refused it. not_held: targets for which it is not in force here."""

    not_held: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """Undo a standing order: it is over, or does not count any more."""

    order: StandingFleetOrder
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Clean:
    """Delete messages of a board that do not count. Times are by the namespace's clock."""

    board: Board
    before: float
    """No message that was enqueued before this time counts."""
    now: float = -inf
    """A time that the namespace's clock has reached: a message that ended before it is over."""
    dead: int = 0
    """Messages that do not count, behind a post that does: they have to be received."""
    is_flush: bool = False
    """Whether the board is flooded: all messages from before that time go, and a namespace without batch delete is
    asked for them one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """Warn the operator; `about` groups the remarks."""

    about: str
    text: str


FleetEffect = ReadBoard | Write | CarryOut | Undo | Clean | Say
