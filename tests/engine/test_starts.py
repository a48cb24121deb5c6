"""An engine starts and serves, whatever is away: what is away is an alarm until it is back.

Each engine is a process with an empty state folder and a gateway; its client sends over the gateway.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest
from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from tests.engine.test_engine_process import ROOT, WAIT, Sandbox, Site, sandbox, site  # noqa: F401 - two are fixtures
from tests.ports import free_port

QUIET = "no alarm"


@dataclass(frozen=True)
class Situation:
    """What is away, and what an operator reads of it."""

    alarm: str
    faults: tuple[tuple[str, str, str | None], ...] = ()
    """Namespace, kind, entity."""
    sends: bool = True
    """Whether a send is accepted meanwhile."""
    entities: str = '["orders"]'
    environ: dict[str, str] = field(default_factory=dict)
    heals: bool = True


SITUATIONS = {
    "primary refuses": Situation("cannot be reached", (("primary", "refused", None),)),
    "primary silent": Situation("cannot be reached", (("primary", "black-holed", None),)),
    "secondary refuses": Situation("started degraded", (("secondary", "refused", None),)),
    "secondary silent": Situation("started degraded", (("secondary", "black-holed", None),)),
    "both": Situation(
        "started degraded", (("primary", "refused", None), ("secondary", "refused", None)), sends=False
    ),
    "both silent": Situation(
        "started degraded", (("primary", "black-holed", None), ("secondary", "black-holed", None)), sends=False
    ),
    "an entity gone": Situation(
        "has no queue or topic of that name", entities='["orders", "nowhere"]', heals=False
    ),
    "an entity unauthorized": Situation(
        "refused the credential for 'payments'", (("primary", "unauthorized", "payments"),),
        entities='["orders", "payments"]',
    ),
    "the secondary refuses the key": Situation("no link to backlog queue 0", (("secondary", "unauthorized", None),)),
    "no state folder": Situation(
        "the journal is not written", environ={"XDG_STATE_HOME": "/dev/null/state", "XDG_RUNTIME_DIR": ""}, heals=False
    ),
}  # fmt: skip


@pytest.fixture
def started(site: Site) -> Iterator[Callable[[Situation], subprocess.Popen[bytes]]]:  # noqa: F811
    """Starts an engine in the foreground; its log is in the site's folder."""
    running: list[subprocess.Popen[bytes]] = []

    def start(situation: Situation, *, prefix: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        site.write(
            f"entities = {situation.entities}\nbacklog_queue_count = 1\nfailover_interval = '2s'\n"
            f"send_timeout = '5s'\nping_primary_interval = '2s'\nping_timeout = '5s'\n"
            f"[gateway]\nport = {free_port()}\nkeys = '{site.folder / 'keys'}'"
        )
        with (site.folder / "log").open("wb") as log:
            command = [*prefix, *site.command("up", "--foreground")]
            environ = site.environ | situation.environ
            running.append(subprocess.Popen(command, env=environ, cwd=ROOT, stdout=log, stderr=log))
        return running[-1]

    yield start
    for one in running:
        one.terminate()
        assert one.wait(WAIT) == 0, (site.folder / "log").read_text()


def string_of(site: Site) -> str:  # noqa: F811
    done = site.paired("gateway")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[0]


def send(string: str, message_id: str, within: float = WAIT) -> bool:
    """Send as a program does that tries again; return whether it was accepted in time."""

    async def sending() -> bool:
        async with ServiceBusClient.from_connection_string(string, retry_total=0) as client:
            deadline = time.monotonic() + within
            while time.monotonic() < deadline:
                with suppress(AzureError):
                    async with client.get_queue_sender("orders") as sender:
                        await sender.send_messages(ServiceBusMessage(b"x", message_id=message_id))
                        return True
                await asyncio.sleep(0.2)
        return False

    return asyncio.run(sending())


def alarms(site: Site) -> list[str]:  # noqa: F811
    done = site.paired("status", "--json")
    found = [alarm for engine in json.loads(done.stdout)["engines"] for alarm in engine["alarms"]]
    return [alarm["sentence"] for alarm in found if alarm["severity"] != "notice"]


def wait_until(met: Callable[[], object], what: str, site: Site) -> None:  # noqa: F811
    deadline = time.monotonic() + WAIT
    while not met():
        assert time.monotonic() < deadline, f"not met: {what}\n{(site.folder / 'log').read_text()}"
        time.sleep(0.1)


@contextmanager
def away(sandbox: Sandbox, situation: Situation) -> Iterator[None]:  # noqa: F811
    mends = [sandbox.fault(*fault) for fault in situation.faults]
    try:
        yield
    finally:
        for mend in mends:
            mend()


@pytest.mark.parametrize(
    "name",
    [name if name == "primary refuses" else pytest.param(name, marks=pytest.mark.slow) for name in SITUATIONS],
)
def test_it_serves_and_says_what_is_away(
    name: str,
    site: Site,  # noqa: F811
    sandbox: Sandbox,  # noqa: F811
    started: Callable[[Situation], subprocess.Popen[bytes]],
) -> None:
    """With a valid configuration an engine of `paired up` starts and serves, whatever is away."""
    situation, log = SITUATIONS[name], site.folder / "log"
    with away(sandbox, situation):
        process = started(situation)
        wait_until(lambda: "serving as" in log.read_text() or process.poll() is not None, "it serves", site)
        assert process.poll() is None, log.read_text()
        string = string_of(site)
        if situation.sends:
            assert send(string, f"{site.folder.name}-during"), log.read_text()
        if situation.environ:
            wait_until(lambda: situation.alarm in log.read_text(), situation.alarm, site)
        else:
            wait_until(lambda: any(situation.alarm in text for text in alarms(site)), situation.alarm, site)
    assert send(string, f"{site.folder.name}-after"), log.read_text()
    if situation.heals:
        wait_until(lambda: not any(situation.alarm in text for text in alarms(site)), "the alarm is over", site)


NOBODY = ["unshare", "--user", "--map-user=54321", "--map-group=54321"]
"""Runs a program as a user that the system does not know, in a user namespace of the kernel."""


@pytest.mark.slow
@pytest.mark.skipif(
    subprocess.run([*NOBODY, "true"], capture_output=True, check=False).returncode if shutil.which("unshare") else True,
    reason="no user namespaces here",
)
def test_a_user_without_home_and_without_a_name_has_an_engine(
    site: Site,  # noqa: F811
    started: Callable[..., subprocess.Popen[bytes]],
) -> None:
    """No home folder."""
    for variable in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        site.environ.pop(variable, None)
    site.environ["TMPDIR"] = str(site.folder)
    process = started(Situation(alarm=QUIET), prefix=NOBODY)
    log = site.folder / "log"
    wait_until(lambda: "serving as" in log.read_text() or process.poll() is not None, "it serves", site)
    assert process.poll() is None, log.read_text()
    assert (site.folder / "paired-54321" / "paired" / "orders" / "lock").exists()
    assert "Traceback" not in log.read_text()


@pytest.mark.slow
def test_a_folder_of_the_state_that_comes_later_is_used_without_a_restart(
    site: Site,  # noqa: F811
    started: Callable[[Situation], subprocess.Popen[bytes]],
) -> None:
    blocked = site.folder / "state"
    blocked.write_text("a file in its place")
    process = started(Situation(alarm=QUIET, environ={"XDG_RUNTIME_DIR": ""}))
    log = site.folder / "log"
    wait_until(lambda: "serving as" in log.read_text() or process.poll() is not None, "it serves", site)
    assert send(string_of(site), f"{site.folder.name}-during"), log.read_text()
    blocked.unlink()
    wait_until(lambda: alarms(site) == [] and site.places.lock.exists(), "it uses the folder", site)
    assert "the journal is written again" in log.read_text()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [("failover_interval = 'never'", "failover_interval"), ("backlog_queue_count = 0", "backlog_queue_count")],
)
def test_only_a_wrong_configuration_ends_it(site: Site, settings: str, sentence: str) -> None:  # noqa: F811
    """Refused at the start are only: a configuration that is wrong, …"""
    site.write(settings)
    done = site.paired("up", "--headless")
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
