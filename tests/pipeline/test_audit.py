"""The audit in SQL says of receipts what the ledger says of lists (SPEC.md section 11)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from paired_servicebus.core.accounting.ledger import Arrival, SendOutcome, balance
from paired_servicebus.core.model.pairing_events import (
    DeadLettered,
    Delivered,
    Diverted,
    Event,
    InDoubt,
    MessageReceived,
    Moved,
    Refused,
    Warned,
)
from paired_servicebus.pipeline.table_store import audit_sql
from paired_servicebus.pipeline.table_store.manifest import File, Manifest
from tests.pipeline.journals import as_rows, load, tables_of

REST = 10_000 * 1_000_000
"""Microseconds: long after anything here happened."""


def verdict_of(events: list[Event]) -> dict[str, Any]:
    with duckdb.connect(config={"threads": 1}) as connection:
        load(connection, "events", "events", as_rows(events))
        connection.execute(f"create view receipts as {audit_sql.PARTIAL.format(events='events')}")
        connection.execute(f"create view merged as {audit_sql.MERGE.format(partials='receipts')}")
        judged = f"({audit_sql.JUDGED.format(merged='merged', now=REST)})"
        done = connection.execute(audit_sql.VERDICT.format(entity="''", judged=judged, group=""))
        (row,) = done.fetchall()
        return dict(zip([column[0] for column in done.description], row, strict=True))


def statuses(folder: Path, events: list[Event]) -> dict[str, str]:
    """At rest: long after the last of them."""
    events = [*events, Warned(at=REST / 1e6, about="time", text="passed")]
    with tables_of(folder, events) as tables:
        return {row["message_id"]: row["status"] for row in tables.rows("select message_id, status from audit")}


def receipt(kind: type[Event], name: str, at: float = 1.0) -> Event:
    given: dict[str, Any] = {"at": at, "entity": "orders", "message_id": name}
    more: dict[type[Event], dict[str, Any]] = {
        Diverted: {"queue": 0},
        Moved: {"queue": 0},
        DeadLettered: {"queue": 0, "reason": "poison"},
        InDoubt: {"route": "primary", "reason": "timeout"},
        Refused: {"reason": "too large"},
        MessageReceived: {"stream": "s"},
    }
    return kind(**given, **more.get(kind, {}))


@pytest.mark.parametrize(
    ("kinds", "status"),
    [
        ([Delivered, MessageReceived], "delivered"),
        ([Diverted, Moved, MessageReceived], "delivered"),
        ([Diverted], "parked"),
        ([Diverted, DeadLettered], "dead-lettered"),
        ([Diverted, DeadLettered, Moved, MessageReceived], "delivered"),
        ([Diverted, Moved], "undelivered"),
        ([Delivered], "undelivered"),
        ([InDoubt], "in doubt"),
        ([InDoubt, MessageReceived], "delivered"),
        ([InDoubt, Delivered, MessageReceived], "delivered"),
        ([Refused], "refused"),
        ([Refused, MessageReceived], "unexpected"),
        ([MessageReceived], "unexpected"),
        ([MessageReceived, Delivered], "delivered"),
    ],
)
def test_what_becomes_of_a_message_where_receivers_tell(tmp_path: Path, kinds: list[type[Event]], status: str) -> None:
    other = [receipt(Delivered, "other"), receipt(MessageReceived, "other")]
    assert statuses(tmp_path, [*other, *(receipt(kind, "m") for kind in kinds)])["m"] == status


@pytest.mark.parametrize(
    ("kinds", "status"),
    [
        ([Delivered], "accepted"),
        ([Diverted], "parked"),
        ([Diverted, Moved], "delivered"),
        ([Moved], "delivered"),
        ([InDoubt], "in doubt"),
        ([Diverted, DeadLettered], "dead-lettered"),
    ],
)
def test_what_can_be_said_where_they_do_not(tmp_path: Path, kinds: list[type[Event]], status: str) -> None:
    assert statuses(tmp_path, [receipt(kind, "m") for kind in kinds])["m"] == status


def test_the_same_name_at_two_entities_is_two_messages(tmp_path: Path) -> None:
    events: list[Event] = [
        Delivered(at=1, entity="orders", message_id="m"),
        Delivered(at=1, entity="payments", message_id="m"),
        MessageReceived(at=2, entity="ORDERS", message_id="m"),
    ]
    with tables_of(tmp_path, events) as tables:
        found = tables.rows("select lower(entity) as entity, status from audit order by 1")
    assert [(row["entity"], row["status"]) for row in found] == [("orders", "delivered"), ("payments", "accepted")]


def test_receivers_of_one_entity_say_nothing_of_another(tmp_path: Path) -> None:
    """Section 11: lost is what was accepted and is nowhere. Nobody looks where no receiver records what it gets."""
    events = [
        receipt(Delivered, "m1"),
        receipt(MessageReceived, "m1"),
        Delivered(at=1, entity="payments", message_id="p1"),
        Diverted(at=1, entity="payments", message_id="p2", queue=0),
        Moved(at=2, entity="payments", message_id="p2", queue=0),
    ]
    assert statuses(tmp_path, events) == {"m1": "delivered", "p1": "accepted", "p2": "delivered"}


def test_what_a_healthy_consumer_has_not_received_yet_is_in_flight_and_not_lost(tmp_path: Path) -> None:
    """A consumer one minute behind: 600 of 1,200 messages are on their way, and their age is said."""
    sent: list[Event] = [Delivered(at=i / 10, entity="orders", message_id=f"m{i}") for i in range(1200)]
    got: list[Event] = [MessageReceived(at=60 + i / 10, entity="orders", message_id=f"m{i}") for i in range(600)]
    with tables_of(tmp_path, [*sent, *got]) as tables:
        counted = {row["status"]: row["n"] for row in tables.rows("select status, count(*) as n from audit group by 1")}
        (oldest,) = tables.rows("select max(age) as age from audit where status = 'in flight'")
    assert counted == {"delivered": 600, "in flight": 600}
    assert oldest["age"] == pytest.approx(59.9)


def test_what_was_not_received_within_the_limit_is_lost(tmp_path: Path) -> None:
    events: list[Event] = [
        Delivered(at=0, entity="orders", message_id="old"),
        Delivered(at=1, entity="orders", message_id="young"),
        MessageReceived(at=audit_sql.IN_FLIGHT, entity="orders", message_id="other"),
    ]
    with tables_of(tmp_path, events) as tables:
        found = {row["message_id"]: row["status"] for row in tables.rows("select message_id, status from audit")}
    assert found == {"old": "undelivered", "young": "in flight", "other": "unexpected"}


def test_a_clock_that_ran_ahead_makes_nothing_lost(tmp_path: Path) -> None:
    """The manifest was written when it was: no record is newer than that."""
    manifest = Manifest(files={"events": (File("a", 1, 9_000_000_000 * 1_000_000, 1),)})
    assert manifest.end(1_790_000_000.0) == 1_790_000_000 * 1_000_000


def test_a_message_that_two_subscriptions_had_once_each_is_no_duplicate(tmp_path: Path) -> None:
    """And of one that a filter keeps from the second, the first one's receipt is enough."""
    events: list[Event] = [
        *(Delivered(at=1, entity="audit", message_id=name) for name in ("both", "one", "twice", "none")),
        MessageReceived(at=2, entity="audit", message_id="both", subscription="all"),
        MessageReceived(at=3, entity="audit", message_id="both", subscription="red"),
        MessageReceived(at=2, entity="Audit", message_id="one", subscription="all"),
        MessageReceived(at=2, entity="audit", message_id="twice", subscription="red"),
        MessageReceived(at=3, entity="audit", message_id="twice", subscription="RED"),
    ]
    assert statuses(tmp_path, events) == dict.fromkeys(("both", "one", "twice"), "delivered") | {"none": "undelivered"}
    found = verdict_of(events)
    assert (found["accepted"], found["delivered"], found["duplicates"], found["lost"]) == (4, 3, 1, 1)


