"""An engine that sends nothing, beside an application: what it steers, what it says and cannot know (SPEC.md 12)."""

from __future__ import annotations

from typing import Any

from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import EntityView, SyphonStatus

from .backlogs import parked, put, queue_path
from .conftest import World, until

MISSED = "this engine sends nothing to it: no sender is diverted; senders elsewhere are unknown"


def view_of(paired: Any, path: str = "orders") -> EntityView:
    """How the engine shows the entity."""
    return next(one for one in paired.entity_views() if one.path == path)


async def test_forcing_it_diverts_no_sender_elsewhere_and_the_answer_and_the_why_line_say_so(world: World) -> None:
    """ "Every question, page and verb says whom it reaches, whom not, and what it cannot know"."""
    application = await world.pair(primary_name="primary")
    silent = await world.pair(primary_name="primary", enable_syphon=True)
    async with application.get_queue_sender("orders") as sender:
        silent.watch("orders")
        answer = silent.force("orders", by="ana")
        await sender.send_messages(ServiceBusMessage("x"))
    assert world.depth("orders") == 1
    assert answer.endswith(MISSED)
    assert view_of(silent).why.endswith(MISSED)
    assert (view_of(silent).carried, view_of(application).carried) == (False, True)
    assert MISSED not in application.force("orders", by="ana")


async def test_its_syphon_leaves_what_was_parked_for_a_forced_entity_and_says_so(world: World) -> None:
    """Section 6: "Pumps skip destinations that are failed over or forced in their own engine"."""
    silent = await world.pair(primary_name="primary", enable_syphon=True)
    silent.watch("orders")
    silent.force("orders", by="ana")
    put(world, [parked("orders", "m1")], path=queue_path(0))
    await until(lambda: silent.syphon_view().status is not SyphonStatus.RUNNING and silent.queue_views()[0].set_aside)
    held = "leaves what is parked for orders: forced here; release it to have that moved"
    assert silent.syphon_view().text.endswith(held)
    silent.release("orders", by="ana")
    silent.pin("orders", by="ana")
    assert held not in silent.syphon_view().text
    await until(lambda: world.depth("orders") == 1)


async def test_an_entity_that_nothing_is_sent_to_is_unknown_while_its_namespace_is_down(world: World) -> None:
    """Section 12: "what nobody here can know is "unknown", never "none" or "healthy"."""
    silent = await world.pair(primary_name="primary")
    silent.watch("orders")
    world.fault("refused")
    assert view_of(silent).state is State.UNKNOWN
    assert view_of(silent).why == 'no sends by this engine; set probe = ["orders"] to watch it'
    assert (await silent.inspect()).too_large is None


async def test_a_pause_is_of_one_engine_and_says_so(world: World) -> None:
    """Section 12: "What an engine knows and steers is its own process"."""
    paused = await world.pair(primary_name="primary", enable_syphon=True)
    await world.pair(primary_name="primary", enable_syphon=True)
    here = "paused here: engines elsewhere may still move messages"
    assert paused.pause_syphon(by="ana") == f"the syphon is {here}"
    assert paused.pause_syphon(by="ana", queue=0) == f"backlog queue 0 is {here}"
    assert paused.pause_syphon(by="ana", destination="orders") == f"the syphon to orders is {here}"
    assert paused.syphon_view().text.startswith("paused here by ana ")
    assert paused.syphon_view().text.endswith(": engines elsewhere may still move messages")
    put(world, [parked("orders", "m1")], path=queue_path(0))
    await until(lambda: world.depth("orders") == 1)
