"""An engine process with a gateway: two commands, one string, a kill, and a client on another host."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.model.pairing_events import Delivered, Warned
from tests.engine.test_engine_process import ROOT, WAIT, Site, sandbox, site  # noqa: F401 - two are fixtures
from tests.journal_files import read_records
from tests.ports import free_port

pytestmark = pytest.mark.slow


async def send(string: str, message_id: str) -> None:
    async with ServiceBusClient.from_connection_string(string) as client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x", message_id=message_id))


def test_the_printed_string_works_again_after_the_engine_was_killed(site: Site) -> None:  # noqa: F811
    # "kill -9 the engine, start again, the same string works"
    site.write(f'entities = ["orders"]\nbacklog_queue_count = 1\njournal = "all"\n[gateway]\nport = {free_port()}')
    first = site.up()
    string = site.paired("gateway").stdout.strip()
    asyncio.run(send(string, "first"))
    os.kill(first.pid, signal.SIGKILL)
    assert site.gone()
    site.up()
    assert site.paired("gateway").stdout.strip() == string
    asyncio.run(send(string, "second"))
    assert site.paired("gateway", "--rotate").returncode == 0
    asyncio.run(send(site.paired("gateway").stdout.strip(), "third"))
    assert site.paired("down").returncode == 0
    records = read_records(site.places.spool)
    events = [record.event for record in records]
    sent = [(event.message_id, event.key) for event in events if isinstance(event, Delivered)]
    assert sent == [("first", "gateway"), ("second", "gateway"), ("third", "gateway")]
    assert [event.about for event in events if isinstance(event, Warned) and event.about == "gateway"] == ["gateway"]
    assert site.places.gateway_entities.exists()
    secret = string.partition("SharedAccessKey=")[2].partition(";")[0]
    state = site.places.state
    kept = [path for path in state.rglob("*") if path.is_file() and path != site.places.gateway_keys]
    assert [path for path in kept if secret.encode() in path.read_bytes()] == [], "no secret but in the keys file"


# -- A client on another host, which is a network namespace of the kernel: only root makes those ---------------------

ROUND = """
import os
from azure.servicebus import ServiceBusClient, ServiceBusMessage
with ServiceBusClient.from_connection_string(os.environ["STRING"]) as client:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage(b"x", message_id="from afar"))
    with client.get_queue_receiver("orders", max_wait_time=20) as receiver:
        for message in receiver:
            receiver.complete_message(message)
            if message.message_id == "from afar":  # another test may have left others
                print(message.message_id)
                break
"""


@dataclass(frozen=True)
class Cable:
    """A cable between this host, at `here`, and another host."""

    space: str
    here: str

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command on the other host."""
        return subprocess.run(
            ["ip", "netns", "exec", self.space, *command], cwd=ROOT, env=os.environ | environment,
            capture_output=True, text=True, timeout=WAIT, check=False,
        )  # fmt: skip


def ip(*arguments: str) -> str:
    """Run `ip`; return its complaint, or ""."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=WAIT, check=False)
    return done.stderr.strip() if done.returncode else ""


@pytest.fixture
def cable() -> Iterator[Cable]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("only root makes network namespaces, with ip")
    name, subnet = f"gw{secrets.token_hex(3)}", f"10.213.{secrets.randbelow(256)}"
    laid = Cable(space=name, here=f"{subnet}.1")
    steps = (
        f"netns add {name}",
        f"link add {name}a type veth peer name {name}b netns {name}",
        f"addr add {laid.here}/30 dev {name}a",
        f"link set {name}a up",
        f"-n {name} addr add {subnet}.2/30 dev {name}b",
        f"-n {name} link set {name}b up",
    )
    try:
        if complaint := next(filter(None, (ip(*step.split()) for step in steps)), ""):
            pytest.skip(f"no network namespace here: {complaint}")
        yield laid
    finally:
        ip("link", "delete", f"{name}a")
        ip("netns", "delete", name)


def test_another_host_uses_the_printed_string(site: Site, cable: Cable) -> None:  # noqa: F811
    port = free_port()
    section = f'[gateway]\nport = {port}\naddress = "{cable.here}"\nallow_other_hosts = true'
    site.write(f'entities = ["orders"]\nbacklog_queue_count = 1\njournal = "all"\n{section}')
    site.up()
    done = cable.run(sys.executable, "-c", ROUND, STRING=site.paired("gateway").stdout.strip())
    assert (done.returncode, done.stdout) == (0, "from afar\n"), done.stderr
    assert site.paired("down").returncode == 0
    events = [record.event for record in read_records(site.places.spool)]
    assert [(event.message_id, event.key) for event in events if isinstance(event, Delivered)] == [
        ("from afar", "gateway")
    ]


def test_a_gateway_on_loopback_is_not_reached_from_another_host(site: Site, cable: Cable) -> None:  # noqa: F811
    port = free_port()
    site.write(f'entities = ["orders"]\nbacklog_queue_count = 1\n[gateway]\nport = {port}')
    site.up()
    socket.create_connection(("127.0.0.1", port), WAIT).close()
    script = f"import socket; socket.create_connection(({cable.here!r}, {port}), 5)"
    done = cable.run(sys.executable, "-c", script)
    assert "ConnectionRefusedError" in done.stderr
    assert site.paired("down").returncode == 0
