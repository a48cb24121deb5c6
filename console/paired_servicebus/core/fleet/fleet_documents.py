"""The documents that engines post on the two boards of a pairing (FLEET.md sections 2 and 3).

A board is a queue of the secondary namespace that everybody peeks and nobody receives from. The namespace numbers its
messages, and its clock dates them: these numbers and times decide, never an engine's own clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from math import inf
from typing import Final

from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetEntityState, Takes
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.text.time_format import written
from paired_servicebus.core.text.untrusted_text import repeated

VERSION: Final = 1
"""The version of the documents that this program writes, and the newest one that it reads."""
MAX_BYTES: Final = 16 * 1024
"""Bytes of a message's body, deflated where that is shorter."""
MAX_SIGNED_BYTES: Final = 12 * 1024
"""Bytes that are signed: an order names its targets and at most MAX_NAMED_ENGINES engines."""
MAX_NAMED_ENGINES: Final = 50
MAX_CARRIED: Final = 30
MAX_CARRIED_BYTES: Final = 16 * 1024
"""Signed orders that one presence carries, and their bytes with the signatures."""
MAX_ROWS: Final = 50
"""Orders answered in one presence."""
MAX_REPORT_BYTES: Final = 192 * 1024
PRESENCE_SECONDS: Final = 3 * 3600.0
PRESENCE_INTERVAL: Final = 3600.0
"""Seconds between two presences of an engine in which nothing changes."""
WATCH_SECONDS: Final = 120.0
MAX_NOT_WELL: Final = 10
"""Entities named in a presence."""


Subject = tuple[str, str, str]
"""What an order is about: its action's subject, its scope, and the target without case."""


def is_meant(engines: tuple[str, ...] | None, name: str) -> bool:
    """Return whether an engine is among the names, without case. None: all are meant."""
    return engines is None or name.casefold() in {one.casefold() for one in engines}


class Board(StrEnum):
    """A board, by the last segment of its path."""

    ORDERS = "orders"
    REPORTS = "reports"


def board_path(primary: str, board: Board) -> str:
    """Return the path of a pairing's board in the secondary namespace. primary: the name in backlog queues' paths."""
    return f"{primary}/x-paired-fleet/{board}"


class DocumentKind(StrEnum):
    """The subject of a message on a board."""

    PRESENCE = "presence"
    GOODBYE = "goodbye"
    REPORT = "report"
    WATCH = "watch"
    ORDER = "order"


