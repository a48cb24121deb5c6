"""The matrix of starts: what is away × what starts. It serves as the table says, names what is away, and heals.

With a valid configuration an engine starts and serves, whatever is away: what is away is an alarm until it is back. An
application's pairing raises where the secondary is away, unless it starts degraded. Over each cell there is a ledger:
whatever was accepted arrives.

Each cell is a process of its own with an empty state folder: an engine, an engine with a gateway and a client of it, or
a program that pairs. What is done to a process (its file system, its user, its clock) is done in namespaces of the
kernel, or by a module that it imports first; nothing of this machine is changed.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest
from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.errors import ControlError
from paired_servicebus.core.model.pairing_condition import condition_of
from paired_servicebus.core.operator.alarms import alarms
from paired_servicebus.engine.control.discovery import first_snapshot
from paired_servicebus.engine.gateway.gateway_keys import (
    GatewayRight,
    connection_string,
    new_key,
    read_keys,
    write_keys,
)
from tests.command import run_here
from tests.engine.test_engine_process import ROOT, WAIT, Sandbox, Site, sandbox, site  # noqa: F401 - two are fixtures
from tests.ports import free_port

ENGINE, GATEWAY, APPLICATION, DEGRADED, SYNC = "engine", "gateway", "application", "degraded", "sync"
HOSTS: Final = (ENGINE, GATEWAY, APPLICATION, DEGRADED, SYNC)
START_SECONDS: Final = 10.0
"""Seconds in which it serves, the time of a busy machine aside."""


# -- the table ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Serves:
    """It serves. alarm: what it says meanwhile; "": nothing. sends: whether sends are accepted meanwhile."""

    alarm: str = ""
    sends: bool = True


@dataclass(frozen=True)
class Raises:
    """The awaited call of pairing raises; the next start, when all is there, serves."""

    error: str


Cell = Serves | Raises
CALM: Final = Serves()
JOURNAL: Final = Serves("the journal is not written")
MISSING: Final = Serves("no queue or topic of that name")
UNAUTHORIZED: Final = Serves("refused the credential for 'payments'")
DENIED: Final = Serves("refuses the credential")
NOT_SERVED: Final = Serves("is not served")
NOT_LISTENING: Final = Serves("the gateway does not listen", sends=False)
NO_LINK: Final = Serves("no link to backlog queue 0")
DEGRADED_START: Final = Serves("started degraded")
DEGRADED_NOWHERE: Final = Serves("started degraded", sends=False)
HINTED: Final = Raises("start_degraded=True pairs without waiting for it")
REFUSED: Final = Raises("refuse")
NO_RIGHT: Final = Raises("the credential needs Send on the secondary namespace")
UNREACHED: Final = Serves("namespace cannot be reached")

TABLE: Final[dict[str, dict[str, Cell]]] = {
    "primary": {ENGINE: UNREACHED, GATEWAY: UNREACHED, APPLICATION: CALM, DEGRADED: CALM, SYNC: CALM},
    "primary, silent": {ENGINE: UNREACHED, GATEWAY: UNREACHED, APPLICATION: CALM},
    "secondary": {ENGINE: DEGRADED_START, GATEWAY: DEGRADED_START, APPLICATION: HINTED, DEGRADED: DEGRADED_START,
                  SYNC: HINTED},
    "secondary, silent": {ENGINE: DEGRADED_START, GATEWAY: DEGRADED_START, DEGRADED: DEGRADED_START},
    "both": {ENGINE: DEGRADED_NOWHERE, GATEWAY: DEGRADED_NOWHERE, APPLICATION: HINTED, DEGRADED: DEGRADED_NOWHERE,
             SYNC: HINTED},
    "both, silent": {ENGINE: DEGRADED_NOWHERE, GATEWAY: DEGRADED_NOWHERE},
    "one entity gone": {ENGINE: MISSING, GATEWAY: MISSING, APPLICATION: CALM, DEGRADED: CALM, SYNC: CALM},
    "one entity unauthorized": {ENGINE: UNAUTHORIZED, GATEWAY: UNAUTHORIZED, APPLICATION: DENIED, DEGRADED: DENIED,
                                SYNC: DENIED},
    "the secondary's key": {ENGINE: NO_LINK, GATEWAY: NO_LINK, APPLICATION: NO_RIGHT, DEGRADED: NO_RIGHT,
                            SYNC: NO_RIGHT},
    "disk full": {ENGINE: JOURNAL, GATEWAY: JOURNAL, APPLICATION: JOURNAL, DEGRADED: JOURNAL, SYNC: JOURNAL},
    "no inodes": {ENGINE: JOURNAL, GATEWAY: JOURNAL, APPLICATION: JOURNAL, DEGRADED: JOURNAL, SYNC: JOURNAL},
    "read-only root": {ENGINE: JOURNAL, GATEWAY: JOURNAL, APPLICATION: JOURNAL, DEGRADED: JOURNAL, SYNC: JOURNAL},
    "no HOME": {ENGINE: CALM, GATEWAY: CALM, APPLICATION: CALM, DEGRADED: CALM, SYNC: CALM},
    "no passwd entry": {ENGINE: CALM, GATEWAY: CALM, APPLICATION: CALM, DEGRADED: CALM, SYNC: CALM},
    "neither": {ENGINE: CALM, GATEWAY: CALM, APPLICATION: CALM, DEGRADED: CALM, SYNC: CALM},
    "no IPv6": {ENGINE: CALM, GATEWAY: CALM, APPLICATION: CALM, DEGRADED: CALM, SYNC: CALM},
    "port taken": {ENGINE: NOT_SERVED, GATEWAY: NOT_LISTENING, APPLICATION: NOT_SERVED, DEGRADED: NOT_SERVED,
                   SYNC: NOT_SERVED},
    "clock a day behind": {ENGINE: Serves("credential", sends=False), GATEWAY: Serves("credential", sends=False),
                           APPLICATION: REFUSED, DEGRADED: REFUSED, SYNC: REFUSED},
    "clock a day ahead": {ENGINE: CALM, GATEWAY: CALM, APPLICATION: CALM, DEGRADED: CALM, SYNC: CALM},
}  # fmt: skip
"""What is away → what starts → what it does."""

ALWAYS: Final = {("primary", GATEWAY), ("secondary", APPLICATION), ("both", DEGRADED), ("port taken", SYNC)}
"""The cells of README's test command."""
BY_TURNS: Final = {(name, tuple(row)[number % len(row)]) for number, (name, row) in enumerate(TABLE.items())}
"""One cell of each situation, the hosts by turns: .ci/run has these, too, and `python -m tests.long` all others."""


