"""Whatever a disk has done to a journal: its lines become rows that say so, and the others stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")


from paired_servicebus.core.model.policy import Policy
from paired_servicebus.pipeline.rehearsal.recorded_history import read_history
from tests.damaged import GOOD, UNREADABLE, between, write

NAME = "orders@here-1.jsonl"
READABLE_HERE = {"a text that is objects in objects"}


async def test_a_rehearsal_of_a_damaged_journal_says_what_it_passed_over(tmp_path: Path) -> None:
    path = await write(tmp_path)
    lines = path.read_bytes().splitlines()
    strange = GOOD.replace(b'"kind":"warned","about":"here","text":"good"', b'"kind":"state-changed","entity":"orders",'
                           b'"was":"healthy","now":"heal\\u0000","why":"x"')  # fmt: skip
    path.write_bytes(between([*lines, strange], UNREADABLE["a byte that is not UTF-8"]))
    history = read_history([tmp_path], Policy())
    said = " ".join(history.unknown)
    assert f"line {(len(lines) + 1) // 2 + 1} of {path.name} cannot be read" in said
    assert "what 1 changes of state mean" in said
