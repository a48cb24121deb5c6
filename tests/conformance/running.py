"""Running Microsoft's tests: batches of them, each in a pytest process of its own against a sandbox of its own.

A batch whose process dies or does not end costs the test that was running, and the rest of the batch is run again.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, LocalKey
from tests.conformance.archive import Archive
from tests.conformance.expected import Outcome, Result
from tests.conformance.gateways import SECONDARY, gateways, trust_file

ROOT = Path(__file__).parents[2]
STAND_IN = Path(__file__).with_name("standin")
BATCH = 12
LONGEST_TEST_SECONDS = 600
"""The longest of Microsoft's tests takes 467: as it asks, the SDK reads for up to 60 between two sends."""

_ENDING_SECONDS = 20
_LOOK_SECONDS = 2
_STARTING_SECONDS = 30
_LONGEST_SAYING = 4000
_OUTCOMES = {"passed": Outcome.PASS, "failed": Outcome.FAIL, "skipped": Outcome.SKIPPED}
_NEEDING_NO_ENDPOINT = ("perf_tests", "unittests", "test_tracing.py")

_NAMES = ("NAMESPACE", "HOST_PORT", "KEY_NAME", "KEY", "CA", "CONTROL", "ARM")
"""What the stand-ins read from the environment, each with SANDBOX_ before it."""

Told = Callable[[str, Result], None]


class RunningError(Exception):
    """The tests could not be run at all; the message holds what pytest or the sandbox said."""


@dataclass(slots=True)
class Report:
    """What one pytest process has written down so far."""

    results: dict[str, Result] = field(default_factory=dict)
    collected: list[str] = field(default_factory=list)
    running: str | None = None


def read_report(file: Path) -> Report:
    """A file that the process is still writing may be read as well."""
    report = Report()
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    for line in (json.loads(line) for line in lines if line.endswith("\n")):
        match line["event"]:
            case "collected":
                report.collected = line["ids"]
            case "started":
                report.running = line["id"]
            case "ended":
                report.running = None
                _add(report.results, line)
    return report


def _add(results: dict[str, Result], line: Mapping[str, str | float]) -> None:
    """A test that passed and then failed to clean up has failed."""
    test, outcome = str(line["id"]), _OUTCOMES[str(line["outcome"])]
    before = results.get(test)
    if before is None or before.outcome is Outcome.PASS:
        seconds = float(line["seconds"]) + (before.seconds if before else 0.0)
        results[test] = Result(outcome, seconds, str(line["detail"]))


def batches(tests: Sequence[str]) -> list[list[str]]:
    """Tests in batches of one module each; those of the administration in one, since they need an empty namespace."""
    found: dict[str, list[list[str]]] = {}
    for test in tests:
        module = test.partition("::")[0]
        group = found.setdefault("mgmt_tests" if module.startswith("mgmt_tests/") else module, [[]])
        if len(group[-1]) >= BATCH and not module.startswith("mgmt_tests/"):
            group.append([])
        group[-1].append(test)
    return sorted((batch for group in found.values() for batch in group), key=len, reverse=True)


@asynccontextmanager
async def own_process(
    command: Sequence[str], folder: Path, said: Path, **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process in `folder` that writes to the file `said`, and is gone afterwards with all that it started."""
    with said.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=os.environ | environment,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask it to end; where that takes too long, end it with all that it started."""
    process.terminate()
    try:
        async with asyncio.timeout(_ENDING_SECONDS):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):  # it has ended just now
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@asynccontextmanager
async def fresh_endpoint(folder: Path, *, gateway: bool) -> AsyncIterator[dict[str, str]]:
    """A sandbox in a process of its own; yields what the stand-ins read from the environment: an empty namespace.

    With a gateway before that namespace if asked for: the tests' key is its key too. What the sandbox says is kept in
    `folder`. Raises RunningError.
    """
    said_file = folder / "sandbox"
    command = [sys.executable, "-m", "servicebus_sandbox", "--json"]
    async with own_process(command, ROOT, said_file) as process, AsyncExitStack() as stack:
        said = json.loads(await _first_line(process, said_file))
        namespace = next(each for each in said["namespaces"] if each["name"] == SECONDARY)
        found = {
            "SANDBOX_NAMESPACE": namespace["name"],
            "SANDBOX_HOST_PORT": f"127.0.0.1:{namespace['amqp_port']}",
            "SANDBOX_KEY_NAME": namespace["key_name"],
            "SANDBOX_KEY": namespace["key"],
            "SANDBOX_CA": said["ca_file"],
            "SANDBOX_CONTROL": said["control_url"],
            "SANDBOX_ARM": said["arm_url"],
        }
        if gateway:
            key = LocalKey(namespace["key_name"], frozenset(GatewayRight), namespace["key"])
            strings = stack.enter_context(gateways(said, "primary", key=key))
            address = strings[SECONDARY].partition("//")[2].partition(";")[0]
            found |= {"SANDBOX_GATEWAY": "yes", "SANDBOX_HOST_PORT": address, "SANDBOX_CA": trust_file(said)}
        yield found


