"""The rates of a sandbox that throttles by credits: a client sends, then receives, as fast as it may.

The sandbox gives its credits at the start of each second, and the client spends them in a moment. So a rate is measured
from the moment when the credits of a whole second are spent until the messages of further whole seconds have passed.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from paired_servicebus.bench.amqp_loads import open_wire
from paired_servicebus.bench.bench_namespaces import PRIMARY
from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.bench.sample_messages import SampleMessages
from paired_servicebus.core.errors import WireError
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.sandbox_process import sandbox_process
from servicebus_amqp.encoding.messaging_types import ACCEPTED
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived
from tests.bench.developer_plans import SandboxPlan
from tests.bench.sandbox.sandbox_figures import ThrottledRates

QUEUE: Final = "bench-throttled"
PAUSE: Final = 0.01
"""Seconds between a refusal and the next attempt."""
AT_ONCE: Final = 50
"""Messages in flight."""
WHOLE_SECONDS: Final = 2
"""The load begins within a second, so only the second time are the credits of a whole one spent."""
MARGIN_SECONDS: Final = 30.0


class _Meter:
    """Counts messages from the second time that credits are spent; `done` is set after `count`."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._count = count
        self._began: float | None = None
        self._passed = False
        self._spent = 0
        self._ended = 0.0
        self.done = asyncio.Event()
        self.refused = asyncio.Event()

    def pass_one(self) -> None:
        self._passed = True
        if self._began is None or not self._left:
            return
        self._left -= 1
        if not self._left:
            self._ended = perf_counter()
            self.done.set()

    def refuse(self) -> None:
        self._spent += self._passed
        self._passed = False
        if self._began is None and self._spent == WHOLE_SECONDS:
            self._began = perf_counter()
        self.refused.set()

    @property
    def per_second(self) -> float:
        return self._count / (self._ended - (self._began or 0.0))


async def measure_throttled(plan: SandboxPlan) -> ThrottledRates:
    """Return both rates. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="paired-bench-") as folder:
        config = _declare(Path(folder), plan.credits)
        async with (
            sandbox_process(Path(folder, "sandbox.log"), config=config) as sandbox,
            open_wire(sandbox.client(PRIMARY)) as wire,
        ):
            letters = SampleMessages(plan.size)
            sent = await _measure(plan, plan.throttled_seconds + 1, lambda meter: _send(wire, letters, meter))
            received = await _measure(plan, plan.throttled_seconds, lambda meter: _receive(wire, meter))
    return ThrottledRates.of(plan.credits, sent=sent, received=received)


def _declare(folder: Path, credits_per_second: int) -> Path:
    """Write the file of the namespace."""
    config = folder / "sandbox.toml"
    lines = [
        "[[namespace]]",
        f'name = "{PRIMARY}"',
        f'queues = ["{QUEUE}"]',
        f"credits_per_second = {credits_per_second}",
    ]
    config.write_text("\n".join(lines))
    return config


async def _measure(plan: SandboxPlan, seconds: int, load: Callable[[_Meter], Coroutine[Any, Any, None]]) -> float:
    meter = _Meter(plan.credits * seconds)
    task = asyncio.create_task(load(meter))
    try:
        async with asyncio.timeout(seconds + MARGIN_SECONDS):
            await meter.done.wait()
    except TimeoutError as error:
        raise BenchError(f"a throttled sandbox passed too few messages in {seconds + MARGIN_SECONDS:g} s") from error
    finally:
        task.cancel()
    return meter.per_second


async def _send(wire: ReconnectingConnection, letters: SampleMessages, meter: _Meter) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    def answer(event: DispositionReceived) -> None:
        room.release()
        if event.state is ACCEPTED:
            meter.pass_one()
        else:
            meter.refuse()

    link = await wire.sender(QUEUE, on_outcome=answer, on_lost=lambda _: None)
    number = 0
    while not meter.done.is_set():
        await room.acquire()
        if meter.refused.is_set():
            meter.refused.clear()
            await asyncio.sleep(PAUSE)
        number += 1
        link.send(letters.next(), number.to_bytes(4, "big"))


async def _receive(wire: ReconnectingConnection, meter: _Meter) -> None:
    def count(_: DeliveryReceived) -> None:
        meter.pass_one()

    def lose(_: WireError) -> None:
        meter.refuse()

    while not meter.done.is_set():
        meter.refused.clear()
        link = await wire.receiver(QUEUE, on_delivery=count, on_lost=lose)
        link.grant(10_000_000)
        await meter.refused.wait()
        await asyncio.sleep(PAUSE)
