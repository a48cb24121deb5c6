"""A whole life of an engine, and no secret anywhere: not in its log, its journal, on its socket or in the list of
processes; and a key that is changed meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from paired_servicebus.core.model.pairing_events import Warned
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.instance.lock import LockHolder, running
from servicebus_sandbox import Sandbox
from tests.command import run_here
from tests.journal_files import read_records

from .connect_proxy import ConnectProxy, connect_proxy

WAIT = 60.0
ROOT = Path(__file__).parents[2]
PASSWORD = "pr0xy-c4n4ry"
NEW_KEY = "new-key-c4n4ry"
CLIENT_SECRET = "client-c4n4ry"
RENEWED = "the key of the primary namespace was renewed; links use it from when they next open"


@dataclass
class Site:
    """Settings of a pairing that goes through a proxy with a password, in a folder of its own."""

    folder: Path
    sandbox: Sandbox
    proxy: ConnectProxy
    seen: list[bytes] = field(default_factory=list)

    @property
    def places(self) -> EnginePaths:
        state = self.folder / "state" / "paired" / "orders"
        return EnginePaths(state=state, socket=state / "control.sock")

    @property
    def secrets(self) -> list[str]:
        login = b64encode(f"me:{PASSWORD}".encode()).decode()
        return [PASSWORD, login, NEW_KEY, CLIENT_SECRET, *(one.key for one in self.sandbox.namespaces)]

    def write(self, side: str, key: str | None = None) -> None:
        """A connection string in its file, as for a namespace in Azure: its real name, no port."""
        one = self.sandbox[side]
        keys = f"SharedAccessKeyName={one.key_name};SharedAccessKey={key or one.key}"
        (self.folder / side).write_text(f"Endpoint=sb://{one.fully_qualified_name}/;{keys}")

    def settle(self) -> None:
        sides = "".join(
            f'[{side}]\nname = "{side}"\nca_file = "{self.sandbox.ca_file}"\nproxy = {{ env = "PROXY" }}\n'
            f'connection_string = {{ file = "{side}" }}\n'
            for side in ("primary", "secondary")
        )
        (self.folder / "pairing.toml").write_text(
            f'[pairing]\nname = "orders"\nentities = ["orders"]\nbacklog_queue_count = 1\n{sides}'
        )
        for side in ("primary", "secondary"):
            self.write(side)

    async def paired(self, *arguments: str) -> tuple[int, str]:
        """Runs the command; its exit status and all that it says."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
        environ = kept | {
            "XDG_STATE_HOME": str(self.folder / "state"),
            "PROXY": f"http://me:{PASSWORD}@127.0.0.1:{self.proxy.port}",
            "AZURE_CLIENT_SECRET": CLIENT_SECRET,
        }
        done = await asyncio.to_thread(
            run_here, *arguments, "--config", str(self.folder / "pairing.toml"), environ=environ
        )
        self.seen.append((done.stdout + done.stderr).encode())
        return done.returncode, done.stdout + done.stderr

    async def listen(self, seconds: float) -> None:
        """What the engine tells a console in that time."""
        reader, writer = await asyncio.open_unix_connection(str(self.places.socket))
        try:
            async with asyncio.timeout(seconds):
                while chunk := await reader.read(65536):
                    self.seen.append(chunk)
        except TimeoutError:
            pass
        finally:
            writer.close()

    async def look(self) -> None:
        """All that can be asked without a terminal, kept as it was said."""
        for arguments in (["status"], ["status", "--json"], ["check"], ["find", "some-id"]):
            await self.paired(*arguments)
        picture = self.folder / "now.svg"
        status, said = await self.paired("snapshot", "--svg", str(picture))
        assert status == 0, said
        self.seen.append(picture.read_bytes())

    def holder(self) -> LockHolder | None:
        return running(self.places.lock)

    def warnings(self) -> list[str]:
        events = (record.event for record in read_records(self.places.spool))
        return [event.text for event in events if isinstance(event, Warned)]

    def log(self) -> str:
        return "".join(path.read_text() for path in self.places.logs.iterdir())

    def leaks(self) -> list[str]:
        """Which secrets stand in what was seen, and in any file that the engine wrote."""
        files = [path for path in self.places.state.rglob("*") if path.is_file()]
        assert any(path.suffix == ".log" for path in files)
        texts = b"\n".join([*self.seen, *(path.read_bytes() for path in files)]).decode(errors="replace")
        return [secret for secret in self.secrets if secret in texts]


