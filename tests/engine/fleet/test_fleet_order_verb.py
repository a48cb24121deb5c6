"""`paired failover payments --fleet`: drafted, signed by ssh-keygen, posted, and answered by two engines."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus import cli
from paired_servicebus.core.fleet.fleet_documents import Board, board_path
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.engine.control.control_client import ControlClient
from tests.engine.fleet.test_engines_meet import Hosts, reporting, shown
from tests.engine.fleet.test_orders_over_the_fleet import Pair, engine, hosts, state

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
__all__ = ["hosts"]

Run = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def key(short: Path) -> Path:
    file = short / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
    return file


@pytest.fixture
def operators(short: Path, key: Path) -> Path:
    file = short / "operators"
    file.write_text(f"operator-a {key.with_suffix('.pub').read_text()}")
    file.chmod(0o600)
    return file


@pytest.fixture
def paired(capsys: pytest.CaptureFixture[str], key: Path) -> Run:
    """The command line over the engine that was made last: exit status, standard output and error."""

    async def run(*arguments: str, engine: str = "web-1") -> tuple[int, str, str]:
        chosen = [*arguments, "--key", str(key), "--engine", engine]
        status = await asyncio.to_thread(cli.main, chosen)
        out, err = capsys.readouterr()
        return status, out, err

    return run


async def know(paired: Any, console: ControlClient | None = None) -> None:
    """Let an engine know the entity, and wait until a console is told so."""
    paired.watch("payments")
    if console is not None:
        await shown(console, lambda fleet: "payments" in {one.path for one in fleet.entities})


async def test_all_engines_do_it_and_say_so(hosts: Hosts, operators: Path, paired: Run) -> None:
    shop, pay, console, _ = await Pair(hosts, operators).both(operators)
    await know(shop, console)
    status, out, err = await paired("failover", "payments", "--fleet", "--why", "drill")
    assert (status, State.FORCED in (state(shop), state(pay))) == (2, False)
    assert out.startswith("Force failover over the fleet: payments\n"), err
    assert "web-1 (" in out
    assert "needs --yes 2" in err
    status, out, err = await paired("failover", "payments", "--fleet", "--why", "drill", "--yes", "2", "--for", "2h")
    assert (status, err) == (0, "")
    assert "payments forced by operator-a until " in out
    assert out.rstrip().endswith(": 2 done")
    assert (state(shop), state(pay)) == (State.FORCED, State.FORCED)
    status, out, _ = await paired("release", "payments", "--fleet", "--on", "web-2", "--yes", "payments")
    assert (status, state(shop), state(pay) is State.FORCED) == (0, State.FORCED, False)


async def test_a_refusal_and_a_silent_engine_are_exit_status_1(hosts: Hosts, operators: Path, paired: Run) -> None:
    shop, _, console, _ = await Pair(hosts, operators).both(None)
    await know(shop, console)
    order = ("failover", "payments", "--fleet", "--yes", "2")
    status, out, _ = await paired(*order)
    assert status == 1
    assert "1 done · 1 refused (look only: no file of operators is configured: web-1)" in out
    status, _, err = await paired("failover", "payments", "--fleet", "--on", "web-9", "--yes", "payments")
    assert (status, "1 engine is silent (web-9): --partial orders the others" in err) == (2, True)
    gone = ("failover", "payments", "--fleet", "--on", "web-9", "--partial", "--yes", "payments", "--wait", "2s")
    status, out, _ = await paired(*gone)
    assert status == 3
    assert "1 silent (web-9): it takes it up when it comes back" in out


IMPOSSIBLE = (
    (
        ("failover", "x", "--fleet", "--yes", "x"),
        "no engine of the fleet has an entity 'x'; the fleet has payments",
    ),
    (("failover", "payments", "--fleet", "--for", "73h"), "stands for"),
    (("release", "payments", "--fleet", "--for", "1h"), "release does not stand, so it has no end"),
    (("failover", "payments", "--fleet", "--for", "long"), "--for is 'long'; it is a time such as 30s"),
    (("failover", "payments", "--partial"), "--partial is for an order over the fleet: add --fleet"),
    (
        ("failover", "payments", "--fleet", *(f"--on=shop-payments-{number:030}" for number in range(1000))),
        "1000 engines are named, and 50 are allowed: order all",
    ),
)


async def test_what_cannot_be_is_one_sentence(hosts: Hosts, operators: Path, paired: Run) -> None:
    pay = await engine(hosts, "web-2", operators)
    await know(pay)
    async with asyncio.timeout(60.0):  # a snapshot shows the entity within a second
        while "payments" not in (await paired(*IMPOSSIBLE[0][0], engine="web-2"))[2]:
            await asyncio.sleep(0.1)
    for arguments, sentence in IMPOSSIBLE:
        status, _, err = await paired(*arguments, engine="web-2")
        assert (status, sentence in err) == (2, True), err


async def test_a_fleet_that_cannot_be_read_gets_no_order(hosts: Hosts, operators: Path, paired: Run) -> None:
    pay = await engine(hosts, "web-2", operators)
    await know(pay)
    console = await hosts.watch("web-2")
    await shown(console, lambda fleet: reporting(fleet) == {"web-2"})
    for board in Board:
        hosts.sandbox["secondary"].node.faults.add("disabled", entity=board_path("primary", board))
    await shown(console, lambda fleet: fleet.trouble)
    status, _, err = await paired("failover", "payments", "--fleet", "--yes", "payments", engine="web-2")
    assert (status, "nothing was ordered: the fleet is unknown" in err) == (2, True), err
