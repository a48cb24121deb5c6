"""The command `python -m tests.conformance.frameworks [--seconds 45] [NAME ...]`: frameworks through a gateway.

The registries' own clients fetch the frameworks into a temporary folder, in the versions that are named here. All send
at the same time, by one connection string, while the primary is silent and then refuses connections. Exit status: 0
when no send raised an error and each accepted message is in the primary's queue in the end; 1 otherwise; 2 when a
framework cannot be fetched.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from paired_servicebus.engine.gateway.gateway_keys import LocalKey, connection_string
from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox
from servicebus_sandbox.amqp_server.message_codec import sections_of
from servicebus_sandbox.faults import read_fault
from tests.conformance.checking import Skipped, fetch
from tests.conformance.standard_ports import isolated
from tests.examples.any_language import SenderProcess
from tests.examples.sender_programs import SenderProgram
from tests.stage.processes import Engine

FOLDER: Final = Path(__file__).parent
ENTITY: Final = "orders"
SPECS: Final = (NamespaceSpec("primary", queues=[QueueSpec(ENTITY)]), NamespaceSpec("secondary"))
ADDRESS: Final = "127.0.0.9"
HOST: Final = "gateway.servicebus.windows.net"
PORT: Final = 5672
GATEWAY: Final = {
    "address": ADDRESS,
    "host": HOST,
    "administration": True,
    "standard_ports": True,
    "keys": [{"name": "frameworks", "rights": ["Send", "Listen", "Manage"]}],
}
FAULTS: Final = ("black-holed", "refused")
LANES: Final = 2
PAUSE: Final = 0.5
STARTING: Final = 180.0
STOPPING: Final = 150.0
DRAINING: Final = 100.0
FETCHING_SECONDS: Final = 900.0
STORE: Final = "changeit"
"""The password of Java's store of certificates."""
PYTHON: Final = {
    "kombu": ("kombu[azureservicebus]==5.7.0",),
    "celery": ("celery==5.7.0", "kombu[azureservicebus]==5.7.0"),
    "taskiq": ("taskiq-service-bus==0.3.0", "taskiq==0.13.0"),
    "faststream": ("faststream-azure-servicebus==0.2.1", "faststream==0.7.8"),
}
NODE: Final = {
    "nestjs": (
        *("nestjs-azure-service-bus-transporter@1.0.1", "@azure/service-bus@7.9.5", "reflect-metadata@0.1", "rxjs@7"),
        *("@nestjs/common@10", "@nestjs/core@10", "@nestjs/microservices@10"),
    )
}
JAVA: Final = {
    "camel": "camel-azure-servicebus 4.17.0",
    "spring": "spring-messaging-azure-servicebus 6.1.0",
}
GO: Final = {"dapr": "components-contrib 1.18.0"}
NAMES: Final = (*PYTHON, *NODE, *JAVA, *GO)
STANDARD: Final = ("kombu", "celery")
"""Those that use a host's name alone: they get the connection string in Azure's form, and need the standard ports."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.frameworks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=45.0, help="of each outage")
    parser.add_argument("--keep", type=Path, help="the folder of the frameworks, for the next run")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(NAMES)}")
    asked = parser.parse_args(arguments)
    if unknown := [name for name in asked.names if name not in NAMES]:
        parser.error(f"no framework is called {unknown[0]}; there are {', '.join(NAMES)}")
    names = asked.names or list(NAMES)
    if asked.inside:
        return asyncio.run(play(names, asked.keep, asked.seconds))
    try:
        with tempfile.TemporaryDirectory(prefix="frameworks-") as made:
            folder = asked.keep or Path(made)
            folder.mkdir(exist_ok=True)
            for name in names:
                fetch_framework(name, folder)
            again = [sys.executable, "-m", "tests.conformance.frameworks", "--inside", "--keep", str(folder)]
            command = isolated([*again, "--seconds", str(asked.seconds), *names], folder, {HOST: ADDRESS})
            return subprocess.run(command, check=False).returncode
    except Skipped as reason:
        print(f"frameworks: {reason}", file=sys.stderr)
        return 2


# -- the programs


def fetch_framework(name: str, folder: Path) -> None:
    """Have its registry's client fetch a framework, unless it is there. Raises Skipped."""
    done = folder / f"{name}.fetched"
    if done.exists():
        return
    if name in PYTHON:
        python = folder / "python"
        if not python.exists():
            fetch([sys.executable, "-m", "venv", str(python)], "an environment", seconds=FETCHING_SECONDS)
        fetch([str(python / "bin" / "pip"), "install", "-q", *PYTHON[name]], name, seconds=FETCHING_SECONDS)
    elif name in NODE:
        npm = ("install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder / "node"))
        fetch([_tool("npm"), *npm, *NODE[name]], name, seconds=FETCHING_SECONDS)
    elif name in JAVA:
        project = shutil.copytree(FOLDER / name, folder / name, dirs_exist_ok=True)
        shutil.copy(FOLDER / "Lanes.java", project)
        maven = ("-B", "-q", "compile", "dependency:build-classpath", "-Dmdep.outputFile=libraries")
        fetch([_tool("mvn"), "-f", str(project / "pom.xml"), *maven], name, seconds=FETCHING_SECONDS)
    else:
        project = shutil.copytree(FOLDER / name, folder / name, dirs_exist_ok=True)
        fetch([_tool("go"), "-C", str(project), "build", "-o", "sender", "."], name, seconds=FETCHING_SECONDS)
    done.touch()


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Skipped(f"{name} is not on the PATH")
    return found


def program(name: str, folder: Path, ca_file: Path) -> SenderProgram:
    """Return how a framework's sender runs, with what it needs to trust the gateway's authority."""
    if name in PYTHON:
        python, bundle = folder / "python" / "bin" / "python", folder / "bundle.pem"
        command: tuple[str, ...] = (str(python), str(FOLDER / "senders.py"), name)
        return SenderProgram(
            language=name, sdk=" ".join(PYTHON[name]), command=command, environment={"REQUESTS_CA_BUNDLE": str(bundle)}
        )
    if name in NODE:
        place = folder / "node"
        shutil.copy(FOLDER / f"{name}.cjs", place)
        return SenderProgram(
            language=name,
            sdk=NODE[name][0],
            command=(_tool("node"), str(place / f"{name}.cjs")),
            environment={"NODE_EXTRA_CA_CERTS": str(ca_file)},
        )
    if name in JAVA:
        place = folder / name
        path = os.pathsep.join((str(place / "target" / "classes"), (place / "libraries").read_text().strip()))
        store = (f"-Djavax.net.ssl.trustStore={folder / 'trust.p12'}", f"-Djavax.net.ssl.trustStorePassword={STORE}")
        return SenderProgram(
            language=name,
            sdk=JAVA[name],
            command=(_tool("java"), "-Xmx256m", "-XX:+UseSerialGC", *store, "-cp", path, "Sender"),
        )
    return SenderProgram(
        language=name,
        sdk=GO[name],
        command=(str(folder / name / "sender"),),
        environment={"SSL_CERT_FILE": str(ca_file)},
    )


def trust(folder: Path, ca_file: Path, names: Sequence[str]) -> None:
    """Make the files by which Python and Java trust the authority beside all others."""
    if any(name in PYTHON for name in names):
        python = folder / "python" / "bin" / "python"
        asked = [str(python), "-c", "import certifi; print(certifi.where())"]
        file = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
        kept = file.with_suffix(".original")
        if not kept.exists():
            shutil.copy(file, kept)
        file.write_text(kept.read_text() + ca_file.read_text())  # the SDK's AMQP reads no variable
        shutil.copy(file, folder / "bundle.pem")
    if any(name in JAVA for name in names):
        store = folder / "trust.p12"
        store.unlink(missing_ok=True)
        keytool = ["keytool", "-importcert", "-noprompt", "-alias", "gateway", "-storepass", STORE]
        subprocess.run([*keytool, "-file", str(ca_file), "-keystore", str(store)], capture_output=True, check=True)


# -- the play


async def play(names: Sequence[str], folder: Path, seconds: float) -> int:
    """Run the senders through both outages; print a row for each, and return the exit status."""
    os.environ |= {"XDG_STATE_HOME": str(folder / "state"), "XDG_RUNTIME_DIR": str(folder / "state")}
    shutil.rmtree(folder / "state", ignore_errors=True)
    (folder / "state").mkdir(mode=0o700)
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox.start(SPECS))
        strings = {side.name: side.connection_string for side in sandbox.namespaces}
        pairing = {"entities": [ENTITY], "backlog_queue_count": 2}
        engine = Engine("frameworks", folder, strings, sandbox.ca_file, pairing, PORT, GATEWAY)
        await engine.start(journal="diverted")
        stack.push_async_callback(engine.end)
        ca_file = await asyncio.to_thread(_authority, engine, folder)
        trust(folder, ca_file, names)
        senders = [await _start(name, folder, ca_file, engine.key, stack) for name in names]
        await _until(lambda: all(one.accepted >= 2 * LANES or not one.is_running for one in senders), STARTING)
        for fault in FAULTS:
            board = sandbox["primary"].node.faults
            begun = board.begin(read_fault({"fault": fault}))
            _say(f"the primary is {fault} for {seconds:g} s; {_counts(senders)}")
            await asyncio.sleep(seconds)
            board.remove(begun.id)
            await asyncio.sleep(seconds / 3)
        _say(f"the senders end; {_counts(senders)}")
        await asyncio.gather(*(one.stop(STOPPING) for one in senders))
        await _until(lambda: not missing(sandbox, senders), DRAINING)
        lost = missing(sandbox, senders)
    return sum([_report(one, lost) for one in senders]) and 1


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _counts(senders: Sequence[SenderProcess]) -> str:
    return ", ".join(f"{one.name} {one.accepted} accepted, {len(one.errors)} errors" for one in senders)


