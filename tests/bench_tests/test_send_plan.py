"""What our code adds to a send is measured on the shipped sender, with a stub in the SDK's place."""

from __future__ import annotations

import pytest

from paired_servicebus.bench import send_bench


async def test_the_stub_has_what_a_paired_sender_asks_of_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_bench, "STUBBED", 5)
    monkeypatch.setattr(send_bench, "STUB_ROUNDS", 1)
    assert isinstance(await send_bench.measure_added(64), float)
