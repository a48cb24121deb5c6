"""A search of a queue that cannot be peeked into."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paired_servicebus.core.errors import WireError
from paired_servicebus.pairing.syphon import deferred_scan
from paired_servicebus.pairing.syphon.deferred_messages import DeferredByDestination
from paired_servicebus.pairing.syphon.deferred_scan import DeferredScan
from paired_servicebus.pairing.syphon.outcomes import SOON


async def test_a_queue_that_cannot_be_searched_is_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: it was at each step of its pump, which waited ten seconds each time where no answer came."""

    async def refuse(*_: Any, **__: Any) -> list[bytes]:
        raise WireError("no answer")

    monkeypatch.setattr(deferred_scan, "peek", refuse)
    now = 1000.0
    steering: Any = SimpleNamespace(clock=lambda: now, judge=lambda error: SimpleNamespace(reason=str(error)))
    wire: Any = None
    search = DeferredScan(steering, wire, "primary/x-servicebus-transfer/0", DeferredByDestination(), set)

    assert search.is_due(now)
    await search.look()
    assert search.trouble == "cannot search for deferred messages: no answer"
    assert not search.is_due(now)
    assert search.is_due(now + SOON)
