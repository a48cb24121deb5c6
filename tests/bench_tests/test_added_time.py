"""What our code adds to a send is measured on the shipped sender, with a stub in the SDK's place."""

from __future__ import annotations

import pytest

from tests.bench import added_time


async def test_the_stub_has_what_a_paired_sender_asks_of_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(added_time, "STUBBED", 5)
    monkeypatch.setattr(added_time, "STUB_ROUNDS", 1)
    assert isinstance((await added_time.measure_added(64)).added_us, float)
