"""The command of the stage: its table, its mistakes, and short runs that leave nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from servicebus_sandbox.faults import FIELDS, FaultKind, read_fault
from tests.stage.__main__ import main
from tests.stage.course import SECONDARY, Act, Episode, Strike, episodes
from tests.stage.director import running_processes
from tests.stage.gate import Gate
from tests.stage.table import PLAYS, chosen_plays

ROOT = Path(__file__).parents[2]


def command(*arguments: str, folder: Path, seconds: float = 400.0) -> subprocess.CompletedProcess[str]:
    short = Path("/tmp") if len(os.fsencode(folder)) > 60 else folder
    return subprocess.run(
        [sys.executable, "-m", "tests.stage", *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(short)},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def test_the_table_shows_actors_faults_and_promises_of_each_play(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    for name, play in PLAYS.items():
        assert f"{name} (" in listed
        assert all(play.promises)
        for promise in play.promises:
            assert promise in listed


def test_a_first_word_names_all_its_plays_and_an_unknown_play_is_named() -> None:
    assert chosen_plays(["chaos"]) == ["chaos"]
    assert chosen_plays(["fleet"]) == [name for name in PLAYS if name.startswith("fleet-")]
    with pytest.raises(KeyError, match="there is no play 'chaso'"):
        chosen_plays(["chaso"])


@pytest.mark.slow
@pytest.mark.timeout(420)
@pytest.mark.parametrize(("play", "seed"), [("chaos", 0), ("gateway-chaos", 3)])
def test_a_short_run_is_as_promised_and_leaves_nothing_behind(play: str, seed: int, tmp_path: Path) -> None:
    """Seed 0 of chaos begins with an order to force an entity, and kills engine and sender while both ping."""
    done = command(play, "--seed", str(seed), "--minutes", "0.01", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (result["balance"]["lost"], result["balance"]["unexpected"], result["problems"]) == (0, 0, [])
    assert result["episodes"] == 1
    assert result["balance"]["accepted"] > 50
    folder = Path(done.stderr.splitlines()[0].split()[-1])
    assert not folder.exists()
    assert running_processes(folder) == []


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_the_engine_counts_refused_calls_as_the_application_does_and_shows_them_everywhere(tmp_path: Path) -> None:
    """Nothing about a failover is silent: refused calls are counted, and shown."""
    done = command("refused", "--seed", "7", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    figures = json.loads(done.stdout.splitlines()[-1])["figures"]
    assert sum(figures["refused"].values()) > 0
    assert sum(figures["reasons"].values()) == sum(figures["refused"].values())


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_a_killed_drill_leaves_nothing_after_clean_and_touches_nothing_real(tmp_path: Path) -> None:
    done = command("drill-kills", "--seed", "7", "--minutes", "0.3", folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout


# -- The course of chaos: one for each seed, complete in each round, and nothing in it that the sandbox refuses.


SPECIALS = 7
ROUND = SPECIALS + 6


def plan(seed: int, count: int = ROUND) -> list[Episode]:
    return list(islice(episodes(seed), count))


def test_a_seed_has_one_plan() -> None:
    assert plan(1, 50) == plan(1, 50)
    assert plan(1) != plan(2)


@pytest.mark.parametrize("seed", range(20))
def test_a_round_has_every_kind_of_fault_and_every_special_case(seed: int) -> None:
    for start in (0, ROUND):
        round_ = plan(seed, 2 * ROUND)[start : start + ROUND]
        assert {strike.fault for episode in round_ for strike in episode.strikes} >= set(FaultKind)
        assert {episode.act for episode in round_} == set(Act)
        titles = {episode.title for episode in round_}
        assert {"both namespaces are down", "the secondary fails while the primary is down"} <= titles


def test_the_sandbox_accepts_every_fault_that_is_drawn() -> None:
    for seed in range(100):
        for strike in (strike for episode in plan(seed) for strike in episode.strikes):
            order = strike.order()
            assert set(order) <= set(FIELDS)
            assert read_fault(order).kind == strike.fault


def test_faults_that_are_answered_open_no_window() -> None:
    assert not Strike(namespace=SECONDARY, fault="busy").opens
    assert Strike(namespace=SECONDARY, fault="busy", operations=("settle",)).opens
    assert Strike(namespace=SECONDARY, fault="reset").opens


# -- The gate cuts off and forwards again; without it, the plays with cut-off engines would prove nothing.


SOON = 60.0


@pytest.fixture
async def echo() -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_stalled_bytes_arrive_when_it_opens(echo: int) -> None:
    async with asyncio.timeout(SOON), Gate(echo) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        gate.stall()
        writer.write(b"b")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(1), 0.2)
        gate.open()
        assert await reader.readexactly(1) == b"b"
        writer.close()


async def test_a_refusing_gate_resets_connections_old_and_new(echo: int) -> None:
    async with asyncio.timeout(SOON), Gate(echo) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        gate.refuse()
        assert await _ends(reader)
        again, _ = await asyncio.open_connection("127.0.0.1", gate.port)
        assert await _ends(again)
        gate.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
        writer.write(b"c")
        assert await reader.readexactly(1) == b"c"
        writer.close()


async def _ends(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True


async def test_connections_are_counted_as_clients_open_and_close_them(echo: int) -> None:
    async with asyncio.timeout(SOON), Gate(echo) as gate:
        writers = [(await asyncio.open_connection("127.0.0.1", gate.port))[1] for _ in range(2)]
        while gate.opened < 2:
            await asyncio.sleep(0.01)
        assert gate.closed == 0
        writers[0].close()
        while not gate.closed:
            await asyncio.sleep(0.01)
        assert (gate.opened, gate.closed) == (2, 1)
        writers[1].close()