# -- what is away ------------------------------------------------------------------------------------------------------


@dataclass
class Setting:
    """How a cell's process is started, and how its trouble ends."""

    entities: tuple[str, ...] = ("orders",)
    prefix: tuple[str, ...] = ()
    """The command that runs the program's."""
    unset: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    metrics_host: str = "127.0.0.1"
    clock: Callable[[], float] = lambda: 0.0
    """Seconds by which the machine's clock is off, for its other programs too."""
    probes: bool = True
    """Whether its probes are answered meanwhile."""
    mend: Callable[[int], object] = lambda process: None
    """Given the process, ends the trouble; again: nothing."""


@dataclass(frozen=True)
class Place:
    """Where a cell is played."""

    site: Site
    sandbox: Sandbox
    metrics: int
    gateway: int


Situation = Callable[[Place], AbstractContextManager[Setting]]


def broken(kind: str, *places: tuple[str, str | None], entities: tuple[str, ...] = ("orders",)) -> Situation:
    """Namespaces, or entities of one, that a fault of the sandbox breaks."""

    @contextmanager
    def begin(place: Place) -> Iterator[Setting]:
        mends = [place.sandbox.fault(namespace, kind, entity) for namespace, entity in places]

        def mend(process: int = 0) -> None:
            while mends:
                mends.pop()()

        try:
            yield Setting(entities=entities, mend=mend)
        finally:
            mend()

    return begin


@contextmanager
def entity_gone(place: Place) -> Iterator[Setting]:
    made: list[str] = []

    def mend(process: int = 0) -> None:
        if not made:
            asyncio.run(make_queues(place.sandbox.primary, place.sandbox.ca_file, "nowhere"))
            made.append("nowhere")

    yield Setting(entities=("orders", "nowhere"), mend=mend)
    asyncio.run(delete_queues(place.sandbox.primary, place.sandbox.ca_file, *made))


def mounted(kind: str, refused: str, mended: str) -> Situation:
    """A state folder on a file system of its own, which takes nothing until it is mounted again."""

    @contextmanager
    def begin(place: Place) -> Iterator[Setting]:
        skip_without_namespaces()
        state = place.site.folder / "state"
        state.mkdir()
        script = f'mount {kind} -o {refused} state "$0" && exec "$@"'
        yield Setting(
            prefix=(*ROOT_INSIDE, "sh", "-c", script, str(state)),
            mend=lambda process: inside(process, "mount", "-o", f"remount,{mended}", str(state)),
        )

    return begin