async def _start(name: str, folder: Path, ca_file: Path, key: LocalKey, stack: AsyncExitStack) -> SenderProcess:
    sender = SenderProcess(program(name, folder, ca_file), name, folder / f"{name}.log")
    stack.push_async_callback(sender.kill)
    is_by_name = name in STANDARD
    string = connection_string(key, None if is_by_name else PORT, address=ADDRESS, host=HOST if is_by_name else "")
    await sender.start(string, ENTITY, lanes=LANES, pause=PAUSE)
    return sender


def _authority(engine: Engine, folder: Path) -> Path:
    """Return the file of the gateway's authority, as its command prints it."""
    command = [sys.executable, "-m", "paired_servicebus", "gateway", "--ca", "--config", str(engine.config)]
    file = folder / "gateway.pem"
    file.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return file


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition, at most so many seconds."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        await asyncio.sleep(0.5)


def missing(sandbox: Sandbox, senders: Sequence[SenderProcess]) -> set[str]:
    """Return the accepted messages that are not in the queue, by the names in their bodies and headers."""
    held = sandbox["primary"].node.namespace.queue(ENTITY).messages.peek(0, 10_000_000)
    found = set(re.findall(rb"[a-z-]+-\d+-\d+", b"\n".join(sections_of(one.message).join() for one in held)))
    accepted = {name for one in senders for name in one.answers if name not in one.errors}
    return {name for name in accepted if name.encode() not in found}


def _report(one: SenderProcess, lost: set[str]) -> bool:
    """Print a sender's row; return whether something is wrong."""
    gone = sorted(name for name in lost if name.startswith(f"{one.name}-"))
    first = f", the first: {next(iter(one.errors.values()))}" if one.errors else ""
    ended = "" if one.has_ended else ", DID NOT END"
    slowest = f"slowest {one.slowest_ms / 1000:.1f} s{ended}"
    print(
        f"{one.name}: {one.accepted} accepted, {len(one.errors)} errors{first}, {len(gone)} lost {gone[:5]}, {slowest}",
        flush=True,
    )
    return bool(gone or one.errors or not one.has_ended or not one.accepted)


if __name__ == "__main__":
    sys.exit(main())
