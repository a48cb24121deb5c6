"""The demo without a screen, as a stranger runs it: its own processes, real AMQP, the balance at the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.command import run_here
from tests.demo.captions import LONGEST_CAPTION
from tests.examples.any_language import (
    VARIABLE,
    LanguagesResult,
    SenderProcess,
    SenderResult,
    cast_caption,
    languages_lines,
    named_senders,
    what_languages_broke,
)
from tests.examples.sender_programs import FOREIGN, SenderProgram, find_programs, python_program

from paired_servicebus.core.accounting.ledger import SendOutcome, balance
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.fleet_view import FleetOrder
from paired_servicebus.demo.fleet_player import (
    LOOPBACK,
    FleetTally,
    NetworkLink,
    answers_caption,
    taken_up_caption,
)
from paired_servicebus.demo.result import (
    CUT_OFF,
    HOSTS,
    READ_ONLY,
    DemoResult,
    EntityResult,
    FleetResult,
    HostResult,
    MessageCounts,
    PingCounts,
    SyphonResult,
    as_lines,
)
from paired_servicebus.demo.runner import examples_clone
from paired_servicebus.demo.scenarios import ANY_LANGUAGE

DURATION = 24
"""Seconds of sending: the fault then lasts 9.6 s, long enough for failover (3 s) and for pings every 2 s."""
ENTITIES = ["orders", "payments", "audit"]


def play(
    scenario: str, *, seed: int = 1, duration: float = DURATION, **environ: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "paired_servicebus", "demo", "--headless", "--json", "--no-spark"]
    options = ["--scenario", scenario, "--duration", str(duration), "--seed", str(seed)]
    environment = os.environ | environ
    return subprocess.run(
        [*command, *options], env=environment, capture_output=True, text=True, timeout=390, check=False
    )


def result_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def balanced(result: dict[str, Any]) -> bool:
    messages = result["messages"]
    return (
        result["verdict"] == "balanced"
        and (messages["lost"], messages["unexpected"], messages["parked"]) == (0, 0, 0)
        and messages["accepted"] > 100
    )


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_datacenter_outage_fails_over_every_entity_and_back_and_loses_nothing() -> None:
    result = result_of(play("datacenter-outage"))
    assert balanced(result), result
    assert {name: one["failovers"] for name, one in result["entities"].items()} == dict.fromkeys(ENTITIES, 1)
    assert {name: one["failbacks"] for name, one in result["entities"].items()} == dict.fromkeys(ENTITIES, 1)
    assert result["syphon"]["moved"] > 0
    assert result["pings"]["sent"] >= result["pings"]["accepted"] >= len(ENTITIES)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_an_order_over_the_fleet_is_done_by_six_refused_by_one_and_taken_up_by_one_that_comes_back() -> None:
    result = result_of(play("fleet", duration=15))
    figures = result["fleet"]
    assert figures["done"] == [f"web-{number}" for number in range(1, 7)]
    assert list(figures["refused"]) == ["web-8"]
    assert "read-only" in figures["refused"]["web-8"]
    assert figures["silent"] == list(figures["taken_up"]) == ["web-7"]
    assert figures["taken_up"]["web-7"] >= figures["back_at"]
    assert (result["verdict"], result["messages"]["lost"], result["messages"]["parked"]) == ("balanced", 0, 0)
    assert result["syphon"]["moved"] > 0


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_senders_of_any_language_notice_no_outage_and_their_lists_agree_with_what_arrived() -> None:
    clone = Path(__file__).parents[2] / "console"  # what runs may be installed: the senders are in the clone alone
    result = result_of(play("any-language", duration=15, PYTHONPATH=str(clone)))
    assert balanced(result), result
    senders, missing = result["languages"]["senders"], result["languages"]["missing"]
    assert {one["language"] for one in senders.values()} | set(missing) == {"JavaScript", "Java", "Go", "Python"}
    assert len(senders) == 3 + (not missing)
    assert {one["errors"] for one in senders.values()} == {0}
    assert sum(one["accepted"] for one in senders.values()) == result["messages"]["accepted"]
    assert result["languages"]["connections_lost"] == 0
    assert result["syphon"]["moved"] > 0


def test_the_scenarios_are_listed() -> None:
    from paired_servicebus.demo.scenarios import LISTED

    listed = run_here("demo", "--list").stdout.splitlines()
    assert [line.split()[0] for line in listed] == [scenario.name for scenario in LISTED]
    assert max(map(len, listed)) <= 110


def test_the_result_has_the_keys_that_are_promised() -> None:
    from paired_servicebus.demo.result import DemoResult, MessageCounts

    assert set(MessageCounts.__struct_fields__) == {
        "attempted",
        "accepted",
        "refused",
        "in_doubt",
        "recovered",
        "delivered",
        "dead_lettered",
        "expired",
        "parked",
        "lost",
        "unexpected",
        "duplicates",
        "out_of_order",
    }
    promised = {"scenario", "seed", "messages", "entities", "pings", "syphon", "billed_operations", "verdict"}
    assert promised | {"audit", "report"} <= set(DemoResult.__struct_fields__)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--scenario", "earthquake"], "there is no scenario 'earthquake'"),
        (["--duration", "3"], "it must be at least"),
        (["--duration", "soon"], "duration"),
        (["--seed", "x"], "seed"),
        (["--keep", "/usr"], "--keep is /usr, which is not an empty folder"),
        (["--keep", "/etc/passwd"], "--keep is /etc/passwd, which is not an empty folder"),
        (["--keep", "never-made", "--no-spark"], "--no-spark makes none"),
    ],
)
def test_bad_options_are_one_sentence_and_exit_2(options: list[str], says: str) -> None:
    done = run_here("demo", "--headless", *options)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGTERM, signal.SIGHUP))],
    ids=lambda number: number.name,
)
def test_a_demo_whose_command_is_killed_leaves_no_process_and_no_folder(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-m", "paired_servicebus", "demo", "--headless", "--duration", "60"]
    with subprocess.Popen(command, env=os.environ | {"TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline()  # it plays
        demo.send_signal(number)
    end = time.monotonic() + 60
    while list(tmp_path.iterdir()) and time.monotonic() < end:
        time.sleep(0.1)
    assert not list(tmp_path.iterdir())


JUDGED_FOR_EVER = """
import threading
from paired_servicebus.demo import pipeline_audit, runner

