"""The engine as a process, started and ended by the command, against real namespaces: nothing here is faked.

Each test has a state folder of its own; sandbox and engines are processes, each of which costs a second of CPU. What
needs no process is tested in this one, by the modules of the rooms; the slow tests show that the command does it, too.
"""

from __future__ import annotations

import asyncio
import grp
import json
import os
import pty
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import EngineStopped, Record, Warned
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus
from paired_servicebus.engine.control.control_client import ControlClient, Update
from paired_servicebus.engine.control.protocol import Goodbye
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.instance.lock import LockHolder, running
from paired_servicebus.engine.service.launcher import MODULE
from paired_servicebus.engine.service.main import return_start_memory
from tests.command import run_here
from tests.journal_files import read_records
from tests.ports import free_port

WAIT = 60.0
ROOT = Path(__file__).parents[2]


@dataclass
class Sandbox:
    """A running sandbox process."""

    primary: str
    secondary: str
    ca_file: str
    control_url: str

    def fault(self, namespace: str, kind: str, entity: str | None = None) -> Callable[[], None]:
        """Breaks a namespace, or an entity of it; the result mends it."""
        where = {} if entity is None else {"entity": entity}
        body = json.dumps({"namespace": namespace, "fault": kind} | where).encode()
        order = urllib.request.Request(f"{self.control_url}/faults", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(order, timeout=WAIT) as answer:
            number = json.load(answer)["id"]
        gone = urllib.request.Request(f"{self.control_url}/faults/{number}", method="DELETE")

        def mend() -> None:
            with urllib.request.urlopen(gone, timeout=WAIT):
                pass

        return mend


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """One for all tests of this process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "paired_servicebus.cli", "sandbox", "--json"], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    primary, secondary = (namespace["connection_string"] for namespace in told["namespaces"])
    yield Sandbox(primary, secondary, told["ca_file"], told["control_url"])
    process.terminate()
    assert process.wait(WAIT) == 0
    process.stdout.close()


@dataclass
class Site:
    """A folder with a pairing.toml, and an environment of its own."""

    folder: Path
    environ: dict[str, str]
    ca_file: str
    holders: list[LockHolder] = field(default_factory=list)

    @property
    def places(self) -> EnginePaths:
        state = self.folder / "state" / "paired" / "orders"
        return EnginePaths(state=state, socket=state / "control.sock")

    @property
    def config(self) -> Path:
        return self.folder / "pairing.toml"

    def write(self, settings: str = 'entities = ["orders", "payments", "audit"]\nbacklog_queue_count = 2') -> None:
        namespaces = "".join(
            f'[{table}]\nname = "{name}"\nca_file = "{self.ca_file}"\n'
            f'connection_string = {{ env = "{table.upper()}" }}\n'
            for table, name in (("primary", self.folder.name), ("secondary", "backup"))
        )
        self.config.write_text(f'[pairing]\nname = "orders"\nenvironment = "test"\n{settings}\n{namespaces}')

    def paired(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs the command to its end. If that does not come, fails with where the engine stood."""
        try:
            return subprocess.run(
                self.command(*arguments), env=self.environ, cwd=ROOT, capture_output=True, text=True, timeout=WAIT,
                stdin=subprocess.DEVNULL, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            for process in self.processes():
                os.kill(process, signal.SIGABRT)  # its stack goes to its log
            assert self.gone()
            logs = "\n".join(path.read_text() for path in sorted(self.places.logs.glob("*.log")))
        pytest.fail(f"paired {' '.join(arguments)} did not end within {WAIT:g} s\n{logs}")

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "paired_servicebus.cli", *arguments, "--config", str(self.config)]

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Starts the command."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(self.command(*arguments), env=self.environ, cwd=ROOT, **pipes)

    def start_engine(self) -> subprocess.Popen[bytes]:
        """Starts the command, until its engine has the lock."""
        process, deadline = self.start("up", "--headless"), time.monotonic() + WAIT
        while running(self.places.lock) is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return process

    def up(self) -> LockHolder:
        """Starts the engine."""
        done = self.paired("up", "--headless")
        assert (done.returncode, done.stderr) == (0, "")
        return self.holder()

    def up_with_alarm(self, *texts: str) -> str:
        """Starts an engine that serves and names what is away; returns what it said. Ends it."""
        done = self.paired("up", "--headless")
        assert done.returncode == 0, done
        assert "serves" in done.stdout
        assert done.stderr.startswith("paired: alarm: ")
        for text in texts:
            assert text in done.stderr
        assert self.paired("down").returncode == 0
        assert self.gone()
        return done.stderr

    def holder(self) -> LockHolder:
        holder = running(self.places.lock)
        assert holder is not None, "no engine runs"
        self.holders.append(holder)
        return holder

    def processes(self) -> list[int]:
        """Every process that was started with this site's settings."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = entry.read_bytes()
            except OSError:
                continue
            if os.fsencode(self.config) in words:
                found.append(int(entry.parent.name))
        return found

    def gone(self) -> bool:
        """Whether no process of this site is left."""
        deadline = time.monotonic() + WAIT
        while self.processes():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


@pytest.fixture
def site(short: Path, sandbox: Sandbox) -> Iterator[Site]:
    """Settings that pair the sandbox's namespaces; whatever a test leaves running is killed."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
    environ |= {"XDG_STATE_HOME": str(short / "state"), "PRIMARY": sandbox.primary, "SECONDARY": sandbox.secondary}
    made = Site(short, environ, sandbox.ca_file)
    made.write()
    yield made
    for process in made.processes():
        os.kill(process, signal.SIGKILL)
    assert made.gone()


async def watch(client: ControlClient, enough: Callable[[Update], bool]) -> Update:
    """The first update that is enough."""
    async with asyncio.timeout(WAIT):
        async for update in client.updates():
            if enough(update):
                return update
    raise AssertionError("the engine went")


def state_of(update: Update, path: str) -> State | None:
    if not isinstance(update, Snapshot):
        return None
    return next(view.state for view in update.entities if view.path == path)


def refused(done: subprocess.CompletedProcess[str], *texts: str) -> None:
    """One clear sentence on standard error, exit status 2, and nothing else."""
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("paired: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    for text in texts:
        assert text in done.stderr


# -- a life --------------------------------------------------------------------------------------------------------


async def test_an_engine_is_started_steered_and_ended(site: Site) -> None:
    up = site.paired("up", "--headless")
    assert up.returncode == 0
    holder = site.holder()
    for text in (str(holder.pid), holder.socket, holder.log):
        assert text in up.stdout
    assert os.getsid(holder.pid) == holder.pid
    client = await ControlClient.connect(Path(holder.socket))
    assert (client.welcome.pid, client.welcome.environment) == (holder.pid, "test")
    await client.order(Command(action_id="force", targets=("orders",), by="ada", why="drill"), typed="orders")
    snapshot = await watch(client, lambda update: state_of(update, "orders") is State.FORCED)
    assert isinstance(snapshot, Snapshot)
    assert state_of(snapshot, "payments") is State.UNKNOWN
    assert len(snapshot.queues) == 2
    down = await asyncio.to_thread(site.paired, "down")
    assert (down.returncode, down.stderr) == (0, "")
    assert isinstance(await watch(client, lambda update: isinstance(update, Goodbye)), Goodbye)
    await client.close()
    assert site.gone()
    assert not Path(holder.socket).exists()
    kinds = [record.event.kind for record in read_records(site.places.spool)]
    assert kinds.index("commanded") < kinds.index("forced") < kinds.index("command-ended")
    assert kinds[-1] == "engine-stopped"
    refused(await asyncio.to_thread(site.paired, "down"), "no engine of the pairing orders", "paired up")


@pytest.mark.slow
def test_an_engine_started_read_only_takes_no_order_until_it_is_made_writable(site: Site) -> None:
    assert site.paired("up", "--headless", "--read-only").returncode == 0
    site.holder()
    refused(site.paired("failover", "orders", "--yes", "orders"), "this engine is read-only")
    refused(site.paired("syphon", "pause"), "this engine is read-only")
    refused(site.paired("down"), "this engine is read-only")
    assert json.loads(site.paired("status", "--json").stdout)["engines"][0]["snapshot"]["read_only"] is True
    assert site.paired("read-only", "off", "--yes", "orders").returncode == 0
    assert site.paired("failover", "orders", "--yes", "orders").returncode == 0


async def test_a_change_runs_the_operators_command(site: Site) -> None:
    told = site.folder / "told"
    command = f"sh -c 'cat > {told}.part; env >> {told}.part; mv {told}.part {told}'"
    site.write(f'entities = ["orders"]\nbacklog_queue_count = 2\non_change = "{command}"')
    holder = await asyncio.to_thread(site.up)
    client = await ControlClient.connect(Path(holder.socket))
    await client.order(Command(action_id="force", targets=("orders",), by="ada", why="drill"), typed="orders")
    await client.close()
    async with asyncio.timeout(WAIT):
        while not told.exists():
            await asyncio.sleep(0.05)
    line, _, environ = told.read_text().partition("\n")
    event = json.loads(line)
    assert (event["kind"], event["entity"], event["now"]) == ("state-changed", "orders", "forced")
    assert "PAIRED_ENVIRONMENT=test" in environ
    assert "SharedAccessKey" not in environ, "the engine's own environment has both connection strings"


@pytest.mark.slow
async def test_check_asks_the_engine_or_looks_itself_and_leaves_nothing(site: Site, sandbox: Sandbox) -> None:
    before = site.paired("check", "--json")
    assert (before.returncode, before.stderr) == (1, "")  # no engine has made the backlog queues yet
    assert json.loads(before.stdout)["asked"] == "own contact"
    assert not site.places.state.exists()
    site.up()
    asked = site.paired("check", "--json")
    told = json.loads(asked.stdout)
    assert (asked.returncode, told["ready"], told["asked"][:13]) == (0, True, "engine orders")
    assert {finding["verdict"] for finding in told["findings"]} == {"ok", "unknown"}  # nothing was sent: no sizes
    assert site.paired("down").returncode == 0
    alone = site.paired("check")
    assert (alone.returncode, alone.stderr) == (0, "")
    assert "links opened to 2 of 2 backlog queues, nothing sent" in alone.stdout
    mend = sandbox.fault("secondary", "refused")
    try:
        assert site.paired("check").returncode == 3
    finally:
        mend()


@pytest.mark.slow
def test_check_says_that_an_engine_does_not_answer(site: Site) -> None:
    holder = site.up()
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        done = site.paired("check")
    finally:
        os.kill(holder.pid, signal.SIGCONT)
    assert (done.returncode, done.stdout) == (3, "")
    assert "did not answer within" in done.stderr


@pytest.mark.slow
async def test_status_and_picture_need_no_terminal(site: Site) -> None:
    port = free_port()
    site.write(f'entities = ["orders", "payments", "audit"]\nbacklog_queue_count = 2\nmetrics = {port}')
    none = site.paired("status")
    assert (none.returncode, none.stdout) == (
        3,
        "orders: unreachable\n  no engine runs here: start one with paired up\n",
    )
    holder = site.up()
    well = site.paired("status")
    assert (well.returncode, well.stderr) == (0, ""), well.stdout
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WAIT) as answer:
        assert 'paired_entity_state{entity="audit",pairing="orders",state="unknown"} 1.0' in answer.read().decode()
    picture = site.folder / "now.svg"
    assert site.paired("snapshot", "--svg", str(picture)).returncode == 0
    assert "payments" in picture.read_text()
    refused(site.paired("snapshot", "--svg", "/dev/null/x.svg"), "/dev/null/x.svg cannot be written")
    client = await ControlClient.connect(Path(holder.socket))
    await client.execute(Command(action_id="pause-syphon", by="ada", why="drill"))
    await client.close()
    paused = site.paired("status", "--json")
    told = json.loads(paused.stdout)
    assert (paused.returncode, told["status"], told["engines"][0]["status"]) == (1, "degraded", "degraded")
    assert any(one["name"] == "syphon_paused" for one in told["engines"][0]["alarms"])
    os.kill(holder.pid, signal.SIGKILL)
    assert site.gone()
    killed = site.paired("status")
    assert (killed.returncode, "did not end cleanly" in killed.stdout) == (3, True)


@pytest.mark.slow
def test_watching_prints_lines_until_nobody_reads(site: Site) -> None:
    site.up()
    watching = site.start("status", "--watch")
    assert watching.stdout is not None
    assert watching.stderr is not None
    assert b"engine reached: all 3 entities unknown" in watching.stdout.readline()
    watching.stdout.close()
    assert site.paired("down").returncode == 0
    assert watching.wait(WAIT) == 0
    assert watching.stderr.read() == b""
    watching.stderr.close()


@pytest.mark.slow
def test_an_engine_lets_its_control_group_in_by_its_socket_alone(site: Site) -> None:
    group = grp.getgrgid(os.getgid()).gr_name
    site.write(f'entities = ["orders"]\nbacklog_queue_count = 2\ncontrol_group = "{group}"')
    refused = site.paired("up", "--headless")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "beside the journal; set XDG_RUNTIME_DIR" in refused.stderr
    with tempfile.TemporaryDirectory(prefix="pe-") as runtime:
        site.environ["XDG_RUNTIME_DIR"] = runtime
        socket = Path(site.up().socket)
        assert socket.parent.parent == Path(runtime)
        assert [stat.S_IMODE(path.stat().st_mode) for path in (socket, socket.parent)] == [0o660, 0o750]
        assert stat.S_IMODE(site.places.lock.stat().st_mode) == 0o600
        assert site.paired("down").returncode == 0


@pytest.mark.slow
def test_two_at_once_make_one_engine(site: Site) -> None:
    starts = [site.start("up", "--headless") for _ in range(2)]
    said = [start.communicate(timeout=WAIT) for start in starts]
    assert sorted(start.returncode for start in starts) == [0, 2], said
    assert len(site.processes()) == 1
    refused(site.paired("up", "--headless"), "runs already", str(site.holder().pid), "paired attach", "paired down")


@pytest.mark.slow
def test_an_engine_is_ended_by_its_name_wherever_its_settings_are(site: Site) -> None:
    site.up()
    site.config.unlink()
    command = [sys.executable, "-m", "paired_servicebus.cli", "down", "--engine", "orders"]
    done = subprocess.run(
        command, env=site.environ, cwd=ROOT, capture_output=True, text=True, timeout=WAIT, stdin=subprocess.DEVNULL,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "the engine of orders has ended\n", "")


@pytest.mark.slow
async def test_a_killed_engine_is_started_anew_with_its_history(site: Site) -> None:
    first = site.up()
    client = await ControlClient.connect(Path(first.socket))
    await client.order(Command(action_id="force", targets=("orders",), by="ada"), typed="orders")
    os.kill(first.pid, signal.SIGKILL)
    await watch(client, lambda update: isinstance(update, Goodbye))
    await client.close()
    assert client.position is not None
    second = await asyncio.to_thread(site.up)
    again = await ControlClient.connect(Path(second.socket), after=client.position)
    assert again.welcome.boot != client.welcome.boot
    assert again.welcome.engine == client.welcome.engine
    await watch(
        again,
        lambda update: (
            isinstance(update, Record) and isinstance(update.event, Warned) and "was killed" in update.event.text
        ),
    )
    await again.close()
    recovered = [record for record in read_records(site.places.spool) if record.boot == client.welcome.boot]
    assert [record.seq for record in recovered] == list(range(1, len(recovered) + 1))
    assert "command-ended" in [record.event.kind for record in recovered]  # it may have written figures after it


def test_in_the_foreground_it_tells_systemd_and_ends_in_order(site: Site) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(site.folder / "notify"))
        systemd.settimeout(WAIT)
        site.environ["NOTIFY_SOCKET"] = str(site.folder / "notify")
        engine = site.start("up", "--foreground")
        assert systemd.recv(100) == b"READY=1"
        assert site.holder().pid == engine.pid
        if (command := Path(f"/proc/{engine.pid}/cmdline")).exists():
            assert MODULE in command.read_text(), "it carries none of the command line's modules"
        engine.terminate()
        assert systemd.recv(100) == b"STOPPING=1"
    out, err = engine.communicate(timeout=WAIT)
    assert (engine.returncode, out) == (0, b"")
    assert b"the engine has ended" in err, "its log is standard error"
    assert site.paired("status").returncode == 3
    assert list(site.places.logs.iterdir()) == []