@contextmanager
def read_only_root(place: Place) -> Iterator[Setting]:
    skip_without_namespaces()
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && mount -o remount,bind,ro / && exec "$@"'
    folder = str(place.site.folder)
    yield Setting(
        prefix=(*ROOT_INSIDE, "sh", "-c", script, folder),
        environ={"TMPDIR": folder},
        mend=lambda process: inside(process, "mount", "-o", "remount,bind,rw", folder),
    )


PLACES_OF_USERS: Final = ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME")


@contextmanager
def no_home(place: Place) -> Iterator[Setting]:
    """No HOME; the system knows the user's folder."""
    skip_without_namespaces()
    home, users = place.site.folder / "home", place.site.folder / "passwd"
    home.mkdir()
    users.write_text(f"root:x:0:0:root:{home}:/bin/sh\n")
    script = 'mount --bind "$0" /etc/passwd && exec "$@"'
    yield Setting(prefix=(*ROOT_INSIDE, "sh", "-c", script, str(users)), unset=PLACES_OF_USERS)
    assert list(home.rglob("lock")), "it used the folder that the system knows"


@contextmanager
def no_name(place: Place) -> Iterator[Setting]:
    """A user that the system does not know."""
    skip_without_namespaces()
    yield Setting(prefix=NOBODY, unset=PLACES_OF_USERS, environ={"HOME": str(place.site.folder)})


@contextmanager
def no_home_and_no_name(place: Place) -> Iterator[Setting]:
    skip_without_namespaces()
    yield Setting(prefix=NOBODY, unset=PLACES_OF_USERS, environ={"TMPDIR": str(place.site.folder)})


CHANGED: Final = {"PYTHONPATH": str(Path(__file__).parent / "changed_machine")}


@contextmanager
def no_ipv6(place: Place) -> Iterator[Setting]:
    yield Setting(environ=CHANGED | {"PAIRED_TEST_NO_IPV6": "1"}, metrics_host="localhost")


@contextmanager
def ports_taken(place: Place) -> Iterator[Setting]:
    with ExitStack() as stack:
        for port in (place.metrics, place.gateway):
            taken = stack.enter_context(socket.socket())
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", port))
            taken.listen()
        yield Setting(probes=False, mend=lambda process: stack.close())


def clock_off(seconds: float) -> Situation:
    @contextmanager
    def begin(place: Place) -> Iterator[Setting]:
        by = place.site.folder / "clock"
        by.write_text(str(seconds))
        environ = CHANGED | {"PAIRED_TEST_CLOCK": str(by)}
        yield Setting(environ=environ, clock=lambda: float(by.read_text()), mend=lambda process: by.write_text("0"))

    return begin


DAY: Final = 86_400.0
ROOT_INSIDE: Final = ("unshare", "--user", "--map-root-user", "--mount")
NOBODY: Final = ("unshare", "--user", "--map-user=54321", "--map-group=54321")
"""Runs a program as a user that the system does not know."""


@cache
def has_namespaces() -> bool:
    done = [
        subprocess.run([*one, "true"], capture_output=True, check=False).returncode
        for one in (ROOT_INSIDE, NOBODY)
        if shutil.which(one[0])
    ]
    return done == [0, 0]


def skip_without_namespaces() -> None:
    if not has_namespaces():
        pytest.skip("no user namespaces here")


def inside(process: int, *command: str) -> None:
    """Run a command in the namespaces of a process."""
    subprocess.run(["nsenter", f"--target={process}", "--user", "--mount", *command], check=True)


SITUATIONS: Final[dict[str, Situation]] = {
    "primary": broken("refused", ("primary", None)),
    "primary, silent": broken("black-holed", ("primary", None)),
    "secondary": broken("refused", ("secondary", None)),
    "secondary, silent": broken("black-holed", ("secondary", None)),
    "both": broken("refused", ("primary", None), ("secondary", None)),
    "both, silent": broken("black-holed", ("primary", None), ("secondary", None)),
    "one entity gone": entity_gone,
    "one entity unauthorized": broken("unauthorized", ("primary", "payments"), entities=("orders", "payments")),
    "the secondary's key": broken("unauthorized", ("secondary", None)),
    "disk full": mounted("-t tmpfs", "size=4k", "size=64m"),
    "no inodes": mounted("-t tmpfs", "nr_inodes=1", "nr_inodes=1000"),
    "read-only root": read_only_root,
    "no HOME": no_home,
    "no passwd entry": no_name,
    "neither": no_home_and_no_name,
    "no IPv6": no_ipv6,
    "port taken": ports_taken,
    "clock a day behind": clock_off(-DAY),
    "clock a day ahead": clock_off(DAY),
}


