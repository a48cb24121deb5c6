"""A healthy send of a client's bytes goes straight to the primary; when it fails, it goes on as every other call."""

from __future__ import annotations

import asyncio

import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError

from paired_servicebus.core.errors import PairingClosedError, ReservedPropertyError, WireTimeoutError
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.envelope import PATH
from paired_servicebus.pairing.sending.encoded_sender import Rest
from servicebus_amqp.encoding.message_sections import BATCH_FORMAT, batch, write_application_properties

from .conftest import World, until
from .test_encoded_sender import PATIENT, in_flight, message, ready, state, straight


async def test_accepted_sends_are_counted_as_those_of_all_calls(world: World) -> None:
    paired, sender = await ready(world)
    meter, tally = paired._steering.meter, paired._steering.tally("orders")
    sends, size = meter.sends, meter.sent_bytes
    assert await straight(sender, message("1", b"12345")) is None
    assert await straight(sender, batch([message("2", b""), message("3", b"")]), BATCH_FORMAT) is None
    assert world.ids_in("orders") == ["before", "1", "2", "3"]
    assert sum(paired.take_send_times()["orders"].values()) == 3, "calls, the first one included"
    assert (meter.sends - sends, tally.accepted, in_flight(paired)) == (3, 4, 0)
    empty = len(message("2", b"")) - len(message("2", b"").removesuffix(b"\x00S\x75\xa0\x00"))
    assert meter.sent_bytes - size == 5 + 3 * empty


async def test_many_are_in_flight_together_and_arrive_in_order(world: World) -> None:
    paired, sender = await ready(world)
    ends: list[Rest | None] = []
    names = [str(number) for number in range(300)]
    for name in names:
        assert sender.go_straight(message(name), 0, ends.append)
    assert in_flight(paired) == 300
    await until(lambda: len(ends) == 300)
    assert not any(ends)
    assert world.ids_in("orders") == ["before", *names]


@pytest.mark.parametrize("case", ["never sent", "journal", "failed over", "suspect", "no link", "too large"])
async def test_it_is_left_to_the_calls_rules_when_they_have_something_to_decide(world: World, case: str) -> None:
    """Nothing is done then, and `send` takes the same bytes."""
    paired = await world.pair(**PATIENT, journal="all" if case == "journal" else "diverted")
    sender, data = paired.get_encoded_sender("orders"), message("1")
    if case != "never sent":
        await sender.send(message("before"))
    if case == "failed over":
        paired.force("orders", by="kim")
    elif case == "suspect":
        heal = world.fault("refused")
        with pytest.raises(ServiceBusConnectionError):
            await sender.send(message("during"), timeout=1.0)
        heal()
        assert state(paired) is State.SUSPECT
    elif case == "no link":
        sender._link.retire()
    elif case == "too large":
        data = message("1", bytes(300_000))
    assert not sender.go_straight(data, 0, pytest.fail)
    assert in_flight(paired) == 0


async def test_a_bad_message_is_refused_before_anything_is_sent(world: World) -> None:
    paired, sender = await ready(world)
    reserved = message(application_properties=write_application_properties({PATH: "x"}))
    with pytest.raises(ReservedPropertyError):
        sender.go_straight(reserved, 0, pytest.fail)
    assert (world.ids_in("orders"), in_flight(paired)) == (["before"], 0)


async def test_each_ends_at_its_own_time_though_all_share_one_timer(world: World) -> None:
    _, sender = await ready(world)
    world.fault("unanswered", entity="orders")
    loop, ended = asyncio.get_running_loop(), dict[float, tuple[float, object]]()
    began, link = loop.time(), sender._link
    for seconds in (0.3, 0.1, 0.2):  # the second is due before the timer that the first has set

        def end(failure: object, seconds: float = seconds) -> None:
            ended[seconds] = loop.time() - began, failure

        assert link.put(message(str(seconds)), 0, seconds, end, began=began)
        await asyncio.sleep(0)
        await until(lambda: world.depth("orders") > 0)
        link._wire._line.reads += 1  # type: ignore[union-attr] # the connection is not silent
    await until(lambda: len(ended) == 3)
    assert all(seconds <= took < seconds + 2 for seconds, (took, _) in ended.items())
    assert [took for took, _ in ended.values()] == sorted(took for took, _ in ended.values())
    assert list(ended) == [0.1, 0.2, 0.3]
    assert all(isinstance(failure, WireTimeoutError) for _, failure in ended.values())


async def test_an_accepted_message_without_an_id_is_a_new_one_when_it_is_sent_again(world: World) -> None:
    _, sender = await ready(world)
    assert await straight(sender, message(None)) is None
    assert await straight(sender, message(None)) is None
    _, first, second = world.ids_in("orders")
    assert first
    assert first != second


async def test_one_that_would_not_survive_a_failover_is_counted(world: World) -> None:
    """Section 7.4: such messages are counted."""
    paired, sender = await ready(world)
    assert await straight(sender, message("small", bytes(100_000))) is None
    largest = 262_144 - len(message("large", bytes(100_000))) + 100_000
    assert await straight(sender, message("large", bytes(largest))) is None
    assert paired._steering.tally("orders").too_large == 1


async def test_a_closed_pairing_ends_those_under_way_in_doubt(world: World) -> None:
    paired, sender = await ready(world, close_grace=0.1)
    world.fault("unanswered", entity="orders")
    end: asyncio.Future[Rest | None] = asyncio.get_running_loop().create_future()
    assert sender.go_straight(message("during"), 0, end.set_result)
    await until(lambda: world.depth("orders") == 2)
    await paired.close()
    rest = await end
    assert rest is not None
    with pytest.raises(PairingClosedError) as refusal:
        await rest
    assert refusal.value.in_doubt
    assert not sender.go_straight(message("after"), 0, pytest.fail)
