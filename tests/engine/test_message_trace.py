"""`paired find`: where a message went, out of the receipts in a journal's files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paired_servicebus import cli
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.pairing_events import (
    DeadLettered,
    Delivered,
    Diverted,
    Event,
    InDoubt,
    Moved,
    PingSent,
    Record,
)
from paired_servicebus.engine.journal import message_trace as find_module
from paired_servicebus.engine.journal import records, spool
from paired_servicebus.engine.journal.message_trace import as_json, as_lines, covered, find
from tests.approval import Approve

DAY = 1_772_366_400.0
"""2026-03-01 12:00:00 UTC."""


def line(seq: int, event: Event) -> bytes:
    return records.encode(Record(engine="orders@web-1", boot="b", seq=seq, event=event)) + b"\n"


def write(folder: Path, *events: Event, name: str = "a", place: str = spool.CLOSED, tail: bytes = b"") -> Path:
    spool.prepare(folder)
    path = folder / place / f"{name}.jsonl"
    path.write_bytes(b"".join(line(seq, event) for seq, event in enumerate(events, 1)) + tail)
    return path


def diverted(message_id: str, at: float = DAY, queue: int = 3) -> Diverted:
    return Diverted(at=at, entity="orders", message_id=message_id, queue=queue)


def moved(message_id: str, at: float = DAY + 60, queue: int = 3) -> Moved:
    return Moved(at=at, entity="orders", message_id=message_id, queue=queue)


def test_a_message_is_followed_from_the_backlog_to_its_destination(tmp_path: Path) -> None:
    write(tmp_path, diverted("other"), diverted("m-1"), name="a")
    write(tmp_path, moved("m-1"), name="b")
    found = find(tmp_path, "m-1")
    assert as_lines(found, "diverted")[:3] == [
        "2026-03-01 12:00:00  diverted: backlog/3 accepted it, for orders  (orders@web-1)",
        "2026-03-01 12:01:00  moved: orders accepted it from backlog/3  (orders@web-1)",
        "m-1: arrived at orders",
    ]


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ([diverted("m")], "parked in backlog/3, unless a syphon on another machine has moved it"),
        (
            [InDoubt(at=DAY, entity="orders", message_id="m", route="primary", reason="timeout")],
            "in doubt: whether it arrived is not known here; ask the receivers for its message_id",
        ),
        (
            [diverted("m"), DeadLettered(at=DAY, entity="orders", message_id="m", queue=3, reason="too large")],
            "in the dead-letter queue of backlog/3",
        ),
        ([Delivered(at=DAY, entity="orders", message_id="m")], "arrived at orders"),
        ([diverted("m"), moved("m"), moved("m")], "arrived at orders 2 times"),
        ([diverted("m"), diverted("m", queue=1), moved("m")],
         "arrived at orders; parked in backlog/1, unless a syphon on another machine has moved it"),
    ],
)  # fmt: skip
def test_the_outcome_says_where_the_message_is(tmp_path: Path, events: list[Event], outcome: str) -> None:
    write(tmp_path, *events)
    assert find(tmp_path, "m").outcome == outcome


def test_files_that_an_engine_still_writes_are_read_too(tmp_path: Path) -> None:
    write(tmp_path, diverted("m"), name="a")
    write(tmp_path, moved("m"), name="b", place=spool.OPEN)
    assert [step.kind for step in find(tmp_path, "m").steps] == ["diverted", "moved"]


def test_a_file_that_becomes_whole_meanwhile_is_found_in_its_new_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, diverted("m"), place=spool.OPEN)
    listed = find_module._files(tmp_path)
    path.rename(tmp_path / spool.CLOSED / path.name)
    monkeypatch.setattr(find_module, "_files", lambda _: listed)
    assert [step.kind for step in find(tmp_path, "m").steps] == ["diverted"]


def test_torn_lines_are_skipped_and_said(tmp_path: Path, approve: Approve) -> None:
    write(tmp_path, diverted("m"), tail=line(2, moved("m"))[:-20])
    found = find(tmp_path, "m")
    assert [step.kind for step in found.steps] == ["diverted"]
    approve.part(covered(found, "diverted"), "errors of the engine", has=("1 torn",))
    approve.part(as_lines(found, "diverted")[-1], "errors of the engine", has=("2 of",))


def test_what_the_journal_covers_is_said_where_the_message_is_not_in_it(tmp_path: Path) -> None:
    write(tmp_path, PingSent(at=DAY, entity="orders", number=1), PingSent(at=DAY + 3600, entity="orders", number=2))
    found = find(tmp_path, "m")
    assert as_lines(found, "diverted") == [
        "m: not in the journal",
        "the journal covers 2026-03-01 12:00:00 to 2026-03-01 13:00:00 UTC in 1 file; with "
        'journal = "diverted" it holds only messages that left the direct path or were in doubt',
    ]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_journal_without_files_is_an_error_that_says_where_it_looked(tmp_path: Path, is_there: bool) -> None:
    folder = tmp_path / "spool"
    if is_there:
        spool.prepare(folder)
    with pytest.raises(ConfigurationError, match=f"no journal files in {folder}: no engine of this pairing has run"):
        find(folder, "m")


def test_lines_that_cannot_be_read_are_said_wherever_they_are(tmp_path: Path, approve: Approve) -> None:
    """One of them may be the receipt that is looked for."""
    path = write(tmp_path, diverted("m"), moved("other"), moved("m"), moved("m"))
    first, second, third, fourth = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, second.replace(b"moved", b"m\xffved"), third[:-1], fourth, b""]))
    found = find(tmp_path, "m")
    assert [step.kind for step in found.steps] == ["diverted", "moved"]
    assert found.torn == 2
    (said,) = found.unread
    approve.part(said, "errors of the engine", has=("2 lines",))
    approve.part(find(tmp_path, "lost").outcome, "errors of the engine")


def test_an_id_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    write(tmp_path, diverted("m"))
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        find(tmp_path, "m\udcff")


@pytest.mark.parametrize("message_id", ['"quoted"', "ünïcode", "line\nbreak", "back\\slash", "m"])
def test_an_id_is_compared_as_a_whole(tmp_path: Path, message_id: str) -> None:
    write(tmp_path, diverted(message_id), diverted(message_id + "0"), diverted("0" + message_id))
    assert len(find(tmp_path, message_id).steps) == 1


def test_an_id_inside_of_a_reason_is_not_that_message(tmp_path: Path) -> None:
    write(tmp_path, InDoubt(at=DAY, entity="orders", message_id="m", route="primary", reason='"message_id":"x"'))
    assert find(tmp_path, "x").steps == ()


def test_an_empty_id_is_refused(tmp_path: Path, approve: Approve) -> None:
    with pytest.raises(ConfigurationError) as refused:
        find(tmp_path, "")
    approve.part(refused.value, "errors of the engine", has=("message_id",))


def test_json_carries_the_same(tmp_path: Path, approve: Approve) -> None:
    write(tmp_path, diverted("m"))
    told = json.loads(as_json(find(tmp_path, "m"), "diverted"))
    assert (told["found"], told["steps"][0]["kind"], told["first_at"]) == (True, "diverted", DAY)
    approve.part(told["outcome"], "errors of the engine", has=("backlog/3",))


@pytest.fixture
def pairing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pairing.toml whose journal lies in the folder that is returned."""
    key = "SharedAccessKeyName=Root;SharedAccessKey=k;UseDevelopmentEmulator=true"
    tables = "".join(f'[{name}]\nconnection_string = "Endpoint=sb://127.0.0.1;{key}"\n' for name in
                     ("primary", "secondary"))  # fmt: skip
    (tmp_path / "pairing.toml").write_text(f'[pairing]\nname = "orders"\n{tables}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "paired" / "orders" / "spool"


def test_the_command_exits_with_0_for_found_and_1_for_not(
    pairing: Path, capsys: pytest.CaptureFixture[str], approve: Approve
) -> None:
    write(pairing, diverted("m\x1b[2J"))
    assert cli.main(["find", "m\x1b[2J"]) == 0
    approve.part(capsys.readouterr().out, "errors of the engine", has=("backlog/3",))
    assert cli.main(["find", "other", "--json"]) == 1
    approve.part(json.loads(capsys.readouterr().out)["outcome"], "errors of the engine")
    assert cli.main(["find", ""]) == 2
