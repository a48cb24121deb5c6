"""What the SDK's administration client sends for a backlog queue: the text on the wire."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.pairing.management.atom_admin import AtomAdmin
from paired_servicebus.pairing.management.management_port import QueueStatus

from .backlogs import queue_path
from .conftest import World

FOR_EVER = "P10675199DT2H48M5.47758S"
MAX_VALUE = Decimal("5.4775807")
"""The seconds of TimeSpan.MaxValue, whose days, hours and minutes are those above."""


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


async def test_time_to_live_and_auto_delete_are_as_long_as_the_sdk_can_write(world: World) -> None:
    """Section 4.2: "DefaultMessageTimeToLive and AutoDeleteOnIdle TimeSpan.MaxValue". The SDK writes microseconds, and
    the service takes nothing longer: 0.7 µs are missing. Closing the queue and opening it again changes nothing."""
    assert 0 < MAX_VALUE - Decimal(FOR_EVER.partition("M")[2].rstrip("S")) < Decimal("0.000001")
    transport = Recording(connection_verify=str(world.sandbox.ca_file))
    admin = AtomAdmin(
        ServiceBusAdministrationClient.from_connection_string(
            world.sandbox["secondary"].connection_string, transport=transport
        )
    )
    await admin.create_backlog_queue(queue_path())
    assert transport.spans() == [FOR_EVER, FOR_EVER]
    await admin.set_status(queue_path(), QueueStatus.SEND_DISABLED)
    assert len(transport.bodies) == 2
    assert transport.spans() == [FOR_EVER, FOR_EVER]
    await admin.close()
