"""The cost of the fixture `servicebus_sandbox` for one test: `python -m tests.bench.fixture_cost`.

A pytest of its own runs 30 empty tests without the fixture and 30 with it, in turn, after a first one that starts the
sandbox. Prints one line of JSON with the medians in milliseconds; exit status 1 above LIMIT_MS.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

TESTS: Final = 30
LIMIT_MS: Final = 20.0
THEIR_TESTS: Final = f"""
import pytest

def test_first(servicebus_sandbox):
    pass

@pytest.mark.parametrize("number", range({TESTS}))
def test_with(number, servicebus_sandbox):
    pass

@pytest.mark.parametrize("number", range({TESTS}))
def test_without(number):
    pass
"""
THEIR_CONFTEST: Final = """
import json, time
from pathlib import Path
import pytest

TIMES = {"with": [], "without": [], "first": []}

def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.callspec.params["number"] if hasattr(item, "callspec") else -1)

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    began = time.perf_counter()
    result = yield
    TIMES[item.originalname.removeprefix("test_")].append(1000 * (time.perf_counter() - began))
    return result

def pytest_sessionfinish():
    Path("times.json").write_text(json.dumps(TIMES))
"""


def measure() -> dict[str, float]:
    """Return the medians with and without the fixture, their difference, and the first test, in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "test_theirs.py").write_text(THEIR_TESTS)
        (place / "conftest.py").write_text(THEIR_CONFTEST)
        (place / "pytest.ini").write_text("[pytest]\n")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(place)]
        ran = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120, check=False)
        if ran.returncode:
            raise RuntimeError(ran.stdout + ran.stderr)
        times = json.loads((place / "times.json").read_text())
    with_it, without = statistics.median(times["with"]), statistics.median(times["without"])
    figures = {"first": times["first"][0], "with": with_it, "without": without, "added": with_it - without}
    return {name: round(value, 2) for name, value in figures.items()}


def main() -> int:
    """Print the figures; return 1 if the fixture is too slow."""
    figures = measure()
    print(json.dumps(figures))
    return int(figures["added"] > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
