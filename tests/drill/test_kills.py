"""A short form of `python -m tests.drill`."""

from __future__ import annotations

import random

import pytest

from .kills import kill_drills


@pytest.mark.slow
async def test_a_killed_drill_leaves_nothing_after_clean_and_touches_nothing_real() -> None:
    done, changed = await kill_drills(2, random.Random(7), longest=6.0)
    assert all(one.is_clean for one in done), done
    assert any(one.before for one in done), "at least one kill hit a drill with entities"
    assert changed == []
