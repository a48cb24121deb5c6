"""The verb: its question, its consent, its exit status, its result on disk and in JSON."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus import cli
from paired_servicebus.config import load_config
from paired_servicebus.core.drill.drill_plan import DrillOutcome, DrillPlan
from paired_servicebus.core.model.namespace_info import ServiceTier
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.drill.drill_command import WIDTH, question_lines
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.engine.readiness.readiness_check import last_drill
from paired_servicebus.verbs.check_verb import check
from tests.stage.plays.verbs import Verb, verb

from .conftest import BRISK, WORKER_KEY, Lab

DRILL = ("drill", "x-paired-drill-")


def question(environment: str = "", *, tier: ServiceTier = ServiceTier.STANDARD, left: str = "") -> str:
    plan = DrillPlan.of(Policy(), tier, as_configured=False)
    lines = question_lines(
        plan, pairing="orders", environment=environment, primary="north", secondary="south", left=left
    )
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) <= 22, "with its prompt it fits a terminal of 24 lines"
    return " ".join(" ".join(lines).split())


async def run(lab: Lab, *arguments: str, **options: Any) -> int:
    """The verb on a thread, so that this loop's sandbox can answer."""
    return await asyncio.to_thread(cli.main, ["drill", "--config", str(lab.write(**options)), *arguments])


def test_the_question_says_what_where_how_long_and_what_it_costs() -> None:
    text = question("staging")
    for part in (
        "drill of orders in staging", "primary north; secondary south", "disabled (queue)", "deleted (session queue)",
        "untouched (topic)", "2 backlog queues", "SendDisabled", "your own entities and messages",
        "send 10 s · failover 5 s · ping 2 s", "--as-configured", "about 27 s, and at most 18 min 12 s",
        "billed operations",
    ):  # fmt: skip
        assert part in text
    assert "PRODUCTION" not in text


@pytest.mark.parametrize("name", ["production", "Production"])
def test_the_question_names_production(name: str) -> None:
    assert "drill of orders in PRODUCTION: a rehearsed outage This is PRODUCTION" in question(name)


def test_the_question_names_what_is_left_out_and_earlier_drills() -> None:
    text = question("production", tier=ServiceTier.BASIC, left="6 entities of ended drills: paired drill --clean")
    assert "no sessions and no topics" in text
    assert "6 entities of ended drills" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "a drill needs consent; without a terminal, give --yes orders"),
        (("--yes", "payments"), "the pairing is called orders, not payments"),
        (("--clean", "--json"), "--clean carries out no drill"),
        (("--clean", "--yes", "orders"), "--clean --yes takes the name of a drill"),
    ],
)
async def test_without_consent_nothing_is_made(
    lab: Lab, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert await run(lab, *arguments) == 2
    assert said in capsys.readouterr().err
    assert lab.entities() == []
    assert not lab.places.drill.exists()


async def test_without_manage_the_status_is_3_and_the_sentence_says_what_works(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(lab, "--yes", "orders", rule=("worker", WORKER_KEY)) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("paired: the drill was not carried out: ")
    assert "lacks Manage" in err
    assert "paired check" in err
    assert await run(lab, "--clean", rule=("worker", WORKER_KEY)) == 3
    assert "lacks Manage" in capsys.readouterr().err


async def test_production_is_named_before_the_consent(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run(lab, environment="production") == 2
    assert "This is PRODUCTION" in capsys.readouterr().out


@pytest.mark.slow
async def test_a_drill_in_a_process_is_reported_kept_and_found_by_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with verb(tmp_path, *DRILL, options=BRISK) as found:
        assert last_drill(primary="primary", secondary="secondary") is None
        status, out = await found.finish(await found.start("--yes", "orders", "--json"))
        assert status == 0, out
        result = json.loads(out.splitlines()[-1])
        assert (result["outcome"], result["verdict"], result["broken"]) == ("held", "balanced", [])
        assert result["messages"]["accepted"] == result["messages"]["delivered"]
        assert result["seconds"] < 90
        assert "every promise held" in out
        assert found.left() == []
        kept = last_drill(primary="Primary", secondary="SECONDARY")
        assert kept is not None
        assert (kept.outcome, kept.configured, kept.text) == (DrillOutcome.HELD, False, "balanced")
        config = load_config(tmp_path / "pairing.toml")
        finding = (await check(config, engine_paths("orders"))).readiness.findings[-1]
        assert (finding.what, finding.verdict) == ("last drill", "ok")
        assert "short times: held: balanced" in finding.evidence


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGHUP, 129)])
async def test_an_interrupted_drill_deletes_its_entities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, status: int
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with verb(tmp_path, *DRILL) as found:
        process = await found.start("--yes", "orders", "--json")
        await making(found)
        process.send_signal(number)
        ended, out = await found.finish(process)
        assert ended == status, out
        assert json.loads(out.splitlines()[-1])["outcome"] == "interrupted"
        assert (found.left(), found.records()) == ([], [])
        kept = last_drill(primary="primary", secondary="secondary")
        assert kept is not None
        assert kept.outcome is DrillOutcome.INTERRUPTED


async def making(found: Verb) -> None:
    """Wait until the drill has made most of its entities."""
    while len(found.left()) < 4:
        await asyncio.sleep(0.02)
