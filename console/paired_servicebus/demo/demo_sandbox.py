"""The pairing of a demo on the sandbox, and the remains of an earlier, larger one: unused backlog queues.

One of them is not empty, so that clean-up refuses it and "move stranded" has a message to move. Its messages are for a
separate queue without receivers, and not in the demo's ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.model.envelope import PATH
from paired_servicebus.core.model.pairing_events import Event
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.demo.scenario_model import PRIMARY, QUEUES, SECONDARY
from paired_servicebus.pairing import PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions, pair_namespaces
from paired_servicebus.pairing.management.atom_admin import management_of
from paired_servicebus.pairing.management.backlog_queues import queue_path
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.sandbox_process import SandboxProcess

EMPTY: Final = (QUEUES, QUEUES + 1)
STRANDED: Final = QUEUES + 2
MESSAGES: Final = 3
DESTINATION: Final = "returns"
SETUP_TIMEOUT: Final = 20.0


async def pair_on(
    sandbox: SandboxProcess, policy: Policy, *, on_event: Callable[[Event], object]
) -> PairedServiceBusClient:
    """Return the pairing of the sandbox's two namespaces. Raises PairedError."""
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=sandbox.admin(SECONDARY),
        secondary_client=sandbox.client(SECONDARY),
        primary_name=PRIMARY,
        **{name: getattr(policy, name) for name in policy.__dataclass_fields__},
    )
    return await pair_namespaces(sandbox.client(PRIMARY), options, on_event=on_event)


async def leave_unused_queues(sandbox: SandboxProcess) -> None:
    """Make them, before anything is paired."""
    await bounded(_make_queues(sandbox), SETUP_TIMEOUT, "making the unused queues")
    await bounded(_strand_messages(sandbox), SETUP_TIMEOUT, "stranding messages in one of them")


async def _make_queues(sandbox: SandboxProcess) -> None:
    async with sandbox.admin(PRIMARY) as admin:
        await admin.create_queue(DESTINATION)
    async with sandbox.admin(SECONDARY) as admin:
        for index in (*EMPTY, STRANDED):
            await management_of(admin).create_backlog_queue(queue_path(PRIMARY, index))


async def _strand_messages(sandbox: SandboxProcess) -> None:
    async with sandbox.client(SECONDARY) as client, client.get_queue_sender(queue_path(PRIMARY, STRANDED)) as sender:
        for number in range(MESSAGES):
            message = ServiceBusMessage(
                b"left behind", message_id=f"stranded-{number}", application_properties={PATH: DESTINATION}
            )
            await sender.send_messages(message)
