"""An outage prints nothing where an application has set up no logging."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio._async_utils import close_handler_for_cleanup

from paired_servicebus.pairing.sdk_internals import keep_unopened

PROGRAM = """
    import asyncio, sys
    from azure.servicebus import ServiceBusMessage
    from azure.servicebus.aio import ServiceBusClient
    from azure.servicebus.aio.management import ServiceBusAdministrationClient as Admin
    from paired_servicebus.pairing import SendAvailabilityPairedNamespaceOptions, pair_namespaces
    from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox

    async def main():
        specs = NamespaceSpec("contoso", queues=[QueueSpec("orders")]), NamespaceSpec("backup")
        async with Sandbox.start(specs) as sandbox:
            one, two = sandbox["contoso"], sandbox["backup"]
            primary, secondary = (ServiceBusClient.from_connection_string(n.connection_string) for n in (one, two))
            admin = Admin.from_connection_string(two.connection_string, connection_verify=str(sandbox.ca_file))
            options = SendAvailabilityPairedNamespaceOptions(
                secondary_client=secondary, secondary_admin=admin, backlog_queue_count=1, primary_name="contoso",
                failover_interval=0, ping_primary_interval=1, ping_timeout=1, send_timeout=1,
            )
            async with await pair_namespaces(primary, options) as paired, paired.get_queue_sender("orders") as sender:
                await sender.send_messages(ServiceBusMessage(b"x"), timeout=60)
                one.node.faults.add(sys.argv[1])
                await sender.send_messages(ServiceBusMessage(b"y"))
                while paired.entity_views()[0].last_ping_good is None:
                    await asyncio.sleep(0.05)
        print("pinged")

    asyncio.run(main())
"""


@pytest.mark.real_time
def test_no_send_and_no_ping_of_an_outage_prints_anything() -> None:
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), "black-holed"]
    root = Path(__file__).parents[2]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=150, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "pinged\n", "")


def _client() -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(
        "Endpoint=sb://127.0.0.1:1/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
    )


@pytest.mark.parametrize("ours", [False, True])
async def test_the_sdk_complains_of_links_that_it_has_no_time_to_close(
    ours: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The SDK's part is a contract: where it has changed, our part is needless."""
    async with _client() as client:
        sender = client.get_queue_sender("orders")
        if ours:
            keep_unopened(sender)
        await close_handler_for_cleanup(sender._close_handler(), time.monotonic() - 1)
    assert [record.message for record in caplog.records] == (
        [] if ours else ["Handler cleanup did not complete; preserving the original error."]
    )


async def test_the_sdk_still_closes_a_link_that_was_open() -> None:
    async with _client() as client:
        sender = client.get_queue_sender("orders")
        keep_unopened(sender)
        sender._running = True
        await sender._close_handler()
        assert not sender._running
