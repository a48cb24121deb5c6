"""Only exact names and notes are a drill's."""

from __future__ import annotations

import pytest

from paired_servicebus.core.drill.drill_plan import DrillNote, is_backlog, run_called, run_of

RUN = "0123456789ab"
NAME = f"x-paired-drill-{RUN}"
NOTE = DrillNote(RUN, made=1_800_000_000.0, until=1_800_000_900.0)


@pytest.mark.parametrize("rest", ["disabled", "deleted", "untouched", "marker", "x-servicebus-transfer/0"])
def test_paths_under_a_drills_name_are_a_drills(rest: str) -> None:
    assert run_of(f"{NAME}/{rest}") == RUN


@pytest.mark.parametrize(
    "path",
    [
        "", "orders", "x-paired-drill-", "x-paired-drill-orders", "x-paired-drill-orders/disabled", NAME, f"{NAME}/",
        f"{NAME}/orders", f"{NAME}/Disabled", f"{NAME}/disabled/", f"{NAME}/disabled\n", f" {NAME}/disabled",
        f"y{NAME}/disabled", f"{NAME}c/disabled", f"x-paired-drill-{RUN[:-1]}/disabled",
        f"x-paired-drill-{RUN.upper()}/disabled", f"{NAME}/x-servicebus-transfer", f"{NAME}/x-servicebus-transfer/",
        f"{NAME}/x-servicebus-transfer/01", f"{NAME}/x-servicebus-transfer/-1", f"{NAME}/x-servicebus-transfer/x",
        f"{NAME}/x-servicebus-transfer/0/0", f"{NAME}/x-servicebus-transfer/٣", f"{NAME}/disabled/$deadletterqueue",
    ],
)  # fmt: skip
def test_other_paths_are_not(path: str) -> None:
    assert run_of(path) == ""
    assert not is_backlog(path)


def test_backlog_queues_differ_from_the_marker() -> None:
    assert is_backlog(f"{NAME}/x-servicebus-transfer/7")
    assert not is_backlog(f"{NAME}/marker")


def test_a_name_on_the_command_line_is_exact() -> None:
    assert run_called(NAME) == RUN
    assert run_called(f"{NAME}/disabled") == run_called(RUN) == run_called("orders") == ""


def test_a_note_is_read_as_it_was_written_and_fits_an_entity() -> None:
    assert DrillNote.read(str(NOTE)) == NOTE
    assert len(str(NOTE)) <= 1024


@pytest.mark.parametrize(
    "metadata",
    ["", "x", str(NOTE)[1:], f"{NOTE} ", f"{NOTE}\n", str(NOTE).replace("drill", "grill"),
     str(NOTE).replace("2027-01", "2027-13"), str(NOTE).replace(RUN, RUN.upper())],
)  # fmt: skip
def test_any_other_metadata_is_no_note(metadata: str) -> None:
    assert DrillNote.read(metadata) is None
