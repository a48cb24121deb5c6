"""Looks into the backlog queues, by peek only.

An operator gets pages of messages, and one message. Periodic peeks find the reasons of dead letters and the age of the
oldest message.

A peek locks nothing and changes nothing; it is billed as a receive and carries whole messages. So each look is bounded:
its seconds, its requests, its bytes, the looks at once. It has a connection of its own, so that large messages hold up
no pump; the connection closes when nobody looks.

Texts are cut and made harmless here, so that nothing after this has to trust them. An unreadable message is a row with
the reason.

Counts have neither reasons nor ages, and other programs dead-letter too. Queues are peeked periodically only while they
are watched and their counts are above zero, at most once a minute each; a look at dead letters ends after MAX_PEEKED
messages. A failure is shown beside the earlier result. No send, pump or state depends on it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, TypeVar

from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.errors import (
    EnvelopeError,
    IllegalEventError,
    MessagesUnknownError,
    WireError,
    WireUnavailableError,
)
from paired_servicebus.core.model.message_view import (
    MAX_BODY_BYTES,
    MAX_PAGE_BYTES,
    MAX_PROPERTIES,
    MAX_ROWS,
    Matches,
    MessageContent,
    MessageKind,
    MessagePage,
    MessageRow,
    parse_search,
)
from paired_servicebus.core.model.snapshot import DeadLettersView, Meter, OldestView
from paired_servicebus.core.model.verdict import Judge
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from paired_servicebus.pairing.amqp_client.reconnecting import peek
from paired_servicebus.pairing.envelope_codec import broker_properties, open_envelope, read_message_id
from paired_servicebus.pairing.monitoring.backlog_inspection import BacklogAccess, DepthPoller
from paired_servicebus.pairing.runtime.deadlines import TaskOwner
from paired_servicebus.pairing.syphon.syphon import DEAD_LETTERS
from servicebus_amqp.encoding.codec import NULL, Described, Timestamp, decode
from servicebus_amqp.encoding.message_sections import DATA, VALUE, Sections, list_items, map_values, read_header, split

LONGEST_NAME: Final = 260
"""Characters of a path, which is as long as an entity's may be."""
LONGEST_ID: Final = 128
LONGEST_VALUE: Final = 300
DECODED_BYTES: Final = 4096
"""A property's value with more bytes is not decoded: a sender can make it expensive to read."""
OURS: Final = "Undeliverable"
"""The reason of the pumps' dead letters; their description has the cause."""
_REASON, _DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"
_STATES: Final = {1: "deferred", 2: "scheduled"}
_NAMES: Final = (
    "message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding",
    "expires", "created", "session", "group-sequence", "reply-to-group-id",
)  # fmt: skip
_BINARY: Final = {0xA0: 1, 0xB0: 4}
"""Format codes of binaries, with the bytes of the size."""
_STRING: Final = {0xA1: 1, 0xB1: 4}

T = TypeVar("T")


def row_of(data: bytes, *, own: bool = False) -> MessageRow:
    """Return an encoded message's row; never raises. own: it is no backlog queue's, and has no envelope."""
    held = broker_properties(data)
    destination, session, fault = "", "", ""
    try:
        opened = open_envelope(data)
    except EnvelopeError as error:
        fault, message_id = str(error), read_message_id(data)
    else:
        destination, session, message_id = opened.enclosed.path, opened.enclosed.session_id or "", opened.message_id
    if own:
        destination, fault = "", ""
        session = _readable(lambda: dict(_own(split(data).properties)).get("session", ""), "")
    return MessageRow(
        number=held.sequence_number,
        destination=one_line(destination, most=LONGEST_NAME),
        message_id=one_line(message_id, most=LONGEST_ID),
        enqueued_at=held.enqueued_ms / 1000 if held.enqueued_ms > 0 else None,
        size=len(data),
        deliveries=_readable(lambda: read_header(split(data).header).delivery_count or 0, None),
        session=one_line(session, most=LONGEST_ID),
        reason=one_line(_readable(lambda: _dead_letter(data), "") or fault, most=LONGEST_VALUE),
        state=_STATES.get(held.state, ""),
    )


