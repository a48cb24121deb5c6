"""The verbs that act, over an engine in this process: what they order, preview, refuse and print."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus import cli
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.engine.instance.lock import LockHolder, acquire

from .conftest import Engine, Hosted

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