BOARD_OF: Final = {
    DocumentKind.PRESENCE: Board.REPORTS,
    DocumentKind.GOODBYE: Board.REPORTS,
    DocumentKind.REPORT: Board.REPORTS,
    DocumentKind.WATCH: Board.ORDERS,
    DocumentKind.ORDER: Board.ORDERS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """The engine that posted a document. engine: its name in the fleet; boot: tells two of one name apart."""

    engine: str
    boot: str
    host: str
    pid: int
    program: str
    version: str
    pairing: str
    environment: str
    primary: str
    secondary: str


class Outcome(StrEnum):
    """What an engine did about an order."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRow:
    """One engine's answer to an order, with the text that its guard gave."""

    order_id: str
    outcome: Outcome
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedOrder:
    """The signed bytes of an order, which are UTF-8, and the signature: enough to verify and to post it again."""

    signed: str
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """An engine exists: posted at its start, each hour, and when its syphon or the orders in it change.

    While a watch is in force it is posted each PRESENCE_WATCHED seconds.
    """

    id: str
    author: Author
    started_at: float
    queues: tuple[int, ...]
    """Indices of the backlog queues in use."""
    syphon: str
    """Status of its syphon, a SyphonStatus."""
    paused_queues: tuple[int, ...]
    states: tuple[tuple[State, int], ...]
    not_well: tuple[FleetEntityState, ...]
    takes: Takes
    signers: str
    clock_offset: float | None
    rows: tuple[OrderRow, ...] = ()
    """What it did about the newest orders that it has seen, at most MAX_ROWS."""
    newest_order: float = 0.0
    """Time of issue of the newest order that it has seen."""
    carried: tuple[CarriedOrder, ...] = ()
    """The newest orders that it has seen, releases included, at most MAX_CARRIED."""
    next_within: float = PRESENCE_INTERVAL
    """Seconds within which it posts again, while all is well."""
    differs: tuple[str, ...] = ()
    """How the engine differs from what stands on the board."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodbye:
    """An engine ends cleanly."""

    id: str
    author: Author
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An engine's snapshot, posted while somebody watches. pace: seconds until the next one."""

    id: str
    presence: Presence
    pace: float
    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Somebody watches: look at the orders and report at this pace. It is unsigned, hence bounded by pace.py."""

    id: str
    by: str
    look: float
    report: float
    engines: tuple[str, ...] | None = None
    """The engines meant; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderText:
    """The signed part of an order: the state of its targets until an end."""

    primary: str
    secondary: str
    verb: str
    """The id of an action: the state that its targets shall have. One that revokes leaves them to the rules."""
    scope: str
    targets: tuple[str, ...]
    engines: tuple[str, ...] | None
    """The engines meant; None: all."""
    typed: str
    reach: int
    """Number of engines that the author addressed; 0: not known, so the target's name is typed."""
    why: str
    issued_at: float
    until: float
    seen: str
    """Digest of the engines and their states as the author saw them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order: its text, the bytes that were signed, and the signature. Only the bytes decide, whoever posts them."""

    text: OrderText
    signed: bytes
    signature: str

    @property
    def id(self) -> str:
        """Return the digest of the signed bytes: a copy is the same order."""
        return order_id(self.signed)

    @property
    def carried(self) -> CarriedOrder:
        return CarriedOrder(signed=self.signed.decode(), signature=self.signature)


@lru_cache(maxsize=4096)
def order_id(signed: bytes) -> str:
    """Return the id of an order with these signed bytes."""
    return sha256(signed).hexdigest()[:32]


Document = Presence | Goodbye | Report | Watch | Order


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingFleetOrder:
    """One subject of an order in force, with the command for it. since: when it was read first."""

    subject: Subject
    order_id: str
    command: Command
    label: str
    since: float
    until: float

    def __str__(self) -> str:
        target = f" {repeated(self.command.target)}" if self.command.target else ""
        return f"{self.label}{target}, ordered by {repeated(self.command.by)} until {written(self.until, '%H:%M')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """The principal of the key that verified. valid_before: the end of the key's right, by the file of operators."""

    by: str
    fingerprint: str
    valid_before: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Unverified:
    """Why no principal verified, as a sentence.

    looks_only: the engine verifies no order at all.
    is_unknown: its file of operators is unusable, so nothing is proven.
    """

    why: str
    looks_only: bool = False
    is_unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedOrder:
    """An order and the principal whose key signed it."""

    order: Order
    signer: Signer


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """A message as it was read from a board."""

    number: int
    enqueued_at: float
    """By the namespace's clock."""
    ends_at: float
    """Its enqueued time and time to live; a namespace may show it for longer."""
    document: Document | None
    """None: it is foreign, broken or newer than this program."""
    trouble: str = ""
    """Why there is no document."""
    copies: str = ""
    """Its message id."""
    is_newer: bool = False
    """Whether its version is newer than this program: then an order is answered by a refusal, to this message id."""
    kind: str = ""
    """Its subject, if that is a DocumentKind; empty: foreign."""
    signer: Signer | Unverified | None = None
    """Whose key signed an order; None: it was not verified, so it is void."""
    carried: tuple[VerifiedOrder, ...] = ()
    """The orders in a presence or report that a key of an operator signed."""


KINDS: Final[dict[type, DocumentKind]] = {
    Presence: DocumentKind.PRESENCE,
    Goodbye: DocumentKind.GOODBYE,
    Report: DocumentKind.REPORT,
    Watch: DocumentKind.WATCH,
    Order: DocumentKind.ORDER,
}


def kind_of(document: Document) -> DocumentKind:
    """Return the subject of a document's message."""
    return KINDS[type(document)]
