"""The order of the tests: whatever the number of processes, each is run once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import is_alone, pytest_collection_modifyitems


@pytest.mark.parametrize("processes", [0, 1, 2, 3, 10])
def test_none_is_lost_and_those_of_real_time_are_last(request: pytest.FixtureRequest, processes: int) -> None:
    config: Any = SimpleNamespace(workerinput={"workercount": processes} if processes else {})
    ordered = list(request.session.items)
    pytest_collection_modifyitems(config, ordered)
    assert sorted(map(id, ordered)) == sorted(map(id, request.session.items))
    assert processes > 1 or sorted(map(is_alone, ordered)) == [is_alone(item) for item in ordered]