def judged(result, order, keep):
    print("it is judged", flush=True)
    threading.Event().wait(60)

pipeline_audit.judged = judged
runner._watch = lambda worker, order: runner.DemoResult
runner.run_demo(scenario="throttling", duration=60, seed=1, headless=False, json_line=True)
"""


def test_one_that_is_ended_while_its_journal_is_judged_leaves_no_folder(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", JUDGED_FOR_EVER], env=environment, stdout=subprocess.PIPE) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline()
        demo.terminate()
    assert demo.returncode == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())


# -- A ledger that does not balance ends the demo with status 1 and names the ids.


def test_a_lost_message_unbalances_the_result_and_is_named() -> None:
    ledger = balance(answers={"a-1": SendOutcome.ACCEPTED}, arrivals=[])
    result = DemoResult(
        scenario="datacenter-outage",
        seed=1,
        messages=MessageCounts.of(ledger),
        entities={"orders": EntityResult(failovers=0, failbacks=0, seconds_failed_over=0.0)},
        pings=PingCounts(sent=0, accepted=0),
        syphon=SyphonResult(moved=0),
        billed_operations=0,
        verdict=ledger.verdict,
        lost_ids=list(ledger.lost_ids),
    )
    assert not result.balanced
    assert "LOST a-1" in as_lines(result)


# -- The fleet scenario: what its result demands, and its network that is cut. test_demo.py plays it.


MEANT = HOSTS[:6]
CUT_AT, BACK_AT = 100.0, 200.0
REFUSAL = "this engine is read-only, and force failover changes something"


def order(**changes: Any) -> FleetOrder:
    chosen: dict[str, Any] = {"done": MEANT, "refused": ((READ_ONLY, REFUSAL),), "silent": ((CUT_OFF, 99.0),)}
    return FleetOrder(
        id="o1", verb="force", targets=("orders",), by="operator", at=150.0, until=None, **chosen | changes
    )


def account(name: str, **changes: Any) -> HostResult:
    forced = {CUT_OFF: 203.0, READ_ONLY: None}.get(name, 152.0)
    chosen: dict[str, Any] = {"sent": 9, "forced_at": forced, "is_forced": False, "diverted": 5}
    return HostResult(**chosen | changes)


def tally(**changes: Any) -> FleetTally:
    back = order(done=(*MEANT, CUT_OFF), silent=())
    chosen: dict[str, Any] = {"forced": order(), "taken_up": back, "released": order(done=HOSTS, refused=(), silent=())}
    return FleetTally(cut_at=CUT_AT, back_at=BACK_AT, **chosen | changes)


def fleet(*, hosts: dict[str, HostResult] | None = None, **changes: Any) -> FleetResult:
    return tally(**changes).fleet_result({name: account(name) for name in HOSTS} | (hosts or {}))


def test_the_play_as_it_has_to_be() -> None:
    result = fleet()
    assert result.broken == []
    assert result.taken_up == {CUT_OFF: 203.0}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"forced": order(done=MEANT[:5]), "taken_up": order(done=(*MEANT[:5], CUT_OFF))},
            "the order was done by web-1, web-2, web-3, web-4, web-5 and had to be by",
        ),
        ({"forced": order(refused=())}, "the order was refused by none and had to be by web-8 (read-only)"),
        ({"forced": order(refused=((READ_ONLY, "look only"),))}, "refused by web-8 (look only) and had to be"),
        ({"forced": order(silent=())}, "no answer came from none and had to be missing from web-7"),
        ({"taken_up": order()}, "the order was taken up by none and had to be by web-7"),
        ({"released": order()}, "web-5, web-6 and had to be by web-1, web-2, web-3, web-4, web-5, web-6, web-7, web-8"),
    ],
)
def test_answers_that_did_not_come_are_said(changes: dict[str, Any], sentence: str) -> None:
    broken = fleet(**changes).broken
    assert [sentence in one for one in broken] == [True], broken


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("web-3", {"sent": 0}, "web-3 sent nothing"),
        ("web-3", {"is_forced": True}, "web-3 is still forced"),
        ("web-3", {"diverted": 0}, "web-3 diverted no message"),
        ("web-3", {"forced_at": None}, "web-3 never carried the order out"),
        ("web-3", {"forced_at": 99.0}, "web-3 carried the order out at 00:01:39; the network was back at 00:03:20"),
        (CUT_OFF, {"forced_at": 152.0}, "web-7 carried the order out at 00:02:32; the network was back at 00:03:20"),
        (READ_ONLY, {"forced_at": 152.0}, "web-8 is read-only, and carried the order out at 00:02:32"),
    ],
)
def test_an_account_that_differs_from_the_answers_is_said(name: str, changes: dict[str, Any], sentence: str) -> None:
    assert fleet(hosts={name: account(name, **changes)}).broken == [sentence]


def outcome(result: FleetResult) -> DemoResult:
    return DemoResult(
        scenario="fleet", seed=1, messages=MessageCounts(**dict.fromkeys(MessageCounts.__struct_fields__, 0)),
        entities={}, pings=PingCounts(sent=0, accepted=0), syphon=SyphonResult(moved=0), billed_operations=0,
        verdict="balanced", fleet=result, broken=result.broken,
    )  # fmt: skip


def test_the_result_says_who_did_it_who_refused_and_who_took_it_up() -> None:
    lines = as_lines(outcome(fleet()))
    assert f"6 done, 1 refused (web-8: {REFUSAL}), 1 taken up after it came back (web-7 at 00:03:23)" in lines
    assert "the release: 8 done, all 8 released" in lines


def test_only_a_play_in_which_everything_held_ends_with_status_0() -> None:
    assert outcome(fleet()).holds
    broken = outcome(fleet(forced=order(refused=())))
    assert broken.balanced
    assert not broken.holds


def test_captions_have_the_figures_and_fit() -> None:
    answers = answers_caption(order())
    taken_up = taken_up_caption(order(), order(done=(*MEANT, CUT_OFF)), 203.0)
    assert answers == "6 done · 1 refused (web-8) · 1 silent (web-7)"
    assert taken_up == "web-7 took the order up, by itself: 00:03:23"
    assert taken_up_caption(order(), order(), 203.0).startswith("no engine took the order up")
    assert max(len(answers), len(taken_up)) <= LONGEST_CAPTION


# -- the network -----------------------------------------------------------------------------------------------------


@pytest.fixture
async def echo() -> AsyncIterator[int]:
    """The port of a server that sends every byte back."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_a_link_that_is_cut_holds_every_byte_back_until_it_is_mended(echo: int) -> None:
    async with asyncio.timeout(60), NetworkLink() as link:
        port = await link.forward(echo)
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(b"1")
        assert await reader.readexactly(1) == b"1"
        link.cut()
        writer.write(b"2")
        late_reader, late_writer = await asyncio.open_connection(LOOPBACK, port)
        late_writer.write(b"3")
        waits = [asyncio.create_task(one.readexactly(1)) for one in (reader, late_reader)]
        done, _ = await asyncio.wait(waits, timeout=0.2)
        assert not done
        link.mend()
        assert await asyncio.gather(*waits) == [b"2", b"3"]
        writer.write_eof()
        assert await reader.read() == b""
        late_writer.close()
        writer.close()


