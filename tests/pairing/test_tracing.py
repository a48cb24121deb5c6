"""Each message carries the trace context of the call that sent it (SPEC.md section 7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

import pytest
from azure.core.settings import settings
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage

from paired_servicebus.core.model.pairing_events import PingAccepted
from paired_servicebus.pairing import PairedSender, PairedServiceBusClient
from paired_servicebus.pairing.runtime import tracing as product

from .backlogs import parked, put
from .conftest import World, until
from .tracer import RecordedSpan, tracing


@pytest.fixture(autouse=True)
def tracer() -> Iterator[None]:
    with tracing(RecordedSpan):
        yield


def traceparent(message: ServiceBusReceivedMessage) -> str:
    found = (message.application_properties or {}).get(b"traceparent", b"")
    return found.decode() if isinstance(found, bytes) else str(found)


def name_of(message: Any) -> str:
    return b"".join(message.body).decode()


class Requests:
    """Calls with a trace each, and the check of what arrived."""

    def __init__(self, world: World, sender: PairedSender) -> None:
        self.world = world
        self.sender = sender
        self.traces: dict[str, str] = {}

    async def send(self, name: str, message: Any = None) -> None:
        with RecordedSpan(name=name) as span:
            self.traces[name] = span.trace
            await self.sender.send_messages(message or ServiceBusMessage(name))

    async def send_all(self, count: int, prefix: str) -> None:
        await asyncio.gather(*(self.send(f"{prefix}{number}") for number in range(count)))

    async def check(self, path: str = "orders") -> list[ServiceBusReceivedMessage]:
        """Each message has the trace of its own call, and each call of either kind one span of its own."""
        received = await self.world.received(path, len(self.traces))
        assert {name_of(message): traceparent(message)[3:35] for message in received} == self.traces
        return received


async def diverted(paired: PairedServiceBusClient) -> None:
    paired.watch("orders")
    paired.force("orders", by="test")


async def test_sends_to_the_backlog_carry_their_own_context(world: World) -> None:
    """Each message carries the trace context of the call that sent it. Coalescing never mixes contexts."""
    paired = await world.pair()
    async with paired.get_queue_sender("orders") as sender:
        requests = Requests(world, sender)
        await diverted(paired)
        await requests.send_all(40, "parked")
        paired.release("orders", by="test")
        assert world.parked() == 40
        await paired.close()
    await (await world.pair(enable_syphon=True)).stands_ready()
    await requests.check()


async def test_a_healthy_send_has_the_spans_of_the_sdk(world: World) -> None:
    """A healthy system behaves as if the pairing weren't there: the SDK's spans, with its names and attributes."""
    async with world.client("primary") as client, client.get_queue_sender("orders") as plain:
        await plain.send_messages(ServiceBusMessage("plain"))
    theirs = [(span.name, span.kind, span.attributes, len(span.links)) for span in RecordedSpan.kept]
    RecordedSpan.kept.clear()
    paired = await world.pair()
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("ours"))
    sends = [span for span in RecordedSpan.kept if span.name in ("ServiceBus.message", "ServiceBus.send")]
    assert [(span.name, span.kind, span.attributes, len(span.links)) for span in sends] == theirs


async def test_each_call_has_one_send_span_in_its_trace(world: World) -> None:
    """A send to the backlog is a `ServiceBus.send` span like any other."""
    paired = await world.pair()
    for place in ("orders", "primary/x-servicebus-transfer/"):
        RecordedSpan.kept.clear()
        async with paired.get_queue_sender("orders") as sender:
            requests = Requests(world, sender)
            if place != "orders":
                await diverted(paired)
            await requests.send_all(20, "one")
        sends, messages = RecordedSpan.named("ServiceBus.send"), RecordedSpan.named("ServiceBus.message")
        assert sorted(span.trace for span in sends) == sorted(requests.traces.values())
        assert sorted(span.trace for span in messages) == sorted(requests.traces.values())
        linked = {span.trace: span.links for span in sends}
        assert linked == {span.trace: [span.traceparent] for span in messages}
        assert all(span.attributes["message_bus.destination"].startswith(place) for span in sends)


@pytest.mark.parametrize("pump", ["amqp", "sdk"])
async def test_the_syphons_delivery_is_a_span_linked_to_the_send(world: World, pump: str) -> None:
    """The syphon's delivery is a span linked to it."""
    paired = await world.pair()
    async with paired.get_queue_sender("orders") as sender:
        requests = Requests(world, sender)
        await diverted(paired)
        await requests.send_all(5, "parked")
        await paired.close()
    created = sorted(span.traceparent for span in RecordedSpan.named("ServiceBus.message"))
    RecordedSpan.kept.clear()
    with RecordedSpan(name="the start of the engine") as start:
        await world.pair(enable_syphon=True, pump=pump)
    await requests.check()
    moves = RecordedSpan.named("ServiceBus.send")
    await until(
        lambda: sorted(link for span in RecordedSpan.named("ServiceBus.send") for link in span.links) == created
    )
    assert {span.attributes["message_bus.destination"] for span in moves} == {"orders"}
    assert all(span.parent is None and span.trace != start.trace for span in moves)
    assert not RecordedSpan.named("ServiceBus.message"), "a moved message is no new one"


