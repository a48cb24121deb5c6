"""Loaded by pytest before Microsoft's tests: leaves the tests that need an endpoint, and writes down what came out.

Each line of CONFORMANCE_RESULTS is one JSON object: `collected`, `started` or `ended` with the test's id.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
import sandbox_endpoint
import servicebus_preparer  # noqa: F401  # before the tests' folder is searched, so that they find this one
from devtools_testutils import NEEDS_ENDPOINT

sandbox_endpoint.point_the_sdk_here()

_MARKERS = ("liveTest", "live_test_only")
_LONGEST_DETAIL = 4000
_results = Path(os.environ["CONFORMANCE_RESULTS"])


def _write(**line: object) -> None:
    with _results.open("a") as file:
        file.write(json.dumps(line) + "\n")


@pytest.fixture(scope="session", name="test_proxy")
def no_proxy() -> None:
    """Microsoft's recording proxy, which is not there."""


def _needs_endpoint(item: pytest.Item) -> bool:
    function = getattr(item, "function", None)
    return getattr(function, NEEDS_ENDPOINT, False) or any(item.get_closest_marker(name) for name in _MARKERS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = [item for item in items if _needs_endpoint(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept
    _write(event="collected", ids=[item.nodeid for item in kept])


def pytest_runtest_logstart(nodeid: str) -> None:
    _write(event="started", id=nodeid, at=time.time())


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        detail = report.longreprtext if report.outcome == "failed" else _skip_reason(report)
        _write(
            event="ended",
            id=report.nodeid,
            outcome=report.outcome,  # where Microsoft expects a failure: skipped, or passed
            phase=report.when,
            seconds=round(report.duration, 1),
            detail=detail[-_LONGEST_DETAIL:],
        )


def _skip_reason(report: pytest.TestReport) -> str:
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
