"""The command `python -m tests.conformance.go.live [--required] [TEXT ...]`: azservicebus's own live tests.

Go's client fetches the module with its tests. They are unchanged, and run by the name of a namespace on Azure's ports
with DefaultAzureCredential. `live.toml` lists the tests that do not pass, with the reasons. Exit status: 0 when each
test came out as listed, or when what it needs is missing; 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.conformance.checking import Skipped, Unfetched, sandbox_facts
from tests.conformance.expected import Expectation, Outcome, Result, differences, load
from tests.conformance.go.__main__ import BUILDING_SECONDS, FETCHING_SECONDS, FOLDER, MODULE, find_go, version
from tests.conformance.standard_ports import isolated

LIST: Final = Path(__file__).with_name("live.toml")
NAMESPACES: Final = Path(__file__).with_name("live_namespaces.toml")
HOSTS: Final = {"gostandard.servicebus.windows.net": "127.0.0.2", "gopremium.servicebus.windows.net": "127.0.0.3"}
PACKAGES: Final = (".", "admin", "internal")
LIMIT: Final = 900.0
"""Seconds for the tests of one package; the longest takes a third of it on two busy cores."""
TELLING: Final = ("Error:", "Skip", "panic", "live-only")
"""Words in the lines that are repeated where a test does not pass."""
INSIDE: Final = "--inside"
OUTCOMES: Final = {"pass": Outcome.PASS, "fail": Outcome.FAIL, "skip": Outcome.SKIPPED}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.go.live")
    parser.add_argument("--required", action="store_true", help="fail if the tests have to be skipped")
    parser.add_argument("--log", type=Path, help="a folder for what each package's tests print")
    parser.add_argument("parts", nargs="*", metavar="TEXT", help="only tests with one of these texts in their names")
    asked = parser.parse_args(arguments)
    began = time.monotonic()
    try:
        results = run(asked.parts, asked.log)
    except Skipped as reason:
        print(f"skipped: go.live: {reason}", file=sys.stderr if asked.required else sys.stdout)
        return 0 if not asked.required else 2 if isinstance(reason, Unfetched) else 1
    expected = load(LIST)
    found = differences(
        expected_of(expected, results), results, sorted({*results, *(set() if asked.parts else expected)})
    )
    print(*found, sep="\n", end="\n" * bool(found))
    counts = Counter(result.outcome for result in results.values())
    summary = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES.values())
    print(f"azservicebus {version()}: {summary}, in {time.monotonic() - began:.0f} s")
    print(f"{len(found)} different from the list" if found else "all as in the list")
    return 1 if found else 0


def expected_of(listed: Mapping[str, Expectation], tests: Iterable[str]) -> dict[str, Expectation]:
    """Return what is expected of each test: what is not in the list passes."""
    return dict.fromkeys(tests, Expectation(Outcome.PASS)) | dict(listed)


def run(parts: Sequence[str], log: Path | None) -> dict[str, Result]:
    """Build the tests and run each package's at sandboxes of its own, beside each other. Raises Skipped."""
    go = find_go()
    with tempfile.TemporaryDirectory(prefix="sandbox-go-live-") as name:
        folder = Path(name)
        source = _source(go, folder)
        running = []
        for package in PACKAGES:
            binary = _build(go, source, package, folder)
            names = [
                test for test in _listed(binary, source / package) if not parts or any(part in test for part in parts)
            ]
            if names:
                command = [sys.executable, "-m", "tests.conformance.go.live", INSIDE, str(binary), "|".join(names)]
                place = folder / f"hosts-{len(running)}"
                place.mkdir()
                output = ((log or folder) / f"{binary.name}.jsonl").open("w+", encoding="utf-8")
                environment = {**os.environ, "GO": go, "PACKAGE": str(source / package)}
                inside = isolated(command, place, HOSTS)
                process = subprocess.Popen(inside, stdout=output, stderr=subprocess.STDOUT, env=environment)
                running.append((names, output, process))
        results: dict[str, Result] = {}
        for names, output, process in running:
            try:
                process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            output.seek(0)
            found = read_events(output)
            output.close()
            results |= {test: found.get(test, Result(Outcome.FAIL, 0.0, "it did not run to its end")) for test in names}
        return results