# -- namespaces, by the SDK --------------------------------------------------------------------------------------------


async def make_queues(string: str, ca_file: str, *names: str) -> None:
    async with ServiceBusAdministrationClient.from_connection_string(string, connection_verify=ca_file) as admin:
        for name in names:
            await admin.create_queue(name)


async def delete_queues(string: str, ca_file: str, *names: str) -> None:
    async with ServiceBusAdministrationClient.from_connection_string(string, connection_verify=ca_file) as admin:
        for name in names:
            await admin.delete_queue(name)


async def park(place: Place, count: int) -> list[tuple[str, str]]:
    """Leave messages for "orders" in the backlog queue, as an application did before; return entities and ids."""
    run, sandbox = place.site.folder.name, place.sandbox  # noqa: F811
    path = f"{run}/x-servicebus-transfer/0"
    await make_queues(sandbox.secondary, sandbox.ca_file, path)
    ids = [f"{run}-parked-{number}" for number in range(count)]
    async with (
        ServiceBusClient.from_connection_string(sandbox.secondary) as client,
        client.get_queue_sender(path) as sender,
    ):
        for each in ids:
            message = ServiceBusMessage(b"x", message_id=each, application_properties={"x-ms-path": "orders"})
            await sender.send_messages(message)
    return [("orders", each) for each in ids]


async def arrived(sandbox: Sandbox, accepted: set[tuple[str, str]], within: float = WAIT) -> set[tuple[str, str]]:  # noqa: F811
    """Receive until all of these have arrived; return those that have not.

    The receivers stay open and complete: one that deletes loses what is under way to it when it is closed.
    """
    left, deadline = set(accepted), time.monotonic() + within
    async with ServiceBusClient.from_connection_string(sandbox.primary) as client, AsyncExitStack() as stack:
        receivers = {}
        for entity in {one for one, _ in left}:
            session = "one" if entity == "payments" else None  # it requires sessions
            receivers[entity] = await stack.enter_async_context(client.get_queue_receiver(entity, session_id=session))
        while left and time.monotonic() < deadline:
            for entity, receiver in receivers.items():
                for message in await receiver.receive_messages(1000, max_wait_time=0.5):
                    left.discard((entity, str(message.message_id)))
                    await receiver.complete_message(message)
    return left


