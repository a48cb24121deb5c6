"""The one vocabulary: every kind registered once, every event frozen and made of plain values."""

from __future__ import annotations

import dataclasses
import inspect
import typing

import pytest

from paired_servicebus.core.model import pairing_events
from paired_servicebus.core.model.pairing_events import KINDS, Event, Record
from paired_servicebus.core.model.verdict import FailureKind

EVENTS = [
    cls
    for name, cls in inspect.getmembers(pairing_events, inspect.isclass)
    if issubclass(cls, Event) and cls is not Event and not name.startswith("_")  # a base: the common fields of some
]
TOLD_ONLY = {
    pairing_events.Ticked,
    pairing_events.SendAccepted,
    pairing_events.SendFailed,
    pairing_events.QueueProbed,
    pairing_events.EntityProbed,
}
"""Would cost the healthy path a line each, or are summed up before they are journalled."""
SAMPLES = {
    str: "x",
    int: 1,
    float: 1.5,
    float | None: 2.5,
    bool: True,
    bool | None: True,
    FailureKind: FailureKind.TIMEOUT,
    str | None: None,
    int | None: None,
    FailureKind | None: FailureKind.TIMEOUT,
}


def made(cls: type[Event]) -> Event:
    hints = typing.get_type_hints(cls)
    return cls(**{field.name: SAMPLES[hints[field.name]] for field in dataclasses.fields(cls)})


def test_every_kind_is_registered_once_under_its_own_name() -> None:
    journalled = {cls for cls in EVENTS if cls not in TOLD_ONLY}
    assert set(KINDS.values()) == journalled
    assert len(KINDS) == len(journalled)
    assert {cls.kind: cls for cls in journalled} == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_a_name_for_files_and_tables(kind: str) -> None:
    assert kind == kind.lower()
    assert all(part.isalpha() for part in kind.split("-"))


@pytest.mark.parametrize("cls", [*EVENTS, Record])
def test_nothing_that_happened_can_be_changed(cls: type) -> None:
    sample = Record(engine="e", boot="b", seq=1, event=made(pairing_events.Ticked)) if cls is Record else made(cls)
    name = dataclasses.fields(cls)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(sample, name, 2)
    assert not hasattr(sample, "__dict__")


@pytest.mark.parametrize("cls", EVENTS)
def test_an_event_has_a_time_and_fields_by_name_only(cls: type[Event]) -> None:
    assert made(cls).at == 1.5
    assert all(field.kw_only for field in dataclasses.fields(cls))


@pytest.mark.parametrize("cls", EVENTS)
def test_an_event_says_what_it_means(cls: type[Event]) -> None:
    assert cls.__doc__
    assert not cls.__doc__.startswith(f"{cls.__name__}(")
