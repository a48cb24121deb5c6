"""The order of the tests: each is run once, and every process has the same order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import is_alone, pytest_collection_modifyitems


def ordered(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    config: Any = SimpleNamespace(workerinput={"workercount": processes} if processes else {})
    found = list(items)
    pytest_collection_modifyitems(config, found)
    return found


@pytest.mark.parametrize("processes", [0, 1, 2, 3, 10])
def test_none_is_lost_and_each_process_has_the_same_order(request: pytest.FixtureRequest, processes: int) -> None:
    """A process begins to collect at another file than its neighbours."""
    items = request.session.items
    found = ordered(items, processes)
    assert sorted(map(id, found)) == sorted(map(id, items))
    assert processes > 1 or sorted(map(is_alone, found)) == [is_alone(item) for item in found]
    files = [list(tests) for _, tests in groupby(sorted(items, key=lambda item: item.path), lambda item: item.path)]
    for begin in (0, 1, len(files) // 2):
        assert ordered([item for file in files[begin:] + files[:begin] for item in file], processes) == found
