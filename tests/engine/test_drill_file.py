"""The file with the last drill: found by the namespaces' names, in any pairing's folder; a damaged one is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from paired_servicebus.core.drill.drill_plan import DrillOutcome, LastDrill
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.engine.readiness.readiness_check import DrillFile, last_drill, write_drill


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


def keep(pairing: str, began: float, *, primary: str = "north", secondary: str = "south") -> LastDrill:
    drill = LastDrill(began=began, ended=began + 30, outcome=DrillOutcome.BROKEN, text="late", configured=True)
    write_drill(engine_paths(pairing), DrillFile(run="0123456789ab", primary=primary, secondary=secondary, drill=drill))
    return drill


def test_the_newest_on_the_same_namespaces_counts_whatever_the_pairing_is_called() -> None:
    keep("orders", 100.0)
    newest = keep("web", 200.0)
    keep("payments", 300.0, secondary="west")
    keep("stock", 400.0, primary="east")
    assert last_drill(primary="North", secondary="SOUTH") == newest
    assert last_drill(primary="south", secondary="north") is None


def test_a_pairing_keeps_its_last_drill_alone() -> None:
    keep("orders", 100.0)
    last = keep("orders", 50.0)
    assert last_drill(primary="north", secondary="south") == last


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff", b'{"run": 1}', b"[" * 100_000])
def test_a_damaged_file_is_none_and_hides_no_other(damage: bytes) -> None:
    kept = keep("orders", 100.0)
    keep("web", 200.0)
    engine_paths("web").drill.write_bytes(damage)
    assert last_drill(primary="north", secondary="south") == kept


def test_no_drill_is_none() -> None:
    assert last_drill(primary="north", secondary="south") is None
