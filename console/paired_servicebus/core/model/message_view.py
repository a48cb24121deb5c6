"""Messages of a backlog queue as a peek shows them: rows without bodies, and one message with the start of its body.

Texts come from strangers: they are one harmless line of bounded length here already. Not here: reading them
(paired_servicebus.pairing.monitoring.message_looks), and their drawing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MAX_ROWS: Final = 200
"""Rows of one page."""
MAX_PAGE_BYTES: Final = 64 * 1024
"""Bytes of one page's texts, about."""
MAX_BODY_BYTES: Final = 64 * 1024
"""Bytes of a body that leave the engine: its first ones."""
MAX_PROPERTIES: Final = 100
"""Properties of one message that leave the engine."""
MAX_LETTERS_BEFORE: Final = 2_000
"""Older dead letters that a re-drive receives, and releases at its end, to reach selected ones."""
POISON_TRIES: Final = 3
"""Deliveries from which a message probably fails for a reason of its own."""


class MessageKind(StrEnum):
    """The part of a queue that is shown."""

    ACTIVE = "active"
    """What the syphon receives next, and scheduled messages."""
    DEFERRED = "deferred"
    """What the syphon set aside until its destination takes messages."""
    DEAD = "dead"
    STRANDED = "stranded"
    """Everything but the dead letters, in a queue that no engine uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    """One message, without its body."""

    number: int
    """Its sequence number in the queue."""
    destination: str = ""
    """Empty: unknown; `reason` tells why."""
    message_id: str = ""
    enqueued_at: float | None = None
    """Its arrival in this queue, in seconds since the epoch; None: unknown."""
    size: int = 0
    """Bytes of the whole message."""
    deliveries: int | None = None
    """Earlier deliveries; None: unknown."""
    session: str = ""
    reason: str = ""
    """Why it is dead, or cannot be delivered."""
    state: str = ""
    """Empty for an active message; "deferred" or "scheduled"."""

    @property
    def is_poison(self) -> bool:
        """Whether it was tried so often that it probably fails for a reason of its own."""
        return self.deliveries is not None and self.deliveries >= POISON_TRIES


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """What one look into a queue found."""

    queue: str
    kind: MessageKind
    rows: tuple[MessageRow, ...] = ()
    looked_at: int = 0
    """Messages that were peeked for these rows."""
    next_number: int = 0
    """The sequence number to continue from; 0: this is the end of the queue."""
    note: str = ""
    """What the search did not read, and why; empty: nothing was left out."""
    read_at: float = 0.0
    """Seconds since the epoch, by the engine's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageContent:
    """One message with its properties and the start of its body."""

    row: MessageRow
    properties: tuple[tuple[str, str], ...] = ()
    """Names and values, the message's own first, then the application's with "app: " before the name."""
    body: bytes = b""
    """At most MAX_BODY_BYTES, from the asked place on."""
    body_size: int = 0
    body_note: str = ""
    """What the body is, if it is not plain bytes or text; or why it is not shown."""
    read_at: float = 0.0


def by_destination(rows: tuple[MessageRow, ...]) -> tuple[tuple[str, int], ...]:
    """Return the destinations of the rows with their numbers of messages, the most frequent first."""
    return tuple(Counter(row.destination for row in rows).most_common())
