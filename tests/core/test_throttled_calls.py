"""Calls that wait for a busy namespace: counted while they wait, with the longest wait."""

from __future__ import annotations

from paired_servicebus.core.accounting.refused_calls import ThrottledCalls


def test_the_alarm_has_each_entity_its_calls_and_the_longest_wait() -> None:
    waits = ThrottledCalls()
    assert waits.alarm(0.0) == ""
    waits.wait("orders", 1, at=10.0)
    waits.wait("orders", 2, at=12.0)
    waits.wait("orders", 1, at=20.0)
    waits.wait("audit", 3, at=21.5)
    assert "(orders: 2 calls for up to 12 s)" in waits.alarm(22.0)
    assert "(audit: 1 call for up to 2 s; orders: 2 calls for up to 14 s)" in waits.alarm(23.5)


def test_a_call_that_ended_is_not_counted() -> None:
    waits = ThrottledCalls()
    waits.wait("orders", 1, at=0.0)
    waits.end("orders", 1)
    waits.end("orders", 1)
    waits.end("audit", 1)
    assert waits.alarm(100.0) == ""
