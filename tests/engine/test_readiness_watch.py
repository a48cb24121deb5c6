"""The engine looks again and again whether a failover would work, and says so when the answer turns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from paired_servicebus.core.model.pairing_events import QueuePulled, SendsCounted
from paired_servicebus.core.model.snapshot import FindingVerdict, SyphonStatus
from paired_servicebus.core.operator.failover_readiness import Evidence
from paired_servicebus.engine.readiness import readiness_check as watch_module
from paired_servicebus.engine.readiness.readiness_check import ReadinessWatch, no_local_evidence

from .conftest import FakePairing, evidence

Until = Callable[[Callable[[], bool]], Awaitable[None]]
PULLED = QueuePulled(at=1.0, queue=0, reason="timeout")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks as soon as something changes, and not by itself."""
    monkeypatch.setattr(watch_module, "MIN_CHECK_INTERVAL", 0.0)


async def running(watch: ReadinessWatch, pairing: FakePairing) -> asyncio.Task[None]:
    task = asyncio.create_task(watch.run(pairing))
    async with asyncio.timeout(60):
        while watch.latest is None:
            await asyncio.sleep(0)
    return task


async def test_the_first_look_comes_at_once_and_says_nothing_where_all_is_well(pairing: FakePairing) -> None:
    watch = ReadinessWatch(no_local_evidence)
    task = await running(watch, pairing)
    task.cancel()
    assert watch.latest is not None
    assert watch.latest.ready


async def test_parked_messages_without_a_known_syphon_are_a_warning(
    pairing: FakePairing,
) -> None:
    found = evidence()
    parked = tuple(replace(queue, messages=300) for queue in found.queues)
    pairing.evidence = replace(found, queues=parked, syphon=SyphonStatus.OFF)
    watch = ReadinessWatch(no_local_evidence)
    task = await running(watch, pairing)
    task.cancel()
    assert watch.latest is not None
    assert watch.latest.ready
    assert watch.latest.of(FindingVerdict.WARN)


@pytest.mark.usefixtures("quick")
async def test_an_event_that_may_change_the_answer_causes_a_look(pairing: FakePairing, until: Until) -> None:
    watch = ReadinessWatch(no_local_evidence)
    task = await running(watch, pairing)
    pairing.evidence = evidence("not authorized")
    watch.note(PULLED)
    await until(lambda: watch.latest is not None and not watch.latest.ready)
    pairing.evidence = evidence()
    watch.note(PULLED)
    await until(lambda: watch.latest is not None and watch.latest.ready)
    task.cancel()


@pytest.mark.usefixtures("quick")
async def test_what_changes_nothing_causes_no_look(pairing: FakePairing) -> None:
    watch = ReadinessWatch(no_local_evidence)
    task = await running(watch, pairing)
    first = watch.latest
    watch.note(SendsCounted(at=1.0, entity="orders", route="primary", accepted=1, failed=0, seconds=1.0))
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    assert watch.latest is first


async def test_syphons_of_other_engines_are_told_to_the_pairing(pairing: FakePairing) -> None:
    async def around(seen: Evidence) -> Evidence:
        return replace(seen, syphons_elsewhere=("orders@web-2",))

    pairing.evidence = evidence(syphon=SyphonStatus.OFF)
    task = await running(ReadinessWatch(around), pairing)
    task.cancel()
    assert pairing.syphons_elsewhere == ("orders@web-2",)


async def test_surroundings_that_fail_leave_what_the_pairing_saw(pairing: FakePairing) -> None:
    async def broken(_: Evidence) -> Evidence:
        raise RuntimeError("no")

    watch = ReadinessWatch(broken)
    task = await running(watch, pairing)
    task.cancel()
    assert watch.latest is not None
