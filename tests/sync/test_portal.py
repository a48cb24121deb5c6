"""The thread behind the synchronous client: what meets its end is told so."""

from __future__ import annotations

import asyncio
import threading

from paired_servicebus.core.errors import PairingClosedError
from paired_servicebus.sync.portal import Portal

PATIENCE = 60.0


def test_calls_that_meet_the_end_of_the_thread_are_told_and_none_waits_for_ever() -> None:
    """Section 9: "sends in hand finish or raise"."""
    for _ in range(20):
        portal = Portal("a test's")

        def call_until_closed(portal: Portal = portal) -> None:
            try:
                while True:
                    portal.call(asyncio.sleep, 0)
            except PairingClosedError:
                pass

        callers = [threading.Thread(target=call_until_closed, daemon=True) for _ in range(4)]
        for caller in callers:
            caller.start()
        portal.close()
        for caller in callers:
            caller.join(PATIENCE)
        assert not any(caller.is_alive() for caller in callers)
