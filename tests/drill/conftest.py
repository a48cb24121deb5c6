"""Two namespaces in this event loop, a pairing.toml for them with times short enough for a test, and real entities."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.config import PairingConfig, load_config
from paired_servicebus.core.drill.drill_plan import DrillMeasures, DrillNote, DrillPlan
from paired_servicebus.core.model.namespace_info import ServiceTier
from paired_servicebus.engine.instance.engine_paths import EnginePaths, engine_paths
from paired_servicebus.trials.drill_command import RECORDS, CleanResult, clean, open_namespaces
from paired_servicebus.trials.drill_run import run_drill
from paired_servicebus.trials.temporary_entities import RunRecord, Side
from servicebus_sandbox import NamespaceSpec, Sandbox, Tier
from servicebus_sandbox.broker.entity_settings import AuthorizationRule, Right
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace

PRIMARY, SECONDARY = "contoso-north", "contoso-south"
WORKER_KEY = "d29ya2Vycy1rZXktb2YtdGhlLXRlc3Q="
WORKER = AuthorizationRule(
    name="worker", rights=frozenset({Right.SEND, Right.LISTEN}), primary_key=WORKER_KEY, secondary_key=WORKER_KEY
)
BRISK = """
backlog_queue_count = 2
failover_interval = "1s"
ping_primary_interval = "1s"
"""


@dataclass
class Lab:
    """The sandbox, its pairing.toml, and the state folder."""

    sandbox: Sandbox
    folder: Path
    lines: list[str] = field(default_factory=list)
    """The progress of the drills."""

    def write(self, *, rule: tuple[str, str] | None = None, only: str = "", environment: str = "") -> Path:
        """A pairing.toml; rule: the name and key of another rule than the root's, on both sides or `only` on one."""
        text = f'[pairing]\nname = "orders"\n{BRISK}'
        text += f'environment = "{environment}"\n' if environment else ""
        for table, name in (("primary", PRIMARY), ("secondary", SECONDARY)):
            one = self.sandbox[name]
            is_limited = rule is not None and only in ("", table)
            string = one.connection_string_for(*rule) if is_limited and rule else one.connection_string
            text += f'[{table}]\nconnection_string = "{string}"\nca_file = "{self.sandbox.ca_file}"\n'
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
        return list((self.places.state / "drill").glob("*.jsonl"))

    def space(self, side: str) -> BrokerNamespace:
        return self.sandbox[PRIMARY if side == "primary" else SECONDARY].node.namespace

    def entities(self) -> list[str]:
        """Every queue and topic of both namespaces."""
        spaces = [self.space(side) for side in Side]
        return [one.path for space in spaces for one in (*space.queues(), *space.topics())]

    async def drill(
        self,
        config: PairingConfig | None = None,
        *,
        tier: ServiceTier = ServiceTier.STANDARD,
    ) -> DrillMeasures:
        """A drill with the pairing's own times."""
        settings = config or self.config()
        plan = DrillPlan.of(settings.policy, tier, as_configured=True)
        record = RunRecord.begin(RECORDS, self.places.state)
        note = DrillNote(record.run, made=1_800_000_000.0, until=1_800_000_900.0)
        try:
            async with open_namespaces(settings) as namespaces:
                return await run_drill(settings, namespaces, plan, note, record, self.lines.append)
        finally:
            record.end()

    async def clean(self, *, named: str = "", **options: Any) -> CleanResult:
        async with open_namespaces(self.config(**options)) as namespaces:
            return await clean(namespaces, self.places.state, named=named)


@asynccontextmanager
async def laboratory(folder: Path, tier: Tier = Tier.STANDARD) -> AsyncIterator[Lab]:
    specs = [NamespaceSpec(PRIMARY, rules=(WORKER,), tier=tier), NamespaceSpec(SECONDARY, rules=(WORKER,))]
    async with Sandbox.start(specs) as sandbox:
        yield Lab(sandbox, folder)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with laboratory(tmp_path) as found:
        yield found
