"""Signatures of a management client that an application made from a key, over hours."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from azure.core.exceptions import ServiceRequestError
from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.pairing.management.atom_admin import AtomAdmin

KEY = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=czNjcmV0"


class Nowhere(AioHttpTransport):  # type: ignore[misc]
    """Notes until when each request is signed, and sends none."""

    def __init__(self) -> None:
        super().__init__()
        self.signed_until: list[int] = []

    async def send(self, request: Any, **options: Any) -> Any:
        found = re.search(r"se=(\d+)", request.headers["Authorization"])
        assert found is not None
        self.signed_until.append(int(found.group(1)))
        raise ServiceRequestError("nowhere")


async def test_no_request_is_signed_by_what_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: once an hour everything was refused for a minute, which was an alarm."""
    nowhere, now = Nowhere(), time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    admin = AtomAdmin(ServiceBusAdministrationClient.from_connection_string(KEY, transport=nowhere, retry_total=0))
    left = []
    for _ in range(3 * 60):
        with pytest.raises(ServiceRequestError):
            await admin.depth("orders")
        left.append(nowhere.signed_until[-1] - now)
        now += 60
    await admin.close()
    assert min(left) > 60
    assert len(set(nowhere.signed_until)) == 4, "and it is signed once an hour or so"
