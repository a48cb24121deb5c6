"""Traces one parked message from the pump's read to its settlement, module by module: `python -m tests.bench way`.

It counts calls from one module into another, as a reader of the way opens them; a return to the caller is none. Not
counted: the transport (servicebus_amqp, amqp_client), the clock, and the credit for further messages.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from types import FrameType
from typing import Any, Final

from servicebus_sandbox import Sandbox
from tests.pairing.backlogs import parked, put
from tests.pairing.conftest import World, until

NOT_COUNTED: Final = ("paired_servicebus.pairing.amqp_client.", "paired_servicebus.pairing.runtime.deadlines")
CREDIT: Final = "_replenish"
FIRST: Final = ("paired_servicebus.pairing.syphon.amqp_pump", "_on_delivery")
LAST: Final = ("paired_servicebus.pairing.amqp_client.client_links", "settle")


class WayTracer:
    """The calls into another module, as `sys.setprofile` reports them."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_on = False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Record a call between two of our modules, from the first function to the last."""
        if event != "call" or self.is_over:
            return
        here = (_module(frame), frame.f_code.co_name)
        self.is_on = self.is_on or here == FIRST
        if self.is_on and here[0] != _module(frame.f_back) and (here == LAST or _is_on_the_way(frame)):
            self.calls.append(f"{here[0]}.{here[1]}")

    @property
    def is_over(self) -> bool:
        """Whether the message was settled."""
        return bool(self.calls) and self.calls[-1] == ".".join(LAST)


def _module(frame: FrameType | None) -> str:
    return "" if frame is None else frame.f_globals.get("__name__", "")


def _is_on_the_way(frame: FrameType) -> bool:
    if not _module(frame).startswith("paired_servicebus.") or _module(frame).startswith(NOT_COUNTED):
        return False
    caller: FrameType | None = frame
    while caller is not None and caller.f_code.co_name != CREDIT:
        caller = caller.f_back
    return caller is None


@contextmanager
def _profiling(tracer: Any) -> Iterator[None]:
    sys.setprofile(tracer)
    try:
        yield
    finally:
        sys.setprofile(None)


async def _traced() -> list[str]:
    async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
        world = World(sandbox, stack, pump="amqp")
        await world.pair(enable_syphon=True, backlog_queue_count=1)
        put(world, [parked("orders", "first")])  # it opens the links
        await until(lambda: world.depth("orders") == 1 and not world.parked(1))
        tracer = WayTracer()
        with _profiling(tracer):
            put(world, [parked("orders", "traced")])
            await until(lambda: tracer.is_over)
        return tracer.calls


def trace_message_way() -> int:
    """Print the way of one message; return the exit status."""
    calls = asyncio.run(_traced())
    for number, call in enumerate(calls, 1):
        print(f"{number:3} {call}")
    print(f"{len(calls)} module changes, {len({call.rpartition('.')[0] for call in calls})} modules")
    return 0
