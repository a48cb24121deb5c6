"""A pairing lives in the event loop that made it (a second one would work until the first outage)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.errors import ForeignLoopError

from .conftest import World


def elsewhere(work: Callable[[], Coroutine[Any, Any, Any]]) -> BaseException | None:
    """What a coroutine raises in an event loop of its own, on another thread."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    return raised[0] if raised else None


async def test_use_from_another_event_loop_is_refused_in_one_sentence(world: World) -> None:
    paired = await world.pair()
    sender = paired.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("here"))

    async def get() -> None:
        paired.get_queue_sender("payments")

    async def receive() -> None:
        paired.get_queue_receiver("orders")

    uses: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "a send": lambda: sender.send_messages(ServiceBusMessage("there")),
        "opening": lambda: paired.get_queue_sender("orders").__aenter__(),
        "a sender": get,
        "a receiver": receive,
        "a check": paired.check,
        "closing": paired.close,
    }
    unopened = paired.get_queue_sender("audit")
    uses["opening"] = unopened.__aenter__
    for what, use in uses.items():
        error = await asyncio.to_thread(elsewhere, use)
        assert isinstance(error, ForeignLoopError), what
        assert isinstance(error, RuntimeError)
        assert "belongs to the event loop in which it was made" in str(error)
        assert "paired_servicebus.sync" in str(error)
    await sender.send_messages(ServiceBusMessage("here again"))
    assert world.depth("orders") == 2
    assert [view.path for view in paired.entity_views()] == ["orders", "audit"]