async def test_a_failed_delivery_ends_its_span(world: World) -> None:
    """The syphon's delivery is a span linked to it: a refused one has the error."""
    paired = await world.pair()
    async with paired.get_queue_sender("orders") as sender:
        await diverted(paired)
        await Requests(world, sender).send("parked")
        await paired.close()
    heal = world.fault("full", entity="orders")
    await world.pair(enable_syphon=True, pump="amqp")
    await until(lambda: any(span.error for span in RecordedSpan.named("ServiceBus.send")))
    heal()


async def test_a_batch_keeps_the_contexts_its_messages_were_added_in(world: World) -> None:
    """Each message carries the trace context of the call that sent it: a batch's, when it was added."""
    paired = await world.pair()
    async with paired.get_queue_sender("orders") as sender:
        for where in ("healthy", "diverted"):
            if where == "diverted":
                await diverted(paired)
            batch, traces = await sender.create_message_batch(), {}
            mapping: Any = {"body": f"{where} 2"}
            singles = (ServiceBusMessage(f"{where} 0"), AmqpAnnotatedMessage(data_body=f"{where} 1".encode()), mapping)
            for number, single in enumerate(singles):
                with RecordedSpan(name="add") as span:
                    traces[f"{where} {number}"] = span.trace
                    batch.add_message(single)
            RecordedSpan.kept.clear()
            with RecordedSpan(name="send") as span:
                await sender.send_messages(batch)
            assert not RecordedSpan.named("ServiceBus.message")
            (send,) = RecordedSpan.named("ServiceBus.send")
            assert [link[3:35] for link in send.links] == list(traces.values())
            if where == "healthy":
                received = await world.received("orders", 3)
                assert {name_of(message): traceparent(message)[3:35] for message in received} == traces
        await paired.close()
    await world.pair(enable_syphon=True)
    received = await world.received("orders", 3)
    assert {name_of(message): traceparent(message)[3:35] for message in received} == traces


async def test_one_object_sent_by_two_calls_has_two_contexts(world: World) -> None:
    """Each message carries the trace context of the call that sent it. The caller's message object is never changed. A
    message that carries a context already, such as a forwarded one, keeps it, as with the SDK."""
    paired = await world.pair()
    message = ServiceBusMessage("same", message_id="1", application_properties={"mine": 1})
    async with paired.get_queue_sender("orders") as sender:
        requests = Requests(world, sender)
        await requests.send("first", message)
        await requests.send("second", message)
    received = await world.received("orders", 2)
    assert [traceparent(one)[3:35] for one in received] == list(requests.traces.values())
    assert message.application_properties == {"mine": 1}
    theirs = f"00-{'a' * 32}-{'b' * 16}-01"
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x", application_properties={"traceparent": theirs}))
        (message,) = await world.received("orders", 1)
    assert traceparent(message) == theirs


async def test_scheduled_messages_carry_their_context(world: World) -> None:
    """Each message carries the trace context of the call that sent it: of `schedule_messages`, too."""
    paired, traces = await world.pair(), {}
    async with paired.get_queue_sender("orders") as sender:
        for where in ("primary", "backlog"):
            message = ServiceBusMessage(where, message_id=where, application_properties={"mine": 1})
            if where == "backlog":
                await diverted(paired)
            with RecordedSpan(name="call") as call:
                await sender.schedule_messages(message, datetime.now(UTC) + timedelta(seconds=1))
            traces[where] = call.trace
            assert message.application_properties == {"mine": 1}
        await paired.close()
    await world.pair(enable_syphon=True)
    assert {name_of(one): traceparent(one)[3:35] for one in await world.received("orders", 2)} == traces


