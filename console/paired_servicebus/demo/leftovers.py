"""What an earlier, larger pairing left in the demo's secondary namespace: backlog queues that nobody uses any more.

One of them is not empty, so that clean-up has something to refuse and "move stranded" something to move. Its messages
are for a queue of their own, from which nobody in the demo receives, and no part of its ledger.
"""

from __future__ import annotations

from typing import Final

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.envelope import PATH
from paired_servicebus.demo.script import QUEUES
from paired_servicebus.demo.stage import Stage
from paired_servicebus.pairing.deadlines import bounded
from paired_servicebus.pairing.management import management_of

EMPTY: Final = (QUEUES, QUEUES + 1)
STRANDED: Final = QUEUES + 2
MESSAGES: Final = 3
DESTINATION: Final = "returns"
WITHIN: Final = 20.0


async def leave(standing: Stage) -> None:
    """Make them, before anything is paired."""
    await bounded(_queues(standing), WITHIN, "making the queues that nobody uses")
    await bounded(_messages(standing), WITHIN, "stranding messages in one of them")


async def _queues(standing: Stage) -> None:
    async with _admin(standing, "primary") as admin:
        await admin.create_queue(DESTINATION)
    async with _admin(standing, "secondary") as admin:
        for index in (*EMPTY, STRANDED):
            await management_of(admin).create_backlog_queue(_path(index))


def _admin(standing: Stage, name: str) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        standing.connection_string(name), connection_verify=standing.ca_file
    )


async def _messages(standing: Stage) -> None:
    async with (
        ServiceBusClient.from_connection_string(standing.connection_string("secondary"), retry_total=0) as client,
        client.get_queue_sender(_path(STRANDED)) as sender,
    ):
        for number in range(MESSAGES):
            message = ServiceBusMessage(
                b"left behind", message_id=f"stranded-{number}", application_properties={PATH: DESTINATION}
            )
            await sender.send_messages(message)


def _path(index: int) -> str:
    return f"primary/x-servicebus-transfer/{index}"
