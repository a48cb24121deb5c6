"""Which tasks a drain gives out, when a queue counts as drained, when it gives up: without Spark or a real clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.core.backlog.queue_settings import Depth
from paired_servicebus.core.errors import DrainError
from paired_servicebus.pipeline.drain.drain_command import DrainTargets as Looked
from paired_servicebus.pipeline.drain.drain_command import refusal, retrying
from paired_servicebus.pipeline.drain.drain_files import TaskEnd, TaskReport
from paired_servicebus.pipeline.drain.drain_main import LOCKED, PATIENCE, Depths, WaveActions, Waves, dealt

WAVE = 10.0


@dataclass
class Namespaces:
    """Backlog queues that tasks move messages out of, `each` at a time; a clock."""

    lying: dict[int, int]
    each: int = 1000
    told: bool = True
    trouble: str = ""
    locked: dict[int, float] = field(default_factory=dict)
    """Queues whose messages are nobody's until a time."""
    aside: int = 0
    now: float = 1000.0
    deals: list[tuple[int, ...]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    stop_after: int = 10**6

    def run(self, deals: tuple[int, ...]) -> Sequence[TaskReport]:
        self.now += WAVE
        self.deals.append(deals)
        return [self._task(queue) for queue in deals]

    def _task(self, queue: int) -> TaskReport:
        if self.trouble:
            return TaskReport(queue=queue, end=TaskEnd.FAILING, text=self.trouble)
        if self.locked.get(queue, 0.0) > self.now:
            return TaskReport(queue=queue, end=TaskEnd.EMPTY)
        moved = min(self.each, self.lying[queue] - self.aside)
        self.lying[queue] -= moved
        end = TaskEnd.BOUND if moved == self.each else TaskEnd.EMPTY
        return TaskReport(queue=queue, end=end, moved=moved, set_aside=self.aside)

    def depths(self) -> Depths:
        counts = {queue: Depth(messages=count, dead_lettered=0, size_bytes=0) for queue, count in self.lying.items()}
        return counts if self.told else dict.fromkeys(counts)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def drain(self, parallelism: int = 2) -> tuple[str, Waves]:
        world = WaveActions(
            run=self.run,
            depths=self.depths,
            clock=lambda: self.now,
            sleep=self.sleep,
            is_stopped=lambda: len(self.deals) >= self.stop_after,
            tell=lambda number, text: self.said.append(text),
        )
        waves = Waves(world, queues=self.lying, parallelism=parallelism)
        return waves.run(), waves


def test_queues_are_those_of_the_order_by_their_indices_which_may_have_gaps() -> None:
    namespaces = Namespaces({0: 1500, 2: 0, 3: 10})
    reason, waves = namespaces.drain(parallelism=3)
    assert reason == ""
    assert set(waves.queues) == {0, 2, 3}
    assert namespaces.lying == {0: 0, 2: 0, 3: 0}
    assert namespaces.deals[0] == (0, 3, 2)


@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=8), st.integers(1, 12), st.booleans())
def test_all_is_drained_whatever_lies_where(lying: list[int], parallelism: int, told: bool) -> None:
    namespaces = Namespaces(dict(enumerate(lying)), told=told)
    reason, waves = namespaces.drain(parallelism)
    assert reason == ""
    assert set(namespaces.lying.values()) == {0}
    assert waves.count == len(namespaces.deals)
    assert all(len(deals) <= parallelism for deals in namespaces.deals)


def test_where_counts_are_told_nobody_waits_for_locks() -> None:
    namespaces = Namespaces({0: 1500, 1: 0})
    began = namespaces.now
    assert namespaces.drain()[0] == ""
    assert namespaces.now - began <= 3 * WAVE


@pytest.mark.parametrize("told", [True, False])
def test_messages_that_a_killed_task_left_locked_are_waited_for(told: bool) -> None:
    """Nobody takes "empty" for "drained"."""
    namespaces = Namespaces({0: 500}, told=told, locked={0: 1060.0})
    assert namespaces.drain()[0] == ""
    assert namespaces.lying == {0: 0}


def test_a_count_that_never_falls_does_not_hold_a_drain_for_ever() -> None:
    namespaces = Namespaces({0: 500}, locked={0: 1e9})
    began = namespaces.now
    assert namespaces.drain()[0] == ""
    assert LOCKED <= namespaces.now - began <= LOCKED + 4 * WAVE


def test_what_is_set_aside_is_not_waited_for_and_is_said() -> None:
    namespaces = Namespaces({0: 700}, aside=200)
    reason, waves = namespaces.drain()
    assert (reason, waves.set_aside, namespaces.lying) == ("", 200, {0: 200})


def test_a_drain_that_cannot_go_on_gives_up_with_the_reason_and_not_before_time() -> None:
    namespaces = Namespaces({0: 700}, trouble="cannot receive: refused")
    reason, _ = namespaces.drain()
    assert "cannot receive: refused" in reason
    assert namespaces.now - 1000.0 >= PATIENCE
    assert any("cannot receive" in text for text in namespaces.said)


def test_a_drain_that_is_told_to_stop_begins_no_further_wave() -> None:
    namespaces = Namespaces({0: 100_000}, stop_after=3)
    assert namespaces.drain()[0] == "it was told to stop"
    assert len(namespaces.deals) == 3


def test_an_executor_that_cannot_drain_ends_it_at_once() -> None:
    namespaces = Namespaces({0: 1})
    namespaces.run = lambda deals: [TaskReport(queue=0, end=TaskEnd.UNFIT, text="no pairing.toml on worker-7")]  # type: ignore[method-assign]
    with pytest.raises(DrainError, match="worker-7"):
        namespaces.drain()


def test_tasks_go_first_to_every_queue_and_then_to_the_fullest() -> None:
    assert dealt({0: 10, 1: 90_000, 2: 30_000}, 2) == (1, 2)
    assert sorted(dealt({0: 10, 1: 90_000, 2: 30_000}, 7)) == [0, 1, 1, 1, 1, 2, 2]
    assert dealt({0: 10, 1: 10}, 8) == (0, 1)
    assert dealt({0: None, 1: 5000}, 2) == (1, 0)


def test_a_local_master_tries_a_task_again() -> None:
    assert [retrying(master) for master in ("local", "local[*]", "local[4]", "local[2,8]", "spark://h:7077")] == [
        "local[1,4]", "local[*,4]", "local[4,4]", "local[2,8]", "spark://h:7077",
    ]  # fmt: skip


def test_a_drain_beside_a_syphon_is_refused_by_name() -> None:
    assert refusal(Looked(("q",), 1, (), ())) == ""
    said = refusal(Looked(("q",), 1, ("orders@here",), ()))
    assert "orders@here" in said
    assert "--beside-syphon" in said