def _readable(read: Callable[[], T], otherwise: T) -> T:
    """Return what `read` finds in a message, or `otherwise` if it cannot be read: any sender may have written it."""
    try:
        return read()
    except Exception:  # noqa: BLE001 - as above; the row tells the fault of the envelope
        return otherwise


def matching(peeked: Sequence[bytes], matches: Matches, *, reads_bodies: bool) -> list[bool]:
    """Return for each encoded message whether it matches a search; never raises. Runs in a thread: bodies are long."""
    return [_matches(data, matches, reads_bodies=reads_bodies) for data in peeked]


def _matches(data: bytes, matches: Matches, *, reads_bodies: bool) -> bool:
    row = row_of(data)
    texts = [row.message_id, row.destination, row.session, row.reason, row.state]
    try:
        sections = split(data)
    except Exception:  # noqa: BLE001 - any sender may have written it; its row tells the fault
        return matches(texts, None)
    body = _whole_body(sections.body)[0] if reads_bodies else None
    return matches([*texts, *(value for _, value in _some(_properties(sections), MAX_PROPERTIES))], body)


def content_of(data: bytes, row: MessageRow, *, read_at: float, from_byte: int = 0) -> MessageContent:
    """Return an encoded message's properties and a part of its body; never raises."""
    end = from_byte + MAX_BODY_BYTES
    try:
        sections = split(data)
    except Exception as error:  # noqa: BLE001 - any sender may have written it; the screen shows the reason
        note = f"the message cannot be read ({type(error).__name__}); these are its encoded bytes"
        part = data[from_byte:end]
        return MessageContent(row=row, body=part, body_size=len(data), body_note=note, read_at=read_at)
    whole, note = _whole_body(sections.body)
    return MessageContent(
        row=row,
        properties=tuple(_some(_properties(sections), MAX_PROPERTIES)),
        body=whole[from_byte:end],
        body_size=len(whole),
        body_note=note,
        read_at=read_at,
    )


# -- properties ------------------------------------------------------------------------------------------------------


def _some(pairs: Iterator[tuple[str, str]], most: int) -> Iterator[tuple[str, str]]:
    """Yield the first pairs, and a remark if there are more."""
    for place, (name, value) in enumerate(pairs):
        if place == most:
            yield "…", f"more than {most} properties; the others are not shown"
            return
        yield one_line(name, most=LONGEST_ID), value


def _properties(sections: Sections) -> Iterator[tuple[str, str]]:
    """Yield the names and values of properties, annotations and application properties."""
    yield from _guarded(lambda: _own(sections.properties), "properties")
    yield from _guarded(lambda: _map(sections.application_properties, "app: "), "application properties")
    yield from _guarded(lambda: _map(sections.message_annotations, "annotation: "), "annotations")


def _guarded(read: Callable[[], Iterator[tuple[str, str]]], what: str) -> Iterator[tuple[str, str]]:
    try:
        yield from read()
    except Exception as error:  # noqa: BLE001 - as above
        yield what, f"cannot be read ({type(error).__name__})"


def _own(section: bytes | None) -> Iterator[tuple[str, str]]:
    for name, item in zip(_NAMES, list_items(section, 0) if section else (), strict=False):
        if item != NULL:
            yield name, _value(item)


def _map(section: bytes | None, before: str) -> Iterator[tuple[str, str]]:
    for name, item in map_values(section) if section else ():
        yield before + name.decode("utf-8", "replace"), _value(item)


