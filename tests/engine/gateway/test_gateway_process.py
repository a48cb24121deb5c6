"""An engine process with a gateway, as its user has it: two commands, one string, and a kill."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.model.pairing_events import Delivered, Warned
from tests.engine.test_engine_process import Site, sandbox, site  # noqa: F401 - two are fixtures
from tests.journal_files import read_records
from tests.ports import free_port

pytestmark = pytest.mark.slow


async def send(string: str, message_id: str) -> None:
    async with ServiceBusClient.from_connection_string(string) as client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x", message_id=message_id))


def test_the_printed_string_works_again_after_the_engine_was_killed(site: Site) -> None:  # noqa: F811
    # "kill -9 the engine, start again, the same string works"
    site.write(f'entities = ["orders"]\nbacklog_queue_count = 1\njournal = "all"\n[gateway]\nport = {free_port()}')
    first = site.up()
    string = site.paired("gateway").stdout.strip()
    asyncio.run(send(string, "first"))
    os.kill(first.pid, signal.SIGKILL)
    assert site.gone()
    site.up()
    assert site.paired("gateway").stdout.strip() == string
    asyncio.run(send(string, "second"))
    assert site.paired("gateway", "--rotate").returncode == 0
    asyncio.run(send(site.paired("gateway").stdout.strip(), "third"))
    assert site.paired("down").returncode == 0
    records = read_records(site.places.spool)
    events = [record.event for record in records]
    sent = [(event.message_id, event.key) for event in events if isinstance(event, Delivered)]
    assert sent == [("first", "gateway"), ("second", "gateway"), ("third", "gateway")]
    assert [event.about for event in events if isinstance(event, Warned) and event.about == "gateway"] == ["gateway"]
    assert site.places.gateway_entities.exists()
    secret = string.partition("SharedAccessKey=")[2].partition(";")[0]
    state = site.places.state
    kept = [path for path in state.rglob("*") if path.is_file() and path != site.places.gateway_keys]
    assert [path for path in kept if secret.encode() in path.read_bytes()] == [], "no secret but in the keys file"
