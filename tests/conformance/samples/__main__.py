"""The command `python -m tests.conformance.samples`: run Microsoft's emulator samples against `--emulator`.

git fetches the pinned commit of their repository into a cache folder; nothing of it is kept in this project. An
argument replaces the repository's address, for example with a clone on this machine. The packages of the samples are
installed in a temporary folder. The samples fix the AMQP port at 5672, so the emulator gets a loopback address of its
own where the system has several. Exit status: 0 when every sample ran to its end, 1 when one did not, 2 with the reason
when all were skipped. A sample whose language is missing here is skipped with a line.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.conformance.checking import CHECKING, Skipped, Verdict, fetch, find_tool, install_python, sandbox_facts, tell

REPOSITORY: Final = "https://github.com/Azure/azure-service-bus-emulator-installer"
COMMIT: Final = "40fb40fb48a81b217b1aeacec46b39837b408841"
FETCHING_SECONDS: Final = 180.0
PYTHON_PACKAGE: Final = "azure-servicebus==7.14.3"
"""The version that the sample's first lines name."""
EXEC_PLUGIN: Final = "org.codehaus.mojo:exec-maven-plugin:3.1.0:java"
_SNIPPETS: Final = "Sample-Code-Snippets"


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample program. `install` gets a copy of its folder and returns the command; `steps` are texts it prints."""

    name: str
    folder: str
    install: Callable[[Path], list[str]]
    steps: tuple[str, ...]


def _install_python(folder: Path) -> list[str]:
    return [install_python(folder / "venv", PYTHON_PACKAGE, seconds=FETCHING_SECONDS), "sample-send-receive.py"]


def _install_javascript(folder: Path) -> list[str]:
    command = [find_tool("npm"), "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
    fetch(command, "the packages of the JavaScript sample", seconds=FETCHING_SECONDS)
    return [find_tool("node"), "sample-send-receive.js"]


def _install_go(folder: Path) -> list[str]:
    go = find_tool("go")
    fetch(
        [go, "-C", str(folder), "build", "-o", "sample", "."], "the modules of the Go sample", seconds=FETCHING_SECONDS
    )
    return [str(folder / "sample")]


def _install_java(folder: Path) -> list[str]:
    find_tool("java")
    maven = [find_tool("mvn"), "-q", "-B", "-f", str(folder)]
    fetch([*maven, "compile"], "the packages of the Java sample", seconds=FETCHING_SECONDS)
    return [*maven, EXEC_PLUGIN, "-Dexec.mainClass=com.contoso.org.Main", "-Dexec.cleanupDaemonThreads=false"]


SAMPLES: Final = (
    Sample(
        "Python",
        "Python/azure-service-bus-emulator-console-sample",
        _install_python,
        (
            "is healthy",
            "Queue created:",
            "Message sent:",
            "Received message: Hello, Azure Service Bus!",
            "Queue deleted:",
        ),
    ),
    Sample(
        "JavaScript",
        "JS/azure-service-bus-emulator-node-sample",
        _install_javascript,
        ("is healthy", "Queue created.", "Sending test message", "Data: Hello World!", "Cleanup complete."),
    ),
    Sample(
        "Go",
        "Go/azure-service-bus-emulator-console-sample",
        _install_go,
        (
            "is healthy",
            "created queue:",
            "Message sent:",
            "Received message: Hello, Azure Service Bus!",
            "deleted queue:",
        ),
    ),
    Sample(
        "Java",
        "Java/azure-service-bus-emulator-console-sample",
        _install_java,
        ("is healthy", "Created queue:", "Sent : Hello", "Received: Hello, Service Bus!", "Deleted queue:"),
    ),
)


def main(repository: str = REPOSITORY) -> int:
    return tell("samples", lambda: cross_check(repository), clients=f"the samples of commit {COMMIT[:7]}")


def cross_check(repository: str) -> list[Verdict]:
    """Run every sample on one emulator with the official file of entities. Raises Skipped."""
    source = fetch_repository(repository)
    verdicts: list[Verdict] = []
    skipped: list[str] = []
    config, address = source / "ServiceBus-Emulator/Config/Config.json", _own_address()
    with (
        tempfile.TemporaryDirectory(prefix="sandbox-samples-") as name,
        sandbox_facts("--emulator", "--config", str(config), "--listen", address, "--http-port", "0") as facts,
    ):
        environment = os.environ | {
            "EMULATOR_HOST": address,
            "EMULATOR_HTTP_PORT": facts["health_url"].rpartition(":")[2].partition("/")[0],
        }
        for sample in SAMPLES:
            folder = Path(name) / sample.name
            shutil.copytree(source / _SNIPPETS / sample.folder, folder)
            try:
                command = sample.install(folder)
            except Skipped as reason:
                skipped.append(f"{sample.name}: {reason}")
            else:
                verdicts += run_sample(sample, command, folder, environment)
    if not verdicts:
        raise Skipped("; ".join(skipped))
    for line in skipped:
        print(f"samples: skipped: {line}", file=sys.stderr)
    return verdicts


def fetch_repository(repository: str) -> Path:
    """Return the folder of the pinned commit; an earlier one is used again. Raises Skipped."""
    folder = Path(tempfile.gettempdir()) / f"servicebus-samples-{os.getuid()}" / COMMIT
    if not folder.is_dir():
        git = find_tool("git")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            subprocess.run([git, "init", "-q", name], check=True)
            command = [git, "-C", name, "fetch", "-q", "--depth", "1", repository, COMMIT]
            fetch(command, f"commit {COMMIT[:7]} of {repository}", seconds=FETCHING_SECONDS)
            subprocess.run([git, "-C", name, "checkout", "-q", "FETCH_HEAD"], check=True)
            shutil.copytree(name, folder, ignore=shutil.ignore_patterns(".git"))
    return folder


def run_sample(sample: Sample, command: list[str], folder: Path, environment: dict[str, str]) -> list[Verdict]:
    """Return a verdict for each step, by the texts of the sample; JavaScript's exits with 0 after an error too."""
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=CHECKING, check=False
        )
        output, status = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as error:
        output, status = (error.stdout or b"").decode(), -1
    complaint = (output.strip().splitlines() or ["it printed nothing"])[-1]
    steps = [
        Verdict(f"{sample.name}: {step}", step in output, None if step in output else complaint)
        for step in sample.steps
    ]
    return [*steps, Verdict(f"{sample.name}: exit status 0", status == 0, None if status == 0 else complaint)]


def _own_address() -> str:
    """Return a loopback address that no other program uses, where the system has more than one."""
    if sys.platform != "linux":
        return "127.0.0.1"
    number = os.getpid()
    return f"127.{1 + number // 62500 % 200}.{number // 250 % 250}.{1 + number % 250}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