def run_inside(program: str, names: str) -> int:
    """Run one package's tests within a network of their own: the sandboxes, the variables, the program."""
    with sandbox_facts("--config", str(NAMESPACES)) as facts:
        standard, premium = facts["namespaces"]
        keys = ("NoManage", "SendOnly", "ListenOnly")
        by_key = {key: f"SharedAccessKeyName={key};SharedAccessKey={key}" for key in keys}
        endpoint = f"Endpoint=sb://{standard['host']}/"
        environment = {
            "AZURE_RECORD_MODE": "live",
            "SERVICEBUS_ENDPOINT": standard["host"],
            "SERVICEBUS_ENDPOINT_PREMIUM": premium["host"],
            "SERVICEBUS_CONNECTION_STRING": standard["standard_connection_string"],
            "SERVICEBUS_CONNECTION_STRING_PREMIUM": premium["standard_connection_string"],
            "SERVICEBUS_CONNECTION_STRING_NO_MANAGE": f"{endpoint};{by_key['NoManage']}",
            "SERVICEBUS_CONNECTION_STRING_SEND_ONLY": f"{endpoint};{by_key['SendOnly']}",
            "SERVICEBUS_CONNECTION_STRING_LISTEN_ONLY": f"{endpoint};{by_key['ListenOnly']}",
            "SSL_CERT_FILE": facts["ca_file"],
            **facts["identities"][0]["managed_identity"],
        }
        command = [os.environ["GO"], "tool", "test2json", "-t", program]
        command += ["-test.v=test2json", "-test.timeout=15m", f"-test.run=^({names})$"]
        settings = {**os.environ, **environment}
        return subprocess.run(command, env=settings, cwd=os.environ["PACKAGE"], check=False).returncode


def read_events(lines: Iterable[str]) -> dict[str, Result]:
    """Return what came of each top-level test, from the output of test2json."""
    results: dict[str, Result] = {}
    said: dict[str, list[str]] = {}
    for line in lines:
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:
            continue  # the sandbox's own log
        test, action = event.get("Test", "").partition("/")[0], event.get("Action")
        if action == "output":
            said.setdefault(test, []).append(event["Output"])
        elif action in OUTCOMES and test and test == event["Test"]:
            errors = [text.strip() for text in said.get(test, ()) if any(word in text for word in TELLING)]
            results[test] = Result(OUTCOMES[action], event.get("Elapsed", 0.0), "\n".join(errors))
    return results


def _source(go: str, folder: Path) -> Path:
    """Return a copy of the module with its tests; the modules that they need are fetched. Raises Unfetched."""

    def fetch(*arguments: str, place: Path) -> str:
        try:
            return subprocess.run(
                [go, "mod", "download", *arguments],
                cwd=place, capture_output=True, text=True, timeout=FETCHING_SECONDS, check=True,
            ).stdout  # fmt: skip
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise Unfetched(f"go cannot fetch azservicebus {version()} with its tests: {error}") from error

    module = json.loads(fetch("-json", MODULE, place=FOLDER))["Dir"]
    source = folder / "azservicebus"
    shutil.copytree(module, source, copy_function=shutil.copyfile)
    for place in (source, *(path for path in source.rglob("*") if path.is_dir())):
        place.chmod(0o700)
    fetch(place=source)
    return source


def _build(go: str, source: Path, package: str, folder: Path) -> Path:
    binary = folder / f"{'root' if package == '.' else package}.test"
    command = [go, "test", "-c", "-o", str(binary), f"./{package}"]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=BUILDING_SECONDS, check=False)
    if done.returncode:
        raise Skipped(f"the tests of azservicebus do not compile: {done.stderr.strip().splitlines()[-1]}")
    return binary


def _listed(binary: Path, place: Path) -> list[str]:
    """Return the names of a package's tests."""
    playback = {**os.environ, "AZURE_RECORD_MODE": "playback"}
    done = subprocess.run(
        [str(binary), "-test.list", "^Test"], cwd=place, capture_output=True, text=True, env=playback, check=True
    )
    return [line for line in done.stdout.splitlines() if line.startswith("Test")]


if __name__ == "__main__":
    sys.exit(run_inside(*sys.argv[2:]) if sys.argv[1:2] == [INSIDE] else main())