async def send(string: str, message_id: str, within: float) -> bool:
    """Send as a program does that tries again; return whether it was accepted in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within), ServiceBusClient.from_connection_string(string, retry_total=0) as client:
            while True:
                with suppress(AzureError):
                    async with client.get_queue_sender("orders") as sender:
                        await sender.send_messages(ServiceBusMessage(b"x", message_id=message_id))
                        return True
                await asyncio.sleep(0.2)
    return False


# -- what starts -------------------------------------------------------------------------------------------------------


class Program:
    """One process of a cell, and what it says."""

    def __init__(self, host: str, place: Place, setting: Setting) -> None:
        self.host, self.place, self.setting = host, place, setting
        self.log = place.site.folder / "log"
        self.answers = place.site.folder / "answers"
        self.accepted: set[tuple[str, str]] = set()
        """Entity and id of each message that was accepted."""
        self.begun = time.monotonic()
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        site, setting = self.place.site, self.setting  # noqa: F811
        environ = {name: value for name, value in site.environ.items() if name not in setting.unset} | setting.environ
        is_engine = self.host in (ENGINE, GATEWAY)
        module = ("paired_servicebus.cli", *("up", "--foreground", "--config", str(site.config)))
        if not is_engine:
            module = ("tests.engine.starting_application", self.host)
        with self.log.open("ab") as log, self.answers.open("ab") as answers:
            started = subprocess.Popen(
                [*setting.prefix, sys.executable, "-m", *module],
                env=environ, cwd=ROOT, stdin=subprocess.PIPE, stdout=answers, stderr=log,
            )  # fmt: skip
        if not is_engine:
            assert started.stdin is not None
            started.stdin.write(json.dumps(self._options()).encode() + b"\n")
            started.stdin.flush()
        return started

    def _options(self) -> dict[str, object]:
        sandbox = self.place.sandbox  # noqa: F811
        return {
            "run": self.place.site.folder.name, "primary": sandbox.primary, "secondary": sandbox.secondary,
            "ca_file": sandbox.ca_file, "entities": self.setting.entities,
            "metrics": f"{self.setting.metrics_host}:{self.place.metrics}",
        }  # fmt: skip

    def told(self, what: str) -> list[Any]:
        """What a program of ours answered under this name."""
        lines = [json.loads(line) for line in self.answers.read_text().splitlines()]
        return [line[what] for line in lines if what in line]

    def serves(self) -> bool:
        if self.host in (ENGINE, GATEWAY):
            return "serving as" in self.log.read_text()
        return bool(self.told("paired"))

    def readiness(self) -> tuple[int, str]:
        """The answer of its probe; 0: none."""
        asked = http.client.HTTPConnection("127.0.0.1", self.place.metrics, timeout=WAIT)
        try:
            asked.request("GET", "/readyz")
            answer = asked.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            asked.close()

    def alarms(self) -> list[str] | None:
        """What its console shows; None: none can attach."""
        name = "orders" if self.host in (ENGINE, GATEWAY) else self.place.site.folder.name
        try:
            found = asyncio.run(first_snapshot(self.place.site.folder / "run" / "paired" / f"{name}.sock"))
        except (ControlError, OSError):
            return None
        return [one.text for one in alarms(condition_of(found))]

    def says(self, alarm: str) -> bool:
        """Whether it says so now: on its console, by its library, or in its log where it has no console."""
        told = self.told("alarms")
        shown = self.alarms()
        found = [*(shown or ()), *(told[-1] if told else ())]
        return any(alarm in text for text in found) or (shown is None and alarm in self.log.read_text())

    def wait(self, met: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + WAIT
        while not met():
            said = f"{what}\n{self.log.read_text()}\n{self.answers.read_text()[-2000:]}"
            assert self.process.poll() is None, f"it ended: {said}"
            assert time.monotonic() < deadline, f"not met: {said}"
            time.sleep(0.05)

    def send(self, name: str, within: float = WAIT) -> bool:
        """Have a message accepted; return whether one was. An engine without a gateway has none to send."""
        if self.host == ENGINE:
            return True
        if self.host == GATEWAY:
            each = f"{self.place.site.folder.name}-{name}"
            off, real = self.setting.clock(), time.time
            with patch("time.time", lambda: real() + off):
                is_accepted = asyncio.run(send(self._string(), each, within))
            self.accepted |= {("orders", each)} if is_accepted else set()
            return is_accepted
        before, deadline = len(self.told("accepted")), time.monotonic() + within
        while not any(path == "orders" for path, _ in self.told("accepted")[before:]):
            if time.monotonic() > deadline or self.process.poll() is not None:
                return False
            time.sleep(0.05)
        return True

    def _string(self) -> str:
        return connection_string(read_keys(self.place.site.folder / "keys").keys[0], self.place.gateway)

    def end(self) -> None:
        """End it as its owner does, and note what was accepted last."""
        if self.host in (ENGINE, GATEWAY):
            self.process.terminate()
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(WAIT) in (0, 3), self.log.read_text()
        records = re.split(r"^(?=\d{4}-\d\d-\d\dT)", self.log.read_text(), flags=re.MULTILINE)
        assert [one for one in records if "Traceback" in one and " azure." not in one.splitlines()[0]] == []

    def rest(self) -> None:
        """Have it send no more, and note what was accepted."""
        if self.host in (ENGINE, GATEWAY):
            return
        assert self.process.stdin is not None
        self.process.stdin.write(b"rest\n")
        self.process.stdin.flush()
        self.wait(lambda: self.told("rests"), "it rests")
        self.accepted |= {(path, each) for path, each in self.told("accepted")}


def write_settings(place: Place, setting: Setting, host: str) -> None:
    folder = place.site.folder
    (folder / "run").mkdir(mode=0o700, exist_ok=True)
    place.site.environ["XDG_RUNTIME_DIR"] = str(folder / "run")
    write_keys(folder / "keys", [new_key("client", GatewayRight)])
    gateway = f"[gateway]\nport = {place.gateway}\nkeys = '{folder / 'keys'}'" if host == GATEWAY else ""
    place.site.write(
        f"entities = {json.dumps(setting.entities)}\nbacklog_queue_count = 1\nfailover_interval = '1s'\n"
        f"send_timeout = '5s'\nping_primary_interval = '2s'\nping_timeout = '5s'\n"
        f"metrics = '{setting.metrics_host}:{place.metrics}'\n{gateway}"
    )


@contextmanager
def started(host: str, place: Place, setting: Setting) -> Iterator[Program]:
    """A program, ended whatever happens."""
    program = Program(host, place, setting)
    try:
        yield program
    finally:
        if program.process.poll() is None:
            program.process.kill()
            program.process.wait(WAIT)


def cells() -> Iterator[Any]:
    for situation, row in TABLE.items():
        for host in row:
            marks = [pytest.mark.slow if (situation, host) in BY_TURNS else pytest.mark.long]
            marks = [] if (situation, host) in ALWAYS else marks
            yield pytest.param(situation, host, id=f"{situation} x {host}", marks=marks)


def test_the_table_is_whole() -> None:
    """Each situation is known, and has a cell for each host; silence is more of the same, and has some."""
    assert TABLE.keys() == SITUATIONS.keys()
    for situation, row in TABLE.items():
        assert set(row) <= set(HOSTS)
        assert "silent" in situation or set(row) == set(HOSTS), situation
    assert all(host in TABLE[situation] for situation, host in ALWAYS)
    assert {host for _, host in BY_TURNS} == set(HOSTS)


@pytest.mark.parametrize(("situation", "host"), cells())
def test_it_starts_as_the_table_says(situation: str, host: str, site: Site, sandbox: Sandbox) -> None:  # noqa: F811
    """With a valid configuration an engine of `paired up` starts and serves, whatever is away. What is away is an
    alarm, not an exit status. `pair_namespaces` keeps 4.4 and 4.5 (the awaited call raises) unless
    `start_degraded=True`; with `control=True` the application's sends never depend on journal, socket or disk."""
    cell, place = TABLE[situation][host], Place(site, sandbox, free_port(), free_port())
    parked = set(asyncio.run(park(place, 3)))
    with SITUATIONS[situation](place) as setting:
        write_settings(place, setting, host)
        with started(host, place, setting) as program:
            if isinstance(cell, Raises):
                assert program.process.wait(WAIT) == 3, program.log.read_text()
                assert cell.error in program.told("raised")[0]
                assert not program.told("accepted")
                setting.mend(program.process.pid)
            else:
                play(program, cell, parked)
        if isinstance(cell, Raises):
            with started(host, place, replace(setting, prefix=())) as program:
                play(program, CALM, parked)