async def test_a_link_that_ends_closes_its_connections(echo: int) -> None:
    async with asyncio.timeout(60):
        async with NetworkLink() as link:
            reader, writer = await asyncio.open_connection(LOOPBACK, await link.forward(echo))
            writer.write(b"1")
            assert await reader.readexactly(1) == b"1"
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


# -- Senders in other languages: which are found, and what their own lists say. `tests.stage languages` runs them.


STRING = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=s;UseDevelopmentEmulator=true"
TELLS = f"""
import os, sys
print("begun", "a", sep="\\t")
print("begun", "b", sep="\\t")
print("accepted", "a", "12.5", sep="\\t")
print("begun", "c", sep="\\t")
print("failed", "b", "ServiceBusError: no", sep="\\t", flush=True)
sys.stdin.read()
print("begun", os.environ["{VARIABLE}"] + " ".join(sys.argv[1:]), sep="\\t")
print("ended")
"""


def sender(source: str, folder: Path) -> SenderProcess:
    program = SenderProgram(language="Test", sdk="none", command=(sys.executable, "-c", source))
    return SenderProcess(program, "test", folder / "log")


async def test_a_senders_list_is_what_it_wrote(tmp_path: Path) -> None:
    one = sender(TELLS, tmp_path)
    await one.start(STRING, "orders", lanes=3, pause=0.05)
    await one.stop(10)
    assert one.has_ended
    assert one.answers.pop(f"{STRING}orders test 3 50") is SendOutcome.IN_DOUBT
    assert one.answers == {
        "a": SendOutcome.ACCEPTED,
        "b": SendOutcome.IN_DOUBT,
        "c": SendOutcome.IN_DOUBT,
    }
    assert one.errors == {"b": "ServiceBusError: no"}
    assert (one.accepted, one.slowest_ms) == (1, 12.5)
    assert one.calls["a"][1] < one.calls["c"][1]


