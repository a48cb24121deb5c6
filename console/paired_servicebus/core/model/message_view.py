"""Messages of a backlog queue as a peek shows them: rows, one message with the start of its body, and searches.

Texts come from strangers: they are one harmless line of bounded length here already. Not here: reading them
(paired_servicebus.pairing.monitoring.message_looks), and their drawing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.text.untrusted_text import repeated

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


# A search over messages: a text in ids, properties and bodies, or a JSON path into the body.
#
# `order 4711` finds the text anywhere, without case. `$.order.id` finds bodies that have it, `$.order.id = 4711` and
# `$.lines[*].sku = "A-1"` those with that value; `=` compares a string also without quotes.

MAX_SEARCH_CHARS: Final = 300
"""Characters of a search."""
MAX_PARSED_BYTES: Final = 1_048_576
"""Bytes of a body up to which it is read as JSON; a larger one has no path."""
MAX_SEARCHED: Final = 100_000
"""Messages that one search of a console reads."""

_STEP: Final = re.compile(r"""\.(?P<name>[^.\[\]=\s]+)|\[(?:(?P<index>\d+)|(?P<any>\*)|"(?P<quoted>[^"]*)")\]""")
_VALUE: Final = re.compile(r"\s*=\s*(?P<value>.*)", re.DOTALL)
EVERY: Final = "*"

Step = str | int
Matches = Callable[[Iterable[str], bytes | None], bool]
"""Whether a message matches, by its texts and its body; None: the body is hidden."""


def parse_search(text: str) -> Matches:
    """Return what decides whether a message matches.

    Raises:
        ConfigurationError: it is too long, or begins with `$` and is no path.
    """
    if len(text) > MAX_SEARCH_CHARS:
        raise ConfigurationError(f"a search has at most {MAX_SEARCH_CHARS} characters; this has {len(text):,}")
    if text.startswith(("$.", "$[")):
        steps, value = _parse_path(text)
        return lambda _texts, body: _has_path(body, steps, value)
    wanted = text.casefold()
    return lambda texts, body: any(wanted in one.casefold() for one in texts) or _has_text(body, wanted)


def _has_text(body: bytes | None, wanted: str) -> bool:
    return body is not None and wanted in body.decode("utf-8", "replace").casefold()


def _parse_path(text: str) -> tuple[tuple[Step, ...], str | None]:
    """Return the steps, and the wanted value as it was typed; None: any."""
    steps: list[Step] = []
    place = 1
    while found := _STEP.match(text, place):
        index, quoted = found["index"], found["quoted"]
        steps.append(int(index) if index else EVERY if found["any"] else found["name"] if quoted is None else quoted)
        place = found.end()
    rest = text[place:]
    value = _VALUE.fullmatch(rest)
    if not steps or (rest.strip() and value is None):
        raise ConfigurationError(
            f"{repeated(text)!r} is no JSON path: write $.order.id, $.lines[0].sku, or $.order.id = 4711"
        )
    return tuple(steps), value["value"].strip() if value is not None else None


def _has_path(body: bytes | None, steps: tuple[Step, ...], value: str | None) -> bool:
    if body is None or len(body) > MAX_PARSED_BYTES:
        return False
    try:
        found = _values(json.loads(body), steps)
        return any(value is None or _equals(one, value) for one in found)
    except (ValueError, RecursionError):
        return False


def _values(within: Any, steps: tuple[Step, ...]) -> Iterator[Any]:
    """Yield every value at the path."""
    if not steps:
        yield within
        return
    step, rest = steps[0], steps[1:]
    if step == EVERY:
        every = within.values() if isinstance(within, dict) else within if isinstance(within, list) else ()
        for one in every:
            yield from _values(one, rest)
    elif isinstance(within, dict):
        if str(step) in within:
            yield from _values(within[str(step)], rest)
    elif isinstance(within, list) and isinstance(step, int) and step < len(within):
        yield from _values(within[step], rest)


def _equals(found: Any, typed: str) -> bool:
    """Return whether a value is what was typed: as JSON, or a string without its quotes."""
    if found == typed:
        return True
    try:
        wanted = json.loads(typed)
    except (ValueError, RecursionError):
        return False
    return (type(found) is type(wanted) and bool(found == wanted)) or _same_number(found, wanted)


def _same_number(found: Any, wanted: Any) -> bool:
    numbers = (int, float)
    either = isinstance(found, bool) or isinstance(wanted, bool)
    return not either and isinstance(found, numbers) and isinstance(wanted, numbers) and found == wanted
