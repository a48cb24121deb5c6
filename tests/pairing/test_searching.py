"""A search of a queue that cannot be peeked into."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paired_servicebus.core.errors import WireError
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.pump.pump_machine import SOON, PumpMachine
from paired_servicebus.pairing.syphon import deferred_scan
from paired_servicebus.pairing.syphon.deferred_scan import DeferredScan


async def test_a_queue_that_cannot_be_searched_is_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: it was at each step of its pump, which waited ten seconds each time where no answer came."""

    async def refuse(*_: Any, **__: Any) -> list[bytes]:
        raise WireError("no answer")

    monkeypatch.setattr(deferred_scan, "peek", refuse)
    now = 1000.0
    steering: Any = SimpleNamespace(clock=lambda: now, judge=lambda error: SimpleNamespace(reason=str(error)))
    wire: Any = None
    machine: PumpMachine[Any] = PumpMachine(PairingMachine(Policy(), queues=(0,)), 0)
    pump: Any = SimpleNamespace(machine=machine, known=machine.known, apply=machine.step)
    search = DeferredScan(steering, wire, "primary/x-servicebus-transfer/0", pump)

    assert machine.search.due_at <= now
    await search.look()
    assert search.trouble == "cannot search for deferred messages: no answer"
    assert machine.search.due_at == now + SOON
