"""The verbs that act, over an engine in this process: what they order, preview, refuse and print."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.registry import CollectorRegistry

from paired_servicebus import cli
from paired_servicebus.core.errors import EngineNotRunningError, EngineStartError
from paired_servicebus.core.model.fleet_view import FleetView
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.engine.instance.lock import LockHolder, acquire
from paired_servicebus.engine.service.launcher import Failed, Launch, Ready, Step, report
from paired_servicebus.engine.service.metrics import SnapshotCollector
from paired_servicebus.verbs import fleet_verb
from paired_servicebus.verbs.start_display import StartDisplay
from tests.approval import Approve
from tests.fleet_views import AT, calm, outage

from .conftest import Engine, Hosted
from .test_metrics import snapshot

SPARE = "contoso/x-servicebus-transfer/7"


@pytest.fixture
async def hosted(engine: Engine, short: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hosted]:
    """An engine of the pairing "orders", found by its lock."""
    monkeypatch.setenv("XDG_STATE_HOME", str(short))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    places = engine_paths("orders")
    places.prepare()
    async with engine(folder=places.state) as standing:
        fd = acquire(places.lock, LockHolder(pid=os.getpid(), socket=str(standing.socket), log="-"))
        yield standing
        os.close(fd)


@pytest.fixture
def paired(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The command line: exit status, standard output and error."""

    async def run(*arguments: str) -> tuple[int, str, str]:
        status = await asyncio.to_thread(cli.main, list(arguments))
        out, err = capsys.readouterr()
        return status, out, err

    return run


HERE = ("--engine", "orders")


@pytest.mark.parametrize(
    ("arguments", "act"),
    [
        (("failover", "orders", "--yes", "orders", "--why", "drill"), ("force", "orders")),
        (("failover", "orders", "--yes", "ORDERS"), ("force", "orders")),
        (("pin", "payments", "--yes", "payments"), ("pin", "payments")),
        (("redrive", "1", "--yes", "1"), ("redrive", "1")),
        (("redrive", "backlog/1", "--yes", "1"), ("redrive", "1")),
        (("move-stranded", SPARE, "--yes", SPARE), ("move-stranded", SPARE)),
        (("cleanup", SPARE, "--yes", SPARE, "--no-other-host-uses-it"), ("clean-up", SPARE)),
        (("cleanup", "7", "--yes", SPARE, "--no-other-host-uses-it"), ("clean-up", SPARE)),
        (("syphon", "pause"), ("pause",)),
        (("syphon", "pause", "--queue", "1"), ("pause",)),
        (("syphon", "pause", "--destination", "orders"), ("pause",)),
    ],
)
async def test_a_verb_is_done_by_the_engine(
    hosted: Hosted, paired: Any, arguments: tuple[str, ...], act: tuple[str, ...]
) -> None:
    status, out, err = await paired(*arguments, *HERE)
    assert (status, err) == (0, "")
    assert out.startswith("orders@")
    assert [done[: len(act)] for done in hosted.pairing.acts] == [act]


async def test_all_that_match_are_ordered_together_and_typed_by_their_number(hosted: Hosted, paired: Any) -> None:
    status, out, _ = await paired("failover", "--matching", "RD", "--yes", "orders", *HERE)
    assert (status, "orders is forced now" in out) == (0, True)
    status, out, _ = await paired("release", "--matching", "", "--yes", "2", *HERE)
    assert status == 2, "payments has nothing to release"
    status, out, _ = await paired("pin", "--matching", "", "--yes", "2", *HERE)
    assert status == 0
    assert "2 of 2 done" in out
    assert "senders elsewhere are not affected; their state is unknown" in out


@pytest.mark.parametrize("yes", [(), ("--yes", "order"), ("--yes", "payments")])
async def test_without_the_name_nothing_is_done_and_the_preview_is_said(
    hosted: Hosted, paired: Any, yes: tuple[str, ...]
) -> None:
    status, out, err = await paired("failover", "orders", *yes, *HERE)
    assert status == 2
    missed = "this engine sends nothing to orders: no sender is diverted; applications elsewhere are unaffected"
    assert out.startswith(f"Force failover: orders — {missed}\nFrom now on  {missed}")
    assert "nothing was done: force failover needs --yes orders" in err
    assert hosted.pairing.acts == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("failover", "nothing", "--yes", "nothing"), "this engine has no entity 'nothing'; it has orders, payments"),
        (("failover",), "name the entities, or --matching TEXT"),
        (("failover", "--matching", "z", "--yes", "0"), "none of its 2 entities has 'z' in its path"),
        (("release", "orders", "--yes", "orders"), "refused: orders is unknown: nothing to release"),
        (("syphon", "resume"), "the syphon is not paused"),
        (("syphon", "pause", "--queue", "1", "--destination", "x"), "are two orders"),
        (("redrive", "9", "--yes", "9"), "uses no backlog queue '9'"),
        (("cleanup", "primary/x", "--yes", "primary/x"), "is not an unused backlog queue"),
    ],
)
async def test_what_cannot_be_is_one_sentence_and_exit_status_2(
    hosted: Hosted, paired: Any, arguments: tuple[str, ...], sentence: str
) -> None:
    status, out, err = await paired(*arguments, *HERE)
    assert (status, out) == (2, "")
    assert sentence in err
    assert hosted.pairing.acts == []