async def test_the_memory_that_a_start_left_free_is_returned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed: list[int] = []
    monkeypatch.setattr("ctypes.CDLL", lambda _name: SimpleNamespace(malloc_trim=trimmed.append))
    await return_start_memory(after=0.0)
    assert trimmed == [0]
    monkeypatch.setattr("ctypes.CDLL", lambda _name: SimpleNamespace())
    await return_start_memory(after=0.0)  # another C library has no such function


@pytest.mark.slow
def test_in_the_foreground_a_start_that_fails_is_a_sentence(site: Site) -> None:
    site.environ["SECONDARY"] = site.environ["PRIMARY"]
    done = site.paired("up", "--foreground")
    assert done.returncode == 2
    assert "would be paired with itself" in done.stderr.splitlines()[-1]


def stopped_for_its_disk(snapshot: Snapshot) -> bool:
    assert snapshot.journal is not None
    return snapshot.journal.lost > 0 and snapshot.syphon.status is SyphonStatus.PAUSED


@pytest.mark.slow
async def test_a_disk_that_is_full_stops_the_syphon_is_said_and_needs_no_restart(site: Site) -> None:
    """When the journal's disk is full, the syphon pauses, sends go on, and both are said."""
    holder = site.up()
    client = await ControlClient.connect(Path(holder.socket))
    await client.execute(Command(action_id="pause-syphon", by="ada"))
    before = resource.prlimit(holder.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        done = await client.execute(Command(action_id="resume-syphon", by="ada"))
        assert "the audit is not written" in done.text
        told = await watch(client, lambda it: isinstance(it, Snapshot) and stopped_for_its_disk(it))
        assert isinstance(told, Snapshot)
        status = await asyncio.to_thread(site.paired, "status")
        assert (status.returncode, "the journal is not written (File too large" in status.stdout) == (1, True)
    finally:
        resource.prlimit(holder.pid, resource.RLIMIT_FSIZE, before)
    healed = await watch(client, lambda it: isinstance(it, Snapshot) and it.syphon.status is SyphonStatus.IDLE)
    await client.close()
    assert isinstance(healed, Snapshot)
    assert healed.pid == holder.pid
    assert healed.journal is not None
    assert not healed.journal.trouble
    assert (await asyncio.to_thread(site.paired, "down")).returncode == 0
    texts = [record.event.text for record in read_records(site.places.spool) if isinstance(record.event, Warned)]
    assert any("the journal is written again" in text for text in texts)


def test_hang_up_is_nothing_to_an_engine_and_term_ends_it_in_order(site: Site) -> None:
    holder = site.up()
    os.kill(holder.pid, signal.SIGHUP)
    os.kill(holder.pid, signal.SIGTERM)
    assert site.gone()
    last = list(read_records(site.places.spool))[-1].event
    assert isinstance(last, EngineStopped)
    assert "signal" in last.reason


@pytest.mark.slow
def test_closing_the_terminal_of_a_dashboard_leaves_the_engine(site: Site) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execve(sys.executable, site.command("up"), {**site.environ, "TERM": "xterm-256color"})
    painted = _read_until(terminal, b"Overview")
    holder = site.holder()
    os.close(terminal)
    os.waitpid(pid, 0)
    assert painted
    assert site.processes() == [holder.pid]
    assert site.paired("down").returncode == 0


def _read_until(terminal: int, text: bytes) -> bool:
    """Whether the screen shows `text`, looking at no more than a start's worth of output."""
    seen = b""
    while text not in seen:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:
            return False
        seen += chunk
    return True


# -- bad input: one sentence, exit status 2, nothing left running ---------------------------------------------------


def another_key(connection_string: str) -> str:
    before, _, after = connection_string.partition("SharedAccessKey=")
    return f"{before}SharedAccessKey=d3JvbmcgaW4gZXZlcnkgcmVzcGVjdA=={after[after.index(';') :]}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("PRIMARY", "critical credential_refused: the primary namespace refuses the credential"),
        ("SECONDARY", "critical started_degraded: the pairing started degraded"),
    ],
)
def test_a_wrong_key(site: Site, table: str, sentence: str) -> None:
    """A credential that a namespace refuses is an alarm of the highest severity."""
    site.environ[table] = another_key(site.environ[table])
    assert "d3Jvbmc" not in site.up_with_alarm(sentence, "refused", f"[{table.lower()}]")


