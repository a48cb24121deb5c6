"""The one vocabulary: every kind registered once, every event frozen and made of plain values."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterable

import pytest

from paired_servicebus.core.incidents.incident_fold import ENGINE_ENDED, IncidentFold, IncidentRecord
from paired_servicebus.core.model import pairing_events
from paired_servicebus.core.model import pairing_events as e
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


def test_what_is_registered_is_the_class_that_is_used() -> None:
    """Slots make each class twice; the first one must not stay behind in the register."""
    for cls in KINDS.values():
        assert getattr(pairing_events, cls.__name__) is cls


def test_events_that_are_only_told_have_no_kind() -> None:
    assert {cls.kind for cls in TOLD_ONLY} == {""}


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


@pytest.mark.parametrize("cls", EVENTS)
def test_equal_events_are_equal_and_can_be_kept_in_sets(cls: type[Event]) -> None:
    assert {made(cls), made(cls)} == {made(cls)}
    assert made(cls) != dataclasses.replace(made(cls), at=2.5)


# -- Incidents from events: which episodes they join, and their figures before, during and after.


BEGAN = 1_700_000_000.0


def incidents(events: Iterable[e.Event]) -> tuple[IncidentRecord, ...]:
    fold = IncidentFold()
    for event in sorted(events, key=lambda one: one.at):
        fold.add(event)
    return fold.incidents()


def changed(at: float, now: str, entity: str = "orders") -> e.Event:
    return e.StateChanged(at=BEGAN + at, entity=entity, was="", now=now, why=f"why {now}")


def sends(at: float, route: str, accepted: int, failed: int = 0, entity: str = "orders") -> e.Event:
    return e.SendsCounted(at=BEGAN + at, entity=entity, route=route, accepted=accepted, failed=failed, seconds=1.0)


def operations(at: float, sends: int, parked: int) -> e.Event:
    zero = {"pings": 0, "receives": 0, "moves": 0, "settlements": 0}
    none = {"sent_bytes": 0, "parked_bytes": 0, "moved_bytes": 0}
    return e.OperationsCounted(at=BEGAN + at, sends=sends, parked=parked, **zero, **none)


OUTAGE = (changed(0, "suspect"), changed(60, "failed over"), changed(180, "healthy"))


def test_a_suspect_that_recovers_is_no_incident() -> None:
    assert incidents([changed(0, "suspect"), changed(5, "healthy")]) == ()


def test_an_incident_lasts_from_the_first_failure_until_home() -> None:
    (one,) = incidents(OUTAGE)
    assert (one.began_at, one.ended_at, one.entities) == (BEGAN, BEGAN + 180, ("orders",))
    assert one.episodes[0].cause == "why suspect"


def test_one_that_goes_on_has_no_end_and_nothing_after() -> None:
    (one,) = incidents(OUTAGE[:2])
    assert (one.ended_at, one.after) == (None, None)


def test_episodes_near_each_other_are_one_incident_and_others_are_not() -> None:
    near = [changed(290, "suspect", "audit"), changed(295, "failed over", "audit"), changed(300, "healthy", "audit")]
    far = [changed(900, "forced", "stock"), changed(910, "healthy", "stock")]
    assert [one.entities for one in incidents([*OUTAGE, *near, *far])] == [("orders", "audit"), ("stock",)]


def test_figures_are_those_before_during_and_after() -> None:
    counts = [sends(at, "primary", 10) for at in (*range(-100, 0), *range(181, 240))]
    counts += [sends(at, "backlog/3", 4, 1) for at in range(60, 180)]
    (one,) = incidents([*OUTAGE, *counts])
    assert (one.before.to_primary, one.before.to_backlog) == (1000, 0)
    assert (one.during.to_primary, one.during.to_backlog, one.during.failed) == (0, 480, 120)
    assert one.after is not None
    assert one.after.to_primary == 590, "a count is of the second before it"


def test_sends_of_other_entities_are_not_counted() -> None:
    (one,) = incidents([*OUTAGE, sends(100, "primary", 7, entity="audit")])
    assert one.during.to_primary is None


def test_what_no_event_covers_is_unknown() -> None:
    (one,) = incidents(OUTAGE)
    assert (one.before.to_primary, one.during.to_backlog, one.during.operations) == (None, None, None)


def test_operations_are_all_of_them_and_those_added() -> None:
    (one,) = incidents([*OUTAGE, operations(70, 5, 40), operations(80, 5, 40)])
    assert (one.during.operations, one.during.added) == (90, 80)


def test_the_end_of_the_engine_ends_what_it_knows() -> None:
    (one,) = incidents([*OUTAGE[:2], e.EngineStopped(at=BEGAN + 100, reason="asked to")])
    assert (one.ended_at, one.episodes[0].end) == (BEGAN + 100, ENGINE_ENDED)


def test_pings_are_counted() -> None:
    failed = e.PingFailed(at=BEGAN + 70, entity="orders", number=1, reason="timeout", took=2.0)
    (one,) = incidents([*OUTAGE, failed, e.PingAccepted(at=BEGAN + 90, entity="orders", number=2, took=0.1)])
    assert (one.episodes[0].pings, one.episodes[0].pings_accepted) == (2, 1)