async def test_a_sender_that_does_not_end_is_ended(tmp_path: Path) -> None:
    one = sender("import time; time.sleep(60)", tmp_path)
    await one.start(STRING, "orders", lanes=1, pause=1)
    await one.stop(0.2)
    assert not one.is_running
    assert not one.has_ended


def test_a_language_without_tools_or_packages_is_named_and_nothing_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    built = tmp_path / "built"
    built.mkdir()
    found, missing = find_programs(built)
    assert found == []
    assert set(missing) == set(FOREIGN)
    assert all("is not on the PATH" in reason for reason in missing.values())

    for tool in ("node", "java", "javac", "mvn", "go"):
        (tmp_path / tool).write_text(f'#!/bin/sh\necho {tool} "$@" $GOPROXY >> {tmp_path}/asked; exit 1\n')
        (tmp_path / tool).chmod(0o755)
    found, missing = find_programs(built)
    assert found == []
    assert all("to have it: " in reason for reason in missing.values())
    asked = {line.split()[0]: line for line in (tmp_path / "asked").read_text().splitlines()}
    assert set(asked) == {"node", "mvn", "go"}
    assert " -o " in asked["mvn"]
    assert asked["go"].endswith(" off")


def test_python_is_always_there() -> None:
    program = python_program()
    asked = subprocess.run(program.command, env=program.environment, capture_output=True, text=True, check=False)
    assert "python_sender" in asked.stderr, "it runs, and misses its arguments"