FATES = some.sampled_from(
    [
        (SendOutcome.ACCEPTED, (Delivered,)),
        (SendOutcome.ACCEPTED, (InDoubt, Delivered)),
        (SendOutcome.ACCEPTED, (Diverted, Moved)),
        (SendOutcome.ACCEPTED, (Diverted,)),
        (SendOutcome.ACCEPTED, (Diverted, DeadLettered)),
        (SendOutcome.IN_DOUBT, (InDoubt,)),
        (SendOutcome.REFUSED, (Refused,)),
    ]
)


@settings(max_examples=20)
@given(
    fates=some.lists(FATES, min_size=1, max_size=12),
    deliveries=some.lists(some.integers(0, 13), max_size=30),
    streams=some.integers(1, 3),
)
def test_it_agrees_with_the_ledger(
    fates: list[tuple[SendOutcome, tuple[type[Event], ...]]], deliveries: list[int], streams: int
) -> None:
    """Section 11: "accepted = delivered ∪ parked ∪ dead-lettered ∪ expired by its own TTL ∪ lost, each id once"."""
    answers = {f"m{index}": answer for index, (answer, _) in enumerate(fates)}
    events: list[Event] = [receipt(kind, f"m{index}") for index, (_, kinds) in enumerate(fates) for kind in kinds]
    events.append(MessageReceived(at=1, entity="orders", message_id="x", stream="x", number=0))
    events.append(Delivered(at=1, entity="orders", message_id="x"))
    arrivals = [Arrival("x", "x", 0)]
    for place, index in enumerate(deliveries):
        arrivals.append(Arrival(f"m{index}", f"s{index % streams}", index))
        events.append(
            MessageReceived(
                at=2 + place, entity="orders", message_id=f"m{index}", stream=f"s{index % streams}", number=index
            )
        )
    parked = [f"m{index}" for index, (_, kinds) in enumerate(fates) if kinds == (Diverted,)]
    dead = [f"m{index}" for index, (_, kinds) in enumerate(fates) if DeadLettered in kinds]
    ledger = balance(
        answers={**answers, "x": SendOutcome.ACCEPTED}, arrivals=arrivals, parked=parked, dead_lettered=dead
    )
    found = verdict_of(events)
    names = (
        "attempted", "accepted", "refused", "in_doubt", "recovered", "delivered", "dead_lettered", "parked", "lost",
        "unexpected", "duplicates", "out_of_order",
    )  # fmt: skip
    assert {name: found[name] for name in names} == {name: getattr(ledger, name) for name in names}
