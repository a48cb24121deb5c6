"""The journal names the key of each message that came through the gateway."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.model.pairing_events import Delivered, Diverted, Record
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing, new_key
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from paired_servicebus.engine.journal import records
from servicebus_sandbox import Sandbox
from servicebus_sandbox.fixtures.sdk_sleeps import shorten_sleeps
from tests.pairing.conftest import TRUST, World

WEB, BATCH = new_key("web", [GatewayRight.SEND]), new_key("batch", [GatewayRight.SEND])


async def test_who_sent_what_is_in_the_journal_by_key_name() -> None:
    # "who sent what, by key name (journal = "all" or the diverted ones)"
    with shorten_sleeps():
        async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
            world = World(sandbox, stack)
            paired = await world.pair(backlog_queue_count=1, journal="all")
            gateway = Gateway(paired, KeyRing([WEB, BATCH]))
            await gateway.listen(0)
            stack.push_async_callback(gateway.close, 0.1)
            for key in (WEB, BATCH):
                string = gateway.connection_string(key)
                client = await stack.enter_async_context(
                    ServiceBusClient.from_connection_string(string, retry_total=0, ssl_context=TRUST)
                )
                async with client.get_queue_sender("orders") as sender:
                    await sender.send_messages(ServiceBusMessage(b"x", message_id=f"{key.name} direct"))
                    paired.force("orders", by="kim")
                    await sender.send_messages(ServiceBusMessage(b"x", message_id=f"{key.name} parked"))
                    later = datetime.now(UTC) + timedelta(hours=1)
                    await sender.schedule_messages(ServiceBusMessage(b"x", message_id=f"{key.name} scheduled"), later)
                    paired.release("orders", by="kim")
                    paired.pin("orders", by="kim")
            async with paired.get_queue_sender("orders") as own:
                await own.send_messages(ServiceBusMessage(b"x", message_id="own"))
    receipts = [*world.told(Delivered), *world.told(Diverted)]
    assert {(receipt.message_id, receipt.key) for receipt in receipts} == {
        ("web direct", "web"),
        ("batch direct", "batch"),
        ("web parked", "web"),
        ("batch parked", "batch"),
        ("web scheduled", "web"),
        ("batch scheduled", "batch"),
        ("own", None),
    }
    for receipt in receipts:
        line = records.encode(Record(engine="e", boot="b", seq=1, event=receipt))
        assert (b'"key"' in line) == (receipt.key is not None), "lines of other senders are as before"
        assert records.decode(line) is not None
        assert WEB.key.encode() not in line
