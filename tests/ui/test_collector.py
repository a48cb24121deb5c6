"""Full collections of garbage wait until nobody types."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from paired_servicebus.ui.display.terminal_app import EVERY_SECONDS, IDLE_SECONDS, LONGEST_SECONDS, IdleCollector


class Clocked:
    """A collector with a clock to set, and the number of full collections."""

    def __init__(self) -> None:
        self.now = 100.0
        self.full = 0
        self.collector = IdleCollector(lambda: self.now)

    def note(self, phase: str, info: dict[str, int]) -> None:
        self.full += phase == "start" and info["generation"] == 2

    def collects_at(self, now: float) -> bool:
        before, self.now = self.full, now
        self.collector.tick()
        return self.full > before


@pytest.fixture
def clocked() -> Iterator[Clocked]:
    found = Clocked()
    before = gc.get_threshold()
    gc.callbacks.append(found.note)
    yield found
    gc.callbacks.remove(found.note)
    found.collector.stop()
    gc.unfreeze()
    assert gc.get_threshold() == before
    assert gc.isenabled()


def test_before_the_start_python_collects(clocked: Clocked) -> None:
    clocked.collector.keep_page()
    assert gc.get_freeze_count() == 0
    assert not clocked.collects_at(100.0 + LONGEST_SECONDS)


def test_it_collects_while_nobody_types(clocked: Clocked) -> None:
    clocked.collector.start()
    assert not clocked.collects_at(100.0 + EVERY_SECONDS - 0.1)
    assert clocked.collects_at(100.0 + EVERY_SECONDS)
    assert not clocked.collects_at(100.0 + EVERY_SECONDS + 1.0)


def test_it_waits_for_the_end_of_typing_but_not_for_ever(clocked: Clocked) -> None:
    clocked.collector.start()
    clocked.now = 100.0 + EVERY_SECONDS
    clocked.collector.note_key()
    assert not clocked.collects_at(clocked.now + IDLE_SECONDS - 0.1)
    assert clocked.collects_at(clocked.now + 0.1)
    clocked.now += LONGEST_SECONDS
    clocked.collector.note_key()
    assert clocked.collects_at(clocked.now)


def test_a_kept_page_is_never_looked_at_again(clocked: Clocked) -> None:
    clocked.collector.start()
    before = gc.get_freeze_count()
    page = [[] for _ in range(1_000)]
    clocked.collector.keep_page()
    assert gc.get_freeze_count() >= before + len(page)
