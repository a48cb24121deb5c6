"""An engine that sends nothing, and asks for its entities: pings or attaches on the wire (SPEC.md sections 6 and 8)."""

from __future__ import annotations

import pytest

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import StateChanged
from paired_servicebus.pairing import PairedServiceBusClient

from .conftest import World, until


def state(paired: PairedServiceBusClient) -> State:
    (view,) = paired.entity_views()
    return view.state


@pytest.mark.parametrize("ping", ["message", "link"])
@pytest.mark.parametrize("entity", ["orders", "payments", "audit"])  # a queue, one with sessions, a topic
async def test_a_probe_finds_out_what_a_send_would_and_leaves_nothing(world: World, ping: str, entity: str) -> None:
    """A random session id so that a session-enabled entity accepts it; link = attach only."""
    paired = await world.pair(ping=ping)
    paired.watch(entity, probe=True)
    await until(lambda: state(paired) is State.HEALTHY)
    if entity != "audit":
        assert world.depth(entity) == 0
    assert paired.billed().pings >= 1


async def test_an_outage_that_only_probes_can_see_fails_over_and_back(world: World) -> None:
    paired = await world.pair()
    paired.watch("orders", probe=True)
    await until(lambda: state(paired) is State.HEALTHY)
    heal = world.fault("refused", entity="orders")
    await until(lambda: state(paired) is State.FAILED_OVER)
    heal()
    await until(lambda: state(paired) is State.HEALTHY)
    states = [State(event.now) for event in world.told(StateChanged)]
    assert states == [State.HEALTHY, State.SUSPECT, State.FAILED_OVER, State.HEALTHY]
    assert paired.billed().sends == 0
