"""Messages of a link that are partly received, or not completely sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from servicebus_amqp.encoding.performatives import DeliveryState

MESSAGE_COST: Final = 512
FRAME_COST: Final = 64
"""Bytes that an incomplete message, and each of its frames, cost beside their content."""


class IncomingMessage:
    """A message with missing frames. size: of what came. held: bytes that it costs now."""

    __slots__ = ("delivery_id", "format", "frames", "held", "settled", "size", "state", "tag")

    def __init__(self, delivery_id: int, tag: bytes, message_format: int, state: DeliveryState | None) -> None:
        self.delivery_id = delivery_id
        self.tag = tag
        self.format = message_format
        self.state = state
        self.settled = False
        self.frames: list[bytes] = []
        self.size = 0
        self.held = MESSAGE_COST + len(tag)


Piece = bytes | memoryview
Payload = bytes | Sequence[Piece]
"""An encoded message, whole or in pieces. Memory behind a view must not change before it is sent."""


class OutgoingMessage:
    """A message that is partly sent, or not yet. left: the unsent bytes."""

    __slots__ = ("delivery_id", "format", "has_begun", "left", "settled", "state", "tag")

    def __init__(self, payload: Payload, tag: bytes, message_format: bytes, settled: bool, state: bytes) -> None:
        pieces = (payload,) if isinstance(payload, bytes) else payload
        self.left = deque(memoryview(piece) for piece in pieces if piece)
        self.tag = tag
        self.format = message_format
        self.settled = settled
        self.state = state
        self.has_begun = False
        self.delivery_id: int | None = None

    def take(self, room: int) -> list[memoryview]:
        """Return the next bytes, at most `room`, without a copy."""
        left, taken = self.left, []
        while left and room:
            piece = left[0]
            if len(piece) > room:
                left[0], piece = piece[room:], piece[:room]
            else:
                left.popleft()
            taken.append(piece)
            room -= len(piece)
        return taken
