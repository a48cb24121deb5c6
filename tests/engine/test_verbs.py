"""The verbs over an engine in this process: what they order, preview, refuse, find and print."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest
from prometheus_client.registry import CollectorRegistry

from paired_servicebus import cli
from paired_servicebus.core.drill.drill_plan import DrillOutcome, LastDrill
from paired_servicebus.core.errors import ConfigurationError, DrainError, EngineNotRunningError, EngineStartError
from paired_servicebus.core.model.fleet_view import FleetView
from paired_servicebus.core.model.pairing_events import (
    DeadLettered,
    Delivered,
    Diverted,
    Event,
    InDoubt,
    Moved,
    PingSent,
    Record,
)
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.engine.commands.drain_process import (
    MAX_AGE_SECONDS,
    NO_SPARK,
    DrainProcess,
    DrainProgress,
    clear_progress,
    latest,
    write_progress,
)
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.engine.instance.lock import LockHolder, acquire
from paired_servicebus.engine.journal import message_trace as find_module
from paired_servicebus.engine.journal import records, spool
from paired_servicebus.engine.journal.message_trace import as_json, as_lines, covered, find
from paired_servicebus.engine.readiness.readiness_check import DrillFile, last_drill, write_drill
from paired_servicebus.engine.service.launcher import Failed, Launch, Ready, Step, report
from paired_servicebus.engine.service.metrics import SnapshotCollector
from paired_servicebus.verbs import fleet_verb
from paired_servicebus.verbs.start_display import StartDisplay
from tests.approval import Approve
from tests.fleet_views import AT, calm, outage

from .conftest import Engine, Hosted, newest_snapshot
from .test_probes import snapshot

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
        (("syphon", "pause", "--engine", "all"), ("pause",)),
        (("syphon", "pause", "--queue", "1"), ("pause",)),
        (("syphon", "pause", "--destination", "orders"), ("pause",)),
    ],
)
async def test_a_verb_is_done_by_the_engine(
    hosted: Hosted, paired: Any, arguments: tuple[str, ...], act: tuple[str, ...]
) -> None:
    status, out, err = await paired(*arguments, *(() if "--engine" in arguments else HERE))
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
        (("syphon", "pause", "--engine", "other"), "start one with paired up; those that run: orders"),
        (("syphon", "pause", "--queue", "1", "--destination", "x"), "are two orders"),
        (("redrive", "9", "--yes", "9"), "uses no backlog queue '9'"),
        (("cleanup", "primary/x", "--yes", "primary/x"), "is not an unused backlog queue"),
    ],
)
async def test_what_cannot_be_is_one_sentence_and_exit_status_2(
    hosted: Hosted, paired: Any, arguments: tuple[str, ...], sentence: str
) -> None:
    status, out, err = await paired(*arguments, *(() if "--engine" in arguments else HERE))
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
        return replace(snapshot(fleet=answer["fleet"]), entities=())  # its engine sends nothing itself

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
        f'paired_fleet_engines{{pairing="{pairing}",state="failed over"}} 16.0',
        f'paired_fleet_engines{{pairing="{pairing}",state="silent"}} 2.0',
        f'paired_fleet_engines{{pairing="{pairing}",state="suspect"}} 0.0',
        f'paired_fleet_entity_engines{{entity="payments",pairing="{pairing}",state="failed over"}} 16.0',
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


# -- `paired find`: where a message went, out of the receipts in a journal's files -----------------------------------

DAY = 1_772_366_400.0
"""2026-03-01 12:00:00 UTC."""


def line(seq: int, event: Event) -> bytes:
    return records.encode(Record(engine="orders@web-1", boot="b", seq=seq, event=event)) + b"\n"


def write(folder: Path, *events: Event, name: str = "a", place: str = spool.CLOSED, tail: bytes = b"") -> Path:
    spool.prepare(folder)
    path = folder / place / f"{name}.jsonl"
    path.write_bytes(b"".join(line(seq, event) for seq, event in enumerate(events, 1)) + tail)
    return path


def diverted(message_id: str, at: float = DAY, queue: int = 3) -> Diverted:
    return Diverted(at=at, entity="orders", message_id=message_id, queue=queue)


def moved(message_id: str, at: float = DAY + 60, queue: int = 3) -> Moved:
    return Moved(at=at, entity="orders", message_id=message_id, queue=queue)


def test_a_message_is_followed_to_its_destination_and_what_the_journal_covers_is_said(
    tmp_path: Path, approve: Approve
) -> None:
    write(tmp_path, PingSent(at=DAY - 3600, entity="orders", number=1), diverted("other"), diverted("m-1"), name="a")
    write(tmp_path, moved("m-1"), name="b")
    figures = ("12:00:00  diverted: backlog/3", "12:01:00  moved: orders", "m-1: arrived at orders")
    approve.part(as_lines(find(tmp_path, "m-1"), "diverted"), "errors of the engine", has=figures)
    figures = (
        "m: not in the journal",
        "2026-03-01 11:00:00 to 2026-03-01 12:01:00 UTC in 2 files",
        'journal = "diverted"',
    )
    approve.part(as_lines(find(tmp_path, "m"), "diverted"), "errors of the engine", has=figures)


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ([diverted("m")], "parked in backlog/3, unless a syphon on another machine has moved it"),
        (
            [InDoubt(at=DAY, entity="orders", message_id="m", route="primary", reason="timeout")],
            "in doubt: whether it arrived is not known here; ask the receivers for its message_id",
        ),
        (
            [diverted("m"), DeadLettered(at=DAY, entity="orders", message_id="m", queue=3, reason="too large")],
            "in the dead-letter queue of backlog/3",
        ),
        ([Delivered(at=DAY, entity="orders", message_id="m")], "arrived at orders"),
        ([diverted("m"), moved("m"), moved("m")], "arrived at orders 2 times"),
        ([diverted("m"), diverted("m", queue=1), moved("m")],
         "arrived at orders; parked in backlog/1, unless a syphon on another machine has moved it"),
    ],
)  # fmt: skip
def test_the_outcome_says_where_the_message_is(tmp_path: Path, events: list[Event], outcome: str) -> None:
    write(tmp_path, *events)
    assert find(tmp_path, "m").outcome == outcome


def test_files_that_an_engine_still_writes_are_read_too(tmp_path: Path) -> None:
    write(tmp_path, diverted("m"), name="a")
    write(tmp_path, moved("m"), name="b", place=spool.OPEN)
    assert [step.kind for step in find(tmp_path, "m").steps] == ["diverted", "moved"]


def test_a_file_that_becomes_whole_meanwhile_is_found_in_its_new_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, diverted("m"), place=spool.OPEN)
    listed = find_module.files_of(tmp_path)
    path.rename(tmp_path / spool.CLOSED / path.name)
    monkeypatch.setattr(find_module, "files_of", lambda _: listed)
    assert [step.kind for step in find(tmp_path, "m").steps] == ["diverted"]


def test_torn_lines_are_skipped_and_said(tmp_path: Path, approve: Approve) -> None:
    write(tmp_path, diverted("m"), tail=line(2, moved("m"))[:-20])
    found = find(tmp_path, "m")
    assert [step.kind for step in found.steps] == ["diverted"]
    approve.part(covered(found, "diverted"), "errors of the engine", has=("1 torn",))
    approve.part(as_lines(found, "diverted")[-1], "errors of the engine", has=("2 of",))


@pytest.mark.parametrize("is_there", [True, False])
def test_a_journal_without_files_is_an_error_that_says_where_it_looked(tmp_path: Path, is_there: bool) -> None:
    folder = tmp_path / "spool"
    if is_there:
        spool.prepare(folder)
    with pytest.raises(ConfigurationError, match=f"no journal files in {folder}: no engine of this pairing has run"):
        find(folder, "m")


def test_lines_that_cannot_be_read_are_said_wherever_they_are(tmp_path: Path, approve: Approve) -> None:
    """One of them may be the receipt that is looked for."""
    path = write(tmp_path, diverted("m"), moved("other"), moved("m"), moved("m"))
    first, second, third, fourth = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, second.replace(b"moved", b"m\xffved"), third[:-1], fourth, b""]))
    found = find(tmp_path, "m")
    assert [step.kind for step in found.steps] == ["diverted", "moved"]
    assert found.torn == 2
    (said,) = found.unread
    approve.part(said, "errors of the engine", has=("2 lines",))
    approve.part(find(tmp_path, "lost").outcome, "errors of the engine")


@pytest.mark.parametrize("message_id", ['"quoted"', "ünïcode", "line\nbreak", "back\\slash", "m"])
def test_an_id_is_compared_as_a_whole(tmp_path: Path, message_id: str) -> None:
    write(tmp_path, diverted(message_id), diverted(message_id + "0"), diverted("0" + message_id))
    assert len(find(tmp_path, message_id).steps) == 1


def test_an_id_inside_of_a_reason_is_not_that_message(tmp_path: Path) -> None:
    write(tmp_path, InDoubt(at=DAY, entity="orders", message_id="m", route="primary", reason='"message_id":"x"'))
    assert find(tmp_path, "x").steps == ()


def test_an_id_that_is_empty_or_not_utf_8_is_refused(tmp_path: Path, approve: Approve) -> None:
    with pytest.raises(ConfigurationError) as refused:
        find(tmp_path, "")
    approve.part(refused.value, "errors of the engine", has=("message_id",))
    write(tmp_path, diverted("m"))
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        find(tmp_path, "m\udcff")


def test_json_carries_the_same(tmp_path: Path, approve: Approve) -> None:
    write(tmp_path, diverted("m"))
    told = json.loads(as_json(find(tmp_path, "m"), "diverted"))
    assert (told["found"], told["steps"][0]["kind"], told["first_at"]) == (True, "diverted", DAY)
    approve.part(told["outcome"], "errors of the engine", has=("backlog/3",))


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pairing.toml whose journal lies in the folder that is returned."""
    key = "SharedAccessKeyName=Root;SharedAccessKey=k;UseDevelopmentEmulator=true"
    tables = "".join(f'[{name}]\nconnection_string = "Endpoint=sb://127.0.0.1;{key}"\n' for name in
                     ("primary", "secondary"))  # fmt: skip
    (tmp_path / "pairing.toml").write_text(f'[pairing]\nname = "orders"\n{tables}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "paired" / "orders" / "spool"


def test_the_command_exits_with_0_for_found_and_1_for_not(
    traced: Path, capsys: pytest.CaptureFixture[str], approve: Approve
) -> None:
    write(traced, diverted("m\x1b[2J"))
    assert cli.main(["find", "m\x1b[2J"]) == 0
    approve.part(capsys.readouterr().out, "errors of the engine", has=("backlog/3",))
    assert cli.main(["find", "other", "--json"]) == 1
    approve.part(json.loads(capsys.readouterr().out)["outcome"], "errors of the engine")
    assert cli.main(["find", ""]) == 2


# -- A drain that runs beside an engine is in its snapshot, as long as it says something -----------------------------

SAID = "a drain runs beside: 12 moved"
EARLIER = msgspec.structs.replace(DrainProgress.now(SAID), at=100.0)


def test_what_is_old_or_torn_is_nothing(tmp_path: Path) -> None:
    assert latest(tmp_path, now=100.0) is None
    write_progress(tmp_path, EARLIER)
    assert latest(tmp_path, now=101.0) == EARLIER
    assert latest(tmp_path, now=101.0 + MAX_AGE_SECONDS) is None
    (tmp_path / "drain.json").write_bytes(b'{"at":')
    assert latest(tmp_path, now=101.0) is None


def test_a_drain_that_is_over_says_nothing_and_may_end_twice(tmp_path: Path) -> None:
    write_progress(tmp_path, EARLIER)
    clear_progress(tmp_path)
    clear_progress(tmp_path)
    assert latest(tmp_path, now=100.0) is None


async def test_the_engine_says_that_a_drain_runs_and_no_more_when_it_is_over(engine: Engine) -> None:
    async with engine() as hosted, hosted.console() as client:
        write_progress(hosted.spool, DrainProgress.now(SAID))
        snapshot = await newest_snapshot(client, lambda each: SAID in each.syphon.text)
        assert snapshot.syphon.text == f"{hosted.pairing.syphon.text}; {SAID}"
        clear_progress(hosted.spool)
        snapshot = await newest_snapshot(client, lambda each: SAID not in each.syphon.text)
        assert snapshot.syphon.text == hosted.pairing.syphon.text


# -- one that is ordered from the engine -------------------------------------------------------------------------------

STANDS_IN = """
import json, signal, sys, time
from pathlib import Path
from paired_servicebus.engine.commands.drain_process import DrainProgress, write_progress
spool, end = Path(sys.argv[1]), sys.argv[2]
if end == "refused":
    sys.exit("paired: orders@here syphons the same backlog queues")
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
while not told and end == "when told":
    write_progress(spool, DrainProgress.now("12 moved"))
    time.sleep(0.05)
write_progress(spool, DrainProgress.now("12 moved"))
print(json.dumps({"complete": end == "at once", "moved": 12, "text": "it was told to end"}))
sys.exit(end != "at once")
"""
"""In place of `paired drain`: says how far it is, ends in order at SIGTERM, and says what came of it."""


Drains = Callable[[str], DrainProcess]


@pytest.fixture
async def drains(tmp_path: Path) -> AsyncIterator[Drains]:
    made: list[DrainProcess] = []

    def drain(end: str) -> DrainProcess:
        command = (sys.executable, "-c", STANDS_IN, str(tmp_path), end)
        made.append(
            DrainProcess(tmp_path / "pairing.toml", pairing="orders", spool=tmp_path, say=said.append, command=command)
        )
        return made[-1]

    said.clear()
    yield drain
    for one in made:
        await one.close()


said: list[str] = []


async def first_said() -> str:
    """What is said first, as soon as it is."""
    async with asyncio.timeout(60):
        while not said:
            await asyncio.sleep(0.02)
    return said[0]


async def test_it_runs_beside_the_engine_and_ends_in_order_when_told(drains: Drains) -> None:
    draining = drains("when told")
    assert draining.view(time.time()).text == ""
    started = await draining.start(why="the outage of Tuesday")
    assert "the syphon's line shows its progress" in started
    assert draining.view(time.time()).text == "12 moved"
    with pytest.raises(DrainError, match="drains already"):
        await draining.start(why="")
    assert "settles its messages in flight" in draining.end()
    ended = "the drain ended, and not all is drained (it was told to end): 12 messages moved"
    assert await first_said() == ended


async def test_what_it_moved_is_said_when_it_is_done(drains: Drains) -> None:
    await drains("at once").start(why="")
    assert await first_said() == "the drain is done: 12 messages moved"


async def test_why_it_does_not_begin_is_the_answer(drains: Drains) -> None:
    draining = drains("refused")
    with pytest.raises(DrainError, match="orders@here syphons the same backlog queues"):
        await draining.start(why="")
    assert draining.view(time.time()).text == ""
    with pytest.raises(DrainError, match="no drain of this pairing runs"):
        draining.end()


async def test_it_ends_with_the_engine(drains: Drains) -> None:
    draining = drains("when told")
    await draining.start(why="")
    await draining.close()
    assert any("12 messages moved" in text for text in said)


def test_one_that_a_person_started_is_ended_too_unless_it_is_elsewhere(
    tmp_path: Path, drains: Drains, monkeypatch: pytest.MonkeyPatch
) -> None:
    draining, killed = drains("at once"), []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    write_progress(tmp_path, msgspec.structs.replace(DrainProgress.now("12 moved"), pid=4711))
    draining.end()
    assert killed == [(4711, signal.SIGTERM)]
    write_progress(tmp_path, msgspec.structs.replace(DrainProgress.now("12 moved"), pid=4711, host="far"))
    with pytest.raises(DrainError, match="runs on far: end it there"):
        draining.end()


def test_without_spark_the_act_is_grey_and_says_so(drains: Drains, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paired_servicebus.engine.commands.drain_process.find_spec", lambda _: None)
    assert drains("at once").view(time.time()).trouble == NO_SPARK


# -- The file with the last drill: found by the namespaces' names, in any pairing's folder; a damaged one is none ----


@pytest.fixture
def drill_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


def keep(pairing: str, began: float, *, primary: str = "north", secondary: str = "south") -> LastDrill:
    drill = LastDrill(began=began, ended=began + 30, outcome=DrillOutcome.BROKEN, text="late", configured=True)
    write_drill(engine_paths(pairing), DrillFile(run="0123456789ab", primary=primary, secondary=secondary, drill=drill))
    return drill


@pytest.mark.usefixtures("drill_folder")
def test_the_newest_on_the_same_namespaces_counts_whatever_the_pairing_is_called() -> None:
    assert last_drill(primary="north", secondary="south") is None
    keep("orders", 100.0)
    newest = keep("web", 200.0)
    keep("payments", 300.0, secondary="west")
    keep("stock", 400.0, primary="east")
    assert last_drill(primary="North", secondary="SOUTH") == newest
    assert last_drill(primary="south", secondary="north") is None
    keep("orders", 250.0)
    last = keep("orders", 240.0)
    assert last_drill(primary="north", secondary="south") == last, "a pairing keeps its last one alone"


@pytest.mark.usefixtures("drill_folder")
@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff", b'{"run": 1}', b"[" * 100_000])
def test_a_damaged_file_is_none_and_hides_no_other(damage: bytes) -> None:
    kept = keep("orders", 100.0)
    keep("web", 200.0)
    engine_paths("web").drill.write_bytes(damage)
    assert last_drill(primary="north", secondary="south") == kept