@cache
def seconds_of_import() -> float:
    """How long this machine takes now for what each start does first."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", "import paired_servicebus.engine.service.main"], cwd=ROOT, check=True)
    return time.monotonic() - begun


def play(program: Program, cell: Serves, parked: set[tuple[str, str]]) -> None:
    """See a program serve with its trouble, and without it, and all arrive that was accepted."""
    program.wait(program.serves, "it serves")
    took = time.monotonic() - program.begun
    assert took < START_SECONDS + 10 * seconds_of_import(), "what is away is not waited for"
    if cell.alarm:
        program.wait(lambda: program.says(cell.alarm), f"it says that {cell.alarm}")
    assert program.send("during", WAIT if cell.sends else 3.0) is cell.sends or program.host == ENGINE
    if program.setting.probes:
        expected = 200 if cell.sends else 503
        program.wait(lambda: program.readiness()[0] == expected, f"its probe answers {expected}")
    program.setting.mend(program.process.pid)
    assert program.send("after"), program.log.read_text()
    program.wait(lambda: program.readiness()[0] == 200, "it is ready")
    if cell.alarm:
        program.wait(lambda: program.alarms() is None or not program.says(cell.alarm), f"over: {cell.alarm}")
    program.rest()
    lost = asyncio.run(arrived(program.place.sandbox, program.accepted | parked))
    assert lost == set(), program.log.read_text()
    program.end()


# -- more of a start ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [("failover_interval = 'never'", "failover_interval"), ("backlog_queue_count = 0", "backlog_queue_count")],
)
def test_only_a_wrong_configuration_ends_it(tmp_path: Path, settings: str, sentence: str) -> None:
    """Refused at the start are only: a configuration that is wrong, …"""
    namespaces = "".join(
        f'[{side}]\nconnection_string = "Endpoint=sb://localhost/;SharedAccessKeyName=a;SharedAccessKey=b;'
        'UseDevelopmentEmulator=true"\n'
        for side in ("primary", "secondary")
    )
    config = tmp_path / "pairing.toml"
    config.write_text(f'[pairing]\nname = "orders"\n{settings}\n{namespaces}')
    done = run_here("up", "--headless", "--config", str(config))
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
