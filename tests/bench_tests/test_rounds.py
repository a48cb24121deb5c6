"""Medians, ratios, bands and turns; and that the benches run, small, and say what they promise. How fast anything was
is not judged here.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus import cli
from paired_servicebus.bench import bench_command, send_bench, syphon_bench
from paired_servicebus.bench.amqp_loads import copy
from paired_servicebus.bench.bench_plans import BenchError, SendPlan, SyphonPlan
from paired_servicebus.bench.rounds import Band, Lap, RoundFigures, Throughput, in_turn, ratio
from paired_servicebus.bench.send_bench import measure_send
from paired_servicebus.bench.syphon_bench import HELD, measure_syphon, most_messages
from paired_servicebus.core.backlog.queue_settings import MAX_SIZE_MB
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox
from tests.bench import added_time, rabbitmq_shovel, trees
from tests.bench.__main__ import main
from tests.bench.dead_destination import measure_dead_head
from tests.bench.failover_bench import FailoverFigures, measure_failover
from tests.bench.figures import figures_table
from tests.bench.memory_growth import measure_memory
from tests.bench.regression import complaints


def laps(*rates: float) -> list[Lap]:
    return [Lap(messages=100, seconds=100 / rate, cpu_seconds=0.001) for rate in rates]


def test_a_pace_is_the_median_of_its_laps() -> None:
    pace = Throughput.of(laps(10, 40, 20))
    assert (pace.low, pace.per_second, pace.high) == (10, 20, 40)
    assert pace.cpu_us == 10


def test_a_ratio_compares_what_took_turns_and_not_the_medians() -> None:
    assert ratio(laps(10, 40, 20), laps(5, 10, 10)) == 2


def test_a_band_is_what_equals_were() -> None:
    band = Band.of(laps(10, 12, 9), laps(10, 10, 10))
    assert (band.low, band.high) == (0.9, 1.2)


def test_each_way_goes_first_once() -> None:
    assert [in_turn("abc", number) for number in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


def test_the_99th_of_a_hundred_counts() -> None:
    figures = FailoverFigures.of([1.0] * 98 + [30.0] * 2, [2.0], size=1, latency_ms=0, senders=1)
    assert (figures.p50_ms, figures.p99_ms, figures.reached) == (1, 30, False)
    late = FailoverFigures.of([1.0] * 98 + [30.0] * 2, [2.0], size=1, latency_ms=10, senders=1)
    assert late.reached


def told(line: str) -> dict[str, Any]:
    found = json.loads(line)
    assert isinstance(found, dict)
    assert line.count("\n") == 1
    return found


@pytest.mark.slow
def test_the_bench_of_the_syphon_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syphon_bench, "PATIENCE", 0.2)
    monkeypatch.setattr(syphon_bench, "SAMPLE", 220)
    plan = SyphonPlan(messages=300, latency_ms=1, rounds=2, destinations=3)
    figures = asyncio.run(measure_syphon(plan))
    found = told(bench_command.as_json("syphon", figures))
    assert found["bench"] == "syphon"
    assert {"ratio_vs_naive", "ratio_vs_best_sdk", "ratio_vs_raw", "aa_low", "aa_high"} <= set(found)
    assert "ratio_vs_peer" not in found
    assert found["ours"]["per_second"] > 0
    assert set(found["targets"]) == {"ratio_vs_naive", "ratio_vs_raw", "ratio_mixed", "cpu_us"}
    assert found["mixed"]["messages"] == 299
    table = bench_command.rounds_table("moving", figures, syphon_bench.PAIRS)
    assert "the syphon, with receipts / a plain copy on our AMQP; at least 0.5: " in table
    assert "µs of our CPU a message; at most 30: " in table


@pytest.mark.slow
def test_the_bench_of_sends_runs() -> None:
    figures = asyncio.run(measure_send(SendPlan(messages=4, rounds=2)))
    found = told(bench_command.as_json("send", figures))
    assert {"ratio_vs_sdk", "aa_low", "aa_high", "ratio_callers"} <= set(found)
    assert set(found["targets"]) == {"ratio_vs_sdk", "ratio_callers"}
    assert "a paired sender / a plain sender" in bench_command.rounds_table("sending", figures, send_bench.PAIRS)


def test_the_bench_of_added_time_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(added_time, "STUBBED", 5)
    monkeypatch.setattr(added_time, "STUB_ROUNDS", 1)
    figures = asyncio.run(added_time.measure_added(size=100))
    found = told(bench_command.as_json("added", figures))
    assert set(found["targets"]) == {"added_us"}


@pytest.mark.slow
def test_the_bench_of_memory_runs() -> None:
    figures = asyncio.run(measure_memory(1000, size=1024))
    found = told(bench_command.as_json("memory", figures))
    assert found["growth_mb"] == pytest.approx(found["most_mb"] - found["warm_mb"], abs=0.05)
    assert figures_table(figures).splitlines()[0].split() == ["messages", "1,000.00"]


@pytest.mark.slow
def test_the_bench_of_failovers_runs() -> None:
    figures = asyncio.run(measure_failover(rounds=1, senders=2))
    found = told(bench_command.as_json("failover", figures))
    assert len(figures.over_ms) == len(figures.back_ms) == 1
    assert 0 < found["p50_ms"] <= found["p99_ms"]
    assert found["back_p50_ms"] > 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["syphon", "--messages", "0"], "--messages is 0"),
        (["syphon", "--rounds", "0"], "--rounds is 0"),
        (["syphon", "--destinations", "0"], "between 1 and 5,000"),
        (["send", "--latency-ms", "-1"], "--latency-ms is -1"),
        (["send", "--config", "nowhere.toml"], "nowhere.toml is not a file"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["syphon", "--peer", "kafka"], 'Choose from: "rabbitmq"'),
        (["memory", "--messages", "5"], "1,000 at least"),
        (["memory", "--messages", "many"], "--messages"),
        (["failover", "--size", "300000"], "between 0 and 250000"),
        (["failover", "--size", "-1"], "--size is -1"),
    ],
)
def test_a_mistake_of_a_developer_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err


async def test_without_rabbitmq_the_peer_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rabbitmq_shovel, "PLACES", ())
    with pytest.raises(BenchError, match="needs rabbitmq-server"):
        async with rabbitmq_shovel.shovel(100):
            pass


def test_ci_complains_of_what_is_beyond_its_bound() -> None:
    facts: dict[str, Any] = {
        "size": 1,
        "latency_ms": 0,
        "rounds": 1,
        "wanted": {},
        "paces": {},
        "aa_low": 1,
        "aa_high": 1,
    }
    syphon_figures = RoundFigures(ratios={"ratio_vs_naive": 20, "ratio_vs_raw": 0.1}, **facts)
    send_figures = RoundFigures(ratios={"ratio_callers": 2}, **facts)
    assert complaints(syphon_figures, send_figures, added_time.AddedTime(size=1, added_us=500)) == [
        "ratio_vs_raw is 0.1; it must be 0.25 at least",
        "added_us is 500; it must be 75 at most",
    ]


def test_the_command_line_loads_the_bench_only_when_it_is_asked_for() -> None:
    loaded = "(name for name in sys.modules if name.startswith('paired_servicebus.bench.'))"
    code = f"import sys, paired_servicebus.cli; print(*{loaded})"
    root = Path(__file__).parents[2]
    found = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["paired_servicebus.bench.bench_plans"]


# -- The measurement of a dead destination at the head runs, small; how fast anything was is not judged here.


async def test_the_healthy_ones_arrive_and_the_others_after_the_healing() -> None:
    figures = await measure_dead_head(300, 30)
    assert (figures.many, figures.few) == (300, 30)
    assert min(figures.plain, figures.alone, figures.behind, figures.later, figures.healed) > 0


# -- How much each way moves, so that the destination holds all of it.


def test_what_is_usually_measured_is_not_cut_short() -> None:
    assert most_messages(1400, rounds=3) >= 50_000


@pytest.mark.parametrize("size", [1024, 65_536, 250_000, 1_000_000])
def test_the_destination_holds_what_six_laps_a_round_bring(size: int) -> None:
    assert 6 * 3 * size * most_messages(size, rounds=3) <= HELD < MAX_SIZE_MB * 1024**2


# -- The raw copy loop moves what it is asked to, and says when it cannot; how fast it was is not judged here.


SPECS = [NamespaceSpec("a", queues=(QueueSpec("source"),)), NamespaceSpec("b", queues=(QueueSpec("target"),))]


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox.start(SPECS) as sandbox:
        client = ServiceBusClient.from_connection_string(sandbox["a"].connection_string)
        async with client, client.get_queue_sender("source") as sender:
            await sender.send_messages([ServiceBusMessage(b"x" * 100) for _ in range(120)])
        yield sandbox


@pytest.fixture
async def wires(sandbox: Sandbox) -> AsyncIterator[list[ReconnectingConnection]]:
    async with AsyncExitStack() as stack:
        found = []
        for name in ("a", "b"):
            client = ServiceBusClient.from_connection_string(sandbox[name].connection_string)
            found.append(ReconnectingConnection(Endpoint.of(client)))
            stack.push_async_callback(found[-1].close)
        yield found


async def test_every_message_is_copied_and_completed(sandbox: Sandbox, wires: list[ReconnectingConnection]) -> None:
    copied = await copy(wires[0], "source", wires[1], "target", count=120, window=50)
    assert copied.messages == 120
    assert copied.cpu_us > 0
    assert sandbox["a"].node.namespace.queue("source").counts().active == 0
    assert sandbox["b"].node.namespace.queue("target").counts().active == 120
    assert wires[1].after_read == []


async def test_a_copy_that_cannot_go_on_says_why(sandbox: Sandbox, wires: list[ReconnectingConnection]) -> None:
    copying = asyncio.create_task(copy(wires[0], "source", wires[1], "target", count=121, window=50))
    while sandbox["b"].node.namespace.queue("target").counts().active < 120:
        await asyncio.sleep(0.01)
    sandbox["b"].node.faults.add("reset")
    with pytest.raises(BenchError, match="source was not copied to target"):
        await copying


# -- The arithmetic of the comparison of two trees, its turns, and what it reads of a bench. No speed is judged here.


OLD, NEW = Path("old"), Path("new")


def compared(rates: Sequence[float], name: str = "paired.per_second") -> trees.Comparison:
    runs = [(turn, {name: rate, "load": 1.0}) for turn, rate in zip(trees.TURNS * 9, rates, strict=False)]
    (found,) = trees.compare_runs("added" if name == "added_us" else "send", (), runs).compared
    return found


def test_a_ratio_is_the_median_of_rounds_and_a_drift_cancels_out() -> None:
    found = compared([100, 200, 400, 800, 10, 30, 30, 10, 10, 20, 20, 10])
    assert (found.low, found.ratio, found.high) == (1, 2, 3)
    assert (found.old, found.new) == (10, 30)


def test_the_band_is_old_against_old_in_both_directions() -> None:
    found = compared([100, 100, 100, 80, 100, 100, 100, 100])
    assert (found.band.low, found.band.high) == (0.8, 1.25)


@pytest.mark.parametrize(
    ("name", "new", "verdict"),
    [
        ("paired.per_second", 100, "inside"),
        ("paired.per_second", 50, "worse"),
        ("paired.per_second", 200, "better"),
        ("paired.cpu_us", 50, "better"),
        ("paired.cpu_us", 200, "worse"),
        ("ratio_vs_sdk", 50, "worse"),
        ("added_us", 200, "worse"),
    ],
)
def test_a_rate_should_be_high_and_a_time_low(name: str, new: float, verdict: str) -> None:
    assert compared([100, new, new, 90], name).verdict == verdict


def test_trees_take_turns_and_neither_always_goes_first() -> None:
    asked: list[Path] = []

    def run(python: Path, bench: str, arguments: Sequence[str]) -> trees.Found:
        asked.append(python)
        return {"p99_ms": 5.0, "load": 0.5}

    figures = trees.measure_trees({"old": OLD, "new": NEW}, "failover", ["--messages", "2"], 2, run)
    assert asked == [OLD, NEW, NEW, OLD] * 2
    assert [one.name for one in figures.compared] == ["p99_ms"]
    table = trees.trees_table(figures)
    assert "failover --messages 2" in table
    assert "load 0.5 to 0.5" in table


def test_a_nested_figure_is_named_by_its_way_and_the_rest_is_left_out() -> None:
    line = {"bench": "send", "paired": {"cpu_us": 2.5}, "peer": None, "over_ms": [1.0], "reached": True, "rounds": 3}
    assert trees.flatten(line) == {"paired.cpu_us": 2.5, "rounds": 3}


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Return an interpreter of an environment whose command `paired` reports how it was called."""
    line = '{"bench": "send", "paired": {"per_second": 10.0}}'
    command = tmp_path / "paired"
    command.write_text(
        f"#!{sys.executable}\nimport sys\nprint('warming up')\n"
        "if sys.argv[1:] != ['bench', 'send', '--size', '1', '--json']:\n    sys.exit('no such option')\n"
        f"print('{line}')\n"
    )
    command.chmod(0o755)
    return tmp_path / "python"


def test_both_trees_are_run_by_their_command(python: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--old", str(python), "--new", str(python), "--bench", "send", "--rounds", "1", "--json"]
    assert main(["trees", *asked, "--", "--size", "1"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["compared"]
    assert (found["name"], found["ratio"], found["verdict"]) == ("paired.per_second", 1, "inside")


def test_a_bench_that_fails_is_reported_in_its_words(python: Path) -> None:
    with pytest.raises(BenchError, match="status 1: no such option"):
        trees.run_bench(python, "send", ["--sise", "1"])


def test_a_tree_that_is_not_installed_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="no command paired beside"):
        trees.find_command(tmp_path / "python", "send")
    with pytest.raises(BenchError, match="no tests/bench above"):
        trees.find_command(tmp_path / ".venv/bin/python", "failover")


def test_no_rounds_cannot_be_compared() -> None:
    with pytest.raises(BenchError, match="--rounds is 0"):
        trees.measure_trees({"old": OLD, "new": NEW}, "send", [], 0)
