"""Records as lines: every kind goes there and back, and what is not ours is told apart."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as some

from paired_servicebus.core.model.pairing_events import KINDS, Event, PingSent, QueueProbed, Record
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.engine.journal import records
from paired_servicebus.engine.journal.records import UnreadableLineError

HEADER = ("v", "engine", "boot", "seq", "ts", "kind")
TIMES = some.integers(0, 2**51).map(lambda micros: micros / 1_000_000)  # until 2041 a float holds microseconds
VALUES = {
    "str": some.text(),
    "int": some.integers(0, 2**63 - 1),
    "float": some.floats(allow_nan=False, allow_infinity=False),
    "bool": some.booleans(),
    "bool | None": some.none() | some.booleans(),
    "FailureKind": some.sampled_from(FailureKind),
    "str | None": some.none() | some.text(),
    "int | None": some.none() | some.integers(0, 2**31),
}


def events(kind: type[Event]) -> some.SearchStrategy[Event]:
    values = {field.name: TIMES if field.name == "at" else VALUES[str(field.type)] for field in fields(kind)}
    return some.builds(kind, **values)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.kind)
@given(data=some.data(), seq=some.integers(1, 2**62))
def test_every_kind_goes_to_a_line_and_back(kind: type[Event], data: some.DataObject, seq: int) -> None:
    record = Record(engine="orders@host", boot="b1", seq=seq, event=data.draw(events(kind)))
    line = records.encode(record)
    assert b"\n" not in line
    assert records.decode(line) == record


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.kind)
def test_no_field_hides_behind_a_name_of_the_header(kind: type[Event]) -> None:
    assert not {field.name for field in fields(kind)} & set(HEADER)


def test_a_line_is_flat_with_whole_microseconds() -> None:
    event = PingSent(at=1.2500004, entity="orders", number=3)
    line = records.encode(Record(engine="e", boot="b", seq=7, event=event))
    header = {"v": 1, "engine": "e", "boot": "b", "seq": 7, "ts": 1_250_000, "kind": "ping-sent"}
    assert json.loads(line) == header | {"entity": "orders", "number": 3}


def test_a_kind_of_a_newer_engine_is_not_an_error() -> None:
    line = b'{"v":1,"engine":"e","boot":"b","seq":1,"ts":0,"kind":"something-new","colour":"red"}'
    assert records.decode(line) is None


def test_a_newer_form_of_lines_is_not_guessed_at() -> None:
    line = b'{"v":2,"engine":"e","boot":"b","seq":1,"ts":0,"kind":"ping-sent","entity":"orders","number":3}'
    assert records.decode(line) is None


def test_a_field_of_a_newer_engine_is_passed_over() -> None:
    line = b'{"v":1,"engine":"e","boot":"b","seq":1,"ts":0,"kind":"ping-sent","entity":"o","number":3,"new":1}'
    record = records.decode(line)
    assert record is not None
    assert record.event == PingSent(at=0.0, entity="o", number=3)


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b'{"v":1}', bytes(40), b'{"v":1,"engine":"e","boot":"b","seq":1,"ts":0,"kind":"ping-sent"}'],
    ids=["empty", "torn", "a list", "no header", "zeros", "a field missing"],
)
def test_what_is_no_record_is_said_to_be_none(line: bytes) -> None:
    with pytest.raises(UnreadableLineError, match="not a record"):
        records.decode(line)


def test_only_journalled_events_have_kinds() -> None:
    assert QueueProbed.kind not in KINDS
