"""The remains of an earlier, larger pairing in the demo's secondary namespace: unused backlog queues.

One of them is not empty, so that clean-up refuses it and "move stranded" has a message to move. Its messages are for a
separate queue without receivers, and not in the demo's ledger.
"""

from __future__ import annotations

from typing import Final

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.model.envelope import PATH
from paired_servicebus.demo.demo_sandbox import SandboxStage
from paired_servicebus.demo.scenario_model import QUEUES
from paired_servicebus.pairing.management.atom_admin import management_of
from paired_servicebus.pairing.runtime.deadlines import bounded

EMPTY: Final = (QUEUES, QUEUES + 1)
STRANDED: Final = QUEUES + 2
MESSAGES: Final = 3
DESTINATION: Final = "returns"
SETUP_TIMEOUT: Final = 20.0


async def leave(standing: SandboxStage) -> None:
    """Make them, before anything is paired."""
    await bounded(_queues(standing), SETUP_TIMEOUT, "making the unused queues")
    await bounded(_messages(standing), SETUP_TIMEOUT, "stranding messages in one of them")


async def _queues(standing: SandboxStage) -> None:
    async with _admin(standing, "primary") as admin:
        await admin.create_queue(DESTINATION)
    async with _admin(standing, "secondary") as admin:
        for index in (*EMPTY, STRANDED):
            await management_of(admin).create_backlog_queue(_path(index))


def _admin(standing: SandboxStage, name: str) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        standing.connection_string(name), connection_verify=standing.ca_file
    )


async def _messages(standing: SandboxStage) -> None:
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
