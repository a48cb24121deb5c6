"""The budget of one key: its connections, links, bytes in hand and sends a second, so that it cannot use up a server.

What exceeds it is slowed by reading its clients later, or refused with a sentence; clients of other keys do not notice.
Bytes of a message count from its first frame. Incomplete messages cannot be waited for by reading none of them: above
the limit, the connections that hold some are read one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from servicebus_amqp.nodes.request_ends import AmqpRefusal

MAX_BYTES: Final = 64 * 1024 * 1024
"""Of a whole server's sends in hand. Credit counts messages and not bytes, so it cannot bound them."""
KEY_BYTES: Final = 32 * 1024 * 1024
UNFINISHED_SECONDS: Final = 5.0
"""The time for a connection to complete its messages while others of its key wait for it."""


LARGE_BYTES: Final = 4 * 1024 * 1024
"""Incomplete messages of one connection, after whose end free memory goes back to the system."""


def return_free_memory() -> None:
    """Return the memory that is free in this process to the system, where the C library can."""
    import ctypes  # not needed for the first frame

    with suppress(AttributeError, OSError):  # glibc alone has malloc_trim
        ctypes.CDLL(None).malloc_trim(0)


class PausableReader(Protocol):
    """A connection whose reading may pause for several reasons."""

    def pause(self, reason: str) -> None: ...
    def resume(self, reason: str) -> None: ...
    def end_beyond(self, refusal: AmqpRefusal) -> None:
        """Close the connection, which uses more than it may."""


class BytesInHand:
    """Bytes of sends under way. most: from which readers pause; they resume below its half. sends: their number."""

    def __init__(self, most: int = MAX_BYTES, reason: str = "bytes in hand") -> None:
        self._most = most
        self._reason = reason
        self._paused: dict[PausableReader, None] = {}
        self._emptied: asyncio.Event | None = None
        self.size = 0
        self.sends = 0

    @property
    def most(self) -> int:
        return self._most

    @property
    def paused(self) -> tuple[PausableReader, ...]:
        """Return the connections that are not read now."""
        return tuple(self._paused)

    def add(self, size: int, reader: PausableReader) -> None:
        """Count a send of `reader`, which pauses if there are too many."""
        self.size += size
        self.sends += 1
        if self.size >= self._most and reader not in self._paused:
            self._paused[reader] = None
            reader.pause(self._reason)

    def remove(self, size: int) -> None:
        """Count the end of a send; resume the readers if there is room again."""
        self.size -= size
        self.sends -= 1
        if self._paused and 2 * self.size < self._most:
            paused, self._paused = self._paused, {}
            for reader in paused:
                reader.resume(self._reason)
        if self._emptied is not None and not self.size:
            self._emptied.set()

    async def wait_empty(self) -> None:
        """Return when no send is in hand."""
        while self.size:
            self._emptied = asyncio.Event()
            await self._emptied.wait()

    def forget(self, reader: PausableReader) -> None:
        """Forget a connection that has ended."""
        self._paused.pop(reader, None)


