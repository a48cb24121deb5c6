"""A pairing lives in the event loop that made it (a second one would work until the first outage)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

import paired_servicebus
from paired_servicebus import Namespace
from paired_servicebus.core.errors import ForeignLoopError
from servicebus_sandbox import Sandbox

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


def test_a_client_may_be_made_in_a_plain_function() -> None:
    """As the SDK's: made without a running loop, entered and used by its own name in one."""

    async def main() -> list[str]:
        async with Sandbox.start() as sandbox:
            made = in_a_plain_function(sandbox)
            with pytest.raises(AttributeError, match="the pairing is not made yet"):
                made.get_queue_sender("orders")
            async with made:
                async with made.get_queue_sender("orders") as sender:
                    await sender.send_messages(ServiceBusMessage("x"))
                async with made.get_queue_receiver("orders") as receiver:
                    found = [str(message) for message in await receiver.receive_messages(1, max_wait_time=30)]
                await made.close()
            return found

    def in_a_plain_function(sandbox: Sandbox) -> Any:
        options = {"connection_verify": str(sandbox.ca_file)}
        texts = (sandbox[name].connection_string for name in ("primary", "secondary"))
        both = [Namespace.from_connection_string(text, options=options) for text in texts]
        return paired_servicebus.pair_namespaces(*both, primary_name="primary", backlog_queue_count=1)

    assert asyncio.run(main()) == ["x"]
