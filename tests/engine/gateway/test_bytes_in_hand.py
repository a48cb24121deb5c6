"""The bound of the gateway's memory: who is not read, and when again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import pytest

from paired_servicebus.engine.gateway.front_connection import FrontConnection
from paired_servicebus.engine.gateway.front_links import BytesInHand
from paired_servicebus.engine.gateway.gateway_keys import KeyRing
from paired_servicebus.engine.gateway.gateway_listener import Gateway


@dataclass(eq=False)
class Reader:
    calls: list[str] = field(default_factory=list)

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")


def test_a_reader_pauses_at_the_limit_once_and_resumes_below_its_half() -> None:
    in_hand, reader = BytesInHand(most=100), Reader()
    in_hand.add(99, reader)
    assert reader.calls == []
    in_hand.add(1, reader)
    in_hand.add(50, reader)
    assert reader.calls == ["pause"]
    in_hand.remove(100)
    assert reader.calls == ["pause"]
    in_hand.remove(1)
    assert reader.calls == ["pause", "resume"]
    assert in_hand.size == 49


def test_only_those_that_send_are_paused_and_one_that_left_is_not_resumed() -> None:
    in_hand, idle, sender, gone = BytesInHand(most=10), Reader(), Reader(), Reader()
    in_hand.add(1, idle)
    in_hand.add(9, sender)
    in_hand.add(9, gone)
    in_hand.forget(gone)
    in_hand.remove(19)
    assert (idle.calls, sender.calls, gone.calls) == ([], ["pause", "resume"], ["pause"])


class Socket:
    """What a connection asks of its transport when it pauses."""

    is_read = True

    def get_extra_info(self, name: str) -> Any:
        """Return the socket, which is asked for its descriptor."""
        return self if name == "socket" else None

    def fileno(self) -> int:
        return 3

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


@pytest.mark.parametrize("order", permutations(range(4)), ids=str)
async def test_a_reader_paused_for_two_reasons_resumes_when_both_are_gone(order: tuple[int, ...]) -> None:
    """A client that does not read its answers stays unread when there is room in hand, and vice versa."""
    pairing: Any = None
    gateway = Gateway(pairing, KeyRing([]), max_bytes=10)
    socket: Any = Socket()
    connection = FrontConnection(gateway)
    connection.connection_made(socket)
    pauses: dict[str, bool] = {"bytes": False, "socket": False}

    def fill() -> None:
        gateway.in_hand.add(10, connection)
        pauses["bytes"] = True

    def empty() -> None:
        gateway.in_hand.remove(gateway.in_hand.size)
        pauses["bytes"] = False

    def full() -> None:
        connection.pause_writing()
        pauses["socket"] = True

    def drained() -> None:
        connection.resume_writing()
        pauses["socket"] = False

    steps: tuple[Callable[[], None], ...] = (fill, empty, full, drained)
    for number in order:
        steps[number]()
        assert socket.is_read is not any(pauses.values())
    connection.connection_lost(None)