@pytest.mark.slow
def test_an_untrusted_certificate(site: Site) -> None:
    site.config.write_text(site.config.read_text().replace(f'ca_file = "{site.ca_file}"\n', ""))
    site.up_with_alarm("its certificate is not trusted", "ca_file")


@pytest.mark.slow
def test_a_taken_port_of_the_sandbox(sandbox: Sandbox) -> None:
    port = sandbox.control_url.rpartition(":")[2]
    command = [sys.executable, "-m", "paired_servicebus.cli", "sandbox", "--control-port", port]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert port in done.stderr


@pytest.mark.slow
def test_a_state_folder_that_cannot_be_made(site: Site) -> None:
    """No state folder is needed to carry sends; its log, its lock and its socket are missed, and it says so."""
    site.environ |= {"XDG_STATE_HOME": "/dev/null/nowhere"}
    done = site.paired("up", "--headless")
    assert done.returncode == 0, done
    assert "the journal is not written (Not a directory" in done.stderr
    assert "control.sock is not served" in done.stderr
    assert "log /dev/null" in done.stdout
    for process in site.processes():
        os.kill(process, signal.SIGTERM)
    assert site.gone()


def test_a_dashboard_without_a_terminal(tmp_path: Path) -> None:
    site = Site(tmp_path, {}, ca_file="")
    site.write()
    refused(run_here("up", "--config", str(site.config)), "needs a terminal", "paired up --headless")
    assert site.gone()


@pytest.mark.slow
def test_what_was_away_at_the_start_is_in_the_timeline(site: Site, sandbox: Sandbox) -> None:
    mend = sandbox.fault("primary", "refused")
    try:
        site.up_with_alarm("the primary namespace")
    finally:
        mend()
    warned = [record.event for record in read_records(site.places.spool) if isinstance(record.event, Warned)]
    assert any("cannot be reached" in event.text and event.about == "alarm" for event in warned)


@pytest.mark.slow
def test_interrupting_a_start_leaves_nothing(site: Site, sandbox: Sandbox) -> None:
    mend = sandbox.fault("secondary", "black-holed")
    try:
        start = site.start_engine()
        start.send_signal(signal.SIGINT)
        out, err = start.communicate(timeout=WAIT)
    finally:
        mend()
    assert start.returncode == 130
    assert b"Traceback" not in out + err
    assert site.gone()


@pytest.mark.slow
def test_an_engine_whose_starter_was_killed_ends_by_itself(site: Site) -> None:
    start = site.start_engine()
    start.kill()
    start.communicate(timeout=WAIT)
    assert site.gone()