def test_an_installation_without_the_examples_names_what_the_scenario_needs(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"needs the senders in tests/examples.* clone the project"):
        examples_clone(tmp_path)
    assert examples_clone(Path(__file__).parents[2]) == Path(__file__).parents[2]


# -- the scenario ----------------------------------------------------------------------------------------------------


def result(*, lost: int = 0, **changes: Any) -> DemoResult:
    facts: dict[str, Any] = {"attempted": 9, "accepted": 9, "during_outage": 4, "slowest_seconds": 3.1, "errors": 0}
    go = SenderResult(language="Go", sdk="azservicebus 1", **facts | changes)
    seen = LanguagesResult(senders={"go": go}, missing={"Java": "java is not on the PATH"}, connections_lost=lost)
    return DemoResult(
        scenario="any-language", seed=1, messages=MessageCounts(**dict.fromkeys(MessageCounts.__struct_fields__, 0)),
        entities={}, pings=PingCounts(sent=0, accepted=0), syphon=SyphonResult(moved=0), billed_operations=0,
        verdict="balanced", languages=msgspec.to_builtins(seen), figures=languages_lines(seen),
        broken=what_languages_broke(seen),
    )  # fmt: skip


def test_the_result_says_what_each_sender_saw_and_who_is_missing() -> None:
    assert result().holds
    lines = as_lines(result())
    assert "go (azservicebus 1): 9 of 9 accepted, 4 while the primary was away; 0 errors, slowest 3.1 s" in lines
    assert "Python sent instead of Java: java is not on the PATH" in lines


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"lost": 1}, "1 connections of clients were lost"),
        ({"errors": 2, "first_error": "OutOfOrder"}, "go got 2 errors from send, the first: OutOfOrder"),
        ({"has_ended": False}, "go has calls that did not return"),
        ({"during_outage": 0}, "no message of go was accepted while the primary was away"),
    ],
)
def test_only_a_play_that_no_sender_noticed_ends_with_status_0(changes: dict[str, Any], sentence: str) -> None:
    broken = result(**changes)
    assert broken.broken == [sentence]
    assert broken.balanced
    assert not broken.holds


def test_the_cast_is_named_and_every_caption_fits(tmp_path: Path) -> None:
    programs = [SenderProgram(language=name, sdk="", command=()) for name in FOREIGN]
    missing = dict.fromkeys(FOREIGN, "why")
    captions = [
        *(caption.text for caption in ANY_LANGUAGE.captions),
        *(cast_caption(programs[:number], dict(list(missing.items())[number:])) for number in range(4)),
    ]
    assert max(map(len, captions)) <= LONGEST_CAPTION
    assert captions[-2] == "senders in JavaScript, Java and Python; not here: Go"
    names = [sender.name for sender in named_senders([programs[0], python_program(), python_program()], tmp_path)]
    assert names == ["javascript", "python", "python2"]