@pytest.mark.parametrize("given", [(), ("--yes", SPARE), ("--no-other-host-uses-it",)])
async def test_clean_up_needs_the_name_and_the_word_that_no_other_host_uses_the_queue(
    hosted: Hosted, paired: Any, given: tuple[str, ...]
) -> None:
    """Section 12: "Every question, page and verb says whom it reaches, whom not, and what it cannot know"."""
    status, out, err = await paired("cleanup", SPARE, *given, *HERE)
    assert status == 2
    assert "Unknown      whether engines or applications of other hosts or users still use it" in out
    missing = "" if "--no-other-host-uses-it" in given else " and --no-other-host-uses-it"
    assert f"nothing was done: clean up needs --yes {SPARE}{missing}" in err
    assert hosted.pairing.acts == []


async def test_unused_queues_are_listed(hosted: Hosted, paired: Any) -> None:
    status, out, _ = await paired("cleanup", *HERE)
    assert status == 0
    assert "unused backlog queues: 1 (read 00:00:01 UTC)" in out
    assert f"{SPARE}  0 messages" in out
    assert hosted.pairing.acts == []


async def test_all_engines_are_asked(hosted: Hosted, paired: Any) -> None:
    status, _, _ = await paired("syphon", "pause", "--engine", "all")
    assert status == 0
    assert hosted.pairing.syphon.status is SyphonStatus.PAUSED


async def test_an_engine_that_does_not_run_is_said_with_those_that_do(hosted: Hosted, paired: Any) -> None:
    status, _, err = await paired("syphon", "pause", "--engine", "other")
    assert status == 2
    assert "no engine of the pairing other runs here: start one with paired up; those that run: orders" in err


async def test_read_only_is_switched_by_verbs(hosted: Hosted, paired: Any) -> None:
    assert (await paired("read-only", "on", *HERE))[0] == 0
    status, _, err = await paired("failover", "orders", "--yes", "orders", *HERE)
    assert status == 2
    assert "refused: this engine is read-only, and force failover changes something" in err
    status, _, err = await paired("read-only", "off", *HERE)
    assert "needs --yes orders" in err
    assert (await paired("read-only", "off", "--yes", "orders", *HERE))[0] == 0
    assert (await paired("failover", "orders", "--yes", "orders", *HERE))[0] == 0


