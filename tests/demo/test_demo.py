"""The demo without a screen, as a stranger runs it: its own processes, real AMQP, the balance at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.accounting.ledger import SendOutcome, balance
from paired_servicebus.demo.result import DemoResult, EntityResult, MessageCounts, PingCounts, SyphonResult, as_lines

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

    command = [sys.executable, "-m", "paired_servicebus", "demo", "--list"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
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
    command = [sys.executable, "-m", "paired_servicebus", "demo", "--headless", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
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

def judged(result, order):
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
