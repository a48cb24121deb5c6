"""Each kind of poison once, among good messages: the pump's own entry, and the pump over real AMQP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from paired_servicebus.core.errors import EnvelopeError
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.pairing_events import DeadLettered, Moved, PumpStopped
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import judge
from paired_servicebus.core.pump.pump_events import DeadLetter, Deliver, Publish
from paired_servicebus.core.pump.pump_progress import PumpProgress
from paired_servicebus.pairing import envelope_codec
from paired_servicebus.pairing.runtime.deadlines import TaskOwner
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.amqp_delivery import AmqpDelivery
from paired_servicebus.pairing.syphon.amqp_pump import AmqpPump
from servicebus_amqp.encoding.message_sections import MESSAGE_ANNOTATIONS
from servicebus_sandbox import Sandbox
from servicebus_sandbox.broker.message import Message
from tests.amqp.annotations import write_annotations
from tests.pairing.backlogs import lying_in, parked, put, queue_path, reason_of
from tests.pairing.conftest import World, until
from tests.pairing.test_syphon import order
from tests.stage.poison_kinds import kinds

KINDS = kinds()
GOOD = 20


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
        yield World(sandbox, stack, pump="amqp")


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_made_to_do_harm_is_read_or_refused_in_words_that_hold_nothing_of_it(kind: str) -> None:
    """Nothing that a message holds may stop, slow or crash more than itself."""
    data = KINDS[kind].join()
    envelope_codec.broker_properties(data)
    envelope_codec.read_message_id(data)
    reason = ""
    try:
        envelope_codec.restore_message(envelope_codec.open_envelope(data), now_ms=0)
    except EnvelopeError as error:
        reason = str(error)
    assert reason.isprintable()
    assert len(reason) < 300


@pytest.mark.parametrize("kind", KINDS)
def test_poison_at_the_machines_entry_is_an_effect_with_a_reason_and_never_an_exception(kind: str) -> None:
    """Dead-letter in the backlog queue with a reason that says which, and go on."""
    steering = PairingRuntime(PairingMachine(Policy(enable_syphon=True), queues=(0,)), TaskOwner(), judge, None)
    wire: Any = SimpleNamespace(after_read=[])
    delivery = AmqpDelivery(steering, wire)
    pump = AmqpPump(steering, wire, delivery, index=0, path=queue_path(), progress=PumpProgress())
    effects = pump.machine.step(pump.arrival(KINDS[kind].join(), UUID(int=1)))
    reasons = [effect.reason for effect in effects if isinstance(effect, DeadLetter)]
    assert [type(effect) for effect in effects] in ([Deliver], [Publish, DeadLetter])
    assert all(reason and reason.isprintable() for reason in reasons)


async def test_poison_is_delivered_or_dead_lettered_and_the_good_go_on_over_the_same_connection(world: World) -> None:
    """Dead-letter in the backlog queue with a reason that says which, and go on."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    paired.pause_syphon(by="test")
    intake = world.sandbox["secondary"].node.namespace.send_target(queue_path()).intake
    for sections in KINDS.values():
        intake.send([Message(sections, sections.size, message_id="poison")])
    put(world, [parked("orders", f"good-{number}") for number in range(GOOD)])
    paired.resume_syphon(by="test")
    await until(lambda: len(world.told(Moved)) + len(world.told(DeadLettered)) == GOOD + len(KINDS))
    arrived = {message_id for message_id in world.ids_in("orders") if message_id.startswith("good-")}
    assert len(arrived) == GOOD
    assert not world.told(PumpStopped)
    dead = lying_in(world, f"{queue_path()}/$DeadLetterQueue", namespace="secondary")
    assert len(dead) == len(world.told(DeadLettered))
    assert all(reason_of(stored).isprintable() for stored in dead)


async def test_a_re_drive_ends_also_where_dead_letters_cannot_be_read(world: World) -> None:
    """Nothing that a message holds may stop, slow or crash more than itself."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    intake = world.sandbox["secondary"].node.namespace.send_target(queue_path()).intake
    strange = [KINDS["sections twice"], KINDS["size beyond the end"], KINDS["path of 70000 characters"]]
    intake.send([Message(sections, sections.size, message_id="poison") for sections in strange])
    world.sandbox["secondary"].node.wake()
    await until(lambda: len(world.told(DeadLettered)) == len(strange))
    said = await order(paired).redrive(0)
    assert f"of {len(strange)} dead letters" in said
    dead = f"{queue_path()}/$DeadLetterQueue"
    await until(lambda: len(lying_in(world, dead, namespace="secondary")) == len(strange))


def test_a_message_of_which_only_the_namespaces_part_can_be_read_has_its_number() -> None:
    theirs = write_annotations(MESSAGE_ANNOTATIONS, {"x-opt-sequence-number": 7, "x-opt-message-state": 1})
    held = envelope_codec.broker_properties(theirs + b"\x00\x53\x75\xb0\x7f\xff\xff\xffx")
    assert (held.sequence_number, held.state) == (7, 1)