async def test_a_failed_send_ends_its_span_with_the_error(world: World) -> None:
    """A send to the backlog is a `ServiceBus.send` span like any other: an outage shows as a failed one before it. Each
    message carries the trace context of the call that sent it: a ping is sent by none."""
    paired = await world.pair(failover_interval=0)
    async with paired.get_queue_sender("orders") as sender:
        heal = world.fault("disabled", entity="orders")
        await Requests(world, sender).send("through the outage")
        failed, parked = RecordedSpan.named("ServiceBus.send")
        assert (failed.error is None, parked.error is None) == (False, True)
        assert failed.attributes["message_bus.destination"] == "orders"
        assert parked.trace == failed.trace
        assert len(RecordedSpan.named("ServiceBus.message")) == 1
        heal()
        RecordedSpan.kept.clear()
        await until(lambda: world.told(PingAccepted))
    assert not RecordedSpan.named("ServiceBus.message")
    assert not RecordedSpan.named("ServiceBus.send")


class RaisingSpan(RecordedSpan):
    """Raises at one moment of its life."""

    at = ""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._raise("made")
        super().__init__(*args, **options)

    def __enter__(self) -> Any:
        self._raise("entered")
        return super().__enter__()

    def __exit__(self, *reason: Any) -> None:
        super().__exit__(*reason)
        self._raise("left")

    def add_attribute(self, key: str, value: Any) -> None:
        self._raise("described")
        super().add_attribute(key, value)

    def to_header(self) -> dict[str, str]:
        self._raise("asked")
        return super().to_header()

    def _raise(self, moment: str) -> None:
        if moment == self.at:
            raise RuntimeError("the tracer is broken")


async def test_a_tracer_that_raises_stops_no_send(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A tracer that raises costs its span, never a send; the log says so, and not for each message."""
    paired = await world.pair(enable_syphon=True)
    for moment in ("made", "entered", "left", "described", "asked"):
        monkeypatch.setitem(product._complaint, "due", 0.0)
        caplog.clear()
        async with paired.get_queue_sender("orders") as sender:
            with monkeypatch.context() as broken, caplog.at_level(logging.WARNING, product.log.name):
                broken.setattr(RaisingSpan, "at", moment)
                settings.tracing_implementation.set_value(RaisingSpan)
                await asyncio.gather(*(sender.send_messages(ServiceBusMessage(str(number))) for number in range(5)))
                await diverted(paired)
                await asyncio.gather(*(sender.send_messages(ServiceBusMessage(str(number))) for number in range(5, 10)))
                settings.tracing_implementation.set_value(RecordedSpan)
            paired.pin("orders", by="test")
            received = await world.received("orders", 10)
        assert sorted(int(name_of(message)) for message in received) == list(range(10)), moment
        assert len([record for record in caplog.records if record.name == product.log.name]) == 1, moment


async def test_a_strangers_context_stops_no_delivery(world: World) -> None:
    """Nothing that a message holds may stop, slow or crash more than itself."""
    await world.pair(enable_syphon=True, pump="amqp")
    strange = [{"traceparent": "no context", "tracestate": 5}, {"traceparent": 7}, {"Diagnostic-Id": b"\xff"}]
    put(world, [parked("orders", str(number), properties=each) for number, each in enumerate(strange)])
    await until(lambda: world.depth("orders") == len(strange))


async def test_an_instrumentation_of_the_sdks_sender_sees_the_callers_own_object(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While healthy, "no behavior changes occur": a profiler that wraps the SDK's method is called, without a copy."""
    settings.tracing_implementation.unset_value()
    paired = await world.pair()
    message = ServiceBusMessage("x", message_id="1")
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(message)
        sent: list[Any] = []
        monkeypatch.setattr(ServiceBusSender, "send_messages", _recording(sent))
        await sender.send_messages(message)
    assert sent == [message]


def _recording(sent: list[Any]) -> Callable[..., Coroutine[Any, Any, None]]:
    @wraps(ServiceBusSender.send_messages)
    async def record(self: Any, message: Any, **_: Any) -> None:
        sent.append(message)

    return record


async def test_a_tracer_set_while_sends_flow_applies_within_a_second(world: World) -> None:
    """A tracer that is set while sends flow applies to them within a second."""
    settings.tracing_implementation.unset_value()
    paired = await world.pair()
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("before", message_id="before"))
        with tracing(RecordedSpan):
            async with asyncio.timeout(60):
                while not RecordedSpan.named("ServiceBus.send"):
                    await sender.send_messages(ServiceBusMessage("x", message_id="1"))
