"""Two namespaces with telling names in this event loop, and a pairing.toml for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.config import PairingConfig, load_config
from paired_servicebus.engine.instance.engine_paths import EnginePaths, engine_paths
from paired_servicebus.trials import delivery_experiments, entity_experiments
from paired_servicebus.trials.trial import Experiment, ExperimentResult
from paired_servicebus.trials.verify_command import EXPERIMENTS, VerifyReport, run_experiments
from servicebus_sandbox import NamespaceSpec, Sandbox
from servicebus_sandbox.broker.entity_settings import AuthorizationRule, Right

PRIMARY, SECONDARY = "contoso-north", "contoso-south"
WORKER_KEY = "d29ya2Vycy1rZXktb2YtdGhlLXRlc3Q="
WORKER = AuthorizationRule(
    name="worker", rights=frozenset({Right.SEND, Right.LISTEN}), primary_key=WORKER_KEY, secondary_key=WORKER_KEY
)


@dataclass
class Lab:
    """The sandbox, its pairing.toml, and the state folder."""

    sandbox: Sandbox
    folder: Path

    def write(self, *, rule: tuple[str, str] | None = None, more: str = "") -> Path:
        """A pairing.toml; rule: the name and key of another rule than the root's."""
        text = '[pairing]\nname = "orders"\n'
        for table, name in (("primary", PRIMARY), ("secondary", SECONDARY)):
            one = self.sandbox[name]
            string = one.connection_string_for(*rule) if rule else one.connection_string
            text += f'[{table}]\nconnection_string = "{string}"\nca_file = "{self.sandbox.ca_file}"\n{more}'
        path = self.folder / "pairing.toml"
        path.write_text(text)
        return path

    def config(self, **options: Any) -> PairingConfig:
        return load_config(self.write(**options))

    @property
    def places(self) -> EnginePaths:
        return engine_paths("orders")

    @property
    def records(self) -> list[Path]:
        return list((self.places.state / "verify").glob("*"))

    def queues(self) -> list[str]:
        """Every queue of both namespaces."""
        spaces = (self.sandbox[name].node.namespace for name in (PRIMARY, SECONDARY))
        return [queue.path for space in spaces for queue in space.queues()]

    async def run(
        self, rows: Sequence[Experiment] = EXPERIMENTS, *, slow: bool = False, **options: Any
    ) -> VerifyReport:
        return await run_experiments(self.config(**options), self.places, slow=slow, rows=rows)


def results(report: VerifyReport) -> dict[str, ExperimentResult]:
    return {one.experiment.name: one.result for one in report.results}


def differing(report: VerifyReport) -> dict[str, str]:
    return {one.experiment.name: one.seen for one in report.results if one.result is ExperimentResult.DIFFERS}


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks and waits shorter than the service allows."""
    monkeypatch.setattr(delivery_experiments, "LOCK", timedelta(seconds=2))
    monkeypatch.setattr(delivery_experiments, "SESSION_LOCK", timedelta(seconds=3))
    monkeypatch.setattr(delivery_experiments, "LATE_SECONDS", 5.0)
    monkeypatch.setattr(delivery_experiments, "QUIET_SECONDS", 1.0)
    monkeypatch.setattr(delivery_experiments, "TTL_MS", 200)
    monkeypatch.setattr(entity_experiments, "EFFECT_SECONDS", 3.0)


@pytest.fixture
async def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brisk: None) -> AsyncIterator[Lab]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    specs = [NamespaceSpec(name, rules=(WORKER,)) for name in (PRIMARY, SECONDARY)]
    async with Sandbox.start(specs) as sandbox:
        yield Lab(sandbox, tmp_path)
