"""What the port over Atom sends for a backlog queue: the text on the wire."""

from __future__ import annotations

import re
from typing import Any

from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.pairing.management.atom_admin import AtomAdmin
from paired_servicebus.pairing.management.management_port import QueueStatus

from .backlogs import queue_path
from .conftest import World

MAX_VALUE = "P10675199DT2H48M5.4775807S"


class Recording(AioHttpTransport):
    """Sends requests, and keeps their bodies."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.bodies: list[str] = []

    async def send(self, request: Any, **options: Any) -> Any:
        if request.method == "PUT":
            self.bodies.append(bytes(request.body).decode())
        return await super().send(request, **options)

    def spans(self) -> list[str]:
        """Both spans of the latest request."""
        return [
            text
            for name in ("DefaultMessageTimeToLive", "AutoDeleteOnIdle")
            for text in re.findall(f"<(?:\\w+:)?{name}>([^<]*)<", self.bodies[-1])
        ]


async def test_time_to_live_and_auto_delete_are_timespans_maximum(world: World) -> None:
    """Section 4.2: "DefaultMessageTimeToLive and AutoDeleteOnIdle TimeSpan.MaxValue". Closing the queue and opening it
    again changes nothing."""
    transport = Recording(connection_verify=str(world.sandbox.ca_file))
    admin = AtomAdmin(
        ServiceBusAdministrationClient.from_connection_string(
            world.sandbox["secondary"].connection_string, transport=transport
        )
    )
    await admin.create_backlog_queue(queue_path())
    assert transport.spans() == [MAX_VALUE, MAX_VALUE]
    await admin.set_status(queue_path(), QueueStatus.SEND_DISABLED)
    assert len(transport.bodies) == 2
    assert transport.spans() == [MAX_VALUE, MAX_VALUE]
    await admin.close()