def _moment(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return f"{milliseconds} ms, which is no time"


def _value(item: bytes) -> str:
    """Return an encoded value as one harmless line."""
    if len(item) > DECODED_BYTES:
        code = item[0]
        head = item[5 : 5 + 4 * LONGEST_VALUE] if code == 0xB1 else b""
        text = one_line(head.decode("utf-8", "replace"), most=LONGEST_VALUE) if head else ""
        return f"{text} ({len(item):,} bytes)" if text else f"{len(item):,} bytes, not shown"
    value = decode(item)[0]
    if isinstance(value, Described):
        value = value.value
    if isinstance(value, Timestamp):
        return _moment(int(value))
    if isinstance(value, bytes):
        return f"bytes {value[:32].hex(' ')}{' …' if len(value) > 32 else ''}"
    return one_line(str(value), most=LONGEST_VALUE)


def _dead_letter(data: bytes) -> str:
    """Return the reason of a dead letter: the description of ours, the reason of others'."""
    section = split(data).application_properties
    found = dict(map_values(section)) if section else {}
    given = [found.get(name.encode(), NULL) for name in (_REASON, _DESCRIPTION)]
    reason, description = ("" if one == NULL else _value(one) for one in given)
    return (description or reason) if reason == OURS else (reason or description)


# -- the body --------------------------------------------------------------------------------------------------------


def _whole_body(body: bytes) -> tuple[bytes, str]:
    """Return a body, and a note if it is neither bytes nor text."""
    if not body:
        return b"", "no body"
    if body[:2] == b"\x00\x53" and len(body) > 4 and body[2] in (DATA, VALUE):
        width = (_BINARY if body[2] == DATA else _BINARY | _STRING).get(body[3])
        start = 4 + (width or 0)
        if width is not None and start + int.from_bytes(body[4:start], "big") == len(body):
            return bytes(body[start:]), ""
    return bytes(body), "an AMQP body of several parts or another type, as encoded"


# -- looks of an operator ---------------------------------------------------------------------------------------------


PEEK_SECONDS: Final = 6.0
"""Seconds of one request."""
LOOK_SECONDS: Final = 8.0
"""Seconds of one look, its turn included."""
LOOKS_AT_ONCE: Final = 2
MAX_LOOKS: Final = 8
"""Looks under way or waiting; more are refused."""
MAX_REQUESTS: Final = 10
"""Peeks of one look."""
MESSAGES_PER_PEEK: Final = 250
MAX_LOOK_BYTES: Final = 32 * 1024 * 1024
"""Bytes of messages after which a look asks for no more; the last message may be larger."""
IDLE_SECONDS: Final = 60.0
"""Seconds after the last look until the connection is closed."""
BODIES_NOT_SEARCHED: Final = 'bodies are hidden and were not searched: pairing.toml has [console] bodies = "hidden"'
_ROW_BYTES: Final = 160
"""Bytes of a row's numbers and names in JSON, about."""


class MessageLooks:
    """All looks of one pairing, or at one namespace.

    Args:
        client: the namespace's; needs Listen.
        clock: seconds since the epoch.
        judge: the verdict on failures.
        meter: counts the peeks.
        tasks: own the closing of the connection.
        own: whether the entities' messages are their own, and no backlog queue's: their destination is the entity.
    """

    def __init__(
        self,
        client: ServiceBusClient,
        *,
        clock: Callable[[], float],
        judge: Judge,
        meter: Meter,
        tasks: TaskOwner,
        own: bool = False,
    ) -> None:
        self._clock, self._judge, self._meter, self._tasks = clock, judge, meter, tasks
        self._own = own
        self._client = client
        self._wire: ReconnectingConnection | None = None
        self._turns = asyncio.Semaphore(LOOKS_AT_ONCE)
        self._looks = 0
        self._idle: asyncio.TimerHandle | None = None

    async def page(
        self,
        path: str,
        kind: MessageKind,
        *,
        from_number: int = 1,
        count: int = MAX_ROWS,
        wanted: str = "",
        reads_bodies: bool = True,
    ) -> MessagePage:
        """Return messages of a queue from a sequence number on.

        Args:
            wanted: only messages that match this search (core.model.message_view); empty: all.
            reads_bodies: False: the search reads ids and properties only, and the page says so.

        Raises:
            MessagesUnknownError: the namespace did not show them; the text says why.
            ConfigurationError: the search is none.
        """
        matches = parse_search(wanted) if wanted else None
        number, count = max(1, from_number), max(1, min(count, MAX_ROWS))
        rows: list[MessageRow] = []
        looked_at = read_bytes = page_bytes = 0
        is_filtered = matches is not None or kind is MessageKind.DEFERRED
        async with self._look(path) as wire:
            for _ in range(MAX_REQUESTS):
                at_most = MESSAGES_PER_PEEK if is_filtered else count - len(rows)
                peeked, before = await self._peek(wire, path, kind, number, at_most), number
                kept: Sequence[bool] = [True] * len(peeked)
                if matches is not None:
                    kept = await asyncio.to_thread(matching, peeked, matches, reads_bodies=reads_bodies)
                for data, is_kept in zip(peeked, kept, strict=True):
                    found = broker_properties(data)
                    if found.sequence_number < number:
                        continue
                    number, looked_at = found.sequence_number + 1, looked_at + 1
                    read_bytes += len(data)
                    if not _belongs(found.state, kind) or not is_kept:
                        continue
                    rows.append(row_of(data, own=self._own))
                    page_bytes += _bytes_of(rows[-1])
                    if len(rows) >= count or page_bytes >= MAX_PAGE_BYTES:
                        break
                if number == before:  # nothing, or nothing with a number: the end
                    number = 0
                    break
                if len(rows) >= count or page_bytes >= MAX_PAGE_BYTES or read_bytes >= MAX_LOOK_BYTES:
                    break
        return MessagePage(
            queue=path,
            kind=kind,
            rows=tuple(rows),
            looked_at=looked_at,
            next_number=number,
            read_at=self._clock(),
            note=BODIES_NOT_SEARCHED if wanted and not reads_bodies else "",
        )

    async def message(self, path: str, kind: MessageKind, number: int, *, from_byte: int = 0) -> MessageContent:
        """Return one message with its body from a byte on, MAX_BODY_BYTES at most, peeked once.

        Raises:
            MessagesUnknownError: as `page`.
            IllegalEventError: it is not in the queue any more.
        """
        async with self._look(path) as wire:
            for data in await self._peek(wire, path, kind, number, 1):
                if broker_properties(data).sequence_number == number:
                    read_at, row = self._clock(), row_of(data, own=self._own)
                    return content_of(data, row, read_at=read_at, from_byte=max(0, from_byte))
        raise IllegalEventError(f"message {number} is not in the queue any more: it was moved, or it expired")

    async def oldest(self, path: str) -> MessageRow | None:
        """Return the first message of a queue, whatever its state; None: there is none.

        Raises:
            MessagesUnknownError: as `page`.
        """
        async with self._look(path) as wire:
            peeked = await self._peek(wire, path, MessageKind.ACTIVE, 1, 1)
        return row_of(peeked[0]) if peeked else None

    async def close(self) -> None:
        """Close the connection, within seconds."""
        if self._idle is not None:
            self._idle.cancel()
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    @asynccontextmanager
    async def _look(self, path: str) -> AsyncIterator[ReconnectingConnection]:
        """Take a turn, and translate every failure into a sentence."""
        if self._looks >= MAX_LOOKS:
            raise MessagesUnknownError(f"unknown: {MAX_LOOKS} looks at messages are under way; try again")
        self._looks += 1
        if self._idle is not None:
            self._idle.cancel()
        try:
            async with asyncio.timeout(LOOK_SECONDS), self._turns:
                yield self._connection()
        except (WireError, TimeoutError) as error:
            slow = isinstance(error, TimeoutError) and not isinstance(error, WireError)
            reason = f"no answer within {LOOK_SECONDS:g} s" if slow else self._judge(error).reason
            raise MessagesUnknownError(f"unknown: {path} cannot be read: {reason}") from error
        finally:
            self._looks -= 1
            if not self._looks:
                self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end)

    def _connection(self) -> ReconnectingConnection:
        if self._wire is None:
            self._wire = ReconnectingConnection(Endpoint.of(self._client), name="messages")
        return self._wire

    def _end(self) -> None:
        self._tasks.start(self.close(), name="closing the connection for messages")

    async def _peek(
        self, wire: ReconnectingConnection, path: str, kind: MessageKind, number: int, count: int
    ) -> list[bytes]:
        self._meter.receives += 1
        where = path + DEAD_LETTERS if kind is MessageKind.DEAD else path
        return await peek(wire, where, from_number=number, count=count, timeout=PEEK_SECONDS)


