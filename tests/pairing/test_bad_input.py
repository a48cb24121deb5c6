"""Namespaces that behave as none should: nothing is lost, nothing spins, and the reason is on the why-line."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from paired_servicebus.core.model.pairing_events import DeadLettered, PumpStopped, Warned
from servicebus_amqp import Error
from servicebus_amqp.encoding.amqp_types import Described, Symbol, ULong
from servicebus_amqp.encoding.codec import described, encode
from servicebus_amqp.encoding.message_sections import MESSAGE_ANNOTATIONS
from servicebus_amqp.protocol.protocol_events import Opened
from servicebus_sandbox.amqp_server.message_codec import read_message
from servicebus_sandbox.amqp_server.server_protocol import AmqpServerProtocol
from servicebus_sandbox.faults import FaultTerms, Operation

from .backlogs import lying_in, parked, put, queue_path, sections
from .conftest import World, until

UNKNOWN = described(0x79, encode({"what": "nobody knows"}))
"""A section that AMQP does not have."""


@pytest.fixture
def world(world: World) -> World:
    world.pump = "amqp"
    return world


def put_sections(world: World, data: bytes, **changed: bytes) -> None:
    """A message whose sections are replaced after the namespace has taken it in."""
    node = world.sandbox["secondary"].node
    message = read_message(data)
    message.payload = message.payload._replace(**changed)  # type: ignore[attr-defined]
    node.namespace.send_target(queue_path()).intake.send([message])
    node.wake()


@pytest.mark.parametrize("namespace", ["primary", "secondary"])
async def test_a_namespace_that_lets_only_the_sdk_in_is_worked_through_the_sdk(
    world: World, monkeypatch: pytest.MonkeyPatch, namespace: str
) -> None:
    """A namespace that refuses raw clients: fall back [...]; the reason on the why-line."""
    let_in = AmqpServerProtocol._on_opened
    turned_away: list[str] = []

    def on_opened(self: Any, event: Opened) -> None:
        let_in(self, event)
        name = self._amqp.remote.container_id
        if self.node.name == world.sandbox[namespace].node.name and name.startswith("syphon"):
            turned_away.append(name)
            self._amqp.close(Error(condition="amqp:not-allowed", description="only known clients are served"))
            self._end()

    monkeypatch.setattr(AmqpServerProtocol, "_on_opened", on_opened)
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1, pump="auto")
    put(world, [parked("orders", str(number)) for number in range(5)])
    await until(lambda: world.depth("orders") == 5)
    assert len(turned_away) <= 2
    (warned,) = [event.text for event in world.told(Warned) if event.about == "syphon"]
    assert "only known clients are served" in warned
    assert "only known clients are served" in paired.queue_views()[0].pump_text


async def test_an_unknown_section_ends_among_the_dead_letters_and_what_is_behind_it_arrives(world: World) -> None:
    """Sends unknown sections: dead-letter in the backlog queue with a reason that says which, and go on."""
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    put_sections(world, parked("orders", "strange"), footer=UNKNOWN)
    put(world, [parked("orders", "plain")])
    await until(lambda: world.depth("orders") == 1 and world.told(DeadLettered))
    (dead,) = world.told(DeadLettered)
    assert "0x79" in dead.reason
    assert world.ids_in("orders") == ["plain"]
    lies = lying_in(world, queue_path() + "/$DeadLetterQueue", namespace="secondary")
    assert len(lies) == 1


async def test_annotations_and_described_types_that_nobody_knows_travel_on_as_they_came(world: World) -> None:
    """Unknown annotations or described types: of any AMQP type and bit for bit through our own AMQP pump."""
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    strange = encode({Symbol("x-opt-com.example"): Described(ULong(0xABCD_0000_0001), [1, {"a": b"\x00"}])})
    put_sections(world, parked("orders", "x"), message_annotations=described(MESSAGE_ANNOTATIONS, strange))
    await until(lambda: world.depth("orders") == 1)
    assert sections(lying_in(world, "orders")[0]).message_annotations == described(MESSAGE_ANNOTATIONS, strange)


async def test_settlements_that_are_never_confirmed_are_said_again_another_way_and_nothing_is_sent_twice(
    world: World,
) -> None:
    """Answers late or never: every await on the wire has an end of ours, and the reason is on the why-line."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1, send_timeout=2.0)
    await until(lambda: paired.queue_views()[0].pump_text == "receiving")
    silent = FaultTerms(operations=frozenset({Operation.SETTLE}))
    fault = world.sandbox["secondary"].node.faults.add("unanswered", entity=queue_path(), terms=silent)
    names = [str(number) for number in range(50)]
    put(world, [parked("orders", name) for name in names])
    await until(lambda: world.told(PumpStopped))
    world.sandbox["secondary"].node.faults.remove(fault.id)
    (stopped,) = world.told(PumpStopped)
    assert "confirmed no settlement within 2 s" in stopped.reason
    await until(lambda: paired.queue_views()[0].pump_text == "receiving")  # on another link
    put(world, [parked("orders", "later")])
    await until(lambda: world.depth("orders") == 51 and world.parked(1) == 0)
    assert Counter(world.ids_in("orders")) == Counter([*names, "later"])
