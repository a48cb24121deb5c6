"""Messages that a destination accepted together: beside clients of a gateway they are settled over several turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import judge
from paired_servicebus.core.pump.pump_events import MessagesAccepted
from paired_servicebus.pairing.amqp_client.piecewise import count_clients
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.runtime.task_owner import TaskOwner
from paired_servicebus.pairing.syphon.amqp_delivery import PORTION, AmqpDelivery, DestinationLink
from servicebus_amqp import ACCEPTED

COUNT = 2 * PORTION + 1


class Accepting:
    """A delivery without a socket, and its pump, which notes what it settles, in order."""

    def __init__(self) -> None:
        self.wire = SimpleNamespace(after_read=[], is_writable=True)
        steering = PairingRuntime(PairingMachine(Policy(), queues=(0,)), TaskOwner(), judge, None)
        self.delivery = AmqpDelivery(steering, self.wire)  # type: ignore[arg-type]
        self.notes: list[list[int] | str] = []
        self._found = DestinationLink("orders", "orders")
        self._found.link = SimpleNamespace(room=0)  # type: ignore[assignment]

    def apply(self, event: MessagesAccepted[Any]) -> None:
        self.notes.append([message.number for message in event.messages])

    def read(self, numbers: range) -> None:
        """Let one read bring the acceptance of these messages."""
        for number in numbers:
            tag = number.to_bytes(4, "big")
            self._found.under_way[tag] = SimpleNamespace(number=number, pump=self, sent_at=1.0)  # type: ignore[assignment]
            self.delivery._on_outcome(self._found, SimpleNamespace(tag=tag, state=ACCEPTED))  # type: ignore[arg-type]
        for act in self.wire.after_read:
            act()

    @property
    def settled(self) -> list[int]:
        return [number for note in self.notes if isinstance(note, list) for number in note]


@pytest.fixture
async def client() -> AsyncIterator[None]:
    count_clients(1)
    yield
    count_clients(-1)


async def test_without_clients_they_are_settled_together() -> None:
    accepting = Accepting()
    accepting.read(range(COUNT))
    assert accepting.notes == [list(range(COUNT))]


@pytest.mark.usefixtures("client")
async def test_others_have_a_turn_between_two_portions_and_a_later_read_waits_for_its_own() -> None:
    accepting = Accepting()
    accepting.read(range(COUNT))
    asyncio.get_running_loop().call_soon(accepting.notes.append, "another")
    accepting.read(range(COUNT, COUNT + 1))
    assert [len(note) for note in accepting.notes] == [PORTION]
    while len(accepting.settled) <= COUNT:
        await asyncio.sleep(0)
    assert accepting.settled == list(range(COUNT + 1))
    assert accepting.notes.index("another") == 2


@pytest.mark.usefixtures("client")
async def test_a_pump_that_ends_still_counts_those_that_are_not_settled() -> None:
    """It would release them otherwise, and they would be delivered a second time."""
    accepting = Accepting()
    accepting.read(range(COUNT))
    assert accepting.delivery.under_way(accepting) == COUNT - PORTION
    while len(accepting.settled) < COUNT:
        await asyncio.sleep(0)
    assert accepting.delivery.under_way(accepting) == 0
