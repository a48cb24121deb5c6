"""What other engines here use of the same namespaces: by the indices in their queues' paths, never by their number."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.backlog.depth_readings import QueueUsage
from paired_servicebus.core.errors import CleanUpError
from paired_servicebus.core.model.snapshot import SyphonStatus, SyphonView
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.engine.instance.lock import LockHolder, acquire
from paired_servicebus.engine.readiness.readiness_check import queues_in_use, read_local_usage
from tests.engine.conftest import FakePairing

Engine = Callable[..., Any]
NOT_HERE = Path("/nowhere")


@pytest.fixture
def hold(short: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, Path], None]]:
    """Takes the lock of an engine that listens at a socket."""
    monkeypatch.setenv("XDG_STATE_HOME", str(short))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    held: list[int] = []

    def take_it(name: str, socket: Path) -> None:
        places = engine_paths(name)
        places.prepare()
        held.append(acquire(places.lock, LockHolder(pid=4711, socket=str(socket), log="/x.log")))

    yield take_it
    for lock in held:
        with suppress(OSError):
            os.close(lock)


async def test_the_indices_of_another_engine_are_those_of_its_paths(
    engine: Engine, pairing: FakePairing, hold: Callable[[str, Path], None]
) -> None:
    """Section 4.3: "its real indices, not their number: creation may leave gaps"."""
    pairing.indices = (0, 2, 3)
    async with engine() as hosted:
        hold("other", hosted.socket)
        assert await queues_in_use(FakePairing(), besides=NOT_HERE) == {0, 2, 3}
        assert await read_local_usage(FakePairing(), besides=NOT_HERE) == QueueUsage(
            used=frozenset({0, 2, 3}), moved=frozenset({0, 2, 3})
        )
        assert await queues_in_use(FakePairing(), besides=hosted.socket) == frozenset()
        assert await queues_in_use(FakePairing(secondary_name="another"), besides=NOT_HERE) == frozenset()


async def test_an_engine_that_does_not_answer_may_use_it_and_nothing_is_deleted(
    hold: Callable[[str, Path], None],
) -> None:
    hold("other", NOT_HERE)
    with pytest.raises(CleanUpError, match="the engine of other may use it"):
        await queues_in_use(FakePairing(), besides=Path("/elsewhere"))
    assert await read_local_usage(FakePairing(), besides=Path("/elsewhere")) == QueueUsage()


@pytest.mark.parametrize("status", [SyphonStatus.OFF, SyphonStatus.PAUSED, SyphonStatus.STUCK])
async def test_a_syphon_that_does_not_move_moves_nothing_out_of_its_queues(
    engine: Engine, pairing: FakePairing, hold: Callable[[str, Path], None], status: SyphonStatus
) -> None:
    pairing.syphon = SyphonView(status=status, text="")
    async with engine() as hosted:
        hold("other", hosted.socket)
        assert (await read_local_usage(FakePairing(), besides=NOT_HERE)).moved == frozenset()


@pytest.mark.parametrize(
    ("status", "is_busy"), [(SyphonStatus.RUNNING, True), (SyphonStatus.WAITING, True), (SyphonStatus.IDLE, False)]
)
async def test_a_syphon_that_moves_or_holds_messages_is_busy_with_them(
    engine: Engine, pairing: FakePairing, hold: Callable[[str, Path], None], status: SyphonStatus, is_busy: bool
) -> None:
    """No engine calls its syphon stuck for messages that another one has in hand (finding C4)."""
    pairing.syphon, pairing.indices = SyphonView(status=status, text=""), (0, 1)
    async with engine() as hosted:
        hold("other", hosted.socket)
        assert (await read_local_usage(FakePairing(), besides=NOT_HERE)).busy == (
            frozenset({0, 1}) if is_busy else set()
        )