# -- `paired fleet`, and the fleet's metrics: made-up views, no engine.


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the engine answers: a fleet, or an error."""
    answer: dict[str, Any] = {"fleet": calm()}

    async def first(_socket: Path, *, fleet: bool) -> Snapshot:
        assert fleet, "the boards are read for it"
        if "error" in answer:
            raise answer["error"]
        return snapshot(fleet=answer["fleet"])

    monkeypatch.setattr(fleet_verb, "time", SimpleNamespace(time=lambda: AT))
    monkeypatch.setattr(fleet_verb, "select_engines", lambda engines: ("places",))
    monkeypatch.setattr(fleet_verb, "require_socket", lambda places: Path("/s"))
    monkeypatch.setattr(fleet_verb, "first_snapshot", first)
    return answer


@pytest.mark.parametrize(
    ("fleet", "status"),
    [(calm(), 0), (outage(), 1), (replace(calm(), trouble="timeout"), 3), (FleetView(me="a"), 3)],
)
def test_the_exit_status_and_the_object(
    told: dict[str, Any], capsys: pytest.CaptureFixture[str], fleet: FleetView, status: int
) -> None:
    told["fleet"] = fleet
    assert cli.main(["fleet"]) == status
    assert capsys.readouterr().out.startswith("fleet: ")
    assert cli.main(["fleet", "--json"]) == status
    said = json.loads(capsys.readouterr().out)
    assert (said["exit"], len(said["fleet"]["engines"])) == (status, len(fleet.engines))


def test_a_fleet_that_is_off_and_no_engine_are_a_sentence_each(
    told: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    told["fleet"] = None
    assert cli.main(["fleet"]) == 2
    error = capsys.readouterr().err
    assert "the fleet is off in the engine" in error
    assert "add [fleet] to its pairing.toml" in error
    told["error"] = EngineNotRunningError("no engine of orders runs here: start one with paired up")
    assert cli.main(["fleet"]) == 3
    assert capsys.readouterr().err == "paired: no engine of orders runs here: start one with paired up\n"
    assert cli.main(["fleet", "--watch", "--json"]) == 2


async def test_a_watch_draws_each_picture_and_ends_with_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    class Client:
        async def updates(self) -> Any:
            yield snapshot(fleet=outage())

    drawn: list[Any] = []
    assert await fleet_verb.draw_snapshots(Client(), drawn.append) == 1  # type: ignore[arg-type]
    assert drawn[0][0].startswith("fleet: degraded, 20 engines")
    assert "the engine ended" in capsys.readouterr().err


def metrics(of: Snapshot) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(lambda: of))
    return generate_latest(registry).decode()


def test_metrics_of_the_fleet() -> None:
    text = metrics(snapshot(fleet=outage()))
    pairing = snapshot().pairing
    for sample in (
        f'paired_fleet_engines{{pairing="{pairing}",state="failed over"}} 15.0',
        f'paired_fleet_engines{{pairing="{pairing}",state="silent"}} 2.0',
        f'paired_fleet_engines{{pairing="{pairing}",state="suspect"}} 0.0',
        f'paired_fleet_entity_engines{{entity="payments",pairing="{pairing}",state="failed over"}} 15.0',
        f'paired_fleet_engines_expected{{pairing="{pairing}"}} 20.0',
        f'paired_fleet_reached{{pairing="{pairing}"}} 1.0',
        f'paired_fleet_read_timestamp_seconds{{pairing="{pairing}"}}',
    ):
        assert sample in text
    assert "paired_fleet" not in metrics(snapshot())
    unread = metrics(snapshot(fleet=FleetView(me="a")))
    assert "paired_fleet_engines{" not in unread
    assert f'paired_fleet_reached{{pairing="{pairing}"}} 0.0' in unread


# -- The steps of a start: from the engine through the pipe to the terminal of the person who waits.


READY = Ready(pid=1, socket="/s", log="/l", backlog_queues=10)
REACHED = Step(name="contoso-backup", text="reached in 0.2 s", is_over=True)
WAITING = Step(name="contoso", text="no answer yet (timeout after 10 s)")


class Gone:
    """A process that has ended."""

    def terminate(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int:
        return 0


def steps_then(outcome: Ready | Failed, tmp_path: Path) -> tuple[Launch, list[Step | None]]:
    reading, writing = os.pipe()
    for said in (WAITING, REACHED, outcome):
        report(writing, said)
    return Launch(Gone(), reading, tmp_path / "log"), []  # type: ignore[arg-type]


def test_the_starter_gets_each_step_before_the_report(tmp_path: Path) -> None:
    launch, told = steps_then(READY, tmp_path)
    with launch:
        assert launch.wait(5, told=told.append) == READY
    assert told == [WAITING, REACHED]


def test_a_failure_after_some_steps_is_its_own_sentence(tmp_path: Path) -> None:
    launch, told = steps_then(Failed(text="the secondary does not answer"), tmp_path)
    with launch, pytest.raises(EngineStartError, match="the secondary does not answer"):
        launch.wait(5, told=told.append)


def test_a_live_terminal_shows_what_is_waited_for_and_how_long(approve: Approve) -> None:
    out, now = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), [0.0]
    shown = StartDisplay("orders", out, is_live=True, monotonic=lambda: now[0])
    shown(WAITING)
    shown(REACHED)
    now[0] = 6.0
    shown(None)
    out.seek(0)
    last = out.read().split("\x1b[3A")[-1]
    approve.part(last, "errors of the engine", has=("10 s", "6 s", "0.2 s"))


def test_a_terminal_that_cannot_move_its_cursor_gets_the_steps_that_are_over(approve: Approve) -> None:
    out = io.StringIO()
    shown = StartDisplay("orders", out, is_live=False)
    for step in (WAITING, None, REACHED):
        shown(step)
    approve.part(out.getvalue(), "errors of the engine", has=("0.2 s",))


def test_a_strangers_text_in_a_step_moves_no_cursor() -> None:
    out = io.StringIO()
    StartDisplay("orders", out, is_live=False)(Step(name="a\x1b[2Jb", text="c\x1b]52;x", is_over=True))
    assert "\x1b" not in out.getvalue()
