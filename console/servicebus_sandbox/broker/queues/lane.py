"""One line of ready messages and its waiting receivers.

A queue without sessions is one lane; each session is a lane. Messages leave by sequence number, returned ones too.
Receivers take turns, one message each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from servicebus_sandbox.broker.broker_errors import BrokerError
from servicebus_sandbox.broker.message import StoredMessage


class Consumer:
    """A receiver of a lane. `credit` is the number of messages it may still get.

    `deliver` is called for each message, `lost` once when the entity or the session's lock is gone. With
    `settles_on_delivery` delivery removes the message (receive-and-delete).
    """

    __slots__ = ("credit", "deliver", "lane", "lost", "settles_on_delivery", "waiting")

    def __init__(
        self,
        deliver: Callable[[StoredMessage], None],
        lost: Callable[[BrokerError], None],
        *,
        settles_on_delivery: bool = False,
    ) -> None:
        self.deliver = deliver
        self.lost = lost
        self.settles_on_delivery = settles_on_delivery
        self.lane: Lane | None = None
        self.credit = 0
        self.waiting = False


class Lane:
    """Sequence numbers of ready messages, and consumers in turn.

    `ready` counts the messages in line. The number of an expired message stays until it comes up; the owner skips it
    and keeps `ready` correct.
    """

    __slots__ = ("_back", "_fresh", "consumers", "ready")

    def __init__(self) -> None:
        self._fresh: deque[int] = deque()  # ascending, the usual case
        self._back: list[int] = []  # a heap: returned and unordered numbers
        self.consumers: deque[Consumer] = deque()
        self.ready = 0

    def put(self, number: int) -> None:
        self.ready += 1
        if not self._fresh or number > self._fresh[-1]:
            self._fresh.append(number)
        else:
            heappush(self._back, number)

    def pop(self) -> int:
        """Return the lowest number in line. The caller lowers `ready` if the message still exists."""
        if self._back and (not self._fresh or self._back[0] < self._fresh[0]):
            return heappop(self._back)
        return self._fresh.popleft()

    def wait(self, consumer: Consumer) -> None:
        """Queue a consumer with credit."""
        if not consumer.waiting:
            consumer.waiting = True
            self.consumers.append(consumer)

    def leave(self, consumer: Consumer) -> None:
        if consumer.waiting:
            consumer.waiting = False
            self.consumers.remove(consumer)
        consumer.lane = None

    def next_consumer(self) -> Consumer | None:
        """Return the next consumer; consumers without credit leave the round."""
        while self.consumers:
            consumer = self.consumers[0]
            if consumer.credit > 0:
                self.consumers.rotate(-1)
                return consumer
            consumer.waiting = False
            self.consumers.popleft()
        return None