def _belongs(state: int, kind: MessageKind) -> bool:
    """Return whether a message of this state is of this kind; dead letters are in a queue of their own."""
    if kind is MessageKind.ACTIVE:
        return state != 1
    return kind is not MessageKind.DEFERRED or state == 1


def _bytes_of(row: MessageRow) -> int:
    texts = (row.destination, row.message_id, row.session, row.reason)
    return _ROW_BYTES + sum(len(text.encode("utf-8", "replace")) for text in texts)


# -- periodic peeks ---------------------------------------------------------------------------------------------------


MIN_LOOK_SECONDS: Final = 60.0
"""Minimum seconds between two looks at the same part of a queue, failed ones included."""
UNCHANGED_SECONDS: Final = 900.0
"""Seconds between two looks at dead letters of unchanged number, which may stay for weeks."""
MAX_PEEKED: Final = 200
"""Dead letters that one look reads, from the first."""
MAX_REASONS: Final = 5
"""Reasons of dead letters that are named, for each queue."""
OTHER_REASONS: Final = "other reasons"
NO_REASON: Final = "no reason given"


class Peeks:
    """The periodic peeks into the backlog queues; `dead` and `oldest` have the latest results, by index.

    Without watchers nothing is peeked.

    Args:
        messages: the looks at messages in the secondary namespace.
        poller: the queues' counts; empty queues are not peeked.
    """

    def __init__(self, backlog: BacklogAccess, messages: MessageLooks, poller: DepthPoller) -> None:
        self.dead: dict[int, DeadLettersView] = dict.fromkeys(backlog.queues, DeadLettersView())
        self.oldest: dict[int, OldestView] = dict.fromkeys(backlog.queues, OldestView())
        self._tried: dict[tuple[int, MessageKind], tuple[float, int | None]] = {}
        """The loop's time of the last look at a part of a queue, and the messages in it; None: it failed."""
        self._steering, self._looks, self._queues = backlog.steering, backlog.looks, backlog.queues
        self._messages = messages
        self._poller = poller

    async def run(self) -> None:
        """Look into all queues, one after the other, after each reading of counts for watchers."""
        while True:
            await self._poller.ended.wait()
            if self._looks.attended:
                for index in self._queues:
                    await self.look(index)
            self._looks.answered()

    async def look(self, index: int) -> None:
        """Look into one queue if that is due. A queue with unknown counts is skipped."""
        sample = self._poller.found[index]
        if sample is not None:
            await self._look_at_dead(index, sample.depth.dead_lettered)
            await self._look_at_oldest(index, sample.depth.messages)

    def _is_due(self, index: int, kind: MessageKind, count: int | None) -> bool:
        """Begin a look at a part of a queue, if it is time for one. count: the messages in it, where these matter."""
        now = asyncio.get_running_loop().time()
        tried, before = self._tried.get((index, kind), (now - MIN_LOOK_SECONDS, None))
        is_unchanged = before is not None and before == count
        if now < tried + (UNCHANGED_SECONDS if is_unchanged else MIN_LOOK_SECONDS):
            return False
        self._tried[index, kind] = now, None
        return True

    async def _look_at_dead(self, index: int, count: int) -> None:
        if not count:
            self.dead[index] = DeadLettersView()
        elif self._is_due(index, MessageKind.DEAD, count):
            try:
                page = await self._messages.page(self._queues[index], MessageKind.DEAD, count=min(count, MAX_PEEKED))
            except (MessagesUnknownError, WireUnavailableError) as error:
                self.dead[index] = replace(self.dead[index], trouble=str(error))
                return
            reasons = [row.reason or NO_REASON for row in page.rows]
            self._tried[index, MessageKind.DEAD] = self._tried[index, MessageKind.DEAD][0], count
            self.dead[index] = DeadLettersView(
                read_at=self._steering.clock(), looked_at=len(reasons), reasons=most_frequent(reasons)
            )

    async def _look_at_oldest(self, index: int, count: int) -> None:
        if not count:
            self.oldest[index] = OldestView()
        elif self._is_due(index, MessageKind.ACTIVE, None):
            try:
                row = await self._messages.oldest(self._queues[index])
            except (MessagesUnknownError, WireUnavailableError) as error:
                self.oldest[index] = replace(self.oldest[index], trouble=str(error))
            else:
                enqueued_at, destination = (None, "") if row is None else (row.enqueued_at, row.destination)
                self.oldest[index] = OldestView(
                    read_at=self._steering.clock(), enqueued_at=enqueued_at, destination=destination
                )


def most_frequent(reasons: list[str]) -> tuple[tuple[str, int], ...]:
    """Return the most frequent reasons and their numbers of messages; the rest is OTHER_REASONS."""
    most = Counter(reasons).most_common(MAX_REASONS)
    rest = len(reasons) - sum(number for _, number in most)
    return (*most, (OTHER_REASONS, rest)) if rest else tuple(most)
