"""Senders in other languages: which are found, and what their own lists say. `tests.stage languages` runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
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

from paired_servicebus.core.accounting.ledger import SendOutcome
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.demo.result import DemoResult, MessageCounts, PingCounts, SyphonResult, as_lines
from paired_servicebus.demo.runner import examples_clone
from paired_servicebus.demo.scenarios import ANY_LANGUAGE

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
