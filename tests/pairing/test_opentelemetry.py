"""A thousand concurrent sends, each in a trace of OpenTelemetry's own SDK, arrive with the trace of their call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from .conftest import World, until
from .tracer import tracing

pytest.importorskip("azure.core.tracing.ext.opentelemetry_span", reason="the extra `test` brings OpenTelemetry")
trace_sdk: Any = pytest.importorskip("opentelemetry.sdk.trace")

FEW, SENDS = 200, 1_000


@pytest.fixture(autouse=True)
def tracer() -> Iterator[None]:
    with tracing("opentelemetry"):
        yield


@pytest.mark.parametrize(
    ("outage", "count"),
    [
        ("in the middle", FEW),
        *(pytest.param(one, SENDS, marks=pytest.mark.slow) for one in ("none", "whole", "in the middle")),
    ],
)
async def test_a_thousand_concurrent_sends_carry_their_own_context(world: World, outage: str, count: int) -> None:
    """Each message carries the trace context of the call that sent it. Coalescing never mixes contexts."""
    tracer = trace_sdk.TracerProvider().get_tracer("the application")
    paired = await world.pair(failover_interval=0, enable_syphon=True, send_timeout=10.0)
    traces: dict[str, str] = {}

    async def request(name: str) -> None:
        with tracer.start_as_current_span(name) as span:
            traces[name] = format(span.get_span_context().trace_id, "032x")
            await sender.send_messages(ServiceBusMessage(name, message_id=name))

    async with paired.get_queue_sender("orders") as sender:
        heal = world.fault("disabled", entity="orders") if outage == "whole" else lambda: None
        sends = asyncio.gather(*(request(str(number)) for number in range(count)))
        if outage == "in the middle":
            await until(lambda: world.depth("orders"))
            heal = world.fault("disabled", entity="orders")
        await sends
        heal()
        received = await world.received("orders", count)
    carried = {str(one.message_id): _text((one.application_properties or {}).get(b"traceparent")) for one in received}
    others = [name for name, trace in traces.items() if carried[name][3:35] != trace]
    assert (len(carried), others) == (count, [])


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
