"""An application with an engine and a syphon in it, as a process of its own: sends until its input ends."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

import paired_servicebus


async def application(given: argparse.Namespace) -> None:
    trust = paired_servicebus.tls_context()
    primary, secondary = (
        ServiceBusClient.from_connection_string(os.environ[name], retry_total=0, ssl_context=trust)
        for name in ("PRIMARY", "SECONDARY")
    )
    admin = ServiceBusAdministrationClient.from_connection_string(
        os.environ["SECONDARY"], connection_verify=given.ca_file
    )
    options = paired_servicebus.SendAvailabilityPairedNamespaceOptions(
        secondary_admin=admin, secondary_client=secondary, primary_name="primary", backlog_queue_count=given.queues,
        enable_syphon=True, send_timeout=given.send_timeout, failover_interval=given.failover_interval,
        ping_primary_interval=given.ping_interval,
    )  # fmt: skip
    async with await paired_servicebus.pair_namespaces(primary, options, control=given.name) as paired:
        print("ready", flush=True)
        sending = asyncio.create_task(send(paired, given.each))
        await asyncio.to_thread(sys.stdin.read)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def send(paired: paired_servicebus.PairedServiceBusClient, each: float) -> None:
    """One message after the other; a call that fails is one that the caller still owns."""
    async with paired.get_queue_sender("orders") as sender:
        while True:
            with contextlib.suppress(Exception):
                await sender.send_messages(ServiceBusMessage(b"x"))
            await asyncio.sleep(each)


if __name__ == "__main__":
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--name", required=True)
    reader.add_argument("--ca-file", required=True)
    for option, kind in (("queues", int), ("send-timeout", float), ("failover-interval", float)):
        reader.add_argument(f"--{option}", type=kind, required=True)
    reader.add_argument("--ping-interval", type=float, required=True)
    reader.add_argument("--each", type=float, required=True, help="seconds between two messages")
    asyncio.run(application(reader.parse_args()))