async def _first_line(process: asyncio.subprocess.Process, said: Path) -> str:
    """The line with which a sandbox, or a gateway, tells that it can be used."""
    deadline = asyncio.get_running_loop().time() + _STARTING_SECONDS
    while "\n" not in (text := said.read_text(encoding="utf-8")) or not text.startswith("{"):
        if process.returncode is not None or asyncio.get_running_loop().time() > deadline:
            raise RunningError(f"the {said.name} did not start:\n{text}")
        await asyncio.sleep(0.05)
    return text.partition("\n")[0]


def _command(archive: Archive, tests: Sequence[str], limit: int, *options: str) -> list[str]:
    command = [sys.executable, "-P", "-m", "pytest", "-p", "conformance_plugin", "-c", os.devnull]
    command += ["--rootdir", str(archive.tests), "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "asyncio_mode=auto"]
    command += ["-q", "--no-header", "--timeout", str(limit), "--timeout-method", "signal", *options]
    return command + [str(archive.tests / test) for test in tests]


def _environment(archive: Archive, results: Path) -> dict[str, str]:
    return {
        "PYTHONPATH": os.pathsep.join((str(STAND_IN), str(archive.needed), str(ROOT))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CONFORMANCE_RESULTS": str(results),
    }


async def collect(archive: Archive) -> list[str]:
    """The ids of all tests that need an endpoint. Raises RunningError."""
    nowhere = {f"SANDBOX_{name}": "none:0" for name in _NAMES}
    ignored = [f"--ignore={archive.tests / name}" for name in _NEEDING_NO_ENDPOINT]
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        folder = Path(name)
        environment = nowhere | _environment(archive, folder / "results")
        command = _command(archive, ["."], 60, "--collect-only", *ignored)
        async with own_process(command, folder, folder / "said", **environment) as process:
            await process.wait()
        if process.returncode:
            raise RunningError(f"Microsoft's tests could not be collected:\n{_end_of(folder / 'said')}")
        return read_report(folder / "results").collected


def _end_of(said: Path) -> str:
    return said.read_text(encoding="utf-8", errors="replace")[-_LONGEST_SAYING:]


async def run(
    archive: Archive, tests: Sequence[str], *, workers: int, limit: int, told: Told, gateway: bool = False
) -> dict[str, Result]:
    """Run `tests` with so many batches at once, each test for at most `limit` seconds, through a gateway if asked.

    `told` hears of each result as its batch ends. Raises RunningError.
    """
    waiting = batches(tests)
    results: dict[str, Result] = {}

    async def work() -> None:
        while waiting:
            for test, result in (await _run_batch(archive, waiting.pop(0), limit, gateway)).items():
                results[test] = result
                told(test, result)

    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(work())
    return results


async def _run_batch(archive: Archive, batch: Sequence[str], limit: int, gateway: bool) -> dict[str, Result]:
    results: dict[str, Result] = {}
    left = list(batch)
    while left:
        report, output = await _run_once(archive, left, limit, gateway)
        if report.running is not None:
            report.results[report.running] = Result(Outcome.FAIL, limit, f"its process did not end\n{output}")
        elif not report.results:
            raise RunningError(f"no test of {left} could be run:\n{output}")
        results |= report.results
        left = [test for test in left if test not in results]
    return results


async def _run_once(archive: Archive, tests: Sequence[str], limit: int, gateway: bool) -> tuple[Report, str]:
    """Run tests in one process until it has ended, or has nothing more to do and does not end."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        folder = Path(name)
        results, said = folder / "results", folder / "said"
        async with fresh_endpoint(folder, gateway=gateway) as sandbox:
            environment = sandbox | _environment(archive, results)
            async with own_process(_command(archive, tests, limit), folder, said, **environment) as process:
                await until_done(process, results, len(tests), limit)
        return read_report(results), _end_of(said)


async def until_done(process: asyncio.subprocess.Process, results: Path, tests: int, limit: int) -> None:
    """Wait for the process as long as it gets on: each test has its time, and after the last it has to end."""
    loop = asyncio.get_running_loop()
    ended = loop.create_task(process.wait())
    known, since = 0, loop.time()
    while not ended.done():
        await asyncio.wait({ended}, timeout=_LOOK_SECONDS)
        before, known = known, len(read_report(results).results)
        if known != before:
            since = loop.time()
        elif loop.time() - since > _ENDING_SECONDS + (0 if known == tests else limit):
            ended.cancel()
            return
