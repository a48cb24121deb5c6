"""Whatever a disk has done to a journal: its lines become rows that say so, and the others stay as they are."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from paired_servicebus.core.model.policy import Policy
from paired_servicebus.pipeline.ingest.event_writer import events_of
from paired_servicebus.pipeline.rehearsal.histories.journal_history import read_history
from tests.damaged import GOOD, UNREADABLE, between, flipped, write

NAME = "orders@here-1.jsonl"
READABLE_HERE = {"a text that is objects in objects"}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return asyncio.run(write(tmp_path_factory.mktemp("journal"))).read_bytes()


def troubles(data: bytes) -> dict[int, str | None]:
    """Each numbered row's trouble."""
    lines = data.split(b"\n")
    rows = events_of(lines, [NAME] * len(lines)).to_pylist()
    return {row["seq"]: row["trouble"] for row in rows if row["seq"] is not None}


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=some.integers(0, 2**32), places=some.integers(1, 30))
def test_bytes_changed_at_random_places_cost_the_lines_they_are_in(journal: bytes, seed: int, places: int) -> None:
    data, sound = flipped(journal, Random(seed), places)
    assert {number + 1 for number in sound} <= {seq for seq, trouble in troubles(data).items() if trouble is None}


def test_every_strange_line_is_a_row_and_spoils_no_other(journal: bytes) -> None:
    strange = [line for name, line in UNREADABLE.items() if name not in READABLE_HERE]
    lines = journal.splitlines()
    found = troubles(between(lines, b"\n".join(strange)))
    assert {seq for seq, trouble in found.items() if trouble is None} == set(range(1, len(lines) + 1))


@pytest.mark.parametrize("name", [name for name in UNREADABLE if name not in READABLE_HERE])
def test_a_strange_line_is_one_wherever_in_a_block_it_is(name: str) -> None:
    """Arrow's reader takes the process down where a block begins with `null`: apache/arrow#47409."""
    strange = UNREADABLE[name]
    for lines in ([strange, GOOD], [GOOD, strange], [strange, strange], [strange]):
        rows = events_of(lines, [NAME] * len(lines)).to_pylist()
        assert [row["trouble"] is None for row in rows] == [line is GOOD for line in lines]
        assert {row["file"] for row in rows if row["trouble"]} == {NAME}


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


def test_a_line_of_ten_megabytes_costs_its_row_not_its_size() -> None:
    (row,) = events_of([UNREADABLE["ten megabytes"]], [NAME]).to_pylist()
    assert (row["trouble"], len(row["line"])) == ("torn", 65_536)