class UnfinishedMessages:
    """Bytes of incomplete messages over the connections of one key. most: beyond which they are read in turn."""

    _REASON: Final = "unfinished messages"

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[PausableReader, int] = {}
        self._waiting: dict[PausableReader, None] = {}
        self._reading: PausableReader | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.size = 0

    @property
    def waiting(self) -> tuple[PausableReader, ...]:
        """Return the connections that are not read now."""
        return tuple(self._waiting)

    def count(self, reader: PausableReader, held: int, largest: int) -> None:
        """Note the bytes that a connection's incomplete messages hold. largest: bytes of one message that it may send.

        The connection may be ended by it.
        """
        self.size += held - self._held.pop(reader, 0)
        if held:
            self._held[reader] = held
        if held > max(self._most, largest):
            reader.end_beyond(_too_many_bytes(held))
        elif self.size <= self._most:
            self._release_all()
        elif reader is self._reading:
            if not held:
                self._pass_on()
        elif held and self._reading is None:
            self._read(reader)
        elif held:
            self._waiting[reader] = None
            reader.pause(self._REASON)

    def forget(self, reader: PausableReader) -> None:
        """Forget a connection that has ended."""
        self._waiting.pop(reader, None)
        self.size -= self._held.pop(reader, 0)
        if self.size <= self._most:
            self._release_all()
        elif reader is self._reading:
            self._pass_on()

    def _read(self, reader: PausableReader | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._reading = reader
        if reader is not None:
            self._timer = asyncio.get_running_loop().call_later(UNFINISHED_SECONDS, self._end_reading)

    def _pass_on(self) -> None:
        """Read the connection that has waited longest."""
        following = next(iter(self._waiting), None)
        self._read(following)
        if following is not None:
            del self._waiting[following]
            following.resume(self._REASON)

    def _release_all(self) -> None:
        self._read(None)
        waiting, self._waiting = self._waiting, {}
        for reader in waiting:
            reader.resume(self._REASON)

    def _end_reading(self) -> None:
        self._timer = None
        reader = self._reading
        if reader is not None:
            reader.end_beyond(_too_many_bytes(self._held.get(reader, 0)))


def _too_many_bytes(held: int) -> AmqpRefusal:
    text = f"messages that are not complete hold {held:,} bytes here: complete one before the next begins"
    return AmqpRefusal("amqp:resource-limit-exceeded", text, 403)


class Pace:
    """A number of sends a second, with one second's worth at once."""

    _REASON: Final = "sends a second"

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._left = per_second
        self._at = 0.0
        self._paused: set[PausableReader] = set()

    def count(self, reader: PausableReader) -> None:
        """Count a send; read nothing more of its connection until the next one is due."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._left = min(self._per_second, self._left + (now - self._at) * self._per_second) - 1
        self._at = now
        if self._left < 0 and reader not in self._paused:
            self._paused.add(reader)
            reader.pause(self._REASON)
            loop.call_later(-self._left / self._per_second, self._resume, reader)

    def _resume(self, reader: PausableReader) -> None:
        self._paused.discard(reader)
        reader.resume(self._REASON)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """The limits of one key. None: those of the whole server alone."""

    connections: int | None = None
    links: int | None = None
    bytes_in_hand: int = KEY_BYTES
    """Of sends under way, and once more of messages that are not complete yet."""
    sends_per_second: float | None = None


DEFAULT_LIMITS: Final = KeyLimits()


class KeyBudget:
    """What the connections of one key use. whole: the sends in hand of the server."""

    def __init__(self, name: str, limits: KeyLimits, whole: BytesInHand) -> None:
        self.name = name
        self.limits = limits
        self.in_hand = BytesInHand(limits.bytes_in_hand, "bytes in hand of its key")
        self.unfinished = UnfinishedMessages(limits.bytes_in_hand)
        self._whole = whole
        self._pace = None if limits.sends_per_second is None else Pace(limits.sends_per_second)
        self._connections: dict[PausableReader, Callable[[], int]] = {}

    def join(self, connection: PausableReader, links: Callable[[], int]) -> AmqpRefusal | None:
        """Count a connection; return a refusal if there are too many. links: the number of those that it has."""
        most = self.limits.connections
        if most is not None and len(self._connections) >= most:
            return _beyond(self.name, f"{most} connections")
        self._connections[connection] = links
        return None

    def leave(self, connection: PausableReader) -> None:
        """Forget a connection that has ended; its sends may go on."""
        self._connections.pop(connection, None)
        self.in_hand.forget(connection)
        self.unfinished.forget(connection)

    def check_links(self) -> None:
        """Raise AmqpRefusal if the key has as many links as it may."""
        most = self.limits.links
        if most is not None and sum(count() for count in self._connections.values()) >= most:
            raise _beyond(self.name, f"{most} links")

    def add(self, size: int, reader: PausableReader) -> None:
        """Count a send of `reader`, which is read later if there are too many."""
        self._whole.add(size, reader)
        self.in_hand.add(size, reader)
        if self._pace is not None:
            self._pace.count(reader)

    def remove(self, size: int) -> None:
        """Count the end of a send."""
        self._whole.remove(size)
        self.in_hand.remove(size)


def _beyond(name: str, what: str) -> AmqpRefusal:
    return AmqpRefusal("amqp:resource-limit-exceeded", f"the key '{name}' has {what} and may have no more", 403)


class KeyBudgets:
    """The budgets of a server's keys, by name. most: bytes of sends in hand over all of them."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        self.whole = BytesInHand(most)
        self._budgets: dict[str, KeyBudget] = {}

    def budget_of(self, name: str, limits: KeyLimits) -> KeyBudget:
        """Return a key's budget; a new one if its limits have changed."""
        known = self._budgets.get(name)
        if known is None or known.limits != limits:
            known = self._budgets[name] = KeyBudget(name, limits, self.whole)
        return known

    def paused(self) -> Iterator[PausableReader]:
        """Yield the connections that are not read because of bytes in hand; one may come twice."""
        yield from self.whole.paused
        for budget in self._budgets.values():
            yield from budget.in_hand.paused
            yield from budget.unfinished.waiting
