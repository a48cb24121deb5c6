"""What holds for all tests.

- A busy machine is no failure: hypothesis judges no speed, a wait for a condition ends after a minute at the earliest.
- A test that measures real time or a real disk is marked `real_time`: no other test of the run goes on beside it.
- Signals do what they do to a person's processes, though whoever started the tests ignores them, as nohup and `&` do.
- Without room for temporary files the run ends at once and says so.

PAIRED_EXAMPLES=N has hypothesis try N examples of everything, which `.ci/run` does among the slower proofs.
"""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from tests.approval import Approve, title_of

settings.register_profile(
    "any machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=int(os.environ.get("PAIRED_EXAMPLES", "60")),
)
settings.load_profile("any machine")
os.environ.pop("SUDO_USER", None)  # the audit would name whoever started the tests

for number, usual in (
    (signal.SIGHUP, signal.SIG_DFL), (signal.SIGQUIT, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler),
):  # fmt: skip
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)

TEMPORARY_BYTES: Final = 300 * 1024 * 1024
"""Room that the tests' temporary files need, in bytes."""
PRODUCT: Final = {"paired_servicebus", "servicebus_amqp", "servicebus_sandbox"}
WAITING: Final = {"demo", "differential", "drill", "pairing", "stage", "sync", "verify"}
"""Folders whose tests wait most of their time."""
GATE: Final = pytest.StashKey[int]()
"""The descriptor of the file that the tests of a run lock: `real_time` ones for themselves, all others together."""


def pytest_configure(config: pytest.Config) -> None:
    """Check the room, and open the file that keeps `real_time` tests apart; xdist's workers get its path."""
    if hasattr(config, "workerinput"):
        path = config.workerinput["gate"]
    else:
        check_room()
        made, path = tempfile.mkstemp(prefix="paired-tests-")
        os.close(made)
        config.paired_gate = path  # type: ignore[attr-defined]
        config.add_cleanup(lambda: Path(path).unlink(missing_ok=True))
    rewrite = config.pluginmanager.rewrite_hook
    if hasattr(rewrite, "_must_rewrite"):  # pytest would rewrite the asserts of a plugin's whole distribution: 4 s each
        rewrite._must_rewrite -= PRODUCT
    gc.disable()  # until all is collected, and exempt: nothing of it is garbage
    if hasattr(config, "workerinput"):
        share_rewriting(config, config.workerinput)
    descriptor = config.stash[GATE] = os.open(path, os.O_RDWR)
    config.add_cleanup(lambda: os.close(descriptor))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the path to a worker."""
    node.workerinput["gate"] = node.config.paired_gate


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run tests that wait beside tests that compute, and `real_time` ones last.

    xdist splits the tests evenly, in their order: every second process begins with files that need Spark or wait. It
    wants the same order of each process, and each has collected the files in another order.
    """
    processes = int(getattr(config, "workerinput", {}).get("workercount", 1))
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if not is_alone(item):
            files.setdefault(item.path, []).append(item)
    spark = {path for path, tests in files.items() if any(map(needs_spark, tests))}
    early = sorted(path for path in files if path in spark or not WAITING.isdisjoint(path.parts))
    parts: list[list[pytest.Item]] = [[] for _ in range(processes)]
    for number, path in enumerate(sorted(early, key=lambda path: path not in spark)):
        parts[2 * number % processes] += files.pop(path)
    mixed = sorted(files, key=lambda path: (crc32(path.name.encode()), path))
    alone = sorted(filter(is_alone, items), key=lambda item: item.path)
    rest = iter([*chain.from_iterable(files[path] for path in mixed), *alone])
    left = len(items)
    for number, part in enumerate(parts):
        part += islice(rest, max(0, left // (processes - number) - len(part)))
        left -= len(part)
    items[:] = chain.from_iterable(parts)


def pytest_collection_finish() -> None:
    """Exempt what was collected from the garbage collector, which would search a million objects each time."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Wait, before the time of the test begins, until it may run beside what runs now."""
    gate = item.config.stash[GATE]
    fcntl.flock(gate, fcntl.LOCK_EX if is_alone(item) else fcntl.LOCK_SH)
    try:
        return (yield)
    finally:
        fcntl.flock(gate, fcntl.LOCK_UN)


def share_rewriting(config: pytest.Config, worker: dict[str, Any]) -> None:
    """Let each process begin to collect elsewhere: it rewrites the asserts of its part, and reads the other parts.

    That cache is written even if Python itself is to write no bytecode: each process would rewrite all tests.
    """
    roots = [config.rootpath / path for path in config.getini("testpaths")]
    if [config.rootpath / arg for arg in config.args] != roots:
        return
    files = sorted(str(path) for root in roots for path in root.rglob("test_*.py"))
    begin = int(worker["workerid"].removeprefix("gw")) * len(files) // worker["workercount"]
    config.args = files[begin:] + files[:begin]
    sys.dont_write_bytecode = False


def is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("real_time") is not None


def needs_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


def check_room() -> None:
    """End the run if the folder for temporary files is full."""
    folder = os.environ.get("TMPDIR") or "/tmp"
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        pytest.exit(f"{folder}, the folder for temporary files, cannot be used ({error}); set TMPDIR", returncode=4)
    if free < TEMPORARY_BYTES:
        pytest.exit(
            f"{folder} has {free // 2**20} MiB free and the tests write up to {TEMPORARY_BYTES // 2**20} MiB there: "
            "free some, or set TMPDIR to a folder with room",
            returncode=4,
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--approve", action="store_true", help="write the texts in tests/approved instead of comparing")


@pytest.fixture
def approve(request: pytest.FixtureRequest, tmp_path: Path) -> Approve:
    """Compares a text with an approved file: `approve(text, "dashboard-80x24")`."""
    return Approve(title_of(request.node.name), request.config.getoption("--approve"), tmp_path)