@pytest.fixture
async def site(short: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox.start())
        where = {one.fully_qualified_name: one.amqp_port for one in sandbox.namespaces}
        found = Site(short, sandbox, stack.enter_context(connect_proxy(where, f"me:{PASSWORD}")))
        found.settle()
        yield found
        left = found.holder()
        if left is not None:
            os.kill(left.pid, signal.SIGKILL)


async def test_a_life_with_a_changed_key_shows_no_secret(site: Site) -> None:
    """No secret in logs, journal, screenshots, crash screens … A changed key or secret is picked up without a
    restart."""
    site.folder.chmod(0o755)  # now every user gets as far as the files of the keys, which are readable
    status, said = await site.paired("up", "--headless")
    assert status == 0, said
    holder = site.holder()
    assert holder is not None
    for target in ("primary", "secondary"):
        assert f"{target}.servicebus.windows.net:443" in site.proxy.targets
    site.seen += [Path(f"/proc/{holder.pid}/cmdline").read_bytes()]
    site.write("primary", NEW_KEY)
    async with asyncio.timeout(WAIT):
        while RENEWED not in site.log():
            await asyncio.sleep(0.1)
    fault = site.sandbox["primary"].node.faults.add("reset")
    await site.listen(1.5)
    await site.look()
    site.sandbox["primary"].node.faults.remove(fault.id)
    assert site.holder() == holder, "no restart"
    status, said = await site.paired("down")
    assert status == 0, said
    assert RENEWED in site.warnings()
    assert len([text for text in site.warnings() if "every user of this machine can read: chmod o-r" in text]) == 2
    assert site.leaks() == []


CRASH = """
import sys
from paired_servicebus import cli, config

def broken(path):
    connection_string = config.load_config(path).primary.connection_string.reveal()
    raise RuntimeError(f"cannot use {connection_string}")

cli.load_config = broken
sys.exit(cli.main(sys.argv[1:]))
"""
"""A fault of ours with a connection string in a local and in what it says."""


async def test_a_crash_report_of_the_command_shows_no_secret(site: Site) -> None:
    """A canary connection string appears in no … crash report."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CRASH, "check", "--config", str(site.folder / "pairing.toml"), cwd=ROOT,
        env={**os.environ, "TMPDIR": str(site.folder), "PROXY": f"http://me:{PASSWORD}@127.0.0.1:{site.proxy.port}"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    (report,) = site.folder.glob("paired-failure-*.log")
    assert process.returncode == 2
    assert b"internal error (RuntimeError)" in said
    text = report.read_text() + said.decode()
    assert "cannot use Endpoint=sb://" in text
    assert not [secret for secret in site.secrets if secret in text]


@pytest.mark.parametrize("wrong", ["key", *(pytest.param(one, marks=pytest.mark.slow) for one in ("password", "file"))])
async def test_a_start_with_a_wrong_secret_does_not_show_it(site: Site, wrong: str) -> None:
    if wrong == "key":
        site.write("secondary", NEW_KEY)
    elif wrong == "password":
        site.proxy.login = "me:another"
    else:
        (site.folder / "primary").write_text(f"SharedAccessKey={NEW_KEY}")
    status, said = await site.paired("up", "--headless")
    assert status == (2 if wrong == "file" else 0), said
    assert "Traceback" not in said
    if wrong == "file":  # then no engine was started, and nothing was written
        assert said.count("\n") == 1
        assert site.holder() is None
    else:
        assert "paired: alarm: " in said
        assert (await site.paired("down"))[0] == 0
        assert site.leaks() == []
    assert not [secret for secret in site.secrets if secret in said]
