"""What the fleet's machine is told, and what it wants done. The times of events are this engine's clock."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from paired_servicebus.core.fleet.fleet_documents import (
    Board,
    Document,
    Order,
    Outcome,
    Posted,
    StandingFleetOrder,
    Subject,
)
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
    """The namespace did not accept a document, or did not answer: then it may lie on the board."""

    at: float
    document: Document
    reason: str
    is_busy: bool = False


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
class OrderEnded:
    """The guard carried an order out, or refused it.

    order_id: empty for the end of a standing order, which is not answered. not_held: targets of a standing order that
    are not in effect here, so nothing is released at its end.
    """

    at: float
    order_id: str
    outcome: Outcome
    text: str
    not_held: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocallyOrdered:
    """A local operator's order was carried out: standing orders of the fleet about the same subjects differ here."""

    at: float
    subjects: tuple[Subject, ...]
    how: str = ""
    """What he did, such as "released here by operator-b"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignersChanged:
    """The file of operators changed. signers: its hash; empty: it is unusable, so this engine looks only."""

    at: float
    signers: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LookWanted:
    """The orders are to be read now: this engine starts, or posted one."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """A deadline of the machine has come."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterWanted:
    """A rule of this engine needs to know the other engines now: clean-up, readiness, or the syphon's alarm."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A clean end of this engine: it posts a goodbye, and nothing after it."""

    at: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningEnded:
    """A Clean was performed. behind: the deleted messages behind one that counts; None: it failed."""

    at: float
    board: Board
    behind: int | None


FleetEvent = (
    BoardRead
    | ReadFailed
    | Written
    | WriteFailed
    | OwnState
    | Watched
    | OrderEnded
    | LocallyOrdered
    | SignersChanged
    | LookWanted
    | Ticked
    | RosterWanted
    | CleaningEnded
    | Ending
)

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
    """Let the guard carry out an order that counts; `by` is the signer whose key verified.

    targets: those that are still to act on; others have a newer order. late: how late it takes effect; empty: in time.
    """

    order: Order
    number: int
    by: str
    fingerprint: str = ""
    targets: tuple[str, ...] = ()
    late: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeUp:
    """Apply a standing order again that the engine before this one stored: the board is not read yet."""

    order: StandingFleetOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """Undo a standing order: its end has come, or an order that revokes it came late.

    answers: the id of the order that revokes it, which waits for an answer; empty: none does.
    """

    order: StandingFleetOrder
    text: str
    answers: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOrder:
    """Answer an order that is not carried out. The machine posts it by itself."""

    order_id: str
    number: int
    outcome: Outcome
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Clean:
    """Delete messages of a board that do not count. Times are by the namespace's clock."""

    board: Board
    before: float
    """No message that was enqueued before this time counts."""
    now: float = -inf
    """A time that the namespace's clock has reached: a message that ended before it is over."""
    behind: int = 0
    """Messages that do not count, behind one that does: they have to be received."""
    last: int = 0
    """The number of the last of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """Warn the operator; `about` groups the remarks."""

    about: str
    text: str


FleetEffect = ReadBoard | Write | CarryOut | TakeUp | Undo | AnswerOrder | Clean | Say
