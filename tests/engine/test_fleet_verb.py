"""`paired fleet`, and the fleet's metrics: made-up views, no engine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.registry import CollectorRegistry

from paired_servicebus import cli
from paired_servicebus.core.errors import EngineNotRunningError
from paired_servicebus.core.model.fleet_view import FleetView
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.engine.service.metrics import SnapshotCollector
from paired_servicebus.verbs import fleet_verb
from tests.fleet_views import AT, calm, outage

from .test_metrics import snapshot


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
