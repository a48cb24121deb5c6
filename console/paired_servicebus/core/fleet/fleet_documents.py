"""The documents that engines post on the two boards of a pairing (FLEET.md sections 2 and 3).

A board is a queue of the secondary namespace that everybody peeks and nobody receives from. The namespace numbers its
messages, and its clock dates them: these numbers and times decide, never an engine's own clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from math import inf, isfinite
from typing import Any, ClassVar, Final

from paired_servicebus.core.errors import NewerVersionError, UnreadableError
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.fleet_view import EngineFacts
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.text.number_format import plural
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

    @property
    def board(self) -> Board:
        """Return the board on which such documents are posted."""
        return Board.ORDERS if self in (DocumentKind.WATCH, DocumentKind.ORDER) else Board.REPORTS


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


# The signed bytes of an order: canonical JSON. An engine verifies the bytes, then decodes them.
#
# Canonical: keys sorted, no spaces, ASCII. A reader does not need this form, but refuses a key that appears twice,
# because two readers could choose different values. It ignores unknown keys.

OLDER: Final = "refused: this engine is older"
"""The answer to an order of a newer version."""
MAX_NUMBER: Final = 2**53
"""The largest number in an order. Larger ones are no times or counts, and break their readers."""


def encode_order_text(text: OrderText) -> bytes:
    """Return the bytes to sign.

    Raises:
        UnreadableError: no engine would read them: too long, or a value of the wrong form.
    """
    signed = _canonical(text)
    decode_order_text(signed)
    return signed


def too_long(text: OrderText) -> str:
    """Return why an order has too many bytes, and the remedy; empty: it has not."""
    size = len(_canonical(text))
    if size <= MAX_SIGNED_BYTES:
        return ""
    engines = 0 if text.engines is None else len(text.engines)
    return (
        f"the order has {size:,} bytes with {plural(len(text.targets), 'target')} and {plural(engines, 'named engine')}"
        f", and {MAX_SIGNED_BYTES:,} are allowed: give it in parts, with fewer targets or fewer named engines each"
    )


def _canonical(text: OrderText) -> bytes:
    fields = {name: getattr(text, name) for name in OrderText.__dataclass_fields__}
    return json.dumps({"v": VERSION, **fields}, sort_keys=True, separators=(",", ":")).encode("ascii")


def decode_order_text(signed: bytes) -> OrderText:
    """Read signed bytes.

    Raises:
        UnreadableError: they contain no order of a version that this program knows; the text has the reason.
    """
    if len(signed) > MAX_SIGNED_BYTES:
        raise UnreadableError(f"the order has {len(signed):,} bytes; {MAX_SIGNED_BYTES:,} are allowed")
    found = _read(signed)
    version = found.get("v")
    if type(version) is not int or version < 1:
        raise UnreadableError("the order has no version")
    if version > VERSION:
        raise NewerVersionError(f"{OLDER} (it reads version {VERSION}, the order has {min(version, MAX_NUMBER)})")
    values: dict[str, Any] = {}
    for name, is_valid in _FIELDS.items():
        if name not in found or not is_valid(value := found[name]):
            raise UnreadableError(f"the order's field {name!r} is missing or has the wrong form")
        values[name] = tuple(value) if isinstance(value, list) else float(value) if is_valid is _is_seconds else value
    return OrderText(**values)


def _read(signed: bytes) -> dict[str, Any]:
    try:
        found = json.loads(signed.decode("utf-8"), object_pairs_hook=_once, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise UnreadableError("the order is nested too deeply") from error
    except UnreadableError:
        raise
    except ValueError as error:  # invalid JSON, invalid UTF-8, or a number with too many digits
        raise UnreadableError("the order is not JSON in UTF-8") from error
    if not isinstance(found, dict):
        raise UnreadableError("the order is not a JSON object")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise UnreadableError("the order has a key twice")
    return found


def _refuse_constant(_name: str) -> Any:
    raise UnreadableError("the order has a number that is not finite")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


def _is_name(value: object) -> bool:
    return _is_text(value) and bool(value)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(_is_text(one) for one in value)


def _is_engines(value: object) -> bool:
    return value is None or (isinstance(value, list) and bool(value) and all(_is_name(one) for one in value))


def _is_seconds(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= MAX_NUMBER and isfinite(value)


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_NUMBER


_FIELDS: Final[dict[str, Callable[[object], bool]]] = {
    "primary": _is_name,
    "secondary": _is_name,
    "verb": _is_name,
    "scope": _is_name,
    "targets": _is_texts,
    "engines": _is_engines,
    "typed": _is_text,
    "reach": _is_number,
    "why": _is_text,
    "issued_at": _is_seconds,
    "until": _is_seconds,
    "seen": _is_text,
}
"""Each field's check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order: the signed bytes, which are UTF-8, and the signature. Only they decide, whoever posts them."""

    kind: ClassVar = DocumentKind.ORDER
    signed: str
    signature: str

    @property
    def text(self) -> OrderText:
        """Return what is signed. Raises UnreadableError: the bytes contain no order, as a stranger's may."""
        return _text_of(self.signed)

    @property
    def id(self) -> str:
        """Return the digest of the signed bytes: a copy is the same order."""
        return order_id(self.signed.encode())


@lru_cache(maxsize=4096)
def _text_of(signed: str) -> OrderText:
    return decode_order_text(signed.encode(errors="replace"))


@lru_cache(maxsize=4096)
def order_id(signed: bytes) -> str:
    """Return the id of an order with these signed bytes."""
    return sha256(signed).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence(EngineFacts):
    """An engine exists: posted at its start, each hour, and when its syphon or the orders in it change.

    While a watch is in force it is posted each PRESENCE_WATCHED seconds.
    """

    kind: ClassVar = DocumentKind.PRESENCE
    id: str
    author: Author
    rows: tuple[OrderRow, ...] = ()
    """What it did about the newest orders that it has seen, at most MAX_ROWS."""
    carried: tuple[Order, ...] = ()
    """The newest orders that it has seen, releases included, at most MAX_CARRIED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodbye:
    """An engine ends cleanly."""

    kind: ClassVar = DocumentKind.GOODBYE
    id: str
    author: Author
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An engine's snapshot, posted while somebody watches. pace: seconds until the next one."""

    kind: ClassVar = DocumentKind.REPORT
    id: str
    presence: Presence
    pace: float
    snapshot: Snapshot

    @property
    def author(self) -> Author:
        return self.presence.author


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Somebody watches: look at the orders and report at this pace. It is unsigned, hence bounded by pace.py."""

    kind: ClassVar = DocumentKind.WATCH
    id: str
    by: str
    look: float
    report: float


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


Stamp = tuple[float, int]
"""The place of a message in time: when the namespace dated it, and its number."""


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
    carried: tuple[tuple[Order, Signer], ...] = ()
    """The orders in a presence or report that a key of an operator signed, and whose it is."""

    @property
    def stamp(self) -> Stamp:
        return self.enqueued_at, self.number
